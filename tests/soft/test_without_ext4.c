/* SPDX-License-Identifier: MIT */
/*
 * A library that was built without libext2fs (GPUNVME_EXT4 off): lib/file/ext4.c is compiled here as it is then, and takes the place
 * of the library's own. Files are found by their maps, and what cannot be says why.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "file/ext2fs.h"
#include "file/file_map.h"

#define IMAGE (1 << 20)
#define DATA 65536 /* where the file lies */
#define BYTES 8000

#pragma weak gnv_ext2fs_gather /* nothing may have brought it along */

static const struct gpunvme_file_opts of_map = { .size = sizeof(of_map), .how = GPUNVME_FILE_MAP };

static void put(uint64_t at, const void *bytes, size_t len)
{
	int fd = open(image_path("fs.img"), O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, (off_t)at), (ssize_t)len);
	close(fd);
}

/* As much of ext4 as a map asks for: a superblock, cleanly unmounted. */
static struct gpunvme_dev *open_image(uint8_t data[8192])
{
	struct gpunvme_dev *dev;
	char uri[128];

	image_make(image_path("fs.img"), IMAGE);
	put(1024 + 0x38, (uint8_t[4]){ 0x53, 0xef, 1 }, 4);
	for (int i = 0; i < 8192; i++)
		data[i] = (uint8_t)(i * 31 >> 3);
	put(DATA, data, 8192);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("fs.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	return dev;
}

static char *make_map(void)
{
	struct gnv_map map = { .serial = "TEST", .bytes = IMAGE };
	uint8_t head[GNV_FS_HEAD] = { 0 };
	char *text;

	memcpy(head + 1024 + 0x38, (uint8_t[3]){ 0x53, 0xef, 1 }, 3);
	assert_int_equal(gnv_super_of(head, &map.super), 0);
	map.file = gnv_extents_new();
	assert_non_null(map.file);
	map.file->info.bytes = BYTES;
	map.file->info.block = 4096;
	assert_int_equal(gnv_extents_add(map.file, 0, DATA, 8192), 0);
	assert_int_equal(gnv_map_write(&map, &text), 0);
	gnv_extents_free(map.file);
	return text;
}

static void names_are_refused(void **state)
{
	struct gpunvme_file *file = NULL;
	uint8_t data[8192];
	uint32_t count = 0;
	struct gpunvme_dev *dev = open_image(data);

	(void)state;
	assert_true(gnv_ext2fs_gather == NULL);
	assert_int_equal(gpunvme_file_open(dev, "/plain", NULL, &file), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "no libext2fs: install it"));
	assert_null(file);
	assert_int_equal(gpunvme_file_list(dev, "/", NULL, NULL, &count), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "no libext2fs: install it"));
	assert_int_equal(gpunvme_dev_close(dev), 0);
}

struct job {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfile file;
	struct gpunvme_cursor cur;
	int status;
};

static GPUNVME_DEVICE void read_all(void *arg)
{
	struct job *j = (struct job *)arg;

	j->status = gpunvme_read(&j->cur, &j->dbuf, 0, 0, 8192);
}

static void maps_are_read(void **state)
{
	struct job j = { .cur = { .dq = &j.dq, .file = &j.file, .bounce = 8192 } };
	uint8_t data[8192];
	struct gpunvme_dev *dev = open_image(data);
	struct gpunvme_file *file;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	char *text = make_map();

	(void)state;
	assert_int_equal(gpunvme_file_open(dev, text, &of_map, &file), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &j.dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 16384, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &j.dbuf), 0);
	assert_int_equal(gpunvme_file_view(file, gpu, &j.file), 0);
	assert_int_equal(gpunvme_cpu_launch(1, 1, read_all, &j), 0);
	assert_int_equal(j.status, 0);
	assert_int_equal(j.cur.done, BYTES);
	assert_memory_equal(gpunvme_mem_ptr(mem), data, BYTES);
	gpunvme_file_close(file);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	gpunvme_gpu_close(gpu);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	free(text);
}

static int remove_image(void **state)
{
	unlink(image_path("fs.img"));
	return image_remove_dir(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_are_refused),
		cmocka_unit_test(maps_are_read),
	};

	return cmocka_run_group_tests(tests, image_make_dir, remove_image);
}
