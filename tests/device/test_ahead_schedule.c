/* SPDX-License-Identifier: MIT */
/*
 * The schedule fuzzer of page caches, most of them with prefetch: lanes as coroutines get, prefetch and settle pages of small caches,
 * with one seed for the shape of a run and for every switch between them, as test_schedule has it for the queue.
 *
 *   test_ahead_schedule            a fixed list of seeds; GPUNVME_SCHEDULES=N in the environment: that many
 *   test_ahead_schedule SEED       that one again
 *
 * The controller spoils a frame when it fetches the command, and fills it when it completes that. Who gets a page finds its bytes until
 * it gives it back, or hears of the failure that all of its reads end with. At the end no page has a reference or is half read, each
 * identifier is free or a page's that is coming, each frame is a page's, free, or lost by a read that was given up, and of what
 * was prefetched all is accounted for.
 */
#include "schedule.h"

#include <gpunvme/device_ahead.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/rig.h"
#include "schedule_lanes.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SEEDS 200u
#else
#define SEEDS 800u
#endif
#define PLAIN 4u /* of so many seeds one has a cache without prefetch */
#define MOST_PAGES 12u
#define MOST_FRAMES 6u
#define WORDS 64u /* of a page */
#define SPOILED 0xabababababababab
#define STEPS 30000000u

enum trouble { NONE, SILENT, STOPPED }; /* the controller falls silent; the host says stop */

static struct {
	uint64_t seed, random;
	struct rig *rig;
	struct schedule_lanes lanes;
	uint32_t ops, errors; /* errors: of so many pages one cannot be read; 0: none */
	uint32_t pages;
	bool plain; /* without prefetch */
	enum trouble trouble;
	uint64_t trouble_at; /* steps */
	struct gpunvme_dpages cache;
	struct gpunvme_pagecache_state state;
	uint64_t table[MOST_PAGES], frame[3 * MOST_FRAMES];
	uint64_t bytes[MOST_FRAMES * WORDS], local[MOST_FRAMES * WORDS];
	uint64_t *into[MOST_PAGES]; /* where the last command that reads a page puts it */
} t;

static uint64_t prefetches, used; /* of all runs */

static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("[  FAILED  ] ");
	vprintf(format, args);
	va_end(args);
	printf("\n%u frames for %u pages, %u lanes in waves of %u, trouble %d, after %llu steps; replay: test_ahead_schedule %llu\n",
	       t.cache.frames, t.pages, t.lanes.count, t.lanes.width, t.trouble, (unsigned long long)schedule.steps,
	       (unsigned long long)t.seed);
	fflush(stdout);
	_Exit(1);
}

static uint32_t draw(uint32_t below)
{
	return schedule_draw(&t.random, below);
}

NO_TSAN static void check(void)
{
	if (t.trouble == STOPPED && schedule.steps == t.trouble_at)
		__atomic_store_n(&t.rig->stop, 1, __ATOMIC_RELEASE);
	if (t.trouble == SILENT && schedule.steps == t.trouble_at)
		mini_freeze(&t.rig->ctrl, true);
}

static void stuck(void)
{
	fail("no end in sight: %u of %u lanes have returned", __atomic_load_n(&t.lanes.over, __ATOMIC_RELAXED), t.lanes.count);
}

NO_TSAN static void schedule_doorbell(uint64_t at, uint32_t value)
{
	(void)at;
	(void)value;
}

/* ---- The controller ---- */

static bool is_bad(uint64_t page)
{
	uint64_t random = page ^ t.seed;

	schedule_draw(&random, 1);
	return t.errors && !schedule_draw(&random, t.errors);
}

static void put(uint64_t *to, uint64_t word)
{
	uint32_t i;

	for (i = 0; i < WORDS; i++)
		__atomic_store_n(&to[i], word, __ATOMIC_RELAXED);
}

static void on_fetch(void *ctx, const struct gpunvme_sqe *cmd)
{
	(void)ctx;
	if (cmd->cdw10 >= t.pages || cmd->cdw12 || cmd->prp1 - RIG_IOVA >= 512ull * t.cache.frames || (cmd->prp1 - RIG_IOVA) % 512)
		fail("the controller fetched what is no read of a page");
	t.into[cmd->cdw10] = t.bytes + (cmd->prp1 - RIG_IOVA) / 8;
	put(t.into[cmd->cdw10], SPOILED);
}

/* Asked when it completes a command. */
static uint16_t status_of(uint64_t page)
{
	if (!is_bad(page))
		put(t.into[page], page + 1);
	return is_bad(page) ? 0x281 : 0;
}

static void control(unsigned number)
{
	(void)number;
	while (schedule_goes_on(&t.lanes)) {
		schedule_step();
		mini_turn(&t.rig->ctrl);
	}
}

/* ---- The lanes ---- */

/* May a call end with this error today? */
static bool excused(int ret)
{
	return (t.trouble == SILENT && (ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ESHUTDOWN)) ||
	       (t.trouble == STOPPED && ret == -GPUNVME_ECANCELED);
}

