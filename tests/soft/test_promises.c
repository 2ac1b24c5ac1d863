/* SPDX-License-Identifier: MIT */
/*
 * What each mishap of a controller means to a program: what the lane is told whose command it was, what happens to another queue, what
 * brings things back. docs/reliability.md has the table, which scripts/reliability makes of the lines that this prints.
 *
 * Promised are results, and times in the library's own deadlines: a lane is told within the time-out of its command, a recovery
 * ends within those of its admin commands. GPUNVME_PROMISES=N in the environment: so many of each mishap, not one.
 * GPUNVME_PROMISES_ON=vfio-user: the controller is served, and reached by its socket, so that registers, resets and memory go by
 * messages.
 */
#include <gpunvme/device.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "util/clock.h"

#define TIMEOUT_MS 6000u /* where it is what ends the command */
#define LONG_MS 30000u
#define ADMIN_MS 5000u
#define GRACE_MS 20000u /* of a machine that has other work */
#define VICTIM 77u	/* the block whose write meets with it */
#define BLOCK 512u

enum comes_back { ALONE, RECOVERED, RESET, NEVER }; /* nothing was lost; by a new queue; by a reset of the controller; not at all */
static const char *const ways[] = { "nothing to do", "new queue", "controller reset", "dead" };

static const struct promise {
	const char *fault;
	int lane;	       /* what it is told */
	enum comes_back comes; /* no worse than this */
	bool others;	       /* another queue is hurt, too */
} promises[] = {
	{ "delay:20000", 0, ALONE, false },
	{ "shuffle:20000", 0, ALONE, false },
	{ "lose", -GPUNVME_ETIMEDOUT, RECOVERED, false },
	{ "stuck", -GPUNVME_ETIMEDOUT, RECOVERED, false },
	{ "phase", -GPUNVME_ETIMEDOUT, RECOVERED, false },
	{ "cid:0x4000", -GPUNVME_EPROTO, RECOVERED, false },
	{ "sqid:1", -GPUNVME_EPROTO, RECOVERED, false },
	{ "sqhd:3", -GPUNVME_EPROTO, RECOVERED, false },
	{ "twice:0", 0, RECOVERED, false },
	{ "twice:20000", 0, RECOVERED, false },
	{ "status:0x281", 0x281, ALONE, false },
	{ "status:0x80:dnr=1", 0x80, ALONE, false },
	{ "status:0x370:more=1", 0x370, ALONE, false },
	{ "io-short", 0, ALONE, false },
	{ "io-error:5", 0x280, ALONE, false },
	{ "io-error:28", 0x81, ALONE, false },
	{ "event:4", 0, ALONE, false },
	{ "cfs", -GPUNVME_ETIMEDOUT, RESET, true },
	{ "ones", -GPUNVME_ETIMEDOUT, NEVER, true },
};

static bool served;

static struct {
	struct gpunvme_server *server;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_qp *qp[2];
	struct gpunvme_dq dq[2];
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	int status[2];
	uint64_t ns;
	uint32_t answered; /* atomic */
	int last;	   /* what works() ended with */
} t;

struct outcome {
	uint64_t answer_ns, back_ns;
	enum comes_back came;
	unsigned others; /* hurt */
};

static int make_image(void **state)
{
	if (image_make_dir(state))
		return -1;
	image_make(image_path("promises.img"), 1 << 20);
	served = getenv("GPUNVME_PROMISES_ON") && !strcmp(getenv("GPUNVME_PROMISES_ON"), "vfio-user");
	return 0;
}

static int remove_image(void **state)
{
	unlink(image_path("promises.img"));
	return image_remove_dir(state);
}

static void open_all(const char *fault, uint32_t timeout_ms)
{
	struct gpunvme_dev_opts dev_opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_qp_opts opts = GPUNVME_QP_OPTS_INIT;
	struct gpunvme_mem_opts shared = GPUNVME_MEM_OPTS_INIT;
	char uri[512], sock[96];

	memset(&t, 0, sizeof(t));
	dev_opts.admin_timeout_ms = ADMIN_MS;
	opts.cmd_timeout_ms = timeout_ms;
	opts.depth = 16;
	snprintf(uri, sizeof(uri), "soft:%s?queues=4&fault=%s:op=write:lba=%u:count=1", image_path("promises.img"), fault, VICTIM);
	if (served) {
		snprintf(sock, sizeof(sock), "%s", image_path("sock"));
		assert_int_equal(gpunvme_server_start(uri, sock, NULL, &t.server), 0);
		snprintf(uri, sizeof(uri), "vfio-user:%s", sock);
	}
	shared.flags = served ? GPUNVME_MEM_SHARED : 0;
	assert_int_equal(gpunvme_dev_open(uri, &dev_opts, &t.dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &t.gpu), 0);
	for (int i = 0; i < 2; i++)
		assert_int_equal(gpunvme_qp_create(t.dev, t.gpu, &opts, &t.qp[i]), 0);
	assert_int_equal(gpunvme_mem_alloc(t.gpu, 4 * BLOCK, &shared, &t.mem), 0);
	assert_int_equal(gpunvme_mem_map(t.mem, t.dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(t.mem, t.dev, &t.dbuf), 0);
}

static void close_all(void)
{
	for (int i = 0; i < 2; i++)
		gpunvme_qp_destroy(t.qp[i]);
	gpunvme_mem_unmap(t.mem, t.dev);
	assert_int_equal(gpunvme_dev_close(t.dev), 0);
	gpunvme_mem_free(t.mem);
	gpunvme_gpu_close(t.gpu);
	assert_int_equal(gpunvme_server_stop(t.server), 0);
}

static int look(void)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	int ret = 0;

	view.flags = GPUNVME_VIEW_WRITE;
	for (int i = 0; i < 2 && !ret; i++)
		ret = gpunvme_qp_view(t.qp[i], &view, &t.dq[i]);
	return ret;
}

