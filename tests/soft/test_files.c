/* SPDX-License-Identifier: MIT */
/*
 * Files by name, from images that the file system's own tools have made of a folder: threads read what is in the folder, byte for
 * byte, from any byte on; writes land in place and nowhere else; what must be refused is, with its reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "arrays.h"
#include "common/image.h"
#include "common/shell.h"
#include "file/file.h"
#include "file/file_map.h"
#include "os/linux/extents.h"

#define LANES 8u
#define AREA 32768u  /* of a thread in the buffer: room for a read and bytes around it */
#define BOUNCE 4096u /* after that */
#define ODD "deep/deeper/deepest/\xc3\xbcml\xc3\xa4ut \xe2\x9c\x93"

/* ---- A folder and its images ---- */

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * 2654435761u >> 13 ^ i >> 9);
}

static void fill(const char *name, uint64_t from, uint64_t len)
{
	FILE *f;
	char path[256];

	snprintf(path, sizeof(path), "%s/tree/%s", image_dir, name);
	f = fopen(path, access(path, F_OK) ? "w" : "r+");
	assert_non_null(f);
	assert_int_equal(fseek(f, (long)from, SEEK_SET), 0);
	for (uint64_t i = from; i < from + len; i++)
		fputc(byte_at(i), f);
	assert_int_equal(fclose(f), 0);
}

static int make_tree(void **state)
{
	if (image_make_dir(state))
		return -1;
	run("mkdir -p %s/tree/deep/deeper/deepest %s/tree/gaps", image_dir, image_dir);
	run("cd %s/tree && : >empty && ln -s plain link && ln -s /deep/deeper way && ln -s b a && ln -s a b", image_dir);
	fill("plain", 0, 300001);
	fill("short", 0, 5);
	fill("sparse", 8192, 5000);
	fill("sparse", 200000, 70000);
	fill(ODD, 0, 20000);
	for (int i = 0; i < 100; i++) {
		char name[32];

		snprintf(name, sizeof(name), "gaps/%02d", i);
		fill(name, 0, 4096);
	}
	fill("fragmented", 0, 400000);
	return 0;
}

static int remove_tree(void **state)
{
	run("rm -rf %s/tree %s/*.img %s/*.map", image_dir, image_dir, image_dir);
	return image_remove_dir(state);
}

/* Every second small file goes, and a large one takes their place. The last is allocated and never written but for its begin. */
static void make_image(const char *options)
{
	FILE *f;

	run("cd %s && mv tree/fragmented fragmented && PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -d tree %s fs.img 12M && mv fragmented tree/",
	    image_dir, options);
	run("cd %s && for i in 01 03 05 07 09 11 13 15 17 19 21 23 25 27 29 31 33 35 37 39; do echo rm gaps/$i; done >cmds.img", image_dir);
	f = fopen(image_path("cmds.img"), "a");
	assert_non_null(f);
	fprintf(f, "write tree/fragmented fragmented\nwrite tree/short unwritten\n");
	if (strcmp(options, "-t ext2 -b 1024") != 0)
		fprintf(f, "fallocate unwritten 8 15\nsif unwritten size 16384\n");
	fprintf(f, "sif fragmented mtime @1700000000\n");
	fclose(f);
	run("cd %s && PATH=$PATH:/sbin:/usr/sbin debugfs -w -f cmds.img fs.img >debugfs.img 2>&1", image_dir);
}

/* ---- Threads ---- */

#define RIG_BYTES (LANES * (AREA + BOUNCE))
#include "soft/file_rig.h"

struct job {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfile file;
	struct gpunvme_cursor cur[LANES];
	uint64_t offset[LANES], pos[LANES], len[LANES];
	int status[LANES], write;
};

static GPUNVME_DEVICE void move(void *arg)
{
	struct job *j = (struct job *)arg;
	uint32_t l = gpunvme_thread_id();

	j->status[l] = j->write ? gpunvme_write(&j->cur[l], &j->dbuf, j->offset[l], j->pos[l], j->len[l], 0) :
				  gpunvme_read(&j->cur[l], &j->dbuf, j->offset[l], j->pos[l], j->len[l]);
}

static void job_of(struct rig *r, struct gpunvme_file *file, struct job *j)
{
	*j = (struct job){ .dq = r->dq, .dbuf = r->dbuf };
	assert_int_equal(gpunvme_file_view(file, r->gpu, &j->file), 0);
	for (uint32_t l = 0; l < LANES; l++)
		j->cur[l] = (struct gpunvme_cursor){ .dq = &j->dq, .file = &j->file, .bounce = LANES * AREA + l * BOUNCE };
}

/* Random reads; every byte of a thread's area must be as the file has it, or as it was before. */
static void check_reads(struct rig *r, struct gpunvme_file *file, const uint8_t *want, uint64_t bytes)
{
	uint8_t *p = gpunvme_mem_ptr(r->mem);
	uint64_t random = 12345;
	struct job j;

	job_of(r, file, &j);
	assert_int_equal(j.file.bytes, bytes);
	for (int round = 0; round < 8; round++) {
		memset(p, 0xa5, LANES * AREA);
		for (uint32_t l = 0; l < LANES; l++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			j.pos[l] = (random >> 20) % (bytes + 4000) & (round % 2 ? ~0ull : ~4095ull);
			j.len[l] = (random >> 40) % (round % 4 == 1 ? 5000 : AREA - 64);
			j.offset[l] = l * AREA + (round % 4 == 1 ? (random >> 33) % 64 : 0);
		}
		assert_int_equal(gpunvme_cpu_launch(LANES, r->width, move, &j), 0);
		for (uint32_t l = 0; l < LANES; l++) {
			uint64_t n = j.pos[l] >= bytes ? 0 : bytes - j.pos[l] < j.len[l] ? bytes - j.pos[l] : j.len[l];
			uint8_t *area = p + (uint64_t)l * AREA, *at = p + j.offset[l];

			assert_int_equal(j.status[l], 0);
			assert_int_equal(j.cur[l].done, n);
			assert_memory_equal(at, want + (n ? j.pos[l] : 0), n);
			while (area < at)
				assert_int_equal(*area++, 0xa5);
			for (at += n; at < p + (l + 1) * (uint64_t)AREA; at++)
				assert_int_equal(*at, 0xa5);
		}
	}
}

