/* SPDX-License-Identifier: MIT */
/* The descriptors that a child of fork() must not have, and the mark of a process. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/wait.h"
#include "os/linux/exclusive.h"
#include "os/linux/fork.h"
#include "util/process.h"

static int in_child(pid_t pid, int (*child)(int fd), int fd)
{
	int status;

	if (!pid) {
		alarm(60);
		_exit(child(fd));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static int is_closed(int fd)
{
	return fcntl(fd, F_GETFD) < 0 && errno == EBADF ? 0 : 1;
}

/* ---- An image that is slow to open ---- */

#define LATE "late.img"

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);

static pthread_t forker;
static int asked, forked; /* forked: atomic */

static void *fork_once(void *arg)
{
	const pid_t pid = fork();

	(void)arg;
	if (!pid)
		_exit(0);
	waitpid(pid, NULL, 0);
	__atomic_store_n(&forked, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* The first one hangs until another thread has forked. */
int __wrap_open(const char *path, int flags, ...)
{
	mode_t mode = 0;
	va_list args;

	va_start(args, flags);
	if (flags & O_CREAT)
		mode = va_arg(args, mode_t);
	va_end(args);
	if (strstr(path, LATE) && !asked) {
		asked = 1;
		if (!pthread_create(&forker, NULL, fork_once, NULL))
			wait_until(__atomic_load_n(&forked, __ATOMIC_ACQUIRE));
	}
	return __real_open(path, flags, mode);
}

int __wrap___open_2(const char *path, int flags);

int __wrap___open_2(const char *path, int flags)
{
	return __wrap_open(path, flags);
}

/* A thread that calls fork() does not wait for an NFS server that does not reply. */
static void test_late(void **state)
{
	struct gnv_deadline deadline = gnv_deadline_in(GNV_DYING_MS);
	char path[] = "/tmp/gpunvme-XXXXXX." LATE;
	int made = mkstemps(path, sizeof(LATE)), fd;

	(void)state;
	assert_true(made >= 0);
	close(made);
	fd = gnv_hold_open(path, O_RDWR, &deadline);
	assert_true(fd >= 0);
	assert_int_equal(asked, 1);
	assert_int_equal(pthread_join(forker, NULL), 0);
	assert_int_equal(in_child(fork(), is_closed, fd), 0);
	gnv_fork_close(fd);
	unlink(path);
}

static int is_open(int fd)
{
	return !is_closed(fd);
}

static int opened_at; /* atomic: the descriptor, once it is open */

static void *open_slowly(void *arg)
{
	const struct timespec nap = { 0, 100000000 };

	(void)arg;
	gnv_fork_begin();
	__atomic_store_n(&opened_at, open("/dev/null", O_RDWR | O_CLOEXEC), __ATOMIC_RELEASE);
	nanosleep(&nap, NULL);
	gnv_fork_keep(opened_at);
	return NULL;
}

/* fork() comes after open() and before the list: it waits. */
static void test_between(void **state)
{
	pthread_t thread;
	int fd;

	(void)state;
	opened_at = -1;
	assert_int_equal(pthread_create(&thread, NULL, open_slowly, NULL), 0);
	while ((fd = __atomic_load_n(&opened_at, __ATOMIC_ACQUIRE)) < 0)
		;
	assert_int_equal(in_child(fork(), is_closed, fd), 0);
	pthread_join(thread, NULL);
	assert_int_equal(is_open(fd), 0);
	gnv_fork_close(fd);
	assert_int_equal(is_closed(fd), 0);
}

/* A number that was given back may be anybody's: a child keeps it. Many of them, in any order. */
static void test_given_back(void **state)
{
	int fd[100], other;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		gnv_fork_begin();
		fd[i] = gnv_fork_keep(open("/dev/null", O_RDWR | O_CLOEXEC));
		assert_true(fd[i] >= 0);
	}
	for (unsigned i = 0; i < 100; i += 2)
		gnv_fork_close(fd[i]);
	other = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_int_equal(other, fd[0]);
	assert_int_equal(in_child(fork(), is_open, other), 0);
	for (unsigned i = 1; i < 100; i += 2)
		assert_int_equal(in_child(fork(), is_closed, fd[i]), 0);
	for (unsigned i = 1; i < 100; i += 2)
		gnv_fork_close(fd[i]);
	close(other);
}

static void test_failed_open(void **state)
{
	(void)state;
	gnv_fork_begin();
	assert_int_equal(gnv_fork_keep(open("/nonexistent", O_RDWR | O_CLOEXEC)), -1);
	assert_int_equal(errno, ENOENT);
}

static uint64_t parent, child;

static int grandchild_differs(int fd)
{
	(void)fd;
	return gnv_process() != parent && gnv_process() != child && gnv_foreign(parent) && gnv_foreign(child) ? 0 : 1;
}

static int child_differs(int fd)
{
	child = gnv_process();
	return child != parent && gnv_foreign(parent) && !gnv_foreign(child) ? in_child(fork(), grandchild_differs, fd) : 1;
}

static void test_mark(void **state)
{
	(void)state;
	parent = gnv_process();
	assert_false(gnv_foreign(parent));
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(in_child(fork(), child_differs, 0), 0);
	assert_int_equal(gnv_process(), parent);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_late),
		cmocka_unit_test(test_between),
		cmocka_unit_test(test_given_back),
		cmocka_unit_test(test_failed_open),
		cmocka_unit_test(test_mark),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
