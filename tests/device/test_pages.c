/* SPDX-License-Identifier: MIT */
/* Pages and elements of a cache: the words of the header itself, with a controller that fills frames as commands say. */
#include <gpunvme/device_array.h>

#include "rig.h"

#define PAGE 4096u
#define WORDS 512u
#define PAGES 48u
#define FRAMES_MOST 64u

struct pages {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
	uint32_t rounds, wrong, right, again;
};

struct cache {
	struct rig *r;
	struct gpunvme_dpages *view;
	struct gpunvme_pagecache_state *state;
	uint64_t *table, *frame, *bytes, *local; /* local: where lanes read pages, which they copy; or NULL */
};

/* Every sixth page cannot be read. */
static GPUNVME_DEVICE uint16_t status_of(uint64_t stamp)
{
	return stamp / 8 % 6 == 5 ? 0x4281 : 0;
}

/* A page's words say which page it is. */
static void fill(void *ctx, const struct gpunvme_sqe *cmd)
{
	struct cache *c = ctx;
	uint64_t *to = c->bytes + (cmd->prp1 - RIG_IOVA) / 8, i;

	for (i = 0; i < WORDS; i++)
		__atomic_store_n(&to[i], cmd->cdw10 / 8ull + 1, __ATOMIC_RELAXED);
}

static struct cache *cache_new(uint32_t frames, bool copies)
{
	struct cache *c = rig_zeroed(sizeof(*c));

	c->r = rig_new(5, 0);
	c->r->ctrl.opts.status = status_of;
	c->r->ctrl.seen = fill;
	c->r->ctrl.seen_ctx = c;
	c->view = rig_zeroed(sizeof(*c->view));
	c->state = rig_zeroed(sizeof(*c->state));
	c->table = rig_zeroed(8 * PAGES);
	c->frame = rig_zeroed(8 * frames);
	c->bytes = rig_zeroed(PAGE * frames);
	c->local = copies ? rig_zeroed(PAGE * frames) : NULL;
	*c->view = (struct gpunvme_dpages){
		.magic = GPUNVME_DPAGES_MAGIC, .major = GPUNVME_DQ_MAJOR, .minor = GPUNVME_DQ_MINOR, .size = sizeof(*c->view),
		.flags = GPUNVME_DPAGES_STATS, .nsid = 1, .frames = frames, .lba_shift = 9, .page_shift = 12,
		.state = (uintptr_t)c->state, .table = (uintptr_t)c->table, .frame = (uintptr_t)c->frame, .lba_count = PAGES * 8,
		.buf = c->r->dbuf, .local = (uintptr_t)c->local,
	};
	c->view->buf.base = (uintptr_t)c->bytes;
	c->view->buf.len = PAGE * frames;
	RIG_MEMORY("descriptor of the cache", c->view, sizeof(*c->view), RIG_READONLY);
	RIG_MEMORY("state of the cache", c->state, sizeof(*c->state), 0);
	RIG_MEMORY("words of pages", c->table, 8 * PAGES, 0);
	RIG_MEMORY("words of frames", c->frame, 8 * frames, 0);
	RIG_MEMORY("frames", c->bytes, PAGE * frames, RIG_WRITTEN);
	if (copies)
		RIG_MEMORY("frames of the lanes", c->local, PAGE * frames, 0);
	rig_start(c->r);
	return c;
}

/* Nobody has a page or reads one, and each frame is free or the page's that names it. */
static void cache_end(struct cache *c)
{
	void *all[] = { c->view, c->state, c->table, c->frame, c->bytes, c->local };
	uint64_t owner;
	uint32_t i;

	rig_end(c->r, true);
	for (i = 0; i < PAGES; i++) {
		assert_int_equal(c->table[i] & GPUNVME_PAGE_REFS, 0);
		assert_int_not_equal(c->table[i] & GPUNVME_PAGE_STATE, GPUNVME_PAGE_READING);
	}
	for (i = 0; i < c->view->frames; i++) {
		owner = c->frame[i];
		assert_true(owner <= PAGES);
		if (owner) {
			assert_int_equal(c->table[owner - 1] & GPUNVME_PAGE_STATE, GPUNVME_PAGE_VALID);
			assert_int_equal(c->table[owner - 1] >> GPUNVME_PAGE_FRAME_SHIFT, i);
		}
	}
	for (i = 0; i < 5 + (c->local != NULL); i++) {
		RIG_FORGET(all[i]);
		free(all[i]);
	}
	free(c);
}

