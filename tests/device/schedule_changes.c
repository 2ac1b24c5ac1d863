/* SPDX-License-Identifier: MIT */
/*
 * Pages that threads change under test_schedule: threads change words of their own by pages and elements, look at them, and flush,
 * in caches that are too small.
 *
 * The controller takes what it writes when it fetches the command, and looks when it completes that whether it is the same still. What
 * it reads is spoiled until then. At the end every word is what its thread has put there last: on the drive, or in a frame that
 * says so and has one reference for it. A write that failed or was given up has lost nothing.
 */
#define SCHEDULE_PART "changes"
#include "schedule.h"

#include <gpunvme/device.h>

#include "schedule_case.h"
#include "schedule_parts.h"

#define MOST_PAGES 10u
#define MOST_FRAMES 5u
#define BLOCKS 2u /* of a page: each is a part */
#define WORDS (64u * BLOCKS)
#define SPOILED 0xabababababababab
/* The last command for a page, of which there is one at a time, but for reads that were given up. */
struct command {
	uint64_t *memory;
	uint32_t first, words; /* of the page */
	bool writes, over;
	uint64_t taken[WORDS];
};

static struct {
	uint32_t pages, bad; /* bad: the page whose writes fail */
	struct gpunvme_dpages cache;
	struct gpunvme_cache_state state;
	uint64_t table[MOST_PAGES], frame[3 * MOST_FRAMES]; /* owners, what is kept, parts */
	uint64_t bytes[MOST_FRAMES * WORDS], local[MOST_FRAMES * WORDS], drive[MOST_PAGES * WORDS];
	struct command command[MOST_PAGES];
	uint32_t version[SCHEDULE_LANES][MOST_PAGES];
} t;

static uint64_t writes, failures, kept; /* of all runs */

static void describe(void)
{
	printf("%u frames for %u pages, of which %u cannot be written", t.cache.frames, t.pages, t.bad);
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
	struct command *last;

	(void)ctx;
	if (page >= t.pages || first + n > BLOCKS || offset >= (uint64_t)BLOCKS * t.cache.frames || offset % BLOCKS != first ||
	    (!moves && n != BLOCKS))
		fail("the controller fetched what is no command for a page");
	last = &t.command[page];
	if (!last->over && (!c.trouble || (moves && last->writes)))
		fail("page %llu has two commands", (unsigned long long)page);
	if (moves && t.frame[offset / BLOCKS] != page + 1)
		fail("page %llu is written from the frame of page %llu", (unsigned long long)page,
		     (unsigned long long)t.frame[offset / BLOCKS] - 1);
	last->memory = t.bytes + offset * 64;
	last->first = first * 64;
	last->words = n * 64;
	last->writes = moves;
	last->over = false;
	for (i = 0; i < last->words; i++) {
		last->taken[i] = __atomic_load_n(&last->memory[i], __ATOMIC_RELAXED);
		if (!moves)
			__atomic_store_n(&last->memory[i], SPOILED, __ATOMIC_RELAXED);
		else if (page != t.bad)
			t.drive[page * WORDS + last->first + i] = last->taken[i];
	}
}

/* Asked when it completes a command. */
static uint16_t status_of(uint64_t lba)
{
	struct command *last = &t.command[lba / BLOCKS];
	uint64_t page = lba / BLOCKS, i;

	for (i = 0; i < last->words && !last->over; i++)
		if (!last->writes)
			__atomic_store_n(&last->memory[i], t.drive[page * WORDS + i], __ATOMIC_RELAXED);
		else if (__atomic_load_n(&last->memory[i], __ATOMIC_RELAXED) != last->taken[i] && !c.trouble)
			fail("word %llu of page %llu changes while it is written", (unsigned long long)i, (unsigned long long)page);
	last->over = true;
	return last->writes && page == t.bad ? 0x280 : 0;
}

/* ---- The threads ---- */