static void judge(const char *what, uint64_t page, int ret)
{
	if (ret && ret != -GPUNVME_EAGAIN && !excused(ret) && !(ret == 0x281 && is_bad(page)))
		fail("%s of page %llu: %d", what, (unsigned long long)page, ret);
	if (!ret && is_bad(page))
		fail("%s of page %llu, which cannot be read", what, (unsigned long long)page);
}

static void get(uint64_t page)
{
	struct gpunvme_page got = { 0, 0 };
	const uint64_t *words;
	uint32_t turns = draw(4), i;
	int ret = t.plain ? gpunvme_page_get(&t.rig->dq, &t.cache, page, &got) :
			    gpunvme_ahead_page_get(&t.rig->dq, &t.cache, page, &got);

	judge("page_get", page, ret);
	if (ret)
		return;
	words = (const uint64_t *)(uintptr_t)got.base;
	do {
		for (i = 0; i < WORDS; i += 9)
			if (words[i] != page + 1)
				fail("word %u of page %llu is %llx", i, (unsigned long long)page, (unsigned long long)words[i]);
		schedule_yield();
	} while (turns--);
	if (gpunvme_page_put(&t.rig->dq, &got))
		fail("page %llu is not the lane's", (unsigned long long)page);
}

static void element(uint64_t page)
{
	uint64_t value = 0, i = page * WORDS + draw(WORDS);
	int ret = t.plain ? gpunvme_array_get(&t.rig->dq, &t.cache, i, 8, &value) :
			    gpunvme_ahead_array_get(&t.rig->dq, &t.cache, i, 8, &value);

	judge("array_get", page, ret);
	if (!ret && value != page + 1)
		fail("an element of page %llu is %llx", (unsigned long long)page, (unsigned long long)value);
}

/* The end of a page and the beginning of the next one. */
static void range(uint64_t page)
{
	uint64_t to[WORDS], from = page * WORDS + WORDS / 2;
	bool last = page + 1 == t.pages;
	uint32_t n = last ? WORDS / 2 : WORDS, i;
	int ret = gpunvme_array_get_range(&t.rig->dq, &t.cache, from, n, 8, to);

	judge("array_get_range", !is_bad(page) && !last ? page + 1 : page, ret);
	for (i = 0; i < n && !ret; i++)
		if (to[i] != page + (i >= WORDS / 2) + 1)
			fail("word %u of a range from page %llu on is %llx", i, (unsigned long long)page, (unsigned long long)to[i]);
}

static void work(unsigned number)
{
	uint32_t i, what;
	uint64_t page;
	int ret;

	for (i = 0; i < t.ops; i++) {
		what = draw(16);
		page = draw(draw(2) ? t.pages : 2);
		if (t.plain && (what < 3 || what == 15)) {
			range(page);
		} else if (what < 7 && !t.plain) {
			ret = gpunvme_ahead_prefetch(&t.rig->dq, &t.cache, page);
			if (ret && ret != -GPUNVME_EAGAIN && !excused(ret))
				fail("prefetch of page %llu: %d", (unsigned long long)page, ret);
		} else if (what < 12) {
			get(page);
		} else if (what < 15) {
			element(page);
		} else {
			ret = gpunvme_ahead_settle(&t.rig->dq, &t.cache);
			if (ret && !excused(ret))
				fail("settle: %d", ret);
		}
	}
	schedule_leave(&t.lanes, number);
}

/* ---- A run ---- */

static void choose_cache(void)
{
	t.pages = 2 + draw(MOST_PAGES - 1);
	t.cache = (struct gpunvme_dpages){
		.magic = t.plain ? GPUNVME_DPAGES_MAGIC : GPUNVME_DPAGES_AHEAD_MAGIC, .major = GPUNVME_DQ_MAJOR, .minor = GPUNVME_DQ_MINOR, .size = sizeof(t.cache),
		.flags = GPUNVME_DPAGES_STATS, .nsid = 1, .frames = 1 + draw(MOST_FRAMES), .lba_shift = 9, .page_shift = 9,
		.state = (uintptr_t)&t.state, .table = (uintptr_t)t.table, .frame = (uintptr_t)t.frame, .lba_count = t.pages,
		.buf = t.rig->dbuf, .local = draw(3) ? 0 : (uintptr_t)t.local,
	};
	t.cache.buf.base = (uintptr_t)t.bytes;
	t.cache.buf.len = 512ull * t.cache.frames;
}

