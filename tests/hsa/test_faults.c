/* SPDX-License-Identifier: MIT */
/*
 * What can go wrong on a GPU that runs the real code, and what the library says then: addresses that are not its, code that is none,
 * kernels that never end, packets that are malformed. With the threads of the executor only.
 */
#include <elf.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpunvme/gpunvme.h>

#include "gpu/gpu.h"
#include "gpu/kernels/code_object.h"
#include "hsa/rig.h"
#include "os/amd/hsa_table.h"

#define FAULT "0x2b"
#define ILLEGAL "0x2a"
#define EXCEPTION "0x1016"

/* ---- Addresses ---- */

/* A fill of 256 bytes there ends with that status, or 0, and the GPU is of no more use after a fault. */
static void fill(struct gpunvme_gpu *gpu, uint64_t at, const char *status)
{
	const struct gnv_fill_args args = { at, 64, 0x5a5a5a5a, 0 };
	const struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 40, 600000, NULL, NULL };

	assert_int_equal(gpu->ops->launch(gpu, &launch), status ? -EIO : 0);
	if (!status)
		return;
	if (!strstr(gpunvme_errmsg(), status))
		fail_msg("'%s' does not say %s", gpunvme_errmsg(), status);
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "earlier kernel"));
}

enum where { OWN, END, PAST_END, NOTHING, WILD, OTHERS, UNLOCKED, FREED, LOCKED, NOT_ANY_MORE, PLACES };

static uint64_t address_of(struct gpunvme_gpu *gpu, enum where where, struct gnv_gpu_range *own, uint64_t others, void *page,
			   struct gnv_gpu_range *locked)
{
	switch (where) {
	case OWN: return own->lane;
	case END: return own->lane + 8192 - 256;
	case PAST_END: return own->lane + 8192 - 252; /* one word too far */
	case WILD: return 0x7ff123450000;
	case OTHERS: return others;
	case UNLOCKED: return (uintptr_t)page;
	case FREED:
		gpu->ops->local_free(gpu, own, 8192);
		return own->lane;
	case LOCKED:
	case NOT_ANY_MORE:
		assert_int_equal(gpu->ops->host_attach(gpu, page, 4096, locked), 0);
		if (where == NOT_ANY_MORE)
			gpu->ops->host_detach(gpu, locked);
		return locked->lane;
	default: return 0;
	}
}

static void touch(void *arg)
{
	const enum where where = *(enum where *)arg;
	const bool good = where == OWN || where == END || where == LOCKED;
	struct gpunvme_gpu *gpu, *other;
	struct gnv_gpu_range own, far, locked;
	void *page = NULL;

	assert_int_equal(posix_memalign(&page, 4096, 4096), 0);
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_gpu_open("hsa:1", NULL, &other), 0);
	assert_int_equal(gpu->ops->local_alloc(gpu, 8192, &own), 0);
	assert_int_equal(other->ops->local_alloc(other, 8192, &far), 0);
	fill(gpu, address_of(gpu, where, &own, far.lane, page, &locked), good ? NULL : FAULT);
	fill(other, far.lane, NULL);
	if (where == LOCKED) {
		assert_int_equal(*(uint32_t *)page, 0x5a5a5a5a);
		gpu->ops->host_detach(gpu, &locked);
	}
	if (where != FREED)
		gpu->ops->local_free(gpu, &own, 8192);
	other->ops->local_free(other, &far, 8192);
	gpunvme_gpu_close(gpu);
	gpunvme_gpu_close(other);
	left_by_faults(!good);
	free(page);
}

/* A fault ends all that the process does with the GPU, so that each has a process of its own. */
static void test_addresses(void **state)
{
	enum where where;

	(void)state;
	pretend("MOCK_GPUS", "2");
	for (where = OWN; where < PLACES; where++)
		apart(touch, &where);
}

/* ---- Kernels that never end ---- */

