/* SPDX-License-Identifier: MIT */
/*
 * Prefetch and reading ahead of files and volumes: what lanes find, by whatever queue a page came; pages of several parts and none;
 * queues that are recovered, and what each of them has to give back before a cache goes.
 */
#include <gpunvme/device_ahead_sources.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arrays.h"
#include "sources.h"

static int prefetch(struct sources *s, uint64_t page)
{
	return s->file ? gpunvme_file_ahead_prefetch(&s->dq, &s->pages, page) : gpunvme_volume_ahead_prefetch(&s->v, &s->pages, page);
}

static int settle(struct sources *s)
{
	return s->file ? gpunvme_file_ahead_settle(&s->dq, &s->pages) : gpunvme_volume_ahead_settle(&s->v, &s->pages);
}

static int get(struct sources *s, uint64_t i, uint64_t *value)
{
	return s->file ? gpunvme_file_ahead_array_get(&s->dq, &s->pages, i, 8, value) :
			 gpunvme_volume_ahead_array_get(&s->v, &s->pages, i, 8, value);
}

static int get_range(struct sources *s, uint64_t i, uint64_t n, uint64_t *to)
{
	return s->file ? gpunvme_file_ahead_array_get_range(&s->dq, &s->pages, i, n, 8, to) :
			 gpunvme_volume_ahead_array_get_range(&s->v, &s->pages, i, n, 8, to);
}

/* The word of a page that the lane has. */
static int get_by_page(struct sources *s, uint64_t i, uint64_t *value)
{
	uint64_t page = i * 8 >> s->pages.page_shift, offset = i * 8 - (page << s->pages.page_shift);
	struct gpunvme_page p = { 0, 0 };
	int ret = s->file ? gpunvme_file_ahead_page_get(&s->dq, &s->pages, page, &p) :
			    gpunvme_volume_ahead_page_get(&s->v, &s->pages, page, &p);

	if (ret)
		return ret;
	*value = *(const uint64_t *)(uintptr_t)(p.base + offset);
	return s->file ? gpunvme_page_put(&s->dq, &p) : gpunvme_volume_page_put(&s->v, &p);
}

#ifdef WITH_ARRAYS
static int get_by_array(struct sources *s, uint64_t i, uint64_t n, uint64_t *value, uint64_t *to, uint64_t *size)
{
	return s->file ? arrays_ahead_of_file(&s->dq, &s->pages, i, n, value, to, size) :
			 arrays_ahead_of_volume(&s->v, &s->pages, i, n, value, to, size);
}

static void ask_by_array(struct sources *s)
{
	uint64_t to[40], value, size = 0, k;

	sources_note(s, !get_by_array(s, 500, 40, &value, to, &size) && value == sources_word(s, 500, 0) && size == s->words);
	for (k = 0; k < 40; k++)
		sources_note(s, to[k] == sources_word(s, 500 + k, 0));
	sources_note(s, get_by_array(s, s->words, 1, &value, to, &size) == -GPUNVME_ERANGE && !value);
	sources_note(s, get_by_array(s, s->words - 1, 2, &value, to, &size) == -GPUNVME_ERANGE);
}
#endif

static void settle_all(void *arg)
{
	struct sources *s = arg;

	sources_note(s, !settle(s));
}

/* Elements, pages and ranges here and there, and prefetch of what comes next. */
static void stream(void *arg)
{
	struct sources *s = arg;
	uint64_t seed = gpunvme_lane() + 1, at = 0, next = 0, value = 0, to[700], n, k;
	uint32_t round;
	int ret;

	for (round = 0; round < s->rounds; round++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		at = next;
		next = (seed >> 33) % s->words;
		ret = prefetch(s, next * 8 >> s->pages.page_shift);
		sources_note(s, !ret || ret == -GPUNVME_EAGAIN || (ret == -GPUNVME_EMSGSIZE && s->pages.page_shift > 10));
		do
			ret = round % 2 ? get(s, at, &value) : get_by_page(s, at, &value);
		while (ret == -GPUNVME_EAGAIN);
		sources_note(s, !ret && value == sources_word(s, at, 0));
		n = s->words - at < 700 ? s->words - at : (seed >> 20) % 700;
		do
			ret = get_range(s, at, n, to);
		while (ret == -GPUNVME_EAGAIN);
		for (k = 0; k < n && !ret; k++)
			ret = to[k] != sources_word(s, at + k, 0);
		sources_note(s, !ret);
	}
}

