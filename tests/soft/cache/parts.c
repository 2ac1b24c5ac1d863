/* SPDX-License-Identifier: MIT */
/* Prefetch of pages that take several commands, or none; frames and commands that a killed kernel left; calls of another source. */
#include "stage.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"

/* ---- Parts ---- */

static uint32_t parts_of(const struct stage *s, uint64_t page)
{
	uint64_t words = 1ull << (s->pages.page_shift - 3), i, at, next = 1; /* nowhere */
	uint32_t parts = 0, m, other = 0;

	for (i = page * words; i < s->words && i < (page + 1) * words; i += 64) {
		bool has = stage_where(s, i, &m, &at);

		parts += has && (at != next || m != other);
		next = has ? at + 512 : 1;
		other = m;
	}
	return parts;
}

/* A page in one piece comes, one in several does not, and for one that is a hole there is nothing to do. */
static void prefetch_each(void *arg)
{
	struct stage *s = arg;
	uint64_t words = 1ull << (s->pages.page_shift - 3), page, value;
	uint32_t parts;
	int ret;

	for (page = 0; page < (s->words + words - 1) / words; page++) {
		parts = parts_of(s, page);
		ret = prefetch(s, page);
		note(s, ret == (parts > 1 ? -GPUNVME_EMSGSIZE : 0));
		note(s, info_of(s).coming == (parts == 1));
		note(s, !get_word(s, page * words, &value) && value == word_of(s, page * words, 0));
		__atomic_fetch_or(&s->asked, 1u << (parts > 2 ? 30 : 28 + parts), __ATOMIC_RELAXED);
	}
	note(s, prefetch(s, page) == -GPUNVME_ERANGE);
}

static void pages_of_one_part_come(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .page_size = 4096, .frames = 8, .stripe = 4, .queues = 2 };

	stage_open(&s, "");
	run(&s, prefetch_each);
	assert_int_equal(s.asked >> 28 & 7, s.source == VOLUME ? 4 : 7); /* a file has pages of none, one and several */
	stage_close(&s);
}

#if STAGE_FILES
/* A page of several parts is read when the thread comes to it, and keeps nothing of what follows from being read ahead. */
static void ranges_go_on_after_pages_of_several_parts(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .page_size = 4096, .frames = 64 };
	uint64_t page, whole = 0, after = 0;

	stage_open(&s, "");
	for (page = 1; page < info_of(&s).pages; page++) {
		whole += parts_of(&s, page) == 1;
		after += parts_of(&s, page) == 1 && parts_of(&s, page - 1) > 1;
	}
	assert_true(after > 1);
	run(&s, get_all);
	assert_int_equal(info_of(&s).prefetches, whole);
	assert_int_equal(info_of(&s).used, whole);
	stage_close(&s);
}
#endif

/* ---- What a killed kernel leaves ---- */

static void finish_one_broken(void *arg)
{
	struct stage *s = arg;

	note(s, finish(s) == -GPUNVME_ETIMEDOUT);
}

/* A kernel that was killed before its frame said whose page comes: a queue has the identifier all the same. */
static void pages_without_a_name_are_waited_for(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .page_size = 4096, .frames = 16, .queues = 2, .count = 12 };
	uint64_t *owner, named[16];
	uint32_t i;

	stage_open(&s, "");
	all_return(&s, prefetch_some, 0);
	owner = (uint64_t *)(uintptr_t)s.pages.frame;
	memcpy(named, owner, sizeof(named));
	for (i = 0; i < s.pages.frames; i++)
		owner[i] = owner[i] ? GPUNVME_FRAME_TAKEN : 0;
	assert_int_equal(gpunvme_cache_destroy(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "destroy the queue"));
	memcpy(owner, named, sizeof(named));
	run(&s, finish_all);
	stage_close(&s);
}

