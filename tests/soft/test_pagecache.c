/* SPDX-License-Identifier: MIT */
/*
 * Page caches: every 8 bytes of the image are their own number, so that lanes know what they must find. Small caches under many
 * lanes, one page that all want, ranges, errors, queues that end.
 */
#include <gpunvme/device_array.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "arrays.h"
#include "common/image.h"

#define IMAGE_BYTES (4u << 20)
#define WORDS (IMAGE_BYTES / 8u)
#define SALT 0x5eed00000000ull
#define LANES_MOST 256u

static uint32_t way; /* GPUNVME_PAGECACHE_LANDING: pages are copied; 0: as the lanes have it, which is in place */

struct stage {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_qp *qp;
	struct gpunvme_pagecache *cache;
	struct gpunvme_dq dq;
	struct gpunvme_dpages pages, other;
	uint32_t lanes, width, rounds;
	uint32_t timeout_ms;
	uint64_t lba; /* of the cache's window */
	uint32_t wrong, asked, told; /* atomic */
	int ret[LANES_MOST];
};

static int make_image(void **state)
{
	uint64_t i, word;
	FILE *f;

	if (image_make_dir(state))
		return -1;
	f = fopen(image_path("disk.img"), "wb");
	if (!f)
		return -1;
	for (i = 0; i < WORDS; i++) {
		word = SALT + i;
		if (fwrite(&word, sizeof(word), 1, f) != 1)
			return -1;
	}
	return fclose(f);
}

static void view_queue(struct stage *s)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	assert_int_equal(gpunvme_qp_view(s->qp, &view, &s->dq), 0);
}

static void open_stage(struct stage *s, const char *keys, uint32_t page_size, uint32_t frames)
{
	struct gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;
	struct gpunvme_qp_opts qp = GPUNVME_QP_OPTS_INIT;
	char uri[512];

	snprintf(uri, sizeof(uri), "soft:%s%s", image_path("disk.img"), keys);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &s->dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &s->gpu), 0);
	qp.depth = 64;
	qp.cmd_timeout_ms = s->timeout_ms;
	assert_int_equal(gpunvme_qp_create(s->dev, s->gpu, &qp, &s->qp), 0);
	view_queue(s);
	opts.flags = GPUNVME_PAGECACHE_STATS | way;
	opts.page_size = page_size;
	opts.frames = frames;
	opts.lba = s->lba;
	assert_int_equal(gpunvme_pagecache_create(s->dev, s->gpu, &opts, &s->cache), 0);
	assert_int_equal(gpunvme_pagecache_view(s->cache, &s->pages), 0);
	assert_int_equal(s->pages.local != 0, way != 0);
}

/* A device that does not let go of its queue may write to pages until it is closed. */
static void close_stage(struct stage *s)
{
	int kept = gpunvme_qp_destroy(s->qp), ret = gpunvme_pagecache_destroy(s->cache);

	assert_int_equal(ret, kept ? -EBUSY : 0);
	gpunvme_gpu_close(s->gpu);
	gpunvme_dev_close(s->dev);
	if (ret)
		assert_int_equal(gpunvme_pagecache_destroy(s->cache), 0);
}

static void run(struct stage *s, void (*kernel)(void *))
{
	memset(s->ret, 0, sizeof(s->ret));
	assert_int_equal(gpunvme_cpu_launch(s->lanes, s->width, kernel, s), 0);
}

static struct gpunvme_pagecache_info info_of(struct stage *s)
{
	struct gpunvme_pagecache_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_pagecache_get_info(s->cache, &info), 0);
	return info;
}