static uint8_t *load(const char *name, uint64_t *bytes)
{
	char path[300];
	uint8_t *data;
	struct stat st;
	FILE *f;

	snprintf(path, sizeof(path), "%s/tree/%s", image_dir, name);
	assert_int_equal(stat(path, &st), 0);
	*bytes = (uint64_t)st.st_size;
	data = calloc(1, *bytes + 16384);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_int_equal(fread(data, 1, *bytes, f), *bytes);
	fclose(f);
	return data;
}

static void check_file(struct rig *r, const char *path, const char *source, uint64_t bytes_or_0)
{
	struct gpunvme_file *file;
	uint64_t bytes;
	uint8_t *want = load(source, &bytes);

	if (gpunvme_file_open(r->dev, path, NULL, &file))
		fail_msg("%s: %s", path, gpunvme_errmsg());
	check_reads(r, file, want, bytes_or_0 ? bytes_or_0 : bytes);
	gpunvme_file_close(file);
	free(want);
}

static void all_files(const char *options, const char *lanes, uint32_t lba)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	const bool extents = !strstr(options, "ext2") && !strstr(options, "ext3");
	struct gpunvme_file *file;
	struct rig r;

	make_image(options);
	rig_open(&r, lanes, lba, 0);
	check_file(&r, "/plain", "plain", 0);
	check_file(&r, "link", "plain", 0);
	check_file(&r, "short", "short", 0);
	check_file(&r, "/empty", "empty", 0);
	check_file(&r, "/sparse", "sparse", 0);
	check_file(&r, "way/deepest/" "\xc3\xbcml\xc3\xa4ut \xe2\x9c\x93", ODD, 0);
	check_file(&r, "/deep/../fragmented", "fragmented", 0);
	if (extents)
		check_file(&r, "/unwritten", "short", 16384);
	assert_int_equal(gpunvme_file_open(r.dev, "/fragmented", NULL, &file), 0);
	assert_int_equal(gpunvme_file_get_info(file, &info), 0);
	assert_true(info.extents > (strstr(options, "bigalloc") ? 2 : 10));
	assert_int_equal(info.bytes, 400000);
	assert_int_equal(info.mtime, 1700000000);
	assert_string_equal(info.fs, "ext4");
	gpunvme_file_close(file);
	rig_close(&r);
}

/* At pos there are `want` and then zeroes, `len` bytes until the end of the file or of what is asked for. */
static void check_part(struct rig *r, struct gpunvme_file *file, uint64_t pos, uint64_t len, const char *want)
{
	const size_t n = strlen(want);
	uint8_t *p = gpunvme_mem_ptr(r->mem);
	struct job j;

	job_of(r, file, &j);
	memset(p, 0xa5, AREA);
	j.pos[0] = pos;
	j.len[0] = AREA;
	assert_int_equal(gpunvme_cpu_launch(1, 1, move, &j), 0);
	assert_int_equal(j.status[0], 0);
	assert_int_equal(j.cur[0].done, len);
	assert_memory_equal(p, want, n);
	for (uint64_t i = n; i < AREA; i++)
		assert_int_equal(p[i], i < len ? 0 : 0xa5);
}

/* What is above 4 GiB is not what lies at the same place without the upper half of its position. */
static void sparse_and_huge(void **state)
{
	struct gpunvme_file *file;
	struct rig r;

	(void)state;
	run("mkdir %s/large && cd %s/large && printf begin >huge && truncate -s 5G huge", image_dir, image_dir);
	run("cd %s/large && printf far | dd of=huge bs=4096 seek=1048592 conv=notrunc 2>/dev/null", image_dir);
	run("cd %s && PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -d large -t ext4 -b 4096 fs.img 12M && rm -r large", image_dir);
	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gpunvme_file_open(r.dev, "/huge", NULL, &file), 0);
	check_part(&r, file, 0, AREA, "begin");
	check_part(&r, file, 65536, AREA, "");
	check_part(&r, file, (1ull << 32) - 512, AREA, "");
	check_part(&r, file, (1ull << 32) + 65536, AREA, "far");
	check_part(&r, file, (1ull << 32) + 65537, AREA, "ar");
	check_part(&r, file, (5ull << 30) - 1000, 1000, "");
	check_part(&r, file, 5ull << 30, 0, "");
	gpunvme_file_close(file);
	rig_close(&r);
}

/* ---- Writing ---- */

static int write_one(struct rig *r, struct gpunvme_file *file, uint64_t offset, uint64_t pos, uint64_t len, uint64_t *done)
{
	struct job j;

	job_of(r, file, &j);
	j.write = 1;
	j.offset[0] = offset;
	j.pos[0] = pos;
	j.len[0] = len;
	assert_int_equal(gpunvme_cpu_launch(1, 1, move, &j), 0);
	*done = j.cur[0].done;
	return j.status[0];
}

static void open_for_writing(struct rig *r, const char *path, struct gpunvme_file **file)
{
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;

	opts.flags = GPUNVME_FILE_WRITE;
	assert_int_equal(gpunvme_file_open(r->dev, path, &opts, file), 0);
}

/* As the file system's own tools see it: the file has what was written, and nothing else has changed. */
static void check_dump(const char *name, const uint8_t *want, uint64_t bytes)
{
	uint8_t *got = malloc(bytes + 1);
	FILE *f;

	run("cd %s && PATH=$PATH:/sbin:/usr/sbin debugfs -R 'dump %s dump.img' fs.img 2>/dev/null", image_dir, name);
	f = fopen(image_path("dump.img"), "r");
	assert_non_null(f);
	assert_non_null(got);
	assert_int_equal(fread(got, 1, bytes + 1, f), bytes);
	assert_memory_equal(got, want, bytes);
	fclose(f);
	free(got);
}

