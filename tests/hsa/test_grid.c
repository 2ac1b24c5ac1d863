/* SPDX-License-Identifier: MIT */
/*
 * Kernels of a user (grid.hip, compiled by check_code.py, in GRID_CODE) with grids of one to three dimensions: every thread has its
 * status and its data, and every command was sent once. On the threads of the executor.
 */
#include <errno.h>
#include <gpunvme/gpunvme.h>

#include "gpu/gpu.h"
#include "hsa/rig.h"
#include "os/amd/hsa_table.h"

#define LANES_MAX 2048u
#define PER_GROUP 64u /* blocks: 8 pieces of 4 KiB */

struct work {
	struct gpunvme_dvol v;
	struct gpunvme_dvbuf buf;
	uint64_t nblocks;
	uint64_t out;
};

/* What code objects from version 5 on find after their arguments. */
struct hidden {
	uint32_t groups[3];
	uint16_t group[3], rest[3];
	uint64_t reserved[2], offset[3];
	uint16_t dimensions;
};

struct shape {
	uint16_t dimensions, group[3];
	uint32_t groups[3];
};

static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static struct gpunvme_queue *vol;
static struct gpunvme_mem *mem;
static struct gnv_hsa *lanes;
static void *out, *elf;
static struct work work;

static void load(void)
{
	FILE *file = fopen(getenv("GRID_CODE"), "r");
	long len;

	assert_non_null(file);
	fseek(file, 0, SEEK_END);
	len = ftell(file);
	rewind(file);
	elf = malloc((size_t)len);
	assert_int_equal(fread(elf, 1, (size_t)len, file), len);
	fclose(file);
	assert_int_equal(gnv_hsa_load(lanes, elf, (size_t)len), 0);
}

static int begin(void **state)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, 64, 0, 2, 0, 0 };
	bool cpu;

	if (setup(state))
		return -1;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_queue_create_striped(&dev, 1, gpu, &opts, &vol), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, vol, BLOCKS * 512, NULL, &mem), 0);
	assert_int_equal(gpunvme_queue_view(vol, NULL, &work.v), 0);
	assert_int_equal(gpunvme_mem_map_queue(mem, vol, &work.buf), 0);
	assert_int_equal(gnv_hsa_open("0", &lanes), 0);
	assert_int_equal(gnv_hsa_alloc(lanes, LANES_MAX * 4, false, &out, &cpu), 0);
	work.out = (uintptr_t)out;
	load();
	return 0;
}

static int end(void **state)
{
	gnv_hsa_free(lanes, out);
	gnv_hsa_close(lanes);
	free(elf);
	gpunvme_queue_destroy(vol);
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return clear(state) || teardown(state);
}

static uint64_t submitted(void)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_queue_get_info(vol, &info), 0);
	return info.submitted;
}

static void put_arguments(const struct shape *s, uint32_t bytes)
{
	struct hidden hidden = { .dimensions = s->dimensions };

	memcpy(hidden.groups, s->groups, sizeof(hidden.groups));
	memcpy(hidden.group, s->group, sizeof(hidden.group));
	memset(lanes->args, 0, GNV_HSA_ARGS_MAX);
	memcpy(lanes->args, &work, sizeof(work));
	assert_true(bytes >= sizeof(work) && bytes <= GNV_HSA_ARGS_MAX);
	if (bytes >= sizeof(work) + sizeof(hidden))
		memcpy((char *)lanes->args + sizeof(work), &hidden, sizeof(hidden));
}

