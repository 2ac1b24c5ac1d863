/* SPDX-License-Identifier: MIT */
/*
 * Many files as one table, from images that the file system's own tools have made of a folder, and that they dump again: a thread
 * for each file reads all of it, by number and by the hash of its name, and has what they dumped.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "common/shell.h"
#include "file/file.h"
#include "file/file_map.h"

#define SMALL 60	 /* files in a folder of their own */
#define AREA (512 * 1024) /* of a thread in the buffer: room for the largest file */
#define LANES 128u
#define UMLAUT "deep/deeper/\xc3\xbcml\xc3\xa4ut \xe2\x9c\x93"
/* Names with one hash: FNV-1a of both is 4eac0c95540867e4h. */
#define TWIN "8yn0iYCKYHlIj4-BwPqk"
#define OTHER_TWIN "GReLUrM4wMqfg9yzV3KQ"

static void fill(const char *name, uint64_t from, uint64_t len)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/tree/%s", image_dir, name);
	f = fopen(path, access(path, F_OK) ? "w" : "r+");
	assert_non_null(f);
	assert_int_equal(fseek(f, (long)from, SEEK_SET), 0);
	for (uint64_t i = from; i < from + len; i++)
		fputc((int)(i * 2654435761u >> 13 ^ i >> 9 ^ len) & 0xff, f);
	assert_int_equal(fclose(f), 0);
}

static int make_tree(void **state)
{
	char name[64];

	if (image_make_dir(state))
		return -1;
	run("mkdir -p %s/tree/deep/deeper %s/tree/gaps %s/tree/nothing/here", image_dir, image_dir, image_dir);
	run("cd %s/tree && : >empty && mkfifo pipe && ln -s plain link && ln -s deep way", image_dir);
	fill("plain", 0, 300001);
	fill("sparse", 8192, 5000);
	fill("sparse", 200000, 70000);
	fill(UMLAUT, 0, 20000);
	fill(TWIN, 0, 700);
	fill(OTHER_TWIN, 0, 900);
	for (int i = 0; i < SMALL; i++) {
		snprintf(name, sizeof(name), "gaps/%02d", i);
		fill(name, 0, 3000 + (uint64_t)i);
	}
	run("cd %s/tree && ln plain deep/again", image_dir);
	return 0;
}

static int remove_tree(void **state)
{
	run("rm -rf %s/tree %s/dump %s/*.img", image_dir, image_dir, image_dir);
	return image_remove_dir(state);
}

#define UUID "01020304-0506-0708-090a-0b0c0d0e0f10"

/* Every second small file goes, and a large one takes their places. */
static void make_image(const char *options)
{
	FILE *f;

	run("cd %s && rm -rf fs.img dump && PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -U %s -d tree %s fs.img 12M", image_dir, UUID,
	    options);
	f = fopen(image_path("cmds.img"), "w");
	assert_non_null(f);
	for (int i = 1; i < SMALL; i += 2)
		fprintf(f, "rm gaps/%02d\n", i);
	fprintf(f, "write tree/plain fragmented\n");
	fclose(f);
	run("cd %s && PATH=$PATH:/sbin:/usr/sbin debugfs -w -f cmds.img fs.img >debugfs.img 2>&1", image_dir);
}

static void debugfs(const char *commands)
{
	run("cd %s && printf '%s' >cmds.img && PATH=$PATH:/sbin:/usr/sbin debugfs -w -f cmds.img fs.img >debugfs.img 2>&1", image_dir,
	    commands);
}

/* ---- Threads ---- */

#define RIG_BYTES (LANES * (AREA + 4096))
#include "soft/file_rig.h"

struct job {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfiles files;
	uint64_t done[LANES], hash[LANES];
	int status[LANES], by_hash;
};

static GPUNVME_DEVICE void read_all(void *arg)
{
	struct job *j = (struct job *)arg;
	uint32_t l = gpunvme_thread_id(), number = l;
	struct gpunvme_dfile file;
	struct gpunvme_cursor cur = { &j->dq, &file, (uint64_t)LANES * AREA + 4096ull * l, 0, 7, 0 }; /* the hint is of another file */
	int ret = j->by_hash ? gpunvme_files_find_hash(&j->files, j->hash[l], &number) : 0;

	if (!ret)
		ret = gpunvme_files_get(&j->files, number, &file);
	if (!ret)
		ret = gpunvme_read(&cur, &j->dbuf, (uint64_t)l * AREA, 0, AREA);
	j->done[l] = cur.done;
	j->status[l] = ret;
}

