/* SPDX-License-Identifier: MIT */
/*
 * What a directory has, from an image that the file system's own tools have made; names that are none; and that a call ends, however
 * often an image makes it read.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "common/shell.h"
#include "file/reader.h"

#define FILES 40
#define IMAGE (4u << 20)

static int make_tree(void **state)
{
	if (image_make_dir(state))
		return -1;
	run("mkdir -p %s/tree/many %s/tree/inner && cd %s/tree && printf 12345 >five && ln -s inner way && mkfifo pipe", image_dir,
	    image_dir, image_dir);
	run("cd %s/tree && touch inner/unmistakable inner/other && TZ=UTC touch -t 200102030405.06 five", image_dir);
	for (int i = 0; i < FILES; i++)
		run("printf %0*d >%s/tree/many/%d", i + 1, 0, image_dir, i);
	return 0;
}

static int remove_tree(void **state)
{
	run("rm -rf %s/tree %s/*.img", image_dir, image_dir);
	return image_remove_dir(state);
}

static void make_image(void)
{
	run("cd %s && rm -f fs.img && PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -t ext4 -b 1024 -O ^metadata_csum,^dir_index -d tree fs.img 4M",
	    image_dir);
}

static struct gpunvme_dev *open_image(void)
{
	struct gpunvme_dev *dev;
	char uri[128];

	snprintf(uri, sizeof(uri), "soft:%s", image_path("fs.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	return dev;
}

/* ---- Names ---- */

#define ROOM 512u

struct seen {
	char names[4096];
	uint64_t bytes;
	uint32_t count;
	int types[4];
	int64_t five;
};

static void see(struct seen *s, const struct gpunvme_dirent *e)
{
	assert_true(e->type <= GPUNVME_DIRENT_LINK && e->inode);
	strcat(strcat(s->names, e->name), "|");
	s->types[e->type]++;
	s->bytes += e->type == GPUNVME_DIRENT_FILE ? e->bytes : 0;
	if (strcmp(e->name, "five") == 0)
		s->five = e->mtime;
}

/* With room for so many. */
static int list(const char *path, uint32_t room, struct seen *s)
{
	struct gpunvme_dirent *entries = calloc(room + 1, sizeof(*entries));
	struct gpunvme_dev *dev = open_image();
	int ret;

	assert_non_null(entries);
	*s = (struct seen){ .count = room };
	ret = gpunvme_file_list(dev, path, NULL, entries, &s->count);
	for (uint32_t i = 0; i < s->count && i < room && !ret; i++)
		see(s, &entries[i]);
	assert_int_equal(entries[room].inode, 0); /* and not one more */
	assert_int_equal(gpunvme_dev_close(dev), 0);
	free(entries);
	return ret;
}

static void directories(void **state)
{
	struct seen s;

	(void)state;
	make_image();
	assert_int_equal(list("/", ROOM, &s), 0);
	assert_int_equal(s.count, 6); /* and lost+found */
	assert_int_equal(s.types[GPUNVME_DIRENT_DIR], 3);
	assert_int_equal(s.types[GPUNVME_DIRENT_FILE], 1);
	assert_int_equal(s.types[GPUNVME_DIRENT_LINK], 1);
	assert_int_equal(s.types[GPUNVME_DIRENT_OTHER], 1);
	assert_int_equal(s.bytes, 5);
	assert_int_equal(s.five, 981173106); /* date -u -d "2001-02-03 04:05:06" +%s */
	assert_int_equal(list("/many", ROOM, &s), 0);
	assert_int_equal(s.count, FILES);
	assert_int_equal(s.bytes, FILES * (FILES + 1) / 2);
	assert_int_equal(list("way", ROOM, &s), 0);
	assert_int_equal(s.count, 2);
	assert_non_null(strstr(s.names, "unmistakable|"));
	assert_int_equal(list("/inner/../five", ROOM, &s), 0);
	assert_string_equal(s.names, "five|");
	assert_int_equal(list("five", ROOM, &s), 0);
	assert_string_equal(s.names, "five|");
}

