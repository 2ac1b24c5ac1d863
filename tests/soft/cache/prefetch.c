/* SPDX-License-Identifier: MIT */
/*
 * Prefetch and reading ahead over controllers: what threads find, whatever queue a page came by, queues that end while pages are
 * coming, and what each of them has to give back before a cache goes. tests/device/test_prefetch.c has what threads do.
 */
#include "stage.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* ---- Many threads ---- */

/* Of files and volumes pages are had, too: a frame may then be had for as long as others wait for one. */
static int get_some_way(struct stage *s, uint64_t i, bool by_page, uint64_t *value)
{
	int ret;

	if (s->source == NAMESPACE)
		return get_word(s, i, value);
	do
		ret = by_page ? get_by_page(s, i, value) : get_word(s, i, value);
	while (ret == -GPUNVME_EAGAIN);
	return ret;
}

static bool range_is_right(struct stage *s, uint64_t at, uint64_t n)
{
	uint64_t to[700], k;
	int ret;

	do
		ret = get_range(s, at, n, to);
	while (ret == -GPUNVME_EAGAIN && s->source != NAMESPACE);
	for (k = 0; k < n && !ret; k++)
		ret = to[k] != word_of(s, at + k, 0);
	return !ret;
}

/* Elements, pages and ranges here and there, and prefetch of what comes next. */
static void stream(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_thread_id() + 1, at = 0, next = 0, value = 0;
	uint32_t round;
	int ret;

	for (round = 0; round < s->rounds; round++) {
		at = next;
		next = next_random(&seed) % s->words;
		ret = prefetch(s, next * 8 >> s->pages.page_shift);
		note(s, !ret || ret == -GPUNVME_EAGAIN || (ret == -GPUNVME_EMSGSIZE && s->source != NAMESPACE && s->pages.page_shift > 10));
		note(s, !get_some_way(s, at, !(round % 2), &value) && value == word_of(s, at, 0));
		note(s, range_is_right(s, at, s->words - at < 700 ? s->words - at : (seed >> 20) % 700));
	}
}

static void streams(void **state, struct stage s)
{
	const struct row *row = *state;
	struct gpunvme_cache_info info;

	s.source = row->source;
	s.mode |= row->mode;
	stage_open(&s, "");
	run(&s, stream);
	s.lanes = s.width = 4;
	run(&s, finish_all);
	info = info_of(&s);
	assert_int_equal(info.coming, 0);
	assert_int_equal(info.lost, 0);
	assert_int_equal(info.failures, 0);
	assert_true(info.prefetches > 0 && info.prefetches >= info.used + info.wasted);
	assert_true(info.used > 0 || info.frames < 8); /* of two frames there may never be one for later */
	assert_true(s.mode & COPIED ? info.copied > 0 : !info.copied);
	check_images(&s);
	stage_close(&s);
}

static void lanes_find_what_namespaces_have(void **state)
{
	streams(state, (struct stage){ .lanes = 32, .width = 8, .rounds = 16, .frames = 2 });
	streams(state, (struct stage){ .lanes = 12, .width = 1, .rounds = 16, .frames = 2, .mode = COPIED });
	streams(state, (struct stage){ .lanes = 64, .width = 32, .rounds = 16, .frames = 40 });
	streams(state, (struct stage){ .lanes = 24, .width = 4, .rounds = 16, .frames = 64, .mode = COPIED });
}

#if STAGE_FILES
static void lanes_find_what_files_have(void **state)
{
	streams(state, (struct stage){ .lanes = 24, .width = 8, .rounds = 12, .page_size = 1024, .frames = 40 });
	streams(state, (struct stage){ .lanes = 16, .width = 1, .rounds = 12, .page_size = 4096, .frames = 6, .lba = 3, .mode = COPIED });
	streams(state, (struct stage){ .lanes = 24, .width = 8, .rounds = 12, .page_size = 512, .frames = 3, .mode = COPIED });
}
#endif

static void lanes_find_what_volumes_have(void **state)
{
	streams(state, (struct stage){ .lanes = 32, .width = 8, .rounds = 12, .page_size = 4096, .frames = 60, .queues = 2 });
	streams(state, (struct stage){ .lanes = 32, .width = 8, .rounds = 12, .page_size = 512, .frames = 4, .queues = 3, .stripe = 4 });
	streams(state, (struct stage){ .lanes = 16, .width = 1, .rounds = 12, .page_size = 2048, .frames = 20, .queues = 2, .lba = 3,
				       .mode = COPIED });
	streams(state, (struct stage){ .lanes = 24, .width = 4, .rounds = 8, .page_size = 1024, .frames = 9 });
}