static void run(const char *kernel, const struct shape *s)
{
	const uint16_t fences = HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
				HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
	hsa_kernel_dispatch_packet_t p = { .header = HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE | fences,
					   .setup = s->dimensions, .workgroup_size_x = s->group[0], .workgroup_size_y = s->group[1],
					   .workgroup_size_z = s->group[2], .grid_size_x = s->group[0] * s->groups[0],
					   .grid_size_y = s->group[1] * s->groups[1], .grid_size_z = s->group[2] * s->groups[2] };
	const struct gnv_hsa_api *api = &lanes->api;
	hsa_executable_symbol_t symbol;
	uint32_t bytes = 0;
	uint64_t at;

	assert_int_equal(api->executable_get_symbol_by_name(lanes->executable, kernel, &lanes->agent, &symbol), 0);
	api->executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &p.kernel_object);
	api->executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &bytes);
	api->executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &p.group_segment_size);
	api->executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &p.private_segment_size);
	put_arguments(s, bytes);
	p.kernarg_address = lanes->args;
	p.completion_signal = lanes->done;
	api->signal_store_screlease(lanes->done, 1);
	at = api->queue_add_write_index_screlease(lanes->queue, 1);
	memcpy((hsa_kernel_dispatch_packet_t *)lanes->queue->base_address + at % lanes->queue->size, &p, sizeof(p));
	api->signal_store_screlease(lanes->queue->doorbell_signal, (hsa_signal_value_t)at);
	while (api->signal_wait_scacquire(lanes->done, HSA_SIGNAL_CONDITION_LT, 1, 10000000, HSA_WAIT_STATE_BLOCKED))
		assert_int_equal(__atomic_load_n(&lanes->broken, __ATOMIC_ACQUIRE), 0);
}

static const struct shape shapes[] = {
	{ 1, { 128, 1, 1 }, { 3, 1, 1 } }, { 2, { 16, 8, 1 }, { 2, 2, 1 } }, { 2, { 64, 2, 1 }, { 1, 3, 1 } },
	{ 2, { 48, 3, 1 }, { 2, 1, 1 } },  { 3, { 8, 4, 4 }, { 2, 1, 2 } },  { 3, { 3, 5, 7 }, { 1, 2, 3 } },
};

static void check(const char *kernel, const struct shape *s, uint64_t nblocks, uint64_t transfers, uint64_t commands)
{
	const uint32_t count = s->group[0] * s->group[1] * s->group[2] * s->groups[0] * s->groups[1] * s->groups[2];
	unsigned char *data = gpunvme_mem_ptr(mem);
	int32_t answer[LANES_MAX];
	uint64_t before = submitted();
	unsigned i;

	work.nblocks = nblocks;
	memset(data, 0xee, BLOCKS * 512);
	memset(answer, 0xee, sizeof(answer));
	assert_int_equal(gnv_hsa_poke(lanes, (uintptr_t)out, answer, sizeof(answer)), 0);
	run(kernel, s);
	assert_int_equal(gnv_hsa_peek(lanes, answer, (uintptr_t)out, sizeof(answer)), 0);
	for (i = 0; i < count; i++)
		if (answer[i])
			fail_msg("%s, groups of %u x %u x %u: lane %u has %d", kernel, s->group[0], s->group[1], s->group[2], i, answer[i]);
	for (i = 0; i < transfers * nblocks * 512; i++)
		if (data[i] != pattern(i / 512))
			fail_msg("%s, groups of %u x %u x %u: block %u is not there", kernel, s->group[0], s->group[1], s->group[2], i / 512);
	assert_int_equal(data[i], 0xee);
	assert_int_equal(submitted() - before, commands);
}

static void test_lanes(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const struct shape *s = &shapes[i];
		const uint32_t count = s->group[0] * s->group[1] * s->group[2] * s->groups[0] * s->groups[1] * s->groups[2];

		check("grid_lanes.kd", s, 1, count, count);
	}
}

static void test_groups(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		const uint32_t groups = shapes[i].groups[0] * shapes[i].groups[1] * shapes[i].groups[2];

		check("grid_groups.kd", &shapes[i], PER_GROUP, groups, groups * (PER_GROUP / 8));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_lanes), cmocka_unit_test(test_groups) };

	return cmocka_run_group_tests(tests, begin, end);
}
