/* SPDX-License-Identifier: MIT */
/* What an image or a block device is made of: which others may write to it, and what becomes of blocks that are deallocated. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/image.h"
#include "common/loop.h"
#include "common/rawhost.h"
#include "os/linux/drive.h"
#include "os/linux/exclusive.h"

#define DLFEAT_READ 7u /* what deallocated blocks read as (NVM Command Set Specification, Identify Namespace) */

static bool lies; /* a device reports that it can zero a range, and cannot */

bool __real_gnv_drive_zeroes(const char *sys, uint64_t dev);
bool __wrap_gnv_drive_zeroes(const char *sys, uint64_t dev);

bool __wrap_gnv_drive_zeroes(const char *sys, uint64_t dev)
{
	return lies || __real_gnv_drive_zeroes(sys, dev);
}

static bool touches; /* a hole changes the time of the file, as on XFS: file_modified() in fs/inode.c */
static unsigned holes;
static bool small_files; /* of its file system, as on FAT */
static const char *appends; /* to this file another program appends just before a hole */
static const char *turns[2]; /* this link becomes one to that, after the users of its device were looked for */

int __real_gnv_users_hold_others(const char *sys, const char *proc, uint64_t dev, bool writes, char text[GNV_USERS_TEXT],
				 unsigned *unseen, struct gnv_hold **hold);
int __wrap_gnv_users_hold_others(const char *sys, const char *proc, uint64_t dev, bool writes, char text[GNV_USERS_TEXT],
				 unsigned *unseen, struct gnv_hold **hold);

int __wrap_gnv_users_hold_others(const char *sys, const char *proc, uint64_t dev, bool writes, char text[GNV_USERS_TEXT],
				 unsigned *unseen, struct gnv_hold **hold)
{
	const int ret = __real_gnv_users_hold_others(sys, proc, dev, writes, text, unseen, hold);

	if (turns[0]) {
		assert_int_equal(unlink(turns[0]), 0);
		assert_int_equal(symlink(turns[1], turns[0]), 0);
	}
	return ret;
}

int __real_fallocate(int fd, int mode, off_t at, off_t len);
int __wrap_fallocate(int fd, int mode, off_t at, off_t len);

static void append(const char *path)
{
	char text[512];
	int fd;

	memset(text, 'x', sizeof(text));
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, sizeof(text)), sizeof(text));
	close(fd);
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t len)
{
	int ret, saved;

	if (appends)
		append(appends);
	ret = small_files && at > UINT32_MAX ? -1 : __real_fallocate(fd, mode, at, len);
	saved = ret && small_files ? EFBIG : errno;
	holes++;
	if (touches)
		futimens(fd, NULL);
	errno = saved;
	return ret;
}

static int open_soft(const char *path, bool read_only, const struct gnv_log *log)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	struct gnv_soft *soft = NULL;
	struct gnv_space *space;
	int ret;

	c.path = path;
	c.read_only = read_only;
	assert_int_equal(gnv_soft_space_create(&space), 0);
	ret = gnv_soft_create(&c, space, log, &soft);
	if (!ret)
		gnv_soft_destroy(soft);
	gnv_space_put(space);
	return ret;
}

static void refused(const char *path, bool read_only, const char *lower)
{
	assert_int_equal(open_soft(path, read_only, NULL), -EBUSY);
	if (!strstr(gpunvme_errmsg(), path) || !strstr(gpunvme_errmsg(), lower))
		fail_msg("\"%s\" does not name %s and %s", gpunvme_errmsg(), path, lower);
}

static void start(const char *path, bool read_only)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;

	c.path = path;
	c.read_only = read_only;
	rawhost_start(&host, &c);
}

/* ---- Other writers ---- */

/* A loop device that is made of an image after that was opened, and locked. */
static void loop_device_of_a_locked_image_is_refused(void **state)
{
	char file[128], other[128], path[32], second[32];
	int loop, above;

	(void)state;
	snprintf(file, sizeof(file), "%s", image_path("image"));
	snprintf(other, sizeof(other), "%s", image_path("renamed"));
	image_make(file, 1 << 20);
	start(file, false);
	loop = make_loop(path, sizeof(path), file);
	if (loop < 0) {
		rawhost_close(&host);
		unlink(file);
		SKIP("no loop devices");
	}
	refused(path, false, file);
	refused(path, true, file);
	above = make_loop(second, sizeof(second), path);
	assert_true(above >= 0);
	refused(second, false, file);
	close(above);
	assert_int_equal(rename(file, other), 0);
	refused(path, false, other);
	unlink(other);
	refused(path, false, "has locked it");
	rawhost_close(&host);
	assert_int_equal(open_soft(path, false, NULL), 0);
	close(loop);
}