/* After a kernel nobody has a page any more, and no page is being read. */
static void check_quiet(struct stage *s)
{
	const uint64_t *word = (const uint64_t *)(uintptr_t)s->pages.table;
	struct gpunvme_pagecache_info info = info_of(s);
	uint64_t i, valid = 0;

	for (i = 0; i < info.pages; i++) {
		assert_int_equal(word[i] & GPUNVME_PAGE_REFS, 0);
		assert_int_not_equal(word[i] & GPUNVME_PAGE_STATE, GPUNVME_PAGE_READING);
		valid += (word[i] & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_VALID;
	}
	assert_int_equal(valid, info.misses - info.failures - info.evictions);
	assert_true(valid + info.lost <= info.frames);
	assert_int_equal(info.copied, way ? (info.misses - info.failures) << s->pages.page_shift : 0);
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

/* ---- Elements ---- */

/* Lanes of a wave in two caches, with other places, sizes and numbers of frames. */
static void get_of_two(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_lane() + 1, value, i;
	uint32_t round;

	for (round = 0; round < s->rounds; round++) {
		i = next_random(&seed) % WORDS;
		note(s, !gpunvme_array_get(&s->dq, gpunvme_lane() % 3 ? &s->pages : &s->other, i, 8, &value) && value == SALT + i);
	}
}

static void two_caches(uint32_t flags)
{
	struct stage s = { .lanes = 64, .width = 32, .rounds = 24 };
	struct gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;
	struct gpunvme_pagecache *cache;

	open_stage(&s, "", 4096, 40);
	opts.page_size = 512;
	opts.frames = 30;
	opts.flags = flags;
	assert_int_equal(gpunvme_pagecache_create(s.dev, s.gpu, &opts, &cache), 0);
	assert_int_equal(gpunvme_pagecache_view(cache, &s.other), 0);
	run(&s, get_of_two);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(gpunvme_pagecache_destroy(cache), 0);
	close_stage(&s);
}

static void wave_uses_two_caches(void **state)
{
	(void)state;
	two_caches(GPUNVME_PAGECACHE_LANDING);
	two_caches(GPUNVME_PAGECACHE_IN_PLACE);
}

/* Neighbours at first, then anywhere; elements of all sizes. */
static void get_elements(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_lane() + 1, long_value[2], value, i, words = WORDS - s->lba * 64;
	uint32_t short_value;
	uint32_t round;

	for (round = 0; round < s->rounds; round++) {
		i = round % 4 ? next_random(&seed) % words : (round * 1000ull + gpunvme_lane()) % words;
		note(s, !gpunvme_array_get(&s->dq, &s->pages, i, 8, &value) && value == SALT + s->lba * 64 + i);
		note(s, !gpunvme_array_get(&s->dq, &s->pages, 2 * i, 4, &short_value) && short_value == (uint32_t)(s->lba * 64 + i));
		note(s, !gpunvme_array_get(&s->dq, &s->pages, i / 2, 16, long_value) &&
				long_value[1] == SALT + s->lba * 64 + i / 2 * 2 + 1);
	}
}

static void elements(uint32_t lanes, uint32_t width, uint32_t page_size, uint32_t frames, uint64_t lba)
{
	struct stage s = { .lanes = lanes, .width = width, .rounds = lanes < 1000 ? 24 : 1, .lba = lba };
	struct gpunvme_pagecache_info info;

	open_stage(&s, "", page_size, frames);
	run(&s, get_elements);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(s.asked, 3 * s.lanes * s.rounds);
	info = info_of(&s);
	assert_int_equal(info.hits + info.misses + info.waits, s.asked);
	assert_true(info.evictions > 0);
	assert_int_equal(info.failures, 0);
	check_quiet(&s);
	close_stage(&s);
}

static void elements_are_right(void **state)
{
	(void)state;
	elements(16, 1, 512, 64, 0);
	elements(32, 4, 4096, 16, 0);
	elements(32, 32, 4096, 40, 9);
	elements(8, 8, 65536, 3, 0);
}

static void two_frames_serve_many_lanes(void **state)
{
	(void)state;
	elements(128, 32, 4096, 2, 0);
	elements(48, 1, 512, 2, 3);
	elements(32, 8, 4096, 1, 0);
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) /* which have no room for so many threads */
static void do_nothing(void *arg)
{
	(void)arg;
}

static void two_frames_serve_ten_thousand(void **state)
{
	int ret = gpunvme_cpu_launch(10000, 32, do_nothing, NULL);

	(void)state;
	if (ret == -EAGAIN || ret == -ENOMEM) {
		print_message("this machine has no 10,000 threads\n");
		return;
	}
	elements(10000, 32, 4096, 2, 0);
}
#endif

/* ---- One page that all want ---- */

static void get_first(void *arg)
{
	struct stage *s = arg;
	uint64_t value;
	uint32_t round;

	for (round = 0; round < s->rounds; round++)
		note(s, !gpunvme_array_get(&s->dq, &s->pages, gpunvme_lane(), 8, &value) && value == SALT + gpunvme_lane());
}

static void hot_page_is_read_once(void **state)
{
	struct stage s = { .lanes = 96, .width = 8, .rounds = 20 };
	struct gpunvme_pagecache_info info;

	(void)state;
	open_stage(&s, "?fault=delay:2000:op=read", 4096, 8);
	run(&s, get_first);
	assert_int_equal(s.wrong, 0);
	info = info_of(&s);
	assert_int_equal(info.misses, 1);
	assert_int_equal(info.hits + info.waits + info.misses, s.lanes * s.rounds);
	check_quiet(&s);
	close_stage(&s);
}

/* ---- Ranges ---- */

#define RANGE 700u

static void get_ranges(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_lane() + 77, first, k, count;
	uint64_t to[RANGE + 1];
	uint32_t round;
	bool right;

	for (round = 0; round < s->rounds; round++) {
		count = next_random(&seed) % (RANGE + 1);
		first = next_random(&seed) % (WORDS - count);
		to[count] = 1;
		right = !gpunvme_array_get_range(&s->dq, &s->pages, first, count, 8, to) && to[count] == 1;
		for (k = 0; k < count; k++)
			right = right && to[k] == SALT + first + k;
		note(s, right);
	}
}

static void ranges_cross_pages(void **state)
{
	struct stage s = { .lanes = 24, .width = 4, .rounds = 12 };

	(void)state;
	open_stage(&s, "", 512, 6);
	run(&s, get_ranges);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(s.asked, s.lanes * s.rounds);
	check_quiet(&s);
	close_stage(&s);
}

static void ask_at_the_ends(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dpages alien = s->pages;
	struct gpunvme_dq elsewhere = s->dq;
	uint64_t words = WORDS - s->lba * 64, value = 7, two[2];
	struct gpunvme_page page;

	note(s, !gpunvme_array_get(&s->dq, &s->pages, words - 1, 8, &value) && value == SALT + WORDS - 1);
	note(s, gpunvme_array_get(&s->dq, &s->pages, words, 8, &value) == -GPUNVME_ERANGE && value == SALT + WORDS - 1);
	note(s, gpunvme_array_get(&s->dq, &s->pages, ~0ull, 8, &value) == -GPUNVME_ERANGE);
	note(s, gpunvme_array_get(&s->dq, &s->pages, 1ull << 61, 8, &value) == -GPUNVME_ERANGE);
	note(s, gpunvme_array_get(&s->dq, &s->pages, 0, 2, &value) == -GPUNVME_EINVAL);
	note(s, gpunvme_array_get_range(&s->dq, &s->pages, words - 1, 2, 8, two) == -GPUNVME_ERANGE);
	note(s, gpunvme_array_get_range(&s->dq, &s->pages, 0, ~0ull, 8, two) == -GPUNVME_ERANGE);
	note(s, gpunvme_array_get_range(&s->dq, &s->pages, 0, 1, 8, (char *)two + 2) == -GPUNVME_EINVAL);
	note(s, gpunvme_array_get_range(&s->dq, &s->pages, words, 0, 8, two) == 0);
	note(s, gpunvme_page_get(&s->dq, &s->pages, (words * 8 + 4095) / 4096, &page) == -GPUNVME_ERANGE);
	alien.magic = 0;
	note(s, gpunvme_array_get(&s->dq, &alien, 0, 8, &value) == -GPUNVME_EPROTONOSUPPORT);
	elsewhere.device++;
	note(s, gpunvme_array_get(&elsewhere, &s->pages, 0, 8, &value) == -GPUNVME_EXDEV);
	elsewhere = s->dq;
	elsewhere.lba_first = s->lba + 4;
	elsewhere.lba_count -= s->lba + 4;
	note(s, gpunvme_array_get(&elsewhere, &s->pages, 0, 8, &value) == -GPUNVME_ERANGE);
	note(s, !gpunvme_array_get(&elsewhere, &s->pages, 4096 / 8, 8, &value) && value == SALT + s->lba * 64 + 512);
#ifdef WITH_ARRAYS
	uint64_t size = 0;

	note(s, !arrays_of_namespace(&s->dq, &s->pages, 511, 2, &value, two, &size) && size == words);
	note(s, value == SALT + s->lba * 64 + 511 && two[0] == value && two[1] == value + 1);
	note(s, arrays_of_namespace(&s->dq, &s->pages, words, 1, &value, two, &size) == -GPUNVME_ERANGE && !value);
	note(s, arrays_of_namespace(&s->dq, &s->pages, words - 1, 2, &value, two, &size) == -GPUNVME_ERANGE);
#endif
}

static void ends_are_answered(void **state)
{
	struct stage s = { .lanes = 1, .width = 1, .lba = 3 };

	(void)state;
	open_stage(&s, "", 4096, 4);
	run(&s, ask_at_the_ends);
	assert_int_equal(s.wrong, 0);
	check_quiet(&s);
	close_stage(&s);
}

/* A queue that cannot read the page begins no read: the page that is there stays, and nobody else is told. */
static void ask_by_wrong_queues(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq narrow = s->dq, alien = s->dq;
	uint64_t value = 0;

	narrow.lba_count = 8;
	alien.nsid++;
	note(s, !gpunvme_array_get(&s->dq, &s->pages, 1, 8, &value) && value == SALT + 1);
	note(s, gpunvme_array_get(&narrow, &s->pages, 512, 8, &value) == -GPUNVME_ERANGE);
	note(s, gpunvme_array_get(&alien, &s->pages, 512, 8, &value) == -GPUNVME_EXDEV);
	note(s, !gpunvme_array_get(&alien, &s->pages, 2, 8, &value) && value == SALT + 2); /* who need not read asks no queue */
}

static void wrong_queues_take_no_frame(void **state)
{
	struct stage s = { .lanes = 1, .width = 1 };

	(void)state;
	open_stage(&s, "", 4096, 1);
	run(&s, ask_by_wrong_queues);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(info_of(&s).misses, 1);
	assert_int_equal(info_of(&s).evictions, 0);
	assert_int_equal(info_of(&s).failures, 0);
	check_quiet(&s);
	close_stage(&s);
}

/* ---- Pages that lanes keep ---- */

static void keep_all(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq hasty = s->dq;
	struct gpunvme_page page[4] = { { 0 } }, more = { 0 }, again = { 0 }; /* what was not got is not read either */
	uint64_t value = 0;
	uint32_t i;

	for (i = 0; i < 4; i++)
		note(s, !gpunvme_page_get(&s->dq, &s->pages, 10 + i, &page[i]) && *(uint64_t *)(uintptr_t)page[i].base == SALT + 512 * (10 + i));
	note(s, gpunvme_page_get(&s->dq, &s->pages, 20, &more) == -GPUNVME_EAGAIN);
	hasty.cmd_timeout = hasty.ticks_per_ms; /* there will be no command */
	note(s, gpunvme_array_get(&hasty, &s->pages, 0, 8, &value) == -GPUNVME_EAGAIN);
	note(s, !gpunvme_array_get(&s->dq, &s->pages, 512 * 11, 8, &value) && value == SALT + 512 * 11);
	note(s, !gpunvme_page_get(&s->dq, &s->pages, 12, &again) && again.base == page[2].base);
	note(s, !gpunvme_page_put(&s->dq, &page[2]));
	note(s, gpunvme_page_put(&s->dq, &page[2]) == -GPUNVME_ESTALE);
	note(s, gpunvme_page_get(&s->dq, &s->pages, 20, &more) == -GPUNVME_EAGAIN);
	note(s, !gpunvme_page_put(&s->dq, &again));
	note(s, !gpunvme_page_get(&s->dq, &s->pages, 20, &more) && *(uint64_t *)(uintptr_t)more.base == SALT + 512 * 20);
	for (i = 0; i < 4; i++)
		note(s, i == 2 || *(uint64_t *)(uintptr_t)page[i].base == SALT + 512 * (10 + i));
	note(s, !gpunvme_page_put(&s->dq, &more));
	for (i = 0; i < 4; i++)
		note(s, i == 2 || !gpunvme_page_put(&s->dq, &page[i]));
}

static void kept_pages_stay(void **state)
{
	struct stage s = { .lanes = 1, .width = 1 };

	(void)state;
	open_stage(&s, "", 4096, 4);
	run(&s, keep_all);
	assert_int_equal(s.wrong, 0);
	check_quiet(&s);
	close_stage(&s);
}

/* A million references are refused before they run over into what stands beside them. */
static void refer_much(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_page page = { 0 }, more = { 0 };
	uint64_t *word = (uint64_t *)(uintptr_t)s->pages.table;

	note(s, !gpunvme_page_get(&s->dq, &s->pages, 0, &page));
	__atomic_fetch_add(word, GPUNVME_PAGE_REFS / 2 & GPUNVME_PAGE_REFS, __ATOMIC_RELAXED);
	note(s, gpunvme_page_get(&s->dq, &s->pages, 0, &more) == -GPUNVME_EAGAIN);
	__atomic_fetch_sub(word, GPUNVME_PAGE_REFS / 2 & GPUNVME_PAGE_REFS, __ATOMIC_RELAXED);
	note(s, !gpunvme_page_get(&s->dq, &s->pages, 0, &more));
	note(s, !gpunvme_page_put(&s->dq, &page) && !gpunvme_page_put(&s->dq, &more));
}

static void references_do_not_run_over(void **state)
{
	struct stage s = { .lanes = 1, .width = 1 };

	(void)state;
	open_stage(&s, "", 4096, 4);
	run(&s, refer_much);
	assert_int_equal(s.wrong, 0);
	check_quiet(&s);
	close_stage(&s);
}

/* ---- Failures ---- */

#define STUCK 7u /* a page whose reader never ends */

/* One lane waits for it; the other keeps the queue moving until the first has been told. */
static void wait_for_ever(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq hasty = s->dq;
	time_t end = time(NULL) + 60;
	struct gpunvme_page page;
	uint64_t value, i = 0;

	if (gpunvme_lane()) {
		do
			note(s, !gpunvme_array_get(&s->dq, &s->pages, 512 * (STUCK + 1 + i++ % 100), 8, &value));
		while (!__atomic_load_n(&s->told, __ATOMIC_ACQUIRE) && time(NULL) < end);
		note(s, __atomic_load_n(&s->told, __ATOMIC_ACQUIRE));
		return;
	}
	hasty.cmd_timeout = 250 * hasty.ticks_per_ms;
	note(s, gpunvme_page_get(&hasty, &s->pages, STUCK, &page) == -GPUNVME_ETIMEDOUT);
	__atomic_store_n(&s->told, 1, __ATOMIC_RELEASE);
}

static void wait_for_a_page_ends(void **state)
{
	struct stage s = { .lanes = 2, .width = 1 };
	uint64_t *word;

	(void)state;
	open_stage(&s, "", 4096, 4);
	word = (uint64_t *)(uintptr_t)s.pages.table + STUCK;
	*word = GPUNVME_PAGE_READING;
	run(&s, wait_for_ever);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(*word, GPUNVME_PAGE_READING);
	*word = 0;
	check_quiet(&s);
	close_stage(&s);
}

#define BAD 1000u /* the page of blocks 8000 to 8007: the library, which proves a device by reads of 1 MiB, comes not so far */

/* That page is bad: all lanes are told so, each time, and nothing else suffers. */
static void get_past_a_bad_page(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_lane() + 3, value, i;
	uint32_t round;
	int ret;

	for (round = 0; round < s->rounds; round++) {
		i = round % 2 ? next_random(&seed) % WORDS : 512 * BAD + gpunvme_lane();
		ret = gpunvme_array_get(&s->dq, &s->pages, i, 8, &value);
		note(s, i / 512 == BAD ? ret == 0x281 : !ret && value == SALT + i);
	}
}

static void errors_belong_to_their_page(void **state)
{
	struct stage s = { .lanes = 96, .width = 8, .rounds = 20 };

	(void)state;
	open_stage(&s, "?fault=status:0x281:op=read:lba=8000-8007", 4096, 4);
	run(&s, get_past_a_bad_page);
	assert_int_equal(s.wrong, 0);
	assert_true(info_of(&s).failures > 0);
	assert_int_equal(info_of(&s).lost, 0);
	check_quiet(&s);
	close_stage(&s);
}

/* All ask once. Those that waited for the read that failed are told so; others may have read anew. */
static void get_once(void *arg)
{
	struct stage *s = arg;
	uint64_t value = 0;
	int ret = gpunvme_array_get(&s->dq, &s->pages, 512 * BAD + gpunvme_lane(), 8, &value);

	s->ret[gpunvme_lane()] = ret;
	note(s, ret == 0x281 || (!ret && value == SALT + 512 * BAD + gpunvme_lane()));
}

static void error_is_not_for_ever(void **state)
{
	struct stage s = { .lanes = 64, .width = 8 };
	uint32_t i, failed = 0;

	(void)state;
	open_stage(&s, "?fault=status:0x281:op=read:lba=8000-8007:count=1", 4096, 4);
	run(&s, get_once);
	for (i = 0; i < s.lanes; i++)
		failed += s.ret[i] != 0;
	assert_true(failed > 0);
	assert_int_equal(info_of(&s).failures, 1);
	run(&s, get_once);
	for (i = 0; i < s.lanes; i++)
		assert_int_equal(s.ret[i], 0);
	assert_int_equal(s.wrong, 0);
	check_quiet(&s);
	close_stage(&s);
}

/* ---- Queues that end ---- */

/* Until the first failure, which comes: each lane wants pages that are not there. */
static void get_until_the_end(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_lane() + 5, value, i;
	int ret;

	do {
		i = next_random(&seed) % WORDS;
		ret = gpunvme_array_get(&s->dq, &s->pages, i, 8, &value);
		if (!ret)
			note(s, value == SALT + i);
	} while (!ret);
	s->ret[gpunvme_lane()] = ret;
}

static void *run_until_the_end(void *arg)
{
	run(arg, get_until_the_end);
	return NULL;
}

static void stop_is_answered(void **state)
{
	struct stage s = { .lanes = 64, .width = 8 };
	pthread_t thread;
	uint32_t i;

	(void)state;
	open_stage(&s, "", 4096, 4);
	assert_int_equal(pthread_create(&thread, NULL, run_until_the_end, &s), 0);
	for (i = 0; i < 60000 && __atomic_load_n(&s.asked, __ATOMIC_RELAXED) < 200; i++)
		usleep(1000);
	gpunvme_qp_stop(s.qp, 1);
	pthread_join(thread, NULL);
	assert_int_equal(s.wrong, 0);
	for (i = 0; i < s.lanes; i++)
		assert_int_equal(s.ret[i], -GPUNVME_ECANCELED);
	check_quiet(&s);
	close_stage(&s);
}

/*
 * Some read is never answered: the queue ends, for all; recovered, it serves the same cache with all its frames. -EAGAIN: a lane has
 * waited for a frame as long as the others for their reads.
 */
static void lost_read_is_answered(void **state)
{
	struct stage s = { .lanes = 64, .width = 8, .timeout_ms = 500 };
	uint32_t i;
	int ret;

	(void)state;
	open_stage(&s, "?fault=lose:op=read:after=2000:count=1", 4096, 40);
	run(&s, get_until_the_end);
	assert_int_equal(s.wrong, 0);
	for (i = 0; i < s.lanes; i++) {
		ret = s.ret[i];
		assert_true(ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ESHUTDOWN || ret == -GPUNVME_EAGAIN);
	}
	assert_true(info_of(&s).lost > 0);
	check_quiet(&s);
	assert_int_equal(gpunvme_qp_recover(s.qp), 0);
	view_queue(&s);
	assert_int_equal(gpunvme_pagecache_view(s.cache, &s.pages), 0);
	assert_int_equal(info_of(&s).lost, 0);
	s.rounds = 4;
	s.asked = 0;
	s.dq.cmd_timeout *= 100; /* half a second may be too little on a busy machine */
	run(&s, get_first);
	assert_int_equal(s.asked, s.lanes * s.rounds);
	assert_int_equal(s.wrong, 0);
	check_quiet(&s);
	close_stage(&s);
}

static uint32_t in_flight(struct stage *s)
{
	struct gpunvme_qp_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_qp_get_info(s->qp, &info), 0);
	return info.in_flight;
}

/* Stop lanes while the device reads; a machine that sleeps for so long that the reads have ended tries again. */
static void stop_while_it_reads(struct stage *s)
{
	time_t end = time(NULL) + 60;
	pthread_t thread;

	while (!info_of(s).lost && time(NULL) < end) {
		gpunvme_qp_stop(s->qp, 0);
		assert_int_equal(pthread_create(&thread, NULL, run_until_the_end, s), 0);
		while (in_flight(s) < info_of(s).frames && time(NULL) < end)
			usleep(1000);
		gpunvme_qp_stop(s->qp, 1);
		pthread_join(thread, NULL);
	}
	assert_true(info_of(s).lost > 0);
}

static void wait_until_quiet(struct stage *s)
{
	struct gpunvme_service *service;
	time_t end = time(NULL) + 60;

	assert_int_equal(gpunvme_service_start(s->gpu, &s->dq, 1, &service), 0);
	while (in_flight(s) && time(NULL) < end)
		usleep(1000);
	gpunvme_service_stop(service);
	assert_int_equal(in_flight(s), 0);
}

/* Nobody takes completions between the kernels, so what was in flight remains so until the service comes. */
static void lost_frames_come_back(void **state)
{
	struct stage s = { .lanes = 64, .width = 8, .rounds = 4 };
	uint64_t lost;

	(void)state;
	open_stage(&s, "?fault=delay:50000:op=read", 4096, 4);
	stop_while_it_reads(&s);
	lost = info_of(&s).lost;
	assert_int_equal(gpunvme_pagecache_view(s.cache, &s.pages), 0);
	assert_int_equal(info_of(&s).lost, lost);
	check_quiet(&s);
	gpunvme_qp_stop(s.qp, 0);
	wait_until_quiet(&s);
	assert_int_equal(gpunvme_pagecache_view(s.cache, &s.pages), 0);
	assert_int_equal(info_of(&s).lost, 0);
	s.asked = 0;
	run(&s, get_first);
	assert_int_equal(s.asked, s.lanes * s.rounds);
	assert_int_equal(s.wrong, 0);
	check_quiet(&s);
	close_stage(&s);
}

static void dead_controller_is_answered(void **state)
{
	struct stage s = { .lanes = 64, .width = 8, .timeout_ms = 500 };
	uint32_t i;

	(void)state;
	open_stage(&s, "?fault=cfs:op=read:after=2000", 4096, 40);
	run(&s, get_until_the_end);
	assert_int_equal(s.wrong, 0);
	for (i = 0; i < s.lanes; i++)
		assert_true(s.ret[i] == -GPUNVME_ETIMEDOUT || s.ret[i] == -GPUNVME_ESHUTDOWN || s.ret[i] == -GPUNVME_ENODEV ||
			    s.ret[i] == -GPUNVME_EAGAIN);
	check_quiet(&s);
	close_stage(&s);
}

/* ---- Bad input ---- */

static void refuses(struct stage *s, const struct gpunvme_pagecache_opts *opts, int want, const char *says)
{
	struct gpunvme_pagecache *cache = NULL;

	assert_int_equal(gpunvme_pagecache_create(s->dev, s->gpu, opts, &cache), want);
	assert_null(cache);
	assert_non_null(strstr(gpunvme_errmsg(), says));
}

static void bad_options_are_refused(void **state)
{
	struct stage s = { .lanes = 1, .width = 1 };
	struct gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;
	struct gpunvme_pagecache_info info = { .size = sizeof(info) };
	struct gpunvme_pagecache *cache;
	struct gpunvme_dpages pages;

	(void)state;
	open_stage(&s, "?lba=4096", 0, 0);
	assert_int_equal(gpunvme_pagecache_get_info(s.cache, &info), 0);
	assert_int_equal(info.page_size, 4096);
	assert_int_equal(info.frames, IMAGE_BYTES / 4096); /* no more than there are pages */
	opts.page_size = 5000;
	refuses(&s, &opts, -EINVAL, "power of two");
	opts.page_size = 256;
	refuses(&s, &opts, -EINVAL, "512 to 65536");
	opts.page_size = 131072;
	refuses(&s, &opts, -EINVAL, "512 to 65536");
	opts.page_size = 512;
	refuses(&s, &opts, -EINVAL, "less than a block");
	opts = (struct gpunvme_pagecache_opts)GPUNVME_PAGECACHE_OPTS_INIT;
	opts.lba = 1018;
	opts.nblocks = 7;
	refuses(&s, &opts, -ERANGE, "not within namespace");
	opts.lba = UINT64_MAX;
	refuses(&s, &opts, -ERANGE, "not within namespace");
	opts = (struct gpunvme_pagecache_opts)GPUNVME_PAGECACHE_OPTS_INIT;
	opts.flags = 1 | 1u << 30;
	refuses(&s, &opts, -EINVAL, "flags 0x40000000");
	opts.flags = GPUNVME_PAGECACHE_LANDING | GPUNVME_PAGECACHE_IN_PLACE;
	refuses(&s, &opts, -EINVAL, "both be copied and stay");
	opts.flags = 0;
	opts.nsid = 9;
	assert_int_not_equal(gpunvme_pagecache_create(s.dev, s.gpu, &opts, &cache), 0);
	refuses(&s, &(struct gpunvme_pagecache_opts){ .size = 8 }, -EINVAL, "size is 8");
	assert_int_equal(gpunvme_pagecache_create(NULL, s.gpu, NULL, &cache), -EINVAL);
	assert_int_equal(gpunvme_pagecache_view(NULL, &pages), -EINVAL);
	assert_int_equal(gpunvme_pagecache_view_v(s.cache, &pages, 9u << 16, sizeof(pages)), -EPROTONOSUPPORT);
	assert_int_equal(gpunvme_pagecache_destroy(NULL), 0);
	close_stage(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements_are_right),
		cmocka_unit_test(two_frames_serve_many_lanes),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
		cmocka_unit_test(two_frames_serve_ten_thousand),
#endif
		cmocka_unit_test(hot_page_is_read_once),
		cmocka_unit_test(ranges_cross_pages),
		cmocka_unit_test(ends_are_answered),
		cmocka_unit_test(wrong_queues_take_no_frame),
		cmocka_unit_test(kept_pages_stay),
		cmocka_unit_test(references_do_not_run_over),
		cmocka_unit_test(errors_belong_to_their_page),
		cmocka_unit_test(error_is_not_for_ever),
		cmocka_unit_test(wait_for_a_page_ends),
		cmocka_unit_test(stop_is_answered),
		cmocka_unit_test(lost_read_is_answered),
		cmocka_unit_test(lost_frames_come_back),
		cmocka_unit_test(dead_controller_is_answered),
		cmocka_unit_test(bad_options_are_refused),
	};

	const struct CMUnitTest copied[] = {
		cmocka_unit_test(elements_are_right),
		cmocka_unit_test(wave_uses_two_caches),
		cmocka_unit_test(two_frames_serve_many_lanes),
		cmocka_unit_test(hot_page_is_read_once),
		cmocka_unit_test(ranges_cross_pages),
		cmocka_unit_test(ends_are_answered),
		cmocka_unit_test(kept_pages_stay),
		cmocka_unit_test(errors_belong_to_their_page),
		cmocka_unit_test(lost_frames_come_back),
	};
	int failed = cmocka_run_group_tests(tests, make_image, image_remove_disk);

	way = GPUNVME_PAGECACHE_LANDING;
	return failed + cmocka_run_group_tests(copied, make_image, image_remove_disk);
}
