/* SPDX-License-Identifier: MIT */
#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

struct calls calls;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t len);
int __wrap_munmap(void *at, size_t len);

void calls_reset(void)
{
	memset(&calls, 0, sizeof(calls));
}

void calls_note(char letter)
{
	size_t len = strlen(calls.order);

	if (len + 1 < sizeof(calls.order))
		calls.order[len] = letter;
}

static bool fails(void)
{
	if (++calls.count != calls.fails_at)
		return false;
	errno = calls.fails_with;
	return true;
}

int __wrap_open(const char *path, int flags, ...)
{
	const char *const *node;
	va_list args;
	int mode;

	for (node = calls.nodes; node && *node; node++) {
		if (strcmp(path, *node))
			continue;
		if (fails())
			return -1;
		if (calls.open_errno) {
			errno = calls.open_errno;
			return -1;
		}
		return CALLS_FD + (int)calls.fds++;
	}
	va_start(args, flags);
	mode = va_arg(args, int);
	va_end(args);
	return __real_open(path, flags, mode);
}

int __wrap_close(int fd)
{
	if (fd < CALLS_FD)
		return __real_close(fd);
	calls.fds--;
	calls_note('c');
	return 0;
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int err;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (fd < CALLS_FD)
		return __real_ioctl(fd, request, arg);
	if (fails())
		return -1;
	err = calls.ioctl(fd, request, arg);
	if (err)
		errno = err;
	return err ? -1 : 0;
}

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	void *got;

	if (prot != PROT_NONE)
		return __real_mmap(at, len, prot, flags, fd, offset);
	if (fails())
		return MAP_FAILED;
	got = __real_mmap(at, len, prot, flags, fd, offset);
	if (got != MAP_FAILED)
		calls.ranges++;
	return got;
}

int __wrap_munmap(void *at, size_t len)
{
	calls.ranges--;
	calls_note('m');
	return __real_munmap(at, len);
}
