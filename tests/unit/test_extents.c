/* SPDX-License-Identifier: MIT */
/*
 * What the kernel says of a file of a mounted file system, and what is made of it. Its replies are emulated, flag by flag as
 * Documentation/filesystems/fiemap.rst and include/uapi/linux/fs.h of Linux have them: what could not be read or written in place is
 * refused with its reason, or noted.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "os/linux/extents.h"

#define MOST 600u

static struct {
	struct fiemap_extent extent[MOST];
	uint32_t extents, at_once; /* it gives so many, however many are asked for */
	uint32_t questions, synced;
	int flags, no_flags; /* of FS_IOC_GETFLAGS; some file systems have none */
	uint32_t xflags;
	int error; /* of FIEMAP */
} fs;

static char path[] = "/tmp/gpunvme-extents-XXXXXX";

static int answer_extents(struct fiemap *map)
{
	uint32_t n = 0;

	fs.questions++;
	fs.synced += (map->fm_flags & FIEMAP_FLAG_SYNC) != 0;
	if (fs.error) {
		errno = fs.error;
		return -1;
	}
	for (uint32_t i = 0; i < fs.extents && n < map->fm_extent_count && n < fs.at_once; i++)
		if (fs.extent[i].fe_logical + fs.extent[i].fe_length > map->fm_start)
			map->fm_extents[n++] = fs.extent[i];
	map->fm_mapped_extents = n;
	return 0;
}

int __wrap_ioctl(int fd, unsigned long request, ...);

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	(void)fd;
	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (request == FS_IOC_FIEMAP)
		return answer_extents(arg);
	if (request == FS_IOC_FSGETXATTR) {
		((struct fsxattr *)arg)->fsx_xflags = fs.xflags;
		return 0;
	}
	if (request == FS_IOC_GETFLAGS && !fs.no_flags) {
		*(int *)arg = fs.flags;
		return 0;
	}
	if (request == FS_IOC_GETVERSION) {
		*(int *)arg = 4711;
		return 0;
	}
	errno = ENOTTY;
	return -1;
}

static unsigned long magic; /* of statfs(); 0: what the file lies on has its own */

int __real_fstatfs(int fd, struct statfs *buf);
int __wrap_fstatfs(int fd, struct statfs *buf);

int __wrap_fstatfs(int fd, struct statfs *buf)
{
	int ret = __real_fstatfs(fd, buf);

	if (!ret && magic)
		buf->f_type = (__typeof__(buf->f_type))magic;
	return ret;
}

static unsigned looks; /* at the clock of files, ... */
static bool set_back;  /* ... which was set back after the file had been made */

int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
	int ret = __real_clock_gettime(clock, now);

	if (clock == CLOCK_REALTIME_COARSE) {
		looks++;
		now->tv_sec -= set_back ? 3600 : 0;
	}
	return ret;
}

static void add(uint64_t pos, uint64_t at, uint64_t len, uint32_t flags)
{
	fs.extent[fs.extents++] =
		(struct fiemap_extent){ .fe_logical = pos, .fe_physical = at, .fe_length = len, .fe_flags = flags };
}

/* A file as most are: two extents. */
static void plain(uint32_t flags)
{
	memset(&fs, 0, sizeof(fs));
	fs.at_once = MOST;
	add(0, 1 << 20, 8192, 0);
	add(8192, 9 << 20, 4096, flags | FIEMAP_EXTENT_LAST);
}

struct seen {
	uint64_t pos, at, len;
};

static struct seen seen[MOST];
static uint32_t count;

static int see(void *ctx, uint64_t pos, uint64_t at, uint64_t len)
{
	(void)ctx;
	seen[count++] = (struct seen){ pos, at, len };
	return 0;
}

static int ask(struct gnv_os_mapped *m)
{
	count = 0;
	return gnv_os_map(path, m, see, NULL);
}

static void refused(int error, const char *words)
{
	struct gnv_os_mapped m;
	int ret = ask(&m);

	if (ret != error || !strstr(gpunvme_errmsg(), words) || !strstr(gpunvme_errmsg(), path))
		fail_msg("%d instead of %d: %s", ret, error, gpunvme_errmsg());
}

