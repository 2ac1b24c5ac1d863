/* SPDX-License-Identifier: MIT */
/*
 * Pages that threads change: what they find again, what the images have afterwards, and that nothing else in them has changed.
 * Small caches under many threads, flushes that race with puts, holes and ends of files, and sources that may not be written.
 */
#include "stage.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* ---- Elements and pages ---- */

static void changes(void **state, struct stage s)
{
	const struct row *row = *state;

	s.source = row->source;
	s.mode |= row->mode;
	stage_open(&s, "");
	run(&s, change_words);
	assert_true(s.source != NAMESPACE || (info_of(&s).writes > 0 && info_of(&s).changed > 0));
	check_quiet(&s);
	if (info_of(&s).changed)
		assert_int_equal(gpunvme_cache_destroy(s.cache), -EBUSY);
	if (s.rounds % 2) {
		run(&s, flush_all);
		assert_int_equal(info_of(&s).changed, 0);
	}
	run(&s, change_words);
	assert_true(info_of(&s).writes > 0);
	assert_int_equal(info_of(&s).write_failures, 0);
	assert_int_equal(info_of(&s).lost, 0);
	flush_and_close(&s);
}

static void namespaces_are_changed_in_place(void **state)
{
	changes(state, (struct stage){ .lanes = 16, .width = 1, .rounds = 20, .page_size = 512, .frames = 40 });
	changes(state, (struct stage){ .lanes = 16, .width = 4, .rounds = 20, .page_size = 4096, .frames = 36, .lba = 3 });
	changes(state, (struct stage){ .lanes = 8, .width = 8, .rounds = 21, .page_size = 65536, .frames = 3 });
}

static void two_frames_serve_many_changes(void **state)
{
	changes(state, (struct stage){ .lanes = 8, .width = 8, .rounds = 20, .page_size = 4096, .frames = 2 });
	changes(state, (struct stage){ .lanes = 24, .width = 1, .rounds = 20, .page_size = 512, .frames = 2, .lba = 3 });
	changes(state, (struct stage){ .lanes = 6, .width = 2, .rounds = 20, .page_size = 4096, .frames = 1 });
}

#if STAGE_FILES
static void files_are_changed_in_place(void **state)
{
	changes(state, (struct stage){ .lanes = 8, .width = 4, .rounds = 9, .page_size = 4096, .frames = 6 });
	changes(state, (struct stage){ .lanes = 4, .width = 1, .rounds = 16, .page_size = 512, .frames = 20, .lba = 3 });
	changes(state, (struct stage){ .lanes = 4, .width = 4, .rounds = 7, .page_size = 65536, .frames = 2, .mode = COPIED });
}
#endif

static void volumes_are_changed_in_place(void **state)
{
	changes(state, (struct stage){ .lanes = 8, .width = 4, .rounds = 9, .page_size = 4096, .frames = 6, .queues = 2 });
	changes(state, (struct stage){ .lanes = 4, .width = 1, .rounds = 16, .page_size = 4096, .frames = 8, .stripe = 2, .lba = 3 });
	changes(state, (struct stage){ .lanes = 4, .width = 4, .rounds = 5, .page_size = 16384, .frames = 3, .stripe = 4, .queues = 2,
				       .mode = COPIED });
}

/* ---- Ranges ---- */

#define RANGE 300u

/* A thread has a part of the window for itself; its ranges cross pages, and those of its neighbours share its first and last. */
static void change_ranges(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_thread_id() + 77, words = s->words / s->lanes, first, k, count, of[RANGE], to[RANGE];
	uint32_t round;
	bool right;

	for (round = 0; round < s->rounds; round++) {
		count = next_random(&seed) % RANGE + 1;
		first = gpunvme_thread_id() * words + next_random(&seed) % (words - count);
		for (k = 0; k < count; k++)
			of[k] = word_of(s, first + k, ++s->version[first + k]);
		note(s, !put_range(s, first, count, of));
		right = !get_range(s, first, count, to);
		note(s, right && !memcmp(to, of, count * 8));
	}
}

static void changed_ranges_cross_pages(void **state)
{
	struct stage s = { AS(state), .lanes = 12, .width = 4, .rounds = 10, .page_size = 512, .frames = 8 };

	stage_open(&s, "");
	run(&s, change_ranges);
	flush_and_close(&s);
}

#ifdef WITH_ARRAYS
#define CHANGED 700u /* by an array; of a file what lies within one block */