static uint8_t *dumped(const char *name, uint64_t *bytes)
{
	char path[300];
	uint8_t *data;
	FILE *f;

	snprintf(path, sizeof(path), "%s/dump/%s", image_dir, name);
	f = fopen(path, "r");
	if (!f)
		fail_msg("debugfs has no %s", path);
	data = malloc(AREA + 1);
	assert_non_null(data);
	*bytes = fread(data, 1, AREA + 1, f);
	fclose(f);
	return data;
}

static void check_lanes(struct rig *r, struct gpunvme_file *files, int by_hash)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file_entry e = { .size = sizeof(e) };
	struct job *j = calloc(1, sizeof(*j));

	assert_non_null(j);
	*j = (struct job){ .dq = r->dq, .dbuf = r->dbuf, .by_hash = by_hash };
	assert_int_equal(gpunvme_file_view(files, r->gpu, &j->files), 0);
	assert_int_equal(gpunvme_file_get_info(files, &info), 0);
	assert_true(info.files <= LANES);
	for (uint32_t i = 0; i < info.files; i++) {
		assert_int_equal(gpunvme_file_get_entry(files, i, &e), 0);
		j->hash[i] = e.hash;
	}
	memset(gpunvme_mem_ptr(r->mem), 0xa5, (size_t)LANES * AREA);
	assert_int_equal(gpunvme_cpu_launch(info.files, 4, read_all, j), 0);
	for (uint32_t i = 0; i < info.files; i++) {
		const uint8_t *got = (uint8_t *)gpunvme_mem_ptr(r->mem) + (size_t)i * AREA;
		uint64_t bytes;
		uint8_t *want;

		assert_int_equal(gpunvme_file_get_entry(files, i, &e), 0);
		if (by_hash && (strcmp(e.name, TWIN) == 0 || strcmp(e.name, OTHER_TWIN) == 0)) {
			assert_int_equal(j->status[i], -GPUNVME_ENOTUNIQ);
			continue;
		}
		want = dumped(e.name, &bytes);
		if (j->status[i] || j->done[i] != bytes || bytes != e.bytes || memcmp(want, got, bytes) != 0)
			fail_msg("%u, %s: %d, %llu of %llu bytes", i, e.name, j->status[i], (unsigned long long)j->done[i],
				 (unsigned long long)bytes);
		assert_int_equal(got[bytes], 0xa5);
		free(want);
	}
	free(j);
}

/* ---- Tables ---- */

static struct gpunvme_file *open_all(struct rig *r, const char *path)
{
	struct gpunvme_file *files;

	if (gpunvme_file_open_set(r->dev, &path, 1, NULL, &files))
		fail_msg("%s: %s", path, gpunvme_errmsg());
	return files;
}

/* All that the folder has, but for what is no file. */
static void all_files(const char *options, uint32_t lba)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file_entry e = { .size = sizeof(e) };
	char before[64] = "";
	struct gpunvme_file *files;
	struct rig r;

	make_image(options);
	run("cd %s && mkdir dump && PATH=$PATH:/sbin:/usr/sbin debugfs -R 'rdump / dump' fs.img >debugfs.img 2>&1", image_dir);
	rig_open(&r, "cpu:4", lba, 0);
	files = open_all(&r, "/");
	assert_int_equal(gpunvme_file_get_info(files, &info), 0);
	for (uint8_t i = 0; i < sizeof(info.uuid); i++)
		assert_int_equal(info.uuid[i], i + 1);
	assert_int_equal(info.files, SMALL / 2 + 8); /* two of equal hash, again, umlaut, empty, fragmented, plain, sparse */
	assert_int_equal(info.skipped, 0);
	assert_true(info.gpu_bytes <= 64ull * info.files + 24ull * info.extents);
	assert_true(info.extents >= 3 && info.bytes > 900000 && info.lba_size == lba && !info.writable);
	assert_string_equal(info.fs, "ext4");
	for (uint32_t i = 0; i < info.files; i++) {
		uint32_t number = 999;

		assert_int_equal(gpunvme_file_get_entry(files, i, &e), 0);
		assert_true(strcmp(before, e.name) < 0 && e.name[0] == '/' && e.name[1] != '/');
		assert_int_equal(gpunvme_files_hash(e.name, strlen(e.name)), e.hash);
		snprintf(before, sizeof(before), "%s", e.name);
		assert_int_equal(gpunvme_file_find(files, e.name, &number), 0);
		assert_int_equal(number, i);
	}
	check_lanes(&r, files, 0);
	check_lanes(&r, files, 1);
	gpunvme_file_close(files);
	rig_close(&r);
}

