/* SPDX-License-Identifier: MIT */
/*
 * Files of mounted file systems: threads read them by name and see changes, and write to them under a lease, which the kernel's
 * ext4 or XFS keeps. For the guest of tests/vm: GPUNVME_TEST_URI names the controller, whose two namespaces lose what they have,
 * and GPUNVME_TEST_FS the file system.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/shell.h"

#define AT "/tmp/lease"
#define FILE_AT AT "/train.bin"
#define BYTES (512u << 10)
#define DISK "/dev/ublkb9"

static const char *uri, *type;
static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static struct gpunvme_queue *qp;
static struct gpunvme_dq dq;
static struct gpunvme_mem *mem;
static struct gpunvme_dbuf dbuf;
static struct gpunvme_ublk *ublk;
static unsigned char content[BYTES], seen[BYTES];

/* ---- The drive and its file system ---- */

static void start(uint32_t flags)
{
	const struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;

	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	good(gpunvme_queue_view(qp, &view, &dq));
	good(gpunvme_mem_alloc(gpu, NULL, 1 << 20, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	opts.flags = flags;
	opts.id = 9;
	good(gpunvme_ublk_start(dev, 0, &opts, &ublk));
}

static void make_fs(void)
{
	run(strcmp(type, "xfs") ? "mkfs.ext4 -q -F -b 4096 " DISK : "mkfs.xfs -q -f " DISK);
	assert_int_equal(mount(DISK, AT, type, 0, NULL), 0);
}

static void fill(unsigned char salt)
{
	for (uint32_t i = 0; i < BYTES; i++)
		content[i] = (unsigned char)((i * 2654435761u >> 24) ^ salt);
}

static void write_file(const char *path, unsigned char salt)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);

	assert_true(fd >= 0);
	fill(salt);
	assert_int_equal(write(fd, content, BYTES), BYTES);
	close(fd); /* not synced: that is the library's to do */
}

static void kernel_reads(void)
{
	int fd = open(FILE_AT, O_RDONLY | O_CLOEXEC);

	assert_int_equal(read(fd, seen, BYTES), BYTES);
	close(fd);
}

/* ---- Threads ---- */

static void lanes_read(struct gpunvme_file *file)
{
	struct gpunvme_dfile view;
	struct gpunvme_cursor cursor = { .dq = &dq, .file = &view };

	good(gpunvme_file_view(file, gpu, &view));
	memset(gpunvme_mem_ptr(mem), 0, 1 << 20);
	good(gpunvme_read(&cursor, &dbuf, 0, 0, BYTES));
	assert_int_equal(cursor.done, BYTES);
	assert_memory_equal(gpunvme_mem_ptr(mem), content, BYTES);
}

static int lanes_write(struct gpunvme_file *file, uint64_t pos, uint64_t len)
{
	struct gpunvme_dfile view;
	struct gpunvme_cursor cursor = { .dq = &dq, .file = &view };

	good(gpunvme_file_view(file, gpu, &view));
	memcpy(gpunvme_mem_ptr(mem), content + pos, len);
	return gpunvme_write(&cursor, &dbuf, 0, pos, len, 0);
}

static const struct gpunvme_file_opts mounted = { .size = sizeof(mounted), .how = GPUNVME_FILE_MOUNTED };

static struct gpunvme_file *live(void)
{
	struct gpunvme_file *file;

	good(gpunvme_file_open(dev, FILE_AT, &mounted, &file));
	return file;
}

static void says(int ret, int want, const char *words)
{
	if (ret != want || !strstr(gpunvme_errmsg(), words))
		fail_msg("%d, not %d with '%s': %s", ret, want, words, gpunvme_errmsg());
}

static void not_live(const char *path, int want, const char *words)
{
	struct gpunvme_file *file = NULL;

	says(gpunvme_file_open(dev, path, &mounted, &file), want, words);
	assert_null(file);
}