/* Lane 0 meets with it; lane 1 reads through the other queue until lane 0 was told, and once more. */
static void kernel(void *arg)
{
	uint64_t start = gnv_clock_ns();
	bool last = false;

	(void)arg;
	if (gpunvme_lane() == 0) {
		t.status[0] = gpunvme_write(&t.dq[0], &t.dbuf, 0, VICTIM, 1);
		t.ns = gnv_clock_ns() - start;
		__atomic_store_n(&t.answered, 1, __ATOMIC_RELEASE);
		return;
	}
	while (!t.status[1] && !last) {
		last = __atomic_load_n(&t.answered, __ATOMIC_ACQUIRE);
		usleep(5000);
		t.status[1] = gpunvme_read(&t.dq[1], &t.dbuf, 2 * BLOCK, 5, 1);
	}
}

static bool works(void)
{
	int status = look();

	for (int i = 0; i < 2 && !status; i++) {
		memset((char *)(uintptr_t)t.dbuf.base, 0x30 + i, BLOCK);
		status = gpunvme_write(&t.dq[i], &t.dbuf, 0, VICTIM, 1);
		status = status ? status : gpunvme_read(&t.dq[i], &t.dbuf, BLOCK, VICTIM, 1);
		if (!status && memcmp((char *)(uintptr_t)t.dbuf.base, (char *)(uintptr_t)t.dbuf.base + BLOCK, BLOCK))
			fail_msg("what was written after the mishap is not there");
	}
	t.last = status;
	return !status;
}

/* The gentlest way that helps. */
static enum comes_back bring_back(void)
{
	struct gpunvme_dev_status before = { .size = sizeof(before) }, after = { .size = sizeof(after) };

	if (works())
		return ALONE;
	assert_int_equal(gpunvme_dev_state(t.dev, &before), 0);
	for (int i = 0; i < 2; i++)
		if (gpunvme_qp_recover(t.qp[i]))
			return NEVER;
	assert_int_equal(gpunvme_dev_state(t.dev, &after), 0);
	if (!works())
		fail_msg("nothing works after a recovery: %d %s", t.last, gpunvme_errmsg());
	return after.generation == before.generation ? RECOVERED : RESET;
}

static struct outcome meet(const struct promise *p)
{
	const uint32_t timeout_ms = p->lane == -GPUNVME_ETIMEDOUT ? TIMEOUT_MS : LONG_MS;
	struct outcome o = { 0 };
	uint64_t start;

	open_all(p->fault, timeout_ms);
	assert_int_equal(look(), 0);
	assert_int_equal(gpunvme_cpu_launch(2, 1, kernel, NULL), 0);
	o.answer_ns = t.ns;
	o.others = t.status[1] != 0;
	start = gnv_clock_ns();
	o.came = bring_back();
	o.back_ns = gnv_clock_ns() - start;
	if (t.status[0] > 0)
		t.status[0] &= (int)GPUNVME_ST_CODE;
	if (t.status[0] != p->lane)
		fail_msg("%s: the lane was told %d, not %d", p->fault, t.status[0], p->lane);
	if (o.came > p->comes)
		fail_msg("%s: %s was needed, and %s was promised", p->fault, ways[o.came], ways[p->comes]);
	if (o.others && !p->others)
		fail_msg("%s: another queue was told %d", p->fault, t.status[1]);
	if (o.answer_ns / 1000000 > TIMEOUT_MS + GRACE_MS || o.back_ns / 1000000 > 8 * ADMIN_MS + GRACE_MS)
		fail_msg("%s: told after %llu ms, back after %llu", p->fault, (unsigned long long)o.answer_ns / 1000000,
			 (unsigned long long)o.back_ns / 1000000);
	close_all();
	return o;
}

/* Most of them are waits. Of the sanitizers one meets with those of even number, the other one with the rest. */
#if defined(__SANITIZE_ADDRESS__)
#define FIRST 0
#define STEP 2
#elif defined(__SANITIZE_THREAD__)
#define FIRST 1
#define STEP 2
#else
#define FIRST 0
#define STEP 1
#endif

static void every_mishap_is_answered(void **state)
{
	const char *n = getenv("GPUNVME_PROMISES");
	unsigned times = n ? (unsigned)atoi(n) : 1;

	(void)state;
	for (size_t i = FIRST; i < sizeof(promises) / sizeof(promises[0]); i += STEP) {
		struct outcome worst = { 0 };

		for (unsigned k = 0; k < times; k++) {
			struct outcome o = meet(&promises[i]);

			worst.answer_ns = o.answer_ns > worst.answer_ns ? o.answer_ns : worst.answer_ns;
			worst.back_ns = o.back_ns > worst.back_ns ? o.back_ns : worst.back_ns;
			worst.came = o.came > worst.came ? o.came : worst.came;
			worst.others += o.others;
		}
		printf("{\"on\": \"%s\", \"fault\": \"%s\", \"times\": %u, \"lane\": \"%s\", \"told_ms\": %.1f, \"others\": %u, \"back\": \"%s\", "
		       "\"back_ms\": %.1f}\n",
		       served ? "vfio-user:" : "soft:", promises[i].fault, times, gpunvme_strerror(promises[i].lane), (double)worst.answer_ns / 1e6, worst.others,
		       ways[worst.came], (double)worst.back_ns / 1e6);
		fflush(stdout);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_mishap_is_answered) };

	return cmocka_run_group_tests_name("promises", tests, make_image, remove_image);
}
