/* SPDX-License-Identifier: MIT */
/* Files of mounted file systems where the kernel refuses or fails. Each call fails once, and what was done before must be undone. */
#include "mounted.h"

#include <sys/inotify.h>

static const struct gpunvme_file_opts mounted = { .size = sizeof(mounted), .how = GPUNVME_FILE_MOUNTED };

static struct gpunvme_file *live(void)
{
	struct gpunvme_file *file;

	good(gpunvme_file_open(dev, path, &mounted, &file));
	return file;
}

static void not_live(int want, const char *words)
{
	struct gpunvme_file *file = NULL;

	says(gpunvme_file_open(dev, path, &mounted, &file), want, words);
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
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfile view;
	struct gpunvme_dq dq;
	struct gpunvme_cursor cursor = { .dq = &dq, .file = &view, .bounce = 32768 };
	struct gpunvme_file *file = live();
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	const uint8_t *bytes;

	(void)state;
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	good(gpunvme_queue_view(qp, NULL, &dq));
	good(gpunvme_mem_alloc(gpu, NULL, 65536, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	good(gpunvme_file_view(file, gpu, &view));
	good(gpunvme_read(&cursor, &dbuf, 0, 0, BYTES));
	bytes = gpunvme_mem_ptr(mem);
	for (uint32_t i = 0; i < BYTES; i++)
		assert_int_equal(bytes[i], byte_at(i));
	good(gpunvme_file_check(file, 0, 1));
	gpunvme_file_close(file);
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(mem));
}

/* Lists of a file on a stream of CPU threads. */
static struct {
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfile view;
	struct gpunvme_stream *stream;
	struct gpunvme_transfer *list;
	uint8_t *bytes;
} s;

#define LISTS 32768u /* offset of the list in the buffer, 4 KiB before which are bounce blocks */

static void begin_stream(struct gpunvme_file *file)
{
	const struct gpunvme_view writable = { sizeof(writable), GPUNVME_VIEW_WRITE, 0, 0, 0 };

	good(gpunvme_queue_create(dev, gpu, NULL, &s.qp));
	good(gpunvme_queue_view(s.qp, &writable, &s.dq));
	good(gpunvme_mem_alloc(gpu, NULL, 65536, NULL, &s.mem));
	good(gpunvme_mem_map(s.mem, dev));
	good(gpunvme_mem_dbuf(s.mem, dev, &s.dbuf));
	good(gpunvme_file_view(file, gpu, &s.view));
	good(gpunvme_stream_create(gpu, &s.stream));
	s.bytes = gpunvme_mem_ptr(s.mem);
	s.list = (struct gpunvme_transfer *)(void *)(s.bytes + LISTS);
}

static void end_stream(void)
{
	good(gpunvme_stream_destroy(s.stream));
	good(gpunvme_queue_destroy(s.qp));
	good(gpunvme_mem_free(s.mem));
}

/* All of the file as four transfers, or @flags to write its first block. */
static void enqueue(uint32_t flags)
{
	struct gpunvme_run run = GPUNVME_RUN_INIT;
	uint32_t i;

	for (i = 0; i < 4; i++)
		s.list[i] = (struct gpunvme_transfer){ i * 5000, i * 5000, 5000, 0, 0, -EAGAIN };
	if (flags)
		s.list[0] = (struct gpunvme_transfer){ 0, 0, 4096, flags, 0, -EAGAIN };
	run.dq = &s.dq;
	run.dbuf = &s.dbuf;
	run.file = &s.view;
	run.bounce = LISTS - 4096;
	run.bounce_len = 4096;
	run.list = s.dbuf.base + LISTS;
	run.count = flags ? 1 : 4;
	good(gpunvme_run_on_stream(gpu, s.stream, &run));
}

/* Does a program that asks for the results and then for the file take what was read for data? Then it must be. */
static bool has_read(const struct gpunvme_file *file)
{
	uint32_t i;

	good(gpunvme_stream_wait(s.stream));
	for (i = 0; i < 4; i++)
		if (s.list[i].result != 5000)
			return false;
	if (gpunvme_file_check(file, 0, 1))
		return false;
	for (i = 0; i < BYTES; i++)
		assert_int_equal(s.bytes[i], byte_at(i));
	return true;
}

/*
 * A file that changes while lists of it are enqueued, which are of its old blocks: one error, that of the check after the stream.
 * Opened again, it is read.
 */
static void test_changes_under_a_stream(void **state)
{
	struct gpunvme_file *file = live(), *again;

	(void)state;
	begin_stream(file);
	enqueue(0);
	assert_true(has_read(file));
	enqueue(0);
	k.second = 3 << 20; /* others have the old blocks from now on */
	assert_false(has_read(file));
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "its blocks lie elsewhere");
	enqueue(0); /* nothing refuses the table, so its check does, each time */
	assert_false(has_read(file));
	k.second = 2 << 20;
	assert_int_equal(truncate(path, BYTES - 1), 0);
	enqueue(0);
	assert_false(has_read(file));
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "it had 20000 bytes, and has 19999");
	assert_int_equal(truncate(path, BYTES), 0);
	again = live();
	good(gpunvme_file_view(again, gpu, &s.view));
	enqueue(0);
	assert_true(has_read(again));
	end_stream();
	good(gpunvme_file_close(file));
	good(gpunvme_file_close(again));
}

