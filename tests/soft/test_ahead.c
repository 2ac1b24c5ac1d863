/* SPDX-License-Identifier: MIT */
/*
 * Page caches with prefetch over a controller: what the host makes, tells and refuses, and queues that end while pages are coming.
 * tests/device/test_ahead.c has what lanes do. Every 8 bytes of the image are their own number.
 */
#include <gpunvme/device_ahead.h>
#include <errno.h>
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

#define IMAGE_BYTES (2u << 20)
#define WORDS (IMAGE_BYTES / 8u)
#define PAGE_WORDS 512u
#define PAGES (WORDS / PAGE_WORDS)

struct stage {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_qp *qp;
	struct gpunvme_pagecache *cache;
	struct gpunvme_dq dq;
	struct gpunvme_dpages pages;
	uint32_t rounds, wrong; /* atomic */
	uint32_t first, count;  /* pages */
	int ret[PAGES];
};

static int make_image(void **state)
{
	uint64_t i;
	FILE *f;

	if (image_make_dir(state))
		return -1;
	f = fopen(image_path("disk.img"), "wb");
	if (!f)
		return -1;
	for (i = 0; i < WORDS; i++)
		if (fwrite(&i, sizeof(i), 1, f) != 1)
			return -1;
	return fclose(f);
}

static void view_queue(struct stage *s)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	assert_int_equal(gpunvme_qp_view(s->qp, &view, &s->dq), 0);
}

static void open_stage(struct stage *s, const char *keys, uint32_t frames, uint32_t flags)
{
	struct gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;
	struct gpunvme_qp_opts qp = GPUNVME_QP_OPTS_INIT;
	char uri[512];

	memset(s, 0, sizeof(*s));
	snprintf(uri, sizeof(uri), "soft:%s%s", image_path("disk.img"), keys);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &s->dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &s->gpu), 0);
	qp.depth = 64;
	assert_int_equal(gpunvme_qp_create(s->dev, s->gpu, &qp, &s->qp), 0);
	view_queue(s);
	opts.flags = GPUNVME_PAGECACHE_STATS | GPUNVME_PAGECACHE_AHEAD | flags;
	opts.frames = frames;
	assert_int_equal(gpunvme_pagecache_create(s->dev, s->gpu, &opts, &s->cache), 0);
	assert_int_equal(gpunvme_pagecache_view(s->cache, &s->pages), 0);
}

static void close_stage(struct stage *s)
{
	assert_int_equal(gpunvme_qp_destroy(s->qp), 0);
	assert_int_equal(gpunvme_pagecache_destroy(s->cache), 0);
	gpunvme_gpu_close(s->gpu);
	gpunvme_dev_close(s->dev);
}

static struct gpunvme_pagecache_info info_of(struct stage *s)
{
	struct gpunvme_pagecache_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_pagecache_get_info(s->cache, &info), 0);
	return info;
}

static void run(struct stage *s, void (*kernel)(void *), uint32_t lanes, uint32_t width)
{
	assert_int_equal(gpunvme_cpu_launch(lanes, width, kernel, s), 0);
	assert_int_equal(s->wrong, 0);
}

static void note(struct stage *s, bool right)
{
	if (!right)
		__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
}

/* One lane. */
static void prefetch(void *arg)
{
	struct stage *s = arg;
	uint32_t i;

	for (i = 0; i < s->count; i++)
		s->ret[i] = gpunvme_ahead_prefetch(&s->dq, &s->pages, s->first + i);
}

static void get(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_page page;
	uint32_t i;

	for (i = 0; i < s->count; i++) {
		s->ret[i] = gpunvme_ahead_page_get(&s->dq, &s->pages, s->first + i, &page);
		if (s->ret[i])
			continue;
		note(s, ((const uint64_t *)(uintptr_t)page.base)[511] == (uint64_t)(s->first + i) * PAGE_WORDS + 511);
		note(s, !gpunvme_page_put(&s->dq, &page));
	}
}