static void writes_in_place(void **state)
{
	struct gpunvme_file *file;
	uint64_t done, bytes;
	struct rig r;
	uint8_t *p, *want = load("fragmented", &bytes);

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, GPUNVME_VIEW_WRITE);
	p = gpunvme_mem_ptr(r.mem);
	for (uint32_t i = 0; i < LANES * AREA; i++)
		p[i] = (uint8_t)(i * 7 >> 2);
	open_for_writing(&r, "/fragmented", &file);
	assert_int_equal(write_one(&r, file, 512, 1536, 200704, &done), 0);
	assert_int_equal(done, 200704);
	memcpy(want + 1536, p + 512, 200704);
	assert_int_equal(write_one(&r, file, 0, 0, 511, &done), -EINVAL);
	assert_int_equal(write_one(&r, file, 0, 1, 512, &done), -EINVAL);
	assert_int_equal(write_one(&r, file, 2, 0, 512, &done), -EINVAL);
	assert_int_equal(write_one(&r, file, 0, 399872, 512, &done), -ERANGE); /* 400000 bytes: it would end beyond them */
	assert_int_equal(write_one(&r, file, 0, 399360, 512, &done), 0);
	memcpy(want + 399360, p, 512);
	gpunvme_file_close(file);
	assert_int_equal(gpunvme_file_open(r.dev, "/fragmented", NULL, &file), 0);
	assert_int_equal(write_one(&r, file, 0, 0, 512, &done), -EROFS);
	gpunvme_file_close(file);
	open_for_writing(&r, "/sparse", &file);
	assert_int_equal(write_one(&r, file, 0, 0, 512, &done), -EOPNOTSUPP);
	assert_int_equal(write_one(&r, file, 0, 12288, 8192, &done), -EOPNOTSUPP); /* its data ends at 13192 */
	assert_int_equal(done, 1024);
	gpunvme_file_close(file);
	rig_close(&r);
	check_dump("fragmented", want, bytes);
	free(want);
	want = load("plain", &bytes);
	check_dump("plain", want, bytes);
	free(want);
	run("cd %s && PATH=$PATH:/sbin:/usr/sbin e2fsck -fn fs.img >debugfs.img 2>&1", image_dir);
}

/* Two drives with the same image: what lies there on one must not be looked for on the other. */
static void files_of_another_drive(void **state)
{
	struct gpunvme_file *file;
	struct rig one, other;
	struct job j;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&one, "cpu", 512, GPUNVME_VIEW_WRITE);
	run("cd %s && mv fs.img one.img && cp one.img fs.img", image_dir);
	rig_open(&other, "cpu", 512, GPUNVME_VIEW_WRITE);
	open_for_writing(&one, "/plain", &file);
	job_of(&other, file, &j);
	j.len[0] = 512;
	for (j.write = 0; j.write < 2; j.write++) {
		assert_int_equal(gpunvme_cpu_launch(1, 1, move, &j), 0);
		assert_int_equal(j.status[0], -EXDEV);
		assert_int_equal(j.cur[0].done, 0);
	}
	run("cd %s && cmp one.img fs.img", image_dir);
	j.file.device = 0; /* as a library before 0.5 of dq.h has made it */
	j.write = 0;
	assert_int_equal(gpunvme_cpu_launch(1, 1, move, &j), 0);
	assert_int_equal(j.status[0], 0);
	gpunvme_file_close(file);
	rig_close(&other);
	rig_close(&one);
}

/* Exit status 0, or the line that is wrong. */
static int refused_in_child(struct rig *r, struct gpunvme_file *file)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_dextent extent;
	struct gpunvme_dfile dfile;
	struct gpunvme_file *other;
	uint32_t count = 1;

	if (gpunvme_file_open(r->dev, "/plain", NULL, &other) != -ECHILD)
		return __LINE__;
	if (gpunvme_file_get_info(file, &info) != -ECHILD)
		return __LINE__;
	if (gpunvme_file_get_extents(file, 0, &extent, &count) != -ECHILD)
		return __LINE__;
	if (gpunvme_file_close(file) != -ECHILD)
		return __LINE__;
	return gpunvme_file_view(file, r->gpu, &dfile) == -ECHILD ? 0 : __LINE__;
}

static void files_in_a_child(void **state)
{
	struct gpunvme_file *file;
	struct rig r;
	int status;
	pid_t pid;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gpunvme_file_open(r.dev, "/plain", NULL, &file), 0);
	pid = fork();
	if (!pid) {
		alarm(60); /* a child that hangs is ended */
		_exit(refused_in_child(&r, file) ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(gpunvme_file_close(file), 0);
	assert_int_equal(gpunvme_file_close(NULL), 0);
	rig_close(&r);
}

/* ---- Refusals ---- */

static void refused_open(struct rig *r, const char *path, uint32_t flags, uint32_t partition, int error, const char *words)
{
	const struct gpunvme_file_opts opts = { .size = sizeof(opts), .flags = flags, .partition = partition };
	struct gpunvme_file *file = NULL;
	int ret = gpunvme_file_open(r->dev, path, &opts, &file);

	if (ret != error || !strstr(gpunvme_errmsg(), words) || file)
		fail_msg("%s: %d instead of %d: %s", path, ret, error, gpunvme_errmsg());
}

static void debugfs(const char *commands)
{
	run("cd %s && printf '%s' >cmds.img && PATH=$PATH:/sbin:/usr/sbin debugfs -w -f cmds.img fs.img >debugfs.img 2>&1", image_dir, commands);
}

/* Of the second word of a time two bits are seconds, the rest nanoseconds. */
static void what_a_file_is(void **state)
{
	static const uint8_t uuid[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 };
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *file;
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024 -I 256 -U 01020304-0506-0708-090a-0b0c0d0e0f10");
	debugfs("sif plain mtime @1700000000\nsif plain mtime_extra 4002\nsif plain generation 17\n");
	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gpunvme_file_open(r.dev, "/plain", NULL, &file), 0);
	assert_int_equal(gpunvme_file_get_info(file, &info), 0);
	assert_int_equal(info.mtime, 1700000000 + (2ll << 32));
	assert_int_equal(info.mtime_ns, 1000);
	assert_int_equal(info.generation, 17);
	assert_memory_equal(info.uuid, uuid, sizeof(uuid));
	gpunvme_file_close(file);
	rig_close(&r);
}

/* After the file system was changed by commands. */
static void refused_then(const char *commands, const char *path, uint32_t flags, int error, const char *words)
{
	struct rig r;

	debugfs(commands);
	rig_open(&r, "cpu", 512, 0);
	refused_open(&r, path, flags, 0, error, words);
	rig_close(&r);
}