static void tables_of_every_kind(void **state)
{
	(void)state;
	all_files("-t ext4 -b 4096", 4096);
	all_files("-t ext4 -b 1024 -O ^metadata_csum,^64bit", 512);
	all_files("-t ext2 -b 1024 -O ^filetype", 512);
}

static int ask(struct rig *r, struct gpunvme_file *files, uint64_t hash)
{
	struct job *j = calloc(1, sizeof(*j));
	int ret;

	assert_non_null(j);
	*j = (struct job){ .dq = r->dq, .dbuf = r->dbuf, .by_hash = 1, .hash = { hash } };
	assert_int_equal(gpunvme_file_view(files, r->gpu, &j->files), 0);
	assert_int_equal(gpunvme_cpu_launch(1, 1, read_all, j), 0);
	ret = j->status[0];
	j->files.head.kind = GPUNVME_KIND_FILE;
	assert_int_equal(gpunvme_cpu_launch(1, 1, read_all, j), 0);
	assert_int_equal(j->status[0], -GPUNVME_EINVAL);
	j->files.head.version++;
	assert_int_equal(gpunvme_cpu_launch(1, 1, read_all, j), 0);
	assert_int_equal(j->status[0], -GPUNVME_EPROTONOSUPPORT);
	free(j);
	return ret;
}

