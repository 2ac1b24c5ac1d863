/* SPDX-License-Identifier: MIT */
/* Changes that cannot be written or are never answered, kernels that are killed, and words that a kernel has written over. */
#include "stage.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "gpu/gpu.h"

/* ---- Writes that fail ---- */

#define BAD 100u /* the page of blocks 800 to 807 */

/* That page cannot be written: it stays, with what it has, and all others come and go. */
static void change_past_a_bad_page(void *arg)
{
	struct stage *s = arg;
	uint64_t i = (512 * BAD / s->lanes + 1) * s->lanes + gpunvme_thread_id(), value = word_of(s, i, 9);

	note(s, !put_word(s, i, value));
	s->version[i] = 9;
	change_words(arg);
	value = 0;
	note(s, !get_word(s, i, &value) && value == word_of(s, i, s->version[i]));
}

static void failed_writes_keep_their_page(void **state)
{
	struct stage s = { AS(state), .lanes = 12, .width = 4, .rounds = 20, .frames = 8 };

	stage_open(&s, "?fault=status:0x280:op=write:lba=800-807");
	run(&s, change_past_a_bad_page);
	assert_true(info_of(&s).write_failures > 0 && info_of(&s).writes > 0);
	assert_int_equal(info_of(&s).lost, 0);
	launch(&s, flush_all);
	assert_true(s.wrong > 0);
	assert_int_equal(gpunvme_cache_flush(s.cache), 0x280);
	assert_non_null(strstr(gpunvme_errmsg(), "page 100 of the cache"));
	assert_int_equal(info_of(&s).changed, 1);
	check_quiet(&s);
	assert_int_equal(gpunvme_cache_destroy(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_cache_flush"));
	assert_int_equal(gpunvme_cache_discard(s.cache), 0);
	memset(s.version + 512 * BAD, 0, 512 * sizeof(*s.version));
	check_images(&s);
	stage_close(&s);
}

/* A cache of one frame that cannot be written has no room, and says why. */
static void ask_for_room(void *arg)
{
	struct stage *s = arg;
	uint64_t value = word_of(s, 512 * BAD, 1);

	note(s, !put_word(s, 512 * BAD, value));
	note(s, get_word(s, 0, &value) == 0x280);
	note(s, !get_word(s, 512 * BAD, &value) && value == word_of(s, 512 * BAD, 1));
}

static void no_room_is_reported_with_its_reason(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 1 };

	stage_open(&s, "?fault=status:0x280:op=write:lba=800-807");
	run(&s, ask_for_room);
	assert_int_equal(gpunvme_cache_discard(s.cache), 0);
	check_images(&s);
	stage_close(&s);
}

/* Until the first failure, which comes. What could not be put keeps its version. */
static void change_until_the_end(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_thread_id() + 5, value, i;
	int ret;

	do {
		i = draw_word(s, &seed);
		value = word_of(s, i, s->version[i] + 1);
		ret = put_word(s, i, value);
		s->version[i] += !ret;
	} while (!ret);
	s->ret[gpunvme_thread_id()] = ret;
}

/*
 * A write is never answered, and its queue ends: the page is kept, and after the recovery all is written that threads were told is
 * the cache's. Of a volume one controller loses the write of a part of a page.
 */
static void changes_outlive_the_queue(void **state)
{
	struct stage s = { AS(state), .lanes = 16, .width = 4, .timeout_ms = 2000, .page_size = 4096, .frames = 40, .stripe = 4, .rounds = 4,
			   .one_faulty = true }; /* else another member may lose its write later, in the flush */
	uint32_t i;

	s.frames = s.source == VOLUME ? 8 : 40;
	stage_open(&s, s.source == VOLUME ? "?fault=lose:op=write:after=20:count=1" : "?fault=lose:op=write:after=1:count=1");
	run(&s, change_until_the_end);
	for (i = 0; i < s.lanes; i++)
		assert_true(s.ret[i] == -GPUNVME_ETIMEDOUT || s.ret[i] == -GPUNVME_ESHUTDOWN || s.ret[i] == -GPUNVME_EAGAIN);
	assert_true(info_of(&s).lost > 0 && info_of(&s).changed > 0);
	check_quiet(&s);
	assert_int_equal(gpunvme_cache_flush(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "_recover"));
	assert_true(info_of(&s).changed > 0);
	stage_recover(&s);
	if (s.source == NAMESPACE) {
		s.dq.cmd_timeout *= 100; /* two seconds may be too little on a busy machine */
		run(&s, change_words);
	}
	flush_and_close(&s);
}

static void *run_until_the_end(void *arg)
{
	launch(arg, change_until_the_end);
	return NULL;
}

static void changes_outlive_a_stop(void **state)
{
	struct stage s = { AS(state), .lanes = 16, .width = 4, .frames = 8 };
	pthread_t thread;
	uint32_t i;

	stage_open(&s, "?fault=delay:3000:op=write");
	assert_int_equal(pthread_create(&thread, NULL, run_until_the_end, &s), 0);
	for (i = 0; i < 60000 && info_of(&s).writes < 50; i++)
		usleep(1000);
	gpunvme_queue_stop(s.qp, 1);
	pthread_join(thread, NULL);
	for (i = 0; i < s.lanes; i++)
		assert_true(s.ret[i] == -GPUNVME_ECANCELED || s.ret[i] == -GPUNVME_EAGAIN);
	stage_recover(&s);
	flush_and_close(&s);
}

static void change_and_give_up(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq hasty = s->dq;
	const struct gpunvme_writable_queue src = { &hasty, &s->pages };

	hasty.cmd_timeout = 100 * hasty.ticks_per_ms;
	change_one(arg);
	note(s, gpunvme_write_back(&src, 0, 1) == -GPUNVME_ETIMEDOUT);
}

/* Forgotten before its old write is over, the page would be written anew, and the old write come over that. */
static void what_is_given_up_is_not_forgotten(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .timeout_ms = 2000, .frames = 4 };

	stage_open(&s, "?fault=lose:op=write:count=1");
	run(&s, change_and_give_up);
	assert_int_equal(gpunvme_cache_discard(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_queue_recover"));
	assert_int_equal(info_of(&s).changed, 1);
	check_quiet(&s);
	assert_int_equal(gpunvme_queue_recover(s.qp), 0);
	assert_int_equal(gpunvme_cache_discard(s.cache), 0);
	assert_int_equal(info_of(&s).lost, 0);
	s.version[1000] = 0;
	check_quiet(&s);
	check_images(&s);
	stage_close(&s);
}

/* ---- What is left ---- */

static void change_and_keep(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_page page = { 0, 0 };

	change_one(arg);
	note(s, !get_page(s, 1000 / 512, &page));
}

/* A kernel that was killed had a page, or wrote it: no flush writes that at the same time, and it can be forgotten. */
static void what_a_killed_kernel_leaves(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 4 };
	uint64_t *word;

	stage_open(&s, "");
	run(&s, change_one);
	word = (uint64_t *)(uintptr_t)s.pages.table + 1000 / 512;
	*word += GPUNVME_PAGE_WRITING - GPUNVME_PAGE_VALID;
	assert_int_equal(gpunvme_cache_flush(s.cache), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_cache_discard"));
	assert_int_equal(gpunvme_cache_discard(s.cache), 0);
	assert_int_equal(info_of(&s).lost, 1);
	stage_view(&s);
	assert_int_equal(info_of(&s).lost, 0);
	s.version[1000] = 0;
	check_quiet(&s);
	run(&s, change_and_keep);
	assert_int_equal(gpunvme_cache_discard(s.cache), 0);
	assert_int_equal(*word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS), GPUNVME_PAGE_VALID | GPUNVME_PAGE_REF);
	s.version[1000] = 0;
	check_images(&s);
	stage_close(&s);
}

static void get_one(void *arg)
{
	struct stage *s = arg;
	uint64_t value = 0;

	note(s, !get_word(s, 1000, &value) && value == word_of(s, 1000, s->version[1000]));
}

/*
 * Killed after the end of a write, or before it has looked for changes: the page has none, and is WRITING. A thread that asks would
 * wait until its time is over. A discard gives it back, also where it is one of many.
 */
static void clean_pages_are_given_back(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 2000, .page_size = 512 };
	uint64_t *word;

	stage_open(&s, "");
	run(&s, change_one);
	assert_int_equal(gpunvme_cache_flush(s.cache), 0);
	word = (uint64_t *)(uintptr_t)s.pages.table + 1000 / 64;
	assert_int_equal(*word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS), GPUNVME_PAGE_VALID);
	*word += GPUNVME_PAGE_WRITING - GPUNVME_PAGE_VALID;
	assert_int_equal(gpunvme_cache_discard(s.cache), 0);
	assert_int_equal(*word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS), GPUNVME_PAGE_VALID);
	run(&s, get_one);
	assert_int_equal(info_of(&s).lost, 0);
	check_quiet(&s);
	check_images(&s);
	stage_close(&s);
}