static void change_by_arrays(void *arg)
{
	struct stage *s = arg;
	uint64_t from[CHANGED], at, i = s->source == NAMESPACE ? 1000 : 0, n = s->source == OF_FILE ? 59 : CHANGED, last = s->words - 1, k;
	uint32_t member;

	while (!stage_where(s, i, &member, &at))
		i += 64;
	for (k = 0; k < n; k++)
		from[k] = word_of(s, i + 1 + k, 1);
	note(s, !put_by_array(s, i, n, word_of(s, i, 1), from));
	for (k = 0; k <= n; k++)
		s->version[i + k] = 1;
	note(s, put_by_array(s, last, 1, word_of(s, last, 2), from) == -GPUNVME_ERANGE);
	s->version[last] = 2;
	note(s, put_by_array(s, s->words, 0, 0, from) == -GPUNVME_ERANGE);
}

static void arrays_are_changed(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 3 };

	stage_open(&s, "");
	run(&s, change_by_arrays);
	flush_and_close(&s);
}
#endif

/* ---- Only what was changed ---- */

/* Words of other blocks of its page, which another program writes meanwhile, are left alone. */
static void other_blocks_are_left_alone(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 4 };
	const uint64_t value = word_of(&s, 513, 7);
	FILE *f;

	stage_open(&s, "");
	run(&s, change_one);
	f = fopen(stage_path(&s, 0), "r+b");
	assert_non_null(f);
	assert_int_equal(fseek(f, 513 * 8, SEEK_SET), 0);
	assert_int_equal(fwrite(&value, sizeof(value), 1, f), 1);
	fclose(f);
	s.version[513] = 7;
	assert_int_equal(info_of(&s).changed, 1);
	flush_and_close(&s);
}

/* ---- Flush from a kernel ---- */

/* The first threads put, the others flush meanwhile; at last all flush, and nothing is left. */
static void change_and_flush(void *arg)
{
	struct stage *s = arg;
	uint32_t round, half = s->lanes / 2;
	int ret;

	if (gpunvme_thread_id() < half)
		change_words(arg);
	for (round = 0; gpunvme_thread_id() >= half && round < s->rounds; round++) {
		ret = flush(s, gpunvme_thread_id() - half, half);
		note(s, ret == 0 || ret == -GPUNVME_EAGAIN);
	}
}

static void flushes(void **state, uint32_t lanes, uint32_t width, uint32_t frames)
{
	struct stage s = { AS(state), .lanes = lanes, .width = width, .rounds = 20, .frames = frames };

	stage_open(&s, "");
	run(&s, change_and_flush);
	run(&s, flush_all);
	assert_int_equal(info_of(&s).changed, 0);
	check_images(&s);
	flush_and_close(&s);
}

static void flushes_race_with_puts(void **state)
{
	flushes(state, 16, 8, 24);
	flushes(state, 12, 1, 5);
	flushes(state, 8, 4, 3);
}

/* A page that a thread has is passed by: -EAGAIN. */
static void flush_what_is_had(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_page page = { 0, 0 };
	struct gpunvme_dq narrow = s->dq;
	const struct gpunvme_writable_queue src = { &narrow, &s->pages };

	change_one(arg);
	note(s, !get_page(s, 1000 / 512, &page));
	note(s, flush(s, 0, 1) == -GPUNVME_EAGAIN);
	note(s, put_changed(s, &page, 4096, 1) == -GPUNVME_ERANGE);
	note(s, !put_changed(s, &page, 0, 0));
	note(s, put_changed(s, &page, 0, 0) == -GPUNVME_ESTALE);
	note(s, flush(s, 1, 1) == -GPUNVME_EINVAL);
	narrow.flags &= ~(uint32_t)GPUNVME_DQ_WRITE;
	note(s, gpunvme_write_back(&src, 0, 1) == -GPUNVME_EROFS);
	narrow = s->dq;
	narrow.lba_count = 8;
	note(s, gpunvme_write_back(&src, 0, 1) == -GPUNVME_ERANGE);
	note(s, !flush(s, 0, 1));
}

static void pages_that_lanes_have_are_passed_by(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 4 };

	stage_open(&s, "");
	run(&s, flush_what_is_had);
	assert_int_equal(info_of(&s).changed, 0);
	flush_and_close(&s);
}

/* ---- Ends ---- */