static void readers_share_an_image_through_a_loop_device(void **state)
{
	char file[128], path[32];
	int loop;

	(void)state;
	snprintf(file, sizeof(file), "%s", image_path("image"));
	image_make(file, 1 << 20);
	start(file, true);
	loop = make_loop(path, sizeof(path), file);
	if (loop >= 0) {
		assert_int_equal(open_soft(path, true, NULL), 0);
		refused(path, false, file);
		close(loop);
	}
	rawhost_close(&host);
	unlink(file);
	if (loop < 0)
		SKIP("no loop devices");
}

/* The kernel lets a loop device be made of a disk that somebody has exclusively, and lets the disk below one be mounted. */
static void loop_device_of_a_device(void **state)
{
	char lower[32], path[32];
	int loop, above;

	(void)state;
	loop = make_loop(lower, sizeof(lower), NULL);
	if (loop < 0)
		SKIP("no loop devices");
	start(lower, false);
	above = make_loop(path, sizeof(path), lower);
	assert_true(above >= 0);
	refused(path, false, lower);
	rawhost_close(&host);
	start(path, false);
	assert_int_equal(open(lower, O_RDONLY | O_EXCL | O_CLOEXEC), -1);
	assert_int_equal(errno, EBUSY);
	rawhost_close(&host);
	close(above);
	close(loop);
}

static void count_unheld(void *ctx, enum gpunvme_log_level level, const char *text)
{
	if (level == GPUNVME_LOG_WARN && strstr(text, "shares its data could not be held"))
		++*(unsigned *)ctx;
}