static void streams(struct sources s)
{
	struct gpunvme_pagecache_info info;
	uint32_t width = s.width;

	s.flags |= GPUNVME_PAGECACHE_AHEAD;
	sources_open(&s, "");
	sources_run(&s, stream);
	s.lanes = s.width = 4;
	sources_run(&s, settle_all);
	info = sources_info(&s);
	assert_int_equal(info.coming, 0);
	assert_int_equal(info.lost, 0);
	assert_int_equal(info.failures, 0);
	assert_true(info.prefetches > 0 && info.prefetches >= info.used + info.wasted);
	assert_true(s.flags & GPUNVME_PAGECACHE_LANDING ? info.copied > 0 : !info.copied);
	s.width = width;
	sources_check(&s);
	sources_close(&s);
}

static void lanes_find_what_files_have(void **state)
{
	(void)state;
	streams((struct sources){ .file = true, .lanes = 24, .width = 8, .rounds = 12, .page_size = 1024, .frames = 40 });
	streams((struct sources){ .file = true, .lanes = 16, .width = 1, .rounds = 12, .page_size = 4096, .frames = 6, .lba = 3,
				  .flags = GPUNVME_PAGECACHE_LANDING });
	streams((struct sources){ .file = true, .lanes = 24, .width = 8, .rounds = 12, .page_size = 512, .frames = 3,
				  .flags = GPUNVME_PAGECACHE_LANDING });
}

static void lanes_find_what_volumes_have(void **state)
{
	(void)state;
	streams((struct sources){ .lanes = 32, .width = 8, .rounds = 12, .page_size = 4096, .frames = 60, .queues = 2 });
	streams((struct sources){ .lanes = 32, .width = 8, .rounds = 12, .page_size = 512, .frames = 4, .queues = 3, .stripe = 4 });
	streams((struct sources){ .lanes = 16, .width = 1, .rounds = 12, .page_size = 2048, .frames = 20, .queues = 2, .lba = 3,
				  .flags = GPUNVME_PAGECACHE_LANDING });
	streams((struct sources){ .lanes = 24, .width = 4, .rounds = 8, .page_size = 1024, .frames = 9 });
}

/* ---- Parts ---- */

static uint32_t parts_of(const struct sources *s, uint64_t page)
{
	uint64_t words = 1ull << (s->pages.page_shift - 3), i, at, next = 1; /* nowhere */
	uint32_t parts = 0, m, other = 0;

	for (i = page * words; i < s->words && i < (page + 1) * words; i += 64) {
		bool has = sources_where(s, i, &m, &at);

		parts += has && (at != next || m != other);
		next = has ? at + 512 : 1;
		other = m;
	}
	return parts;
}

/* A page in one piece comes, one in several does not, and for one that is a hole there is nothing to do. */
static void prefetch_each(void *arg)
{
	struct sources *s = arg;
	uint64_t words = 1ull << (s->pages.page_shift - 3), page, value;
	uint32_t parts;
	int ret;

	for (page = 0; page < (s->words + words - 1) / words; page++) {
		parts = parts_of(s, page);
		ret = prefetch(s, page);
		sources_note(s, ret == (parts > 1 ? -GPUNVME_EMSGSIZE : 0));
		sources_note(s, sources_info(s).coming == (parts == 1));
		sources_note(s, !get(s, page * words, &value) && value == sources_word(s, page * words, 0));
		__atomic_fetch_or(&s->asked, 1u << (parts > 2 ? 30 : 28 + parts), __ATOMIC_RELAXED);
	}
	sources_note(s, prefetch(s, page) == -GPUNVME_ERANGE);
}

