/* SPDX-License-Identifier: MIT */
#include "sources.h"

#include <gpunvme/device.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/image.h"

#define BLOCK 512u
#define MEMBER_BYTES (256u << 10)
#define FILE_BYTES 160004u /* the last block has 260 bytes of it */
#define TAIL 0xa5	   /* what the image has behind that */
#define SEVERAL 20u	   /* extents, at least */

static const char *member_path(const struct sources *s, uint32_t m)
{
	static const char *const name[SOURCES_MEMBERS] = { "a.img", "b.img", "c.img" };

	return image_path(s->file ? "fs.img" : name[m]);
}

/* ---- Images ---- */

static void run(const char *command)
{
	char all[1024];

	snprintf(all, sizeof(all), "cd %s && PATH=$PATH:/sbin:/usr/sbin && %s", image_dir, command);
	if (system(all))
		fail_msg("failed: %s", all);
}

/* Of blocks of 1 KiB: some, and two whole pages, were never written. */
static bool is_hole(uint64_t kib)
{
	return kib % 7 == 3 || kib % 7 == 4 || kib / 8 == 5;
}

static void write_file(const char *name)
{
	FILE *f = fopen(image_path(name), "wb");
	uint64_t i;

	assert_non_null(f);
	for (i = 0; i < FILE_BYTES / 8; i++) {
		assert_int_equal(fseek(f, (long)(8 * i), SEEK_SET), 0);
		if (!is_hole(8 * i / 1024))
			assert_int_equal(fwrite(&i, sizeof(i), 1, f), 1);
	}
	assert_int_equal(fseek(f, FILE_BYTES - 1, SEEK_SET), 0);
	assert_int_equal(fputc(0, f), 0);
	assert_int_equal(fclose(f), 0);
}

/* Small files fill the beginning, every second one goes, and the file takes their places. */
int sources_make(void **state)
{
	if (image_make_dir(state))
		return -1;
	write_file("file.bin");
	run("mkdir tree && for i in $(seq 100 199); do head -c 1024 /dev/zero >tree/$i; done");
	run("mke2fs -q -F -t ext4 -b 1024 -d tree base.bin 4M && rm -r tree");
	run("for i in $(seq 101 2 199); do echo rm $i; done >cmds.bin && echo write file.bin file >>cmds.bin");
	run("debugfs -w -f cmds.bin base.bin >/dev/null 2>&1");
	return 0;
}

int sources_remove(void **state)
{
	run("rm -f *.bin *.img");
	return image_remove_dir(state);
}

static void make_images(const struct sources *s)
{
	uint64_t word;
	uint32_t m;
	FILE *f;

	if (s->file)
		run("cp base.bin fs.img");
	for (m = 0; !s->file && m < SOURCES_MEMBERS; m++) {
		f = fopen(member_path(s, m), "wb");
		assert_non_null(f);
		for (word = 0; word < MEMBER_BYTES / 8; word++)
			assert_int_equal(fwrite(&word, sizeof(word), 1, f), 1);
		assert_int_equal(fclose(f), 0);
	}
}

static uint8_t *load(const char *path, size_t *bytes)
{
	FILE *f = fopen(path, "rb");
	uint8_t *data;

	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	*bytes = (size_t)ftell(f);
	rewind(f);
	data = malloc(*bytes);
	assert_non_null(data);
	assert_int_equal(fread(data, *bytes, 1, f), 1);
	fclose(f);
	return data;
}

static void store(const struct sources *s, uint32_t m)
{
	FILE *f = fopen(member_path(s, m), "r+b");

	assert_non_null(f);
	assert_int_equal(fwrite(s->image[m], s->bytes[m], 1, f), 1);
	assert_int_equal(fclose(f), 0);
}

/* ---- Where words are ---- */