/* What a lane got is what it asked for, from the first look to the last before it gives it back. */
static GPUNVME_DEVICE void page_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	uint64_t seed = gpunvme_lane() + 1, page;
	struct gpunvme_page got;
	uint32_t i, bad;
	int ret;

	for (i = 0; i < p->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		page = (seed >> 33) % (i % 2 ? 48 : 6);
		bad = 0;
		ret = gpunvme_page_get(p->dq, p->cache, page, &got);
		if (!ret) {
			const uint64_t *words = (const uint64_t *)gnvd_lane_memory(got.base);

			bad = words[0] != page + 1 || words[511] != page + 1;
			RIG_NAP_US(i % 3 * 20);
			bad |= words[i % 512] != page + 1 || words[256] != page + 1;
			bad |= gpunvme_page_put(p->dq, &got) != 0;
		}
		if (ret == -GPUNVME_EAGAIN)
			RIG_NAP_US(50);
		if (bad || (ret != status_of(page * 8) && ret != -GPUNVME_EAGAIN))
			__atomic_fetch_add(&p->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(ret == -GPUNVME_EAGAIN ? &p->again : &p->right, 1, __ATOMIC_RELAXED);
	}
}

/* Elements, and ranges of them across pages. */
static GPUNVME_DEVICE void element_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	uint64_t seed = gpunvme_lane() + 1, at, value = 0;
	uint32_t i;
	int ret;

	for (i = 0; i < p->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		at = (seed >> 33) % (48 * 512);
		ret = gpunvme_array_get(p->dq, p->cache, at, 8, &value);
		if (ret != status_of(at / 64) || (!ret && value != at / 512 + 1))
			__atomic_fetch_add(&p->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&p->right, 1, __ATOMIC_RELAXED);
	}
}

/* A page that somebody else reads. */
static GPUNVME_DEVICE void waiting_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	struct gpunvme_page got;

	p->right = gpunvme_page_get(p->dq, p->cache, 0, &got) == -GPUNVME_ETIMEDOUT;
}

static void run(void (*kernel)(void *arg), uint32_t frames, bool copies, uint32_t lanes, uint32_t width, uint32_t rounds)
{
	struct cache *c = cache_new(frames, copies);
	struct pages p = { &c->r->dq, c->view, rounds, 0, 0, 0 };

	assert_int_equal(gpunvme_cpu_launch(lanes, width, kernel, &p), 0);
	assert_int_equal(p.wrong, 0);
	assert_int_equal(p.right + p.again, lanes * rounds);
	assert_true(p.right > p.again);
	assert_true(c->state->evictions > 0 && c->state->failures > 0);
	cache_end(c);
}

static void pages_are_what_was_asked_for(void **state)
{
	(void)state;
	run(page_kernel, 12, false, 8, 1, RIG_COUNT(400, 40));
	run(page_kernel, 30, false, 32, 32, RIG_COUNT(100, 20));
	run(page_kernel, 12, false, 16, 4, RIG_COUNT(200, 20));
}

static void elements_are_what_was_asked_for(void **state)
{
	(void)state;
	run(element_kernel, 2, false, 8, 1, RIG_COUNT(200, 20));
	run(element_kernel, 3, false, 64, 32, RIG_COUNT(60, 8));
}

static void copied_pages_are_what_was_asked_for(void **state)
{
	(void)state;
	run(page_kernel, 12, true, 8, 1, RIG_COUNT(400, 16));
	run(page_kernel, 30, true, 32, 32, RIG_COUNT(100, 8));
	run(element_kernel, 3, true, 64, 32, RIG_COUNT(60, 4));
}

