/* SPDX-License-Identifier: MIT */
/*
 * Pages that threads change: the words of the header itself, over a controller that moves blocks between the frames and a drive in
 * plain memory as commands say. Each thread has one word of each page to itself, and knows what it has put there last.
 */
#include <gpunvme/device.h>

#include "rig.h"

#define PAGE 4096u
#define PAGES 24u
#define LANES_MOST 64u
/* Of a page, from the thread's own to the next thread's: eight threads change a block. */
#define LANE_WORDS 8u
#define BAD 43u /* a write that begins at this block fails: page 5, changed by threads from 24 on alone */

struct changes {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
	uint32_t *version; /* of PAGES words of each thread */
	uint32_t rounds, wrong, right, again;
};

struct stage {
	struct rig *r;
	struct gpunvme_dpages *view;
	struct gpunvme_cache_state *state;
	uint64_t *table, *frame, *bytes, *local, *drive; /* frame: of each its owner, then what is kept, then parts */
	uint32_t *version;
};

static GPUNVME_DEVICE uint64_t word_of(uint64_t i, uint32_t version)
{
	return i | (uint64_t)version << 32;
}

static uint16_t status_of(uint64_t stamp)
{
	return stamp == BAD ? 0x280 : 0;
}

/* What the controller does with blocks of 64 words: one that fails does nothing. */
static void move_blocks(void *ctx, const struct gpunvme_sqe *cmd)
{
	struct stage *s = ctx;
	uint64_t *memory = s->bytes + (cmd->prp1 - RIG_IOVA) / 8, *drive = s->drive + cmd->cdw10 * 64ull;
	uint64_t i, n = ((cmd->cdw12 & 0xffff) + 1) * 64;

	if (s->r->ctrl.opts.status && s->r->ctrl.opts.status(cmd->cdw10))
		return;
	for (i = 0; i < n; i++)
		if ((cmd->opc) == GPUNVME_IO_WRITE)
			drive[i] = __atomic_load_n(&memory[i], __ATOMIC_RELAXED);
		else
			__atomic_store_n(&memory[i], drive[i], __ATOMIC_RELAXED);
}

static void tell_memory(struct stage *s, uint32_t frames)
{
	RIG_MEMORY("descriptor of the cache", s->view, sizeof(*s->view), RIG_READONLY);
	RIG_MEMORY("state of the cache", s->state, sizeof(*s->state), 0);
	RIG_MEMORY("words of pages", s->table, 8 * PAGES, 0);
	RIG_MEMORY("words of frames", s->frame, 24 * frames, 0);
	RIG_MEMORY("what each lane has put", s->version, 4 * PAGES * LANES_MOST, 0);
	RIG_MEMORY("frames", s->bytes, PAGE * frames, RIG_WRITTEN);
	if (s->local)
		RIG_MEMORY("frames of the lanes", s->local, PAGE * frames, 0);
	(void)frames;
}

static struct stage *stage_new(uint32_t frames, bool copies)
{
	struct stage *s = rig_zeroed(sizeof(*s));
	uint64_t i;

	s->r = rig_new(5, 0);
	s->r->ctrl.opts.status = status_of;
	s->r->ctrl.seen = move_blocks;
	s->r->ctrl.seen_ctx = s;
	s->drive = rig_zeroed(PAGE * PAGES);
	for (i = 0; i < PAGE / 8 * PAGES; i++)
		s->drive[i] = i;
	s->version = rig_zeroed(4 * PAGES * LANES_MOST);
	s->table = rig_zeroed(8 * PAGES);
	s->frame = rig_zeroed(24 * frames);
	s->bytes = rig_zeroed(PAGE * frames);
	s->local = copies ? rig_zeroed(PAGE * frames) : NULL;
	s->state = rig_zeroed(sizeof(*s->state));
	s->view = rig_zeroed(sizeof(*s->view));
	s->view->head = (struct gpunvme_head)GPUNVME_HEAD(GPUNVME_KIND_PAGES, *s->view);
	s->view->flags = GPUNVME_DPAGES_STATS | GPUNVME_DPAGES_WRITABLE;
	s->view->nsid = 1;
	s->view->frames = frames;
	s->view->lba_shift = 9;
	s->view->page_shift = 12;
	s->view->lba_count = PAGES * 8;
	s->view->state = (uintptr_t)s->state;
	s->view->table = (uintptr_t)s->table;
	s->view->frame = (uintptr_t)s->frame;
	s->view->local = (uintptr_t)s->local;
	s->view->buf = s->r->dbuf;
	s->view->buf.base = (uintptr_t)s->bytes;
	s->view->buf.len = PAGE * frames;
	tell_memory(s, frames);
	rig_start(s->r);
	return s;
}

static void stage_free(struct stage *s, bool idle)
{
	void *all[] = { s->view, s->state, s->table, s->frame, s->version, s->bytes, s->local };
	uint32_t i;

	rig_end(s->r, idle);
	for (i = 0; i < 7 && all[i]; i++) {
		RIG_FORGET(all[i]);
		free(all[i]);
	}
	free(s->drive);
	free(s);
}