/* chattr -i or +i, as root */
static void set_flag(const char *path, int flag, bool on)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), flags = 0;

	good(ioctl(fd, FS_IOC_GETFLAGS, &flags));
	flags = on ? flags | flag : flags & ~flag;
	good(ioctl(fd, FS_IOC_SETFLAGS, &flags));
	close(fd);
}

/* ---- A process that dies with a lease ---- */

/* A program of its own (main()): an assertion ends it, and does not go on with this one's tests. */
static void hold(void)
{
	struct gpunvme_file *file;

	start(GPUNVME_UBLK_ID);
	make_fs();
	write_file(FILE_AT, 1);
	file = live();
	good(gpunvme_file_lease(file));
	kernel_reads();
	fill(2);
	good(lanes_write(file, 0, BYTES));
	run("touch /tmp/held");
	pause();
}

/* cp -a copies the mark of a leased file, and an administrator makes the copy immutable. */
static void copy_is_no_lease(size_t marked)
{
	struct gpunvme_file *file;

	write_file(AT "/copy", 1);
	good(setxattr(AT "/copy", "trusted.gpunvme.lease", seen, marked, 0));
	set_flag(AT "/copy", FS_IMMUTABLE_FL, true);
	says(gpunvme_file_lease_remove(AT "/copy"), -ENOENT, "no lease has left anything");
	good(gpunvme_file_open(dev, AT "/copy", &mounted, &file));
	says(gpunvme_file_lease(file), -EOPNOTSUPP, "no lease has made it so");
	gpunvme_file_close(file);
	set_flag(AT "/copy", FS_IMMUTABLE_FL, false);
	good(unlink(AT "/copy"));
}

static void test_death(void **state)
{
	int pid = fork(), status, fd;
	struct gpunvme_file *file;
	ssize_t marked;
	void *map;

	(void)state;
	if (!pid) {
		execl("/proc/self/exe", "test_lease", "hold", (char *)NULL);
		_exit(1);
	}
	for (int i = 0; i < 20000 && access("/tmp/held", F_OK) && !waitpid(pid, &status, WNOHANG); i++)
		usleep(10000);
	good(kill(pid, SIGKILL));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	start(GPUNVME_UBLK_RECOVER);
	assert_int_equal(open(FILE_AT, O_RDWR), -1);
	assert_int_equal(errno, EPERM);
	marked = getxattr(FILE_AT, "trusted.gpunvme.lease", seen, BYTES);
	assert_true(marked > 8);
	assert_int_equal(atoi((char *)seen + 8), pid);
	copy_is_no_lease((size_t)marked);
	kernel_reads();
	fill(1);
	assert_memory_equal(seen, content, BYTES); /* the kernel's cache does not know what threads wrote */

	file = live(); /* the next one takes it over ... */
	good(gpunvme_file_lease(file));
	says(gpunvme_file_lease_remove(FILE_AT), -EBUSY, "leased already");
	fill(3);
	good(lanes_write(file, 0, 4096));
	fill(2);
	memcpy(seen, content, BYTES);
	fill(3);
	memcpy(seen, content, 4096);
	memcpy(content, seen, BYTES);
	good(gpunvme_file_unlease(file));
	kernel_reads();
	assert_memory_equal(seen, content, BYTES);
	says(gpunvme_file_lease_remove(FILE_AT), -ENOENT, "no lease has left anything");

	good(gpunvme_file_lease(file)); /* ... or it is ended */
	map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd = open(FILE_AT, O_RDONLY | O_CLOEXEC), 0);
	assert_memory_equal(map, content, BYTES);
	close(fd);
	fill(8);
	good(lanes_write(file, 0, BYTES));
	says(gpunvme_file_close(file), -EBUSY, "stays in the kernel's cache"); /* which leaves it */
	says(gpunvme_file_lease_remove(FILE_AT), -EBUSY, "stays in the kernel's cache");
	munmap(map, BYTES);
	run("gpunvme unlease " FILE_AT " | grep 'may be written again'");
	kernel_reads();
	assert_memory_equal(seen, content, BYTES);
	good(unlink(FILE_AT));
}

