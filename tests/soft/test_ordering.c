/* SPDX-License-Identifier: MIT */
/*
 * gpunvme_gpu_ordering_test() on the software controller: nothing to object to an honest one; a controller that does something forbidden once
 * is found out, by the test that is for it and with the right words. On CPU threads, or on those that GPUNVME_TEST_GPU names.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "mem/space_soft.h"
#include "queue/queue.h"
#include "soft/soft.h"
#include "util/mmio.h"

#define COMMANDS 600u
#define FEW 200u /* of two launches, with copies before each */
#define TIMEOUT_MS 5000u /* where a command does not come in time; what a busy machine holds up elsewhere may take long */
#define LONG_MS 60000u
#define NTH 8u /* command of a queue, from which on the first that is alone gives occasion to the crime */

enum crime { HONEST, FAIL, DROP, SLOW, SKIP, STALE, EARLY, TORN, OLD };

struct stage {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gnv_soft_fault fault;
	enum crime crime;
	unsigned queue, queues; /* the crime is done on the queue-th queue that was used */
	unsigned last, seen;    /* commands of that one */
	bool done;
};

static const char *lanes(void)
{
	return getenv("GPUNVME_TEST_GPU") ? getenv("GPUNVME_TEST_GPU") : "cpu";
}

static void open_disk(struct gpunvme_dev **dev, struct gpunvme_gpu **gpu)
{
	char uri[512];

	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, dev), 0);
	assert_int_equal(gpunvme_gpu_open(lanes(), NULL, gpu), 0);
}

static void nap(unsigned ms)
{
	struct timespec t = { 0, ms * 1000000l };

	nanosleep(&t, NULL);
}

/* Put a completion where the controller will put its next one. */
static void forge(struct stage *s, uint32_t cid, bool whole)
{
	struct gnv_qp *qp = gnv_qp_first(s->dev);
	uint32_t *entry = qp->cq.cpu;

	while (gnv_mmio_read32(entry + 3) >> 16 & 1)
		entry += 4;
	if (whole) {
		gnv_mmio_write32(entry, 0);
		gnv_mmio_write32(entry + 1, 0);
		gnv_mmio_write32(entry + 2, qp->qid << 16);
	}
	gnv_mmio_write32(entry + 3, 1u << 16 | cid);
	nap(20);
}

/* Nothing else is in flight: what is forged stands where the true completion will. */
static bool alone(const struct stage *s, uint16_t sqid, const struct gpunvme_sqe *cmd)
{
	const struct gnv_ctrl *ctrl = &s->dev->nvme.ctrl;
	uint32_t tail = gnv_mmio_read32(ctrl->bar + gnv_ctrl_sq_doorbell(ctrl, sqid));
	const uint32_t *entry = gnv_qp_first(s->dev)->cq.cpu;
	uint32_t completed = 0;

	for (; gnv_mmio_read32(entry + 3) >> 16 & 1; entry += 4)
		completed++;
	return completed == cmd->cid && tail == (cmd->cid + 1u) % gnv_qp_first(s->dev)->depth;
}

/* The first comparison is one of those that must fail, as the thread has stored what is wrong. */
static bool is_time(const struct stage *s, uint16_t sqid, const struct gpunvme_sqe *cmd)
{
	if (s->crime == OLD)
		return cmd->opc == GPUNVME_IO_COMPARE;
	return s->seen >= NTH && alone(s, sqid, cmd);
}

static enum gnv_soft_action decide(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	struct stage *s = ctx;

	s->seen = s->dev->queues.incarnation == s->last ? s->seen + 1 : 1;
	s->queues += s->dev->queues.incarnation != s->last;
	s->last = s->dev->queues.incarnation;
	if (s->done || s->queues - 1 != s->queue || !is_time(s, sqid, cmd))
		return GNV_SOFT_GO;
	s->done = true;
	switch (s->crime) {
	case FAIL:
		*status = GPUNVME_SC_INVALID_FIELD;
		return GNV_SOFT_FAIL;
	case DROP:
		return GNV_SOFT_DROP;
	case SLOW:
		*delay_us = (TIMEOUT_MS + TIMEOUT_MS / 2) * 1000;
		return GNV_SOFT_DELAY;
	case SKIP:
	case OLD: /* as if it compared with what was there before */
		return GNV_SOFT_SKIP;
	case STALE:
		forge(s, (cmd->cid - 64u) & 0x7fff, true);
		return GNV_SOFT_GO;
	case EARLY:
		forge(s, cmd->cid, true);
		return GNV_SOFT_GO;
	case TORN:
		forge(s, cmd->cid, false);
		return GNV_SOFT_GO;
	default:
		return GNV_SOFT_GO;
	}
}

