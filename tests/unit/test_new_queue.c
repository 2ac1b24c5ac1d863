/* SPDX-License-Identifier: MIT */
/* What is tried on a new queue (queue/selftest.c, ringtest.c), with a drive and a GPU that are threads of this program. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "gpu/kernels/kernels.h"
#include "queue/ringtest.h"
#include "queue/selftest.h"

#define PAGE 4096u
#define DEPTH 8u
#define RINGS 20u
#define GUARD 0x5eed5eed5eed5eedull

static uint32_t lba_size;

int __wrap_gpunvme_ns_get_info(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_ns_info *info);
int __wrap_gnv_arena_alloc(struct gnv_arena *arena, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block);
void __wrap_gnv_arena_free(struct gnv_arena *arena, struct gnv_block *block);
int __wrap_gpunvme_mem_alloc(struct gpunvme_gpu *gpu, struct gpunvme_queue *queue, size_t len, const struct gpunvme_mem_opts *opts,
			     struct gpunvme_mem **mem);
int __wrap_gpunvme_mem_map(struct gpunvme_mem *mem, struct gpunvme_dev *dev);
int __wrap_gpunvme_mem_dbuf(struct gpunvme_mem *mem, struct gpunvme_dev *dev, struct gpunvme_dbuf *dbuf);
void __wrap_gnv_qp_describe(const struct gnv_qp *qp, const struct gpunvme_ns_info *ns, struct gpunvme_dq *dq);
void __wrap_gnv_map_free(struct gpunvme_mem *mem);

int __wrap_gpunvme_ns_get_info(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_ns_info *info)
{
	(void)dev;
	(void)nsid;
	info->nsid = 1;
	info->lba_size = lba_size;
	info->nblocks = 1000;
	return 0;
}

/* ---- The doorbell test: a drive that checks each command's list of pages ---- */

/* A page of guards before each block and after it. */
int __wrap_gnv_arena_alloc(struct gnv_arena *arena, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block)
{
	const size_t whole = (len + PAGE - 1) / PAGE * PAGE;
	uint64_t *at = aligned_alloc(PAGE, whole + (size_t)2 * PAGE);
	size_t i;

	(void)arena;
	(void)gpu;
	assert_non_null(at);
	for (i = 0; i < (whole + (size_t)2 * PAGE) / 8; i++)
		at[i] = i < PAGE / 8 || i >= (whole + PAGE) / 8 ? GUARD : 0;
	block->cpu = (char *)at + PAGE;
	block->iova = block->lane = (uintptr_t)block->cpu;
	block->len = whole;
	return 0;
}

void __wrap_gnv_arena_free(struct gnv_arena *arena, struct gnv_block *block)
{
	const uint64_t *at = block->cpu;
	size_t i;

	(void)arena;
	if (!at)
		return;
	for (i = 0; i < PAGE / 8; i++) {
		assert_true((at - PAGE / 8)[i] == GUARD);
		assert_true((at + block->len / 8)[i] == GUARD);
	}
	free((char *)block->cpu - PAGE);
	memset(block, 0, sizeof(*block));
}

static struct drive {
	_Alignas(PAGE) unsigned char bar[2 * PAGE];
	_Alignas(PAGE) struct gpunvme_sqe sq[DEPTH];
	struct gpunvme_cqe cq[DEPTH];
	uint32_t head, wrong;
	bool stop;
} drive;

/* One block in whole pages (NVMe base specification, PRP Entry Layout). */
static bool is_block(const struct gpunvme_sqe *sqe)
{
	const uint64_t *list = (const uint64_t *)(uintptr_t)sqe->prp2; /* the drive's addresses are the CPU's */
	uint32_t i;

	if (lba_size <= PAGE)
		return !sqe->prp2;
	if (lba_size <= 2 * PAGE)
		return sqe->prp2 == sqe->prp1 + PAGE;
	for (i = 1; i < lba_size / PAGE; i++)
		if (list[i - 1] != sqe->prp1 + (uint64_t)i * PAGE)
			return false;
	return !list[lba_size / PAGE - 1];
}

static void complete(void)
{
	const struct gpunvme_sqe *sqe = &drive.sq[drive.head % DEPTH];
	struct gpunvme_cqe *cqe = &drive.cq[drive.head % DEPTH];
	uint32_t *last = &((uint32_t *)(void *)cqe)[3];
	const uint32_t phase = ~(drive.head / DEPTH) & 1;

	drive.wrong += !is_block(sqe);
	drive.head++;
	__atomic_store_n(last, sqe->cid | phase << 16, __ATOMIC_RELEASE);
}