/* No reader comes back: who waits gives up, later than any reader may take, and keeps nothing. */
static void waiting_is_bounded(void **state)
{
	struct cache *c = cache_new(2, false);
	struct pages p = { &c->r->dq, c->view, 1, 0, 0, 0 };
	uint64_t before;

	(void)state;
	c->r->dq.cmd_timeout = rig_ms(2);
	c->table[0] = GPUNVME_PAGE_READING;
	before = gnvd_clock();
	assert_int_equal(gpunvme_cpu_launch(1, 1, waiting_kernel, &p), 0);
	assert_int_equal(p.right, 1);
	assert_true(gnvd_clock() - before > 8 * rig_ms(2));
	assert_int_equal(c->table[0], GPUNVME_PAGE_READING);
	c->table[0] = 0;
	cache_end(c);
}

#if defined(GNVD_GLANCES)
/* Of the lanes of a wave some want an element, the others a range. */
static GPUNVME_DEVICE void mixed_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	uint32_t i, want, got;
	uint64_t seed = gpunvme_lane() + 1, at, to[16];
	int ret;

	for (i = 0; i < p->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		at = (seed >> 33) % (48 * 32) * 16;
		want = (gpunvme_lane() + i) % 2 ? 1 : 16;
		if (want == 1)
			ret = gpunvme_array_get(p->dq, p->cache, at, 8, to);
		else
			ret = gpunvme_array_get_range(p->dq, p->cache, at, want, 8, to);
		for (got = 0; got < want && !ret && to[got] == at / 512 + 1; got++)
			;
		if (ret != status_of(at / 64) || (!ret && got != want))
			__atomic_fetch_add(&p->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&p->right, 1, __ATOMIC_RELAXED);
	}
}

static void elements_and_ranges_in_one_wave(void **state)
{
	(void)state;
	run(mixed_kernel, 3, true, 64, 32, 60);
}

/* One element. */
static GPUNVME_DEVICE void glance_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	uint32_t half = 0;
	uint64_t value = 0;

	p->right = !gpunvme_array_get(p->dq, p->cache, p->rounds, 8, &value) && value == p->rounds / 512 + 1;
	p->right = p->right && !gpunvme_array_get(p->dq, p->cache, 2ull * p->rounds, 4, &half) && half == value;
}

static bool glance(struct cache *c, uint32_t element)
{
	struct pages p = { &c->r->dq, c->view, element, 0, 0, 0 };

	assert_int_equal(gpunvme_cpu_launch(1, 1, glance_kernel, &p), 0);
	return p.right;
}

/* Found without a reference, when there is none to be had; but not by who takes longer than the word's count is good for. */
static void elements_need_no_reference(void **state)
{
	struct cache *c = cache_new(1, true);
	uint32_t ticks = c->r->dq.ticks_per_ms;
	uint64_t before;

	(void)state;
	assert_true(glance(c, 7));
	assert_true(glance(c, 512 + 7));
	assert_int_equal(c->table[0] & GPUNVME_PAGE_STATE, GPUNVME_PAGE_EMPTY);
	assert_true(glance(c, 7));
	before = c->table[0];
	assert_int_equal(c->table[0] & GPUNVME_PAGE_CHANGES, 1ull << GPUNVME_PAGE_CHANGES_SHIFT); /* it went once */
	c->r->dq.cmd_timeout = rig_ms(2);
	c->r->dq.ticks_per_ms = ~0u; /* a lane may be kept from running */
	c->table[0] = (before | GPUNVME_PAGE_REFS) & ~GPUNVME_PAGE_USED;
	assert_true(glance(c, 7));
	assert_int_equal(c->table[0], before | GPUNVME_PAGE_REFS);
	c->r->dq.ticks_per_ms = 1;
	assert_false(glance(c, 7));
	c->r->dq.ticks_per_ms = ticks;
	c->table[0] = before;
	cache_end(c);
}
#endif

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_are_what_was_asked_for),
		cmocka_unit_test(elements_are_what_was_asked_for),
		cmocka_unit_test(copied_pages_are_what_was_asked_for),
		cmocka_unit_test(waiting_is_bounded),
#if defined(GNVD_GLANCES)
		cmocka_unit_test(elements_and_ranges_in_one_wave),
		cmocka_unit_test(elements_need_no_reference),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
