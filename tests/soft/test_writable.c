/* SPDX-License-Identifier: MIT */
/*
 * Page caches whose pages lanes change: every 8 bytes of the image are their own number, until a lane puts a version of them there.
 * Small caches under many lanes, writes that fail or never end, queues that are recovered, flushes that race with puts; and what
 * lies in the image afterwards.
 */
#include <gpunvme/device_writable.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "arrays.h"
#include "common/image.h"

#define IMAGE_BYTES (1u << 20)
#define WORDS (IMAGE_BYTES / 8u)
#define LANES_MOST 128u

static uint32_t way; /* GPUNVME_PAGECACHE_LANDING: frames are two; 0: as the lanes have it, which is in place */

struct stage {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_qp *qp;
	struct gpunvme_pagecache *cache;
	struct gpunvme_dq dq;
	struct gpunvme_dpages pages;
	uint32_t lanes, width, rounds, timeout_ms, frames, page_size;
	uint64_t lba; /* of the cache's window */
	uint32_t wrong, asked; /* atomic */
	uint32_t *version; /* of each word; its lane's alone */
	int ret[LANES_MOST];
};

static uint64_t word_of(uint64_t i, uint32_t version)
{
	return i | (uint64_t)version << 32;
}

static void write_image(void)
{
	FILE *f = fopen(image_path("disk.img"), "wb");
	uint64_t i;

	assert_non_null(f);
	for (i = 0; i < WORDS; i++)
		assert_int_equal(fwrite(&i, sizeof(i), 1, f), 1);
	assert_int_equal(fclose(f), 0);
}

/* What the drive has is what lanes have put. */
static void check_image(const struct stage *s)
{
	FILE *f = fopen(image_path("disk.img"), "rb");
	uint64_t i, word;

	assert_non_null(f);
	for (i = 0; i < WORDS; i++) {
		assert_int_equal(fread(&word, sizeof(word), 1, f), 1);
		assert_int_equal(word, word_of(i, s->version ? s->version[i] : 0));
	}
	fclose(f);
}

static void view_stage(struct stage *s)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_qp_view(s->qp, &view, &s->dq), 0);
	assert_int_equal(gpunvme_pagecache_view(s->cache, &s->pages), 0);
}

static void open_stage(struct stage *s, const char *keys)
{
	struct gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;
	struct gpunvme_qp_opts qp = GPUNVME_QP_OPTS_INIT;
	char uri[512];

	write_image();
	s->version = calloc(WORDS, sizeof(*s->version));
	assert_non_null(s->version);
	snprintf(uri, sizeof(uri), "soft:%s%s", image_path("disk.img"), keys);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &s->dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &s->gpu), 0);
	qp.depth = 64;
	qp.cmd_timeout_ms = s->timeout_ms ? s->timeout_ms : 60000;
	assert_int_equal(gpunvme_qp_create(s->dev, s->gpu, &qp, &s->qp), 0);
	opts.flags = GPUNVME_PAGECACHE_STATS | GPUNVME_PAGECACHE_WRITE_BACK | way;
	opts.page_size = s->page_size ? s->page_size : 4096;
	opts.frames = s->frames;
	opts.lba = s->lba;
	assert_int_equal(gpunvme_pagecache_create(s->dev, s->gpu, &opts, &s->cache), 0);
	view_stage(s);
	assert_int_equal(s->pages.local != 0, way != 0);
}

static struct gpunvme_pagecache_info info_of(struct stage *s)
{
	struct gpunvme_pagecache_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_pagecache_get_info(s->cache, &info), 0);
	return info;
}