static int make_image(void **state)
{
	return image_make_disk(state, 4 << 20);
}

/* Grows up to all commands of all tests. */
static void count_progress(void *ctx, uint64_t done, uint64_t total)
{
	uint64_t *last = ctx;

	assert_int_equal(total, COMMANDS * GPUNVME_ORDERING_TESTS);
	assert_in_range(done, *last, total);
	*last = done;
}

/* These are noticed by a time-out. Then a busy machine may be too late elsewhere in that run, too. */
static bool takes_time(enum crime crime)
{
	return crime == DROP || crime == SLOW || crime == SKIP;
}

/* A run in which `crime` is done once, in test `where`. The queue before the tests' reads the block. */
static void run_on(uint32_t queue_flags, enum crime crime, unsigned where, struct gpunvme_ordering *l)
{
	static struct stage stage;
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	uint64_t done = 0;
	char uri[512];

	memset(&stage, 0, sizeof(stage));
	stage.crime = crime;
	stage.queue = 1 + where;
	stage.fault = (struct gnv_soft_fault){ decide, &stage };
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &stage.dev), 0);
	assert_int_equal(gpunvme_gpu_open(lanes(), NULL, &stage.gpu), 0);
	gnv_soft_set_fault(gnv_port_soft(stage.dev->nvme.port), &stage.fault);
	opts.commands = COMMANDS;
	opts.timeout_ms = takes_time(crime) ? TIMEOUT_MS : LONG_MS;
	opts.queue_flags = queue_flags;
	opts.progress = count_progress;
	opts.progress_ctx = &done;
	*l = (struct gpunvme_ordering)GPUNVME_ORDERING_INIT;
	assert_int_equal(gpunvme_gpu_ordering_test(stage.dev, stage.gpu, &opts, l), 0);
	assert_int_equal(done, COMMANDS * GPUNVME_ORDERING_TESTS);
	assert_null(gnv_qp_first(stage.dev));
	gpunvme_dev_close(stage.dev);
	gpunvme_gpu_close(stage.gpu);
}

static void run_with(enum crime crime, unsigned where, struct gpunvme_ordering *l)
{
	run_on(0, crime, where, l);
}

static void test_honest(void **state)
{
	struct gpunvme_ordering l;
	unsigned i;

	(void)state;
	run_with(HONEST, 0, &l);
	assert_int_equal(l.failed, 0);
	assert_int_equal(l.queue_flags, GPUNVME_QUEUE_CQE16 | GPUNVME_QUEUE_NO_READBACK);
	for (i = 0; i < GPUNVME_ORDERING_TESTS; i++) {
		assert_int_equal(l.test[i].result, GPUNVME_ORDERING_PASSED);
		assert_int_equal(l.test[i].commands, COMMANDS);
		assert_true(l.test[i].mean_us > 0 && l.test[i].worst_us >= l.test[i].mean_us);
	}
}

static void test_crimes(void **state)
{
	static const struct {
		enum crime crime;
		unsigned where;
		const char *why;
	} cases[] = {
		{ FAIL, GPUNVME_ORDERING_ORDER, "fetched in pieces" },
		{ STALE, GPUNVME_ORDERING_ORDER, "an old entry" },
		{ DROP, GPUNVME_ORDERING_CQE, "not even when the CPU rings" },
		{ SLOW, GPUNVME_ORDERING_DOORBELL, "doorbell did not arrive" },
		{ SKIP, GPUNVME_ORDERING_DATA, "not where it belongs" },
		{ EARLY, GPUNVME_ORDERING_DATA, "after its completion" },
		{ TORN, GPUNVME_ORDERING_CQE16, "after its phase bit" },
		{ FAIL, GPUNVME_ORDERING_STORE, "fetched in pieces" },
		{ SKIP, GPUNVME_ORDERING_STORE, "not where it belongs" },
		{ OLD, GPUNVME_ORDERING_STORE, "before the thread's last store" },
	};
	struct gpunvme_ordering l;
	unsigned i, k;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		run_with(cases[i].crime, cases[i].where, &l);
		for (k = 0; k < GPUNVME_ORDERING_TESTS; k++) {
			if (k != cases[i].where) {
				if (!takes_time(cases[i].crime))
					assert_int_equal(l.test[k].result, GPUNVME_ORDERING_PASSED);
				continue;
			}
			if (l.test[k].result != GPUNVME_ORDERING_FAILED)
				fail_msg("case %u: %s was not noticed", i, l.test[k].name);
			assert_true(l.test[k].faults > 0);
			if (!strstr(l.test[k].why, cases[i].why))
				fail_msg("%s: '%s' is not in '%s'", l.test[k].name, cases[i].why, l.test[k].why);
		}
		if (takes_time(cases[i].crime))
			continue;
		assert_int_equal(l.failed, cases[i].where != GPUNVME_ORDERING_CQE16);
		assert_int_equal(!(l.queue_flags & GPUNVME_QUEUE_CQE16), cases[i].where == GPUNVME_ORDERING_CQE16);
		assert_int_equal(!(l.queue_flags & GPUNVME_QUEUE_NO_READBACK), cases[i].where == GPUNVME_ORDERING_ORDER);
	}
}