/* Nobody tells it to ring: alone it goes on without limit. */
static int wait_for_nobody(struct gpunvme_gpu *gpu, uint32_t timeout_ms)
{
	struct gnv_gpu_range range;
	struct gnv_ring_args args = { .timeout = UINT64_MAX / 4, .rings = 1 };
	struct gnv_launch launch = { GNV_KERNEL_RING, &args, sizeof(args), 1, timeout_ms, NULL, NULL };
	int ret;

	assert_int_equal(gpu->ops->local_alloc(gpu, 4096, &range), 0);
	args.go = range.lane;
	args.doorbell = range.lane + 4;
	args.rung = range.lane + 8;
	ret = gpu->ops->launch(gpu, &launch);
	if (ret != -ETIMEDOUT) /* it may still run */
		gpu->ops->local_free(gpu, &range, 4096);
	return ret;
}

static void test_endless(void **state)
{
	struct gpunvme_gpu *gpu;

	(void)state;
	pretend("MOCK_STEPS", "50000");
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(wait_for_nobody(gpu, 20000), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), EXCEPTION));
	gpunvme_gpu_close(gpu);
	unsetenv("MOCK_STEPS");
	nothing_left();
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(wait_for_nobody(gpu, 100), -ETIMEDOUT);
	gpunvme_gpu_close(gpu); /* which takes the waves away */
	counts->allocations--; /* leaked, as the kernel might have written there */
}

/* ---- Code ---- */

struct code {
	struct gnv_code_object object;
	unsigned char *copy, *descriptor; /* of gnvk_fill */
	uint64_t entry; /* in the copy */
};

/* Where in the file an address of the code is. */
static uint64_t in_file(const unsigned char *elf, uint64_t address)
{
	const Elf64_Ehdr *header = (const void *)elf;
	const Elf64_Phdr *segment = (const void *)(elf + header->e_phoff);
	unsigned i;

	for (i = 0; i < header->e_phnum; i++)
		if (segment[i].p_type == PT_LOAD && address - segment[i].p_vaddr < segment[i].p_filesz)
			return address - segment[i].p_vaddr + segment[i].p_offset;
	fail_msg("no segment holds 0x%llx", (unsigned long long)address);
	return 0;
}

/* The kernel descriptor by the fill kernel's argument bytes: nothing else begins a line of 64 bytes so. */
static void copy_code(struct code *c)
{
	const uint32_t begins[3] = { 0, 0, sizeof(struct gnv_fill_args) };
	uint64_t at;
	int64_t offset;

	assert_int_equal(gnv_code_object_find("gfx1100", &c->object), 0);
	c->copy = malloc(c->object.len);
	assert_non_null(c->copy);
	memcpy(c->copy, c->object.elf, c->object.len);
	for (at = 0; memcmp(c->copy + at, begins, sizeof(begins)); at += 64)
		assert_true(at + 128 < c->object.len);
	c->descriptor = c->copy + at;
	memcpy(&offset, c->descriptor + 16, 8);
	c->entry = in_file(c->copy, at + (uint64_t)offset);
}

/* Load the copy and run its fill kernel. What the last call answered; its words are checked. */
static int run_copy(const struct code *c, size_t len, const char *message)
{
	struct gnv_fill_args args = { 0, 16, 7, 0 };
	const struct gnv_hsa_job job = { "gnvk_fill.kd", &args, sizeof(args), 70, 64, 600000, NULL, NULL };
	struct gnv_hsa *gpu;
	void *memory;
	bool cpu;
	int ret;

	assert_int_equal(gnv_hsa_open("0", &gpu), 0);
	assert_int_equal(gnv_hsa_alloc(gpu, 4096, false, &memory, &cpu), 0);
	args.at = (uintptr_t)memory;
	ret = gnv_hsa_load(gpu, c->copy, len);
	if (!ret)
		ret = gnv_hsa_run(gpu, &job);
	if (ret && !strstr(gpunvme_errmsg(), message))
		fail_msg("'%s' does not say '%s'", gpunvme_errmsg(), message);
	gnv_hsa_free(gpu, memory);
	gnv_hsa_close(gpu);
	return ret;
}