static void *drive_main(void *arg)
{
	const uint32_t *tail = (const uint32_t *)(void *)(drive.bar + GPUNVME_REG_DOORBELLS + 8);

	(void)arg;
	while (!__atomic_load_n(&drive.stop, __ATOMIC_ACQUIRE)) {
		while (drive.head % DEPTH != __atomic_load_n(tail, __ATOMIC_ACQUIRE))
			complete();
		sched_yield();
	}
	return NULL;
}

/* The kernel of kernels.h that rings. */
static int ring(struct gpunvme_gpu *gpu, const struct gnv_launch *launch)
{
	const struct gnv_ring_args *args = launch->args;
	const uint32_t *go = (const uint32_t *)(uintptr_t)args->go;
	uint32_t i;

	(void)gpu;
	for (i = 1; i <= args->rings; i++) {
		uint32_t word;

		while ((word = __atomic_load_n(go, __ATOMIC_ACQUIRE)) != i)
			if (word == ~0u)
				return 0;
			else
				sched_yield();
		__atomic_store_n((uint32_t *)(uintptr_t)args->doorbell, i & args->mask, __ATOMIC_RELEASE);
		__atomic_store_n((uint32_t *)(uintptr_t)args->rung, i, __ATOMIC_RELEASE);
	}
	return 0;
}

static void ring_with_blocks_of(uint32_t bytes)
{
	static const struct gnv_gpu_ops ops = { .name = "mock", .launch = ring };
	struct gpunvme_gpu *gpu = calloc(1, sizeof(*gpu));
	struct gpunvme_dev *dev = calloc(1, sizeof(*dev));
	struct gnv_qp *qp = calloc(1, sizeof(*qp));
	struct gnv_ringtest test = { .data = { 0 } };
	pthread_t thread;

	assert_true(gpu && dev && qp);
	lba_size = bytes;
	memset(&drive, 0, sizeof(drive));
	gpu->ops = &ops;
	gpu->info.ticks_per_ms = 1;
	dev->nvme.ctrl.page_size = PAGE;
	dev->nvme.ctrl.bar = (char GNV_FORCE GNV_MMIO *)drive.bar;
	dev->ringtest.rings = RINGS;
	dev->ringtest.late_ns = dev->ringtest.lost_ns = 1ull << 62; /* this is not about time */
	qp->dev = dev;
	qp->gpu = gpu;
	qp->qid = 1;
	qp->depth = qp->cq_depth = DEPTH;
	qp->sq.cpu = drive.sq;
	qp->cq.cpu = drive.cq;
	qp->sq_db = (uintptr_t)drive.bar + GPUNVME_REG_DOORBELLS + 8;
	assert_int_equal(pthread_create(&thread, NULL, drive_main, NULL), 0);
	assert_int_equal(gnv_ringtest_run(&test, qp), 0);
	__atomic_store_n(&drive.stop, true, __ATOMIC_RELEASE);
	assert_int_equal(pthread_join(thread, NULL), 0);
	gnv_ringtest_fini(&test, qp);
	assert_int_equal(drive.head, 2 * RINGS);
	assert_int_equal(drive.wrong, 0);
	free(qp);
	free(dev);
	free(gpu);
}

static void commands_of_the_doorbell_test_name_every_page(void **state)
{
	(void)state;
	ring_with_blocks_of(512);
	ring_with_blocks_of(PAGE);
	ring_with_blocks_of(2 * PAGE);
	ring_with_blocks_of(3 * PAGE);
	ring_with_blocks_of(16 * PAGE);
}

/* ---- The self-test, with memory of a GPU that ends where its page ends ---- */

static struct gpunvme_mem memory[2];
static unsigned reads;

int __wrap_gpunvme_mem_alloc(struct gpunvme_gpu *gpu, struct gpunvme_queue *queue, size_t len, const struct gpunvme_mem_opts *opts,
			     struct gpunvme_mem **mem)
{
	(void)gpu;
	(void)queue;
	(void)opts;
	assert_true(len <= memory[0].len);
	*mem = &memory[0];
	return 0;
}

int __wrap_gpunvme_mem_map(struct gpunvme_mem *mem, struct gpunvme_dev *dev)
{
	(void)mem;
	(void)dev;
	return 0;
}