/* Nobody has a page but its changes, nobody reads or writes one, and what is not there was not changed. */
static void check_quiet(struct stage *s)
{
	const uint64_t *word = (const uint64_t *)(uintptr_t)s->pages.table, *frame = (const uint64_t *)(uintptr_t)s->pages.frame;
	const uint64_t *parts = frame + 2 * s->pages.frames;
	uint64_t i, refs = 0, changed = 0;

	for (i = 0; i < info_of(s).pages; i++) {
		refs += (word[i] & GPUNVME_PAGE_REFS) / GPUNVME_PAGE_REF;
		assert_true((word[i] & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_EMPTY || (word[i] & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_VALID);
	}
	for (i = 0; i < s->pages.frames; i++) {
		assert_true(frame[i] <= info_of(s).pages || frame[i] == GPUNVME_FRAME_LOST);
		if (!parts[i])
			continue;
		changed++;
		assert_int_equal(word[frame[i] - 1] >> GPUNVME_PAGE_FRAME_SHIFT, i);
		assert_int_equal(word[frame[i] - 1] & GPUNVME_PAGE_REFS, GPUNVME_PAGE_REF);
	}
	assert_int_equal(refs, changed);
	assert_int_equal(info_of(s).changed, changed);
	assert_int_equal(((const struct gpunvme_pagecache_state *)(uintptr_t)s->pages.state)->changed, changed);
}

static void close_stage(struct stage *s)
{
	assert_int_equal(gpunvme_qp_destroy(s->qp), 0);
	assert_int_equal(gpunvme_pagecache_destroy(s->cache), 0);
	gpunvme_gpu_close(s->gpu);
	gpunvme_dev_close(s->dev);
	free(s->version);
}

/* Everything is written, and the drive has it. */
static void flush_and_close(struct stage *s)
{
	check_quiet(s);
	if (info_of(s).changed)
		assert_int_equal(gpunvme_pagecache_destroy(s->cache), -EBUSY);
	assert_int_equal(gpunvme_pagecache_flush(s->cache), 0);
	assert_int_equal(info_of(s).changed, 0);
	check_image(s);
	close_stage(s);
}

static void run(struct stage *s, void (*kernel)(void *))
{
	memset(s->ret, 0, sizeof(s->ret));
	assert_int_equal(gpunvme_cpu_launch(s->lanes, s->width, kernel, s), 0);
}

static void note(struct stage *s, bool right)
{
	if (!right)
		__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&s->asked, 1, __ATOMIC_RELAXED);
}

static uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33);
}

/* A word of this lane's, of a page that all use: number from the window's first. */
static uint64_t draw(struct stage *s, uint64_t *seed)
{
	uint64_t words = WORDS - s->lba * 64;

	return (next_random(seed) % (words / s->lanes)) * s->lanes + gpunvme_lane();
}

/* ---- Elements and pages ---- */

static void change_by_page(struct stage *s, uint64_t i, uint64_t value, uint64_t was)
{
	struct gpunvme_page page = { 0, 0 };
	uint32_t shift = s->pages.page_shift, offset = (uint32_t)(i * 8 & ((1ull << shift) - 1));
	int ret;

	do
		ret = gpunvme_writable_page_get(&s->dq, &s->pages, i * 8 >> shift, &page);
	while (ret == -GPUNVME_EAGAIN);
	note(s, !ret && gnvd_ld64(page.base + offset) == was);
	if (ret)
		return;
	gnvd_st64(page.base + offset, value);
	note(s, !gpunvme_writable_page_put(&s->dq, &s->pages, &page, offset, 8));
}

/* Each lane changes words of its own, and finds in them what it has put last, whoever had the page meanwhile. */
static void change_words(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_lane() + 1, value, i, base = s->lba * 64;
	uint32_t round, half;

	for (round = 0; round < s->rounds; round++) {
		i = draw(s, &seed);
		value = 0;
		note(s, !gpunvme_writable_array_get(&s->dq, &s->pages, i, 8, &value) && value == word_of(base + i, s->version[base + i]));
		s->version[base + i]++;
		half = s->version[base + i];
		value = word_of(base + i, half);
		if (round % 3 == 0)
			note(s, !gpunvme_array_put(&s->dq, &s->pages, i, 8, &value));
		else if (round % 3 == 1)
			note(s, !gpunvme_array_put(&s->dq, &s->pages, 2 * i + 1, 4, &half));
		else
			change_by_page(s, i, value, word_of(base + i, half - 1));
	}
}

static void changes(uint32_t lanes, uint32_t width, uint32_t page_size, uint32_t frames, uint64_t lba)
{
	struct stage s = { .lanes = lanes, .width = width, .rounds = 20, .page_size = page_size, .frames = frames, .lba = lba };

	open_stage(&s, "");
	run(&s, change_words);
	assert_int_equal(s.wrong, 0);
	assert_true(info_of(&s).writes > 0 && info_of(&s).changed > 0);
	assert_int_equal(info_of(&s).write_failures, 0);
	flush_and_close(&s);
}

static void changes_are_kept(void **state)
{
	(void)state;
	changes(16, 1, 512, 40, 0);
	changes(16, 4, 4096, 36, 3);
	changes(8, 8, 65536, 3, 0);
}

