/* SPDX-License-Identifier: MIT */
/*
 * Page caches under test_schedule, most of them with prefetch: threads get, prefetch and finish pages of small caches.
 *
 * The controller spoils a frame when it fetches the command, and fills it when it completes that. A thread that gets a page finds
 * its bytes until it gives the page back, or gets the failure that all of its reads end with. At the end no page has a reference or
 * is half read, each identifier is free or a page's that is coming, each frame is a page's, free, or lost by a read that was given
 * up, and of what was prefetched all is accounted for.
 */
#define SCHEDULE_PART "pages"
#include "schedule.h"

#include <gpunvme/device.h>

#include "schedule_case.h"
#include "schedule_parts.h"

#define PLAIN 4u /* of so many seeds one has a cache without prefetch */
#define MOST_PAGES 12u
#define MOST_FRAMES 6u
#define WORDS 64u /* of a page */
#define SPOILED 0xabababababababab

static struct {
	uint32_t errors; /* of so many pages one cannot be read; 0: none */
	uint32_t pages;
	bool plain; /* without prefetch */
	struct gpunvme_dpages cache;
	struct gpunvme_cache_state state;
	uint64_t table[MOST_PAGES], frame[3 * MOST_FRAMES];
	uint64_t bytes[MOST_FRAMES * WORDS], local[MOST_FRAMES * WORDS];
	uint64_t *into[MOST_PAGES]; /* where the last command that reads a page puts it */
} t;

static uint64_t prefetches, used; /* of all runs */

static void describe(void)
{
	printf("%u frames for %u pages", t.cache.frames, t.pages);
}

NO_TSAN static void schedule_doorbell(uint64_t at, uint32_t value)
{
	(void)at;
	(void)value;
}

/* ---- The controller ---- */

static bool is_bad(uint64_t page)
{
	uint64_t random = page ^ c.seed;

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

/* ---- The threads ---- */

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
	const struct gpunvme_cached_queue cached = { &c.rig->dq, &t.cache };
	const struct gpunvme_prefetch_queue prefetch = { &c.rig->dq, &t.cache };
	int ret = t.plain ? gpunvme_page_get(&cached, page, &got) : gpunvme_page_get(&prefetch, page, &got);

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
	if (t.plain ? gpunvme_page_put(&cached, &got) : gpunvme_page_put(&prefetch, &got))
		fail("page %llu is not the lane's", (unsigned long long)page);
}

static void element(uint64_t page)
{
	uint64_t value = 0, i = page * WORDS + draw(WORDS);
	const struct gpunvme_cached_queue cached = { &c.rig->dq, &t.cache };
	const struct gpunvme_prefetch_queue prefetch = { &c.rig->dq, &t.cache };
	int ret = t.plain ? gpunvme_array_load(&cached, i, 8, &value) : gpunvme_array_load(&prefetch, i, 8, &value);

	judge("array_load", page, ret);
	if (!ret && value != page + 1)
		fail("an element of page %llu is %llx", (unsigned long long)page, (unsigned long long)value);
}

/* The end of a page and the beginning of the next one. */
static void range(uint64_t page)
{
	uint64_t to[WORDS], from = page * WORDS + WORDS / 2;
	bool last = page + 1 == t.pages;
	uint32_t n = last ? WORDS / 2 : WORDS, i;
	const struct gpunvme_cached_queue src = { &c.rig->dq, &t.cache };
	int ret = gpunvme_array_load_range(&src, from, n, 8, to);

	judge("array_load_range", !is_bad(page) && !last ? page + 1 : page, ret);
	for (i = 0; i < n && !ret; i++)
		if (to[i] != page + (i >= WORDS / 2) + 1)
			fail("word %u of a range from page %llu on is %llx", i, (unsigned long long)page, (unsigned long long)to[i]);
}

