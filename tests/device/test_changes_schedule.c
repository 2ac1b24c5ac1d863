/* SPDX-License-Identifier: MIT */
/*
 * The schedule fuzzer of pages that lanes change: lanes as coroutines change words of their own by pages and elements, look at them, and
 * flush, in caches that are too small, as test_ahead_schedule has it for pages that are read.
 *
 *   test_changes_schedule          a fixed list of seeds; GPUNVME_SCHEDULES=N in the environment: that many
 *   test_changes_schedule SEED     that one again
 *
 * The controller takes what it writes when it fetches the command, and looks when it completes that whether it is the same still; what
 * it reads is spoiled until then. At the end every word is what its lane has put there last: on the drive, or in a frame that says so
 * and has one reference for it; a write that failed or was given up has lost nothing.
 */
#include "schedule.h"

#include <gpunvme/device_writable.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/rig.h"
#include "schedule_lanes.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SEEDS 150u
#else
#define SEEDS 600u
#endif
#define MOST_PAGES 10u
#define MOST_FRAMES 5u
#define BLOCKS 2u /* of a page: each is a part */
#define WORDS (64u * BLOCKS)
#define SPOILED 0xabababababababab
#define STEPS 30000000u

enum trouble { NONE, SILENT, STOPPED };

/* The last command for a page, of which there is one at a time, but for reads that were given up. */
struct command {
	uint64_t *memory;
	uint32_t first, words; /* of the page */
	bool writes, over;
	uint64_t taken[WORDS];
};

static struct {
	uint64_t seed, random;
	struct rig *rig;
	struct schedule_lanes lanes;
	uint32_t ops, pages, bad; /* bad: the page whose writes fail */
	enum trouble trouble;
	uint64_t trouble_at; /* steps */
	struct gpunvme_dpages cache;
	struct gpunvme_pagecache_state state;
	uint64_t table[MOST_PAGES], frame[3 * MOST_FRAMES]; /* owners, what is kept, parts */
	uint64_t bytes[MOST_FRAMES * WORDS], local[MOST_FRAMES * WORDS], drive[MOST_PAGES * WORDS];
	struct command command[MOST_PAGES];
	uint32_t version[SCHEDULE_LANES][MOST_PAGES];
} t;

static uint64_t writes, failures, kept; /* of all runs */

static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("[  FAILED  ] ");
	vprintf(format, args);
	va_end(args);
	printf("\n%u frames for %u pages, of which %u cannot be written, trouble %d, %u lanes in waves of %u; replay: "
	       "test_changes_schedule %llu\n", t.cache.frames, t.pages, t.bad, t.trouble, t.lanes.count, t.lanes.width,
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
	if (schedule.steps != t.trouble_at)
		return;
	if (t.trouble == STOPPED)
		__atomic_store_n(&t.rig->stop, 1, __ATOMIC_RELEASE);
	if (t.trouble == SILENT)
		mini_freeze(&t.rig->ctrl, true);
}

static void stuck(void)
{
	fail("no end in sight: %u lanes have returned", __atomic_load_n(&t.lanes.over, __ATOMIC_RELAXED));
}

NO_TSAN static void schedule_doorbell(uint64_t at, uint32_t value)
{
	(void)at;
	(void)value;
}

static uint64_t word_of(uint64_t page, uint64_t k, uint32_t version)
{
	return page << 16 | k | (uint64_t)version << 32;
}

/* ---- The controller ---- */

static void on_fetch(void *ctx, const struct gpunvme_sqe *cmd)
{
	uint64_t offset = (cmd->prp1 - RIG_IOVA) / 512, page = cmd->cdw10 / BLOCKS, i;
	uint32_t first = cmd->cdw10 % BLOCKS, n = (cmd->cdw12 & 0xffff) + 1;
	bool moves = cmd->opc == GPUNVME_IO_WRITE;
	struct command *c;

	(void)ctx;
	if (page >= t.pages || first + n > BLOCKS || offset >= (uint64_t)BLOCKS * t.cache.frames || offset % BLOCKS != first ||
	    (!moves && n != BLOCKS))
		fail("the controller fetched what is no command for a page");
	c = &t.command[page];
	if (!c->over && (!t.trouble || (moves && c->writes)))
		fail("page %llu has two commands", (unsigned long long)page);
	if (moves && t.frame[offset / BLOCKS] != page + 1)
		fail("page %llu is written from the frame of page %llu", (unsigned long long)page,
		     (unsigned long long)t.frame[offset / BLOCKS] - 1);
	c->memory = t.bytes + offset * 64;
	c->first = first * 64;
	c->words = n * 64;
	c->writes = moves;
	c->over = false;
	for (i = 0; i < c->words; i++) {
		c->taken[i] = __atomic_load_n(&c->memory[i], __ATOMIC_RELAXED);
		if (!moves)
			__atomic_store_n(&c->memory[i], SPOILED, __ATOMIC_RELAXED);
		else if (page != t.bad)
			t.drive[page * WORDS + c->first + i] = c->taken[i];
	}
}

