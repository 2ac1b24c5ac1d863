/* SPDX-License-Identifier: MIT */
/* The images of a stage: how they are made, where each word of a window lies in them, and what they must have at the end. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "common/image.h"

#define BLOCK 512u
#define NAMESPACE_BYTES (2u << 20)
#define MEMBER_BYTES (256u << 10)
#define FILE_BYTES 160004u /* the last block has 260 bytes of it */
#define TAIL 0xa5	   /* what the image has after that */

static void shell(const char *command)
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
static void make_file_system(void)
{
	write_file("file.bin");
	shell("mkdir tree && for i in $(seq 100 199); do head -c 1024 /dev/zero >tree/$i; done");
	shell("mke2fs -q -F -t ext4 -b 1024 -d tree base.bin 4M && rm -r tree");
	shell("for i in $(seq 101 2 199); do echo rm $i; done >cmds.bin && echo write file.bin file >>cmds.bin");
	shell("debugfs -w -f cmds.bin base.bin >/dev/null 2>&1");
}

int stage_make(void **state)
{
	if (image_make_dir(state))
		return -1;
	if (STAGE_FILES)
		make_file_system();
	return 0;
}

int stage_remove(void **state)
{
	shell("rm -f *.bin *.img");
	return image_remove_dir(state);
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

static void store(const struct stage *s, uint32_t m, const char *mode)
{
	FILE *f = fopen(stage_path(s, m), mode);

	assert_non_null(f);
	assert_int_equal(fwrite(s->image[m], s->bytes[m], 1, f), 1);
	assert_int_equal(fclose(f), 0);
}

static void make_numbers(struct stage *s, uint32_t m)
{
	uint64_t word;

	s->bytes[m] = s->source == NAMESPACE ? NAMESPACE_BYTES : MEMBER_BYTES;
	s->image[m] = malloc(s->bytes[m]);
	assert_non_null(s->image[m]);
	for (word = 0; word < s->bytes[m] / 8; word++)
		memcpy(s->image[m] + 8 * word, &word, 8);
	store(s, m, "wb");
}

void images_make(struct stage *s)
{
	uint32_t m;

	if (s->source == OF_FILE) {
		shell("cp base.bin fs.img");
		s->image[0] = load(stage_path(s, 0), &s->bytes[0]);
	}
	for (m = 0; s->source != OF_FILE && m < stage_members(s); m++)
		make_numbers(s, m);
}

/* ---- Where words are ---- */

static bool where_in_file(const struct stage *s, uint64_t pos, uint64_t *at)
{
	const struct gpunvme_dextent *e = s->extent, *end = s->extent + s->extents;

	for (; e < end; e++)
		if (pos / BLOCK >= e->pos && pos / BLOCK - e->pos < e->nblocks) {
			*at = (e->lba - e->pos) * BLOCK + pos;
			return true;
		}
	return false;
}

bool stage_where(const struct stage *s, uint64_t word, uint32_t *member, uint64_t *at)
{
	uint64_t pos = s->lba * BLOCK + 8 * word, stripe = (uint64_t)s->stripe * BLOCK;

	*member = 0;
	*at = pos;
	if (s->source == OF_FILE)
		return where_in_file(s, pos, at);
	if (s->source == NAMESPACE)
		return true;
	*member = (uint32_t)(pos / stripe % STAGE_MEMBERS);
	*at = pos / stripe / STAGE_MEMBERS * stripe + pos % stripe;
	return true;
}

uint64_t word_of(const struct stage *s, uint64_t word, uint32_t version)
{
	uint64_t i = s->lba * BLOCK / 8 + word;

	return s->source == OF_FILE && is_hole(8 * i / 1024) ? 0 : i | (uint64_t)version << 32;
}

/* The image has the file's words where its extents say, and the volume's where its stripes say: these are put there. */
void images_place_words(struct stage *s)
{
	uint64_t i, at, word;
	uint32_t m;

	for (i = 0; i < s->words; i++) {
		if (!stage_where(s, i, &m, &at)) {
			assert_int_equal(word_of(s, i, 1), 0);
			continue;
		}
		word = word_of(s, i, 0);
		if (s->source != VOLUME)
			assert_memory_equal(s->image[m] + at, &word, 8);
		memcpy(s->image[m] + at, &word, 8);
	}
	if (s->source == OF_FILE && where_in_file(s, FILE_BYTES - 1, &at)) /* the rest of the last block */
		memset(s->image[0] + at + 1, TAIL, BLOCK - FILE_BYTES % BLOCK);
	for (m = 0; m < stage_members(s); m++)
		store(s, m, "r+b");
}

static void place_change(struct stage *s, uint64_t i)
{
	uint64_t at, word = word_of(s, i, s->version[i]);
	uint32_t m;

	if (!s->version[i] || !stage_where(s, i, &m, &at))
		return;
	memcpy(s->image[m] + at, &word, 8);
	if (s->source == OF_FILE && i / 64 == FILE_BYTES / BLOCK - s->lba) /* a block is written whole */
		memset(s->image[m] + at / BLOCK * BLOCK + FILE_BYTES % BLOCK, 0, BLOCK - FILE_BYTES % BLOCK);
}

void check_images(struct stage *s)
{
	uint8_t *data;
	size_t bytes;
	uint64_t i;
	uint32_t m;

	for (i = 0; i < s->words; i++)
		place_change(s, i);
	for (m = 0; m < stage_members(s); m++) {
		data = load(stage_path(s, m), &bytes);
		assert_int_equal(bytes, s->bytes[m]);
		for (i = 0; i < bytes && data[i] == s->image[m][i]; i++)
			;
		if (i < bytes)
			fail_msg("byte %llu of image %u is %02x, not %02x", (unsigned long long)i, m, data[i], s->image[m][i]);
		free(data);
	}
}