/* A list has the numbers that it has; names that are there twice are one for a look-up by name. */
static void lists(void **state)
{
	const char *const paths[] = { "plain", TWIN, "/way/../empty", OTHER_TWIN, "plain", "link", "nothing", "deep/" };
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file_entry e = { .size = sizeof(e) };
	struct gpunvme_file *files;
	uint32_t number = 999;
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024");
	run("cd %s && mkdir dump && PATH=$PATH:/sbin:/usr/sbin debugfs -R 'rdump / dump' fs.img >debugfs.img 2>&1 && ln -s deep dump/way",
	    image_dir);
	rig_open(&r, "cpu:4", 512, 0);
	assert_int_equal(gpunvme_file_open_set(r.dev, paths, 8, NULL, &files), 0);
	assert_int_equal(gpunvme_file_get_info(files, &info), 0);
	assert_int_equal(info.files, 8); /* the directory "nothing" has none, "deep/" two */
	for (uint32_t i = 0; i < 6; i++) {
		assert_int_equal(gpunvme_file_get_entry(files, i, &e), 0);
		assert_string_equal(e.name, paths[i]);
	}
	assert_int_equal(gpunvme_file_get_entry(files, 6, &e), 0);
	assert_string_equal(e.name, "deep/again");
	assert_int_equal(gpunvme_file_get_entry(files, 8, &e), -ENOENT);
	check_lanes(&r, files, 0);
	check_lanes(&r, files, 1);
	assert_int_equal(gpunvme_file_find(files, "plain", &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(gpunvme_file_find(files, TWIN, &number), 0);
	assert_int_equal(number, 1);
	assert_int_equal(gpunvme_file_find(files, OTHER_TWIN, &number), 0);
	assert_int_equal(number, 3);
	assert_int_equal(gpunvme_file_find(files, "absent", &number), -ENOENT);
	assert_int_equal(number, 3);
	assert_int_equal(ask(&r, files, gpunvme_files_hash("absent", 6)), -GPUNVME_ENOENT);
	assert_int_equal(ask(&r, files, 0), -GPUNVME_ENOENT);
	assert_int_equal(ask(&r, files, ~0ull), -GPUNVME_ENOENT);
	assert_int_equal(ask(&r, files, 0x4eac0c95540867e4ull), -GPUNVME_ENOTUNIQ);
	gpunvme_file_close(files);
	files = open_all(&r, "/nothing");
	assert_int_equal(gpunvme_file_get_info(files, &info), 0);
	assert_int_equal(info.files + info.extents + info.gpu_bytes, 0);
	assert_int_equal(ask(&r, files, 0), -GPUNVME_ENOENT);
	gpunvme_file_close(files);
	rig_close(&r);
}

/*
 * Of a list, and all of one large directory, whose last name would have it read whole, each time: more reads than a file system that
 * leads in circles gets.
 */
static void long_lists(void **state)
{
	enum { NAMES = 2000, PATHS = 80000 };
	static const char *paths[PATHS];
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *files;
	char last[256];
	struct rig r;

	(void)state;
	run("mkdir -p %s/wide/d && cd %s/wide/d && seq -f '%%0120.0f' 1 %u | xargs touch && echo x >../short", image_dir, image_dir, NAMES);
	run("cd %s && rm -f fs.img && PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -d wide -t ext4 -b 1024 -N 4000 fs.img 12M && rm -r wide",
	    image_dir);
	rig_open(&r, "cpu", 512, 0);
	snprintf(last, sizeof(last), "d/%0120u", NAMES);
	for (uint32_t i = 0; i < PATHS; i++)
		paths[i] = last;
	paths[PATHS - 1] = "short";
	assert_int_equal(gpunvme_file_open_set(r.dev, paths, PATHS, NULL, &files), 0);
	assert_int_equal(gpunvme_file_get_info(files, &info), 0);
	assert_int_equal(info.files, PATHS);
	assert_int_equal(info.bytes, 2);
	gpunvme_file_close(files);
	paths[PATHS - 1] = "d/absent";
	assert_int_equal(gpunvme_file_open_set(r.dev, paths, PATHS, NULL, &files), -ENOENT);
	assert_non_null(strstr(gpunvme_errmsg(), "d/absent is not there"));
	rig_close(&r);
}

/* ---- Refusals ---- */

static void refused(struct rig *r, const char *path, uint32_t flags, int error, const char *words)
{
	const struct gpunvme_file_opts opts = { .size = sizeof(opts), .flags = flags };
	const char *const paths[] = { "/plain", path };
	struct gpunvme_file *files = NULL;
	int ret = gpunvme_file_open_set(r->dev, paths, 2, &opts, &files);

	if (ret != error || !strstr(gpunvme_errmsg(), words) || files)
		fail_msg("%s: %d instead of %d: %s", path, ret, error, gpunvme_errmsg());
}

static void what_is_refused(void **state)
{
	struct gpunvme_file *files = NULL;
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024");
	debugfs("sif gaps/04 flags 0x80010\nln deep deep/deeper/round\nmkdir torn\nzap_block -f torn -p 255 0\n");
	rig_open(&r, "cpu", 512, 0);
	refused(&r, "/absent", 0, -ENOENT, "/absent is not there");
	refused(&r, "/pipe", 0, -EOPNOTSUPP, "/pipe is no regular file");
	refused(&r, "/../plain", 0, -EINVAL, "leaves the root");
	refused(&r, "/gaps", GPUNVME_FILE_WRITE, -EOPNOTSUPP, "/gaps/04: the file cannot be written in place: it is immutable");
	refused(&r, "/deep", 0, -EUCLEAN, "two names, or leads in circles");
	refused(&r, "/torn", 0, -EUCLEAN, "a directory cannot be read");
	refused(&r, "/gaps", 8, -EINVAL, "unknown file flags");
	refused(&r, NULL, 0, -EINVAL, "name 1 is NULL");
	assert_int_equal(gpunvme_file_open_set(r.dev, (const char *const[]){ "/" }, 0, NULL, &files), -EINVAL);
	assert_null(files);
	rig_close(&r);
}

static uint64_t block_of(const char *name, int number)
{
	static const char *const format = "cd %s && PATH=$PATH:/sbin:/usr/sbin debugfs -R 'bmap %s %d' fs.img 2>debugfs.img";
	unsigned long long block = 0;
	char command[256];
	FILE *f;

	snprintf(command, sizeof(command), format, image_dir, name, number);
	f = popen(command, "r");
	assert_non_null(f);
	assert_int_equal(fscanf(f, "%llu", &block), 1);
	assert_int_equal(pclose(f), 0);
	return block;
}

static void point(FILE *f, uint64_t block, uint32_t pointers, uint64_t to)
{
	uint32_t all[256] = { 0 };

	for (uint32_t i = 0; i < pointers; i++)
		all[i] = (uint32_t)to;
	assert_int_equal(fseek(f, (long)block * 1024, SEEK_SET), 0);
	assert_int_equal(fwrite(all, sizeof(all), 1, f), 1);
}

/*
 * In 12 MiB a directory of @dind times 256 blocks, which are all the same one with names of @len bytes, and @deep names of 200 bytes
 * above it. Its first blocks are as they were: in others "." is a name.
 */
static void make_endless(unsigned deep, uint32_t dind, unsigned len)
{
	uint64_t block, ind;
	FILE *f;

	run("cd %s && rm -rf odd fs.img && mkdir -p odd/many && yes | head -c 2048 >odd/pointers && cd odd/many && "
	    "seq -f %%0%u.0f 1 %u | xargs touch", image_dir, len, len > 9 ? 40 : 200);
	run("cd %s/odd && p=$(printf %%0200d 0) && for i in $(seq %u); do mkdir $p && cd $p || exit 1; done", image_dir, deep);
	run("cd %s && PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -t ext2 -b 1024 -d odd fs.img 12M && rm -r odd", image_dir);
	block = block_of("/many", 1);
	ind = block_of("/pointers", 0);
	f = fopen(image_path("fs.img"), "r+");
	assert_non_null(f);
	point(f, ind, 256, block);
	point(f, ind + 1, dind, ind);
	fclose(f);
	run("cd %s && p=/$(printf %%0200d 0) && q= && for i in $(seq %u); do q=$q$p; done && { echo ln /many $q/m && echo unlink /many && "
	    "echo \"sif $q/m block[IND] %llu\" && echo \"sif $q/m block[DIND] %llu\"; } >cmds.img && "
	    "PATH=$PATH:/sbin:/usr/sbin debugfs -w -f cmds.img fs.img >debugfs.img 2>&1", image_dir, deep, (unsigned long long)ind,
	    (unsigned long long)ind + 1);
}

static void refused_at_once(const char *const *paths, uint32_t count, int error, const char *words)
{
	struct gpunvme_file *files = NULL;
	struct rig r;

	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gpunvme_file_open_set(r.dev, paths, count, NULL, &files), error);
	assert_null(files);
	if (!strstr(gpunvme_errmsg(), words))
		fail_msg("%s", gpunvme_errmsg());
	rig_close(&r);
}

/* Blocks that a directory has many times are no reason to take the host's memory: for names, for files, for a directory of a list. */
static void endless_directories(void **state)
{
	const char *const root = "/", *const list[2] = { "/m/001", "/m/002" };
	char one[256], other[256];

	(void)state;
	make_endless(19, 3, 3);
	refused_at_once(&root, 1, -E2BIG, "the names of the files take more than 160 MiB");
	make_endless(0, 64, 3);
	refused_at_once(&root, 1, -EUCLEAN, "more names than");
	refused_at_once(list, 2, -EUCLEAN, "more names than");
	make_endless(0, 80, 200); /* names of 16 MB, not many */
	snprintf(one, sizeof(one), "/m/%0200d", 1);
	snprintf(other, sizeof(other), "/m/%0200d", 2);
	refused_at_once((const char *const[]){ one, other }, 2, -E2BIG, "the names of the files take more than 13 MiB");
}

/* Files without blocks of their own: refused by name, or left out. */
static void left_out(void **state)
{
	const char *const root = "/", *const list[] = { "plain", "gaps/04", "sparse" };
	const struct gpunvme_file_opts skip = { .size = sizeof(skip), .flags = GPUNVME_FILE_SKIP };
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *files;
	uint32_t number;
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024 -O encrypt");
	debugfs("sif gaps/04 flags 0x80800\n");
	run("cd %s && mkdir dump && PATH=$PATH:/sbin:/usr/sbin debugfs -R 'rdump / dump' fs.img >debugfs.img 2>&1", image_dir);
	rig_open(&r, "cpu", 512, 0);
	refused(&r, "/gaps", 0, -EOPNOTSUPP, "/gaps/04 is encrypted");
	assert_int_equal(gpunvme_file_open_set(r.dev, &root, 1, &skip, &files), 0);
	assert_int_equal(gpunvme_file_get_info(files, &info), 0);
	assert_int_equal(info.files, SMALL / 2 + 7);
	assert_int_equal(info.skipped, 1);
	assert_int_equal(gpunvme_file_find(files, "/gaps/04", &number), -ENOENT);
	assert_int_equal(gpunvme_file_find(files, "/gaps/06", &number), 0);
	check_lanes(&r, files, 1);
	gpunvme_file_close(files);
	assert_int_equal(gpunvme_file_open_set(r.dev, list, 3, &skip, &files), 0);
	assert_int_equal(gpunvme_file_get_info(files, &info), 0);
	assert_int_equal(info.files, 2);
	assert_int_equal(info.skipped, 1);
	assert_int_equal(gpunvme_file_find(files, "sparse", &number), 0);
	assert_int_equal(number, 1);
	gpunvme_file_close(files);
	rig_close(&r);
}

struct steps {
	uint64_t calls, done, total, end_at;
};

static int step(void *ctx, uint64_t done, uint64_t total)
{
	struct steps *s = ctx;

	assert_true(done >= s->done || total != s->total);
	s->done = done;
	s->total = total;
	return ++s->calls == s->end_at ? 77 : 0;
}

static void progress(void **state)
{
	const char *const root = "/";
	struct steps s = { 0 };
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	struct gpunvme_file *files = NULL;
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	opts.progress = step;
	opts.ctx = &s;
	s.end_at = 1;
	assert_int_equal(gpunvme_file_open_set(r.dev, &root, 1, &opts, &files), 77);
	assert_string_equal(gpunvme_errmsg(), "the caller's progress function ended the call");
	assert_null(files);
	s = (struct steps){ 0 };
	assert_int_equal(gpunvme_file_open_set(r.dev, &root, 1, &opts, &files), 0);
	assert_true(s.calls && s.done == SMALL / 2 + 8 && s.total == s.done);
	gpunvme_file_close(files);
	rig_close(&r);
}

static int end_by(void *ctx, uint64_t done, uint64_t total)
{
	(void)done, (void)total;
	return *(int *)ctx;
}

/* ---- Maps ---- */

static const struct gpunvme_file_opts of_map = { .size = sizeof(of_map), .how = GPUNVME_FILE_MAP };

/* With a word of file_map.c for why it must not be written, or "ok". */
static char *map_of(struct rig *r, const char *path, const char *word)
{
	struct gnv_map map = { .file = gnv_extents_new(), .serial = "TEST", .bytes = 12u << 20 };
	struct gpunvme_file *file;
	struct gnv_reader reader;
	char *text;

	assert_int_equal(gnv_reader_open(r->dev, 0, &reader), 0);
	assert_int_equal(gnv_super_read(&reader, &map.super), 0);
	assert_int_equal(gpunvme_file_open(r->dev, path, NULL, &file), 0);
	for (uint32_t i = 0; i < file->extents; i++) {
		const struct gpunvme_dextent *e = &file->extent[i];

		assert_int_equal(gnv_extents_add(map.file, e->pos * 512, e->lba * 512, e->nblocks * 512), 0);
	}
	map.file->info = file->info;
	map.file->unwritable = gnv_map_reason(word);
	assert_int_equal(gnv_map_write(&map, &text), 0);
	gnv_extents_free(map.file);
	gpunvme_file_close(file);
	gnv_reader_close(&reader);
	return text;
}

/* What the progress function returns is returned as such, without an older error message. */
static void ended_maps(struct rig *r, const char *text)
{
	static const int answers[] = { 77, -EINTR };
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	const char *texts[512]; /* it is asked at each 512th */
	struct gpunvme_file *files = NULL;
	int answer;

	for (int i = 0; i < 512; i++)
		texts[i] = text;
	opts.how = GPUNVME_FILE_MAP;
	opts.progress = end_by;
	opts.ctx = &answer;
	for (int i = 0; i < 2; i++) {
		answer = answers[i];
		assert_int_equal(gpunvme_file_open_set(r->dev, (const char *const[]){ "absent" }, 1, NULL, &files), -ENOENT);
		assert_int_equal(gpunvme_file_open_set(r->dev, texts, 512, &opts, &files), answer);
		assert_string_equal(gpunvme_errmsg(), "the caller's progress function ended the call");
		assert_null(files);
	}
}

static void tables_of_maps(void **state)
{
	const char *const names[] = { "fragmented", "sparse", UMLAUT }, *texts[3], *const damaged[2] = { "hello", "hello" };
	const struct gpunvme_file_opts named = { .size = sizeof(named), .how = GPUNVME_FILE_MAP, .names = names };
	struct gpunvme_file_entry e = { .size = sizeof(e) };
	struct gpunvme_file *files;
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024");
	run("cd %s && mkdir dump && PATH=$PATH:/sbin:/usr/sbin debugfs -R 'rdump / dump' fs.img >debugfs.img 2>&1", image_dir);
	rig_open(&r, "cpu:4", 512, 0);
	for (int i = 0; i < 3; i++)
		texts[i] = map_of(&r, names[i], "ok");
	assert_int_equal(gpunvme_file_open_set(r.dev, texts, 3, &named, &files), 0);
	check_lanes(&r, files, 0);
	check_lanes(&r, files, 1);
	gpunvme_file_close(files);
	assert_int_equal(gpunvme_file_open_set(r.dev, texts, 3, &of_map, &files), 0);
	assert_int_equal(gpunvme_file_get_entry(files, 2, &e), 0);
	assert_null(e.name);
	assert_int_equal(e.bytes, 20000);
	assert_int_equal(ask(&r, files, 0), -GPUNVME_ENOENT);
	gpunvme_file_close(files);
	files = NULL;
	ended_maps(&r, texts[0]);
	assert_int_equal(gpunvme_file_open_set(r.dev, damaged, 2, &of_map, &files), -EINVAL);
	assert_string_equal(gpunvme_errmsg(), "map 0: this is no map of a file: make the map again by `gpunvme extents FILE`");
	rig_close(&r);
	debugfs("ssv mnt_count 9\n");
	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gpunvme_file_open_set(r.dev, texts, 3, &of_map, &files), -ESTALE);
	assert_null(files);
	rig_close(&r);
	for (int i = 0; i < 3; i++)
		free((char *)(uintptr_t)texts[i]);
}