static void ask_at_the_ends(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq reads = s->dq;
	struct gpunvme_dpages alien = s->pages, plain = s->pages;
	uint64_t words = s->words, value = 7;
	struct gpunvme_page page = { 0, 0 };
	const struct gpunvme_writable_queue by_reads = { &reads, &s->pages };
	const struct gpunvme_writable_queue of_alien = { &s->dq, &alien };
	const struct gpunvme_writable_queue of_plain = { &s->dq, &plain };
	const struct gpunvme_cached_queue cached = { &s->dq, &s->pages };

	reads.flags &= ~(uint32_t)GPUNVME_DQ_WRITE;
	alien.head.kind = GPUNVME_KIND_FILE_PAGES;
	plain.flags = 0;
	note(s, gpunvme_array_load(&by_reads, 0, 8, &value) == -GPUNVME_EROFS);
	note(s, gpunvme_array_store(&by_reads, 0, 8, &value) == -GPUNVME_EROFS);
	note(s, put_word(s, words, value) == -GPUNVME_ERANGE);
	note(s, put(s, 0, 2, &value) == -GPUNVME_EINVAL);
	note(s, gpunvme_array_store(&of_alien, 0, 8, &value) == -GPUNVME_EINVAL);
	note(s, gpunvme_write_back(&of_alien, 0, 1) == -GPUNVME_EINVAL);
	note(s, gpunvme_array_store(&of_plain, 0, 8, &value) == -GPUNVME_EROFS);
	note(s, gpunvme_page_get(&of_plain, 0, &page) == -GPUNVME_EROFS);
	value = word_of(s, words - 1, 3);
	note(s, !put_word(s, words - 1, value)); /* the last page has 5 blocks */
	value = 0;
	note(s, !gpunvme_array_load(&cached, words - 1, 8, &value) && value == word_of(s, words - 1, 3));
	note(s, !get_page(s, (words - 1) / 512, &page));
	note(s, put_changed(s, &page, 5 * 512 - 1, 2) == -GPUNVME_ERANGE);
	note(s, !put_changed(s, &page, 5 * 512 - 1, 1));
	s->version[words - 1] = 3;
}

static void ends_of_changes_are_answered(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .lba = 3, .frames = 4 };

	stage_open(&s, "");
	run(&s, ask_at_the_ends);
	flush_and_close(&s);
}

/* ---- Holes and ends of files ---- */

#if STAGE_FILES
/* The first word of the window that has blocks where this one has none, or the other way round. */
static uint64_t edge(const struct stage *s, uint64_t i)
{
	uint64_t at;
	uint32_t m;
	bool has = stage_where(s, i, &m, &at);

	while (stage_where(s, i, &m, &at) == has)
		i++;
	return i;
}

static void change_holes(void *arg)
{
	struct stage *s = arg;
	uint64_t hole = edge(s, 0), data = edge(s, hole), from[4] = { 1, 2, 3, 4 }, to[4], value, k;
	struct gpunvme_page p = { 0, 0 };
	uint32_t words = 1u << (s->pages.page_shift - 3), offset = (uint32_t)(hole % words * 8);

	note(s, put_word(s, hole, 5) == -GPUNVME_EOPNOTSUPP);
	note(s, put_range(s, hole - 2, 4, from) == -GPUNVME_EOPNOTSUPP); /* begins where there are blocks */
	note(s, put_range(s, data - 2, 4, from) == -GPUNVME_EOPNOTSUPP);
	note(s, put_range(s, hole, 0, from) == 0);
	for (k = hole - 2; k < hole + 2; k++)
		note(s, !get_word(s, k, &value) && value == word_of(s, k, 0));
	note(s, !get_range(s, data - 2, 4, to) && !to[0] && !to[1] && to[2] == word_of(s, data, 0));
	note(s, !get_page(s, hole / words, &p));
	gnvd_st64(p.base + offset, 5);
	note(s, put_changed(s, &p, offset, 8) == -GPUNVME_EOPNOTSUPP && p.word);
	note(s, put_changed(s, &p, offset - 8, 16) == -GPUNVME_EOPNOTSUPP && p.word);
	gnvd_st64(p.base + offset - 8, word_of(s, hole - 1, 1));
	note(s, !put_changed(s, &p, offset - 8, 8));
	s->version[hole - 1] = 1;
	note(s, !flush(s, 0, 1));
	note(s, !get_word(s, hole, &value) && !value); /* what was stored there went with that */
}