/* Where the newest bytes of a page are; a frame that has changes has one reference for them. */
static const uint64_t *newest(struct stage *s, uint64_t page)
{
	uint64_t word = s->table[page], frame = word >> GPUNVME_PAGE_FRAME_SHIFT;

	if ((word & GPUNVME_PAGE_STATE) != GPUNVME_PAGE_VALID) {
		assert_int_equal(word & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS), GPUNVME_PAGE_EMPTY);
		return s->drive + page * 512;
	}
	assert_int_equal(s->frame[frame], page + 1);
	assert_int_equal(word & GPUNVME_PAGE_REFS, s->frame[2 * s->view->frames + frame] ? GPUNVME_PAGE_REF : 0);
	return s->frame[2 * s->view->frames + frame] ? (s->local ? s->local : s->bytes) + frame * 512 : s->drive + page * 512;
}

/* Every word is what its thread has put last, wherever the page is, and no other word was touched. Return pages with changes. */
static uint32_t check_words(struct stage *s)
{
	uint32_t changed = 0, i;
	uint64_t page, k;

	for (page = 0; page < PAGES; page++)
		for (k = 0; k < 512; k++)
			assert_int_equal(newest(s, page)[k], word_of(page * 512 + k, k % LANE_WORDS ? 0 :
								     s->version[k / LANE_WORDS * PAGES + page]));
	for (i = 0; i < s->view->frames; i++)
		changed += s->frame[2 * s->view->frames + i] != 0;
	assert_int_equal(s->state->changed, changed);
	return changed;
}

/* Get it, look, change it, and give it back, for as long as that takes. */
static GPUNVME_DEVICE int change_by_page(struct changes *c, uint64_t page, uint32_t k, uint32_t *version)
{
	struct gpunvme_page got;
	const struct gpunvme_writable_queue src = { c->dq, c->cache };
	int ret = gpunvme_page_get(&src, page, &got);

	if (ret)
		return ret;
	if (gnvd_ld64(got.base + 8ull * k) != word_of(page * 512 + k, *version))
		ret = 1;
	RIG_NAP_US(10);
	gnvd_st64(got.base + 8ull * k, word_of(page * 512 + k, ++*version));
	return gpunvme_page_put(&src, &got, 8 * k, 8) ? 2 : ret;
}