/* ---- Ranges and arrays ---- */

/* One thread reads all, and has what follows under way: of its pages only the first is waited for from the beginning. */
static void ranges_are_read_ahead(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 64, .queues = 2, .first = 9 };
	struct gpunvme_cache_info info;

	stage_open(&s, "?fault=delay:200:op=read");
	run(&s, get_all);
	info = info_of(&s);
	assert_int_equal(info.misses, 1);
	assert_int_equal(info.prefetches, info.pages - 1);
	assert_int_equal(info.used, info.prefetches);
	assert_int_equal(info.coming, 0);
	stage_close(&s);
}

#ifdef WITH_ARRAYS
static void get_by_arrays(void *arg)
{
	static uint64_t to[1536];
	struct stage *s = arg;
	const uint64_t from = 5 * 512 - 7;
	uint64_t value = 0, size = 0, i;

	note(s, !get_by_array(s, from, 1536, &value, to, &size) && value == word_of(s, from, 0) && size == s->words);
	for (i = 0; i < 1536; i++)
		note(s, to[i] == word_of(s, from + i, 0));
	note(s, get_by_array(s, s->words, 1, &value, to, &size) == -GPUNVME_ERANGE && !value);
	note(s, get_by_array(s, s->words - 1, 2, &value, to, &size) == -GPUNVME_ERANGE);
}

static void arrays_find_what_is_there(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 8 };

	stage_open(&s, "");
	run(&s, get_by_arrays);
	stage_close(&s);
}
#endif

/* ---- Queues ---- */

/*
 * The queue goes on, and its identifiers are with pages that no thread asked for: the cache stays until a kernel finishes them.
 * Controllers of a volume that were opened alike have queues of the same tags: each page comes by one of its own controller.
 */
static void caches_wait_for_their_identifiers(void **state)
{
	struct stage s = { AS(state), .page_size = 4096, .frames = 64, .queues = 2, .count = 12 };

	stage_open(&s, "");
	all_return(&s, prefetch_some, 0);
	assert_int_equal(info_of(&s).prefetches, 12);
	assert_int_equal(info_of(&s).coming, 12);
	assert_int_equal(gpunvme_cache_destroy(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_prefetch_finish"));
	s.lanes = s.width = 8;
	run(&s, finish_all);
	assert_int_equal(info_of(&s).coming, 0);
	assert_int_equal(info_of(&s).used, 0);
	if (s.source == VOLUME) {
		all_return(&s, get_some, 0);
		assert_int_equal(info_of(&s).used, 12);
		assert_int_equal(info_of(&s).misses, 0);
	}
	assert_int_equal(gpunvme_cache_destroy(s.cache), 0);
	s.cache = NULL;
	stage_close(&s);
}

/* A queue that ends takes its identifiers with it, and nothing is written after the cache's end. */
static void queues_that_end_take_theirs(void **state)
{
	struct stage s = { AS(state), .frames = 64, .count = 9 }, t = { AS(state), .frames = 64, .count = 3 };

	stage_open(&s, "?fault=delay:20000:op=read");
	all_return(&s, prefetch_some, 0);
	assert_int_equal(gpunvme_cache_destroy(s.cache), -EBUSY);
	stage_close(&s);
	stage_open(&t, "");
	all_return(&t, prefetch_some, 0);
	assert_int_equal(gpunvme_cache_destroy(t.cache), -EBUSY);
	assert_int_equal(gpunvme_queue_destroy(t.qp), 0);
	gpunvme_dev_close(t.dev[0]);
	assert_int_equal(gpunvme_cache_destroy(t.cache), 0);
	gpunvme_gpu_close(t.gpu);
	stage_free(&t);
}

/* What came by the queue of before is read anew by that of its recovery, and the frames come back. The old view is refused. */
static void recovered_queues_read_anew(void **state)
{
	struct stage s = { AS(state), .frames = 16, .count = 6 };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dq before, after;

	stage_open(&s, "");
	all_return(&s, prefetch_some, 0);
	assert_int_equal(gpunvme_queue_recover(s.qp), 0);
	before = s.dq;
	assert_int_equal(gpunvme_queue_view(s.qp, &view, &after), 0);
	s.dq = after;
	all_return(&s, get_some, 0);
	assert_int_equal(info_of(&s).lost, 6);
	assert_int_equal(info_of(&s).wasted, 6);
	assert_int_equal(gpunvme_cache_view(s.cache, &s.pages), 0);
	assert_int_equal(info_of(&s).lost, 0);
	s.first = 20;
	all_return(&s, prefetch_some, 0);
	s.dq = before;
	all_return(&s, get_some, -GPUNVME_ESHUTDOWN);
	s.dq = after;
	all_return(&s, get_some, 0);
	assert_int_equal(info_of(&s).used, 6);
	stage_close(&s);
}

/* Pages are coming when the queues end: by those of the recovery they are read anew, and their frames come back. */
static void recovered_volumes_read_anew(void **state)
{
	struct stage s = { AS(state), .page_size = 4096, .frames = 16, .queues = 2, .count = 12 };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	uint32_t i;

	stage_open(&s, "");
	all_return(&s, prefetch_some, 0);
	for (i = 0; i < STAGE_MEMBERS * 2; i++) /* each of the queues ends by a thread's word */
		gnvd_poison((const struct gpunvme_dq *)(uintptr_t)s.v.dq + i, GPUNVME_ETIMEDOUT);
	assert_int_equal(gpunvme_queue_recover(s.vol), 0);
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &s.v), 0);
	all_return(&s, get_some, 0);
	assert_int_equal(info_of(&s).wasted, 12);
	assert_int_equal(info_of(&s).lost, 12);
	assert_int_equal(info_of(&s).coming, 0);
	stage_view(&s);
	assert_int_equal(info_of(&s).lost, 0);
	all_return(&s, get_some, 0);
	stage_close(&s);
}

