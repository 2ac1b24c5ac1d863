/* SPDX-License-Identifier: MIT */
/*
 * Waits of the library while signals come all the time, and while clocks jump: the wall clock does not matter, and a process that was
 * stopped for an hour takes nobody for silent. Whose handlers run is the program's business: threads of the library take no signals.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/known.h"
#include "soft/two_disks.h"

#define BYTES (64u << 10)
#define HOUR_NS 3600000000000ull

/* ---- Clocks ---- */

static uint64_t ahead_ns; /* of the monotonic clock (atomic) */
static bool wild;	  /* the wall clock jumps at each look (atomic) */

int clock_gettime(clockid_t id, struct timespec *t)
{
	static int (*real)(clockid_t id, struct timespec *t);
	static uint32_t seed;
	uint64_t ahead = __atomic_load_n(&ahead_ns, __ATOMIC_RELAXED);
	int ret;

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	ret = real(id, t);
	if (id == CLOCK_MONOTONIC) {
		t->tv_sec += (time_t)(ahead / 1000000000u);
	} else if (id == CLOCK_REALTIME && __atomic_load_n(&wild, __ATOMIC_RELAXED)) {
		uint32_t n = __atomic_fetch_add(&seed, 1, __ATOMIC_RELAXED);

		t->tv_sec += (time_t)(known_next(&n) % 2000000) - 1000000;
	}
	return ret;
}

static int setup(void **state)
{
	return make_disks(state, "?threads=2&fault=delay:2000:p=0.1,io-short:p=0.2");
}

/* ---- A life with all that waits ---- */

static void (*stepping)(void); /* what is done before each call; NULL: nothing */

#define step(call)                                                                                                                 \
	do {                                                                                                                       \
		if (stepping)                                                                                                      \
			stepping();                                                                                                \
		good(call);                                                                                                        \
	} while (0)

/*
 * What threads have a part in may time out as theirs do (test_stopped_for_hours), and leaves nothing: without another jump it
 * works.
 */
#define step_of_lanes(call)                                                                                                        \
	do {                                                                                                                       \
		int step_ret;                                                                                                      \
		if (stepping)                                                                                                      \
			stepping();                                                                                                \
		step_ret = (call);                                                                                                 \
		if (stepping && step_ret == -ETIMEDOUT)                                                                            \
			step_ret = (call);                                                                                         \
		good(step_ret);                                                                                                    \
	} while (0)

struct life {
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
};

static void see(struct life *l)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	view.flags = GPUNVME_VIEW_WRITE;
	step(gpunvme_queue_view(l->qp, &view, &l->dq));
}

static void begin(struct life *l, const char *uri)
{
	struct gpunvme_mem_opts shared = GPUNVME_MEM_OPTS_INIT;
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;

	opts.watchdog_ms = 20;
	shared.flags = GPUNVME_MEM_SHARED;
	step(gpunvme_gpu_open("cpu", NULL, &l->gpu));
	step(gpunvme_dev_open(uri, &opts, &l->dev));
	step_of_lanes(gpunvme_queue_create(l->dev, l->gpu, NULL, &l->qp));
	step(gpunvme_mem_alloc(l->gpu, NULL, BYTES, &shared, &l->mem));
	step(gpunvme_mem_map(l->mem, l->dev));
	step(gpunvme_mem_dbuf(l->mem, l->dev, &l->dbuf));
	see(l);
}

static void finish(struct life *l)
{
	step(gpunvme_queue_destroy(l->qp));
	step(gpunvme_mem_unmap(l->mem, l->dev));
	step(gpunvme_mem_free(l->mem));
	step(gpunvme_dev_close(l->dev));
	gpunvme_gpu_close(l->gpu);
}

static int exchange(struct life *l, uint32_t version)
{
	const uint32_t blocks = BYTES / 2 / 512;
	char *p = gpunvme_mem_ptr(l->mem);
	int ret;

	memset(p, (int)version, BYTES / 2);
	memset(p + BYTES / 2, (int)~version, BYTES / 2);
	ret = gpunvme_write(&l->dq, &l->dbuf, 0, (uint64_t)(version % 64) << l->dq.lba_shift, (uint64_t)blocks << l->dq.lba_shift,
			    0);
	if (!ret)
		ret = gpunvme_flush(&l->dq);
	if (!ret)
		ret = gpunvme_read(&l->dq, &l->dbuf, BYTES / 2, (uint64_t)(version % 64) << l->dq.lba_shift,
				   (uint64_t)blocks << l->dq.lba_shift);
	if (!ret && memcmp(p, p + BYTES / 2, BYTES / 2))
		fail_msg("version %u: other bytes", version);
	return ret;
}

