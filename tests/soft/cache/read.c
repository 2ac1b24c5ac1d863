/* SPDX-License-Identifier: MIT */
/*
 * Pages, elements and ranges that threads read: small caches under many threads, one page that all want, ends, pages that threads
 * keep.
 */
#include "stage.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <string.h>

#include "calls.h"

/* ---- Elements ---- */

/* Threads of a wave in two caches, with other places, sizes and numbers of frames. */
static void get_of_two(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_thread_id() + 1, value, i;
	uint32_t round;
	const struct gpunvme_cached_queue src = { &s->dq, gpunvme_thread_id() % 3 ? &s->pages : &s->other };

	for (round = 0; round < s->rounds; round++) {
		i = next_random(&seed) % s->words;
		note(s, !gpunvme_array_load(&src, i, 8, &value) && value == word_of(s, i, 0));
	}
}

static void two_caches(void **state, uint32_t mode)
{
	struct stage s = { AS(state), .lanes = 64, .width = 32, .rounds = 24, .page_size = 4096, .frames = 40 };
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_cache *cache;

	stage_open(&s, "");
	opts.page_size = 512;
	opts.frames = 30;
	opts.flags = mode;
	assert_int_equal(gpunvme_cache_create(s.qp, &opts, &cache), 0);
	assert_int_equal(gpunvme_cache_view(cache, &s.other), 0);
	run(&s, get_of_two);
	assert_int_equal(gpunvme_cache_destroy(cache), 0);
	stage_close(&s);
}

static void wave_uses_two_caches(void **state)
{
	two_caches(state, GPUNVME_CACHE_LANDING);
	two_caches(state, GPUNVME_CACHE_IN_PLACE);
}

/* Neighbours at first, then anywhere; elements of all sizes. */
static void get_elements(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_thread_id() + 1, long_value[2], value, i;
	uint32_t short_value, round;

	for (round = 0; round < s->rounds; round++) {
		i = round % 4 ? next_random(&seed) % s->words : (round * 1000ull + gpunvme_thread_id()) % s->words;
		note(s, !get(s, i, 8, &value) && value == word_of(s, i, 0));
		note(s, !get(s, 2 * i, 4, &short_value) && short_value == (uint32_t)word_of(s, i, 0));
		note(s, !get(s, i / 2, 16, long_value) && long_value[1] == word_of(s, i / 2 * 2 + 1, 0));
	}
}

static void elements(void **state, uint32_t lanes, uint32_t width, uint32_t page_size, uint32_t frames, uint64_t lba)
{
	struct stage s = { AS(state), .lanes = lanes, .width = width, .page_size = page_size, .frames = frames, .lba = lba };
	struct gpunvme_cache_info info;

	s.rounds = lanes < 1000 ? 24 : 1;
	stage_open(&s, "");
	run(&s, get_elements);
	assert_int_equal(s.asked, 3 * s.lanes * s.rounds);
	info = info_of(&s);
	assert_int_equal(info.hits + info.misses + info.waits, s.asked);
	assert_true(info.evictions > 0);
	assert_int_equal(info.failures, 0);
	check_quiet(&s);
	stage_close(&s);
}

static void elements_are_right(void **state)
{
	const struct row *row = *state;

	elements(state, 16, 1, 512, 64, 0);
	elements(state, 32, 4, 4096, 16, 0);
	elements(state, 32, 32, 4096, row->source == OF_FILE ? 34 : 40, 9); /* of which a file has 38 pages */
	elements(state, 8, 8, 65536, row->source == OF_FILE ? 2 : 3, 0);
}

