/* SPDX-License-Identifier: MIT */
/*
 * A mock kernel under files of a mounted file system, where it refuses or fails, which in the guest (vm.ublk) it does not. It
 * emulates replies of Linux's fs/ioctl.c (FIEMAP, flags), fs/locks.c (F_SETLEASE: -EAGAIN while somebody writes, -EACCES without
 * CAP_LEASE, -EINVAL where a file system has none), fs/xattr.c (trusted.*: -EPERM, read -ENODATA, without CAP_SYS_ADMIN),
 * mm/mincore.c and mm/filemap.c (cachestat() counts pages that are being read, mincore() does not), and of
 * drivers/block/ublk_drv.c. The blocks are those of an image; all files have the same ones.
 */
#ifndef GNV_TESTS_SOFT_MOUNTED_H
#define GNV_TESTS_SOFT_MOUNTED_H

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/image.h"
#include "os/linux/extents.h"
#include "os/linux/fork.h"
#include "os/linux/ublk.h"
#include "util/mark.h"

#define BYTES 20000u
#define EXT4 0xef53u

enum step { NONE, GETFLAGS, SETFLAGS, SETXATTR, SETLEASE, FSYNC, FADVISE, MINCORE };

static struct {
	unsigned long magic;
	int flags;
	bool marked, leased, broken, cached, reading, stuck, shared, journals;
	bool old; /* without cachestat() */
	bool kept, touched; /* immutable when the last lease was given; the flags were ever set */
	char text[128]; /* of the mark */
	int generation; /* 0: the file system has none */
	int signal; /* that tells of the end of a lease */
	uint64_t second; /* where the second extent lies */
	const char *node;
	uint64_t first, bytes, mark;
	uint64_t inlined; /* inode of a file whose data is in it */
	uint64_t other;	  /* and of one that has more flags, ... */
	int other_flags;  /* ... these */
	bool other_head;
	enum step step; /* which fails, ... */
	int error, after; /* ... how, and after so many that do not */
} k;

static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static char path[128];

/* ---- The kernel ---- */

static bool fails(enum step step)
{
	if (k.step != step || k.after-- > 0)
		return false;
	errno = k.error;
	return true;
}

static bool has_inode(int fd, uint64_t inode)
{
	struct stat st;

	return inode && !fstat(fd, &st) && st.st_ino == inode;
}

static void answer_extents(int fd, struct fiemap *map)
{
	map->fm_extents[0] = (struct fiemap_extent){ .fe_logical = 0, .fe_physical = 1 << 20, .fe_length = 8192 };
	map->fm_extents[1] = (struct fiemap_extent){ .fe_logical = 8192, .fe_physical = k.second, .fe_length = 12288 };
	map->fm_extents[1].fe_flags = FIEMAP_EXTENT_LAST | (k.shared ? FIEMAP_EXTENT_SHARED : 0);
	map->fm_extents[1].fe_flags |= has_inode(fd, k.inlined) ? FIEMAP_EXTENT_DATA_INLINE : 0;
	map->fm_mapped_extents = 2;
}

int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	switch (request) {
	case FS_IOC_FIEMAP:
		answer_extents(fd, arg);
		return 0;
	case FS_IOC_GETFLAGS:
		if (fails(GETFLAGS))
			return -1;
		memcpy(arg, (const int[2]){ k.flags | (has_inode(fd, k.other) ? k.other_flags : 0), -1 }, 2 * sizeof(int)); /* likewise */
		return 0;
	case FS_IOC_SETFLAGS:
		if (fails(SETFLAGS))
			return -1;
		k.flags = *(int *)arg;
		k.touched = true;
		return 0;
	case FS_IOC_GETVERSION:
		if (k.generation) {
			const int as_long[2] = { k.generation, -1 }; /* as a server of FUSE may: fs/fuse/ioctl.c, fuse_do_ioctl() */

			memcpy(arg, as_long, sizeof(as_long));
			return 0;
		}
		errno = ENOTTY;
		return -1;
	case FS_IOC_FSGETXATTR:
		errno = ENOTTY;
		return -1;
	default:
		return __real_ioctl(fd, request, arg);
	}
}