static void whole_life(const char *uri)
{
	char page[512];
	struct life l;

	begin(&l, uri);
	for (uint32_t i = 0; i < 12; i++)
		step(exchange(&l, i));
	step(gpunvme_dev_log_page(l.dev, 2, GPUNVME_NSID_ALL, page, sizeof(page)));
	step(gpunvme_queue_stop(l.qp, 1));
	step(gpunvme_queue_stop(l.qp, 0));
	step_of_lanes(gpunvme_queue_recover(l.qp));
	step(gpunvme_queue_retire(l.qp));
	see(&l);
	step(exchange(&l, 50));
	step(gpunvme_dev_reset(l.dev));
	step(gpunvme_queue_retire(l.qp));
	see(&l);
	step(exchange(&l, 51));
	finish(&l);
}

/* ---- Signals ---- */

static volatile sig_atomic_t heard;

static void hear(int number)
{
	(void)number;
	heard++;
}

static void alarm_every(long us)
{
	const struct itimerval every = { { 0, us }, { 0, us } };

	assert_int_equal(setitimer(ITIMER_REAL, &every, NULL), 0);
}

static void test_signals(void **state)
{
	struct sigaction action = { .sa_handler = hear }, before; /* without SA_RESTART */

	(void)state;
	assert_int_equal(sigaction(SIGALRM, &action, &before), 0);
	alarm_every(300);
	for (unsigned i = 0; i < 3; i++) {
		whole_life(file_uri);
		whole_life("soft:ram:4M?fault=delay:2000:p=0.1");
		whole_life(user_uri);
	}
	alarm_every(0);
	sigaction(SIGALRM, &before, NULL);
	assert_true(heard > 100);
}

/* ---- Jumps ---- */

static uint32_t calls, jumps; /* atomic: that were begun, and how many of them had their jump; OVER: no more will be */
#define OVER (~0u)

/* Once in each call, at some moment of its first milliseconds, or after it. */
static void *jump(void *arg)
{
	uint32_t last = 0, now, draw = 7;

	(void)arg;
	while ((now = __atomic_load_n(&calls, __ATOMIC_ACQUIRE)) != OVER) {
		const struct timespec nap = { 0, known_next(&draw) % 4 * 500000 };

		if (now == last)
			continue;
		last = now;
		nanosleep(&nap, NULL);
		__atomic_add_fetch(&ahead_ns, HOUR_NS, __ATOMIC_RELAXED);
		__atomic_store_n(&jumps, now, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void next_call(void)
{
	while (__atomic_load_n(&jumps, __ATOMIC_ACQUIRE) != calls)
		sched_yield();
	__atomic_add_fetch(&calls, 1, __ATOMIC_RELEASE);
}

static void test_wall_clock(void **state)
{
	(void)state;
	__atomic_store_n(&wild, true, __ATOMIC_RELAXED);
	whole_life(file_uri);
	whole_life(user_uri);
	__atomic_store_n(&wild, false, __ATOMIC_RELAXED);
}

/*
 * The process is stopped for an hour, in whatever it does. The host's waits look again. Threads look once more; the controller in
 * software was stopped with them, so that its reply may not be there yet: such a queue has timed out, and comes back.
 */
static void test_stopped_for_hours(void **state)
{
	uint32_t lost = 0;
	pthread_t thread;

	(void)state;
	stepping = next_call;
	assert_int_equal(pthread_create(&thread, NULL, jump, NULL), 0);
	for (uint32_t i = 0; i < 10; i++) {
		struct life l;

		begin(&l, file_uri);
		for (uint32_t n = 0; n < 3; n++) {
			int ret;

			next_call();
			ret = exchange(&l, n);
			if (!ret)
				continue;
			lost++;
			assert_true(ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ESHUTDOWN || ret == -GPUNVME_ESTALE);
			step_of_lanes(gpunvme_queue_recover(l.qp));
			step(gpunvme_queue_retire(l.qp));
			see(&l);
		}
		finish(&l);
	}
	stepping = NULL;
	__atomic_store_n(&calls, OVER, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	print_message("%u of 30 exchanges timed out\n", lost);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_wall_clock),
		cmocka_unit_test(test_stopped_for_hours),
	};

	return cmocka_run_group_tests_name("waits", tests, setup, remove_disks);
}