static void two_frames_serve_many_lanes(void **state)
{
	elements(state, 128, 32, 4096, 2, 0);
	elements(state, 48, 1, 512, 2, 3);
	elements(state, 32, 8, 4096, 1, 0);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* which have no room for so many threads */
static void do_nothing(void *arg)
{
	(void)arg;
}

static void two_frames_serve_ten_thousand(void **state)
{
	int ret = gpunvme_cpu_launch(10000, 32, do_nothing, NULL);

	if (ret == -EAGAIN || ret == -ENOMEM) {
		print_message("this machine has no 10,000 threads\n");
		return;
	}
	elements(state, 10000, 32, 4096, 2, 0);
}
#endif

/* ---- One page that all want ---- */

static void hot_page_is_read_once(void **state)
{
	struct stage s = { AS(state), .lanes = 96, .width = 8, .rounds = 20, .page_size = 4096, .frames = 8 };
	struct gpunvme_cache_info info;

	stage_open(&s, "?fault=delay:2000:op=read");
	run(&s, get_first);
	info = info_of(&s);
	assert_int_equal(info.misses, 1);
	assert_int_equal(info.hits + info.waits + info.misses, s.lanes * s.rounds);
	check_quiet(&s);
	stage_close(&s);
}

/* ---- Ranges ---- */

#define RANGE 700u

static void get_ranges(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_thread_id() + 77, first, k, count, to[RANGE + 1];
	uint32_t round;
	bool right;

	for (round = 0; round < s->rounds; round++) {
		count = next_random(&seed) % (RANGE + 1);
		first = next_random(&seed) % (s->words - count);
		to[count] = 1;
		right = !get_range(s, first, count, to) && to[count] == 1;
		for (k = 0; k < count; k++)
			right = right && to[k] == word_of(s, first + k, 0);
		note(s, right);
	}
}

static void ranges_cross_pages(void **state)
{
	struct stage s = { AS(state), .lanes = 24, .width = 4, .rounds = 12, .page_size = 512, .frames = 6 };

	stage_open(&s, "");
	run(&s, get_ranges);
	assert_int_equal(s.asked, s.lanes * s.rounds);
	check_quiet(&s);
	stage_close(&s);
}

static void ask_by_arrays(struct stage *s)
{
#ifdef WITH_ARRAYS
	uint64_t value, two[2], size = 0;

	note(s, !get_by_array(s, 511, 2, &value, two, &size) && size == s->words);
	note(s, value == word_of(s, 511, 0) && two[0] == value && two[1] == value + 1);
	note(s, get_by_array(s, s->words, 1, &value, two, &size) == -GPUNVME_ERANGE && !value);
	note(s, get_by_array(s, s->words - 1, 2, &value, two, &size) == -GPUNVME_ERANGE);
#else
	(void)s;
#endif
}

static void ask_at_the_ends(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dpages alien = s->pages;
	struct gpunvme_dq elsewhere = s->dq;
	uint64_t words = s->words, last = word_of(s, words - 1, 0), value = 7, two[2];
	struct gpunvme_page page;
	const struct gpunvme_cached_queue by_dq = { &s->dq, &alien };
	const struct gpunvme_cached_queue by_elsewhere = { &elsewhere, &s->pages };

	note(s, !get_word(s, words - 1, &value) && value == last);
	note(s, get_word(s, words, &value) == -GPUNVME_ERANGE && value == last);
	note(s, get_word(s, ~0ull, &value) == -GPUNVME_ERANGE);
	note(s, get_word(s, 1ull << 61, &value) == -GPUNVME_ERANGE);
	note(s, get(s, 0, 2, &value) == -GPUNVME_EINVAL);
	note(s, get_range(s, words - 1, 2, two) == -GPUNVME_ERANGE);
	note(s, get_range(s, 0, ~0ull, two) == -GPUNVME_ERANGE);
	note(s, get_range(s, 0, 1, (char *)two + 2) == -GPUNVME_EINVAL);
	note(s, get_range(s, words, 0, two) == 0);
	note(s, get_page(s, (words * 8 + 4095) / 4096, &page) == -GPUNVME_ERANGE);
	alien.head.version = 0;
	note(s, gpunvme_array_load(&by_dq, 0, 8, &value) == -GPUNVME_EPROTONOSUPPORT);
	elsewhere.device++;
	note(s, gpunvme_array_load(&by_elsewhere, 0, 8, &value) == -GPUNVME_EXDEV);
	elsewhere = s->dq;
	elsewhere.lba_first = s->lba + 4;
	elsewhere.lba_count -= s->lba + 4;
	note(s, gpunvme_array_load(&by_elsewhere, 0, 8, &value) == -GPUNVME_ERANGE);
	note(s, !gpunvme_array_load(&by_elsewhere, 4096 / 8, 8, &value) && value == word_of(s, 512, 0));
	ask_by_arrays(s);
}

static void ends_are_answered(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .lba = 3, .page_size = 4096, .frames = 4 };

	stage_open(&s, "");
	run(&s, ask_at_the_ends);
	check_quiet(&s);
	stage_close(&s);
}

/* A queue that cannot read the page begins no read: the page that is there stays, and no other thread gets that error. */
static void ask_by_wrong_queues(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq narrow = s->dq, alien = s->dq;
	uint64_t value = 0;
	const struct gpunvme_cached_queue by_narrow = { &narrow, &s->pages };
	const struct gpunvme_cached_queue by_alien = { &alien, &s->pages };

	narrow.lba_count = 8;
	alien.nsid++;
	note(s, !get_word(s, 1, &value) && value == 1);
	note(s, gpunvme_array_load(&by_narrow, 512, 8, &value) == -GPUNVME_ERANGE);
	note(s, gpunvme_array_load(&by_alien, 512, 8, &value) == -GPUNVME_EXDEV);
	note(s, !gpunvme_array_load(&by_alien, 2, 8, &value) && value == 2); /* a page that is there needs no queue */
}

static void wrong_queues_take_no_frame(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .page_size = 4096, .frames = 1 };

	stage_open(&s, "");
	run(&s, ask_by_wrong_queues);
	assert_int_equal(info_of(&s).misses, 1);
	assert_int_equal(info_of(&s).evictions, 0);
	assert_int_equal(info_of(&s).failures, 0);
	check_quiet(&s);
	stage_close(&s);
}