static void work(unsigned number)
{
	uint32_t i, what;
	uint64_t page;
	int ret;
	const struct gpunvme_prefetch_queue src = { &c.rig->dq, &t.cache };

	for (i = 0; i < c.ops; i++) {
		what = draw(16);
		page = draw(draw(2) ? t.pages : 2);
		if (t.plain && (what < 3 || what == 15)) {
			range(page);
		} else if (what < 7 && !t.plain) {
			ret = gpunvme_prefetch(&src, page);
			if (ret && ret != -GPUNVME_EAGAIN && !excused(ret))
				fail("prefetch of page %llu: %d", (unsigned long long)page, ret);
		} else if (what < 12) {
			get(page);
		} else if (what < 15) {
			element(page);
		} else {
			ret = gpunvme_prefetch_finish(&src);
			if (ret && !excused(ret))
				fail("prefetch_finish: %d", ret);
		}
	}
	schedule_leave(&c.lanes, number);
}

/* ---- A run ---- */

static void choose_cache(void)
{
	t.pages = 2 + draw(MOST_PAGES - 1);
	t.cache = (struct gpunvme_dpages){
		.head = GPUNVME_HEAD((uint16_t)(GPUNVME_KIND_PAGES | (t.plain ? 0 : GPUNVME_KIND_PREFETCH)), t.cache),
		.flags = GPUNVME_DPAGES_STATS, .nsid = 1, .frames = 1 + draw(MOST_FRAMES), .lba_shift = 9, .page_shift = 9,
		.state = (uintptr_t)&t.state, .table = (uintptr_t)t.table, .frame = (uintptr_t)t.frame, .lba_count = t.pages,
		.buf = c.rig->dbuf, .local = draw(3) ? 0 : (uintptr_t)t.local,
	};
	t.cache.buf.base = (uintptr_t)t.bytes;
	t.cache.buf.len = 512ull * t.cache.frames;
}

static void choose(uint64_t seed)
{
	memset(&t, 0, sizeof(t));
	choose_seed(seed);
	t.plain = seed % PLAIN == 0;
	c.rig = rig_new(2 + draw(4), 0);
	choose_cache();
	choose_lanes(7, 16);
	t.errors = draw(2) ? 2 + draw(6) : 0;
	choose_trouble(6);
	if (c.trouble == SILENT)
		c.rig->dq.cmd_timeout = 2000000;
	choose_controller(16, status_of, on_fetch);
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
		if (by >> 32 != c.rig->dq.tag || (uint32_t)by >= c.rig->dq.cids || seen >> (uint32_t)by & 1)
			fail("page %u is coming by a command that is none", i);
		seen |= 1ull << (uint32_t)by;
		over = over && gnvd_is_over(&c.rig->dq, c.rig->result[(uint32_t)by]);
		++*coming;
	}
	return over;
}

/* Pages may go on to have identifiers. */
static void drain_pages(void)
{
	uint32_t coming;
	unsigned turns;

	for (turns = 0; !have_come(&coming) || rig_free_cids(c.rig) + coming < c.rig->dq.cids; turns++)
		drain_once(turns, c.rig->dq.cids - coming);
	if (t.state.coming != coming || c.rig->state->prefetched != coming)
		fail("%u pages are coming, %llu are counted, and %llu for the queue", coming, (unsigned long long)t.state.coming,
		     (unsigned long long)c.rig->state->prefetched);
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
	if (lost != t.state.lost || (lost && !c.trouble))
		fail("%llu frames are lost, %llu are counted", (unsigned long long)lost, (unsigned long long)t.state.lost);
	if (t.state.prefetches != t.state.used + t.state.wasted + unasked)
		fail("of %llu pages %llu were used, %llu wasted, and %llu wait", (unsigned long long)t.state.prefetches,
		     (unsigned long long)t.state.used, (unsigned long long)t.state.wasted, (unsigned long long)unasked);
}

static void run(uint64_t seed)
{
	choose(seed);
	run_case(trouble_comes, work);
	drain_pages();
	check_frames();
	if (c.rig->ctrl.garbage || (!c.trouble && c.rig->state->poison))
		fail("the queue is poisoned: %u", c.rig->state->poison);
	prefetches += t.state.prefetches;
	used += t.state.used;
	end_case();
}

int schedule_pages(int argc, char **argv)
{
	uint64_t count = SEEDS(800u), steps = schedule_all(argc, argv, &count, run);

	if (count)
		printf("%llu schedules, %llu pages prefetched, of which %llu were asked for, %llu steps: all good\n", (unsigned long long)count,
		       (unsigned long long)prefetches, (unsigned long long)used, (unsigned long long)steps);
	return 0;
}