/* ---- Live ---- */

static void changed(struct gpunvme_file *file, const char *words)
{
	says(gpunvme_file_check(file, 0, 1), -ESTALE, words);
	says(gpunvme_file_lease(file), -ESTALE, words);
	gpunvme_file_close(file);
}

/* Blocks of one file for those of another: no time and no size tells of it. EXT4_IOC_MOVE_EXT, fs/ext4/ext4.h. */
static void move_blocks(const char *path)
{
	struct {
		uint32_t reserved, donor;
		uint64_t from, to, len, moved;
	} move = { .len = BYTES / 4096 };
	int fd = open(path, O_RDWR | O_CLOEXEC), donor = open(AT "/donor", O_CREAT | O_RDWR | O_CLOEXEC, 0644);

	assert_int_equal(posix_fallocate(donor, 0, BYTES), 0);
	move.donor = (uint32_t)donor;
	assert_int_equal(ioctl(fd, _IOWR('f', 15, move), &move), 0);
	assert_int_equal(move.moved, BYTES / 4096);
	close(fd);
	close(donor);
	good(unlink(AT "/donor"));
}

static void test_live(void **state)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *file;
	int fd;

	(void)state;
	write_file(FILE_AT, 4);
	file = live();
	lanes_read(file);
	good(gpunvme_file_check(file, 0, 1));
	good(gpunvme_file_get_info(file, &info));
	assert_string_equal(info.fs, type);
	assert_int_equal(info.bytes, BYTES);
	assert_int_equal(info.writable, 0);
	assert_int_equal(lanes_write(file, 0, 4096), -GPUNVME_EROFS);
	assert_int_equal(umount(AT), -1);

	fd = open(FILE_AT, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "x", 1, 4711), 1);
	changed(file, "it was written to");
	content[4711] = 'x';
	file = live();
	lanes_read(file);
	assert_int_equal(pwrite(fd, "x", 1, BYTES), 1);
	changed(file, "it had 524288 bytes, and has 524289");
	file = live();
	good(ftruncate(fd, BYTES));
	changed(file, "it had 524289 bytes, and has 524288");
	file = live();
	good(futimens(fd, NULL));
	good(gpunvme_file_get_info(file, &info));
	good(futimens(fd, (const struct timespec[2]){ { 0, UTIME_OMIT }, { info.mtime, info.mtime_ns } }));
	changed(file, "attributes are others");
	if (!strcmp(type, "ext4")) {
		file = live();
		move_blocks(FILE_AT);
		changed(file, "its blocks lie elsewhere");
		file = live();
		lanes_read(file);
		gpunvme_file_close(file);
	}
	file = live();
	good(unlink(FILE_AT));
	lanes_read(file); /* its blocks are its own until it is closed */
	changed(file, "it was deleted");
	close(fd);
}

/* ---- Leased ---- */

static void forbidden(int ret)
{
	assert_int_equal(ret, -1);
	assert_int_equal(errno, EPERM);
}

static void nobody_changes_it(void)
{
	forbidden(open(FILE_AT, O_WRONLY));
	forbidden(open(FILE_AT, O_RDWR | O_APPEND));
	forbidden(truncate(FILE_AT, 0));
	forbidden(unlink(FILE_AT));
	forbidden(rename(FILE_AT, AT "/other"));
	forbidden(link(FILE_AT, AT "/other"));
	forbidden(chmod(FILE_AT, 0600));
	forbidden(setxattr(FILE_AT, "user.x", "x", 1, 0));
}

