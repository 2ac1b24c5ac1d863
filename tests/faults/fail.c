/* SPDX-License-Identifier: MIT */
/*
 * Preloaded before the C library: makes one call of libgpunvme.so fail once. A site is the place in the library that a call returns
 * to, as an offset. FAIL_SITE names one, in hexadecimal; FAIL_LOG is a file that gets every site that was reached, once, with the
 * name of the function. With FAIL_PROGRAM the sites are those of the program itself, which the library is linked into. (glibc's pthread_mutex_init() and pthread_cond_init() allocate nothing and cannot fail, so they do not.)
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <liburing.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define SITES (1u << 23) /* bytes of code */

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t size);

static uintptr_t base, end, wanted;
static int log_fd = -1;
static unsigned char seen[SITES];

static int find(struct dl_phdr_info *info, size_t size, void *ctx)
{
	(void)size;
	(void)ctx;
	if (getenv("FAIL_PROGRAM") ? info->dlpi_name[0] : !strstr(info->dlpi_name, "libgpunvme.so"))
		return 0;
	base = info->dlpi_addr;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz > end)
			end = base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
	return 1;
}

__attribute__((constructor)) static void begin(void)
{
	dl_iterate_phdr(find, NULL);
	wanted = getenv("FAIL_SITE") ? strtoul(getenv("FAIL_SITE"), NULL, 16) : 0;
	if (getenv("FAIL_LOG"))
		log_fd = openat(AT_FDCWD, getenv("FAIL_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/* Is it this call's turn? */
static bool fails(void *back, const char *name, int err)
{
	uintptr_t at = (uintptr_t)back;
	char line[96];
	int saved = errno;

	if (at < base || at >= end || at - base >= SITES)
		return false;
	if (log_fd >= 0 && !__atomic_exchange_n(&seen[at - base], 1, __ATOMIC_RELAXED)) {
		int len = snprintf(line, sizeof(line), "%lx %s\n", (unsigned long)(at - base), name);

		if (write(log_fd, line, (size_t)len) != len)
			_exit(99);
	}
	errno = saved;
	if (at - base != wanted || !__atomic_exchange_n(&wanted, 0, __ATOMIC_RELAXED))
		return false;
	errno = err;
	return true;
}

#define FAILS(name, err) fails(__builtin_return_address(0), name, err)
#define NEXT(name)                                                                                                                 \
	static __typeof__(name) *next;                                                                                             \
	if (!next)                                                                                                                 \
	*(void **)&next = dlsym(RTLD_NEXT, #name)
#define WRAP(type, name, params, args, failure, err)                                                                               \
	type name params                                                                                                           \
	{                                                                                                                          \
		NEXT(name);                                                                                                        \
		if (FAILS(#name, err))                                                                                             \
			return failure;                                                                                            \
		return next args;                                                                                                  \
	}

void *malloc(size_t size)
{
	return FAILS("malloc", ENOMEM) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	return FAILS("calloc", ENOMEM) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	return FAILS("realloc", ENOMEM) ? NULL : __libc_realloc(p, size);
}

int open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	NEXT(open);
	va_start(args, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	return FAILS("open", EMFILE) ? -1 : next(path, flags, mode);
}

int ioctl(int fd, unsigned long request, ...);
int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	NEXT(ioctl);
	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	return FAILS("ioctl", EIO) ? -1 : next(fd, request, arg);
}

int fcntl(int fd, int command, ...)
{
	va_list args;
	void *arg;

	NEXT(fcntl);
	va_start(args, command);
	arg = va_arg(args, void *);
	va_end(args);
	return FAILS("fcntl", EINVAL) ? -1 : next(fd, command, arg);
}

long syscall(long number, ...)
{
	va_list args;
	long a[6];

	NEXT(syscall);
	va_start(args, number);
	for (unsigned i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	return FAILS("syscall", ENOSYS) ? -1 : next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

void *mremap(void *at, size_t len, size_t more, int flags, ...)
{
	va_list args;
	void *to;

	NEXT(mremap);
	va_start(args, flags);
	to = flags & MREMAP_FIXED ? va_arg(args, void *) : NULL;
	va_end(args);
	return FAILS("mremap", ENOMEM) ? MAP_FAILED : next(at, len, more, flags, to);
}

int prctl(int option, ...);
int prctl(int option, ...)
{
	va_list args;
	unsigned long a[4];

	NEXT(prctl);
	va_start(args, option);
	for (unsigned i = 0; i < 4; i++)
		a[i] = va_arg(args, unsigned long);
	va_end(args);
	return FAILS("prctl", EINVAL) ? -1 : next(option, a[0], a[1], a[2], a[3]);
}

WRAP(void *, aligned_alloc, (size_t align, size_t size), (align, size), NULL, ENOMEM)
WRAP(char *, strdup, (const char *text), (text), NULL, ENOMEM)
WRAP(char *, realpath, (const char *path, char *out), (path, out), NULL, ENOENT)
WRAP(FILE *, fopen, (const char *path, const char *mode), (path, mode), NULL, EMFILE)
WRAP(DIR *, opendir, (const char *path), (path), NULL, EMFILE)
WRAP(void *, dlopen, (const char *path, int flags), (path, flags), NULL, ENOMEM)
WRAP(void *, mmap, (void *at, size_t len, int prot, int flags, int fd, off_t offset), (at, len, prot, flags, fd, offset),
     MAP_FAILED, ENOMEM)
WRAP(int, madvise, (void *at, size_t len, int advice), (at, len, advice), -1, EINVAL)
WRAP(int, mlock, (const void *at, size_t len), (at, len), -1, ENOMEM)
WRAP(int, eventfd, (unsigned count, int flags), (count, flags), -1, EMFILE)
WRAP(int, fstat, (int fd, struct stat *st), (fd, st), -1, EIO)
WRAP(int, stat, (const char *restrict path, struct stat *restrict st), (path, st), -1, EIO)
WRAP(int, access, (const char *path, int mode), (path, mode), -1, EIO)
WRAP(int, getrlimit, (__rlimit_resource_t what, struct rlimit *limit), (what, limit), -1, EPERM)
__attribute__((weak)) ssize_t __getdelim(char **restrict line, size_t *restrict room, int stop, FILE *restrict f);
WRAP(ssize_t, __getdelim, (char **restrict line, size_t *restrict room, int stop, FILE *restrict f), (line, room, stop, f), -1, ENOMEM)
WRAP(int, fdatasync, (int fd), (fd), -1, EIO)
WRAP(off_t, lseek, (int fd, off_t offset, int whence), (fd, offset, whence), -1, EIO)
WRAP(ssize_t, read, (int fd, void *to, size_t len), (fd, to, len), -1, EIO)
WRAP(ssize_t, pread, (int fd, void *to, size_t len, off_t at), (fd, to, len, at), -1, EIO)
WRAP(ssize_t, pwrite, (int fd, const void *from, size_t len, off_t at), (fd, from, len, at), -1, EIO)
WRAP(ssize_t, readlink, (const char *restrict path, char *restrict to, size_t len), (path, to, len), -1, EIO)
WRAP(int, pthread_create,
     (pthread_t *restrict thread, const pthread_attr_t *restrict attr, void *(*start)(void *), void *restrict arg),
     (thread, attr, start, arg), EAGAIN, EAGAIN)
WRAP(int, io_uring_queue_init, (unsigned entries, struct io_uring *ring, unsigned flags), (entries, ring, flags), -ENOMEM, ENOMEM)
WRAP(int, io_uring_register_buffers_sparse, (struct io_uring * ring, unsigned n), (ring, n), -ENOMEM, ENOMEM)
WRAP(int, io_uring_register_buffers_update_tag,
     (struct io_uring * ring, unsigned at, const struct iovec *iov, const __u64 *tags, unsigned n), (ring, at, iov, tags, n),
     -ENOMEM, ENOMEM)
WRAP(int, io_uring_register_files, (struct io_uring * ring, const int *files, unsigned n), (ring, files, n), -ENOMEM, ENOMEM)
WRAP(int, io_uring_register_ring_fd, (struct io_uring * ring), (ring), -ENOMEM, ENOMEM)
WRAP(int, io_uring_ring_dontfork, (struct io_uring * ring), (ring), -ENOMEM, ENOMEM)
WRAP(int, io_uring_submit, (struct io_uring * ring), (ring), -EAGAIN, EAGAIN)
WRAP(int, io_uring_unregister_files, (struct io_uring *ring), (ring), -EINVAL, EINVAL)
WRAP(int, io_uring_submit_and_wait_timeout,
     (struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n, struct __kernel_timespec *ts, sigset_t *mask), (ring, cqe, n, ts, mask),
     -EINTR, EINTR)
WRAP(int, io_uring_wait_cqe_timeout, (struct io_uring *ring, struct io_uring_cqe **cqe, struct __kernel_timespec *ts), (ring, cqe, ts),
     -EINTR, EINTR)
WRAP(int, socket, (int domain, int type, int protocol), (domain, type, protocol), -1, EMFILE)
WRAP(int, bind, (int fd, const struct sockaddr *at, socklen_t len), (fd, at, len), -1, EADDRINUSE)
WRAP(int, listen, (int fd, int backlog), (fd, backlog), -1, EADDRINUSE)
WRAP(int, accept4, (int fd, struct sockaddr *at, socklen_t *len, int flags), (fd, at, len, flags), -1, EMFILE)
WRAP(int, connect, (int fd, const struct sockaddr *at, socklen_t len), (fd, at, len), -1, ECONNREFUSED)
WRAP(ssize_t, sendmsg, (int fd, const struct msghdr *msg, int flags), (fd, msg, flags), -1, EPIPE)
WRAP(ssize_t, recvmsg, (int fd, struct msghdr *msg, int flags), (fd, msg, flags), -1, ECONNRESET)
WRAP(int, poll, (struct pollfd *fds, nfds_t n, int ms), (fds, n, ms), -1, EINTR)
WRAP(int, nanosleep, (const struct timespec *time, struct timespec *left), (time, left), -1, EINTR)
WRAP(int, fstatfs, (int fd, struct statfs *st), (fd, st), -1, EIO)
WRAP(int, lstat, (const char *restrict path, struct stat *restrict st), (path, st), -1, EIO)
WRAP(int, statx, (int at, const char *restrict path, int flags, unsigned mask, struct statx *restrict st), (at, path, flags, mask, st),
     -1, EIO)
WRAP(int, ftruncate, (int fd, off_t len), (fd, len), -1, ENOSPC)
WRAP(ssize_t, write, (int fd, const void *from, size_t len), (fd, from, len), -1, EIO)
WRAP(int, unlink, (const char *path), (path), -1, EACCES)
WRAP(int, chmod, (const char *path, mode_t mode), (path, mode), -1, EPERM)
WRAP(int, chown, (const char *path, uid_t uid, gid_t gid), (path, uid, gid), -1, EPERM)
WRAP(struct passwd *, getpwnam, (const char *name), (name), NULL, EIO)
WRAP(struct group *, getgrnam, (const char *name), (name), NULL, EIO)
WRAP(size_t, fread, (void *restrict to, size_t size, size_t n, FILE *restrict f), (to, size, n, f), 0, EIO)
WRAP(char *, fgets, (char *restrict to, int size, FILE *restrict f), (to, size, f), NULL, EIO)
WRAP(struct dirent *, readdir, (DIR *dir), (dir), NULL, EIO)