/* The file's bytes, each XORed with @flip. */
static void write_first_block(uint8_t flip)
{
	for (uint32_t i = 0; i < 4096; i++)
		s.bytes[i] = byte_at(i) ^ flip;
	enqueue(GPUNVME_TRANSFER_WRITE);
	good(gpunvme_stream_wait(s.stream));
	assert_int_equal(s.list[0].result, 4096);
	memset(s.bytes, 0xee, BYTES);
}

/* A lease that somebody breaks while a list writes: the check and the end of the lease say so. Without one nothing is written. */
static void test_lease_under_a_stream(void **state)
{
	struct gpunvme_file *file = live();

	(void)state;
	begin_stream(file);
	enqueue(GPUNVME_TRANSFER_WRITE);
	good(gpunvme_stream_wait(s.stream));
	assert_int_equal(s.list[0].result, -EROFS);
	good(gpunvme_file_lease(file));
	good(gpunvme_file_view(file, gpu, &s.view));
	write_first_block(0xff);
	enqueue(0);
	good(gpunvme_stream_wait(s.stream));
	for (uint32_t i = 0; i < BYTES; i++)
		assert_int_equal(s.bytes[i], byte_at(i) ^ (i < 4096 ? 0xff : 0));
	write_first_block(0);
	enqueue(0);
	assert_true(has_read(file));
	enqueue(GPUNVME_TRANSFER_WRITE);
	k.broken = true;
	good(gpunvme_stream_wait(s.stream));
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "opens it for writing");
	enqueue(0);
	assert_false(has_read(file));
	k.broken = false;
	k.flags = 0; /* by root */
	enqueue(0);
	assert_false(has_read(file));
	good(gpunvme_file_unlease(file));
	enqueue(0);
	assert_false(has_read(file)); /* what it is now, nobody has looked at */
	end_stream();
	good(gpunvme_file_close(file));
	untouched();
}

static void test_changes(void **state)
{
	struct gpunvme_file *file = live();

	(void)state;
	k.second = 3 << 20;
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "its blocks lie elsewhere (2 extents, before 2)");
	k.second = (1 << 20) + 8192; /* next to the first */
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "(1 extents, before 2)");
	k.second = 20 << 20;
	says(gpunvme_file_check(file, 0, 1), -EUCLEAN, "outside its file system");
	k.second = 2 << 20;
	k.shared = true; /* for reading it is the same */
	good(gpunvme_file_check(file, 0, 1));
	assert_int_equal(chmod(path, 0600), 0);
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "attributes are others");
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
	not_live(-EXDEV, "/dev/nvme0n1, which is no disk of this library");
	k.node = "/dev/ublkb8";
	not_live(-ENODEV, "has gone");
	k.node = "/dev/ublkb9p1";
	k.mark++;
	not_live(-EXDEV, "of another namespace than 1");
	k.mark--;
	k.other_head = true;
	not_live(-EXDEV, "and namespace 1 begin with different bytes");
	k.other_head = false;
	k.bytes++;
	not_live(-EXDEV, "ends after the end of namespace 1");
	k.bytes--;
	k.first = 1 << 20; /* a partition that has nothing of the kind */
	k.bytes -= 1 << 20;
	not_live(-EOPNOTSUPP, "no ext2, ext3, ext4, XFS or btrfs begins there");
	k.first = 0;
	k.journals = true;
	not_live(-EOPNOTSUPP, "to its journal first");
	k.journals = false;
	k.flags = FS_JOURNAL_DATA_FL;
	not_live(-EOPNOTSUPP, "to its journal first");
}

/* Opening a device, or a FIFO, may have an effect, so it is not opened. */
static void test_not_opened(void **state)
{
	struct inotify_event event;
	char fifo[sizeof(path) + 8];
	struct gpunvme_file *file;
	int watch = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

	(void)state;
	snprintf(fifo, sizeof(fifo), "%s.fifo", path);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_true(watch >= 0 && inotify_add_watch(watch, fifo, IN_OPEN) >= 0);
	says(gpunvme_file_open(dev, fifo, &mounted, &file), -EOPNOTSUPP, "it is no regular file");
	says(gpunvme_file_lease_remove(fifo), -EOPNOTSUPP, "it is no regular file");
	assert_int_equal(read(watch, &event, sizeof(event)), -1);
	assert_int_equal(errno, EAGAIN);
	close(open(fifo, O_RDONLY | O_NONBLOCK | O_CLOEXEC)); /* which would have been told */
	assert_int_equal(read(watch, &event, sizeof(event)), sizeof(event));
	close(watch);
	assert_int_equal(unlink(fifo), 0);
}