int __real_fcntl(int fd, int op, ...);
int __wrap_fcntl(int fd, int op, ...);
int __wrap_fcntl(int fd, int op, ...)
{
	va_list args;
	void *arg;

	va_start(args, op);
	arg = va_arg(args, void *);
	va_end(args);
	if (op == F_SETLEASE && arg == (void *)(uintptr_t)F_UNLCK) {
		k.leased = false;
		return 0;
	}
	if (op == F_SETLEASE) {
		if (fails(SETLEASE))
			return -1;
		k.kept = k.flags & FS_IMMUTABLE_FL;
		assert_int_equal(k.signal, SIGURG);	/* the others would end this process, or stop it */
		k.leased = true;
		return 0;
	}
	if (op == F_SETSIG)
		k.signal = (int)(intptr_t)arg;
	if (op == F_GETLEASE)
		return k.leased && !k.broken ? F_RDLCK : F_UNLCK;
	return __real_fcntl(fd, op, arg);
}

/* No thread that calls fork() waits while this is called. */
static void expect_no_lock(void)
{
	alarm(20);
	gnv_fork_begin(); /* stands still when the caller has it */
	gnv_fork_keep(-1);
	alarm(0);
}

static bool found;   /* the file, which is opened next */
static bool no_proc; /* is mounted */

/* To find and to open it may take I/O, of a disk of this process's, or of one whose server has died. */
int __real_open(const char *name, int flags, ...);
int __wrap_open(const char *name, int flags, ...);
int __wrap_open(const char *name, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (!strncmp(name, "/proc/", 6) && no_proc) {
		errno = ENOENT;
		return -1;
	}
	if (!strcmp(name, path) || found)
		expect_no_lock();
	found = !strcmp(name, path) && flags & O_PATH;
	return __real_open(name, flags, mode);
}

int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags);
int __wrap_fsetxattr(int fd, const char *name, const void *value, size_t size, int flags)
{
	(void)fd, (void)flags;
	if (fails(SETXATTR))
		return -1;
	assert_string_equal(name, "trusted.gpunvme.lease");
	assert_false(k.flags & FS_IMMUTABLE_FL); /* -EPERM, xattr_permission() */
	assert_true(size < sizeof(k.text));
	memcpy(k.text, value, size);
	k.text[size] = 0;
	k.marked = true;
	return 0;
}

ssize_t __wrap_fgetxattr(int fd, const char *name, void *value, size_t size);
ssize_t __wrap_fgetxattr(int fd, const char *name, void *value, size_t size)
{
	const size_t len = strlen(k.text);

	(void)fd, (void)name;
	errno = k.marked ? ERANGE : ENODATA;
	if (!k.marked || (size && size < len))
		return -1;
	memcpy(value, k.text, size ? len : 0);
	return (ssize_t)len;
}

int __wrap_fremovexattr(int fd, const char *name);
int __wrap_fremovexattr(int fd, const char *name)
{
	(void)fd, (void)name;
	assert_false(k.flags & FS_IMMUTABLE_FL);
	k.marked = false;
	return 0;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
	return fails(FSYNC) ? -1 : __real_fsync(fd);
}

int __wrap_posix_fadvise(int fd, off_t offset, off_t len, int advice);
int __wrap_posix_fadvise(int fd, off_t offset, off_t len, int advice)
{
	(void)fd, (void)offset, (void)len;
	assert_int_equal(advice, POSIX_FADV_DONTNEED);
	if (fails(FADVISE))
		return k.error;
	k.cached = k.cached && k.stuck;
	k.reading = k.reading && k.stuck;
	return 0;
}

int __wrap_mincore(void *at, size_t len, unsigned char *in);
int __wrap_mincore(void *at, size_t len, unsigned char *in)
{
	(void)at;
	if (fails(MINCORE))
		return -1;
	memset(in, 0, (len + 4095) / 4096);
	in[(len - 1) / 4096] = k.cached;
	return 0;
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);
long __wrap_syscall(long number, ...)
{
	va_list args;
	unsigned count = number == SYS_io_uring_enter ? 6 : 5; /* a sixth one would be on the stack, if it was passed */
	long arg[6] = { 0 };

	va_start(args, number);
	for (unsigned i = 0; i < count; i++)
		arg[i] = va_arg(args, long);
	va_end(args);
	if (number != 451)
		return __real_syscall(number, arg[0], arg[1], arg[2], arg[3], arg[4], arg[5]);
	if (k.old) {
		errno = ENOSYS;
		return -1;
	}
	*(uint64_t *)arg[2] = k.cached + k.reading;
	return 0;
}