static void paths_and_files_are_refused(void **state)
{
	struct rig r;

	(void)state;
	make_image("-t ext4 -O casefold -E encoding=utf8");
	rig_open(&r, "cpu", 512, 0);
	refused_open(&r, "/Plain", 0, 0, -ENOENT, "/Plain is not there. Folders that ignore case do not do so here: give the name");
	rig_close(&r);
	make_image("-t ext4 -b 1024 -O inline_data -I 256");
	rig_open(&r, "cpu", 512, 0);
	refused_open(&r, "/absent", 0, 0, -ENOENT, "/absent is not there");
	assert_null(strstr(gpunvme_errmsg(), "case"));
	refused_open(&r, "/deep", 0, 0, -EISDIR, "directory");
	refused_open(&r, "/plain/x", 0, 0, -ENOTDIR, "no directory");
	refused_open(&r, "/a", 0, 0, -ELOOP, "lead to each other");
	refused_open(&r, "/deep/../../plain", 0, 0, -EINVAL, "leaves the root");
	refused_open(&r, "/short", 0, 0, -EOPNOTSUPP, "stored in its inode");
	refused_open(&r, "/plain", 0x80, 0, -EINVAL, "GPUNVME_FILE_WRITE");
	refused_open(&r, "/plain", 0, 1, -ENXIO, "no partition table");
	rig_close(&r);
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 4096, 0);
	refused_open(&r, "/fragmented", 0, 0, -EOPNOTSUPP, "not whole blocks of namespace 1");
	rig_close(&r);
	refused_then("sif plain flags 0x80800\n", "/plain", 0, -EOPNOTSUPP, "encrypted");
	refused_then("sif plain flags 0x80004\n", "/plain", 0, -EOPNOTSUPP, "compressed");
	refused_then("sif plain flags 0x180000\n", "/plain", GPUNVME_FILE_WRITE, -EOPNOTSUPP, "fs-verity");
	refused_then("sif plain flags 0x80010\n", "/plain", GPUNVME_FILE_WRITE, -EOPNOTSUPP, "immutable");
	refused_then("ssv state 0\n", "/plain", 0, -EBUSY, "not unmounted");
	refused_then("ssv state 3\n", "/plain", 0, -EUCLEAN, "errors of its own");
	refused_then("ssv state 1\nfeature needs_recovery\n", "/plain", 0, -EBUSY, "journal");
	refused_then("feature -needs_recovery\nssv feature_incompat 0x8002c2\n", "/plain", 0, -EOPNOTSUPP, "feature");
	make_image("-t ext4 -b 1024");
	run("truncate -s 4M %s", image_path("fs.img"));
	rig_open(&r, "cpu", 512, 0);
	refused_open(&r, "/plain", 0, 0, -EUCLEAN, "cut off");
	rig_close(&r);
	run("truncate -s 0 %s && truncate -s 4M %s", image_path("fs.img"), image_path("fs.img"));
	rig_open(&r, "cpu", 512, 0);
	refused_open(&r, "/plain", 0, 0, -EOPNOTSUPP, "no ext2");
	rig_close(&r);
}

/* Blocks that its features forbid to write are read only; a bit that has no name yet is one of those. */
static void features_forbid_writing(void **state)
{
	static const char *const features[] = { "feature shared_blocks", "feature read-only", "ssv feature_ro_compat 0x40000003" };
	struct gpunvme_file *file;
	struct rig r;

	(void)state;
	for (size_t i = 0; i < sizeof(features) / sizeof(features[0]); i++) {
		make_image("-t ext4 -b 1024 -O ^metadata_csum");
		debugfs(features[i]);
		rig_open(&r, "cpu", 512, 0);
		refused_open(&r, "/plain", GPUNVME_FILE_WRITE, 0, -EOPNOTSUPP, "feature");
		assert_int_equal(gpunvme_file_open(r.dev, "/plain", NULL, &file), 0);
		gpunvme_file_close(file);
		rig_close(&r);
	}
}

/* A block of block numbers that are all its own, where a file of three levels has its first. */
static void blocks_that_lead_to_themselves(void **state)
{
	uint8_t block[1024];
	struct rig r;
	int fd;

	(void)state;
	make_image("-t ext2 -b 1024");
	debugfs("sif plain block[TIND] 9000\n");
	for (size_t i = 0; i < sizeof(block); i += 4)
		memcpy(block + i, &(uint8_t[4]){ 9000 & 0xff, 9000 >> 8 }, 4);
	fd = open(image_path("fs.img"), O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, block, sizeof(block), 9000 * 1024), sizeof(block));
	close(fd);
	rig_open(&r, "cpu", 512, 0);
	refused_open(&r, "/plain", 0, 0, -EUCLEAN, "more blocks than its file system");
	rig_close(&r);
}

/* ---- Maps ---- */

/* The map that the kernel's replies would make: of the same superblock and extents, and where @bytes is not 0 of that size. */
static char *map_claiming(struct rig *r, const char *path, uint64_t bytes)
{
	struct gnv_map map = { .serial = "TEST", .bytes = 12u << 20 };
	struct gpunvme_file *file;
	struct gnv_reader reader;
	char *text;

	assert_int_equal(gpunvme_file_open(r->dev, path, NULL, &file), 0);
	assert_int_equal(gnv_reader_open(r->dev, 0, &reader), 0);
	assert_int_equal(gnv_super_read(&reader, &map.super), 0);
	gnv_reader_close(&reader);
	map.file = gnv_extents_new();
	assert_non_null(map.file);
	map.file->info = file->info;
	map.file->info.bytes = bytes ? bytes : file->info.bytes;
	for (const struct gpunvme_dextent *e = file->extent; e < file->extent + file->extents; e++)
		assert_int_equal(gnv_extents_add(map.file, e->pos * 512, e->lba * 512, e->nblocks * 512), 0);
	assert_int_equal(gnv_map_write(&map, &text), 0);
	gnv_extents_free(map.file);
	gpunvme_file_close(file);
	return text;
}

static const struct gpunvme_file_opts of_map = { .size = sizeof(of_map), .how = GPUNVME_FILE_MAP };

static char *map_of(struct rig *r, const char *path)
{
	return map_claiming(r, path, 0);
}

static void refused_map(struct rig *r, const char *text, int error, const char *words)
{
	struct gpunvme_file *file = NULL;
	int ret = gpunvme_file_open(r->dev, text, &of_map, &file);

	if (ret != error || !strstr(gpunvme_errmsg(), words) || file)
		fail_msg("%d instead of %d: %s", ret, error, gpunvme_errmsg());
}

/* The same with other words in it, and the sum that belongs to them. */
static void refused_edit(struct rig *r, const char *text, const char *old, const char *new)
{
	const char *at = strstr(text, old), *end = strstr(text, "\nend ") + 1;
	char *edited = malloc(strlen(text) + strlen(new) + 1);
	int len;

	assert_non_null(edited);
	assert_non_null(at);
	len = sprintf(edited, "%.*s%s%.*s", (int)(at - text), text, new, (int)(end - at - (long)strlen(old)), at + strlen(old));
	sprintf(edited + len, "end %016llx\n", (unsigned long long)gnv_sum(edited, (size_t)len));
	refused_map(r, edited, -EINVAL, "makes no sense");
	free(edited);
}

