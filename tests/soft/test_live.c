/* SPDX-License-Identifier: MIT */
/*
 * Files of mounted file systems where the kernel refuses or fails, which in the guest (vm.ublk) it does not. What is played: answers of
 * Linux's fs/ioctl.c (FIEMAP, flags), fs/locks.c (F_SETLEASE: -EAGAIN while somebody writes, -EACCES without CAP_LEASE, -EINVAL where a
 * file system has none), fs/xattr.c (trusted.*: -EPERM, read -ENODATA, without CAP_SYS_ADMIN), mm/mincore.c and mm/filemap.c
 * (cachestat() counts pages that are being read, mincore() does not), and of drivers/block/ublk_drv.c. The blocks are those of an
 * image. Each call fails once, and what was done before must be undone.
 */
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
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/device_file.h>
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

static void answer_extents(struct fiemap *map)
{
	map->fm_extents[0] = (struct fiemap_extent){ .fe_logical = 0, .fe_physical = 1 << 20, .fe_length = 8192 };
	map->fm_extents[1] = (struct fiemap_extent){ .fe_logical = 8192, .fe_physical = k.second, .fe_length = 12288 };
	map->fm_extents[1].fe_flags = FIEMAP_EXTENT_LAST | (k.shared ? FIEMAP_EXTENT_SHARED : 0);
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
		answer_extents(arg);
		return 0;
	case FS_IOC_GETFLAGS:
		if (fails(GETFLAGS))
			return -1;
		memcpy(arg, (const int[2]){ k.flags, -1 }, 2 * sizeof(int)); /* likewise */
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

/* It may take I/O, of a disk of this process's, or of one whose server has died: nobody who calls fork() waits for that. */
int __real_open(const char *name, int flags, ...);
int __wrap_open(const char *name, int flags, ...);
int __wrap_open(const char *name, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	if (!strcmp(name, path)) {
		alarm(20);
		gnv_fork_begin(); /* stands still when the caller has it */
		gnv_fork_keep(-1);
		alarm(0);
	}
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
	long arg[6];

	va_start(args, number);
	for (unsigned i = 0; i < 6; i++)
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

int __wrap_gnv_os_head(const char *node, void *buf, size_t len);
int __wrap_gnv_os_head(const char *node, void *buf, size_t len)
{
	int fd = open(image_path("disk.img"), O_RDONLY | O_CLOEXEC);

	(void)node;
	assert_int_equal(pread(fd, buf, len, (off_t)k.first), len);
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

static struct gpunvme_file *live(void)
{
	struct gpunvme_file *file;

	good(gpunvme_file_live(dev, path, NULL, &file));
	return file;
}

static void not_live(int want, const char *words)
{
	struct gpunvme_file *file = NULL;

	says(gpunvme_file_live(dev, path, NULL, &file), want, words);
	assert_null(file);
}

/* Is the file locked, as it is while it is leased? */
static bool is_locked(void)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret = flock(fd, LOCK_EX | LOCK_NB);

	close(fd);
	return ret != 0;
}

static void untouched(void)
{
	assert_false(k.flags & FS_IMMUTABLE_FL);
	assert_false(k.marked);
	assert_false(k.leased);
	assert_false(is_locked());
}

/* ---- Live ---- */

static void test_lanes_read(void **state)
{
	struct gpunvme_cursor cursor = { 0 };
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfile view;
	struct gpunvme_dq dq;
	struct gpunvme_file *file = live();
	struct gpunvme_mem *mem;
	struct gpunvme_qp *qp;
	const uint8_t *bytes;

	(void)state;
	good(gpunvme_qp_create(dev, gpu, NULL, &qp));
	good(gpunvme_qp_view(qp, NULL, &dq));
	good(gpunvme_mem_alloc(gpu, 65536, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	good(gpunvme_file_view(file, gpu, &view));
	cursor.bounce = 32768;
	good(gpunvme_file_read(&dq, &view, &cursor, &dbuf, 0, 0, BYTES));
	bytes = gpunvme_mem_ptr(mem);
	for (uint32_t i = 0; i < BYTES; i++)
		assert_int_equal(bytes[i], byte_at(i));
	good(gpunvme_file_check(file));
	gpunvme_file_close(file);
	good(gpunvme_qp_destroy(qp));
	good(gpunvme_mem_free(mem));
}

static void test_changes(void **state)
{
	struct gpunvme_file *file = live();

	(void)state;
	k.second = 3 << 20;
	says(gpunvme_file_check(file), -ESTALE, "its blocks lie elsewhere (2 extents, before 2)");
	k.second = (1 << 20) + 8192; /* beside the first */
	says(gpunvme_file_check(file), -ESTALE, "(1 extents, before 2)");
	k.second = 20 << 20;
	says(gpunvme_file_check(file), -EUCLEAN, "outside its file system");
	k.second = 2 << 20;
	k.shared = true; /* for reading it is the same */
	good(gpunvme_file_check(file));
	assert_int_equal(chmod(path, 0600), 0);
	says(gpunvme_file_check(file), -ESTALE, "attributes are others");
	gpunvme_file_close(file);
}

static void test_not_live(void **state)
{
	static const struct {
		unsigned long magic;
		const char *words;
	} others[] = { { 0x9123683e, "btrfs writes every change to another place" }, { 0xf2f52010, "f2fs moves blocks" },
		       { 0x794c7630, "in the file system below" }, { 0x6969, "another file system (0x6969)" } };

	(void)state;
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		k.magic = others[i].magic;
		not_live(-EOPNOTSUPP, others[i].words);
	}
	k.magic = 0x58465342;
	not_live(-EOPNOTSUPP, "another file system than the file");
	k.magic = EXT4;
	k.node = "/dev/nvme0n1";
	not_live(-EXDEV, "/dev/nvme0n1, which this library does not serve");
	k.node = "/dev/ublkb8";
	not_live(-ENODEV, "has gone");
	k.node = "/dev/ublkb9p1";
	k.mark++;
	not_live(-EXDEV, "of another namespace than 1");
	k.mark--;
	k.other_head = true;
	not_live(-EXDEV, "does not begin with what namespace 1 has there");
	k.other_head = false;
	k.bytes++;
	not_live(-EXDEV, "ends behind namespace 1");
	k.bytes--;
	k.first = 1 << 20; /* a partition that has nothing of the kind */
	k.bytes -= 1 << 20;
	not_live(-EOPNOTSUPP, "no ext2, ext3, ext4 or XFS begins there");
	k.first = 0;
	k.journals = true;
	not_live(-EOPNOTSUPP, "to its journal first");
	k.journals = false;
	k.flags = FS_JOURNAL_DATA_FL;
	not_live(-EOPNOTSUPP, "to its journal first");
}

/* ---- Leased ---- */

static void test_lease(void **state)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *file = live(), *second;

	(void)state;
	good(gpunvme_file_lease(file));
	assert_true(k.flags & FS_IMMUTABLE_FL && k.marked && k.leased && is_locked());
	assert_true(k.kept); /* else a writer may come after the lease */
	good(gpunvme_file_get_info(file, &info));
	assert_int_equal(info.writable, 1);
	second = live();
	says(gpunvme_file_lease(second), -EBUSY, "one lease at a time");
	gpunvme_file_close(second);
	says(gpunvme_lease_remove(path), -EBUSY, "one lease at a time");
	good(gpunvme_file_check(file));
	k.shared = true;
	says(gpunvme_file_check(file), -ESTALE, "by reflink");
	k.shared = false;
	k.broken = true;
	says(gpunvme_file_check(file), -ESTALE, "opens it for writing");
	k.broken = false;
	k.flags = 0;
	says(gpunvme_file_check(file), -ESTALE, "cleared its immutable flag");
	k.flags = FS_IMMUTABLE_FL;
	k.cached = k.stuck = true;
	says(gpunvme_file_unlease(file), -EBUSY, "stays in the kernel's cache");
	assert_true(k.flags & FS_IMMUTABLE_FL && k.marked && k.leased && is_locked());
	k.old = true;
	says(gpunvme_file_unlease(file), -EBUSY, "stays in the kernel's cache");
	k.old = k.cached = false;
	k.reading = true; /* it may bring what was there before */
	says(gpunvme_file_unlease(file), -EBUSY, "stays in the kernel's cache");
	k.stuck = false;
	good(gpunvme_file_unlease(file));
	untouched();
	good(gpunvme_file_check(file));
	good(gpunvme_file_lease(file)); /* and again */
	gpunvme_file_close(file);
	untouched();
}

/* Who had the right to open it for writing before the flag was set, and does after that; and who clears the flag. */
static void test_broken(void **state)
{
	struct gpunvme_file *file = live();

	(void)state;
	k.broken = true;
	says(gpunvme_file_lease(file), -EBUSY, "being opened for writing at this moment");
	untouched();
	k.broken = false;
	good(gpunvme_file_lease(file));
	k.flags = 0;
	good(gpunvme_file_unlease(file));
	untouched();
	says(gpunvme_file_check(file), -ESTALE, "has changed"); /* what it is now, nobody has looked at */
	gpunvme_file_close(file);
}

static void test_refused(void **state)
{
	struct gpunvme_file *file = live();

	(void)state;
	k.shared = true;
	says(gpunvme_file_lease(file), -EOPNOTSUPP, "shares blocks with another file");
	k.shared = false;
	k.flags = FS_VERITY_FL;
	says(gpunvme_file_lease(file), -EOPNOTSUPP, "fs-verity");
	k.flags = FS_APPEND_FL;
	says(gpunvme_file_lease(file), -EOPNOTSUPP, "for appending only");
	k.flags = FS_IMMUTABLE_FL;
	says(gpunvme_file_lease(file), -EOPNOTSUPP, "no lease has made it so");
	assert_int_equal(k.flags, FS_IMMUTABLE_FL);
	k.flags = 0;
	untouched();
	says(gpunvme_file_unlease(file), -EINVAL, "is not leased");
	says(gpunvme_file_lease(NULL), -EINVAL, "must be one of gpunvme_file_live()");
	gpunvme_file_close(file);
}

static void test_failures(void **state)
{
	static const struct {
		enum step step;
		int after, error, ret;
		const char *words;
	} failures[] = {
		{ GETFLAGS, 2, EIO, -EIO, "cannot be leased" },
		{ SETXATTR, 0, EPERM, -EACCES, "only root" },
		{ SETXATTR, 0, EOPNOTSUPP, -EOPNOTSUPP, "extended attributes" },
		{ SETXATTR, 0, ENOSPC, -ENOSPC, "cannot be leased" },
		{ SETFLAGS, 0, EPERM, -EACCES, "only root" },
		{ SETFLAGS, 0, ENOTTY, -EOPNOTSUPP, "immutable flag" },
		{ SETLEASE, 0, EAGAIN, -EBUSY, "is open for writing" },
		{ SETLEASE, 1, EAGAIN, -EBUSY, "is open for writing" },
		{ SETLEASE, 0, EACCES, -EACCES, "only root" },
		{ SETLEASE, 0, EINVAL, -EOPNOTSUPP, "leases" },
		{ FSYNC, 0, EIO, -EIO, "cannot be flushed" },
	};
	struct gpunvme_file *file = live();

	(void)state;
	for (size_t i = 0; i < sizeof(failures) / sizeof(failures[0]); i++) {
		k.step = failures[i].step;
		k.after = failures[i].after;
		k.error = failures[i].error;
		k.touched = false;
		says(gpunvme_file_lease(file), failures[i].ret, failures[i].words);
		assert_true(!k.touched || k.step != SETLEASE || failures[i].after); /* who writes to it now must not fail */
		k.step = NONE;
		untouched();
	}
	good(gpunvme_file_lease(file));
	k.old = true;
	for (size_t i = 0; i < 4; i++) {
		static const enum step steps[] = { FSYNC, FADVISE, MINCORE, SETFLAGS };

		k.step = steps[i];
		k.after = 0;
		k.error = EPERM;
		assert_int_equal(gpunvme_file_unlease(file), -EPERM);
		k.step = NONE;
		assert_true(k.flags & FS_IMMUTABLE_FL && k.marked && k.leased && is_locked());
		good(gpunvme_file_check(file));
	}
	good(gpunvme_file_unlease(file));
	untouched();
	gpunvme_file_close(file);
}

/* By process 1, which died; as it would have marked another inode, or another generation of this. */
static void leave(unsigned inode, unsigned generation)
{
	struct stat st;

	good(stat(path, &st));
	snprintf(k.text, sizeof(k.text), "process 1, inode %llu, generation %u", (unsigned long long)st.st_ino + inode, generation);
	k.flags = FS_IMMUTABLE_FL;
	k.marked = true;
}

/* A copy has the mark of what it was copied from (cp -a, as root), and the flag of an administrator's (chattr +i): no lease has made that so. */
static void test_copied_mark(void **state)
{
	struct gpunvme_file *file;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		k.generation = i ? 77 : 0;
		leave(i == 0, i == 1 ? 76 : (unsigned)k.generation);
		if (i == 2)
			snprintf(k.text, sizeof(k.text), "process 1");
		says(gpunvme_lease_remove(path), -ENOENT, "no lease has left anything");
		file = live();
		says(gpunvme_file_lease(file), -EOPNOTSUPP, "is immutable, and no lease has made it so");
		assert_true(k.flags & FS_IMMUTABLE_FL && k.marked && !k.touched && !is_locked());
		gpunvme_file_close(file);
	}
	k.flags = 0; /* and without that flag it does not matter */
	file = live();
	good(gpunvme_file_lease(file));
	k.cached = k.stuck = true;
	gpunvme_file_close(file); /* left */
	k.stuck = k.leased = false;
	good(gpunvme_lease_remove(path));
	untouched();
}

static void test_left(void **state)
{
	struct gpunvme_file *file;

	(void)state;
	says(gpunvme_lease_remove(path), -ENOENT, "no lease has left anything");
	leave(0, 0);
	k.cached = k.stuck = true;
	says(gpunvme_lease_remove(path), -EBUSY, "stays in the kernel's cache");
	assert_true(k.marked);
	k.stuck = false;
	good(gpunvme_lease_remove(path));
	untouched();

	k.generation = 77;
	leave(0, 77); /* taken over */
	file = live();
	k.step = SETLEASE;
	k.error = EAGAIN;
	says(gpunvme_file_lease(file), -EBUSY, "is open for writing");
	k.step = NONE;
	assert_true(k.flags & FS_IMMUTABLE_FL && k.marked && !is_locked()); /* as it was left */
	good(gpunvme_file_lease(file));
	k.cached = k.stuck = true;
	gpunvme_file_close(file); /* left again */
	assert_true(k.flags & FS_IMMUTABLE_FL && k.marked && !is_locked());
	k.stuck = k.leased = false; /* that ended with the descriptor */
	good(gpunvme_lease_remove(path));
	untouched();
}

/* A child has none of it, and ends nothing of its parent's. */
static void test_fork(void **state)
{
	struct gpunvme_file *file = live();
	int status, pid;

	(void)state;
	good(gpunvme_file_lease(file));
	pid = fork();
	if (!pid) {
		status = gpunvme_file_check(file) == -ECHILD && gpunvme_file_unlease(file) == -ECHILD;
		gpunvme_file_close(file);
		_exit(status && k.leased ? 0 : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_true(is_locked());
	good(gpunvme_file_unlease(file));
	assert_false(is_locked());
	gpunvme_file_close(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_lanes_read, begin), cmocka_unit_test_setup(test_changes, begin),
		cmocka_unit_test_setup(test_not_live, begin),	cmocka_unit_test_setup(test_lease, begin),
		cmocka_unit_test_setup(test_refused, begin),	cmocka_unit_test_setup(test_failures, begin),
		cmocka_unit_test_setup(test_left, begin), cmocka_unit_test_setup(test_copied_mark, begin),	cmocka_unit_test_setup(test_fork, begin),
		cmocka_unit_test_setup(test_broken, begin),
	};

	return cmocka_run_group_tests_name("live", tests, setup, teardown);
}