static void pages_of_one_part_come(void **state)
{
	struct sources file = { .file = true, .lanes = 1, .width = 1, .page_size = 4096, .frames = 8, .flags = GPUNVME_PAGECACHE_AHEAD };
	struct sources volume = { .lanes = 1, .width = 1, .page_size = 4096, .frames = 8, .stripe = 4, .queues = 2,
				  .flags = GPUNVME_PAGECACHE_AHEAD };

	(void)state;
	sources_open(&file, "");
	sources_run(&file, prefetch_each);
	assert_int_equal(file.asked >> 28 & 7, 7); /* there were pages of none, one and several */
	sources_close(&file);
	sources_open(&volume, "");
	sources_run(&volume, prefetch_each);
	assert_int_equal(volume.asked >> 28 & 7, 4);
	sources_close(&volume);
}

/* ---- Ranges ---- */

static void get_all(void *arg)
{
	struct sources *s = arg;
	uint64_t *to = malloc(s->words * 8), i;

	if (!to || get_range(s, 0, s->words, to))
		sources_note(s, false);
	for (i = 0; to && i < s->words; i++)
		sources_note(s, to[i] == sources_word(s, i, 0));
	free(to);
}

/* One lane reads all, and has what follows under way: of its pages only the first is waited for from the beginning. */
static void ranges_are_read_ahead(void **state)
{
	struct sources s = { .lanes = 1, .width = 1, .page_size = 4096, .frames = 64, .queues = 2, .flags = GPUNVME_PAGECACHE_AHEAD };
	struct gpunvme_pagecache_info info;

	(void)state;
	sources_open(&s, "?fault=delay:200:op=read");
	sources_run(&s, get_all);
	info = sources_info(&s);
	assert_int_equal(info.misses, 1);
	assert_int_equal(info.prefetches, info.pages - 1);
	assert_int_equal(info.used, info.prefetches);
	assert_int_equal(info.coming, 0);
	sources_close(&s);
}

/* A page of several parts is read when the lane comes to it, and keeps nothing of what follows from being read ahead. */
static void ranges_go_on_behind_pages_of_several_parts(void **state)
{
	struct sources s = { .file = true, .lanes = 1, .width = 1, .page_size = 4096, .frames = 64, .flags = GPUNVME_PAGECACHE_AHEAD };
	uint64_t page, whole = 0, behind = 0;

	(void)state;
	sources_open(&s, "");
	for (page = 1; page < sources_info(&s).pages; page++) {
		whole += parts_of(&s, page) == 1;
		behind += parts_of(&s, page) == 1 && parts_of(&s, page - 1) > 1;
	}
	assert_true(behind > 1);
	sources_run(&s, get_all);
	assert_int_equal(sources_info(&s).prefetches, whole);
	assert_int_equal(sources_info(&s).used, whole);
	sources_close(&s);
}

/* ---- Queues ---- */

static void prefetch_some(void *arg)
{
	struct sources *s = arg;
	uint64_t page;

	for (page = 0; page < 12; page++)
		sources_note(s, !prefetch(s, page));
}

static void get_some(void *arg)
{
	struct sources *s = arg;
	uint64_t page, value, i;

	for (page = 0; page < 12; page++) {
		i = page << (s->pages.page_shift - 3);
		sources_note(s, !get(s, i, &value) && value == sources_word(s, i, 0));
	}
}

/*
 * Controllers that were opened alike have queues of the same tags: each page comes by one of its own controller. A cache waits for
 * all of them, and when they are recovered all is read anew.
 */
