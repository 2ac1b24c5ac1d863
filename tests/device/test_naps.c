/* SPDX-License-Identifier: MIT */
/*
 * Pauses of a CPU thread that moves elements of many pages. It sleeps when it has waited long for one page, not because it has moved
 * many pages. Each page is refused a few times, as if many threads used it.
 */
#include <gpunvme/device/platform.h>

static void test_turn(uint32_t turn);

#define gnvd_pause(turn) test_turn(turn)

#include <gpunvme/device.h>

#include "cache.h"

#define FRAMES 16u
#define REFUSALS 5u
#define MANY ((GPUNVME_PAGE_REFS / 2 & GPUNVME_PAGE_REFS) + GPUNVME_PAGE_REF)

static struct {
	struct cache *c;
	uint32_t page, refusals, longest;
	uint64_t words[FRAMES * PAGE / 8];
} t;

static void test_turn(uint32_t turn)
{
	t.longest = turn > t.longest ? turn : t.longest;
	if (t.page >= FRAMES || ++t.refusals % REFUSALS)
		return;
	__atomic_fetch_sub(&t.c->table[t.page++], MANY, __ATOMIC_RELAXED);
}

/* The page that frame i has is page i. */
static void pages_new(uint16_t kind, uint32_t flags)
{
	uint32_t i;

	memset(&t, 0, sizeof(t));
	t.c = cache_make(FRAMES, false);
	t.c->view->head.kind = (uint16_t)(GPUNVME_KIND_PAGES | kind);
	t.c->view->flags |= flags;
	for (i = 0; i < FRAMES; i++) {
		t.c->table[i] = (uint64_t)i << GPUNVME_PAGE_FRAME_SHIFT | GPUNVME_PAGE_VALID | MANY;
		t.c->frame[i] = i + 1;
	}
	rig_start(t.c->r);
}

static void check_pauses(int ret)
{
	assert_int_equal(ret, 0);
	assert_int_equal(t.page, FRAMES);
	assert_int_equal(t.refusals, FRAMES * REFUSALS);
	assert_in_range(t.longest, 1, REFUSALS);
	cache_end(t.c);
}

static void elements_that_are_read(void **state)
{
	struct gpunvme_cached_queue src;

	(void)state;
	pages_new(0, 0);
	src = (struct gpunvme_cached_queue){ &t.c->r->dq, t.c->view };
	check_pauses(gpunvme_array_load_range(&src, 0, sizeof(t.words) / 8, 8, t.words));
}

static void elements_that_are_prefetched(void **state)
{
	struct gpunvme_prefetch_queue src;

	(void)state;
	pages_new(GPUNVME_KIND_PREFETCH, 0);
	src = (struct gpunvme_prefetch_queue){ &t.c->r->dq, t.c->view };
	check_pauses(gpunvme_array_load_range(&src, 0, sizeof(t.words) / 8, 8, t.words));
}

static void elements_that_are_changed(void **state)
{
	struct gpunvme_writable_queue src;

	(void)state;
	pages_new(0, GPUNVME_DPAGES_WRITABLE);
	src = (struct gpunvme_writable_queue){ &t.c->r->dq, t.c->view };
	check_pauses(gpunvme_array_load_range(&src, 0, sizeof(t.words) / 8, 8, t.words));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements_that_are_read),
		cmocka_unit_test(elements_that_are_prefetched),
		cmocka_unit_test(elements_that_are_changed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