/* A file may be larger than its drive, by a hole; its last block ends within end beyond 64 bits. */
static void sizes_that_maps_claim(void **state)
{
	const uint64_t most = UINT64_MAX - 511;
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_cache *cache;
	struct gpunvme_file *file;
	struct rig r;
	char *text;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	for (uint64_t bytes = UINT64_MAX; bytes > most; bytes -= bytes > most + 2 ? 509 : 1) {
		text = map_claiming(&r, "/fragmented", bytes);
		refused_map(&r, text, -EFBIG, "end beyond 64 bits");
		free(text);
	}
	text = map_claiming(&r, "/fragmented", most);
	assert_int_equal(gpunvme_file_open(r.dev, text, &of_map, &file), 0);
	opts.file = file;
	opts.lba = (most >> 9) - 4;
	opts.frames = 4;
	opts.page_size = 4096; /* the window is less than a page of it, which would end beyond 2^64 */
	assert_int_equal(gpunvme_cache_create(r.qp, &opts, &cache), 0);
	assert_int_equal(gpunvme_cache_destroy(cache), 0);
	opts.lba = 0;
	assert_int_equal(gpunvme_cache_create(r.qp, &opts, &cache), -ERANGE);
	assert_non_null(strstr(gpunvme_errmsg(), "end beyond 64 bits"));
	gpunvme_file_close(file);
	free(text);
	rig_close(&r);
}

static void edited_maps(void **state)
{
	struct rig r;
	char *text;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	text = map_of(&r, "/fragmented");
	refused_edit(&r, text, "place ok", "place elsewhere");
	refused_edit(&r, text, "extent 0 ", "extent -0 ");
	refused_edit(&r, text, "extent 0 ", "extent 99999999999999999999 ");
	refused_edit(&r, text, "extent 0 ", "extent ");
	free(text);
	rig_close(&r);
}

static void maps_of_what_must_not_be_written(void **state)
{
	const struct gpunvme_file_opts writing = { .size = sizeof(writing), .flags = GPUNVME_FILE_WRITE, .how = GPUNVME_FILE_MAP };
	struct gpunvme_file *file = NULL;
	struct rig r;
	char *text;

	(void)state;
	make_image("-t ext4 -b 1024");
	debugfs("feature shared_blocks\n");
	rig_open(&r, "cpu", 512, 0);
	text = map_of(&r, "/fragmented");
	assert_int_equal(gpunvme_file_open(r.dev, text, &writing, &file), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "feature"));
	assert_int_equal(gpunvme_file_open(r.dev, text, &of_map, &file), 0);
	gpunvme_file_close(file);
	rig_close(&r);
	debugfs("ssv state 0\n");
	rig_open(&r, "cpu", 512, 0);
	refused_map(&r, text, -EBUSY, "not unmounted");
	rig_close(&r);
	debugfs("ssv state 3\n");
	rig_open(&r, "cpu", 512, 0);
	refused_map(&r, text, -EUCLEAN, "errors of its own");
	rig_close(&r);
	free(text);
}

static void mounts(const char *format, ...)
{
	va_list args;
	FILE *f = fopen(image_path("mounts.img"), "w");

	assert_non_null(f);
	va_start(args, format);
	vfprintf(f, format, args);
	va_end(args);
	fclose(f);
}

/* Lines as Documentation/filesystems/proc.rst has them (3.5): what counts is the superblock's option, not the mount's. */
static void what_stands_still(void **state)
{
	const uint64_t dev = makedev(259, 3);

	(void)state;
	mounts("36 35 259:3 / /mnt ro,noatime shared:1 - ext4 /dev/nvme0n1p1 ro,errors=remount-ro\n");
	assert_true(gnv_os_stands_still(image_path("mounts.img"), dev));
	assert_false(gnv_os_stands_still(image_path("mounts.img"), makedev(259, 4)));
	mounts("36 35 259:3 / /mnt ro,noatime - ext4 /dev/nvme0n1p1 rw\n");
	assert_false(gnv_os_stands_still(image_path("mounts.img"), dev));
	mounts("36 35 259:3 / /mnt/- ro - ext4 /dev/nvme0n1p1 ro\n37 35 259:4 / /a rw - ext4 x rw\n38 35 259:3 /x /b ro - ext4 x rw,a=b\n");
	assert_false(gnv_os_stands_still(image_path("mounts.img"), dev));
	mounts("36 35 259:3 / /mnt ro - xfs /dev/nvme0n1p1 ro,attr2,noquota\n"); /* XFS writes all the same */
	assert_false(gnv_os_stands_still(image_path("mounts.img"), dev));
	mounts("36 35 259:3 / /mnt ro - xfs /dev/nvme0n1p1 rw,norecovery\n");
	assert_false(gnv_os_stands_still(image_path("mounts.img"), dev));
	mounts("36 35 259:3 / /mnt ro - xfs /dev/nvme0n1p1 ro,norecovery,attr2\n");
	assert_true(gnv_os_stands_still(image_path("mounts.img"), dev));
	mounts("nonsense\n36 35 259:3 / /mnt ro\n");
	assert_false(gnv_os_stands_still(image_path("mounts.img"), dev));
	assert_false(gnv_os_stands_still(image_path("absent.img"), dev));
}

/* Any part of the list, and no more than there is. */
static void extents_as_room_allows(void **state)
{
	struct gpunvme_dextent all[64], part[64];
	uint32_t count = 0, more;
	struct gpunvme_file *file;
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gpunvme_file_open(r.dev, "/fragmented", NULL, &file), 0);
	assert_int_equal(gpunvme_file_get_extents(file, 0, NULL, &count), 0);
	assert_in_range(count, 3, 63);
	memset(all, 0xa5, sizeof(all));
	for (uint32_t room = 0; room <= count + 1; room++) {
		memset(part, 0xa5, sizeof(part));
		more = room;
		assert_int_equal(gpunvme_file_get_extents(file, 0, part, &more), 0);
		assert_int_equal(more, count);
		if (room && room <= count)
			all[room - 1] = part[room - 1];
		assert_memory_equal(part, all, sizeof(part)); /* and no more than there is room for */
	}
	gpunvme_file_close(file);
	rig_close(&r);
}