/* The page that comes by the first queue names a command of another time: that is an error, and the other queues are finished. */
static void queues_are_finished_after_a_failure(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .page_size = 4096, .frames = 16, .queues = 2, .count = 12 };
	uint64_t frame, *gen;

	stage_open(&s, "");
	all_return(&s, prefetch_some, 0);
	assert_int_equal(info_of(&s).coming, 12);
	frame = *(uint64_t *)(uintptr_t)s.pages.table >> GPUNVME_PAGE_FRAME_SHIFT;
	gen = (uint64_t *)(uintptr_t)(s.pages.frame + 8 * s.pages.frames + 16 * frame + 8);
	*gen ^= 1ull << GPUNVME_RES_GEN_SHIFT;
	run(&s, finish_one_broken);
	assert_int_equal(info_of(&s).coming, 0);
	assert_int_equal(info_of(&s).lost, 1);
	all_return(&s, get_some, 0);
	assert_int_equal(info_of(&s).used, 11);
	stage_close(&s);
}

/* ---- Other calls ---- */

static void ask_otherwise(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq dq = s->source == OF_FILE ? s->dq : *(const struct gpunvme_dq *)(uintptr_t)s->v.dq;
	struct gpunvme_dq others[STAGE_MEMBERS];
	struct gpunvme_dvol v = s->v, none = { .members = 0 };
	struct gpunvme_page p = { 0, 0 };
	uint64_t value, two[2];
	const struct gpunvme_prefetch_queue prefetch_queue = { &dq, &s->pages };
	const struct gpunvme_prefetch_volume by_none = { &none, &s->pages };
	const struct gpunvme_prefetch_volume by_v = { &v, &s->pages };
	const struct gpunvme_prefetch_file prefetch_file = { &dq, &s->pages };

	v.head = (struct gpunvme_head)GPUNVME_HEAD(GPUNVME_KIND_VOLUME, v);
	v.members = v.queues = 1;
	v.dq = (uintptr_t)&dq;
	note(s, gpunvme_prefetch(&prefetch_queue, 0) == -GPUNVME_EINVAL);
	note(s, gpunvme_array_load(&prefetch_queue, 0, 8, &value) == -GPUNVME_EINVAL);
	note(s, gpunvme_prefetch(&by_none, 0) == -GPUNVME_EPROTONOSUPPORT);
	if (s->source == OF_FILE)
		note(s, gpunvme_page_get(&by_v, 0, &p) == -GPUNVME_EINVAL);
	else
		note(s, gpunvme_prefetch(&by_v, 0) == -GPUNVME_EXDEV);
	note(s, get_word(s, s->words, &value) == -GPUNVME_ERANGE);
	note(s, get_range(s, s->words - 1, 2, two) == -GPUNVME_ERANGE);
	note(s, !get_range(s, s->words, 0, two));
	dq.device += 1000;
	if (s->source == OF_FILE) {
		note(s, gpunvme_prefetch_finish(&prefetch_file) == -GPUNVME_EXDEV);
		return;
	}
	note(s, gpunvme_prefetch_finish(&by_v) == -GPUNVME_EXDEV); /* one controller */
	memcpy(others, (const void *)(uintptr_t)s->v.dq, sizeof(others));
	v = s->v;
	v.dq = (uintptr_t)others;
	note(s, !gpunvme_prefetch_finish(&by_v));
	others[1].device += 1000;
	note(s, gpunvme_prefetch_finish(&by_v) == -GPUNVME_EXDEV);
}

static void other_calls_are_refused(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 8 };

	stage_open(&s, "");
	run(&s, ask_otherwise);
	stage_close(&s);
}

int run_prefetched_parts(void)
{
	const struct CMUnitTest tests[] = {
#if STAGE_FILES
		ROW(pages_of_one_part_come, OF_FILE, PREFETCH),
		ROW(ranges_go_on_after_pages_of_several_parts, OF_FILE, PREFETCH),
		ROW(other_calls_are_refused, OF_FILE, PREFETCH),
#endif
		ROW(pages_of_one_part_come, VOLUME, PREFETCH),
		ROW(pages_without_a_name_are_waited_for, VOLUME, PREFETCH),
		ROW(queues_are_finished_after_a_failure, VOLUME, PREFETCH),
		ROW(other_calls_are_refused, VOLUME, PREFETCH),
	};

	return cmocka_run_group_tests(tests, stage_make, stage_remove);
}