/* Many lanes: elements here and there, and ranges across pages, with prefetch of what comes next. */
static void stream(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_lane() + 1, at = 0, next = 0, value = 0, to[40];
	uint32_t round, i, bad;
	int ret;

	for (round = 0; round < s->rounds; round++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		at = next;
		next = (seed >> 33) % (WORDS - 40);
		ret = gpunvme_ahead_prefetch(&s->dq, &s->pages, next / PAGE_WORDS);
		note(s, !ret || ret == -GPUNVME_EAGAIN);
		note(s, !gpunvme_ahead_array_get(&s->dq, &s->pages, at, 8, &value) && value == at);
		bad = gpunvme_ahead_array_get_range(&s->dq, &s->pages, at, 40, 8, to) != 0;
		for (i = 0; i < 40; i++)
			bad |= to[i] != at + i;
		note(s, !bad);
	}
}

static void settle(void *arg)
{
	struct stage *s = arg;

	note(s, !gpunvme_ahead_settle(&s->dq, &s->pages));
}

static void streams(uint32_t frames, uint32_t lanes, uint32_t width, uint32_t flags)
{
	struct gpunvme_pagecache_info info;
	struct stage s;

	open_stage(&s, "", frames, flags);
	s.rounds = 16;
	run(&s, stream, lanes, width);
	run(&s, settle, 4, 4);
	info = info_of(&s);
	assert_int_equal(info.coming, 0);
	assert_int_equal(info.lost, 0);
	assert_int_equal(info.failures, 0);
	assert_true(info.prefetches >= info.used + info.wasted);
	assert_true(info.used > 0 || frames < 8); /* of two frames there may never be one for later */
	close_stage(&s);
}

static void many_lanes_find_what_is_there(void **state)
{
	(void)state;
	streams(2, 32, 8, 0);
	streams(2, 12, 1, GPUNVME_PAGECACHE_LANDING);
	streams(40, 64, 32, 0);
	streams(64, 24, 4, GPUNVME_PAGECACHE_LANDING);
}

/* The queue goes on, and its identifiers are with pages that nobody asked for: the cache stays until somebody settles. */
static void caches_wait_for_their_identifiers(void **state)
{
	struct gpunvme_pagecache_info info;
	struct stage s;

	(void)state;
	open_stage(&s, "", 64, 0);
	s.count = 9;
	run(&s, prefetch, 1, 1);
	info = info_of(&s);
	assert_int_equal(info.prefetches, 9);
	assert_int_equal(info.coming, 9);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_ahead_settle"));
	run(&s, settle, 8, 8);
	info = info_of(&s);
	assert_int_equal(info.coming, 0);
	assert_int_equal(info.used, 0);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), 0);
	s.cache = NULL;
	close_stage(&s);
}

/* A queue that ends takes its identifiers with it, and nothing is written behind the cache's end. */
static void queues_that_end_take_theirs(void **state)
{
	struct stage s;

	(void)state;
	open_stage(&s, "?fault=delay:20000:op=read", 64, 0);
	s.count = 9;
	run(&s, prefetch, 1, 1);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), -EBUSY);
	close_stage(&s);
	open_stage(&s, "", 64, 0);
	s.count = 3;
	run(&s, prefetch, 1, 1);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), -EBUSY);
	assert_int_equal(gpunvme_qp_destroy(s.qp), 0);
	gpunvme_dev_close(s.dev);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), 0);
	gpunvme_gpu_close(s.gpu);
}

/* What came by the queue of before is read anew by that of its recovery, and the frames come back; who has the old view is told. */
static void recovered_queues_read_anew(void **state)
{
	struct gpunvme_dq before, after;
	struct stage s;
	uint32_t i;

	(void)state;
	open_stage(&s, "", 16, 0);
	s.count = 6;
	run(&s, prefetch, 1, 1);
	assert_int_equal(gpunvme_qp_recover(s.qp), 0);
	before = s.dq;
	view_queue(&s);
	after = s.dq;
	run(&s, get, 1, 1);
	for (i = 0; i < 6; i++)
		assert_int_equal(s.ret[i], 0);
	assert_int_equal(info_of(&s).lost, 6);
	assert_int_equal(info_of(&s).wasted, 6);
	assert_int_equal(gpunvme_pagecache_view(s.cache, &s.pages), 0);
	assert_int_equal(info_of(&s).lost, 0);
	s.first = 20;
	run(&s, prefetch, 1, 1);
	s.dq = before;
	run(&s, get, 1, 1);
	for (i = 0; i < 6; i++)
		assert_int_equal(s.ret[i], -GPUNVME_ESHUTDOWN);
	s.dq = after;
	run(&s, get, 1, 1);
	for (i = 0; i < 6; i++)
		assert_int_equal(s.ret[i], 0);
	assert_int_equal(info_of(&s).used, 6);
	close_stage(&s);
}