int __real_fstatfs(int fd, struct statfs *buf);
int __wrap_fstatfs(int fd, struct statfs *buf);
int __wrap_fstatfs(int fd, struct statfs *buf)
{
	int ret = __real_fstatfs(fd, buf);

	buf->f_type = (__typeof__(buf->f_type))k.magic;
	return ret;
}

int __wrap_gnv_os_block(const char *sys, uint64_t number, struct gnv_os_namespace *ns);
int __wrap_gnv_os_block(const char *sys, uint64_t number, struct gnv_os_namespace *ns)
{
	(void)sys, (void)number;
	*ns = (struct gnv_os_namespace){ .first = k.first, .bytes = k.bytes };
	snprintf(ns->node, sizeof(ns->node), "%s", k.node);
	return 0;
}

int __wrap_gnv_os_head(const char *node, uint64_t at, void *buf, size_t len);
int __wrap_gnv_os_head(const char *node, uint64_t at, void *buf, size_t len)
{
	int fd = open(image_path("disk.img"), O_RDONLY | O_CLOEXEC);

	(void)node;
	assert_int_equal(pread(fd, buf, len, (off_t)(k.first + at)), len);
	((unsigned char *)buf)[100] ^= k.other_head;
	return close(fd);
}

bool __wrap_gnv_os_journals_data(const char *proc, const char *node);
bool __wrap_gnv_os_journals_data(const char *proc, const char *node)
{
	(void)proc, (void)node;
	return k.journals;
}

int __wrap_gnv_ublk_control(uint32_t op, uint32_t id, void *buf, size_t len);
int __wrap_gnv_ublk_control(uint32_t op, uint32_t id, void *buf, size_t len)
{
	assert_int_equal(op, GNV_UBLK_GET_DEV_INFO);
	assert_int_equal(len, sizeof(struct gnv_ublk_info));
	if (id != 9)
		return -ENODEV;
	((struct gnv_ublk_info *)buf)->mark = k.mark;
	return 0;
}

/* ---- A drive, and a file on it ---- */

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * 2654435761u >> 13 ^ i >> 9);
}

static void put(FILE *f, uint64_t pos, uint64_t at, uint64_t len)
{
	assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
	for (uint64_t i = 0; i < len; i++)
		fputc(byte_at(pos + i), f);
}

static int setup(void **state)
{
	char uri[160];
	FILE *f;

	if (image_make_dir(state))
		return -1;
	image_make(image_path("disk.img"), 16 << 20);
	f = fopen(image_path("disk.img"), "r+");
	fseek(f, 1024 + 0x38, SEEK_SET);
	fwrite("\x53\xef", 1, 2, f); /* s_magic; not unmounted, and its journal waits (s_feature_incompat 4h) */
	fseek(f, 1024 + 0x60, SEEK_SET);
	fputc(4, f);
	put(f, 0, 1 << 20, 8192);
	put(f, 8192, 2 << 20, BYTES - 8192);
	fclose(f);
	snprintf(path, sizeof(path), "%s", image_path("file"));
	f = fopen(path, "w");
	fclose(f);
	assert_int_equal(truncate(path, BYTES), 0);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	return 0;
}

static int teardown(void **state)
{
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	remove(image_path("disk.img"));
	remove(path);
	return image_remove_dir(state);
}

static int begin(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };

	(void)state;
	memset(&k, 0, sizeof(k));
	good(gpunvme_dev_get_info(dev, &info));
	good(gpunvme_ns_get_info(dev, 0, &ns));
	k.magic = EXT4;
	k.second = 2 << 20;
	k.node = "/dev/ublkb9";
	k.bytes = 16 << 20;
	k.mark = gnv_mark(&info, &ns);
	return 0;
}

static void says(int ret, int want, const char *words)
{
	if (ret != want || !strstr(gpunvme_errmsg(), words))
		fail_msg("%d, not %d with '%s': %s", ret, want, words, gpunvme_errmsg());
}

#endif