/* Reads of the table of pages by the host. */
static struct {
	const struct gnv_gpu_ops *real;
	uint64_t table, end;
	unsigned failing, past; /* that are to fail; that went on after its end */
} looks;

static int peek_at_table(struct gpunvme_gpu *gpu, void *to, uint64_t lane, size_t len)
{
	const bool of_table = lane >= looks.table && lane < looks.end;

	looks.past += of_table && lane + len > looks.end;
	if (!of_table || !looks.failing)
		return looks.real->peek(gpu, to, lane, len);
	looks.failing--;
	return -EIO;
}

static void get_each(void *arg)
{
	struct stage *s = arg;
	uint64_t i, value;

	for (i = 0; i < s->words; i += 64)
		note(s, !get_word(s, i, &value) && value == word_of(s, i, 0));
}

/* Pages that are left in a state. */
static uint64_t count_pages(const struct stage *s, uint64_t state)
{
	const uint64_t *word = (const uint64_t *)(uintptr_t)s->pages.table;
	uint64_t i, n = 0;

	for (i = 0; i < s->words / 64; i++)
		n += (word[i] & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS)) == state;
	return n;
}

/*
 * All pages are left in WRITING, in the order of the frames. A discard reads the table in parts of 512 pages, the last of 509, and
 * nothing after it. Where it cannot read one for a page, it reads it for the next.
 */