static void put32(unsigned char *at, uint32_t value)
{
	memcpy(at, &value, 4);
}

static void test_code(void **state)
{
	struct code c;

	(void)state;
	copy_code(&c);
	assert_int_equal(run_copy(&c, c.object.len, ""), 0);
	assert_int_equal(run_copy(&c, 100, "cannot be loaded"), -EOPNOTSUPP);
	assert_int_equal(run_copy(&c, c.object.len / 2, "cannot be loaded"), -EOPNOTSUPP);
	c.copy[48] = 0x36; /* for gfx1030 */
	assert_int_equal(run_copy(&c, c.object.len, "cannot be loaded"), -EOPNOTSUPP);
	c.copy[48] = 0x41;
	put32(c.descriptor, 4096); /* local memory, and a stack, which the packet has to ask for */
	put32(c.descriptor + 4, 256);
	assert_int_equal(run_copy(&c, c.object.len, ""), 0);
	put32(c.descriptor, 1 << 20);
	assert_int_equal(run_copy(&c, c.object.len, EXCEPTION), -EIO);
	put32(c.descriptor, 0);
	put32(c.descriptor + 8, 2000); /* arguments that the library has no room for */
	assert_int_equal(run_copy(&c, c.object.len, "which takes 2000"), -EINVAL);
	put32(c.descriptor + 8, sizeof(struct gnv_fill_args) + 8);
	assert_int_equal(run_copy(&c, c.object.len, "which takes 32"), -EINVAL);
	put32(c.descriptor + 8, 16);
	assert_int_equal(run_copy(&c, c.object.len, "which takes 16"), -EINVAL);
	put32(c.descriptor + 8, sizeof(struct gnv_fill_args));
	put32(c.copy + c.entry, ~0u);
	assert_int_equal(run_copy(&c, c.object.len, ILLEGAL), -EIO);
	free(c.copy);
}

/* ---- Packets ---- */

enum mistake { NONE, TYPE, FENCES, DIMENSIONS, GROUP, GRID, KERNEL, LOCAL, STACK, UNALIGNED, ELSEWHERE, MISTAKES };

static const char *const answers[MISTAKES] = {
	[TYPE] = "0x1009", [FENCES] = "0x1009", [DIMENSIONS] = "0x1009", [GROUP] = "0x1001",     [GRID] = "0x1001",
	[KERNEL] = "0x1010", [LOCAL] = "0x1001",  [STACK] = "0x1001",      [UNALIGNED] = "0x1001", [ELSEWHERE] = FAULT,
};

static void spoil(hsa_kernel_dispatch_packet_t *p, enum mistake mistake, const void *elsewhere)
{
	switch (mistake) {
	case TYPE: p->header = (uint16_t)(HSA_PACKET_TYPE_BARRIER_AND | (p->header & 0xff00)); break;
	case FENCES: p->header = HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE; break;
	case DIMENSIONS: p->setup = 0; break;
	case GROUP: p->workgroup_size_x = 2000; break;
	case GRID: p->grid_size_x = 0; break;
	case KERNEL: p->kernel_object += 8; break;
	case LOCAL: p->group_segment_size = 4092; break;
	case STACK: p->private_segment_size = 252; break;
	case UNALIGNED: p->kernarg_address = (char *)p->kernarg_address + 8; break;
	case ELSEWHERE: p->kernarg_address = (void *)(uintptr_t)elsewhere; break;
	default: break;
	}
}