/* One of them that must not be written is enough; to read, it is none. */
static void maps_for_writing(void **state)
{
	static const struct {
		const char *word, *reason;
	} words[] = { { "shared", "it shares blocks with another file" }, { "verity", "fs-verity protects it" }, { "immutable", "it is immutable" } };
	const struct gpunvme_file_opts writing = { .size = sizeof(writing), .flags = GPUNVME_FILE_WRITE, .how = GPUNVME_FILE_MAP };
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *files = NULL;
	const char *texts[2];
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	texts[0] = map_of(&r, "plain", "ok");
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		texts[1] = map_of(&r, "sparse", words[i].word);
		assert_int_equal(gpunvme_file_open_set(r.dev, texts, 2, &writing, &files), -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), words[i].reason));
		assert_non_null(strstr(gpunvme_errmsg(), "map 1: "));
		assert_null(files);
		assert_int_equal(gpunvme_file_open_set(r.dev, texts, 2, &of_map, &files), 0);
		gpunvme_file_close(files);
		files = NULL;
		free((char *)(uintptr_t)texts[1]);
	}
	assert_int_equal(gpunvme_file_open_set(r.dev, texts, 1, &writing, &files), 0);
	assert_int_equal(gpunvme_file_get_info(files, &info), 0);
	assert_int_equal(info.writable, 1);
	gpunvme_file_close(files);
	rig_close(&r);
	free((char *)(uintptr_t)texts[0]);
}