static void two_frames_serve_many_lanes(void **state)
{
	(void)state;
	changes(8, 8, 4096, 2, 0);
	changes(24, 1, 512, 2, 3);
	changes(6, 2, 4096, 1, 0);
}

/* ---- Ranges ---- */

#define RANGE 300u

/* A lane has a part of the window for itself; its ranges cross pages, and those of its neighbours share its first and last. */
static void change_ranges(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_lane() + 77, words = WORDS / s->lanes, first, k, count, of[RANGE], to[RANGE];
	uint32_t round;
	bool right;

	for (round = 0; round < s->rounds; round++) {
		count = next_random(&seed) % RANGE + 1;
		first = gpunvme_lane() * words + next_random(&seed) % (words - count);
		for (k = 0; k < count; k++)
			of[k] = word_of(first + k, ++s->version[first + k]);
		note(s, !gpunvme_array_put_range(&s->dq, &s->pages, first, count, 8, of));
		right = !gpunvme_writable_array_get_range(&s->dq, &s->pages, first, count, 8, to);
		note(s, right && !memcmp(to, of, count * 8));
	}
}

static void ranges_cross_pages(void **state)
{
	struct stage s = { .lanes = 12, .width = 4, .rounds = 10, .page_size = 512, .frames = 8 };

	(void)state;
	open_stage(&s, "");
	run(&s, change_ranges);
	assert_int_equal(s.wrong, 0);
	flush_and_close(&s);
}

#ifdef WITH_ARRAYS
static void change_by_array(void *arg)
{
	struct stage *s = arg;
	uint64_t from[700], k;

	for (k = 0; k < 700; k++)
		from[k] = word_of(1001 + k, 1);
	note(s, !arrays_change(&s->dq, &s->pages, 1000, 700, word_of(1000, 1), from));
	for (k = 1000; k <= 1700; k++)
		s->version[k] = 1;
	note(s, arrays_change(&s->dq, &s->pages, WORDS - 1, 1, word_of(WORDS - 1, 2), from) == -GPUNVME_ERANGE);
	s->version[WORDS - 1] = 2;
	note(s, arrays_change(&s->dq, &s->pages, WORDS, 0, 0, from) == -GPUNVME_ERANGE);
}

static void arrays_are_changed(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 3 };

	(void)state;
	open_stage(&s, "");
	run(&s, change_by_array);
	assert_int_equal(s.wrong, 0);
	flush_and_close(&s);
}
#endif

/* ---- Only what was changed ---- */

static void change_one(void *arg)
{
	struct stage *s = arg;
	uint64_t value = word_of(1000, 1);

	note(s, !gpunvme_array_put(&s->dq, &s->pages, 1000, 8, &value));
	s->version[1000] = 1;
}

/* Words of other blocks of its page, which somebody else writes meanwhile, are left alone. */
static void other_blocks_are_left_alone(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 4 };
	const uint64_t value = word_of(513, 7);
	FILE *f;

	(void)state;
	open_stage(&s, "");
	run(&s, change_one);
	f = fopen(image_path("disk.img"), "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, 513 * 8, SEEK_SET), 0);
	assert_int_equal(fwrite(&value, sizeof(value), 1, f), 1);
	fclose(f);
	s.version[513] = 7;
	assert_int_equal(info_of(&s).changed, 1);
	flush_and_close(&s);
}

/* ---- Flush from a kernel ---- */

/* The first lanes put, the others flush meanwhile; at last all flush, and nothing is left. */
static void change_and_flush(void *arg)
{
	struct stage *s = arg;
	uint32_t round, half = s->lanes / 2;
	int ret;

	if (gpunvme_lane() < half)
		change_words(arg);
	for (round = 0; gpunvme_lane() >= half && round < s->rounds; round++) {
		ret = gpunvme_writable_flush(&s->dq, &s->pages, gpunvme_lane() - half, half);
		note(s, ret == 0 || ret == -GPUNVME_EAGAIN);
	}
}

static void flush_shares(void *arg)
{
	struct stage *s = arg;

	note(s, !gpunvme_writable_flush(&s->dq, &s->pages, gpunvme_lane(), s->lanes));
}

static void flushes(uint32_t lanes, uint32_t width, uint32_t frames)
{
	struct stage s = { .lanes = lanes, .width = width, .rounds = 20, .frames = frames };

	open_stage(&s, "");
	run(&s, change_and_flush);
	assert_int_equal(s.wrong, 0);
	run(&s, flush_shares);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(info_of(&s).changed, 0);
	check_image(&s);
	flush_and_close(&s);
}