/* Rings and data in the GPU's memory: the same is noticed there. */
static void test_vram(void **state)
{
	struct gpunvme_ordering l;

	(void)state;
	if (!strcmp(lanes(), "cpu"))
		SKIP("no memory of a GPU");
	run_on(GPUNVME_QUEUE_VRAM, HONEST, 0, &l);
	assert_int_equal(l.failed, 0);
	assert_int_equal(l.queue_flags, GPUNVME_QUEUE_VRAM | GPUNVME_QUEUE_CQE16 | GPUNVME_QUEUE_NO_READBACK);
	run_on(GPUNVME_QUEUE_VRAM, STALE, GPUNVME_ORDERING_ORDER, &l);
	assert_non_null(strstr(l.test[GPUNVME_ORDERING_ORDER].why, "an old entry"));
	assert_int_equal(l.queue_flags, 0); /* the host's memory was not tried */
	run_on(GPUNVME_QUEUE_VRAM, EARLY, GPUNVME_ORDERING_DATA, &l);
	assert_non_null(strstr(l.test[GPUNVME_ORDERING_DATA].why, "after its completion"));
	assert_int_equal(l.test[GPUNVME_ORDERING_ORDER].result, GPUNVME_ORDERING_PASSED);
	assert_int_equal(l.queue_flags, 0);
}

/* What was proven goes into queues, and a view says so. */
static void test_flags(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	(void)state;
	open_disk(&dev, &gpu);
	opts.flags = GPUNVME_QUEUE_CQE16 | GPUNVME_QUEUE_NO_READBACK;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0); /* its self-test reads by 16-byte loads */
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_true(dq.flags & GPUNVME_DQ_CQE16);
	gpunvme_queue_destroy(qp);
	assert_int_equal(gpunvme_gpu_ordering_test(dev, NULL, NULL, &l), -EINVAL);
	assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, NULL, NULL), -EINVAL);
	l.stride--;
	assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, NULL, &l), -EINVAL);
	l.stride += 2; /* as many would not fit */
	assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, NULL, &l), -EINVAL);
	assert_int_equal(gpunvme_gpu_ordering_test(NULL, gpu, NULL, &l), -EINVAL);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

/* A program of an older library, which knew fewer tests, and one of a newer library, which knows more. */
static void test_other_versions(void **state)
{
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	const size_t head = offsetof(struct gpunvme_ordering, test), each = sizeof(struct gpunvme_ordering_result);
	const uint32_t rooms[] = { 0, 1, GPUNVME_ORDERING_TESTS - 1, GPUNVME_ORDERING_TESTS, GPUNVME_ORDERING_TESTS + 1 };
	unsigned char *p = malloc(head + (GPUNVME_ORDERING_TESTS + 2) * each);
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	size_t i;

	(void)state;
	assert_non_null(p);
	open_disk(&dev, &gpu);
	opts.commands = 64;
	for (i = 0; i < sizeof(rooms) / sizeof(rooms[0]); i++) {
		struct gpunvme_ordering *l = (void *)p;
		const uint32_t filled = rooms[i] < GPUNVME_ORDERING_TESTS ? rooms[i] : GPUNVME_ORDERING_TESTS;

		memset(p, 0xee, head + (GPUNVME_ORDERING_TESTS + 2) * each);
		l->size = head + rooms[i] * each;
		l->stride = (uint32_t)each;
		l->tests = rooms[i];
		assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, l), 0);
		assert_int_equal(l->tests, filled);
		if (filled)
			assert_string_equal(l->test[0].name, "order");
		assert_int_equal(p[head + filled * each], 0xee); /* nothing is written after them */
	}
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	free(p);
}

