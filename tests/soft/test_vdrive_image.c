/* SPDX-License-Identifier: MIT */
/* image=FILE: what a drive has when it is opened, and files that are no images for it. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/pair.h"

#define FILE_NAME "vdrive.image"

static char lines[4096]; /* of the log */

static void listen(void *ctx, enum gpunvme_log_level level, const char *line)
{
	const size_t used = strlen(lines);

	(void)ctx;
	if (level == GPUNVME_LOG_INFO)
		snprintf(lines + used, sizeof(lines) - used, "%s\n", line);
}

static int open_drive(const char *uri, struct gpunvme_dev **dev)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;

	opts.log = listen;
	lines[0] = '\0';
	return gpunvme_dev_open(uri, &opts, dev);
}

static void write_at(off_t at, const void *bytes, size_t len)
{
	const int fd = open(FILE_NAME, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, at), (ssize_t)len);
	assert_int_equal(close(fd), 0);
}

/* ---- A nasty file system ---- */

static off_t cut_to = -1;
static size_t reads_most = SIZE_MAX;
static bool holes_at_any_byte, data_goes, grows;

ssize_t __real_pread(int fd, void *to, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t len, off_t at)
{
	const ssize_t n = __real_pread(fd, to, len < reads_most ? len : reads_most, at);

	if (cut_to >= 0)
		assert_int_equal(truncate(FILE_NAME, cut_to), 0);
	cut_to = -1;
	if (grows)
		write_at(17 << 20, "more", 4);
	return n;
}

off_t __real_lseek(int fd, off_t at, int whence);
off_t __wrap_lseek(int fd, off_t at, int whence);

/* Bytes that are not zero are data. */
off_t __wrap_lseek(int fd, off_t at, int whence)
{
	char byte = 0;

	if (data_goes && whence == SEEK_HOLE)
		return at;
	if (!holes_at_any_byte || (whence != SEEK_DATA && whence != SEEK_HOLE))
		return __real_lseek(fd, at, whence);
	for (;; at++) {
		if (whence == SEEK_DATA)
			at = __real_lseek(fd, at, SEEK_DATA);
		if (at < 0 || __real_pread(fd, &byte, 1, at) != 1 || !byte == (whence == SEEK_HOLE))
			return at;
	}
}

/* One block of the drive, by a command list. */
static void read_block(struct pair *p, uint64_t lba, unsigned char *block)
{
	struct gpunvme_command cmd = { .lba = lba, .nblocks = 1, .op = GPUNVME_IO_READ };
	struct gpunvme_commands list = { sizeof(list), 1, 1, &cmd };

	good(gpunvme_run_commands(p->gpu, &p->dq, 1, &p->dbuf, &list));
	assert_int_equal(cmd.status, 0);
	memcpy(block, gpunvme_mem_ptr(p->mem), 512);
}

static void check_block(struct pair *p, uint64_t lba, const char *begins)
{
	unsigned char block[512], want[512] = { 0 };

	memcpy(want, begins, strlen(begins));
	read_block(p, lba, block);
	assert_memory_equal(block, want, 512);
}

static void open_pair(struct pair *p, const char *uri)
{
	memset(p, 0, sizeof(*p));
	good(open_drive(uri, &p->dev));
	good(gpunvme_gpu_open("cpu", NULL, &p->gpu));
	pair_make_queue(p, 65536);
}

/* A file of nearly 3 GiB that is holes but for three places: its beginning, the end of a piece, and its odd end. */
static void load_and_check(void)
{
	struct pair p;

	write_at(0, "first", 5);
	write_at((8 << 20) - 2, "across", 6);
	write_at((3ll << 30) - 513, "odd", 3);
	open_pair(&p, "soft:vram:3G?on=cpu&image=" FILE_NAME);
	if (!strstr(lines, ": 3071 of 3071 MiB\n") || !strstr(lines, "is loaded: 3071 MiB, 0 of them not in holes\n"))
		fail_msg("%s", lines);
	check_block(&p, 0, "first");
	check_block(&p, 1, "");
	check_block(&p, (8 << 20) / 512, "ross");
	check_block(&p, (8 << 20) / 512 + 1, "");
	check_block(&p, (3ull << 30) / 512 - 1, "dd");
	pair_close(&p);
}

static void an_image_is_loaded(void **state)
{
	(void)state;
	load_and_check();
}

/* POSIX lets a file system read less than was asked for, and begin and end holes at any byte. */
static void any_file_system_will_do(void **state)
{
	(void)state;
	reads_most = 3;
	holes_at_any_byte = true;
	load_and_check();
}