static void volumes_have_queues_of_their_own(void **state)
{
	struct sources s = { .lanes = 1, .width = 1, .page_size = 4096, .frames = 16, .queues = 2, .flags = GPUNVME_PAGECACHE_AHEAD };
	struct gpunvme_pagecache *cache;

	(void)state;
	sources_open(&s, "");
	sources_run(&s, prefetch_some);
	assert_int_equal(sources_info(&s).coming, 12);
	cache = s.cache;
	assert_int_equal(gpunvme_pagecache_destroy(cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_ahead_settle"));
	s.lanes = s.width = 8;
	sources_run(&s, settle_all);
	assert_int_equal(sources_info(&s).coming, 0);
	assert_int_equal(sources_info(&s).prefetches, 12);
	s.lanes = s.width = 1;
	sources_run(&s, get_some);
	assert_int_equal(sources_info(&s).used, 12);
	assert_int_equal(sources_info(&s).misses, 0);
	sources_close(&s);
}

static void settle_one_broken(void *arg)
{
	struct sources *s = arg;

	sources_note(s, settle(s) == -GPUNVME_ETIMEDOUT);
}

/* A kernel that was killed before its frame said whose page comes: somebody's queue has the identifier all the same. */
static void pages_without_a_name_are_waited_for(void **state)
{
	struct sources s = { .lanes = 1, .width = 1, .page_size = 4096, .frames = 16, .queues = 2, .flags = GPUNVME_PAGECACHE_AHEAD };
	uint64_t *owner, named[16];
	uint32_t i;

	(void)state;
	sources_open(&s, "");
	sources_run(&s, prefetch_some);
	owner = (uint64_t *)(uintptr_t)s.pages.frame;
	memcpy(named, owner, sizeof(named));
	for (i = 0; i < s.pages.frames; i++)
		owner[i] = owner[i] ? GPUNVME_FRAME_TAKEN : 0;
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "destroy the queue"));
	memcpy(owner, named, sizeof(named));
	sources_run(&s, settle_all);
	sources_close(&s);
}

/* The page that comes by the first queue names a command of another time: that is told, and the other queues are settled. */
static void queues_are_settled_behind_a_failure(void **state)
{
	struct sources s = { .lanes = 1, .width = 1, .page_size = 4096, .frames = 16, .queues = 2, .flags = GPUNVME_PAGECACHE_AHEAD };
	uint64_t frame, *gen;

	(void)state;
	sources_open(&s, "");
	sources_run(&s, prefetch_some);
	assert_int_equal(sources_info(&s).coming, 12);
	frame = *(uint64_t *)(uintptr_t)s.pages.table >> GPUNVME_PAGE_FRAME_SHIFT;
	gen = (uint64_t *)(uintptr_t)(s.pages.frame + 8 * s.pages.frames + 16 * frame + 8);
	*gen ^= 1ull << GPUNVME_RES_GEN_SHIFT;
	sources_run(&s, settle_one_broken);
	assert_int_equal(sources_info(&s).coming, 0);
	assert_int_equal(sources_info(&s).lost, 1);
	sources_run(&s, get_some);
	assert_int_equal(sources_info(&s).used, 11);
	sources_close(&s);
}

/* Pages are coming when the queues end: by those of the recovery they are read anew, and their frames come back. */
static void recovered_volumes_read_anew(void **state)
{
	struct sources s = { .lanes = 1, .width = 1, .page_size = 4096, .frames = 16, .queues = 2, .flags = GPUNVME_PAGECACHE_AHEAD };
	uint32_t i;

	(void)state;
	sources_open(&s, "");
	sources_run(&s, prefetch_some);
	for (i = 0; i < SOURCES_MEMBERS * 2; i++) /* each of the queues ends by a lane's word */
		gnvd_poison((const struct gpunvme_dq *)(uintptr_t)s.v.dq + i, GPUNVME_ETIMEDOUT);
	assert_int_equal(gpunvme_volume_recover(s.vol), 0);
	sources_view(&s);
	sources_run(&s, get_some);
	assert_int_equal(sources_info(&s).wasted, 12);
	assert_int_equal(sources_info(&s).lost, 12);
	assert_int_equal(sources_info(&s).coming, 0);
	sources_view(&s);
	assert_int_equal(sources_info(&s).lost, 0);
	sources_run(&s, get_some);
	sources_close(&s);
}