static bool where_in_file(const struct sources *s, uint64_t pos, uint64_t *at)
{
	const struct gpunvme_dextent *e = s->extent, *end = s->extent + s->extents;

	for (; e < end; e++)
		if (pos / BLOCK >= e->pos && pos / BLOCK - e->pos < e->nblocks) {
			*at = (e->lba - e->pos) * BLOCK + pos;
			return true;
		}
	return false;
}

bool sources_where(const struct sources *s, uint64_t word, uint32_t *member, uint64_t *at)
{
	uint64_t pos = s->lba * BLOCK + 8 * word, stripe = (uint64_t)s->stripe * BLOCK;

	*member = 0;
	if (s->file)
		return where_in_file(s, pos, at);
	*member = (uint32_t)(pos / stripe % SOURCES_MEMBERS);
	*at = pos / stripe / SOURCES_MEMBERS * stripe + pos % stripe;
	return true;
}

uint64_t sources_word(const struct sources *s, uint64_t word, uint32_t version)
{
	uint64_t i = s->lba * BLOCK / 8 + word;

	return s->file && is_hole(8 * i / 1024) ? 0 : i | (uint64_t)version << 32;
}

/* The image has the file's words where its extents say, and the volume's where its stripes say: these are put there. */
static void place_words(struct sources *s)
{
	uint64_t i, at, word;
	uint32_t m;

	for (i = 0; i < s->words; i++) {
		if (!sources_where(s, i, &m, &at)) {
			assert_int_equal(sources_word(s, i, 1), 0);
			continue;
		}
		word = sources_word(s, i, 0);
		if (s->file)
			assert_memory_equal(s->image[m] + at, &word, 8);
		memcpy(s->image[m] + at, &word, 8);
	}
	if (s->file && where_in_file(s, FILE_BYTES - 1, &at)) /* the rest of the last block */
		memset(s->image[0] + at + 1, TAIL, BLOCK - FILE_BYTES % BLOCK);
	for (m = 0; m < (s->file ? 1 : SOURCES_MEMBERS); m++)
		store(s, m);
}

void sources_check(struct sources *s)
{
	uint64_t i, at, word;
	uint8_t *data;
	size_t bytes;
	uint32_t m;

	for (i = 0; s->version && i < s->words; i++)
		if (s->version[i] && sources_where(s, i, &m, &at)) {
			word = sources_word(s, i, s->version[i]);
			memcpy(s->image[m] + at, &word, 8);
			if (s->file && i / 64 == FILE_BYTES / BLOCK - s->lba) /* a block is written whole */
				memset(s->image[m] + at / BLOCK * BLOCK + FILE_BYTES % BLOCK, 0, BLOCK - FILE_BYTES % BLOCK);
		}
	for (m = 0; m < (s->file ? 1 : SOURCES_MEMBERS); m++) {
		data = load(member_path(s, m), &bytes);
		assert_int_equal(bytes, s->bytes[m]);
		for (i = 0; i < bytes && data[i] == s->image[m][i]; i++)
			;
		if (i < bytes)
			fail_msg("byte %llu of image %u is %02x, not %02x", (unsigned long long)i, m, data[i], s->image[m][i]);
		free(data);
	}
}

/* ---- Devices and caches ---- */

static void open_file(struct sources *s)
{
	const struct gpunvme_file_opts opts = { sizeof(opts), s->flags & GPUNVME_PAGECACHE_WRITE_BACK ? GPUNVME_FILE_WRITE : 0, 0, 0, 0 };
	struct gpunvme_qp_opts qp = GPUNVME_QP_OPTS_INIT;

	qp.depth = 64;
	qp.cmd_timeout_ms = s->timeout_ms ? s->timeout_ms : 60000;
	assert_int_equal(gpunvme_qp_create(s->dev[0], s->gpu, &qp, &s->qp), 0);
	if (gpunvme_file_open(s->dev[0], "/file", &opts, &s->of_file))
		fail_msg("%s", gpunvme_errmsg());
	s->extents = SOURCES_EXTENTS;
	assert_int_equal(gpunvme_file_get_extents(s->of_file, 0, s->extent, &s->extents), 0);
	assert_true(s->extents >= SEVERAL && s->extents < SOURCES_EXTENTS);
	s->words = (FILE_BYTES - s->lba * BLOCK) / 8;
}

