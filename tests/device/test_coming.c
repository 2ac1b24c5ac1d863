/* SPDX-License-Identifier: MIT */
/*
 * A thread goes on with a page that is coming, or takes its frame, and between its look at the words of the frame and the compare
 * of the page's word 256 changes have passed, which are as none: the page is coming again, by another command. Or another thread
 * has ended it, which no thread had asked for. And for how long threads wait, by a clock of the test's own.
 */
#include <gpunvme/device/platform.h>

static uint64_t coming_cas(uint64_t at, uint64_t expect, uint64_t v);
static uint64_t coming_clock(void);

#define gnvd_cas64 coming_cas
#define gnvd_clock coming_clock
#include <gpunvme/device.h>
#undef gnvd_clock
#undef gnvd_cas64

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PAGE 512u
#define TAG 0x10007u
#define OLD 0u /* identifiers, of generations 5 and 6 */
#define NEW 1u

static struct gpunvme_cache_state words;
static struct gpunvme_dq_state queue;
static uint64_t table[1], frame[3], bytes[PAGE / 8], result[2], cid_map[1], ready[1], sq[8], cq[2]; /* rings of one entry, not used */
static uint32_t doorbell[2], stop;
static const struct gpunvme_dpages cache = {
	.head = GPUNVME_HEAD(GPUNVME_KIND_PAGES | GPUNVME_KIND_PREFETCH, struct gpunvme_dpages), .frames = 1, .lba_shift = 9, .page_shift = 9, .lba_count = 1,
	.nsid = 1, .state = (uintptr_t)&words, .table = (uintptr_t)table, .frame = (uintptr_t)frame, .buf = { .base = (uintptr_t)bytes },
};
static const struct gpunvme_dq dq = {
	.head = GPUNVME_HEAD(GPUNVME_KIND_QUEUE, struct gpunvme_dq), .tag = TAG, .nsid = 1, .state = (uintptr_t)&queue, .cids = 2,
	.result = (uintptr_t)result, .cid_map = (uintptr_t)cid_map, .lba_shift = 9, .lba_count = 1,
	.ready = (uintptr_t)ready, .sq = (uintptr_t)sq, .cq = (uintptr_t)cq, .sq_db = (uintptr_t)doorbell, .cq_db = (uintptr_t)(doorbell + 1),
	.stop = (uintptr_t)&stop,
};
static uint32_t comes_by; /* a tag; 0: nothing happens in between */
static bool finished;      /* in between */
static uint64_t ticks;

static uint64_t coming_clock(void)
{
	return ++ticks;
}

static uint64_t word_of(uint64_t generation, int over)
{
	return generation << GPUNVME_RES_GEN_SHIFT | (over ? GPUNVME_RES_DONE : GPUNVME_RES_SUBMITTED);
}

static uint64_t coming_cas(uint64_t at, uint64_t expect, uint64_t v)
{
	if (at == (uintptr_t)table && comes_by) {
		frame[1] = (uint64_t)comes_by << 32 | NEW;
		frame[2] = 6ull << GPUNVME_RES_GEN_SHIFT;
		result[OLD] = 5ull << GPUNVME_RES_GEN_SHIFT; /* somebody has taken it */
		cid_map[0] |= 1ull << OLD;
	}
	if (at == (uintptr_t)table && finished) {
		frame[1] = GNVD_UNASKED;
		table[0] ^= GPUNVME_PAGE_VALID ^ GPUNVME_PAGE_COMING;
		finished = false;
	}
	return gnvd_cas64(at, expect, v);
}

/* Page 0 is coming by the old command, which is over, and the new one is in flight, or over. */
static void begin(uint32_t by, int over)
{
	memset(&words, 0, sizeof(words));
	memset(&queue, 0, sizeof(queue));
	words.coming = 1;
	queue.prefetched = 1;
	table[0] = GPUNVME_PAGE_COMING;
	frame[0] = 1;
	frame[1] = (uint64_t)TAG << 32 | OLD;
	frame[2] = 5ull << GPUNVME_RES_GEN_SHIFT;
	result[OLD] = word_of(5, 1);
	result[NEW] = word_of(6, over);
	cid_map[0] = 0;
	comes_by = by;
}

static uint32_t found(void)
{
	uint32_t evicted = 0, at = gnvd_find_any(&dq, &cache, gnvd_no_source(), &evicted);

	assert_int_equal(evicted, at == 0);
	assert_int_equal(words.coming, 0);
	return at;
}

static void the_frame_of_a_command_that_is_over_is_taken(void **state)
{
	(void)state;
	begin(0, 0);
	assert_int_equal(found(), 0);
	assert_int_equal(cid_map[0], 1u << OLD);
	begin(TAG, 1);
	assert_int_equal(found(), 0);
	assert_int_equal(cid_map[0], 1u << OLD | 1u << NEW);
	assert_int_equal(queue.prefetched, 0);
}

