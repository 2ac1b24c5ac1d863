/* SPDX-License-Identifier: MIT */
/* Prefetch: pages that come while nobody waits, with a controller that fills frames as commands say. */
#include <gpunvme/device.h>

#include <sched.h>

#include "cache.h"

struct prefetch {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
	uint32_t rounds, pages;        /* pages: 0 .. pages - 1 */
	uint32_t wrong, right, again;  /* atomic */
	int ret[PAGES];
};

/* window: as in struct mini_opts */
static struct cache *prefetch_new(uint32_t frames, bool copies, uint32_t window)
{
	struct cache *c = cache_make(frames, copies);

	c->view->head.kind = GPUNVME_KIND_PAGES | GPUNVME_KIND_PREFETCH;
	c->r->ctrl.opts.window = window;
	rig_start(c->r);
	return c;
}

/* Identifiers that are neither free nor a page's that is coming are nobody's. */
static void check_coming(struct cache *c)
{
	uint32_t i, coming = 0;

	for (i = 0; i < PAGES; i++) {
		assert_int_equal(c->table[i] & GPUNVME_PAGE_REFS, 0);
		assert_int_not_equal(c->table[i] & GPUNVME_PAGE_STATE, GPUNVME_PAGE_READING);
		coming += (c->table[i] & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_COMING;
	}
	assert_int_equal(c->state->coming, coming);
	assert_int_equal(c->r->state->prefetched, coming);
	assert_int_equal(rig_free_cids(c->r), c->r->dq.cids - coming);
}

/* The controller of the executor runs while its test yields. */
static void wait_completed(struct cache *c, uint64_t n)
{
	while (__atomic_load_n(&c->r->ctrl.completed, __ATOMIC_ACQUIRE) < n) {
		sched_yield();
		RIG_NAP_US(100);
	}
}

static void launch(struct cache *c, struct prefetch *a, void (*kernel)(void *arg), uint32_t lanes, uint32_t width)
{
	a->dq = &c->r->dq;
	a->cache = c->view;
	assert_int_equal(gpunvme_cpu_launch(lanes, width, kernel, a), 0);
	assert_int_equal(a->wrong, 0);
}

/* Ask for every page, in order. */
static GPUNVME_DEVICE void get_kernel(void *arg)
{
	struct prefetch *a = (struct prefetch *)arg;
	struct gpunvme_page got;
	uint32_t page;
	const struct gpunvme_prefetch_queue src = { a->dq, a->cache };

	for (page = 0; page < a->pages; page++) {
		a->ret[page] = gpunvme_page_get(&src, page, &got);
		if (a->ret[page])
			continue;
		a->wrong += ((const uint64_t *)gnvd_lane_memory(got.base))[511] != page + 1;
		a->wrong += gpunvme_page_put(&src, &got) != 0;
	}
}

static GPUNVME_DEVICE void prefetch_kernel(void *arg)
{
	struct prefetch *a = (struct prefetch *)arg;
	uint32_t page;
	const struct gpunvme_prefetch_queue src = { a->dq, a->cache };

	for (page = 0; page < a->pages; page++)
		a->ret[page] = gpunvme_prefetch(&src, page);
}

/* Pages that are there, or come, and for which nobody has asked. */
static uint32_t unasked(const struct cache *c)
{
	uint32_t i, n = 0;

	for (i = 0; i < c->view->frames; i++)
		n += c->frame[c->view->frames + 2 * i] != 0;
	return n;
}

/* Hold two other pages at a time. */
static GPUNVME_DEVICE void last_kernel(void *arg)
{
	struct prefetch *a = (struct prefetch *)arg;
	struct gpunvme_page got[2];
	uint32_t i;
	const struct gpunvme_prefetch_queue src = { a->dq, a->cache };

	for (i = 0; i < 2; i++)
		a->ret[i] = gpunvme_page_get(&src, 46 - 2 * i, &got[i]);
	for (i = 0; i < 2; i++)
		a->wrong += !a->ret[i] && gpunvme_page_put(&src, &got[i]) != 0;
}

/* What was prefetched and nobody has asked for is asked for, so that nothing is left. */
static void prefetch_end(struct cache *c)
{
	struct prefetch a = { .pages = PAGES };
	const struct gpunvme_cache_state *s = c->state;
	uint32_t i, valid = 0;

	assert_int_equal(s->prefetches, s->used + s->wasted + unasked(c));

	check_coming(c);
	launch(c, &a, get_kernel, 1, 1);
	check_coming(c);
	for (i = 0; i < PAGES; i++) {
		assert_int_equal(a.ret[i], status_of(i * 8));
		valid += (c->table[i] & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_VALID;
	}
	assert_int_equal(s->coming, 0);
	assert_int_equal(s->prefetches, s->used + s->wasted + unasked(c));
	assert_int_equal(valid, s->misses + s->prefetches - s->failures - s->evictions);
	cache_end(c);
}

/* ---- Many threads ---- */

/* Some pages that may be wanted, and one that is, which is what was asked for from the first look to the last. */
static GPUNVME_DEVICE void mixed_kernel(void *arg)
{
	struct prefetch *a = (struct prefetch *)arg;
	uint64_t seed = gpunvme_thread_id() + 1, page, ahead;
	struct gpunvme_page got;
	uint32_t i, bad;
	int ret;
	const struct gpunvme_prefetch_queue src = { a->dq, a->cache };

	for (i = 0; i < a->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		page = (seed >> 33) % (i % 2 ? 48 : 6);
		ahead = (seed >> 45) % 48;
		ret = gpunvme_prefetch(&src, i % 3 ? ahead : page);
		bad = ret && ret != -GPUNVME_EAGAIN;
		ret = gpunvme_page_get(&src, page, &got);
		if (!ret) {
			const uint64_t *words = (const uint64_t *)gnvd_lane_memory(got.base);

			bad |= words[0] != page + 1 || words[511] != page + 1;
			RIG_NAP_US(i % 3 * 20);
			bad |= words[i % 512] != page + 1 || words[256] != page + 1;
			bad |= gpunvme_page_put(&src, &got) != 0;
		}
		if (ret == -GPUNVME_EAGAIN)
			RIG_NAP_US(50);
		if (bad || (ret != status_of(page * 8) && ret != -GPUNVME_EAGAIN))
			__atomic_fetch_add(&a->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(ret == -GPUNVME_EAGAIN ? &a->again : &a->right, 1, __ATOMIC_RELAXED);
	}
}

/* The element that is wanted now, and that of the round after. */
static GPUNVME_DEVICE void stream_kernel(void *arg)
{
	struct prefetch *a = (struct prefetch *)arg;
	uint64_t seed = gpunvme_thread_id() + 1, at = 0, next = 0, value = 0;
	uint32_t i;
	int ret;
	const struct gpunvme_prefetch_queue src = { a->dq, a->cache };

	for (i = 0; i < a->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		at = next;
		next = (seed >> 33) % (48 * 512);
		ret = gpunvme_prefetch(&src, next / 512);
		if (ret && ret != -GPUNVME_EAGAIN)
			__atomic_fetch_add(&a->wrong, 1, __ATOMIC_RELAXED);
		ret = gpunvme_array_load(&src, at, 8, &value);
		if (ret != status_of(at / 64) || (!ret && value != at / 512 + 1))
			__atomic_fetch_add(&a->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&a->right, 1, __ATOMIC_RELAXED);
	}
}

static void run(void (*kernel)(void *arg), uint32_t frames, bool copies, uint32_t lanes, uint32_t width, uint32_t rounds)
{
	struct cache *c = prefetch_new(frames, copies, 4);
	struct prefetch a = { .rounds = rounds };

	launch(c, &a, kernel, lanes, width);
	assert_int_equal(a.right + a.again, lanes * rounds);
	assert_true(a.right > a.again);
	assert_true(c->state->prefetches > 0 && c->state->evictions > 0 && c->state->failures > 0);
	prefetch_end(c);
}

static void pages_are_what_was_asked_for(void **state)
{
	(void)state;
	run(mixed_kernel, 12, false, 8, 1, RIG_COUNT(400, 40));
	run(mixed_kernel, 34, false, 32, 32, RIG_COUNT(100, 20));
	run(mixed_kernel, 12, false, 16, 4, RIG_COUNT(200, 20));
}

static void copied_pages_are_what_was_asked_for(void **state)
{
	(void)state;
	run(mixed_kernel, 12, true, 8, 1, RIG_COUNT(400, 16));
	run(mixed_kernel, 34, true, 32, 32, RIG_COUNT(100, 8));
	run(stream_kernel, 3, true, 64, 32, RIG_COUNT(60, 4));
}

static void two_frames_serve_many_lanes(void **state)
{
	(void)state;
	run(stream_kernel, 2, false, 8, 1, RIG_COUNT(200, 20));
	run(stream_kernel, 3, false, 64, 32, RIG_COUNT(60, 8));
	run(stream_kernel, 1, false, 8, 4, RIG_COUNT(100, 8));
}

/* ---- Threads that leave ---- */

static void who_comes_later_finds_it(void **state)
{
	struct cache *c = prefetch_new(20, false, 0);
	struct prefetch a = { .pages = 20 };
	uint32_t i;

	(void)state;
	launch(c, &a, prefetch_kernel, 1, 1);
	for (i = 0; i < 20; i++)
		assert_int_equal(a.ret[i], 0);
	check_coming(c);
	assert_int_equal(c->state->coming, 20);
	launch(c, &a, prefetch_kernel, 1, 1); /* they come already */
	assert_int_equal(c->state->prefetches, 20);
	launch(c, &a, get_kernel, 1, 1);
	for (i = 0; i < 20; i++)
		assert_int_equal(a.ret[i], status_of(i * 8)); /* failures reach the thread that asks */
	assert_int_equal(c->state->misses, 0);
	assert_int_equal(c->state->waits, 20);
	assert_int_equal(c->state->failures, 3);
	assert_int_equal(c->state->coming, 0);
	assert_int_equal(c->state->used, 20);
	prefetch_end(c);
}

/* The clock takes pages that have come and that nobody wants, though no thread has seen their completions. */
static void what_nobody_wants_goes(void **state)
{
	struct cache *c = prefetch_new(2, false, 0);
	struct prefetch a = { .pages = 2 };
	int again;

	(void)state;
	launch(c, &a, prefetch_kernel, 1, 1);
	assert_int_equal(c->state->coming, 2);
	wait_completed(c, 2);
	a.pages = 48;
	launch(c, &a, get_kernel, 1, 1);
	for (again = 2; again < 48; again++)
		assert_int_equal(a.ret[again], status_of(again * 8));
	assert_int_equal(c->state->used, 2);
	a.pages = 2;
	launch(c, &a, prefetch_kernel, 1, 1);
	wait_completed(c, c->state->misses + 4);
	launch(c, &a, last_kernel, 1, 1);
	assert_int_equal(a.ret[0], 0);
	assert_int_equal(a.ret[1], 0);
	assert_int_equal(c->state->coming, 0);
	assert_int_equal(c->state->wasted, 2);
	prefetch_end(c);
}

/* Half of the identifiers are for prefetches; a thread that finds none ends some that have come, and loses none of these. */
static void they_hold_half_of_the_identifiers(void **state)
{
	struct cache *c = prefetch_new(40, true, 0);
	struct prefetch a = { .pages = 40 };
	uint32_t half = c->r->dq.cids / 2, i;

	(void)state;
	mini_freeze(&c->r->ctrl, true);
	launch(c, &a, prefetch_kernel, 1, 1);
	for (i = 0; i < 40; i++)
		assert_int_equal(a.ret[i], i < half ? 0 : -GPUNVME_EAGAIN);
	check_coming(c);
	mini_freeze(&c->r->ctrl, false);
	wait_completed(c, half);
	launch(c, &a, prefetch_kernel, 1, 1);
	for (i = 0; i < 40; i++)
		assert_int_equal(a.ret[i], 0);
	assert_int_equal(c->state->evictions, 0);
	assert_true(c->state->coming <= half);
	launch(c, &a, get_kernel, 1, 1);
	prefetch_end(c);
}

/* What is coming is there then, for threads that ask later, and its identifiers are free. */
static GPUNVME_DEVICE void finish_kernel(void *arg)
{
	struct prefetch *a = (struct prefetch *)arg;
	const struct gpunvme_prefetch_queue src = { a->dq, a->cache };

	a->ret[gpunvme_thread_id()] = gpunvme_prefetch_finish(&src);
}

static void finished(uint32_t lanes, uint32_t width, bool copies)
{
	struct cache *c = prefetch_new(20, copies, 4);
	struct prefetch a = { .pages = 16 };
	uint32_t i;

	launch(c, &a, prefetch_kernel, 1, 1);
	assert_int_equal(c->state->coming, 16);
	launch(c, &a, finish_kernel, lanes, width);
	for (i = 0; i < lanes; i++)
		assert_int_equal(a.ret[i], 0);
	check_coming(c);
	assert_int_equal(c->state->coming, 0);
	assert_int_equal(c->state->failures, 2);
	assert_int_equal(c->state->wasted, 2);
	assert_int_equal(c->state->used, 0);
	launch(c, &a, get_kernel, 1, 1);
	assert_int_equal(c->state->hits, 14);
	assert_int_equal(c->state->used, 14);
	assert_int_equal(c->state->misses, 2); /* a failure that was told to nobody is tried again */
	prefetch_end(c);
}

static void finishing_waits_for_all(void **state)
{
	(void)state;
	finished(1, 1, false);
	finished(8, 4, true);
	finished(32, 32, false);
}

/* ---- Ends ---- */

/* As the host does when the device has no command. */
static void give_back(struct cache *c)
{
	uint32_t i;

	for (i = 0; i < c->view->frames; i++)
		if (c->frame[i] == GPUNVME_FRAME_LOST)
			c->frame[i] = 0;
}

/* Nobody but the host knows what the device does with the frame. */
static void stop_is_answered(void **state)
{
	struct cache *c = prefetch_new(4, false, 0);
	struct prefetch a = { .pages = 2 };

	(void)state;
	mini_freeze(&c->r->ctrl, true);
	launch(c, &a, prefetch_kernel, 1, 1);
	rig_stop(c->r, 1);
	a.pages = 1;
	launch(c, &a, get_kernel, 1, 1);
	assert_int_equal(a.ret[0], -GPUNVME_ECANCELED);
	launch(c, &a, finish_kernel, 1, 1);
	assert_int_equal(a.ret[0], -GPUNVME_ECANCELED);
	assert_int_equal(c->state->lost, 2);
	assert_int_equal(c->state->coming, 0);
	assert_int_equal(c->r->state->prefetched, 0);
	rig_stop(c->r, 0);
	mini_freeze(&c->r->ctrl, false);
	wait_completed(c, 2);
	launch(c, &a, get_kernel, 1, 1); /* takes the completions in */
	give_back(c);
	prefetch_end(c);
}

/* By the queue that was made later the page is read anew; a thread with the view of before gets an error, and takes nothing. */
static void a_later_queue_reads_anew(void **state)
{
	struct cache *c = prefetch_new(4, true, 0);
	struct prefetch a = { .pages = 3 };
	const uint32_t tag = c->r->dq.tag;
	struct gpunvme_req req[3];
	uint32_t i;

	(void)state;
	c->r->dq.tag = tag + (1u << 16);
	launch(c, &a, prefetch_kernel, 1, 1);
	for (i = 0; i < 3; i++)
		req[i] = (struct gpunvme_req){ c->frame[4 + 2 * i + 1], 0, tag + (1u << 16), (uint32_t)c->frame[4 + 2 * i] };
	c->r->dq.tag = tag;
	launch(c, &a, get_kernel, 1, 1);
	assert_int_equal(a.ret[0], -GPUNVME_EXDEV);
	c->r->state->poison = GPUNVME_ESHUTDOWN;
	launch(c, &a, get_kernel, 1, 1);
	assert_int_equal(a.ret[0], -GPUNVME_ESHUTDOWN);
	c->r->state->poison = 0;
	assert_int_equal(c->state->coming, 3);
	c->r->dq.tag = tag + (2u << 16);
	a.pages = 1;
	launch(c, &a, get_kernel, 1, 1);
	assert_int_equal(a.ret[0], 0);
	assert_int_equal(c->state->lost, 1);
	assert_int_equal(c->state->coming, 2);
	assert_int_equal(c->state->misses, 1);
	assert_int_equal(c->state->wasted, 1);
	assert_int_equal(c->r->state->prefetched, 3); /* the other queue's */
	a.pages = 5; /* the clock takes a frame from page 1, which never comes */
	launch(c, &a, get_kernel, 1, 1);
	assert_int_equal(a.ret[4], 0);
	assert_int_equal(c->state->coming, 0);
	assert_int_equal(c->state->lost, 3);
	c->r->dq.tag = tag + (1u << 16);
	for (i = 0; i < 3; i++)
		assert_int_equal(gpunvme_wait(&c->r->dq, &req[i], 0), 0);
	c->r->state->prefetched = 0;
	give_back(c);
	prefetch_end(c);
}

/* What each call says to what it is not for. */
static GPUNVME_DEVICE void refusal_kernel(void *arg)
{
	struct prefetch *a = (struct prefetch *)arg;
	struct gpunvme_page got;
	uint64_t value = 0;
	const struct gpunvme_prefetch_queue prefetch = { a->dq, a->cache };
	const struct gpunvme_cached_queue cached = { a->dq, a->cache };

	a->ret[0] = gpunvme_prefetch(&prefetch, PAGES);
	a->ret[1] = gpunvme_page_get(&prefetch, PAGES, &got);
	a->ret[2] = gpunvme_array_load(&prefetch, PAGES * 512ull, 8, &value);
	a->ret[3] = gpunvme_page_get(&cached, 0, &got);
	if (!a->ret[3])
		a->wrong += gpunvme_page_put(&cached, &got) != 0;
	a->ret[4] = gpunvme_prefetch(&prefetch, 0);
}

static void bad_calls_are_refused(void **state)
{
	struct cache *c = prefetch_new(4, false, 0);
	struct prefetch a = { .pages = 0 };
	uint32_t i;

	(void)state;
	c->r->dq.max_blocks = 7;
	launch(c, &a, refusal_kernel, 1, 1);
	for (i = 0; i < 3; i++)
		assert_int_equal(a.ret[i], -GPUNVME_ERANGE);
	assert_int_equal(a.ret[3], -GPUNVME_EINVAL);
	assert_int_equal(a.ret[4], -GPUNVME_EMSGSIZE);
	c->r->dq.max_blocks = 8;
	c->r->dq.nsid++;
	launch(c, &a, refusal_kernel, 1, 1);
	assert_int_equal(a.ret[4], -GPUNVME_EXDEV);
	c->r->dq.nsid--;
	c->view->head.kind = GPUNVME_KIND_PAGES;
	launch(c, &a, refusal_kernel, 1, 1);
	assert_int_equal(a.ret[0], -GPUNVME_EINVAL);
	assert_int_equal(a.ret[1], -GPUNVME_EINVAL);
	assert_int_equal(a.ret[2], -GPUNVME_EINVAL);
	assert_int_equal(a.ret[4], -GPUNVME_EINVAL);
	c->view->head.kind = GPUNVME_KIND_PAGES | GPUNVME_KIND_PREFETCH;
	c->r->dq.max_blocks = 2048;
	assert_int_equal(c->state->prefetches, 0);
	prefetch_end(c);
}


/* As a handle's, the time-out begins when a thread begins to wait; then the queue is poisoned, and the frame lost. */
static void silence_is_answered(void **state)
{
	struct cache *c = prefetch_new(4, false, 0);
	struct prefetch a = { .pages = 1 };
	uint64_t before;

	(void)state;
	c->r->dq.cmd_timeout = rig_ms(20);
	mini_freeze(&c->r->ctrl, true);
	launch(c, &a, prefetch_kernel, 1, 1);
	assert_int_equal(a.ret[0], 0);
	RIG_NAP_US(40000);
	before = gnvd_clock();
	launch(c, &a, get_kernel, 1, 1);
	assert_int_equal(a.ret[0], -GPUNVME_ETIMEDOUT);
	assert_true(gnvd_clock() - before >= rig_ms(20));
	assert_int_equal(c->state->lost, 1);
	assert_int_equal(c->state->coming, 0);
	a.pages = 3;
	launch(c, &a, prefetch_kernel, 1, 1);
	assert_int_equal(a.ret[2], -GPUNVME_ESHUTDOWN);
	launch(c, &a, get_kernel, 1, 1);
	assert_int_equal(a.ret[2], -GPUNVME_ESHUTDOWN);
	mini_freeze(&c->r->ctrl, false);
	wait_completed(c, 1);
	launch(c, &a, get_kernel, 1, 1); /* takes the completion in */
	c->r->state->poison = 0;
	c->r->dq.cmd_timeout = rig_ms(60000); /* the rest is not about time */
	give_back(c);
	prefetch_end(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_are_what_was_asked_for),
		cmocka_unit_test(copied_pages_are_what_was_asked_for),
		cmocka_unit_test(two_frames_serve_many_lanes),
		cmocka_unit_test(who_comes_later_finds_it),
		cmocka_unit_test(what_nobody_wants_goes),
		cmocka_unit_test(they_hold_half_of_the_identifiers),
		cmocka_unit_test(finishing_waits_for_all),
		cmocka_unit_test(stop_is_answered),
		cmocka_unit_test(a_later_queue_reads_anew),
		cmocka_unit_test(silence_is_answered),
		cmocka_unit_test(bad_calls_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