int __wrap_gpunvme_mem_dbuf(struct gpunvme_mem *mem, struct gpunvme_dev *dev, struct gpunvme_dbuf *dbuf)
{
	(void)dev;
	memset(dbuf, 0, sizeof(*dbuf));
	dbuf->base = (uintptr_t)mem->cpu;
	dbuf->len = mem->len;
	return 0;
}

void __wrap_gnv_qp_describe(const struct gnv_qp *qp, const struct gpunvme_ns_info *ns, struct gpunvme_dq *dq)
{
	(void)qp;
	memset(dq, 0, sizeof(*dq));
	dq->lba_shift = (uint32_t)__builtin_ctz(ns->lba_size);
	dq->max_blocks = 8;
	dq->ticks_per_ms = 1;
}

void __wrap_gnv_map_free(struct gpunvme_mem *mem)
{
	(void)mem;
}

static void fill(const struct gnv_fill_args *args)
{
	uint64_t i;

	for (i = 0; i < args->words; i++)
		((uint32_t *)(uintptr_t)args->at)[i] = args->value;
}

static void read_blocks(const struct gnv_selftest_args *args)
{
	const size_t len = (size_t)args->nblocks << args->dq.lba_shift;

	memset((void *)(uintptr_t)args->dbuf.base, 7, len);
	memset((void *)(uintptr_t)args->seen, 7, len);
	memset((void *)(uintptr_t)args->result, 0, sizeof(struct gnv_selftest_result));
	reads++;
}

static int launch_kernel(struct gpunvme_gpu *gpu, const struct gnv_launch *launch)
{
	(void)gpu;
	if (launch->kernel == GNV_KERNEL_FILL)
		fill(launch->args);
	else
		read_blocks(launch->args);
	return 0;
}

static int local_alloc(struct gpunvme_gpu *gpu, size_t len, struct gnv_gpu_range *range)
{
	(void)gpu;
	range->cookie = malloc(len);
	range->lane = (uintptr_t)range->cookie;
	return range->cookie ? 0 : -1;
}

static void local_free(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, size_t len)
{
	(void)gpu;
	(void)len;
	free(range->cookie);
}

static int peek(struct gpunvme_gpu *gpu, void *to, uint64_t lane, size_t len)
{
	(void)gpu;
	memcpy(to, (const void *)(uintptr_t)lane, len);
	return 0;
}

static int coherence(struct gpunvme_gpu *gpu, enum gpunvme_coherence what)
{
	(void)gpu;
	(void)what;
	return -EOPNOTSUPP;
}

/* @len bytes before a page that nobody may touch. */
static char *before_guard(size_t len)
{
	char *at = mmap(NULL, (size_t)2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_true(at != MAP_FAILED);
	assert_int_equal(mprotect(at + PAGE, PAGE, PROT_NONE), 0);
	return at + PAGE - len;
}

static void selftest_stays_in_its_memory(void **state)
{
	static const struct gnv_gpu_ops ops = {
		.name = "mock", .launch = launch_kernel, .local_alloc = local_alloc, .local_free = local_free, .peek = peek,
		.coherence = coherence,
	};
	struct gpunvme_gpu *gpu = calloc(1, sizeof(*gpu));
	struct gpunvme_dev *dev = calloc(1, sizeof(*dev));
	struct gnv_qp *qp = calloc(1, sizeof(*qp));
	struct gnv_selftest test = { .mem = { NULL, &memory[1] } };
	struct gnv_space space = { .by_fd = false };
	struct gnv_port port = { .space = &space };
	unsigned i;

	(void)state;
	assert_true(gpu && dev && qp);
	lba_size = 512;
	gpu->ops = &ops;
	dev->nvme.port = &port;
	qp->dev = dev;
	qp->gpu = gpu;
	qp->local = true;
	for (i = 0; i < 2; i++)
		memory[i] = (struct gpunvme_mem){ .cpu = before_guard(512), .len = 512, .local = i, .gpu = gpu };
	assert_int_equal(gnv_selftest_memory(&test, qp, PAGE), 0);
	assert_int_equal(reads, 2);
	for (i = 0; i < 512; i++)
		assert_int_equal(((const char *)memory[1].cpu)[i], 0);
	gnv_selftest_fini(&test);
	for (i = 0; i < 2; i++)
		munmap((char *)memory[i].cpu + 512 - PAGE, (size_t)2 * PAGE);
	free(qp);
	free(dev);
	free(gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commands_of_the_doorbell_test_name_every_page),
		cmocka_unit_test(selftest_stays_in_its_memory),
	};

	return cmocka_run_group_tests_name("new_queue", tests, NULL, NULL);
}