/* Return: the errno of opening it, 0, or 200 and the number of warnings. */
static int open_as_nobody(const char *path, bool read_only)
{
	unsigned n = 0;
	const struct gnv_log log = { .fn = count_unheld, .ctx = &n };
	pid_t child = fork();
	int status, ret;

	if (!child) {
		if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
			_exit(199);
		ret = open_soft(path, read_only, &log);
		_exit(ret ? -ret : n ? (int)(200 + n) : 0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A user may open the upper device only, so whether the lower one is in use is not known. */
static void loop_device_of_a_device_out_of_reach(void **state)
{
	char lower[32], path[32];
	struct stat one, two;
	int loop, above;

	(void)state;
	if (getuid())
		SKIP("not root");
	loop = make_loop(lower, sizeof(lower), NULL);
	if (loop < 0)
		SKIP("no loop devices");
	above = make_loop(path, sizeof(path), lower);
	assert_true(above >= 0);
	assert_true(!stat(lower, &one) && !stat(path, &two) && !chmod(lower, 0600) && !chmod(path, 0666));
	assert_int_equal(open_as_nobody(path, false), EACCES);
	assert_int_equal(open_as_nobody(path, true), 201);
	assert_int_equal(chmod(lower, 0604), 0);
	assert_int_equal(open_as_nobody(path, false), 201); /* a lock on its image, which has no name, would not be seen */
	assert_true(!chmod(lower, one.st_mode & 07777) && !chmod(path, two.st_mode & 07777));
	close(above);
	close(loop);
}

static void count_overlays(void *ctx, enum gpunvme_log_level level, const char *text)
{
	if (level == GPUNVME_LOG_WARN && strstr(text, "overlay file system"))
		++*(unsigned *)ctx;
}

static unsigned overlays(const char *path, bool read_only)
{
	unsigned n = 0;
	const struct gnv_log log = { .fn = count_overlays, .ctx = &n };

	assert_int_equal(open_soft(path, read_only, &log), 0);
	return n;
}

static void make_folder(const char *name)
{
	assert_int_equal(mkdir(image_path(name), 0700), 0);
}

static void lock_on_an_overlay_is_said_to_be_none(void **state)
{
	char options[512];

	(void)state;
	if (mount("tmpfs", image_dir, "tmpfs", 0, "size=8m"))
		SKIP("cannot mount a tmpfs");
	make_folder("lower");
	make_folder("upper");
	make_folder("work");
	make_folder("merged");
	snprintf(options, sizeof(options), "lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work", image_dir, image_dir, image_dir);
	if (mount("overlay", image_path("merged"), "overlay", 0, options))
		SKIP("cannot mount an overlay");
	image_make(image_path("merged/image"), 1 << 20);
	assert_int_equal(overlays(image_path("merged/image"), false), 1);
	assert_int_equal(overlays(image_path("merged/image"), true), 0);
	assert_int_equal(umount(image_path("merged")), 0);
	assert_int_equal(overlays(image_path("upper/image"), false), 0);
}

/* ---- Blocks that are deallocated ---- */

static unsigned says(void)
{
	const struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_IDENTIFY, .nsid = 1, .prp1 = rawhost_iova(&host, 0) };
	struct gpunvme_id_ns id;

	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	memcpy(&id, rawhost_data(&host, 0), sizeof(id));
	return id.dlfeat & DLFEAT_READ;
}

static uint16_t deallocate(void)
{
	const struct gpunvme_dsm_range range = { .slba = 0, .nlb = 8 };
	struct gpunvme_sqe sqe = { .opc = GPUNVME_IO_DSM, .nsid = 1, .prp1 = rawhost_iova(&host, 0), .cdw11 = GPUNVME_DSM_AD };

	memcpy(rawhost_data(&host, 0), &range, sizeof(range));
	return rawhost_io(&sqe);
}

static bool reads_zeroes(void)
{
	static const char zeroes[4096];
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 8, 8192);

	assert_int_equal(rawhost_io(&sqe), 0);
	return !memcmp(rawhost_data(&host, 8192), zeroes, 4096);
}

/* To open an image does not change it, whatever a file system counts as a change. */
static void keeps_time(const char *path)
{
	const struct timespec times[2] = { { .tv_sec = 1000, .tv_nsec = 5 }, { .tv_sec = 2000, .tv_nsec = 7 } };
	struct stat before, after;

	assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	assert_int_equal(stat(path, &before), 0);
	for (unsigned i = 0; i < 2; i++) {
		holes = 0;
		touches = i;
		assert_int_equal(open_soft(path, false, NULL), 0);
		touches = false;
		assert_int_equal(holes, 1);
		assert_int_equal(stat(path, &after), 0);
		assert_int_equal(before.st_size, after.st_size);
		assert_int_equal(before.st_blocks, after.st_blocks);
		assert_memory_equal(&before.st_mtim, &after.st_mtim, sizeof(after.st_mtim));
	}
}

/* No lock keeps another program from appending to an image while it is opened. Its bytes and the time of its change stay. */
static void keeps_appended(const char *path)
{
	struct stat before, after;
	char last = 0;
	int fd;

	assert_int_equal(stat(path, &before), 0);
	appends = path;
	assert_int_equal(open_soft(path, false, NULL), 0);
	appends = NULL;
	assert_int_equal(stat(path, &after), 0);
	assert_int_equal(after.st_size, before.st_size + 512);
	assert_memory_not_equal(&before.st_mtim, &after.st_mtim, sizeof(after.st_mtim));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(fd, &last, 1, before.st_size), 1);
	assert_int_equal(last, 'x');
	close(fd);
}

static void opening_keeps_what_others_append(void **state)
{
	char other[128];

	(void)state;
	snprintf(other, sizeof(other), "%s", image_path("folder/image"));
	make_folder("folder");
	image_make(image_path("image"), 1 << 20);
	keeps_appended(image_path("image"));
	if (!mount("tmpfs", image_path("folder"), "tmpfs", 0, NULL)) { /* no file without a name lies in its file system */
		image_make(other, 0);
		assert_int_equal(mount(image_path("image"), other, NULL, MS_BIND, NULL), 0);
		keeps_appended(other);
		assert_int_equal(umount(other), 0);
		assert_int_equal(umount(image_path("folder")), 0);
	}
	rmdir(image_path("folder"));
	unlink(image_path("image"));
}