static void extents_are_told(void **state)
{
	struct gnv_os_mapped m;

	(void)state;
	plain(0);
	assert_int_equal(ask(&m), 0);
	assert_int_equal(count, 2);
	assert_true(seen[1].pos == 8192 && seen[1].at == 9 << 20 && seen[1].len == 4096);
	assert_true(fs.synced == fs.questions && fs.questions);
	assert_true(!m.shared && !m.verity && !m.immutable && m.generation == 4711);
	fs.no_flags = 1;
	assert_int_equal(ask(&m), 0);
	assert_int_equal(count, 2);
}

/* More than one reply holds, and each has some. */
static void many_answers(void **state)
{
	struct gnv_os_mapped m;

	(void)state;
	for (uint32_t at_once = 1; at_once < MOST; at_once = 16 * at_once + 3) {
		memset(&fs, 0, sizeof(fs));
		fs.at_once = at_once;
		for (uint32_t i = 0; i < MOST; i++)
			add(8192ull * i, 1 << 20 | 4096ull * i, 4096, i == MOST - 1 ? FIEMAP_EXTENT_LAST : 0);
		assert_int_equal(ask(&m), 0);
		assert_int_equal(count, MOST);
		assert_true(fs.questions >= 3 && seen[MOST - 1].pos == 8192ull * (MOST - 1));
	}
}

/* Allocated and never written: as a hole. After it the file goes on. */
static void unwritten_extents(void **state)
{
	struct gnv_os_mapped m;

	(void)state;
	plain(0);
	fs.extent[0].fe_flags = FIEMAP_EXTENT_UNWRITTEN;
	assert_int_equal(ask(&m), 0);
	assert_int_equal(count, 1);
	assert_int_equal(seen[0].pos, 8192);
	plain(FIEMAP_EXTENT_UNWRITTEN);
	assert_int_equal(ask(&m), 0);
	assert_int_equal(count, 1);
	assert_int_equal(seen[0].pos, 0);
}

static void data_that_lies_nowhere(void **state)
{
	(void)state;
	plain(FIEMAP_EXTENT_UNKNOWN | FIEMAP_EXTENT_DELALLOC);
	refused(-EBUSY, "not allocated yet");
	plain(FIEMAP_EXTENT_UNKNOWN);
	refused(-EBUSY, "not allocated yet");
	plain(FIEMAP_EXTENT_ENCODED); /* btrfs, compressed: fs/btrfs/extent_io.c, extent_fiemap() */
	refused(-EOPNOTSUPP, "encrypted or compressed");
	plain(FIEMAP_EXTENT_DATA_ENCRYPTED | FIEMAP_EXTENT_ENCODED);
	refused(-EOPNOTSUPP, "encrypted or compressed");
	plain(FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_NOT_ALIGNED); /* ext4, in the inode */
	refused(-EOPNOTSUPP, "among the file system's own");
	plain(FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_NOT_ALIGNED);
	refused(-EOPNOTSUPP, "among the file system's own");
	plain(FIEMAP_EXTENT_NOT_ALIGNED);
	refused(-EOPNOTSUPP, "among the file system's own");
	plain(1u << 14); /* what later kernels may tell */
	refused(-EOPNOTSUPP, "unknown flags");
	plain(FIEMAP_EXTENT_MERGED);
	assert_int_equal(ask(&(struct gnv_os_mapped){ 0 }), 0);
	plain(0);
	fs.error = EOPNOTSUPP;
	refused(-EOPNOTSUPP, "does not report its extents");
	fs.error = EIO;
	refused(-EIO, "does not report its extents");
}

static void inodes_that_are_refused(void **state)
{
	(void)state;
	plain(0);
	fs.flags = FS_ENCRYPT_FL;
	refused(-EOPNOTSUPP, "it is encrypted");
	fs.flags = FS_COMPR_FL;
	refused(-EOPNOTSUPP, "it is compressed");
	fs.flags = 0;
	fs.xflags = FS_XFLAG_REALTIME;
	refused(-EOPNOTSUPP, "real-time device");
}