/* -EAGAIN: others have all pages. The reason why no page could be written to make room is returned, too. */
static bool done(const char *what, uint64_t page, int ret)
{
	if (ret && ret != -GPUNVME_EAGAIN && !(ret == 0x280 && t.bad < t.pages) && !excused(ret) && !(c.trouble && ret == -GPUNVME_EBUSY))
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
	const struct gpunvme_writable_queue writable = { &c.rig->dq, &t.cache };

	if (!done("page_get", page, gpunvme_page_get(&writable, page, &got)))
		return;
	at = got.base + 16ull * lane;
	look("page_get", lane, page, gnvd_ld64(at));
	while (turns--)
		schedule_yield();
	gnvd_st64(at, word_of(page, 2 * lane, ++t.version[lane][page]));
	if (gpunvme_page_put(&writable, &got, all ? 0 : 16 * lane, all ? 8 * WORDS : 8))
		fail("page %llu is not the lane's", (unsigned long long)page);
}

static void change_element(unsigned lane, uint64_t page)
{
	uint64_t value = word_of(page, 2 * lane, t.version[lane][page] + 1);
	const struct gpunvme_writable_queue src = { &c.rig->dq, &t.cache };

	t.version[lane][page] += done("array_store", page, gpunvme_array_store(&src, page * WORDS + 2 * lane, 8, &value));
}

static void look_at_element(unsigned lane, uint64_t page, bool reads)
{
	uint64_t value = 0, i = page * WORDS + 2 * lane;
	const struct gpunvme_cached_queue cached = { &c.rig->dq, &t.cache };
	const struct gpunvme_writable_queue writable = { &c.rig->dq, &t.cache };
	int ret = reads ? gpunvme_array_load(&cached, i, 8, &value) : gpunvme_array_load(&writable, i, 8, &value);

	if (done("array_load", page, ret))
		look("array_load", lane, page, value);
}

static void work(unsigned number)
{
	uint32_t i, what;
	uint64_t page;
	const struct gpunvme_writable_queue src = { &c.rig->dq, &t.cache };

	for (i = 0; i < c.ops; i++) {
		what = draw(16);
		page = draw(draw(2) ? t.pages : 2);
		if (what < 6)
			change_by_page(number, page);
		else if (what < 10)
			change_element(number, page);
		else if (what < 15)
			look_at_element(number, page, what < 12);
		else
			done("write_back", 0, gpunvme_write_back(&src, 0, 1));
	}
	schedule_leave(&c.lanes, number);
}

/* ---- A run ---- */

static void choose_cache(void)
{
	uint32_t i;

	t.pages = 2 + draw(MOST_PAGES - 1);
	t.bad = draw(3) ? MOST_PAGES : draw(t.pages);
	t.cache = (struct gpunvme_dpages){
		.head = GPUNVME_HEAD(GPUNVME_KIND_PAGES, t.cache),
		.flags = GPUNVME_DPAGES_STATS | GPUNVME_DPAGES_WRITABLE, .nsid = 1, .frames = 1 + draw(MOST_FRAMES), .lba_shift = 9,
		.page_shift = 10, .state = (uintptr_t)&t.state, .table = (uintptr_t)t.table, .frame = (uintptr_t)t.frame,
		.lba_count = BLOCKS * t.pages, .buf = c.rig->dbuf, .local = draw(3) ? 0 : (uintptr_t)t.local,
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
	memset(&t, 0, sizeof(t));
	choose_seed(seed);
	c.rig = rig_new(2 + draw(4), 0);
	choose_cache();
	choose_lanes(7, 16);
	choose_trouble(6);
	c.rig->dq.cmd_timeout = 2000000; /* a thread that only reads waits so long for a frame whose page cannot be written */
	choose_controller(16, status_of, on_fetch);
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
	if (changed != t.state.changed || lost != t.state.lost || (lost && !c.trouble))
		fail("%llu frames have changes, %llu are counted; %llu are lost, %llu counted", (unsigned long long)changed,
		     (unsigned long long)t.state.changed, (unsigned long long)lost, (unsigned long long)t.state.lost);
}

static void run(uint64_t seed)
{
	choose(seed);
	run_case(trouble_comes, work);
	drain_rest();
	check_words();
	writes += t.state.writes;
	failures += t.state.write_failures;
	end_case();
}

int schedule_changes(int argc, char **argv)
{
	uint64_t count = SEEDS(600u), steps = schedule_all(argc, argv, &count, run);

	if (count)
		printf("%llu schedules, %llu pages written, %llu in vain, %llu kept, %llu steps: all good\n", (unsigned long long)count,
		       (unsigned long long)writes, (unsigned long long)failures, (unsigned long long)kept, (unsigned long long)steps);
	return 0;
}