static void choose(uint64_t seed)
{
	static const uint32_t widths[] = { 1, 1, 4, 32, 64 }, stays[] = { 1, 2, 4, 16, 100 };

	memset(&t, 0, sizeof(t));
	t.seed = seed;
	t.plain = seed % PLAIN == 0;
	t.random = seed * 0x9e3779b97f4a7c15u;
	draw(1);
	t.rig = rig_new(2 + draw(4), 0);
	choose_cache();
	t.lanes.width = widths[draw(5)];
	t.lanes.count = t.lanes.width > 4 ? 1 + draw(SCHEDULE_LANES) : 2 + draw(7);
	t.ops = t.lanes.count > 16 ? 4 : 16;
	t.errors = draw(2) ? 2 + draw(6) : 0;
	t.trouble = draw(6) ? NONE : SILENT + draw(2);
	t.trouble_at = 1 + draw(t.lanes.count * 1000);
	if (t.trouble == SILENT)
		t.rig->dq.cmd_timeout = 2000000;
	t.rig->ctrl.opts = (struct mini_opts){ .seed = draw(1u << 30), .window = draw(2) ? 1 : 1 + draw(16), .idle = draw(3) ? draw(60) : 0,
					       .status = status_of };
	t.rig->ctrl.seen = on_fetch;
	mini_begin(&t.rig->ctrl);
	schedule_start(seed, stays[draw(5)], STEPS, check, stuck);
}

/* Whether all of the commands that pages wait for are over; each is the queue's, and another. */
static bool have_come(uint32_t *coming)
{
	uint64_t seen = 0, word, by;
	bool over = true;
	uint32_t i, frame;

	for (i = *coming = 0; i < t.pages; i++) {
		word = t.table[i];
		frame = (uint32_t)(word >> GPUNVME_PAGE_FRAME_SHIFT);
		if (gnvd_page_state(word) != GPUNVME_PAGE_COMING)
			continue;
		if (frame >= t.cache.frames || t.frame[frame] != i + 1)
			fail("page %u is coming into frame %u, which is not its own", i, frame);
		by = t.frame[t.cache.frames + 2 * frame];
		if (by >> 32 != t.rig->dq.tag || (uint32_t)by >= t.rig->dq.cids || seen >> (uint32_t)by & 1)
			fail("page %u is coming by a command that is none", i);
		seen |= 1ull << (uint32_t)by;
		over = over && gnvd_is_over(&t.rig->dq, t.rig->result[(uint32_t)by]);
		++*coming;
	}
	return over;
}

/* What nobody waits for comes in, too. */
static void drain_rest(void)
{
	uint32_t coming;
	unsigned turns;

	mini_freeze(&t.rig->ctrl, false);
	for (turns = 0; !have_come(&coming) || rig_free_cids(t.rig) + coming < t.rig->dq.cids; turns++) {
		if (turns == 100000)
			fail("%u of %u identifiers are free, and %u pages coming", rig_free_cids(t.rig), t.rig->dq.cids, coming);
		schedule_drain(t.rig);
	}
	if (t.state.coming != coming || t.rig->state->ahead != coming)
		fail("%u pages are coming, %llu are counted, and %llu for the queue", coming, (unsigned long long)t.state.coming,
		     (unsigned long long)t.rig->state->ahead);
}

static void check_frames(void)
{
	uint64_t owner, lost = 0, unasked = 0;
	uint32_t i;

	for (i = 0; i < t.pages; i++)
		if (t.table[i] & GPUNVME_PAGE_REFS || gnvd_page_state(t.table[i]) == GPUNVME_PAGE_READING)
			fail("the word of page %u is %llx", i, (unsigned long long)t.table[i]);
	for (i = 0; i < t.cache.frames; i++) {
		owner = t.frame[i];
		unasked += t.frame[t.cache.frames + 2 * i] != 0;
		lost += owner == GPUNVME_FRAME_LOST;
		if (owner == GPUNVME_FRAME_LOST || !owner)
			continue;
		if (owner > t.pages || t.table[owner - 1] >> GPUNVME_PAGE_FRAME_SHIFT != i ||
		    gnvd_page_state(t.table[owner - 1]) < GPUNVME_PAGE_VALID)
			fail("frame %u is forgotten, its word is %llx", i, (unsigned long long)owner);
	}
	if (lost != t.state.lost || (lost && !t.trouble))
		fail("%llu frames are lost, %llu are counted", (unsigned long long)lost, (unsigned long long)t.state.lost);
	if (t.state.prefetches != t.state.used + t.state.wasted + unasked)
		fail("of %llu pages %llu were used, %llu wasted, and %llu wait", (unsigned long long)t.state.prefetches,
		     (unsigned long long)t.state.used, (unsigned long long)t.state.wasted, (unsigned long long)unasked);
}

static void run(uint64_t seed)
{
	choose(seed);
	schedule_begin(&t.lanes, work, control);
	schedule_run();
	drain_rest();
	check_frames();
	if (t.rig->ctrl.garbage || (!t.trouble && t.rig->state->poison))
		fail("the queue is poisoned: %u", t.rig->state->poison);
	prefetches += t.state.prefetches;
	used += t.state.used;
	schedule_end(&t.lanes);
	rig_free(t.rig);
}

int main(int argc, char **argv)
{
	uint64_t count = SEEDS, steps = schedule_all(argc, argv, &count, run);

	if (count)
		printf("%llu schedules, %llu pages prefetched, of which %llu were asked for, %llu steps: all good\n", (unsigned long long)count,
		       (unsigned long long)prefetches, (unsigned long long)used, (unsigned long long)steps);
	return 0;
}