/* A kernel that wants local memory and a stack, called by a packet with one mistake. Returns the status that ended the queue. */
static int dispatch(const struct code *c, enum mistake mistake)
{
	static const struct gnv_fill_args args __attribute__((aligned(64))) = { 0, 0, 0, 0 };
	const uint16_t fences = HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
				HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
	hsa_kernel_dispatch_packet_t p = { .header = HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE | fences,
					   .setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS, .workgroup_size_x = 64,
					   .workgroup_size_y = 1, .workgroup_size_z = 1, .grid_size_x = 64, .grid_size_y = 1,
					   .grid_size_z = 1, .group_segment_size = 4096, .private_segment_size = 256 };
	hsa_executable_symbol_t symbol;
	struct gnv_hsa *gpu;
	uint64_t at;
	int broken;

	assert_int_equal(gnv_hsa_open("0", &gpu), 0);
	assert_int_equal(gnv_hsa_load(gpu, c->copy, c->object.len), 0);
	assert_int_equal(gpu->api.executable_get_symbol_by_name(gpu->executable, "gnvk_fill.kd", &gpu->agent, &symbol), 0);
	gpu->api.executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &p.kernel_object);
	memcpy(gpu->args, &args, sizeof(args));
	p.kernarg_address = gpu->args;
	p.completion_signal = gpu->done;
	spoil(&p, mistake, &args);
	gpu->runs = true; /* so that the library takes its faults */
	at = gpu->api.queue_add_write_index_screlease(gpu->queue, 1);
	memcpy((hsa_kernel_dispatch_packet_t *)gpu->queue->base_address + at, &p, sizeof(p));
	gpu->api.signal_store_screlease(gpu->queue->doorbell_signal, (hsa_signal_value_t)at);
	do {
		hsa_signal_value_t left = gpu->api.signal_wait_scacquire(gpu->done, HSA_SIGNAL_CONDITION_LT, 1, 1000000,
									 HSA_WAIT_STATE_BLOCKED);

		broken = __atomic_load_n(&gpu->broken, __ATOMIC_ACQUIRE);
		if (!left)
			break;
	} while (!broken);
	gnv_hsa_close(gpu);
	return broken;
}

static void make_mistake(void *arg)
{
	const enum mistake mistake = *(enum mistake *)arg;
	struct code c;
	int broken;

	copy_code(&c);
	put32(c.descriptor, 4096);
	put32(c.descriptor + 4, 256);
	broken = dispatch(&c, mistake);
	if (broken != (answers[mistake] ? (int)strtol(answers[mistake], NULL, 0) : 0))
		fail_msg("mistake %d ended with 0x%x", mistake, (unsigned)broken);
	free(c.copy);
}

static void test_packets(void **state)
{
	enum mistake mistake;

	(void)state;
	for (mistake = NONE; mistake < MISTAKES; mistake++)
		apart(make_mistake, &mistake);
}

/* ---- Loads that fall apart ---- */

/* How loads behave is drawn for each launch, so that several may be needed until one is torn at the wrong moment. */
static void test_torn(void **state)
{
	const struct gpunvme_ordering_result *cqe16;
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	struct gpunvme_ordering ordering = GPUNVME_ORDERING_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	unsigned turns;

	(void)state;
	pretend("MOCK_LACKS", "whole");
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	opts.commands = 300;
	cqe16 = &ordering.test[GPUNVME_ORDERING_CQE16];
	for (turns = 0; turns < 50 && cqe16->result != GPUNVME_ORDERING_FAILED; turns++) {
		assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, &ordering), 0);
		assert_int_equal(ordering.failed, 0);
	}
	assert_int_equal(cqe16->result, GPUNVME_ORDERING_FAILED);
	assert_non_null(strstr(cqe16->why, "after its phase bit"));
	assert_false(ordering.queue_flags & GPUNVME_QUEUE_CQE16);
	gpunvme_gpu_close(gpu);
	gpunvme_dev_close(dev);
}

#define TEST(name) cmocka_unit_test_teardown(name, clear)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_addresses), TEST(test_endless), TEST(test_code), TEST(test_packets),
					    TEST(test_torn) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