static void all_pages_are_given_back(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 4096, .page_size = 512, .lba = 3 };
	struct gnv_gpu_ops ops;
	uint64_t *word, pages, i;

	stage_open(&s, "");
	run(&s, get_each);
	word = (uint64_t *)(uintptr_t)s.pages.table;
	pages = s.words / 64;
	assert_int_equal(pages, 4093);
	assert_int_equal(word[512] >> GPUNVME_PAGE_FRAME_SHIFT, (word[511] >> GPUNVME_PAGE_FRAME_SHIFT) + 1);
	for (i = 0; i < pages; i++)
		word[i] += GPUNVME_PAGE_WRITING - GPUNVME_PAGE_VALID;
	looks.real = s.gpu->ops;
	looks.table = s.pages.table;
	looks.end = s.pages.table + 8 * pages;
	looks.failing = 1;
	looks.past = 0;
	ops = *looks.real;
	ops.peek = peek_at_table;
	s.gpu->ops = &ops;
	assert_int_equal(gpunvme_cache_discard(s.cache), -EIO);
	assert_int_equal(count_pages(&s, GPUNVME_PAGE_WRITING), 1);
	assert_int_equal(gpunvme_cache_discard(s.cache), 0);
	assert_int_equal(count_pages(&s, GPUNVME_PAGE_VALID), pages);
	assert_int_equal(looks.past, 0);
	s.gpu->ops = looks.real;
	run(&s, get_each);
	check_quiet(&s);
	check_images(&s);
	stage_close(&s);
}

/* ---- While the host writes ---- */

static void *flush_slowly(void *arg)
{
	struct stage *s = arg;
	int ret = gpunvme_cache_flush(s->cache);

	__atomic_store_n(&s->ret[0], ret ? ret : 1, __ATOMIC_RELEASE);
	return NULL;
}

static void change_four(void *arg)
{
	struct stage *s = arg;
	uint64_t value, i;

	for (i = 0; i < 4 * 512; i += 512) {
		s->version[i]++;
		value = word_of(s, i, s->version[i]);
		note(s, !put_word(s, i, value));
	}
}

/* A call for counters or the view does not wait for the drive. Where this thread slept until all was written it tries again. */
static void flushes_keep_nobody_waiting(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 8 };
	struct gpunvme_dpages pages;
	pthread_t thread;
	bool told = false;
	uint32_t turn;

	stage_open(&s, "?fault=delay:150000:op=write");
	for (turn = 0; turn < 10 && !told; turn++) {
		run(&s, change_four);
		assert_int_equal(pthread_create(&thread, NULL, flush_slowly, &s), 0);
		while (!__atomic_load_n(&s.ret[0], __ATOMIC_ACQUIRE) && info_of(&s).changed > 3)
			usleep(1000);
		assert_int_equal(gpunvme_cache_view(s.cache, &pages), 0);
		told = info_of(&s).changed && !__atomic_load_n(&s.ret[0], __ATOMIC_ACQUIRE);
		pthread_join(thread, NULL);
		assert_int_equal(s.ret[0], 1);
	}
	assert_true(told);
	check_images(&s);
	stage_close(&s);
}

/* ---- Words of a cache ---- */