/* It may still write there; the thread that takes its completion frees its identifier. */
static void one_that_is_not_loses_its_frame(void **state)
{
	(void)state;
	begin(TAG, 0);
	assert_int_equal(found(), 1);
	assert_true(frame[0] == GPUNVME_FRAME_LOST);
	assert_int_equal(words.lost, 1);
	assert_int_equal(queue.prefetched, 0);
	assert_true(result[NEW] & GPUNVME_RES_DETACHED);
	assert_int_equal(gnvd_page_state(table[0]), GPUNVME_PAGE_EMPTY);
	begin(TAG + (1u << 16), 0); /* of a queue made since, whose words this one does not know */
	assert_int_equal(found(), 1);
	assert_true(frame[0] == GPUNVME_FRAME_LOST);
	assert_int_equal(queue.prefetched, 1);
	assert_true(result[NEW] == word_of(6, 0));
}

static void who_goes_on_waits_for_the_command_of_now(void **state)
{
	struct gpunvme_req req = { 0, 0, 0, 0 };
	uint64_t page = 9, word = 0;

	(void)state;
	begin(TAG, 0);
	assert_true(gnvd_claim_frame(&dq, &cache, gnvd_no_source(), 0, 1, &page, &word, &req));
	assert_int_equal(page, 0);
	assert_int_equal(req.cid, NEW);
	assert_true(req.gen == 6ull << GPUNVME_RES_GEN_SHIFT);
	assert_int_equal(table[0], GPUNVME_PAGE_READING);
	assert_int_equal(word, GPUNVME_PAGE_READING);
}

/* Nobody is left waiting for a read that nobody does. */
static void a_page_of_another_queue_is_ended(void **state)
{
	struct gpunvme_req req = { 0, 0, 0, 0 };
	uint64_t page = 9, word = 0;

	(void)state;
	begin(TAG + (1u << 16), 0);
	assert_false(gnvd_claim_frame(&dq, &cache, gnvd_no_source(), 0, 1, &page, &word, &req));
	assert_int_equal(gnvd_page_state(table[0]), GPUNVME_PAGE_EMPTY);
	assert_int_equal((int)(uint32_t)(table[0] >> GPUNVME_PAGE_FRAME_SHIFT), -GPUNVME_ENODEV);
	assert_true(frame[0] == GPUNVME_FRAME_LOST);
	assert_int_equal(words.lost, 1);
}

/* The thread's reference was there before, so the page is not one that nobody has asked for. */
static void waiting_for_a_thread_that_finishes_counts_as_a_request(void **state)
{
	struct gpunvme_dpages counted = cache;
	struct gpunvme_page got = { 0, 0 };
	const struct gpunvme_prefetch_queue src = { &dq, &counted };

	(void)state;
	counted.flags = GPUNVME_DPAGES_STATS;
	begin(0, 0);
	finished = true;
	assert_int_equal(gpunvme_page_get(&src, 0, &got), 0);
	assert_false(finished);
	assert_int_equal(words.used, 1);
	assert_int_equal(frame[1], 0);
	assert_int_equal(gpunvme_page_put(&src, &got), 0);
}

#define SILENT 8u

/* One time-out for a device that is silent, not one for each page. */
static void finishing_waits_for_silence_once(void **state)
{
	static uint64_t pages[SILENT], frames[3 * SILENT], results[SILENT];
	static uint64_t ring[8];
	struct gpunvme_dpages many = cache;
	struct gpunvme_dq silent = dq;
	uint64_t since;
	uint32_t i;
	const struct gpunvme_prefetch_queue src = { &silent, &many };

	(void)state;
	begin(0, 0);
	many.frames = many.lba_count = words.coming = queue.prefetched = SILENT;
	many.table = (uintptr_t)pages;
	many.frame = (uintptr_t)frames;
	silent.lba_count = silent.cids = SILENT;
	silent.result = (uintptr_t)results;
	silent.cq = (uintptr_t)ring;
	silent.cq_shift = 2;
	silent.cmd_timeout = 1000;
	for (i = 0; i < SILENT; i++) {
		pages[i] = GPUNVME_PAGE_COMING | (uint64_t)i << GPUNVME_PAGE_FRAME_SHIFT;
		frames[i] = i + 1;
		frames[SILENT + 2 * i] = (uint64_t)TAG << 32 | i;
		frames[SILENT + 2 * i + 1] = 5ull << GPUNVME_RES_GEN_SHIFT;
		results[i] = word_of(5, 0);
	}
	since = ticks;
	assert_int_equal(gpunvme_prefetch_finish(&src), -GPUNVME_ETIMEDOUT);
	assert_in_range(ticks - since, silent.cmd_timeout, 2 * silent.cmd_timeout);
	assert_int_equal(queue.poison, GPUNVME_ETIMEDOUT);
	assert_int_equal(words.coming, 0);
	assert_int_equal(words.lost, SILENT);
	assert_int_equal(queue.prefetched, 0);
	for (i = 0; i < SILENT; i++)
		assert_true(results[i] & GPUNVME_RES_DETACHED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_frame_of_a_command_that_is_over_is_taken),
		cmocka_unit_test(one_that_is_not_loses_its_frame),
		cmocka_unit_test(who_goes_on_waits_for_the_command_of_now),
		cmocka_unit_test(a_page_of_another_queue_is_ended),
		cmocka_unit_test(waiting_for_a_thread_that_finishes_counts_as_a_request),
		cmocka_unit_test(finishing_waits_for_silence_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