static void test_without_proc(void **state)
{
	struct gpunvme_file *file;

	(void)state;
	no_proc = true;
	says(gpunvme_file_open(dev, path, &mounted, &file), -ENOENT, "mount /proc");
	no_proc = false;
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
	says(gpunvme_file_lease_remove(path), -EBUSY, "one lease at a time");
	good(gpunvme_file_check(file, 0, 1));
	k.shared = true;
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "by reflink");
	k.shared = false;
	k.broken = true;
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "opens it for writing");
	k.broken = false;
	k.flags = 0;
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "cleared its immutable flag");
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
	good(gpunvme_file_check(file, 0, 1));
	good(gpunvme_file_lease(file)); /* and again */
	gpunvme_file_close(file);
	untouched();
}

/* What kernels have changed in a cache goes to blocks of the file for as long as nobody has broken its lease. */
static void test_caches(void **state)
{
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_cache *cache = NULL;
	struct gpunvme_file *file = live();
	struct gpunvme_queue *queue;

	(void)state;
	good(gpunvme_queue_create(dev, gpu, NULL, &queue));
	opts.flags = GPUNVME_CACHE_WRITE_BACK;
	opts.file = file;
	says(gpunvme_cache_create(queue, &opts, &cache), -EROFS, "gpunvme_file_lease() for a file of a mounted file system");
	good(gpunvme_file_lease(file));
	good(gpunvme_cache_create(queue, &opts, &cache));
	good(gpunvme_queue_destroy(queue)); /* it is not kept */
	good(gpunvme_cache_flush(cache));
	k.broken = true;
	says(gpunvme_cache_flush(cache), -ESTALE, "opens it for writing");
	k.broken = false;
	k.flags = 0;
	says(gpunvme_cache_flush(cache), -ESTALE, "cleared its immutable flag");
	k.flags = FS_IMMUTABLE_FL;
	k.second = 3 << 20;
	says(gpunvme_cache_flush(cache), -ESTALE, "its blocks lie elsewhere");
	k.second = 2 << 20;
	good(gpunvme_cache_flush(cache));
	good(gpunvme_file_unlease(file));
	says(gpunvme_cache_flush(cache), -EROFS, "not leased any more");
	good(gpunvme_cache_destroy(cache));
	gpunvme_file_close(file);
	untouched();
}

/*
 * A process that had the right to open it for writing before the flag was set, and does after that; and one that clears the flag.
 */
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
	says(gpunvme_file_check(file, 0, 1), -ESTALE, "has changed"); /* what it is now, nobody has looked at */
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
	says(gpunvme_file_lease(NULL), -EINVAL, "must be one of gpunvme_file_open() with GPUNVME_FILE_MOUNTED");
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
		assert_true(!k.touched || k.step != SETLEASE || failures[i].after); /* a writer must not fail now */
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
		good(gpunvme_file_check(file, 0, 1));
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
		says(gpunvme_file_lease_remove(path), -ENOENT, "no lease has left anything");
		file = live();
		says(gpunvme_file_lease(file), -EOPNOTSUPP, "is immutable, and no lease has made it so");
		assert_true(k.flags & FS_IMMUTABLE_FL && k.marked && !k.touched && !is_locked());
		gpunvme_file_close(file);
	}
	k.flags = 0; /* and without that flag it does not matter */
	file = live();
	good(gpunvme_file_lease(file));
	k.cached = k.stuck = true;
	says(gpunvme_file_close(file), -EBUSY, "stays in the kernel's cache"); /* left */
	k.stuck = k.leased = false;
	good(gpunvme_file_lease_remove(path));
	untouched();
}

static void test_left(void **state)
{
	struct gpunvme_file *file;

	(void)state;
	says(gpunvme_file_lease_remove(path), -ENOENT, "no lease has left anything");
	leave(0, 0);
	k.cached = k.stuck = true;
	says(gpunvme_file_lease_remove(path), -EBUSY, "stays in the kernel's cache");
	assert_true(k.marked);
	k.stuck = false;
	good(gpunvme_file_lease_remove(path));
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
	says(gpunvme_file_close(file), -EBUSY, "`gpunvme unlease "); /* left again */
	assert_true(k.flags & FS_IMMUTABLE_FL && k.marked && !is_locked());
	k.stuck = k.leased = false; /* that ended with the descriptor */
	good(gpunvme_file_lease_remove(path));
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
		status = gpunvme_file_check(file, 0, 1) == -ECHILD && gpunvme_file_unlease(file) == -ECHILD &&
			 gpunvme_file_close(file) == -ECHILD;
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
		cmocka_unit_test_setup(test_broken, begin),	cmocka_unit_test_setup(test_not_opened, begin),
		cmocka_unit_test_setup(test_without_proc, begin),
		cmocka_unit_test_setup(test_caches, begin),
		cmocka_unit_test_setup(test_changes_under_a_stream, begin), cmocka_unit_test_setup(test_lease_under_a_stream, begin),
	};

	return cmocka_run_group_tests_name("live", tests, setup, teardown);
}