/* The words of the frame whose page has changes: kept and parts lie after those of all frames. */
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
	uint64_t i = 1034 - s->lba * 64;

	note(s, !put_word(s, i, word_of(s, i, 1)));
	s->version[i] = 1;
}

/* A kernel may write over them: the host neither reads nor writes outside a page for that. */
static void words_are_not_believed(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 4, .lba = 3 };
	uint64_t *owner, *parts, was;

	stage_open(&s, "");
	run(&s, change_sixth_block);
	owner = words_of_change(&s);
	parts = owner + 2 * s.pages.frames;
	was = *parts;
	*parts = 1ull << 63; /* a page of 4 KiB has 8 */
	assert_int_equal(gpunvme_cache_flush(s.cache), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "written over the words"));
	*parts = was;
	was = *owner;
	*owner = (s.words + 511) / 512; /* the last page, which has 5 blocks */
	assert_int_equal(gpunvme_cache_discard(s.cache), -EIO);
	*owner = UINT64_MAX;
	assert_int_equal(gpunvme_cache_flush(s.cache), -EIO);
	*owner = 1; /* a page that is not there */
	assert_int_equal(gpunvme_cache_flush(s.cache), -EIO);
	assert_int_equal(gpunvme_cache_discard(s.cache), -EIO);
	assert_int_equal(((const uint64_t *)(uintptr_t)s.pages.table)[0], 0);
	*owner = was;
	flush_and_close(&s);
}

static void change_another(void *arg)
{
	struct stage *s = arg;
	change_one(arg);
	note(s, !put_word(s, 3000, word_of(s, 3000, 1)));
	s->version[3000] = 1;
}

/* While kernels run a frame may have gone to another page when its owner is read; and one such word hides no other changes. */
static void words_of_one_frame_hide_no_changes(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 4 };
	uint64_t *owner, was;

	stage_open(&s, "");
	run(&s, change_another);
	owner = words_of_change(&s);
	was = *owner;
	*owner = GPUNVME_FRAME_TAKEN;
	assert_int_equal(info_of(&s).changed, 1);
	assert_int_equal(gpunvme_cache_destroy(s.cache), -EBUSY);
	*owner = was;
	assert_int_equal(info_of(&s).changed, 2);
	flush_and_close(&s);
}

int run_lost_changes(void)
{
	const struct CMUnitTest tests[] = {
		ROW(failed_writes_keep_their_page, NAMESPACE, WRITE_BACK),
		ROW(failed_writes_keep_their_page, NAMESPACE, WRITE_BACK | COPIED),
		ROW(no_room_is_reported_with_its_reason, NAMESPACE, WRITE_BACK),
		ROW(no_room_is_reported_with_its_reason, NAMESPACE, WRITE_BACK | COPIED),
		ROW(changes_outlive_the_queue, NAMESPACE, WRITE_BACK),
		ROW(changes_outlive_the_queue, NAMESPACE, WRITE_BACK | COPIED),
		ROW(changes_outlive_the_queue, VOLUME, WRITE_BACK),
		ROW(changes_outlive_a_stop, NAMESPACE, WRITE_BACK),
		ROW(changes_outlive_a_stop, NAMESPACE, WRITE_BACK | COPIED),
		ROW(what_is_given_up_is_not_forgotten, NAMESPACE, WRITE_BACK),
		ROW(what_is_given_up_is_not_forgotten, NAMESPACE, WRITE_BACK | COPIED),
		ROW(what_a_killed_kernel_leaves, NAMESPACE, WRITE_BACK),
		ROW(what_a_killed_kernel_leaves, NAMESPACE, WRITE_BACK | COPIED),
		ROW(clean_pages_are_given_back, NAMESPACE, WRITE_BACK),
		ROW(clean_pages_are_given_back, NAMESPACE, WRITE_BACK | COPIED),
		ROW(all_pages_are_given_back, NAMESPACE, WRITE_BACK),
		ROW(all_pages_are_given_back, NAMESPACE, WRITE_BACK | COPIED),
		ROW(flushes_keep_nobody_waiting, NAMESPACE, WRITE_BACK),
		ROW(flushes_keep_nobody_waiting, NAMESPACE, WRITE_BACK | COPIED),
		ROW(words_are_not_believed, NAMESPACE, WRITE_BACK),
		ROW(words_are_not_believed, NAMESPACE, WRITE_BACK | COPIED),
		ROW(words_of_one_frame_hide_no_changes, NAMESPACE, WRITE_BACK),
		ROW(words_of_one_frame_hide_no_changes, NAMESPACE, WRITE_BACK | COPIED),
	};

	return cmocka_run_group_tests(tests, stage_make, stage_remove);
}