/* Not every controller can compare, and a few commands only read. */
static void test_not_run(void **state)
{
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	unsigned i;

	(void)state;
	open_disk(&dev, &gpu);
	opts.timeout_ms = LONG_MS;
	for (i = 0; i < 3; i++) {
		struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;

		opts.commands = i == 1 ? 64 : 65;
		if (i == 2)
			dev->nvme.info.oncs &= (uint16_t)~GPUNVME_ONCS_COMPARE;
		assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, &l), 0);
		assert_int_equal(l.failed, 0);
		assert_int_equal(l.queue_flags, GPUNVME_QUEUE_CQE16 | GPUNVME_QUEUE_NO_READBACK);
		assert_int_equal(l.test[GPUNVME_ORDERING_STORE].result, i ? GPUNVME_ORDERING_NOT_RUN : GPUNVME_ORDERING_PASSED);
		assert_int_equal(l.test[GPUNVME_ORDERING_STORE].commands, i ? 0 : 65);
		assert_int_equal(!*l.test[GPUNVME_ORDERING_STORE].why, !i);
	}
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

/* Data elsewhere than the rings. */
static void test_memory(void **state)
{
	static const uint32_t good[] = { GPUNVME_MEM_HOST, GPUNVME_MEM_HUGE, GPUNVME_MEM_SHARED, GPUNVME_MEM_VRAM };
	static const uint32_t bad[] = { GPUNVME_MEM_CMB_LISTS, 1u << 31, GPUNVME_MEM_HOST | GPUNVME_MEM_VRAM };
	const bool cpu = !strcmp(lanes(), "cpu");
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	size_t i;

	(void)state;
	open_disk(&dev, &gpu);
	opts.commands = 100;
	for (i = 0; i < 4; i++) {
		struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;
		int ret;

		opts.mem_flags = good[i];
		ret = gpunvme_gpu_ordering_test(dev, gpu, &opts, &l);
		assert_int_equal(ret, cpu && good[i] == GPUNVME_MEM_VRAM ? -EOPNOTSUPP : 0);
		assert_int_equal(l.failed, 0);
		assert_int_equal(l.test[GPUNVME_ORDERING_DATA].commands, ret ? 0 : 100);
	}
	for (i = 0; i < 3; i++) {
		struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;

		opts.mem_flags = bad[i];
		assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, &l), -EINVAL);
	}
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

/* Without the variable a machine without a GPU has the real HIP, if any. */
static void skip_without_hip(void)
{
	if (!strncmp(lanes(), "hsa", 3) && !getenv("GPUNVME_HIP_LIBRARY"))
		skip();
}

/*
 * HIP copies the data between the launches. What it makes cached the library makes uncached again. Where that does not work
 * (MOCK_LACKS=uncached) memory that HIP can lock must fail a test, as it did before the library tried. GPUNVME_MEM_HOST it
 * cannot lock.
 */
static void test_copies(void **state)
{
	static const struct {
		uint32_t memory;
		bool kept; /* as HIP leaves it */
		bool bad;
	} cases[] = { { GPUNVME_MEM_HOST, false, false }, { GPUNVME_MEM_HUGE, false, false },  { GPUNVME_MEM_SHARED, false, false },
		      { GPUNVME_MEM_VRAM, false, false }, { GPUNVME_MEM_HOST, true, false }, { GPUNVME_MEM_HUGE, true, true },
		      { GPUNVME_MEM_SHARED, true, true } };
	const bool l2 = getenv("MOCK_LANES") && !strcmp(getenv("MOCK_LANES"), "gfx") && !getenv("MOCK_ALIAS");
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	unsigned i;

	(void)state;
	skip_without_hip();
	open_disk(&dev, &gpu);
	opts.commands = FEW;
	opts.flags = GPUNVME_ORDERING_COPIES;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]) && !strncmp(lanes(), "hsa", 3); i++) {
		struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;

		opts.mem_flags = cases[i].memory;
		opts.timeout_ms = cases[i].bad ? TIMEOUT_MS : LONG_MS;
		setenv("MOCK_LACKS", cases[i].kept ? "uncached" : "", 1);
		assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, &l), 0);
		if ((l.test[GPUNVME_ORDERING_DATA].result == GPUNVME_ORDERING_FAILED ||
		     l.test[GPUNVME_ORDERING_STORE].result == GPUNVME_ORDERING_FAILED) != (l2 && cases[i].bad))
			fail_msg("case %u: %s, %s", i, l.test[GPUNVME_ORDERING_DATA].why, l.test[GPUNVME_ORDERING_STORE].why);
		assert_true(!l.failed || (l2 && cases[i].bad));
	}
	unsetenv("MOCK_LACKS");
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

