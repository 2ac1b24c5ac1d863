/* SPDX-License-Identifier: MIT */
/* Threads that yield often ask for the shortest time slices: those of a launch on CPUs, and those of a controller in software. */
#include <dirent.h>
#include <gpunvme/device.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/wait.h"

#define SHORTEST 100000u /* ns, of sched_setattr(2) */
#define LONG 3000000u
#define THREADS 5u

/* struct sched_attr of sched_setattr(2), which libc has not everywhere */
struct attr {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t slice, deadline, period;
};

static uint64_t slice_of(int thread)
{
	struct attr attr = { 0 };

	return syscall(SYS_sched_getattr, thread, &attr, (unsigned)sizeof(attr), 0u) ? 0 : attr.slice;
}

/* As most programs have it, though a script may have started this one with short slices. Return: does this kernel grant slices? */
static bool begin_long(void)
{
	struct attr attr = { 0 };

	if (syscall(SYS_sched_getattr, 0, &attr, (unsigned)sizeof(attr), 0u) || attr.policy != SCHED_OTHER)
		return false;
	attr.slice = LONG;
	return !syscall(SYS_sched_setattr, 0, &attr, 0u) && slice_of(0) == LONG;
}

static void note(void *arg)
{
	((uint64_t *)arg)[gpunvme_thread_id()] = slice_of(0);
}

static void launch(void **state)
{
	uint64_t slices[THREADS] = { 0 };
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_cpu_launch(THREADS, 2, note, slices), 0);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(slices[i], SHORTEST);
	assert_int_equal(slice_of(0), LONG); /* the caller keeps its own */
}

static unsigned count_short(void)
{
	DIR *tasks = opendir("/proc/self/task");
	struct dirent *task;
	unsigned count = 0;

	assert_non_null(tasks);
	while ((task = readdir(tasks)) != NULL)
		if (atoi(task->d_name) > 0)
			count += slice_of(atoi(task->d_name)) == SHORTEST;
	closedir(tasks);
	return count;
}

static void controller(void **state)
{
	struct gpunvme_dev *dev;

	(void)state;
	assert_int_equal(gpunvme_dev_open("soft:ram:1M", NULL, &dev), 0);
	wait_until(count_short() == 1); /* a thread that was joined is in the list for a moment more */
	assert_int_equal(gpunvme_dev_close(dev), 0);
	wait_until(count_short() == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(launch), cmocka_unit_test(controller) };

	if (!begin_long()) {
		printf("skipped: this kernel gives threads no time slices of their own\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