/* What lies after the end of the partition is another's. */
static void nothing_behind_the_end(void **state)
{
	struct gnv_reader reader;
	char bytes[1024];
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gnv_reader_open(r.dev, 0, &reader), 0);
	reader.first = 4096;
	reader.bytes = 1 << 20;
	assert_int_equal(gnv_reader_read(&reader, (1 << 20) - 1024, bytes, 1024), 0);
	assert_int_equal(gnv_reader_read(&reader, 1 << 20, bytes, 0), 0);
	assert_int_equal(gnv_reader_read(&reader, (1 << 20) - 1023, bytes, 1024), -ERANGE);
	assert_int_equal(gnv_reader_read(&reader, (1 << 20) + 1, bytes, 0), -ERANGE);
	assert_int_equal(gnv_reader_read(&reader, UINT64_MAX - 1, bytes, 512), -ERANGE);
	gnv_reader_close(&reader);
	rig_close(&r);
}

static void maps(void **state)
{
	struct gpunvme_file *file;
	uint64_t bytes;
	uint8_t *want = load("fragmented", &bytes);
	struct rig r;
	char *text, *edited;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu:4", 512, 0);
	text = map_of(&r, "/fragmented");
	assert_int_equal(gpunvme_file_open(r.dev, text, &of_map, &file), 0);
	check_reads(&r, file, want, bytes);
	gpunvme_file_close(file);
	refused_map(&r, "hello", -EINVAL, "no map");
	refused_map(&r, "gpunvme-map 2\n", -EINVAL, "another version");
	edited = strdup(text);
	assert_non_null(edited);
	edited[strlen(edited) - 30] = '\0';
	refused_map(&r, edited, -EINVAL, "cut off");
	strcpy(edited, text);
	strstr(edited, "extent ")[8]++;
	refused_map(&r, edited, -EINVAL, "changed after");
	rig_close(&r);
	debugfs("ssv mnt_count 9\n");
	rig_open(&r, "cpu", 512, 0);
	refused_map(&r, text, -ESTALE, "mounted for writing after");
	rig_close(&r);
	debugfs("feature needs_recovery\n");
	rig_open(&r, "cpu", 512, 0);
	refused_map(&r, text, -EBUSY, "waits to be replayed");
	rig_close(&r);
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	refused_map(&r, text, -ESTALE, "another file system");
	rig_close(&r);
	run("truncate -s 6M %s", image_path("fs.img"));
	rig_open(&r, "cpu", 512, 0);
	refused_map(&r, text, -ERANGE, "ends after the end of namespace 1");
	rig_close(&r);
	free(edited);
	free(text);
	free(want);
}

/* Of XFS only the superblock is looked at. */
static void maps_of_xfs(void **state)
{
	struct gpunvme_file_opts writing = GPUNVME_FILE_OPTS_INIT;
	struct gnv_map map = { .serial = "TEST", .bytes = 1u << 20 };
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *file = NULL;
	uint8_t head[GNV_FS_HEAD] = "XFSB";
	struct rig r;
	char *text;

	(void)state;
	writing.flags = GPUNVME_FILE_WRITE;
	writing.how = GPUNVME_FILE_MAP;
	run("rm -f %s && truncate -s 1M %s", image_path("fs.img"), image_path("fs.img"));
	run("printf XFSB | dd of=%s conv=notrunc status=none", image_path("fs.img"));
	assert_int_equal(gnv_super_of(head, &map.super), 0);
	map.file = gnv_extents_new();
	assert_non_null(map.file);
	map.file->info.block = 4096;
	map.file->info.bytes = 4096;
	assert_int_equal(gnv_extents_add(map.file, 0, 8192, 4096), 0);
	assert_int_equal(gnv_map_write(&map, &text), 0);
	gnv_extents_free(map.file);
	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gpunvme_file_open(r.dev, text, &writing, &file), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "only be read"));
	assert_int_equal(gpunvme_file_open(r.dev, text, &of_map, &file), 0);
	assert_int_equal(gpunvme_file_get_info(file, &info), 0);
	assert_memory_equal(info.fs, "xfs\0\0\0\0", sizeof(info.fs));
	gpunvme_file_close(file);
	rig_close(&r);
	free(text);
}

/* The kernel is asked about files of this machine, whatever they lie on: nothing is made up, and what cannot be is refused. */
/* To open a device may start what it does, as of a watchdog. A FIFO stands for it here. */
static void a_node_is_not_opened(void)
{
	const int seen = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	char *text = NULL, path[300], events[512];

	snprintf(path, sizeof(path), "%s/node", image_dir);
	assert_true(seen >= 0);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_true(inotify_add_watch(seen, path, IN_OPEN) >= 0);
	assert_int_equal(gpunvme_file_map_make(path, &text), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "no regular file"));
	assert_int_equal(read(seen, events, sizeof(events)), -1);
	assert_int_equal(errno, EAGAIN);
	close(seen);
	assert_int_equal(unlink(path), 0);
}

static void maps_of_this_machine(void **state)
{
	char *text = NULL, path[300];
	int ret;

	(void)state;
	assert_int_equal(gpunvme_file_map_make("/absent/file", &text), -ENOENT);
	assert_int_equal(gpunvme_file_map_make("/", &text), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "no regular file"));
	assert_int_equal(gpunvme_file_map_make("/proc/version", &text), -EOPNOTSUPP);
	a_node_is_not_opened();
	snprintf(path, sizeof(path), "%s/tree/plain", image_dir);
	ret = gpunvme_file_map_make(path, &text); /* the folder is writable, so the file system is mounted so */
	assert_true(ret == -EBUSY || ret == -EOPNOTSUPP);
	assert_null(text);
}

/* ---- Damage ---- */

/* Bytes of the metadata are anything: each call ends, and returns. */
static void damaged_images(void **state)
{
	uint64_t random = 99, sum = 0, bytes;
	struct gpunvme_dirent entries[16];
	struct gpunvme_file *file;
	uint32_t count;
	struct rig r;
	int fd, opened = 0;

	(void)state;
	make_image("-t ext4 -b 1024 -O ^metadata_csum");
	for (int i = 0; i < 25; i++) {
		fd = open(image_path("fs.img"), O_RDWR);
		assert_true(fd >= 0);
		bytes = (uint64_t)lseek(fd, 0, SEEK_END);
		for (int k = 0; k < 20; k++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			assert_int_equal(pwrite(fd, &random, 4, (off_t)(4096 + (random >> 33) % (bytes / 16))), 4);
		}
		close(fd);
		rig_open(&r, "cpu", 512, 0);
		for (int k = 0; k < 2; k++) {
			if (!gpunvme_file_open(r.dev, k ? "/fragmented" : ODD, NULL, &file)) {
				opened++;
				gpunvme_file_close(file);
			}
		}
		count = 16;
		if (!gpunvme_file_list(r.dev, "/", NULL, entries, &count))
			for (uint32_t k = 0; k < count && k < 16; k++)
				sum += strlen(entries[k].name) + entries[k].bytes;
		rig_close(&r);
	}
	assert_true(opened > 0 && sum > 0); /* not all was lost at once */
}