static void flushes_race_with_puts(void **state)
{
	(void)state;
	flushes(16, 8, 24);
	flushes(12, 1, 5);
	flushes(8, 4, 3);
}

/* A page that a lane has is passed by, and its caller told. */
static void flush_what_is_had(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_page page = { 0, 0 };
	struct gpunvme_dq narrow = s->dq;

	change_one(arg);
	note(s, !gpunvme_writable_page_get(&s->dq, &s->pages, 1000 / 512, &page));
	note(s, gpunvme_writable_flush(&s->dq, &s->pages, 0, 1) == -GPUNVME_EAGAIN);
	note(s, gpunvme_writable_page_put(&s->dq, &s->pages, &page, 4096, 1) == -GPUNVME_ERANGE);
	note(s, !gpunvme_writable_page_put(&s->dq, &s->pages, &page, 0, 0));
	note(s, gpunvme_writable_page_put(&s->dq, &s->pages, &page, 0, 0) == -GPUNVME_ESTALE);
	note(s, gpunvme_writable_flush(&s->dq, &s->pages, 1, 1) == -GPUNVME_EINVAL);
	narrow.flags &= ~(uint32_t)GPUNVME_DQ_WRITE;
	note(s, gpunvme_writable_flush(&narrow, &s->pages, 0, 1) == -GPUNVME_EROFS);
	narrow = s->dq;
	narrow.lba_count = 8;
	note(s, gpunvme_writable_flush(&narrow, &s->pages, 0, 1) == -GPUNVME_ERANGE);
	note(s, !gpunvme_writable_flush(&s->dq, &s->pages, 0, 1));
}

static void pages_that_lanes_have_are_passed_by(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 4 };

	(void)state;
	open_stage(&s, "");
	run(&s, flush_what_is_had);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(info_of(&s).changed, 0);
	flush_and_close(&s);
}

/* ---- Failures ---- */

#define BAD 100u /* the page of blocks 800 to 807 */

/* That page cannot be written: it stays, with what it has, and all others come and go. */
static void change_past_a_bad_page(void *arg)
{
	struct stage *s = arg;
	uint64_t i = (512 * BAD / s->lanes + 1) * s->lanes + gpunvme_lane(), value = word_of(i, 9);

	note(s, !gpunvme_array_put(&s->dq, &s->pages, i, 8, &value));
	s->version[i] = 9;
	change_words(arg);
	value = 0;
	note(s, !gpunvme_writable_array_get(&s->dq, &s->pages, i, 8, &value) && value == word_of(i, s->version[i]));
}

static void failed_writes_keep_their_page(void **state)
{
	struct stage s = { .lanes = 12, .width = 4, .rounds = 20, .frames = 8 };

	(void)state;
	open_stage(&s, "?fault=status:0x280:op=write:lba=800-807");
	run(&s, change_past_a_bad_page);
	assert_int_equal(s.wrong, 0);
	assert_true(info_of(&s).write_failures > 0 && info_of(&s).writes > 0);
	assert_int_equal(info_of(&s).lost, 0);
	run(&s, flush_shares);
	assert_true(s.wrong > 0);
	assert_int_equal(gpunvme_pagecache_flush(s.cache), 0x280);
	assert_non_null(strstr(gpunvme_errmsg(), "page 100 of the cache"));
	assert_int_equal(info_of(&s).changed, 1);
	check_quiet(&s);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_pagecache_flush"));
	assert_int_equal(gpunvme_pagecache_discard(s.cache), 0);
	memset(s.version + 512 * BAD, 0, 512 * sizeof(*s.version));
	check_image(&s);
	close_stage(&s);
}

/* A cache of one frame that cannot be written has no room, and says why. */
static void ask_for_room(void *arg)
{
	struct stage *s = arg;
	uint64_t value = word_of(512 * BAD, 1);

	note(s, !gpunvme_array_put(&s->dq, &s->pages, 512 * BAD, 8, &value));
	note(s, gpunvme_writable_array_get(&s->dq, &s->pages, 0, 8, &value) == 0x280);
	note(s, !gpunvme_writable_array_get(&s->dq, &s->pages, 512 * BAD, 8, &value) && value == word_of(512 * BAD, 1));
}