/* ---- Pages that threads keep ---- */

static uint64_t first_of(const struct gpunvme_page *page)
{
	return *(const uint64_t *)(uintptr_t)page->base;
}

static void keep_all(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq hasty = s->dq;
	struct gpunvme_page page[4] = { { 0 } }, more = { 0 }, again = { 0 }; /* what was not got is not read either */
	uint64_t value = 0;
	uint32_t i;
	const struct gpunvme_cached_queue src = { &hasty, &s->pages };

	for (i = 0; i < 4; i++)
		note(s, !get_page(s, 10 + i, &page[i]) && first_of(&page[i]) == word_of(s, 512 * (10 + i), 0));
	note(s, get_page(s, 20, &more) == -GPUNVME_EAGAIN);
	hasty.cmd_timeout = hasty.ticks_per_ms; /* there will be no command */
	note(s, gpunvme_array_load(&src, 0, 8, &value) == -GPUNVME_EAGAIN);
	note(s, !get_word(s, 512 * 11, &value) && value == word_of(s, 512 * 11, 0));
	note(s, !get_page(s, 12, &again) && again.base == page[2].base);
	note(s, !put_page(s, &page[2]));
	note(s, put_page(s, &page[2]) == -GPUNVME_ESTALE);
	note(s, get_page(s, 20, &more) == -GPUNVME_EAGAIN);
	note(s, !put_page(s, &again));
	note(s, !get_page(s, 20, &more) && first_of(&more) == word_of(s, 512 * 20, 0));
	for (i = 0; i < 4; i++)
		note(s, i == 2 || first_of(&page[i]) == word_of(s, 512 * (10 + i), 0));
	note(s, !put_page(s, &more));
	for (i = 0; i < 4; i++)
		note(s, i == 2 || !put_page(s, &page[i]));
}

static void kept_pages_stay(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .page_size = 4096, .frames = 4 };

	stage_open(&s, "");
	run(&s, keep_all);
	check_quiet(&s);
	stage_close(&s);
}

/* A million references are refused before they run over into the bits above them. */
static void refer_much(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_page page = { 0 }, more = { 0 };
	uint64_t *word = (uint64_t *)(uintptr_t)s->pages.table;

	note(s, !get_page(s, 0, &page));
	__atomic_fetch_add(word, GPUNVME_PAGE_REFS / 2 & GPUNVME_PAGE_REFS, __ATOMIC_RELAXED);
	note(s, get_page(s, 0, &more) == -GPUNVME_EAGAIN);
	__atomic_fetch_sub(word, GPUNVME_PAGE_REFS / 2 & GPUNVME_PAGE_REFS, __ATOMIC_RELAXED);
	note(s, !get_page(s, 0, &more));
	note(s, !put_page(s, &page) && !put_page(s, &more));
}

static void references_do_not_run_over(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .page_size = 4096, .frames = 4 };

	stage_open(&s, "");
	run(&s, refer_much);
	check_quiet(&s);
	stage_close(&s);
}

int run_reads(void)
{
	const struct CMUnitTest tests[] = {
		ROW(elements_are_right, NAMESPACE, PLAIN),
		ROW(elements_are_right, NAMESPACE, COPIED),
		ROW(elements_are_right, VOLUME, PLAIN),
		ROW(elements_are_right, VOLUME, COPIED),
		ROW(two_frames_serve_many_lanes, NAMESPACE, PLAIN),
		ROW(two_frames_serve_many_lanes, NAMESPACE, COPIED),
#if STAGE_FILES
		ROW(elements_are_right, OF_FILE, PLAIN),
		ROW(two_frames_serve_many_lanes, OF_FILE, COPIED),
#endif
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
		ROW(two_frames_serve_ten_thousand, NAMESPACE, PLAIN),
#endif
		ROW(wave_uses_two_caches, NAMESPACE, PLAIN),
		ROW(hot_page_is_read_once, NAMESPACE, PLAIN),
		ROW(hot_page_is_read_once, NAMESPACE, COPIED),
		ROW(ranges_cross_pages, NAMESPACE, PLAIN),
		ROW(ranges_cross_pages, NAMESPACE, COPIED),
		ROW(ends_are_answered, NAMESPACE, PLAIN),
		ROW(ends_are_answered, NAMESPACE, COPIED),
		ROW(wrong_queues_take_no_frame, NAMESPACE, PLAIN),
		ROW(kept_pages_stay, NAMESPACE, PLAIN),
		ROW(kept_pages_stay, NAMESPACE, COPIED),
		ROW(references_do_not_run_over, NAMESPACE, PLAIN),
	};

	return cmocka_run_group_tests(tests, stage_make, stage_remove);
}