static void ext4_of_every_kind(void **state)
{
	(void)state;
	all_files("-t ext4 -b 4096 -O 64bit,metadata_csum", "cpu", 512);
	all_files("-t ext4 -b 4096", "cpu", 4096);
	all_files("-t ext4 -b 1024 -O ^metadata_csum,^64bit", "cpu", 512);
	all_files("-t ext4 -b 2048", "cpu", 512);
	all_files("-t ext4 -b 1024 -O bigalloc -C 16384", "cpu", 512);
	all_files("-t ext3 -b 1024", "cpu", 512);
	all_files("-t ext2 -b 1024", "cpu:4", 512);
}

/* ---- Page caches ---- */

struct paged {
	struct gpunvme_dq dq;
	struct gpunvme_dpages pages;
	const uint8_t *want; /* of the window, with zeroes after the end of the file */
	uint64_t bytes;      /* of it in the file */
	uint32_t wrong, answered; /* atomic */
};

/* A page: all of its bytes, those after the end of the file, too. */
static int ask_for_page(struct paged *p, uint64_t number)
{
	uint64_t size = 1ull << p->pages.page_shift, at = number * size, n = p->bytes - at < size ? p->bytes - at : size;
	struct gpunvme_page page;
	const uint8_t *got;
	const struct gpunvme_cached_file src = { &p->dq, &p->pages };
	int ret = gpunvme_page_get(&src, number, &page);

	if (ret)
		return ret;
	got = (const uint8_t *)(uintptr_t)page.base;
	ret = memcmp(got, p->want + at, n) ? -1 : 0;
	while (n < size && !got[n])
		n++;
	ret = n < size ? -1 : ret;
	return gpunvme_page_put(&src, &page) ? -1 : ret;
}

static int ask_for_elements(struct paged *p, uint64_t index)
{
	uint64_t all = p->bytes / 4, n = all - index < 300 ? all - index : 300;
	uint32_t value, to[300];
	int ret;
	const struct gpunvme_cached_file src = { &p->dq, &p->pages };

#ifdef WITH_ARRAYS
	if (index % 2) {
		uint64_t size = 0;

		ret = arrays_of_file(&p->dq, &p->pages, index, n, &value, to, &size);
		if (!ret && (size != all || memcmp(&value, to, 4)))
			return -1;
		return !ret && memcmp(to, p->want + 4 * index, 4 * n) ? -1 : ret;
	}
#endif
	ret = gpunvme_array_load(&src, index, 4, &value);

	if (ret || memcmp(&value, p->want + 4 * index, 4))
		return ret ? ret : -1;
	ret = gpunvme_array_load_range(&src, index, n, 4, to);
	return !ret && memcmp(to, p->want + 4 * index, 4 * n) ? -1 : ret;
}

static GPUNVME_DEVICE void paged_kernel(void *arg)
{
	struct paged *p = (struct paged *)arg;
	uint64_t random = gpunvme_thread_id() + 7, pages = ((p->bytes - 1) >> p->pages.page_shift) + 1;
	int ret;

	for (uint32_t round = 0; round < 24; round++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		do {
			if (round % 2 || p->bytes < 4)
				ret = ask_for_page(p, round == 1 ? pages - 1 : (random >> 30) % pages);
			else
				ret = ask_for_elements(p, (random >> 30) % (p->bytes / 4));
		} while (ret == -GPUNVME_EAGAIN);
		__atomic_fetch_add(&p->wrong, ret != 0, __ATOMIC_RELAXED);
		__atomic_fetch_add(&p->answered, 1, __ATOMIC_RELAXED);
	}
}

/* The end of the file is the end of the array; and calls for namespaces and volumes have nothing here. */
static void check_ends(struct paged *p)
{
	struct gpunvme_dvol vol = { .head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, struct gpunvme_dvol), .members = 1, .queues = 1 };
	uint64_t all = p->bytes / 4, pages = ((p->bytes - 1) >> p->pages.page_shift) + 1;
	struct gpunvme_page page;
	uint32_t value;
	const struct gpunvme_cached_file cached_file = { &p->dq, &p->pages };
	const struct gpunvme_cached_queue cached_queue = { &p->dq, &p->pages };
	const struct gpunvme_cached_volume cached_volume = { &vol, &p->pages };

	vol.dq = (uintptr_t)&p->dq;
	assert_int_equal(gpunvme_array_load(&cached_file, all, 4, &value), -ERANGE);
	assert_int_equal(gpunvme_array_load_range(&cached_file, all ? all - 1 : 0, 2, 4, &value), -ERANGE);
#ifdef WITH_ARRAYS
	uint64_t size = 0;
	uint32_t to[2];

	value = 1;
	assert_int_equal(arrays_of_file(&p->dq, &p->pages, all, 1, &value, to, &size), -ERANGE);
	assert_int_equal(value, 0); /* what cannot be had is T() */
	assert_int_equal(size, all);
	if (all)
		assert_int_equal(arrays_of_file(&p->dq, &p->pages, all - 1, 2, &value, to, &size), -ERANGE);
#endif
	assert_int_equal(gpunvme_page_get(&cached_file, pages, &page), -ERANGE);
	assert_int_equal(gpunvme_array_load(&cached_queue, 0, 4, &value), -EINVAL);
	assert_int_equal(gpunvme_array_load(&cached_volume, 0, 4, &value), -EINVAL);
}