static void open_volume(struct sources *s)
{
	struct gpunvme_volume_opts opts = GPUNVME_VOLUME_OPTS_INIT;
	struct gpunvme_volume_info info = { .size = sizeof(info) };

	s->stripe = s->stripe ? s->stripe : 8;
	opts.queues = s->queues ? s->queues : 1;
	opts.stripe = s->stripe;
	opts.depth = 64;
	opts.cmd_timeout_ms = s->timeout_ms ? s->timeout_ms : 60000;
	assert_int_equal(gpunvme_volume_create(s->dev, SOURCES_MEMBERS, s->gpu, &opts, &s->vol), 0);
	assert_int_equal(gpunvme_volume_get_info(s->vol, &info), 0);
	s->words = (info.nblocks - s->lba) * BLOCK / 8;
}

void sources_open_devices(struct sources *s, const char *keys)
{
	char uri[512];
	uint32_t m;

	make_images(s);
	for (m = 0; m < (s->file ? 1 : SOURCES_MEMBERS); m++) {
		snprintf(uri, sizeof(uri), "soft:%s%s", member_path(s, m), keys);
		assert_int_equal(gpunvme_dev_open(uri, NULL, &s->dev[m]), 0);
		s->image[m] = load(member_path(s, m), &s->bytes[m]);
	}
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &s->gpu), 0);
	if (s->file)
		open_file(s);
	else
		open_volume(s);
	place_words(s);
	s->version = calloc(s->words, sizeof(*s->version));
	assert_non_null(s->version);
}

void sources_view(struct sources *s)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	view.flags = GPUNVME_VIEW_WRITE;
	if (s->file)
		assert_int_equal(gpunvme_qp_view(s->qp, &view, &s->dq), 0);
	else
		assert_int_equal(gpunvme_volume_view(s->vol, &view, &s->v), 0);
	assert_int_equal(gpunvme_pagecache_view(s->cache, &s->pages), 0);
}

void sources_open(struct sources *s, const char *keys)
{
	struct gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;

	sources_open_devices(s, keys);
	opts.flags = GPUNVME_PAGECACHE_STATS | s->flags;
	opts.page_size = s->page_size;
	opts.frames = s->frames;
	opts.lba = s->lba;
	opts.file = s->of_file;
	opts.volume = s->vol;
	if (gpunvme_pagecache_create(s->file ? s->dev[0] : NULL, s->gpu, &opts, &s->cache))
		fail_msg("%s", gpunvme_errmsg());
	sources_view(s);
}

void sources_close(struct sources *s)
{
	uint32_t m;

	if (s->file)
		assert_int_equal(gpunvme_qp_destroy(s->qp), 0);
	else
		assert_int_equal(gpunvme_volume_destroy(s->vol), 0);
	if (gpunvme_pagecache_destroy(s->cache))
		fail_msg("%s", gpunvme_errmsg());
	gpunvme_file_close(s->of_file);
	gpunvme_gpu_close(s->gpu);
	for (m = 0; m < (s->file ? 1 : SOURCES_MEMBERS); m++) {
		assert_int_equal(gpunvme_dev_close(s->dev[m]), 0);
		free(s->image[m]);
	}
	free(s->version);
}

struct gpunvme_pagecache_info sources_info(struct sources *s)
{
	struct gpunvme_pagecache_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_pagecache_get_info(s->cache, &info), 0);
	return info;
}

void sources_run(struct sources *s, void (*kernel)(void *))
{
	assert_int_equal(gpunvme_cpu_launch(s->lanes, s->width, kernel, s), 0);
	assert_int_equal(s->wrong, 0);
}

void sources_note(struct sources *s, bool right)
{
	if (!right)
		__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&s->asked, 1, __ATOMIC_RELAXED);
}