static void room_for_some(void **state)
{
	struct seen s;

	(void)state;
	make_image();
	assert_int_equal(list("/many", 3, &s), 0);
	assert_int_equal(s.count, FILES);
	assert_int_equal(s.types[GPUNVME_DIRENT_FILE], 3);
	assert_int_equal(list("/many", 0, &s), 0);
	assert_int_equal(s.count, FILES);
	assert_string_equal(s.names, "");
}

/* ---- Damage ---- */

/* Where it is in the image, which has it once. */
static off_t place_of(const char *bytes, size_t len)
{
	char *all = malloc(IMAGE), *at;
	FILE *f = fopen(image_path("fs.img"), "r");
	off_t place;

	assert_true(all && f);
	assert_int_equal(fread(all, 1, IMAGE, f), IMAGE);
	fclose(f);
	at = memmem(all, IMAGE, bytes, len);
	assert_non_null(at);
	place = at - all;
	assert_null(memmem(at + 1, IMAGE - (size_t)place - 1, bytes, len));
	free(all);
	return place;
}

static void put(off_t at, const void *bytes, size_t len)
{
	int fd = open(image_path("fs.img"), O_WRONLY);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, len, at), (ssize_t)len);
	close(fd);
}

static void refused(const char *path, const char *words)
{
	struct seen s;
	int ret = list(path, 0, &s);

	if (ret != -EUCLEAN || !strstr(gpunvme_errmsg(), words) || strchr(s.names, '/') || strstr(s.names, "unmis"))
		fail_msg("%s: %d, %s: %s", path, ret, s.names, gpunvme_errmsg());
}

/* An entry of a directory: inode, 4 bytes; its own length, 2; the name's, 1; type, 1; the name (ext4/directory.rst). */
static void names_that_are_none(void **state)
{
	off_t at;

	(void)state;
	make_image();
	at = place_of("unmistakable", 12);
	put(at + 5, "/", 1);
	refused("/inner", "invalid directory entry name");
	put(at + 5, "\0", 1);
	refused("/inner", "invalid directory entry name");
	put(at, "unmistakable", 12);
	put(at - 8, (uint8_t[4]){ 0xff, 0xff, 0xff }, 4); /* no inode has the number */
	refused("/inner", "inode 16777215, which a directory names,");
}

/* ---- Reads ---- */

static uint64_t costs; /* how many loads each read is counted as */

int __real_gnv_reader_read(struct gnv_reader *r, uint64_t at, void *buf, size_t len);
int __wrap_gnv_reader_read(struct gnv_reader *r, uint64_t at, void *buf, size_t len);

/* As if each read were of so many chunks, one after the other from places far from each other. */
int __wrap_gnv_reader_read(struct gnv_reader *r, uint64_t at, void *buf, size_t len)
{
	r->loads += costs;
	return __real_gnv_reader_read(r, at, buf, len);
}

/* Listing that costs much is allowed as long as what it costs is in proportion to the file system. */
static void loads_are_bounded(void **state)
{
	const uint64_t bound = 4 * (IMAGE / GNV_READER_CHUNK) + 65536; /* and two for each inode */
	struct gpunvme_file *file = NULL;
	struct gpunvme_dev *dev;
	struct seen s;

	(void)state;
	make_image();
	costs = bound / 1000;
	assert_int_equal(list("/many", ROOM, &s), 0);
	assert_int_equal(s.count, FILES);
	costs = bound / 4;
	refused("/many", "leads in circles");
	costs = bound;
	dev = open_image();
	assert_int_equal(gpunvme_file_open(dev, "/five", NULL, &file), -EUCLEAN);
	assert_null(file);
	costs = 0;
	assert_int_equal(gpunvme_file_open(dev, "/five", NULL, &file), 0); /* each call has its own */
	gpunvme_file_close(file);
	assert_int_equal(gpunvme_dev_close(dev), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(directories),
		cmocka_unit_test(room_for_some),
		cmocka_unit_test(names_that_are_none),
		cmocka_unit_test(loads_are_bounded),
	};

	return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