/* Asked when it completes a command. */
static uint16_t status_of(uint64_t lba)
{
	struct command *c = &t.command[lba / BLOCKS];
	uint64_t page = lba / BLOCKS, i;

	for (i = 0; i < c->words && !c->over; i++)
		if (!c->writes)
			__atomic_store_n(&c->memory[i], t.drive[page * WORDS + i], __ATOMIC_RELAXED);
		else if (__atomic_load_n(&c->memory[i], __ATOMIC_RELAXED) != c->taken[i] && !t.trouble)
			fail("word %llu of page %llu changes while it is written", (unsigned long long)i, (unsigned long long)page);
	c->over = true;
	return c->writes && page == t.bad ? 0x280 : 0;
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

static bool excused(int ret)
{
	if (t.trouble == SILENT)
		return ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ESHUTDOWN || ret == -GPUNVME_EBUSY;
	return t.trouble == STOPPED && (ret == -GPUNVME_ECANCELED || ret == -GPUNVME_EBUSY);
}

/* -EAGAIN: others have all pages. Why no page could be written to make room is told, too. */
static bool done(const char *what, uint64_t page, int ret)
{
	if (ret && ret != -GPUNVME_EAGAIN && !(ret == 0x280 && t.bad < t.pages) && !excused(ret))
		fail("%s of page %llu: %d", what, (unsigned long long)page, ret);
	return !ret;
}

static void look(const char *what, unsigned lane, uint64_t page, uint64_t value)
{
	if (value != word_of(page, 2 * lane, t.version[lane][page]))
		fail("%s of page %llu finds %llx, lane %u has put version %u", what, (unsigned long long)page, (unsigned long long)value,
		     lane, t.version[lane][page]);
}

static void change_by_page(unsigned lane, uint64_t page)
{
	struct gpunvme_page got = { 0, 0 };
	uint32_t turns = draw(4);
	bool all = draw(2); /* is said to be changed */
	uint64_t at;

	if (!done("page_get", page, gpunvme_writable_page_get(&t.rig->dq, &t.cache, page, &got)))
		return;
	at = got.base + 16ull * lane;
	look("page_get", lane, page, gnvd_ld64(at));
	while (turns--)
		schedule_yield();
	gnvd_st64(at, word_of(page, 2 * lane, ++t.version[lane][page]));
	if (gpunvme_writable_page_put(&t.rig->dq, &t.cache, &got, all ? 0 : 16 * lane, all ? 8 * WORDS : 8))
		fail("page %llu is not the lane's", (unsigned long long)page);
}

static void change_element(unsigned lane, uint64_t page)
{
	uint64_t value = word_of(page, 2 * lane, t.version[lane][page] + 1);

	t.version[lane][page] += done("array_put", page, gpunvme_array_put(&t.rig->dq, &t.cache, page * WORDS + 2 * lane, 8, &value));
}

static void look_at_element(unsigned lane, uint64_t page, bool reads)
{
	uint64_t value = 0, i = page * WORDS + 2 * lane;
	int ret = reads ? gpunvme_array_get(&t.rig->dq, &t.cache, i, 8, &value) :
			  gpunvme_writable_array_get(&t.rig->dq, &t.cache, i, 8, &value);

	if (done("array_get", page, ret))
		look("array_get", lane, page, value);
}

static void work(unsigned number)
{
	uint32_t i, what;
	uint64_t page;

	for (i = 0; i < t.ops; i++) {
		what = draw(16);
		page = draw(draw(2) ? t.pages : 2);
		if (what < 6)
			change_by_page(number, page);
		else if (what < 10)
			change_element(number, page);
		else if (what < 15)
			look_at_element(number, page, what < 12);
		else
			done("flush", 0, gpunvme_writable_flush(&t.rig->dq, &t.cache, 0, 1));
	}
	schedule_leave(&t.lanes, number);
}

/* ---- A run ---- */

static void choose_cache(void)
{
	uint32_t i;

	t.pages = 2 + draw(MOST_PAGES - 1);
	t.bad = draw(3) ? MOST_PAGES : draw(t.pages);
	t.cache = (struct gpunvme_dpages){
		.magic = GPUNVME_DPAGES_MAGIC, .major = GPUNVME_DQ_MAJOR, .minor = GPUNVME_DQ_MINOR, .size = sizeof(t.cache),
		.flags = GPUNVME_DPAGES_STATS | GPUNVME_DPAGES_WRITABLE, .nsid = 1, .frames = 1 + draw(MOST_FRAMES), .lba_shift = 9,
		.page_shift = 10, .state = (uintptr_t)&t.state, .table = (uintptr_t)t.table, .frame = (uintptr_t)t.frame,
		.lba_count = BLOCKS * t.pages, .buf = t.rig->dbuf, .local = draw(3) ? 0 : (uintptr_t)t.local,
	};
	t.cache.buf.base = (uintptr_t)t.bytes;
	t.cache.buf.len = 512ull * BLOCKS * t.cache.frames;
	for (i = 0; i < t.pages * WORDS; i++)
		t.drive[i] = word_of(i / WORDS, i % WORDS, 0);
	for (i = 0; i < t.pages; i++)
		t.command[i].over = true;
}

static void choose(uint64_t seed)
{
	static const uint32_t widths[] = { 1, 1, 4, 32, 64 }, stays[] = { 1, 2, 4, 16, 100 };

	memset(&t, 0, sizeof(t));
	t.seed = seed;
	t.random = seed * 0x9e3779b97f4a7c15u;
	draw(1);
	t.rig = rig_new(2 + draw(4), 0);
	choose_cache();
	t.lanes.width = widths[draw(5)];
	t.lanes.count = t.lanes.width > 4 ? 1 + draw(SCHEDULE_LANES) : 2 + draw(7);
	t.ops = t.lanes.count > 16 ? 4 : 16;
	t.trouble = draw(6) ? NONE : SILENT + draw(2);
	t.trouble_at = 1 + draw(t.lanes.count * 1000);
	t.rig->dq.cmd_timeout = 2000000; /* who only reads waits so long for a frame whose page cannot be written */
	t.rig->ctrl.opts = (struct mini_opts){ .seed = draw(1u << 30), .window = draw(2) ? 1 : 1 + draw(16), .idle = draw(3) ? draw(60) : 0,
					       .status = status_of };
	t.rig->ctrl.seen = on_fetch;
	mini_begin(&t.rig->ctrl);
	schedule_start(seed, stays[draw(5)], STEPS, check, stuck);
}

/* What nobody waits for comes in, too. */
static void drain_rest(void)
{
	unsigned turns;

	mini_freeze(&t.rig->ctrl, false);
	for (turns = 0; rig_free_cids(t.rig) < t.rig->dq.cids; turns++) {
		if (turns == 100000)
			fail("%u of %u identifiers are free", rig_free_cids(t.rig), t.rig->dq.cids);
		schedule_drain(t.rig);
	}
}

/* Where the newest words of a page are: the drive, or a frame with parts and one reference for them. */
static const uint64_t *newest(uint64_t page)
{
	uint64_t word = t.table[page], frame = word >> GPUNVME_PAGE_FRAME_SHIFT, refs = word & GPUNVME_PAGE_REFS;

	if (gnvd_page_state(word) == GPUNVME_PAGE_EMPTY && !refs)
		return t.drive + page * WORDS;
	if (gnvd_page_state(word) != GPUNVME_PAGE_VALID || frame >= t.cache.frames || t.frame[frame] != page + 1)
		fail("the word of page %llu is %llx", (unsigned long long)page, (unsigned long long)word);
	if (refs != (t.frame[2 * t.cache.frames + frame] ? GPUNVME_PAGE_REF : 0))
		fail("page %llu has %llx references", (unsigned long long)page, (unsigned long long)refs);
	return refs ? (t.cache.local ? t.local : t.bytes) + frame * WORDS : t.drive + page * WORDS;
}

static void check_words(void)
{
	uint64_t page, k, changed = 0, lost = 0;
	uint32_t i, version;

	for (page = 0; page < t.pages; page++)
		for (k = 0; k < WORDS; k++) {
			version = k % 2 ? 0 : t.version[k / 2][page];
			if (newest(page)[k] != word_of(page, k, version))
				fail("word %llu of page %llu is %llx, and not of version %u", (unsigned long long)k,
				     (unsigned long long)page, (unsigned long long)newest(page)[k], version);
		}
	for (i = 0; i < t.cache.frames; i++) {
		lost += (t.frame[i] == GPUNVME_FRAME_LOST) + (t.frame[t.cache.frames + i] == GPUNVME_FRAME_LOST);
		changed += t.frame[2 * t.cache.frames + i] != 0;
		kept += t.frame[t.cache.frames + i] != 0;
	}
	if (changed != t.state.changed || lost != t.state.lost || (lost && !t.trouble))
		fail("%llu frames have changes, %llu are counted; %llu are lost, %llu counted", (unsigned long long)changed,
		     (unsigned long long)t.state.changed, (unsigned long long)lost, (unsigned long long)t.state.lost);
}

static void run(uint64_t seed)
{
	choose(seed);
	schedule_begin(&t.lanes, work, control);
	schedule_run();
	drain_rest();
	check_words();
	writes += t.state.writes;
	failures += t.state.write_failures;
	schedule_end(&t.lanes);
	rig_free(t.rig);
}

int main(int argc, char **argv)
{
	uint64_t count = SEEDS, steps = schedule_all(argc, argv, &count, run);

	if (count)
		printf("%llu schedules, %llu pages written, %llu in vain, %llu kept, %llu steps: all good\n", (unsigned long long)count,
		       (unsigned long long)writes, (unsigned long long)failures, (unsigned long long)kept, (unsigned long long)steps);
	return 0;
}