static int refused_in_child(struct rig *r, struct gpunvme_file *files)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file_entry e = { .size = sizeof(e) };
	struct gpunvme_dfiles dfiles;
	uint32_t number;

	if (gpunvme_file_get_info(files, &info) != -ECHILD || gpunvme_file_get_entry(files, 0, &e) != -ECHILD)
		return __LINE__;
	if (gpunvme_file_find(files, "/plain", &number) != -ECHILD)
		return __LINE__;
	if (gpunvme_file_close(files) != -ECHILD)
		return __LINE__;
	return gpunvme_file_view(files, r->gpu, &dfiles) == -ECHILD ? 0 : __LINE__;
}

static void says(int ret, int want, const char *words)
{
	if (ret != want || !strstr(gpunvme_errmsg(), words))
		fail_msg("%d, not %d with '%s': %s", ret, want, words, gpunvme_errmsg());
}

/* A set of one file is a file; of others there is no view as one, and no page cache. */
static void one_or_many(void **state)
{
	const char *const one = "/plain", *const all = "/";
	struct gpunvme_cache_opts of = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_cache *cache;
	struct gpunvme_file *alone, *set;
	struct gpunvme_dextent a[4], b[4];
	struct gpunvme_dfile view, same;
	uint32_t number = 9, n = 4, m = 4;
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	assert_int_equal(gpunvme_file_open(r.dev, one, NULL, &alone), 0);
	assert_int_equal(gpunvme_file_find(alone, one, &number), 0);
	assert_int_equal(number, 0);
	assert_int_equal(gpunvme_file_view(alone, r.gpu, &view), 0);
	assert_int_equal(gpunvme_file_open_set(r.dev, &one, 1, NULL, &set), 0);
	assert_int_equal(gpunvme_file_view(set, r.gpu, &same), 0);
	assert_int_equal(same.bytes, view.bytes);
	assert_int_equal(same.extents, view.extents);
	assert_memory_equal((const void *)(uintptr_t)view.table, (const void *)(uintptr_t)same.table, view.extents * sizeof(a[0]));
	gpunvme_file_close(set);
	set = open_all(&r, all);
	says(gpunvme_file_view(set, r.gpu, &same), -EINVAL, "use a struct gpunvme_dfiles");
	of.file = set;
	says(gpunvme_cache_create(r.qp, &of, &cache), -EINVAL, "a cache is over one file");
	assert_int_equal(gpunvme_file_find(set, one, &number), 0);
	assert_int_equal(gpunvme_file_get_extents(alone, 0, a, &n), 0);
	assert_int_equal(gpunvme_file_get_extents(set, number, b, &m), 0);
	assert_true(n && n == m);
	assert_memory_equal(a, b, n * sizeof(a[0]));
	says(gpunvme_file_get_extents(alone, 1, a, &n), -ENOENT, "no file 1");
	says(gpunvme_file_view_v(set, r.gpu, GPUNVME_KIND_QUEUE, &view, 0, sizeof(view)), -EINVAL, "no view of kind");
	gpunvme_file_close(set);
	gpunvme_file_close(alone);
	rig_close(&r);
}