/* Of the last block of the file it has not all. */
static void change_ends(void *arg)
{
	struct stage *s = arg;
	uint64_t last = s->words - 1, from[2] = { 1, 2 };
	struct gpunvme_page p = { 0, 0 };
	uint32_t four = 9, words = 1u << (s->pages.page_shift - 3), offset = (uint32_t)(last % words * 8);
	const struct gpunvme_writable_file src = { &s->dq, &s->pages };

	note(s, put_word(s, s->words, 5) == -GPUNVME_ERANGE);
	note(s, put_range(s, last, 2, from) == -GPUNVME_ERANGE);
	note(s, gpunvme_array_store(&src, 2 * s->words + 1, 4, &four) == -GPUNVME_ERANGE);
	note(s, get_page(s, last / words + 1, &p) == -GPUNVME_ERANGE);
	note(s, !get_page(s, last / words, &p));
	note(s, put_changed(s, &p, offset, 13) == -GPUNVME_ERANGE && p.word); /* the file has four bytes after its last word */
	gnvd_st64(p.base + offset, word_of(s, last, 1));
	gnvd_st64(p.base + offset + 16, ~0ull); /* after the end */
	note(s, !put_changed(s, &p, offset, 12));
	s->version[last] = 1;
}

static void refusals(void **state, void (*kernel)(void *), bool by_host)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .page_size = 4096, .frames = 4 };

	stage_open(&s, "");
	run(&s, kernel);
	if (!by_host)
		run(&s, flush_all);
	assert_int_equal(info_of(&s).changed, by_host);
	assert_int_equal(gpunvme_cache_flush(s.cache), 0);
	check_images(&s);
	stage_close(&s);
}

static void holes_are_refused(void **state)
{
	refusals(state, change_holes, false);
}

static void ends_are_zeroes(void **state)
{
	refusals(state, change_ends, false);
	refusals(state, change_ends, true);
}
#endif

int run_changes(void)
{
	const struct CMUnitTest tests[] = {
		ROW(namespaces_are_changed_in_place, NAMESPACE, WRITE_BACK),
		ROW(namespaces_are_changed_in_place, NAMESPACE, WRITE_BACK | COPIED),
		ROW(volumes_are_changed_in_place, VOLUME, WRITE_BACK),
		ROW(two_frames_serve_many_changes, NAMESPACE, WRITE_BACK),
		ROW(two_frames_serve_many_changes, NAMESPACE, WRITE_BACK | COPIED),
		ROW(changed_ranges_cross_pages, NAMESPACE, WRITE_BACK),
		ROW(changed_ranges_cross_pages, NAMESPACE, WRITE_BACK | COPIED),
		ROW(other_blocks_are_left_alone, NAMESPACE, WRITE_BACK),
		ROW(other_blocks_are_left_alone, NAMESPACE, WRITE_BACK | COPIED),
		ROW(flushes_race_with_puts, NAMESPACE, WRITE_BACK),
		ROW(flushes_race_with_puts, NAMESPACE, WRITE_BACK | COPIED),
		ROW(pages_that_lanes_have_are_passed_by, NAMESPACE, WRITE_BACK),
		ROW(pages_that_lanes_have_are_passed_by, NAMESPACE, WRITE_BACK | COPIED),
		ROW(ends_of_changes_are_answered, NAMESPACE, WRITE_BACK),
		ROW(ends_of_changes_are_answered, NAMESPACE, WRITE_BACK | COPIED),
#ifdef WITH_ARRAYS
		ROW(arrays_are_changed, NAMESPACE, WRITE_BACK),
		ROW(arrays_are_changed, NAMESPACE, WRITE_BACK | COPIED),
		ROW(arrays_are_changed, VOLUME, WRITE_BACK),
#if STAGE_FILES
		ROW(arrays_are_changed, OF_FILE, WRITE_BACK),
#endif
#endif
#if STAGE_FILES
		ROW(files_are_changed_in_place, OF_FILE, WRITE_BACK),
		ROW(holes_are_refused, OF_FILE, WRITE_BACK),
		ROW(holes_are_refused, OF_FILE, WRITE_BACK | COPIED),
		ROW(ends_are_zeroes, OF_FILE, WRITE_BACK),
		ROW(ends_are_zeroes, OF_FILE, WRITE_BACK | COPIED),
#endif
	};

	return cmocka_run_group_tests(tests, stage_make, stage_remove);
}
