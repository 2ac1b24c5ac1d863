/* SPDX-License-Identifier: MIT */
/* A program that the library starts: which processes have its connection, and when none is started. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>
#include <cmocka.h>

#include <gpunvme/gpunvme.h>

#include "common/wait.h"
#include "os/linux/child.h"

#define FDS 64

/* The program waits until its parent hangs up. */
static char shell[] = "/bin/sh", option[] = "-c", command[] = "exec cat <&3";
static char *const waits[] = { shell, option, command, NULL };

static int before;	    /* sockets and process descriptors that this process has anyway */
static bool secure, forks;  /* as set-user-ID; another thread forks meanwhile */
static unsigned spawned;

/* ---- Another thread forks while a program is started ---- */

static struct fork {
	pthread_t thread;
	int tid;   /* 0 until it is about to fork; atomic */
	int ended; /* fork() has returned; atomic */
	int found; /* what the child has beyond `before` */
} at_spawn, at_pidfd;

static int count_open(void)
{
	char path[40], what[64];
	int count = 0;

	for (int fd = 3; fd < FDS; fd++) {
		memset(what, 0, sizeof(what));
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, what, sizeof(what) - 1) > 0)
			count += !strncmp(what, "socket:", 7) || strstr(what, "pidfd");
	}
	return count;
}

static void *fork_once(void *arg)
{
	struct fork *f = arg;
	pid_t pid;
	int status;

	__atomic_store_n(&f->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
	pid = fork();
	if (!pid)
		_exit(count_open() - before);
	__atomic_store_n(&f->ended, 1, __ATOMIC_RELEASE);
	f->found = waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
	return NULL;
}

/* Also when it has ended. */
static bool is_asleep(int tid)
{
	char path[64], state = 'S';
	FILE *stat;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	stat = fopen(path, "r");
	if (stat && fscanf(stat, "%*d (%*[^)]) %c", &state) != 1)
		state = 'S';
	if (stat)
		fclose(stat);
	return state == 'S';
}

static bool has_forked_or_waits(const struct fork *f)
{
	int tid = __atomic_load_n(&f->tid, __ATOMIC_ACQUIRE);

	return __atomic_load_n(&f->ended, __ATOMIC_ACQUIRE) || (tid && is_asleep(tid));
}

/* Another thread forks. It waits until the library's lock is free, or has forked if the library has not taken that. */
static void begin_fork(struct fork *f)
{
	if (!forks)
		return;
	assert_int_equal(pthread_create(&f->thread, NULL, fork_once, f), 0);
	wait_until(has_forked_or_waits(f));
}

static void end_fork(struct fork *f)
{
	assert_int_equal(pthread_join(f->thread, NULL), 0);
	assert_int_equal(f->found, 0);
}

int __real_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files, const posix_spawnattr_t *attr,
		       char *const argv[], char *const env[]);
int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files, const posix_spawnattr_t *attr,
		       char *const argv[], char *const env[]);

int __wrap_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *files, const posix_spawnattr_t *attr,
		       char *const argv[], char *const env[])
{
	spawned++;
	begin_fork(&at_spawn);
	return __real_posix_spawn(pid, path, files, attr, argv, env);
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
	long a[4], ret;
	va_list args;

	va_start(args, number);
	for (unsigned i = 0; i < 4; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	ret = __real_syscall(number, a[0], a[1], a[2], a[3]);
	if (number == SYS_pidfd_open)
		begin_fork(&at_pidfd);
	return ret;
}

unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);

unsigned long __wrap_getauxval(unsigned long type)
{
	return type == AT_SECURE ? secure : __real_getauxval(type);
}

static int start(struct gnv_child *child)
{
	int given = open("/dev/null", O_RDWR | O_CLOEXEC), ret;

	before = count_open();
	ret = gnv_child_start(waits, given, child);
	close(given);
	return ret;
}

/* The connection would outlive this process, and the end of the program would not be its end. */
static void test_child_of_another_thread(void **state)
{
	struct gnv_child child;

	(void)state;
	forks = true;
	assert_int_equal(start(&child), 0);
	forks = false;
	end_fork(&at_spawn);
	end_fork(&at_pidfd);
	assert_int_equal(count_open() - before, 2);
	assert_int_equal(gnv_child_finish(&child, 600000), GNV_CHILD_EXITED);
	assert_int_equal(count_open(), before);
}

static void test_later_child(void **state)
{
	struct gnv_child child;
	struct fork later = { .tid = 0 };

	(void)state;
	assert_int_equal(start(&child), 0);
	fork_once(&later);
	assert_int_equal(later.found, 0);
	assert_int_equal(gnv_child_finish(&child, 600000), GNV_CHILD_EXITED);
}

/* A user must not choose the program that a set-user-ID program starts. */
static void test_more_rights_than_the_user(void **state)
{
	struct gnv_child child;

	(void)state;
	spawned = 0;
	secure = true;
	assert_int_equal(start(&child), -EPERM);
	secure = false;
	assert_string_equal(gpunvme_errmsg(), "/bin/sh is not started by a program that has more rights than its user");
	assert_int_equal(spawned, 0);
	assert_int_equal(count_open(), before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_child_of_another_thread),
		cmocka_unit_test(test_later_child),
		cmocka_unit_test(test_more_rights_than_the_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