/* Options that one way of opening has, and another has not. */
static void options_that_do_not_fit(void **state)
{
	static const char *const plain = "/plain";
	static const struct {
		struct gpunvme_file_opts opts;
		const char *words;
	} wrong[] = {
		{ { .how = 3 }, "no way to open files" },
		{ { .flags = GPUNVME_FILE_SKIP }, "unknown file flags" },
		{ { .how = GPUNVME_FILE_MAP, .partition = 1 }, "partition must be 0" },
		{ { .how = GPUNVME_FILE_MOUNTED, .partition = 1 }, "partition must be 0" },
		{ { .names = &plain }, "names are for maps" },
		{ { .how = GPUNVME_FILE_MOUNTED, .flags = GPUNVME_FILE_WRITE }, "under a lease only" },
	};
	struct gpunvme_file_opts opts;
	struct gpunvme_file *file = NULL;
	uint32_t count = 0;
	struct rig r;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		opts = wrong[i].opts;
		opts.size = sizeof(opts);
		says(gpunvme_file_open(r.dev, plain, &opts, &file), -EINVAL, wrong[i].words);
		assert_null(file);
		if (opts.flags || opts.how)
			says(gpunvme_file_list(r.dev, "/", &opts, NULL, &count), -EINVAL, "must be 0");
	}
	opts.flags = 4;
	says(gpunvme_file_open_set(r.dev, &plain, 1, &opts, &file), -EINVAL, "unknown file flags");
	says(gpunvme_file_open_set(r.dev, (const char *const[]){ plain, NULL }, 2, NULL, &file), -EINVAL, "name 1 is NULL");
	assert_null(file);
	rig_close(&r);
}