/* Read, but not written in place; a map has the reason. */
static void what_forbids_writing(void **state)
{
	struct gnv_os_mapped m;

	(void)state;
	plain(FIEMAP_EXTENT_SHARED);
	assert_int_equal(ask(&m), 0);
	assert_true(m.shared && !m.verity && !m.immutable);
	plain(0);
	fs.extent[0].fe_flags = FIEMAP_EXTENT_SHARED; /* one of several */
	assert_int_equal(ask(&m), 0);
	assert_true(m.shared);
	plain(0);
	fs.flags = FS_VERITY_FL;
	assert_int_equal(ask(&m), 0);
	assert_true(m.verity && !m.shared);
	fs.flags = FS_IMMUTABLE_FL;
	assert_int_equal(ask(&m), 0);
	assert_true(m.immutable && !m.verity);
	fs.flags = FS_APPEND_FL;
	assert_int_equal(ask(&m), 0);
	assert_true(m.append && !m.immutable && !m.journaled);
	fs.flags = FS_JOURNAL_DATA_FL;
	assert_int_equal(ask(&m), 0);
	assert_true(m.journaled && !m.append);
}

/* XFS reserves after the end of a file that grows (xfs_iomap_prealloc_size()): that is no data. */
static void behind_the_end(void **state)
{
	struct gnv_os_mapped m;

	(void)state;
	plain(0);
	count = 0;
	add(1ull << 40, 0, 65536, FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN);
	assert_int_equal(ask(&m), 0);
	fs.extent[fs.extents - 1].fe_logical -= 65536;
	refused(-EBUSY, "not allocated yet");
}

/*
 * f2fs and overlayfs have FIEMAP as ext4 does (f2fs_fiemap(); ovl_fiemap(), which asks the layer below), and tmpfs has none: maps
 * of them would say what does not stay so. btrfs is asked for its chunks first (test_btrfs), and here has none.
 */
static void other_file_systems(void **state)
{
	static const struct {
		unsigned long magic; /* linux/magic.h */
		const char *words;
	} others[] = { { 0xf2f52010, "XFS and btrfs only: f2fs moves blocks" }, { 0x794c7630, "XFS and btrfs only: overlayfs has no" },
		       { 0x6969, "XFS and btrfs only, and this is another file system (0x6969)" },
		       { 0x9123683e, "btrfs does not report its place on the devices" } };
	char *text = NULL;

	(void)state;
	plain(0);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		magic = others[i].magic;
		assert_int_equal(gpunvme_file_map_make(path, &text), others[i].magic == 0x9123683e ? -ENOTTY : -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), others[i].words));
		assert_null(text);
	}
	magic = 0;
}

/* No tick is awaited that brings no other time. */
static void clock_set_back(void **state)
{
	struct gnv_os_mapped m;

	(void)state;
	plain(0);
	set_back = true;
	looks = 0;
	assert_int_equal(ask(&m), 0);
	assert_int_equal(looks, 2); /* before it is asked what it is on, and again before its extents */
	set_back = false;
}

/* A reply that leads nowhere ends the questions. */
static void answers_without_end(void **state)
{
	struct gnv_os_mapped m;

	(void)state;
	plain(0);
	fs.extents = 0;
	assert_int_equal(ask(&m), 0);
	assert_int_equal(count, 0);
	plain(0);
	fs.extent[1].fe_flags = 0; /* no last one */
	assert_int_equal(ask(&m), 0);
	assert_int_equal(count, 2);
	memset(&fs, 0, sizeof(fs));
	fs.at_once = 1;
	add(UINT64_MAX - 4096, 1 << 20, 8192, 0); /* ends before it begins */
	assert_int_equal(ask(&m), 0);
	assert_true(fs.questions < 4);
}

static int make_file(void **state)
{
	int fd = mkstemp(path);

	(void)state;
	return fd < 0 || ftruncate(fd, 1ll << 40) || close(fd) ? -1 : 0;
}

static int remove_file(void **state)
{
	(void)state;
	return unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(extents_are_told),
		cmocka_unit_test(many_answers),
		cmocka_unit_test(unwritten_extents),
		cmocka_unit_test(data_that_lies_nowhere),
		cmocka_unit_test(inodes_that_are_refused),
		cmocka_unit_test(what_forbids_writing),
		cmocka_unit_test(behind_the_end),
		cmocka_unit_test(other_file_systems),
		cmocka_unit_test(clock_set_back),
		cmocka_unit_test(answers_without_end),
	};

	return cmocka_run_group_tests(tests, make_file, remove_file);
}