/* A directory as one table: what threads read by number, and which of its files has changed. */
static void test_many(void **state)
{
	static const char *const paths[] = { AT "/many" };
	char name[64];
	struct gpunvme_file *files;
	struct gpunvme_dfiles view;
	struct gpunvme_dfile file = { 0 };

	(void)state;
	run("mkdir -p " AT "/many/below");
	for (unsigned i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), AT "/many/%s%u", i & 1 ? "below/" : "", i);
		write_file(name, (unsigned char)i);
	}
	good(gpunvme_file_open_set(dev, paths, 1, &mounted, &files)); /* 0, 2, below/1, below/3 */
	good(gpunvme_file_view(files, gpu, &view));
	assert_int_equal(view.files, 4);
	for (uint32_t i = 0; i < 4; i++) {
		struct gpunvme_cursor cursor = { .dq = &dq, .file = &file };

		good(gpunvme_files_get(&view, i, &file));
		fill((unsigned char)(i % 2 * 2 + i / 2));
		good(gpunvme_read(&cursor, &dbuf, 0, 0, BYTES));
		assert_memory_equal(gpunvme_mem_ptr(mem), content, BYTES);
	}
	good(gpunvme_file_check(files, 0, 4));
	run("printf x >>" AT "/many/2");
	says(gpunvme_file_check(files, 0, 4), -ESTALE, "/many/2 has changed: it had 524288 bytes, and has 524289");
	good(gpunvme_file_check(files, 0, 1));
	if (!strcmp(type, "ext4")) {
		move_blocks(AT "/many/0");
		says(gpunvme_file_check(files, 0, 1), -ESTALE, "its blocks lie elsewhere");
	}
	run("mv " AT "/many/below/1 " AT "/many/below/3");
	says(gpunvme_file_check(files, 2, 1), -ESTALE, "deleted, or has another name");
	says(gpunvme_file_check(files, 3, 1), -ESTALE, "another file has its name");
	gpunvme_file_close(files);
	run("rm -r " AT "/many");
}

static void test_writers(void **state)
{
	struct gpunvme_file *file;
	char words[64];
	void *map;
	int fd;

	(void)state;
	write_file(FILE_AT, 5);
	file = live();
	fd = open(FILE_AT, O_RDWR | O_CLOEXEC);
	snprintf(words, sizeof(words), "open for writing by process %d", (int)getpid());
	says(gpunvme_file_lease(file), -EBUSY, words);
	map = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(map, MAP_FAILED);
	close(fd);
	gpunvme_file_close(file);
	file = live();
	says(gpunvme_file_lease(file), -EBUSY, "or mapped so");
	munmap(map, BYTES);
	gpunvme_file_close(file);
	fd = open(FILE_AT, O_WRONLY | O_CLOEXEC); /* nothing is left of either */
	assert_true(fd >= 0);
	assert_int_equal(getxattr(FILE_AT, "trusted.gpunvme.lease", NULL, 0), -1);
	close(fd);
}