static void check_paged(struct rig *r, struct gpunvme_file *file, const uint8_t *want, uint32_t flags, uint32_t page, uint64_t lba)
{
	struct gpunvme_cache_opts opts = { .size = sizeof(opts), .flags = flags, .page_size = page, .frames = 9, .lba = lba, .file = file };
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_cache *cache;
	struct paged p = { .dq = r->dq };

	assert_int_equal(gpunvme_file_get_info(file, &info), 0);
	p.bytes = info.bytes - lba * info.lba_size;
	p.want = want + lba * info.lba_size;
	if (gpunvme_cache_create(r->qp, &opts, &cache))
		fail_msg("%s", gpunvme_errmsg());
	assert_int_equal(gpunvme_cache_view(cache, &p.pages), 0);
	assert_int_equal(gpunvme_cpu_launch(LANES, r->width, paged_kernel, &p), 0);
	assert_int_equal(p.wrong, 0);
	assert_int_equal(p.answered, LANES * 24);
	check_ends(&p);
	assert_int_equal(gpunvme_cache_destroy(cache), 0);
}

/* Also a page that is all hole, one across many extents, and a file that ends within its first word or block. */
static void check_pages_of(struct rig *r, const char *path, const char *source, uint64_t lba)
{
	struct gpunvme_file *file;
	uint64_t bytes;
	uint8_t *want = load(source, &bytes);

	if (gpunvme_file_open(r->dev, path, NULL, &file))
		fail_msg("%s: %s", path, gpunvme_errmsg());
	check_paged(r, file, want, 0, 4096, 0);
	check_paged(r, file, want, GPUNVME_CACHE_LANDING, r->dq.lba_shift > 10 ? 8192 : 1024, lba);
	check_paged(r, file, want, GPUNVME_CACHE_LANDING, 65536, 0);
	gpunvme_file_close(file);
	free(want);
}

static void pages_of_files(void **state)
{
	static const struct { const char *lanes; uint32_t lba; } with[] = { { "cpu", 512 }, { "cpu:4", 512 }, { "cpu:4", 4096 } };
	struct rig r;

	(void)state;
	for (int i = 0; i < 3; i++) {
		make_image(with[i].lba > 1024 ? "-t ext4 -b 4096" : "-t ext4 -b 1024");
		rig_open(&r, with[i].lanes, with[i].lba, 0);
		check_pages_of(&r, "/plain", "plain", 3);
		check_pages_of(&r, "/short", "short", 0);
		check_pages_of(&r, "/sparse", "sparse", 1);
		check_pages_of(&r, "/fragmented", "fragmented", 5);
		check_pages_of(&r, "/unwritten", "short", 1);
		rig_close(&r);
	}
}

/* A queue that has not all blocks of the page begins no read; one that ends tells its reason, and the file's cache goes on by another. */
static void pages_by_other_queues(void **state)
{
	struct gpunvme_cache_opts opts = { .size = sizeof(opts), .flags = GPUNVME_CACHE_STATS, .frames = 2 };
	struct gpunvme_cache_info info = { .size = sizeof(info) };
	struct gpunvme_cache *cache = NULL;
	struct gpunvme_dpages pages;
	struct gpunvme_dq dq;
	uint32_t value;
	uint64_t bytes;
	uint8_t *want = load("fragmented", &bytes);
	struct rig r;
	const struct gpunvme_cached_file cached_file0 = { &dq, &pages };
	const struct gpunvme_cached_file cached_file1 = { &r.dq, &pages };

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gpunvme_file_open(r.dev, "/empty", NULL, &opts.file), 0);
	assert_int_equal(gpunvme_cache_create(r.qp, &opts, &cache), -ENODATA);
	gpunvme_file_close(opts.file);
	assert_int_equal(gpunvme_file_open(r.dev, "/fragmented", NULL, &opts.file), 0);
	opts.nsid = 2;
	assert_int_equal(gpunvme_cache_create(r.qp, &opts, &cache), -EINVAL);
	opts.nsid = 0;
	opts.lba = 782; /* of 400000 bytes */
	assert_int_equal(gpunvme_cache_create(r.qp, &opts, &cache), -ERANGE);
	assert_non_null(strstr(gpunvme_errmsg(), "not within the file of 782 blocks"));
	assert_null(cache);
	opts.lba = 0;
	assert_int_equal(gpunvme_cache_create(r.qp, &opts, &cache), 0);
	assert_int_equal(gpunvme_cache_view(cache, &pages), 0);
	dq = r.dq;
	dq.device++;
	assert_int_equal(gpunvme_array_load(&cached_file0, 0, 4, &value), -EXDEV);
	dq = r.dq;
	dq.nsid++;
	assert_int_equal(gpunvme_array_load(&cached_file0, 0, 4, &value), -EXDEV);
	dq = r.dq;
	dq.lba_count = 40;
	assert_int_equal(gpunvme_array_load(&cached_file0, 90000, 4, &value), -ERANGE);
	assert_int_equal(gpunvme_queue_stop(r.qp, 1), 0);
	assert_int_equal(gpunvme_array_load(&cached_file1, 90000, 4, &value), -ECANCELED);
	assert_int_equal(gpunvme_queue_stop(r.qp, 0), 0);
	assert_int_equal(gpunvme_cache_view(cache, &pages), 0);
	assert_int_equal(gpunvme_array_load(&cached_file1, 90000, 4, &value), 0);
	assert_memory_equal(&value, want + 360000, 4);
	assert_int_equal(gpunvme_cache_get_info(cache, &info), 0);
	assert_true(info.misses == 2 && info.failures == 1);
	assert_int_equal(gpunvme_cache_destroy(cache), 0);
	gpunvme_file_close(opts.file);
	rig_close(&r);
	free(want);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ext4_of_every_kind),
		cmocka_unit_test(sparse_and_huge),
		cmocka_unit_test(writes_in_place),
		cmocka_unit_test(files_of_another_drive),
		cmocka_unit_test(files_in_a_child),
		cmocka_unit_test(what_a_file_is),
		cmocka_unit_test(paths_and_files_are_refused),
		cmocka_unit_test(features_forbid_writing),
		cmocka_unit_test(blocks_that_lead_to_themselves),
		cmocka_unit_test(edited_maps),
		cmocka_unit_test(sizes_that_maps_claim),
		cmocka_unit_test(maps_of_what_must_not_be_written),
		cmocka_unit_test(what_stands_still),
		cmocka_unit_test(extents_as_room_allows),
		cmocka_unit_test(nothing_behind_the_end),
		cmocka_unit_test(maps),
		cmocka_unit_test(maps_of_xfs),
		cmocka_unit_test(maps_of_this_machine),
		cmocka_unit_test(damaged_images),
		cmocka_unit_test(pages_of_files),
		cmocka_unit_test(pages_by_other_queues),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
