/* SPDX-License-Identifier: MIT */
/*
 * The controller of a drive whose kernel is machine code for AMD GPUs, on the executor. The host's threads are those of the library
 * and of tests/common/rawhost.c, and run at the same time. This file has the function that CPU threads call in place of the kernel.
 *
 * Environment: GFX_CODE, GFX_SEED, GFX_RULES, GFX_STEPS: instructions of a launch at most. With an odd seed one launch runs until the
 * drive is closed. Within a launch nothing but the code itself empties a cache.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <gpunvme/status.h>

#include "common/exec_table.h"
#include "common/rawhost.h"
#include "gfx/drive.h"
#include "vdrive/drive.h"
#include "vdrive/vdrive.h"

#define STEPS 4000000000u
#define SLICE_NS 20000000u
#define RANGES 64u
#define BLOCK 512u
#define MANY 12u /* commands at once, in rings of RAWHOST_ENTRIES */

/* ---- The GPU's memory ---- */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects ranges */
static struct gfx_region ranges[RANGES];
static unsigned ranges_count;

static void note(const char *name, uint64_t at, size_t len)
{
	pthread_mutex_lock(&lock);
	assert_true(ranges_count < RANGES);
	ranges[ranges_count++] = (struct gfx_region){ name, at, len, GFX_DEVICE };
	pthread_mutex_unlock(&lock);
}

static int alloc_and_note(struct gnv_vd_exec *exec, size_t len, uint64_t *at)
{
	const int ret = exec_whole->alloc(exec, len, at);

	if (!ret)
		note("memory of the drive", *at, len);
	return ret;
}

static int show_and_note(struct gnv_vd_exec *exec, void *cpu, size_t len, uint64_t *at, void **cookie)
{
	const int ret = exec_whole->show(exec, cpu, len, at, cookie);

	if (!ret)
		note("memory of the host", *at, len);
	return ret;
}

static void exec_change(struct gnv_vd_exec_ops *ops)
{
	ops->alloc = alloc_and_note;
	ops->show = show_and_note;
}

struct launch {
	struct gfx m;
	const struct gnv_vd *vd;
	unsigned taken; /* ranges */
	uint64_t ring;	/* of queue 1, when its parts were registered */
};

/* What is new. Of regions that overlap the last one counts. */
static void register_new(void *ctx)
{
	struct launch *l = ctx;
	const uint64_t ring = __atomic_load_n(&l->vd->sq[1].ring, __ATOMIC_ACQUIRE);
	const unsigned before = l->taken;
	struct gfx_region part[GFX_DRIVE_PARTS];
	unsigned i, count = gfx_drive_parts(l->vd, part);

	pthread_mutex_lock(&lock);
	for (; l->taken < ranges_count; l->taken++) {
		const struct gfx_region *r = &ranges[l->taken];

		gfx_register(&l->m, r->name, (void *)(uintptr_t)r->base, r->size, r->flags);
	}
	pthread_mutex_unlock(&lock);
	for (i = 0; i < count && (before != l->taken || ring != l->ring); i++)
		gfx_register(&l->m, part[i].name, (void *)(uintptr_t)part[i].base, part[i].size, part[i].flags);
	l->ring = ring;
}

/* ---- Launches ---- */

static struct gfx_code *code;
static uint64_t launches, instructions;

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

/* The clock counts 10 ns. */
static void outside(void *ctx)
{
	struct launch *l = ctx;
	struct timespec now;
	uint64_t ticks;

	clock_gettime(CLOCK_MONOTONIC, &now);
	ticks = (uint64_t)now.tv_sec * 100000000 + (uint64_t)now.tv_nsec / 10;
	l->m.clock = ticks > l->m.clock ? ticks : l->m.clock;
	register_new(l);
	if (!gfx_draw(&l->m, 64)) /* the host's threads need the processor, too */
		nanosleep(&(struct timespec){ 0, 20000 }, NULL);
}

/* What a thread of the drive calls (lib/vdrive/exec_cpu.c): one launch. There is one worker. */
bool gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index)
{
	const struct gnv_vd_args slice = { .vd = args->vd, .slice_ns = setting("GFX_SEED", 1) % 2 ? 0 : SLICE_NS };
	struct launch *l = calloc(1, sizeof(*l));

	if (!l || index)
		abort();
	l->vd = (const struct gnv_vd *)(uintptr_t)args->vd;
	l->m.code = code;
	l->m.rules = (uint32_t)setting("GFX_RULES", GFX_NASTY);
	l->m.random = (setting("GFX_SEED", 1) * 1000 + ++launches) * 0x9e3779b97f4a7c15ull + 77;
	l->m.max_steps = setting("GFX_STEPS", STEPS);
	l->m.outside = outside;
	l->m.missed = register_new;
	l->m.outside_ctx = l;
	gfx_season(&l->m);
	outside(l);
	if (gfx_launch(&l->m, "gnv_vd_kernel", code->lanes, code->lanes, &slice, sizeof(slice))) {
		printf("launch %llu: %s\n", (unsigned long long)launches, l->m.error);
		fflush(stdout);
		_Exit(1);
	}
	instructions += l->m.step;
	free(l);
	return true;
}

/* ---- The tests ---- */

static struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