static void test_lease(void **state)
{
	struct gpunvme_file_info before = { .size = sizeof(before) }, after = before;
	struct gpunvme_file *file, *second;
	void *map;
	int fd;

	(void)state;
	write_file(FILE_AT, 6);
	file = live();
	second = live();
	good(gpunvme_file_get_info(file, &before));
	good(gpunvme_file_lease(file));
	says(gpunvme_file_lease(file), -EBUSY, "leased already");
	says(gpunvme_file_lease(second), -ESTALE, "attributes are others");
	gpunvme_file_close(second);
	second = live();
	says(gpunvme_file_lease(second), -EBUSY, "one lease at a time");
	gpunvme_file_close(second);
	nobody_changes_it();

	kernel_reads();
	fill(7);
	good(lanes_write(file, 0, BYTES));
	good(gpunvme_file_check(file, 0, 1));
	lanes_read(file);
	kernel_reads();
	fill(6);
	assert_memory_equal(seen, content, BYTES); /* the kernel's cache has them from before */

	fd = open(FILE_AT, O_RDONLY | O_CLOEXEC);
	map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
	assert_memory_equal(map, content, BYTES);
	close(fd);
	says(gpunvme_file_unlease(file), -EBUSY, "stays in the kernel's cache");
	good(gpunvme_file_check(file, 0, 1));
	nobody_changes_it();
	munmap(map, BYTES);
	good(gpunvme_file_unlease(file));
	kernel_reads();
	fill(7);
	assert_memory_equal(seen, content, BYTES);
	good(gpunvme_file_get_info(file, &after));
	assert_true(after.mtime > before.mtime || (after.mtime == before.mtime && after.mtime_ns > before.mtime_ns));
	good(gpunvme_file_check(file, 0, 1));
	assert_int_equal(lanes_write(file, 0, 4096), -GPUNVME_EROFS);
	says(gpunvme_file_unlease(file), -EINVAL, "not leased");

	fd = open(FILE_AT, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, "y", 1, 17), 1); /* a part of a page that threads wrote: the rest of it stays theirs */
	close(fd);
	changed(file, "it was written to");
	content[17] = 'y';
	file = live();
	lanes_read(file);
	good(gpunvme_file_lease(file));
	good(gpunvme_file_close(file)); /* ends the lease */
	good(unlink(FILE_AT));
}

static void test_holes(void **state)
{
	struct gpunvme_file *file;
	int fd = open(FILE_AT, O_CREAT | O_TRUNC | O_RDWR | O_CLOEXEC, 0644);

	(void)state;
	memset(content, 0, BYTES);
	memset(content + 65536, 3, 65536);
	assert_int_equal(pwrite(fd, content + 65536, 65536, 65536), 65536);
	good(posix_fallocate(fd, 131072, 65536));
	good(ftruncate(fd, BYTES));
	close(fd);
	file = live();
	good(gpunvme_file_lease(file));
	lanes_read(file);
	assert_int_equal(lanes_write(file, 0, 4096), -GPUNVME_EOPNOTSUPP);
	assert_int_equal(lanes_write(file, 131072, 4096), -GPUNVME_EOPNOTSUPP);
	assert_int_equal(lanes_write(file, BYTES, 4096), -GPUNVME_ERANGE);
	memset(content + 65536, 9, 65536);
	good(lanes_write(file, 65536, 65536));
	good(gpunvme_file_unlease(file));
	lanes_read(file);
	kernel_reads();
	assert_memory_equal(seen, content, BYTES);
	gpunvme_file_close(file);
}

static void test_broken(void **state)
{
	struct gpunvme_file *file;
	int fd, copy;

	(void)state;
	write_file(FILE_AT, 10);
	file = live();
	good(gpunvme_file_lease(file));
	set_flag(FILE_AT, FS_IMMUTABLE_FL, false);
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "cleared its immutable flag");
	assert_int_equal(open(FILE_AT, O_WRONLY | O_NONBLOCK), -1); /* the kernel's lease holds on */
	assert_int_equal(errno, EWOULDBLOCK);
	set_flag(FILE_AT, FS_IMMUTABLE_FL, true);
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "opens it for writing");
	gpunvme_file_close(file);

	if (!strcmp(type, "xfs")) {
		file = live();
		good(gpunvme_file_lease(file));
		fd = open(FILE_AT, O_RDONLY | O_CLOEXEC);
		copy = open(AT "/copy", O_CREAT | O_RDWR | O_CLOEXEC, 0644);
		good(ioctl(copy, FICLONE, fd));
		close(fd);
		close(copy);
		says(gpunvme_file_check(file, 0, 1), -ESTALE, "by reflink");
		good(gpunvme_file_unlease(file));
		says(gpunvme_file_lease(file), -EOPNOTSUPP, "shares blocks");
		gpunvme_file_close(file);
		good(unlink(AT "/copy"));
	}
}

/* ---- Refused ---- */