static GPUNVME_DEVICE void change_kernel(void *arg)
{
	struct changes *c = (struct changes *)arg;
	uint64_t seed = gpunvme_thread_id() + 1, page;
	uint32_t i, k = gpunvme_thread_id() * LANE_WORDS, *version;
	int ret;

	for (i = 0; i < c->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		page = (seed >> 33) % (i % 2 ? PAGES : 6);
		page -= page == 5 && gpunvme_thread_id() < 24; /* so that writes of it begin at BAD */
		version = c->version + gpunvme_thread_id() * PAGES + page;
		ret = change_by_page(c, page, k, version);
		if (ret == -GPUNVME_EAGAIN)
			RIG_NAP_US(50);
		else if (ret)
			__atomic_fetch_add(&c->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(ret == -GPUNVME_EAGAIN ? &c->again : &c->right, 1, __ATOMIC_RELAXED);
	}
}

static GPUNVME_DEVICE void element_kernel(void *arg)
{
	struct changes *c = (struct changes *)arg;
	uint64_t seed = gpunvme_thread_id() + 7, page, at, value;
	uint32_t i, *version, bad;
	const struct gpunvme_writable_queue src = { c->dq, c->cache };

	for (i = 0; i < c->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		page = (seed >> 33) % PAGES;
		page -= page == 5;
		at = page * 512 + gpunvme_thread_id() * LANE_WORDS;
		version = c->version + gpunvme_thread_id() * PAGES + page;
		value = 0;
		bad = gpunvme_array_load(&src, at, 8, &value) || value != word_of(at, *version);
		value = word_of(at, ++*version);
		bad |= gpunvme_array_store(&src, at, 8, &value) != 0;
		if (bad)
			__atomic_fetch_add(&c->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&c->right, 1, __ATOMIC_RELAXED);
	}
}

/* All threads together, each its share. */
static GPUNVME_DEVICE void flush_kernel(void *arg)
{
	struct changes *c = (struct changes *)arg;
	const struct gpunvme_writable_queue src = { c->dq, c->cache };
	int ret = gpunvme_write_back(&src, gpunvme_thread_id(), gpunvme_thread_count());

	__atomic_fetch_add(ret == 0 ? &c->right : ret == -GPUNVME_EAGAIN ? &c->again : &c->wrong, 1, __ATOMIC_RELAXED);
}

/* Some threads change while the others flush. */
static GPUNVME_DEVICE void both_kernel(void *arg)
{
	struct changes *c = (struct changes *)arg;
	uint32_t i;
	int ret;
	const struct gpunvme_writable_queue src = { c->dq, c->cache };

	if (gpunvme_thread_id() % 2)
		element_kernel(arg);
	for (i = 0; gpunvme_thread_id() % 2 == 0 && i < c->rounds; i++) {
		ret = gpunvme_write_back(&src, gpunvme_thread_id() / 2, (gpunvme_thread_count() + 1) / 2);
		if (ret && ret != -GPUNVME_EAGAIN)
			__atomic_fetch_add(&c->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&c->right, 1, __ATOMIC_RELAXED);
	}
}

static struct changes launch(struct stage *s, void (*kernel)(void *arg), uint32_t lanes, uint32_t width, uint32_t rounds)
{
	struct changes c = { &s->r->dq, s->view, s->version, rounds, 0, 0, 0 };

	assert_int_equal(gpunvme_cpu_launch(lanes, width, kernel, &c), 0);
	return c;
}

static void run(void (*kernel)(void *arg), uint32_t frames, bool copies, uint32_t lanes, uint32_t width, uint32_t rounds)
{
	struct stage *s = stage_new(frames, copies);
	struct changes c = launch(s, kernel, lanes, width, rounds);
	uint32_t bad = kernel == change_kernel && lanes > 24;

	assert_int_equal(c.wrong, 0);
	assert_int_equal(c.right + c.again, lanes * rounds);
	assert_true(c.right > 0 && s->state->evictions > 0 && s->state->writes > 0);
	assert_true(check_words(s) >= bad);
	c = launch(s, flush_kernel, lanes, width, 1);
	assert_int_equal(c.wrong, bad);
	assert_int_equal(c.right + bad, lanes);
	assert_int_equal(check_words(s), bad);
	assert_int_equal(s->state->lost, 0);
	stage_free(s, true);
}

static void changes_are_kept(void **state)
{
	(void)state;
	run(change_kernel, 9, false, 8, 1, RIG_COUNT(200, 12));
	run(change_kernel, 12, false, 32, 8, RIG_COUNT(60, 8));
	run(change_kernel, 20, true, 32, 32, RIG_COUNT(30, 5));
}

static void elements_are_kept(void **state)
{
	(void)state;
	run(element_kernel, 2, false, 6, 1, RIG_COUNT(60, 8));
	run(element_kernel, 3, true, 16, 8, RIG_COUNT(12, 3));
}

static void flushes_race_with_puts(void **state)
{
	(void)state;
	run(both_kernel, 5, false, 8, 1, RIG_COUNT(60, 6));
	run(both_kernel, 6, true, 16, 4, RIG_COUNT(20, 3));
}

/* ---- A write that never ends ---- */

static enum mini_fate never(uint64_t stamp)
{
	return stamp % 8 == 1 ? MINI_HOLD : MINI_COMPLETE;
}

/* Change a word of a page; its write begins at its second block. */
static GPUNVME_DEVICE void one_kernel(void *arg)
{
	struct changes *c = (struct changes *)arg;

	if (!change_by_page(c, c->rounds, 8 * LANE_WORDS, c->version + 8 * PAGES + c->rounds))
		c->right++;
}

static GPUNVME_DEVICE void give_up_kernel(void *arg)
{
	struct changes *c = (struct changes *)arg;
	const struct gpunvme_writable_queue src = { c->dq, c->cache };

	c->right = gpunvme_write_back(&src, 0, 1) == -GPUNVME_ETIMEDOUT;
	c->again = gpunvme_write_back(&src, 0, 1) == -GPUNVME_EBUSY;
	c->wrong = change_by_page(c, c->rounds, 8 * LANE_WORDS, c->version + 8 * PAGES + c->rounds) != 0;
}

/* The page stays, with its changes and more, and nobody writes it in parallel with the old write. */
static void what_is_given_up_is_kept(void **state)
{
	struct stage *s = stage_new(2, false);
	struct changes c;

	(void)state;
	s->r->ctrl.opts.fate = never;
	assert_int_equal(launch(s, one_kernel, 1, 1, 3).right, 1);
	s->r->dq.cmd_timeout = rig_ms(RIG_COUNT(50, 2));
	c = launch(s, give_up_kernel, 1, 1, 3);
	assert_int_equal(c.right, 1);
	assert_int_equal(c.again, 1);
	assert_int_equal(c.wrong, 0);
	assert_int_equal(s->table[3] & (GPUNVME_PAGE_STATE | GPUNVME_PAGE_REFS), GPUNVME_PAGE_VALID | GPUNVME_PAGE_REF);
	assert_int_equal(s->frame[2 + (s->table[3] >> GPUNVME_PAGE_FRAME_SHIFT)], GPUNVME_FRAME_LOST);
	assert_int_equal(s->state->lost, 1);
	assert_int_equal(s->state->writes, 1);
	assert_int_equal(check_words(s), 1);
	stage_free(s, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(changes_are_kept),
		cmocka_unit_test(elements_are_kept),
		cmocka_unit_test(flushes_race_with_puts),
		cmocka_unit_test(what_is_given_up_is_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
