/* SPDX-License-Identifier: MIT */
/* The page cache in plain memory, over a controller that fills frames as commands say: what tests of pages share. */
#ifndef TESTS_DEVICE_CACHE_H
#define TESTS_DEVICE_CACHE_H

#include "rig.h"

#define PAGE 4096u
#define PAGES 48u

struct cache {
	struct rig *r;
	struct gpunvme_dpages *view;
	struct gpunvme_cache_state *state;
	uint64_t *table, *frame, *bytes, *local; /* local: where threads read pages, which they copy; or NULL */
	void *more[3];  /* of a file or a volume */
};

/* Every sixth page cannot be read. */
static GPUNVME_DEVICE uint16_t status_of(uint64_t stamp)
{
	return stamp / 8 % 6 == 5 ? 0x4281 : 0;
}

/* The words of blocks say where they lie: of a namespace, which page it is. */
static void fill(void *ctx, const struct gpunvme_sqe *cmd)
{
	struct cache *c = ctx;
	uint64_t *to = c->bytes + (cmd->prp1 - RIG_IOVA) / 8, i;

	for (i = 0; i <= (cmd->cdw12 & 0xffff) * 64 + 63; i++)
		__atomic_store_n(&to[i], (cmd->cdw10 + i / 64) / 8 + 1, __ATOMIC_RELAXED);
}

static struct cache *cache_make(uint32_t frames, bool copies)
{
	struct cache *c = rig_zeroed(sizeof(*c));

	c->r = rig_new(5, 0);
	c->r->ctrl.opts.status = status_of;
	c->r->ctrl.seen = fill;
	c->r->ctrl.seen_ctx = c;
	c->view = rig_zeroed(sizeof(*c->view));
	c->state = rig_zeroed(sizeof(*c->state));
	c->table = rig_zeroed(8 * PAGES);
	c->frame = rig_zeroed(24 * frames); /* three for each, where pages may be coming */
	c->bytes = rig_zeroed(PAGE * frames);
	c->local = copies ? rig_zeroed(PAGE * frames) : NULL;
	*c->view = (struct gpunvme_dpages){
		.head = GPUNVME_HEAD(GPUNVME_KIND_PAGES, *c->view),
		.flags = GPUNVME_DPAGES_STATS, .nsid = 1, .frames = frames, .lba_shift = 9, .page_shift = 12,
		.state = (uintptr_t)c->state, .table = (uintptr_t)c->table, .frame = (uintptr_t)c->frame, .lba_count = PAGES * 8,
		.buf = c->r->dbuf, .local = (uintptr_t)c->local,
	};
	c->view->buf.base = (uintptr_t)c->bytes;
	c->view->buf.len = PAGE * frames;
	RIG_MEMORY("descriptor of the cache", c->view, sizeof(*c->view), RIG_READONLY);
	RIG_MEMORY("state of the cache", c->state, sizeof(*c->state), 0);
	RIG_MEMORY("words of pages", c->table, 8 * PAGES, 0);
	RIG_MEMORY("words of frames", c->frame, 24 * frames, 0);
	RIG_MEMORY("frames", c->bytes, PAGE * frames, RIG_WRITTEN);
	if (copies)
		RIG_MEMORY("frames of the lanes", c->local, PAGE * frames, 0);
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
	for (i = 0; i < 3 && c->more[i]; i++) {
		RIG_FORGET(c->more[i]);
		free(c->more[i]);
	}
	free(c);
}

#endif