/* A range of many pages by one lane has what follows under way. */
static void get_long_range(void *arg)
{
	static uint64_t to[20 * PAGE_WORDS];
	struct stage *s = arg;
	uint32_t i;

	note(s, !gpunvme_ahead_array_get_range(&s->dq, &s->pages, 7 * PAGE_WORDS + 9, 20 * PAGE_WORDS - 9, 8, to));
	for (i = 0; i < 20 * PAGE_WORDS - 9; i++)
		note(s, to[i] == 7 * PAGE_WORDS + 9 + i);
}

static void ranges_are_read_ahead(void **state)
{
	struct stage s;

	(void)state;
	open_stage(&s, "?fault=delay:200:op=read", 64, 0);
	run(&s, get_long_range, 1, 1);
	assert_int_equal(info_of(&s).misses, 1);
	assert_int_equal(info_of(&s).prefetches, 19);
	assert_int_equal(info_of(&s).used, 19);
	close_stage(&s);
}

#ifdef WITH_ARRAYS
static void get_by_array(void *arg)
{
	static uint64_t to[3 * PAGE_WORDS];
	const uint64_t from = 5 * PAGE_WORDS - 7;
	struct stage *s = arg;
	uint64_t value = 0, size = 0;
	uint32_t i;

	note(s, !arrays_ahead(&s->dq, &s->pages, from, 3 * PAGE_WORDS, &value, to, &size) && value == from && size == WORDS);
	for (i = 0; i < 3 * PAGE_WORDS; i++)
		note(s, to[i] == from + i);
	note(s, arrays_ahead(&s->dq, &s->pages, WORDS, 1, &value, to, &size) == -GPUNVME_ERANGE && !value);
	note(s, arrays_ahead(&s->dq, &s->pages, WORDS - 1, 2, &value, to, &size) == -GPUNVME_ERANGE);
}

static void arrays_find_what_is_there(void **state)
{
	struct stage s;

	(void)state;
	open_stage(&s, "", 8, 0);
	run(&s, get_by_array, 1, 1);
	close_stage(&s);
}
#endif

/* Half of one identifier is none: that is for ever, so it is not -EAGAIN. Pages are read as they are wanted. */
static void one_identifier_is_too_few(void **state)
{
	struct stage s;
	uint32_t i;

	(void)state;
	open_stage(&s, "", 8, 0);
	s.dq.cids = 1; /* as of a queue with a depth of 2 */
	s.count = 3;
	run(&s, prefetch, 1, 1);
	for (i = 0; i < s.count; i++)
		assert_int_equal(s.ret[i], -GPUNVME_EOPNOTSUPP);
	run(&s, get, 1, 1);
	for (i = 0; i < s.count; i++)
		assert_int_equal(s.ret[i], 0);
	run(&s, prefetch, 1, 1);
	assert_int_equal(s.ret[0], 0); /* it is there */
	close_stage(&s);
}

#define BAD 400u /* the page of blocks 3200 to 3207: the library, which proves a device by reads of 1 MiB, comes not so far */

static void failures_reach_who_asks(void **state)
{
	struct stage s;
	uint32_t i;

	(void)state;
	open_stage(&s, "?fault=status:0x281:op=read:lba=3200-3207:count=1", 16, 0);
	s.first = BAD - 1;
	s.count = 6;
	run(&s, prefetch, 1, 1);
	run(&s, get, 1, 1);
	for (i = 0; i < 6; i++)
		assert_int_equal(s.ret[i], i == 1 ? 0x281 : 0);
	assert_int_equal(info_of(&s).failures, 1);
	run(&s, get, 1, 1);
	for (i = 0; i < 6; i++)
		assert_int_equal(s.ret[i], 0);
	close_stage(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_lanes_find_what_is_there),
		cmocka_unit_test(caches_wait_for_their_identifiers),
		cmocka_unit_test(queues_that_end_take_theirs),
		cmocka_unit_test(recovered_queues_read_anew),
		cmocka_unit_test(failures_reach_who_asks),
		cmocka_unit_test(ranges_are_read_ahead),
		cmocka_unit_test(one_identifier_is_too_few),
#ifdef WITH_ARRAYS
		cmocka_unit_test(arrays_find_what_is_there),
#endif
	};

	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