static void views(void **state)
{
	struct gpunvme_dfiles dfiles, again;
	struct gpunvme_file *files;
	struct rig r;
	int status;
	pid_t pid;

	(void)state;
	make_image("-t ext4 -b 1024");
	rig_open(&r, "cpu", 512, 0);
	files = open_all(&r, "/");
	assert_int_equal(gpunvme_file_view_v(files, r.gpu, GPUNVME_KIND_FILES, &dfiles, 99u << 16, sizeof(dfiles)), -EPROTONOSUPPORT);
	assert_int_equal(gpunvme_file_view(files, r.gpu, &dfiles), 0);
	assert_int_equal(gpunvme_file_view(files, r.gpu, &again), 0);
	assert_memory_equal(&dfiles, &again, sizeof(dfiles)); /* one copy for each GPU */
	for (uint32_t i = 0; i < ((const uint32_t *)(uintptr_t)dfiles.bucket)[1u << (64 - dfiles.bucket_shift)]; i++)
		assert_int_equal(((const struct gpunvme_dname *)(uintptr_t)dfiles.name)[i].reserved, 0);
	pid = fork();
	if (!pid) {
		alarm(60); /* a child that hangs is ended */
		_exit(refused_in_child(&r, files) ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(gpunvme_file_close(files), 0);
	assert_int_equal(gpunvme_file_close(NULL), 0);
	rig_close(&r);
}

/* Bytes of the metadata are anything: each call ends, and returns. */
static void damaged_images(void **state)
{
	uint64_t random = 77;
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	const char *const root = "/";
	struct gpunvme_file *files;
	struct rig r;
	FILE *f;
	int opened = 0;

	(void)state;
	opts.flags = GPUNVME_FILE_SKIP;
	make_image("-t ext4 -b 1024 -O ^metadata_csum");
	for (int i = 0; i < 25; i++) {
		f = fopen(image_path("fs.img"), "r+");
		assert_non_null(f);
		for (int k = 0; k < 10; k++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			assert_int_equal(fseek(f, (long)(4096 + (random >> 33) % (12u << 16)), SEEK_SET), 0);
			assert_int_equal(fwrite(&random, 4, 1, f), 1);
		}
		fclose(f);
		rig_open(&r, "cpu", 512, 0);
		if (!gpunvme_file_open_set(r.dev, &root, 1, &opts, &files)) {
			opened++;
			gpunvme_file_close(files);
		}
		rig_close(&r);
	}
	assert_true(opened > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(tables_of_every_kind),
		cmocka_unit_test(lists),
		cmocka_unit_test(long_lists),
		cmocka_unit_test(what_is_refused),
		cmocka_unit_test(endless_directories),
		cmocka_unit_test(left_out),
		cmocka_unit_test(progress),
		cmocka_unit_test(tables_of_maps),
		cmocka_unit_test(one_or_many),
		cmocka_unit_test(options_that_do_not_fit),
		cmocka_unit_test(maps_for_writing),
		cmocka_unit_test(views),
		cmocka_unit_test(damaged_images),
	};

	return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