/* Of all namespaces the first has it, and may be read-only then. */
static void an_image_is_of_the_first_namespace(void **state)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct pair p;

	(void)state;
	write_at(0, "first", 5);
	open_pair(&p, "soft:vram:1M?ns2=vram:1M&image=" FILE_NAME);
	check_block(&p, 0, "first");
	view.nsid = 2;
	good(gpunvme_queue_view(p.qp, &view, &p.dq));
	check_block(&p, 0, "");
	pair_close(&p);
	memset(&p, 0, sizeof(p));
	good(open_drive("soft:vram:1M?ro=1&image=" FILE_NAME, &p.dev));
	good(gpunvme_gpu_open("cpu", NULL, &p.gpu));
	good(gpunvme_queue_create(p.dev, p.gpu, NULL, &p.qp));
	view.nsid = 1;
	good(gpunvme_queue_view(p.qp, &view, &p.dq));
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_not_equal(gpunvme_queue_view(p.qp, &view, &p.dq), 0);
	gpunvme_queue_destroy(p.qp);
	good(gpunvme_dev_close(p.dev));
	gpunvme_gpu_close(p.gpu);
}

static void files_that_are_no_images_are_refused(void **state)
{
	static const struct {
		const char *uri, *says;
		int ret;
	} cases[] = {
		{ "soft:vram:1M?image=none.image", "none.image: cannot open it", -ENOENT },
		{ "soft:vram:1M?image=.", ". is a directory", -EISDIR },
		{ "soft:vram:1M?image=/dev/zero", "neither a regular file", -EINVAL },
		{ "soft:vram:1M?image=fifo.image", "neither a regular file", -EINVAL },
		{ "soft:vram:1M?image=" FILE_NAME, "and the drive 1048576. Use soft:vram:2M or more", -EFBIG },
		{ "soft:ram:1M?image=" FILE_NAME, "image", -EINVAL },
	};
	struct gpunvme_dev *dev;
	size_t i;

	(void)state;
	write_at(1 << 20, "x", 1);
	assert_int_equal(mkfifo("fifo.image", 0600), 0);
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const int ret = open_drive(cases[i].uri, &dev);

		if (ret != cases[i].ret || !strstr(gpunvme_errmsg(), cases[i].says))
			fail_msg("%s: %d, %s", cases[i].uri, ret, gpunvme_errmsg());
	}
	assert_int_equal(unlink("fifo.image"), 0);
}

/* ---- A file that changes when the drive has begun to read it ---- */

/* fstrim in a virtual machine makes a hole of what was data a moment ago. */
static void a_hole_that_comes_is_refused(void **state)
{
	struct gpunvme_dev *dev;

	(void)state;
	write_at(4096, "data", 4);
	data_goes = true;
	assert_int_equal(open_drive("soft:vram:16M?image=" FILE_NAME, &dev), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "got a hole where it had data"));
}

/* What is appended is not of the drive. */
static void a_file_may_grow(void **state)
{
	struct pair p;

	(void)state;
	write_at(0, "data", 4);
	assert_int_equal(truncate(FILE_NAME, 16 << 20), 0);
	grows = true;
	open_pair(&p, "soft:vram:16M?on=cpu&image=" FILE_NAME);
	check_block(&p, 0, "data");
	pair_close(&p);
}

/* Into data, into a hole, and to where the next data is. */
static void a_file_that_becomes_shorter_is_refused(void **state)
{
	static const off_t cuts[] = { 9 << 20, 4 << 20, 1 << 20 };
	struct gpunvme_dev *dev;
	char *bytes = calloc(1, 16 << 20);
	unsigned i;

	(void)state;
	assert_non_null(bytes);
	for (i = 0; i < 3; i++) {
		unlink(FILE_NAME);
		write_at(0, bytes, i ? 4096 : 16 << 20);
		write_at((16 << 20) - 4096, bytes, 4096);
		cut_to = cuts[i];
		assert_int_equal(open_drive("soft:vram:16M?image=" FILE_NAME, &dev), -EIO);
		if (!strstr(gpunvme_errmsg(), "had 16777216 bytes, and has"))
			fail_msg("%s", gpunvme_errmsg());
	}
	free(bytes);
}

static int remove_file(void **state)
{
	(void)state;
	unlink(FILE_NAME);
	cut_to = -1;
	reads_most = SIZE_MAX;
	holes_at_any_byte = data_goes = grows = false;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(an_image_is_loaded, remove_file),
		cmocka_unit_test_teardown(any_file_system_will_do, remove_file),
		cmocka_unit_test_teardown(an_image_is_of_the_first_namespace, remove_file),
		cmocka_unit_test_teardown(files_that_are_no_images_are_refused, remove_file),
		cmocka_unit_test_teardown(a_hole_that_comes_is_refused, remove_file),
		cmocka_unit_test_teardown(a_file_may_grow, remove_file),
		cmocka_unit_test_teardown(a_file_that_becomes_shorter_is_refused, remove_file),
	};

	unlink("fifo.image"); /* what a run that was killed has left */
	unlink(FILE_NAME);
	return cmocka_run_group_tests_name("vdrive image", tests, NULL, NULL);
}