static void test_refusals(void **state)
{
	struct gpunvme_file_opts opts = mounted;
	struct gpunvme_file *file = NULL;

	(void)state;
	opts.flags = GPUNVME_FILE_WRITE;
	says(gpunvme_file_open(dev, FILE_AT, &opts, &file), -EINVAL, "under a lease only");
	opts = mounted;
	opts.partition = 1;
	says(gpunvme_file_open(dev, FILE_AT, &opts, &file), -EINVAL, "partition must be 0");
	opts = mounted;
	opts.nsid = 2;
	says(gpunvme_file_open(dev, FILE_AT, &opts, &file), -EXDEV, "of another namespace than 2");
	not_live(AT "/nothing", -ENOENT, "No such file");
	not_live(AT, -EOPNOTSUPP, "no regular file");
	not_live("/proc/version", -EOPNOTSUPP, "only ext4 and XFS show");
	good(mount("none", "/mnt", "tmpfs", 0, NULL));
	run("cp /init /mnt/file");
	not_live("/mnt/file", -EOPNOTSUPP, "tmpfs is in memory");
	good(umount("/mnt"));
	run("truncate -s 32M /tmp/loop.img && mkfs.ext4 -q -F /tmp/loop.img && mount -o loop /tmp/loop.img /mnt && cp /init /mnt/file");
	not_live("/mnt/file", -EXDEV, "is no disk of this library");
	good(umount("/mnt"));

	write_file(FILE_AT, 11);
	file = live();
	set_flag(FILE_AT, FS_IMMUTABLE_FL, true);
	gpunvme_file_close(file);
	file = live();
	says(gpunvme_file_lease(file), -EOPNOTSUPP, "no lease has made it so");
	gpunvme_file_close(file);
	set_flag(FILE_AT, FS_IMMUTABLE_FL, false);
	set_flag(FILE_AT, FS_APPEND_FL, true);
	file = live();
	says(gpunvme_file_lease(file), -EOPNOTSUPP, "for appending only");
	gpunvme_file_close(file);
	set_flag(FILE_AT, FS_APPEND_FL, false);
	if (strcmp(type, "ext4"))
		return;
	set_flag(FILE_AT, FS_JOURNAL_DATA_FL, true);
	not_live(FILE_AT, -EOPNOTSUPP, "to its journal first");
	set_flag(FILE_AT, FS_JOURNAL_DATA_FL, false);
	good(umount(AT));
	good(mount(DISK, AT, type, 0, "data=journal"));
	not_live(FILE_AT, -EOPNOTSUPP, "to its journal first");
}

/* ---- The end ---- */

static void test_clean(void **state)
{
	(void)state;
	good(umount(AT));
	run("%s " DISK " >/tmp/check 2>&1 || { cat /tmp/check; false; }", strcmp(type, "xfs") ? "e2fsck -f -n" : "xfs_repair -n");
	good(gpunvme_ublk_stop(ublk));
	ublk = NULL;
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(mem));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
}

/* A test that failed half-way has left its file system mounted, and nobody would serve it; without a server no unmount ends. */
static int unmount_all(void **state)
{
	(void)state;
	if (!ublk)
		return 0;
	umount2("/mnt", MNT_DETACH);
	umount2(AT, MNT_DETACH);
	return gpunvme_ublk_stop(ublk);
}

int main(int argc, char **argv) /* of hold(): any argument */
{
	(void)argv;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_death), /* begins, */
		cmocka_unit_test(test_live),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_writers),
		cmocka_unit_test(test_lease),
		cmocka_unit_test(test_holes),
		cmocka_unit_test(test_broken),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_clean), /* and ends */
	};

	uri = getenv("GPUNVME_TEST_URI");
	type = getenv("GPUNVME_TEST_FS");
	if (!uri || !type)
		return 1;
	if (argc > 1) {
		hold();
		return 1;
	}
	remove("/tmp/held");
	mkdir(AT, 0755);
	mkdir("/mnt", 0755);
	return cmocka_run_group_tests_name(type, tests, NULL, unmount_all);
}