static void who_finds_no_room_is_told_why(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 1 };

	(void)state;
	open_stage(&s, "?fault=status:0x280:op=write:lba=800-807");
	run(&s, ask_for_room);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(gpunvme_pagecache_discard(s.cache), 0);
	check_image(&s);
	close_stage(&s);
}

/* Until the first failure, which comes. What could not be put keeps its version. */
static void change_until_the_end(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_lane() + 5, value, i;
	int ret;

	do {
		i = draw(s, &seed);
		value = word_of(i, s->version[i] + 1);
		ret = gpunvme_array_put(&s->dq, &s->pages, i, 8, &value);
		s->version[i] += !ret;
	} while (!ret);
	s->ret[gpunvme_lane()] = ret;
}

/* A write is never answered, and its queue ends: everything that was put is there still, and is flushed after the recovery. */
static void changes_outlive_the_queue(void **state)
{
	struct stage s = { .lanes = 16, .width = 4, .timeout_ms = 2000, .frames = 40, .rounds = 4 };
	uint32_t i;

	(void)state;
	open_stage(&s, "?fault=lose:op=write:after=1:count=1");
	run(&s, change_until_the_end);
	for (i = 0; i < s.lanes; i++)
		assert_true(s.ret[i] == -GPUNVME_ETIMEDOUT || s.ret[i] == -GPUNVME_ESHUTDOWN || s.ret[i] == -GPUNVME_EAGAIN);
	assert_true(info_of(&s).lost > 0 && info_of(&s).changed > 0);
	check_quiet(&s);
	assert_int_equal(gpunvme_pagecache_flush(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_qp_recover"));
	assert_true(info_of(&s).changed > 0);
	assert_int_equal(gpunvme_qp_recover(s.qp), 0);
	view_stage(&s);
	assert_int_equal(info_of(&s).lost, 0);
	s.dq.cmd_timeout *= 100; /* two seconds may be too little on a busy machine */
	run(&s, change_words);
	assert_int_equal(s.wrong, 0);
	flush_and_close(&s);
}

static void *run_until_the_end(void *arg)
{
	run(arg, change_until_the_end);
	return NULL;
}

static void changes_outlive_a_stop(void **state)
{
	struct stage s = { .lanes = 16, .width = 4, .frames = 8 };
	pthread_t thread;
	uint32_t i;

	(void)state;
	open_stage(&s, "?fault=delay:3000:op=write");
	assert_int_equal(pthread_create(&thread, NULL, run_until_the_end, &s), 0);
	for (i = 0; i < 60000 && info_of(&s).writes < 50; i++)
		usleep(1000);
	gpunvme_qp_stop(s.qp, 1);
	pthread_join(thread, NULL);
	for (i = 0; i < s.lanes; i++)
		assert_true(s.ret[i] == -GPUNVME_ECANCELED || s.ret[i] == -GPUNVME_EAGAIN);
	assert_int_equal(gpunvme_qp_recover(s.qp), 0);
	view_stage(&s);
	assert_int_equal(info_of(&s).lost, 0);
	flush_and_close(&s);
}

static void change_and_give_up(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq hasty = s->dq;

	hasty.cmd_timeout = 100 * hasty.ticks_per_ms;
	change_one(arg);
	note(s, gpunvme_writable_flush(&hasty, &s->pages, 0, 1) == -GPUNVME_ETIMEDOUT);
}

/* Forgotten before its old write is over, the page would be written anew, and the old write come over that. */
static void what_is_given_up_is_not_forgotten(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .timeout_ms = 2000, .frames = 4 };

	(void)state;
	open_stage(&s, "?fault=lose:op=write:count=1");
	run(&s, change_and_give_up);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(gpunvme_pagecache_discard(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_qp_recover"));
	assert_int_equal(info_of(&s).changed, 1);
	check_quiet(&s);
	assert_int_equal(gpunvme_qp_recover(s.qp), 0);
	assert_int_equal(gpunvme_pagecache_discard(s.cache), 0);
	assert_int_equal(info_of(&s).lost, 0);
	s.version[1000] = 0;
	check_quiet(&s);
	check_image(&s);
	close_stage(&s);
}

/* ---- What is left ---- */

static void change_and_keep(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_page page = { 0, 0 };

	change_one(arg);
	note(s, !gpunvme_writable_page_get(&s->dq, &s->pages, 1000 / 512, &page));
}

/* A kernel that was killed had a page, or wrote it: no flush writes that beside it, and it can be forgotten. */
static void what_a_killed_kernel_leaves(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 4 };
	uint64_t *word;

	(void)state;
	open_stage(&s, "");
	run(&s, change_one);
	word = (uint64_t *)(uintptr_t)s.pages.table + 1000 / 512;
	*word += GPUNVME_PAGE_WRITING - GPUNVME_PAGE_VALID;
	assert_int_equal(gpunvme_pagecache_flush(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_pagecache_discard"));
	assert_int_equal(gpunvme_pagecache_discard(s.cache), 0);
	assert_int_equal(info_of(&s).lost, 1);
	view_stage(&s);
	assert_int_equal(info_of(&s).lost, 0);
	s.version[1000] = 0;
	check_quiet(&s);
	run(&s, change_and_keep);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(gpunvme_pagecache_discard(s.cache), 0);
	assert_int_equal(*word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS), GPUNVME_PAGE_VALID | GPUNVME_PAGE_REF);
	s.version[1000] = 0;
	check_image(&s);
	close_stage(&s);
}

static void get_one(void *arg)
{
	struct stage *s = arg;
	uint64_t value = 0;

	note(s, !gpunvme_writable_array_get(&s->dq, &s->pages, 1000, 8, &value) && value == word_of(1000, s->version[1000]));
}

/*
 * Killed behind the end of a write, or before it has looked for changes: the page has none, and is WRITING. Who asks would wait until
 * it is late; a discard gives it back, also where it is one of many.
 */
static void clean_pages_are_given_back(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 2000, .page_size = 512 };
	uint64_t *word;

	(void)state;
	open_stage(&s, "");
	run(&s, change_one);
	assert_int_equal(gpunvme_pagecache_flush(s.cache), 0);
	word = (uint64_t *)(uintptr_t)s.pages.table + 1000 / 64;
	assert_int_equal(*word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS), GPUNVME_PAGE_VALID);
	*word += GPUNVME_PAGE_WRITING - GPUNVME_PAGE_VALID;
	assert_int_equal(gpunvme_pagecache_discard(s.cache), 0);
	assert_int_equal(*word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS), GPUNVME_PAGE_VALID);
	run(&s, get_one);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(info_of(&s).lost, 0);
	check_quiet(&s);
	check_image(&s);
	close_stage(&s);
}