/* ---- Other calls ---- */

static void ask_otherwise(void *arg)
{
	struct sources *s = arg;
	struct gpunvme_dq dq = s->file ? s->dq : *(const struct gpunvme_dq *)(uintptr_t)s->v.dq;
	struct gpunvme_dq others[SOURCES_MEMBERS];
	struct gpunvme_dvol v = s->v, none = { .magic = 0 };
	struct gpunvme_page p = { 0, 0 };
	uint64_t value, two[2];

	v.magic = GPUNVME_DVOL_MAGIC;
	v.major = GPUNVME_DQ_MAJOR;
	v.members = v.queues = 1;
	v.dq = (uintptr_t)&dq;
	sources_note(s, gpunvme_ahead_prefetch(&dq, &s->pages, 0) == -GPUNVME_EPROTONOSUPPORT);
	sources_note(s, gpunvme_ahead_array_get(&dq, &s->pages, 0, 8, &value) == -GPUNVME_EPROTONOSUPPORT);
	sources_note(s, gpunvme_volume_ahead_prefetch(&none, &s->pages, 0) == -GPUNVME_EPROTONOSUPPORT);
	if (s->file)
		sources_note(s, gpunvme_volume_ahead_page_get(&v, &s->pages, 0, &p) == -GPUNVME_EPROTONOSUPPORT);
	else
		sources_note(s, gpunvme_volume_ahead_prefetch(&v, &s->pages, 0) == -GPUNVME_EXDEV);
	sources_note(s, get(s, s->words, &value) == -GPUNVME_ERANGE);
	sources_note(s, get_range(s, s->words - 1, 2, two) == -GPUNVME_ERANGE);
	sources_note(s, !get_range(s, s->words, 0, two));
#ifdef WITH_ARRAYS
	ask_by_array(s);
#endif
	dq.device += 1000;
	if (s->file) {
		sources_note(s, gpunvme_file_ahead_settle(&dq, &s->pages) == -GPUNVME_EXDEV);
		return;
	}
	sources_note(s, gpunvme_volume_ahead_settle(&v, &s->pages) == -GPUNVME_EXDEV); /* one controller */
	memcpy(others, (const void *)(uintptr_t)s->v.dq, sizeof(others));
	v = s->v;
	v.dq = (uintptr_t)others;
	sources_note(s, !gpunvme_volume_ahead_settle(&v, &s->pages));
	others[1].device += 1000;
	sources_note(s, gpunvme_volume_ahead_settle(&v, &s->pages) == -GPUNVME_EXDEV);
}

static void other_calls_are_refused(void **state)
{
	struct sources file = { .file = true, .lanes = 1, .width = 1, .frames = 8, .flags = GPUNVME_PAGECACHE_AHEAD };
	struct sources volume = { .lanes = 1, .width = 1, .frames = 8, .flags = GPUNVME_PAGECACHE_AHEAD };

	(void)state;
	sources_open(&file, "");
	sources_run(&file, ask_otherwise);
	sources_close(&file);
	sources_open(&volume, "");
	sources_run(&volume, ask_otherwise);
	sources_close(&volume);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lanes_find_what_files_have),
		cmocka_unit_test(lanes_find_what_volumes_have),
		cmocka_unit_test(pages_of_one_part_come),
		cmocka_unit_test(ranges_are_read_ahead),
		cmocka_unit_test(ranges_go_on_behind_pages_of_several_parts),
		cmocka_unit_test(volumes_have_queues_of_their_own),
		cmocka_unit_test(pages_without_a_name_are_waited_for),
		cmocka_unit_test(queues_are_settled_behind_a_failure),
		cmocka_unit_test(recovered_volumes_read_anew),
		cmocka_unit_test(other_calls_are_refused),
	};

	return cmocka_run_group_tests(tests, sources_make, sources_remove);
}
