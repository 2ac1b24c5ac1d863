/* SPDX-License-Identifier: MIT */
/*
 * A thread reads and writes without the kernel. A CPU thread does so while every system call of its thread raises a signal. Three
 * functions are left out and counted apart: the clock, which is none where the vDSO has it, and two that give the core away while
 * there is nothing to do but wait; threads of a GPU have other means for both. GPUNVME_TEST_URI names a controller, whose first
 * megabyte is overwritten; else one in software.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/image.h"

#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define POSSIBLE 1
#else
#define POSSIBLE 0 /* sanitizers make calls of their own */
#endif

#define USER_DISPATCH 59 /* PR_SET_SYSCALL_USER_DISPATCH, Linux 5.11 */
#define ALLOW 0
#define BLOCK 1
#define ROUNDS 200u
#define BLOCKS 8u

static volatile char selector = ALLOW;
static _Thread_local int watched;
static volatile unsigned caught, clocks, pauses;
static volatile int caught_number;

static struct gpunvme_dq dq;
static struct gpunvme_dbuf dbuf;
static unsigned char *bytes;
static unsigned commands;

/* The three, in the place of libc's. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	static int (*real)(clockid_t id, struct timespec *t);
	int ret;

	if (watched) {
		selector = ALLOW;
		clocks++;
	}
	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
	ret = real(id, t);
	if (watched)
		selector = BLOCK;
	return ret;
}

int sched_yield(void)
{
	int ret;

	if (watched) {
		selector = ALLOW;
		pauses++;
	}
	ret = (int)syscall(SYS_sched_yield);
	if (watched)
		selector = BLOCK;
	return ret;
}

int nanosleep(const struct timespec *time, struct timespec *left)
{
	int ret;

	if (watched) {
		selector = ALLOW;
		pauses++;
	}
	ret = (int)syscall(SYS_nanosleep, time, left);
	if (watched)
		selector = BLOCK;
	return ret;
}

/* The rest of the thread's life is not watched: returning from here is a system call, too. */
static void on_call(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	selector = ALLOW;
	watched = 0;
	caught_number = info->si_syscall;
	caught++;
}

static int watch(void)
{
	if (prctl(USER_DISPATCH, 1, 0, 0, &selector))
		return -errno;
	watched = 1;
	selector = BLOCK;
	return 0;
}

static void unwatch(void)
{
	selector = ALLOW;
	watched = 0;
}

static int use(void)
{
	struct gpunvme_req req[4];
	int ret = 0;

	for (unsigned i = 0; i < ROUNDS && !ret; i++) {
		for (unsigned j = 0; j < BLOCKS * 512; j++)
			bytes[j] = (unsigned char)(i + j * 7);
		ret = gpunvme_write(&dq, &dbuf, 0, (uint64_t)(i * BLOCKS) << dq.lba_shift, (uint64_t)BLOCKS << dq.lba_shift, 0);
		for (unsigned k = 0; k < 4 && !ret; k++)
			ret = gpunvme_submit_read(&dq, &dbuf, (k + 1) * BLOCKS * 512, (uint64_t)(i * BLOCKS) << dq.lba_shift,
						  (uint64_t)BLOCKS << dq.lba_shift, &req[k]);
		for (unsigned k = 0; k < 4 && !ret; k++)
			ret = gpunvme_wait(&dq, &req[k], 0);
		for (unsigned j = 0; j < 4 * BLOCKS * 512 && !ret; j++)
			if (bytes[BLOCKS * 512 + j] != bytes[j % (BLOCKS * 512)])
				ret = -EIO;
		commands += 5;
	}
	return ret ? ret : gpunvme_flush(&dq);
}

static void *lane(void *arg)
{
	int *ret = arg;

	ret[0] = watch();
	if (ret[0])
		return NULL;
	ret[1] = use();
	unwatch();
	return NULL;
}

/* The trap works: a thread that asks for its process is caught. */
static void *offender(void *arg)
{
	int *ret = arg;

	ret[0] = watch();
	if (!ret[0])
		syscall(SYS_getppid);
	unwatch();
	return NULL;
}

static void run(void *(*main)(void *), int ret[2])
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, main, ret), 0);
	pthread_join(thread, NULL);
	if (ret[0])
		SKIP("this kernel has no syscall user dispatch");
}

static void test_no_calls(void **state)
{
	struct sigaction action = { .sa_sigaction = on_call, .sa_flags = SA_SIGINFO };
	const struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	const char *given = getenv("GPUNVME_TEST_URI");
	struct gpunvme_mem *mem;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	int ret[2] = { 0, 0 };
	char uri[300];

	(void)state;
	if (!POSSIBLE)
		SKIP("another processor, or a sanitizer");
	snprintf(uri, sizeof(uri), "soft:%s", image_path("calls.img"));
	if (!given)
		image_make(image_path("calls.img"), 4 << 20);
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_dev_open(given ? given : uri, NULL, &dev));
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	good(gpunvme_mem_alloc(gpu, NULL, 64 << 10, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	good(gpunvme_queue_view(qp, &view, &dq));
	bytes = gpunvme_mem_ptr(mem);
	sigaction(SIGSYS, &action, NULL);
	run(offender, ret);
	assert_int_equal(caught, 1);
	assert_int_equal(caught_number, SYS_getppid);
	caught = 0;
	run(lane, ret);
	good(ret[1]);
	if (caught)
		fail_msg("a lane made system call %d", caught_number);
	printf("figure: system calls of a lane in %u commands: %u; it asked for the time %u times and gave the core away %u times\n",
	       commands, caught, clocks, pauses);
	gpunvme_mem_free(mem);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	remove(image_path("calls.img"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_no_calls) };

	return cmocka_run_group_tests(tests, image_make_dir, image_remove_dir);
}