/* ---- While the host writes ---- */

static void *flush_slowly(void *arg)
{
	struct stage *s = arg;
	int ret = gpunvme_pagecache_flush(s->cache);

	__atomic_store_n(&s->ret[0], ret ? ret : 1, __ATOMIC_RELEASE);
	return NULL;
}

static void change_four(void *arg)
{
	struct stage *s = arg;
	uint64_t value, i;

	for (i = 0; i < 4 * 512; i += 512) {
		s->version[i]++;
		value = word_of(i, s->version[i]);
		note(s, !gpunvme_array_put(&s->dq, &s->pages, i, 8, &value));
	}
}

/* Who asks how the cache is doing does not wait for the drive. Where this thread slept until all was written it tries again. */
static void flushes_keep_nobody_waiting(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 8 };
	struct gpunvme_dpages pages;
	pthread_t thread;
	bool told = false;
	uint32_t turn;

	(void)state;
	open_stage(&s, "?fault=delay:150000:op=write");
	for (turn = 0; turn < 10 && !told; turn++) {
		run(&s, change_four);
		assert_int_equal(pthread_create(&thread, NULL, flush_slowly, &s), 0);
		while (!__atomic_load_n(&s.ret[0], __ATOMIC_ACQUIRE) && info_of(&s).changed > 3)
			usleep(1000);
		assert_int_equal(gpunvme_pagecache_view(s.cache, &pages), 0);
		told = info_of(&s).changed && !__atomic_load_n(&s.ret[0], __ATOMIC_ACQUIRE);
		pthread_join(thread, NULL);
		assert_int_equal(s.ret[0], 1);
	}
	assert_true(told);
	assert_int_equal(s.wrong, 0);
	check_image(&s);
	close_stage(&s);
}

static void changes_outlive_no_device(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 4 };

	(void)state;
	open_stage(&s, "");
	run(&s, change_one);
	assert_int_equal(gpunvme_qp_destroy(s.qp), 0);
	gpunvme_dev_close(s.dev);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), -EBUSY);
	assert_int_equal(gpunvme_pagecache_flush(s.cache), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_pagecache_discard"));
	assert_int_equal(gpunvme_pagecache_discard(s.cache), 0);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), 0);
	gpunvme_gpu_close(s.gpu);
	free(s.version);
}