/* Users of one device were looked for, and a link then leads to another. */
static void a_path_that_turns_to_another_device_is_refused(void **state)
{
	char link[128], path[2][32];
	int loop[2];

	(void)state;
	snprintf(link, sizeof(link), "%s", image_path("link"));
	loop[0] = make_loop(path[0], sizeof(path[0]), NULL);
	loop[1] = loop[0] < 0 ? -1 : make_loop(path[1], sizeof(path[1]), NULL);
	if (loop[1] < 0)
		SKIP("no loop devices");
	assert_int_equal(symlink(path[0], link), 0);
	turns[0] = link;
	turns[1] = path[1];
	refused(link, false, "was replaced while it was being opened");
	turns[0] = NULL;
	unlink(link);
	close(loop[0]);
	close(loop[1]);
}

static void opening_keeps_the_time_of_an_image(void **state)
{
	(void)state;
	image_make(image_path("image"), 1 << 20);
	keeps_time(image_path("image"));
	unlink(image_path("image"));
}

/* Block 0 to 7 are written and deallocated. What Identify says of them must be so. */
static void try_guarantee(const char *path, bool zeroes, uint16_t status)
{
	struct gpunvme_sqe sqe;

	start(path, false);
	rawhost_fill(&host, 0, 4096, 3);
	sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 8, 0);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_int_equal(says(), zeroes);
	assert_int_equal(deallocate(), status);
	assert_true(!zeroes || status || reads_zeroes());
	rawhost_close(&host);
}

static void try_folder(const char *type, bool zeroes)
{
	char path[32];
	struct stat before, after;
	int loop;

	if (mount(type, image_dir, type, 0, NULL))
		SKIP("cannot mount it");
	image_make(image_path("image"), 1 << 20);
	keeps_time(image_path("image"));
	assert_int_equal(stat(image_path("image"), &before), 0);
	try_guarantee(image_path("image"), zeroes, 0);
	assert_int_equal(stat(image_path("image"), &after), 0);
	assert_int_equal(before.st_size, after.st_size);
	loop = make_loop(path, sizeof(path), image_path("image"));
	if (loop < 0)
		return;
	try_guarantee(path, zeroes, 0);
	lies = true;
	try_guarantee(path, true, zeroes ? 0 : GPUNVME_SC_INTERNAL);
	lies = false;
	close(loop);
}

static void blocks_of_a_file_system_with_holes_read_as_zeroes(void **state)
{
	(void)state;
	try_folder("tmpfs", true);
}

/* It has no files without a name, and its limit of a file is below the place where a hole would be tried. */
static void blocks_of_a_file_system_of_small_files_keep_their_data(void **state)
{
	char other[128];

	(void)state;
	snprintf(other, sizeof(other), "%s", image_path("folder/image"));
	make_folder("folder");
	image_make(image_path("image"), 1 << 20);
	if (mount("tmpfs", image_path("folder"), "tmpfs", 0, NULL)) {
		rmdir(image_path("folder"));
		unlink(image_path("image"));
		SKIP("cannot mount a tmpfs");
	}
	image_make(other, 0);
	assert_int_equal(mount(image_path("image"), other, NULL, MS_BIND, NULL), 0);
	small_files = true;
	try_guarantee(other, false, 0);
	small_files = false;
	assert_int_equal(umount(other), 0);
	assert_int_equal(umount(image_path("folder")), 0);
	rmdir(image_path("folder"));
	unlink(image_path("image"));
}

/* ramfs has no fallocate() (fs/ramfs/file-mmu.c), and a loop device on it no limit for Write Zeroes. */
static void blocks_of_a_file_system_without_holes_keep_their_data(void **state)
{
	(void)state;
	try_folder("ramfs", false);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, image_make_dir, image_remove_dir)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(loop_device_of_a_locked_image_is_refused),
		TEST(readers_share_an_image_through_a_loop_device),
		TEST(loop_device_of_a_device),
		TEST(loop_device_of_a_device_out_of_reach),
		TEST(lock_on_an_overlay_is_said_to_be_none),
		TEST(opening_keeps_the_time_of_an_image),
		TEST(opening_keeps_what_others_append),
		TEST(a_path_that_turns_to_another_device_is_refused),
		TEST(blocks_of_a_file_system_with_holes_read_as_zeroes),
		TEST(blocks_of_a_file_system_without_holes_keep_their_data),
		TEST(blocks_of_a_file_system_of_small_files_keep_their_data),
	};

	return cmocka_run_group_tests_name("controller_lower", tests, NULL, NULL);
}