static void test_no_copies(void **state)
{
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	char uri[512];

	(void)state;
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	opts.flags = GPUNVME_ORDERING_COPIES;
	assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, &l), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "only AMD GPUs have HIP"));
	opts.flags = 1u << 1;
	assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, &l), -EINVAL);
	opts.flags = 0;
	opts.reserved = 1;
	assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, &l), -EINVAL);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

/* ---- The words that the pages are filled with ---- */

#define FILL 0xa5c35a3cu /* the first that the ordering tests try */

/* First and last word of the block; the number of queues that were used. */
struct edges {
	struct gpunvme_dev *dev;
	uint32_t words[2];
	unsigned last, queues;
};

/* Before a read of a test each end of its page differs from both ends of the block. Else the command fails, and so does the test. */
static enum gnv_soft_action check_fill(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	struct edges *e = ctx;
	const struct gnv_soft_map *map;
	uint32_t page[2];
	bool good;

	(void)sqid;
	(void)delay_us;
	e->queues += e->dev->queues.incarnation != e->last;
	e->last = e->dev->queues.incarnation;
	if (e->queues == 1 || cmd->opc != GPUNVME_IO_READ) /* the first queue reads the words */
		return GNV_SOFT_GO;
	if (gnv_soft_space_get(e->dev->nvme.port->space, cmd->prp1, 512, &map))
		return GNV_SOFT_GO;
	memcpy(&page[0], map->cpu + (cmd->prp1 - map->iova), 4);
	memcpy(&page[1], map->cpu + (cmd->prp1 - map->iova) + 508, 4);
	gnv_soft_space_put(e->dev->nvme.port->space, map);
	good = page[0] != e->words[0] && page[0] != e->words[1] && page[1] != e->words[0] && page[1] != e->words[1];
	*status = GPUNVME_SC_INVALID_FIELD;
	return good ? GNV_SOFT_GO : GNV_SOFT_FAIL;
}

static void put_edges(const uint32_t words[2])
{
	FILE *f = fopen(image_path("disk.img"), "r+b");

	assert_non_null(f);
	assert_int_equal(fwrite(&words[0], 4, 1, f), 1);
	assert_int_equal(fseek(f, 512 - 4, SEEK_SET), 0);
	assert_int_equal(fwrite(&words[1], 4, 1, f), 1);
	assert_int_equal(fclose(f), 0);
}

/* Where the block has the words that the ordering tests try first, it takes another one. What the block has at its ends it compares with. */
static void test_words_of_the_block(void **state)
{
	static const uint32_t words[][2] = { { FILL, FILL + 1 }, { FILL + 1, FILL }, { 0, FILL }, { FILL, 0 }, { FILL, FILL } };
	struct gpunvme_ordering_opts opts = { .size = sizeof(opts), .commands = 130, .timeout_ms = LONG_MS };

	(void)state;
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct edges edges = { .words = { words[i][0], words[i][1] } };
		struct gnv_soft_fault fault = { check_fill, &edges };
		struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;
		struct gpunvme_gpu *gpu;

		put_edges(words[i]);
		open_disk(&edges.dev, &gpu);
		gnv_soft_set_fault(gnv_port_soft(edges.dev->nvme.port), &fault);
		assert_int_equal(gpunvme_gpu_ordering_test(edges.dev, gpu, &opts, &l), 0);
		for (unsigned k = 0; k < GPUNVME_ORDERING_TESTS; k++)
			if (l.test[k].result != GPUNVME_ORDERING_PASSED)
				fail_msg("case %zu: %s: %s", i, l.test[k].name, l.test[k].why);
		gpunvme_dev_close(edges.dev);
		gpunvme_gpu_close(gpu);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_honest),
		cmocka_unit_test(test_crimes),
		cmocka_unit_test(test_vram),
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_other_versions),
		cmocka_unit_test(test_not_run),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_no_copies),
		cmocka_unit_test(test_words_of_the_block),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