/* ---- Bad input ---- */

static void ask_at_the_ends(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq reads = s->dq;
	struct gpunvme_dpages alien = s->pages, plain = s->pages;
	uint64_t words = WORDS - s->lba * 64, value = 7;
	struct gpunvme_page page = { 0, 0 };

	reads.flags &= ~(uint32_t)GPUNVME_DQ_WRITE;
	alien.magic = GPUNVME_DPAGES_FILE_MAGIC;
	plain.flags = 0;
	note(s, gpunvme_writable_array_get(&reads, &s->pages, 0, 8, &value) == -GPUNVME_EROFS);
	note(s, gpunvme_array_put(&reads, &s->pages, 0, 8, &value) == -GPUNVME_EROFS);
	note(s, gpunvme_array_put(&s->dq, &s->pages, words, 8, &value) == -GPUNVME_ERANGE);
	note(s, gpunvme_array_put(&s->dq, &s->pages, 0, 2, &value) == -GPUNVME_EINVAL);
	note(s, gpunvme_array_put(&s->dq, &alien, 0, 8, &value) == -GPUNVME_EPROTONOSUPPORT);
	note(s, gpunvme_writable_flush(&s->dq, &alien, 0, 1) == -GPUNVME_EPROTONOSUPPORT);
	note(s, gpunvme_array_put(&s->dq, &plain, 0, 8, &value) == -GPUNVME_EROFS);
	note(s, gpunvme_writable_page_get(&s->dq, &plain, 0, &page) == -GPUNVME_EROFS);
	value = word_of(WORDS - 1, 3);
	note(s, !gpunvme_array_put(&s->dq, &s->pages, words - 1, 8, &value)); /* the last page has 5 blocks */
	value = 0;
	note(s, !gpunvme_array_get(&s->dq, &s->pages, words - 1, 8, &value) && value == word_of(WORDS - 1, 3));
	note(s, !gpunvme_writable_page_get(&s->dq, &s->pages, (words - 1) / 512, &page));
	note(s, gpunvme_writable_page_put(&s->dq, &s->pages, &page, 5 * 512 - 1, 2) == -GPUNVME_ERANGE);
	note(s, !gpunvme_writable_page_put(&s->dq, &s->pages, &page, 5 * 512 - 1, 1));
	s->version[WORDS - 1] = 3;
}

static void ends_are_answered(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .lba = 3, .frames = 4 };

	(void)state;
	open_stage(&s, "");
	run(&s, ask_at_the_ends);
	assert_int_equal(s.wrong, 0);
	flush_and_close(&s);
}

/* The words of the frame whose page has changes: kept and parts lie behind those of all frames. Lanes are of this CPU. */
static uint64_t *words_of_change(const struct stage *s)
{
	uint64_t *frame = (uint64_t *)(uintptr_t)s->pages.frame;
	uint32_t i;

	for (i = 0; i < s->pages.frames; i++)
		if (frame[2 * s->pages.frames + i])
			return frame + i;
	fail_msg("no page has changes");
	return NULL;
}

static void change_sixth_block(void *arg)
{
	struct stage *s = arg;
	uint64_t value = word_of(1034, 1);

	note(s, !gpunvme_array_put(&s->dq, &s->pages, 1034 - s->lba * 64, 8, &value));
	s->version[1034] = 1;
}

/* A kernel may write over them: the host neither reads nor writes beside a page for that. */
static void words_are_not_believed(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 4, .lba = 3 };
	uint64_t *owner, *parts, was;

	(void)state;
	open_stage(&s, "");
	run(&s, change_sixth_block);
	owner = words_of_change(&s);
	parts = owner + 2 * s.pages.frames;
	was = *parts;
	*parts = 1ull << 63; /* a page of 4 KiB has 8 */
	assert_int_equal(gpunvme_pagecache_flush(s.cache), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "written over the words"));
	*parts = was;
	was = *owner;
	*owner = (WORDS - s.lba * 64 + 511) / 512; /* the last page, which has 5 blocks */
	assert_int_equal(gpunvme_pagecache_discard(s.cache), -EIO);
	*owner = UINT64_MAX;
	assert_int_equal(gpunvme_pagecache_flush(s.cache), -EIO);
	*owner = 1; /* a page that is not there */
	assert_int_equal(gpunvme_pagecache_flush(s.cache), -EIO);
	assert_int_equal(gpunvme_pagecache_discard(s.cache), -EIO);
	assert_int_equal(((const uint64_t *)(uintptr_t)s.pages.table)[0], 0);
	*owner = was;
	flush_and_close(&s);
}