static uint16_t rw(uint8_t opc, uint64_t lba, uint32_t blocks, uint32_t at)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, opc, lba, blocks, at);

	return rawhost_io(&sqe);
}

static void blocks_come_back(void **state)
{
	uint32_t i;

	(void)state;
	for (i = 0; i < 8; i++) {
		rawhost_fill(&host, 0, (i + 1) * BLOCK, i);
		assert_int_equal(rw(GPUNVME_IO_WRITE, 16 * i, i + 1, 0), 0);
	}
	for (i = 0; i < 8; i++) {
		assert_int_equal(rw(GPUNVME_IO_READ, 16 * i, i + 1, 8192), 0);
		assert_true(rawhost_is_filled(&host, 8192, (i + 1) * BLOCK, i));
	}
	assert_int_equal(rw(GPUNVME_IO_COMPARE, 16, 2, 8192), GPUNVME_SC_COMPARE_FAILURE);
	assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 }), 0);
}

/* Commands that begin in one turn end in its order. Each has its own data. */
static void many_at_once(void **state)
{
	struct gpunvme_sqe sqe;
	struct gpunvme_cqe cqe;
	uint32_t round, i;

	(void)state;
	for (round = 0; round < 4; round++) {
		const uint8_t opc = round % 2 ? GPUNVME_IO_READ : GPUNVME_IO_WRITE;

		for (i = 0; i < MANY; i++) {
			if (!(round % 2))
				rawhost_fill(&host, i * BLOCK, BLOCK, 100 * round + i);
			sqe = rawhost_rw(&host, opc, 200 + i, 1, (round % 2 * MANY + i) * BLOCK);
			rawhost_put(&host.io, &sqe);
		}
		rawhost_ring_sq(&host, &host.io, host.io.tail);
		for (i = 0; i < MANY; i++) {
			assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
			assert_int_equal(cqe.status >> 1, 0);
			if (round % 2)
				assert_true(rawhost_is_filled(&host, (MANY + i) * BLOCK, BLOCK, 100 * (round - 1) + i));
		}
	}
}

/* 32 KiB through a list of pages in reverse order, from the middle of the first one on. */
static void lists_of_pages(void **state)
{
	const uint32_t pages = 9, list = 0x100000, first = 0x200000;
	struct gpunvme_sqe sqe = { .opc = GPUNVME_IO_WRITE, .nsid = 1, .cdw10 = 64, .cdw12 = 63 };
	uint64_t *entry = (uint64_t *)(void *)rawhost_data(&host, list);
	uint32_t i;

	(void)state;
	sqe.prp1 = rawhost_iova(&host, first + 2048);
	sqe.prp2 = rawhost_iova(&host, list);
	for (i = 1; i < pages; i++)
		entry[i - 1] = rawhost_iova(&host, first + (pages + 1 - i) * 8192);
	rawhost_fill(&host, first + 2048, 2048, 7);
	for (i = 1; i < pages; i++)
		rawhost_fill(&host, first + (pages + 1 - i) * 8192, i < pages - 1 ? 4096 : 2048, 7 + i);
	assert_int_equal(rawhost_io(&sqe), 0);
	memset(rawhost_data(&host, first), 0, 12 * 8192);
	sqe.opc = GPUNVME_IO_READ;
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(rawhost_is_filled(&host, first + 2048, 2048, 7));
	for (i = 1; i < pages; i++)
		assert_true(rawhost_is_filled(&host, first + (pages + 1 - i) * 8192, i < pages - 1 ? 4096 : 2048, 7 + i));
	assert_int_equal(rw(GPUNVME_IO_READ, 64 + 4, 8, 0), 0);
	assert_true(rawhost_is_filled(&host, 0, 4096, 8));
}

static void errors_have_their_status(void **state)
{
	const uint64_t blocks = (4u << 20) / BLOCK;
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 8, 0);

	(void)state;
	assert_int_equal(rw(GPUNVME_IO_READ, blocks - 1, 2, 0), GPUNVME_SC_LBA_RANGE);
	assert_int_equal(rw(0x7f, 0, 1, 0), GPUNVME_SC_INVALID_OPCODE);
	sqe.prp1 = 0x123000;
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_DATA_TRANSFER);
	assert_int_equal(rw(GPUNVME_IO_READ, blocks - 1, 1, 0), 0);
}

static int setup(void **state)
{
	ranges_count = 0;
	*state = &config;
	return rawhost_setup(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(blocks_come_back, setup, rawhost_teardown),
		cmocka_unit_test_setup_teardown(many_at_once, setup, rawhost_teardown),
		cmocka_unit_test_setup_teardown(lists_of_pages, setup, rawhost_teardown),
		cmocka_unit_test_setup_teardown(errors_have_their_status, setup, rawhost_teardown),
	};
	char why[300] = "GFX_CODE names no code object";
	int failed;

	code = getenv("GFX_CODE") ? gfx_load(getenv("GFX_CODE"), why, sizeof(why)) : NULL;
	if (!code) {
		printf("%s\n", why);
		return 2;
	}
	config.path = RAWHOST_VRAM;
	config.engine = &gnv_vdrive_engine;
	config.threads = 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	printf("%llu launches, %llu instructions\n", (unsigned long long)launches, (unsigned long long)instructions);
	gfx_unload(code);
	return failed;
}