/* ---- Failures ---- */

#define BAD 400u /* the page of blocks 3200 to 3207: the library, which proves a device by reads of 1 MiB, does not come so far */

static void failures_reach_who_asks(void **state)
{
	struct stage s = { AS(state), .frames = 16, .first = BAD - 1, .count = 6 };

	stage_open(&s, "?fault=status:0x281:op=read:lba=3200-3207:count=1");
	all_return(&s, prefetch_some, 0);
	returns(&s, get_some, 0, 1, 0x281);
	assert_int_equal(info_of(&s).failures, 1);
	all_return(&s, get_some, 0);
	stage_close(&s);
}

/* Half of one identifier is none: that never changes, so it is not -EAGAIN. Pages are read as they are wanted. */
static void one_identifier_is_too_few(void **state)
{
	struct stage s = { AS(state), .frames = 8, .count = 3 };

	stage_open(&s, "");
	s.dq.cids = 1; /* as of a queue with a depth of 2 */
	all_return(&s, prefetch_some, -GPUNVME_EOPNOTSUPP);
	all_return(&s, get_some, 0);
	all_return(&s, prefetch_some, 0); /* they are there */
	stage_close(&s);
}

int run_prefetches(void)
{
	const struct CMUnitTest tests[] = {
		ROW(lanes_find_what_namespaces_have, NAMESPACE, PREFETCH),
		ROW(lanes_find_what_volumes_have, VOLUME, PREFETCH),
		ROW(ranges_are_read_ahead, NAMESPACE, PREFETCH),
		ROW(ranges_are_read_ahead, VOLUME, PREFETCH),
#ifdef WITH_ARRAYS
		ROW(arrays_find_what_is_there, NAMESPACE, PREFETCH),
		ROW(arrays_find_what_is_there, VOLUME, PREFETCH),
#if STAGE_FILES
		ROW(arrays_find_what_is_there, OF_FILE, PREFETCH),
#endif
#endif
#if STAGE_FILES
		ROW(lanes_find_what_files_have, OF_FILE, PREFETCH),
#endif
		ROW(caches_wait_for_their_identifiers, NAMESPACE, PREFETCH),
		ROW(caches_wait_for_their_identifiers, VOLUME, PREFETCH),
		ROW(queues_that_end_take_theirs, NAMESPACE, PREFETCH),
		ROW(recovered_queues_read_anew, NAMESPACE, PREFETCH),
		ROW(recovered_volumes_read_anew, VOLUME, PREFETCH),
		ROW(failures_reach_who_asks, NAMESPACE, PREFETCH),
		ROW(one_identifier_is_too_few, NAMESPACE, PREFETCH),
	};

	return cmocka_run_group_tests(tests, stage_make, stage_remove);
}