static void change_another(void *arg)
{
	struct stage *s = arg;
	uint64_t value = word_of(3000, 1);

	change_one(arg);
	note(s, !gpunvme_array_put(&s->dq, &s->pages, 3000, 8, &value));
	s->version[3000] = 1;
}

/* While kernels run a frame may have gone to another page when its owner is read; and one such word hides no other changes. */
static void words_of_one_frame_hide_no_changes(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 4 };
	uint64_t *owner, was;

	(void)state;
	open_stage(&s, "");
	run(&s, change_another);
	owner = words_of_change(&s);
	was = *owner;
	*owner = GPUNVME_FRAME_TAKEN;
	assert_int_equal(info_of(&s).changed, 1);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), -EBUSY);
	*owner = was;
	assert_int_equal(info_of(&s).changed, 2);
	flush_and_close(&s);
}

static void bad_calls_are_refused(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .frames = 4 };
	struct gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;
	struct gpunvme_pagecache *cache = NULL;
	struct gpunvme_dev *dev;
	char uri[512];

	(void)state;
	open_stage(&s, "");
	assert_int_equal(gpunvme_pagecache_create(s.dev, s.gpu, &opts, &cache), 0);
	assert_int_equal(gpunvme_pagecache_flush(cache), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "GPUNVME_PAGECACHE_WRITE_BACK"));
	assert_int_equal(gpunvme_pagecache_discard(cache), -EINVAL);
	assert_int_equal(gpunvme_pagecache_discard(NULL), -EINVAL);
	opts.flags = GPUNVME_PAGECACHE_WRITE_BACK | GPUNVME_PAGECACHE_AHEAD;
	assert_int_equal(gpunvme_pagecache_create(s.dev, s.gpu, &opts, &(struct gpunvme_pagecache *){ NULL }), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "prefetched or changed, not both"));
	assert_int_equal(gpunvme_pagecache_destroy(cache), 0);
	flush_and_close(&s);
	cache = NULL;
	snprintf(uri, sizeof(uri), "soft:%s?ro=1", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &s.gpu), 0);
	opts.flags = GPUNVME_PAGECACHE_WRITE_BACK;
	assert_int_equal(gpunvme_pagecache_create(dev, s.gpu, &opts, &cache), -EROFS);
	assert_null(cache);
	assert_non_null(strstr(gpunvme_errmsg(), "opened read-only"));
	gpunvme_gpu_close(s.gpu);
	gpunvme_dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes_are_kept),
		cmocka_unit_test(two_frames_serve_many_lanes),
		cmocka_unit_test(ranges_cross_pages),
		cmocka_unit_test(other_blocks_are_left_alone),
		cmocka_unit_test(flushes_race_with_puts),
		cmocka_unit_test(pages_that_lanes_have_are_passed_by),
		cmocka_unit_test(failed_writes_keep_their_page),
		cmocka_unit_test(who_finds_no_room_is_told_why),
		cmocka_unit_test(changes_outlive_the_queue),
		cmocka_unit_test(changes_outlive_a_stop),
		cmocka_unit_test(what_is_given_up_is_not_forgotten),
		cmocka_unit_test(what_a_killed_kernel_leaves),
		cmocka_unit_test(clean_pages_are_given_back),
		cmocka_unit_test(flushes_keep_nobody_waiting),
		cmocka_unit_test(changes_outlive_no_device),
		cmocka_unit_test(ends_are_answered),
		cmocka_unit_test(words_are_not_believed),
		cmocka_unit_test(words_of_one_frame_hide_no_changes),
		cmocka_unit_test(bad_calls_are_refused),
#ifdef WITH_ARRAYS
		cmocka_unit_test(arrays_are_changed),
#endif
	};
	int failed = cmocka_run_group_tests(tests, image_make_dir, image_remove_disk);

	way = GPUNVME_PAGECACHE_LANDING;
	return failed + cmocka_run_group_tests(tests, image_make_dir, image_remove_disk);
}
