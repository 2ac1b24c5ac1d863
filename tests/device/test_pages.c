/* SPDX-License-Identifier: MIT */
/* Pages and elements of a cache: the words of the header itself, with a controller that fills frames as commands say. */
#include <gpunvme/device.h>

#include "cache.h"

struct pages {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dpages *cache;
	uint32_t rounds, wrong, right, again;
	const struct gpunvme_dvol *vol;
};

static struct cache *cache_new(uint32_t frames, bool copies)
{
	struct cache *c = cache_make(frames, copies);

	rig_start(c->r);
	return c;
}

/* What a thread got is what it asked for, from the first look to the last before it gives it back. */
static GPUNVME_DEVICE void page_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	uint64_t seed = gpunvme_thread_id() + 1, page;
	struct gpunvme_page got;
	uint32_t i, bad;
	int ret;
	const struct gpunvme_cached_queue src = { p->dq, p->cache };

	for (i = 0; i < p->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		page = (seed >> 33) % (i % 2 ? 48 : 6);
		bad = 0;
		ret = gpunvme_page_get(&src, page, &got);
		if (!ret) {
			const uint64_t *words = (const uint64_t *)gnvd_lane_memory(got.base);

			bad = words[0] != page + 1 || words[511] != page + 1;
			RIG_NAP_US(i % 3 * 20);
			bad |= words[i % 512] != page + 1 || words[256] != page + 1;
			bad |= gpunvme_page_put(&src, &got) != 0;
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
	uint64_t seed = gpunvme_thread_id() + 1, at, value = 0;
	uint32_t i;
	int ret;
	const struct gpunvme_cached_queue src = { p->dq, p->cache };

	for (i = 0; i < p->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		at = (seed >> 33) % (48 * 512);
		ret = gpunvme_array_load(&src, at, 8, &value);
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
	const struct gpunvme_cached_queue src = { p->dq, p->cache };

	p->right = gpunvme_page_get(&src, 0, &got) == -GPUNVME_ETIMEDOUT;
}

static void run_on(struct cache *c, const struct gpunvme_dvol *vol, void (*kernel)(void *arg), uint32_t lanes, uint32_t width,
		   uint32_t rounds)
{
	struct pages p = { &c->r->dq, c->view, rounds, 0, 0, 0, vol };

	assert_int_equal(gpunvme_cpu_launch(lanes, width, kernel, &p), 0);
	assert_int_equal(p.wrong, 0);
	assert_int_equal(p.right + p.again, lanes * rounds);
	assert_true(p.right > p.again);
	assert_true(c->state->evictions > 0 && c->state->failures > 0);
	cache_end(c);
}

static void run(void (*kernel)(void *arg), uint32_t frames, bool copies, uint32_t lanes, uint32_t width, uint32_t rounds)
{
	run_on(cache_new(frames, copies), NULL, kernel, lanes, width, rounds);
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

/* No reader comes back: a thread that waits gives up, later than any reader may take, and keeps nothing. */
static void waiting_is_bounded(void **state)
{
	struct cache *c = cache_new(2, false);
	struct pages p = { &c->r->dq, c->view, 1, 0, 0, 0, NULL };
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

/*
 * Not on the executor: for gfx942 clang makes of these kernels what it does not know yet (a function with spills, v_mad_legacy_u16).
 */
#if !defined(SLOW_LANES)
/* Memory that the threads only read. */
static void *cache_more(struct cache *c, const char *name, size_t bytes)
{
	uint32_t i = 0;

	while (c->more[i])
		i++;
	c->more[i] = rig_zeroed(bytes);
	RIG_MEMORY(name, c->more[i], bytes, RIG_READONLY);
	(void)name;
	return c->more[i];
}

/*
 * Over a file that ends 100 bytes after its page 46. Of three pages one has all blocks, one the first four of them and one none;
 * what page i has lies where page 47 - i of the namespace does.
 */
static void cache_over_file(struct cache *c)
{
	struct gpunvme_dextent *table = cache_more(c, "extents of the file", PAGES * sizeof(*table));
	struct gpunvme_dfile *file = cache_more(c, "descriptor of the file", sizeof(*file));
	uint32_t i, n = 0;

	for (i = 0; i < PAGES; i++)
		if (i % 3 < 2)
			table[n++] = (struct gpunvme_dextent){ 8ull * i, 8ull * (PAGES - 1 - i), i % 3 ? 4 : 8 };
	*file = (struct gpunvme_dfile){ .head = GPUNVME_HEAD(GPUNVME_KIND_FILE, *file), .nsid = 1,
					.lba_shift = 9, .extents = n, .table = (uintptr_t)table, .bytes = 46ull * PAGE + 100 };
	c->view->head.kind = GPUNVME_KIND_FILE_PAGES;
	c->view->lba_count = 46 * 8 + 1;
	c->view->source = (uintptr_t)file;
}

/* Pages of the file above: what they have, zeroes, and the end within a word of the last one. */
static GPUNVME_DEVICE void file_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	uint64_t seed = gpunvme_thread_id() + 1, page, from;
	struct gpunvme_page got;
	uint32_t i, bad;
	int ret;
	const struct gpunvme_cached_file src = { p->dq, p->cache };

	for (i = 0; i < p->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		page = (seed >> 33) % 47;
		from = page % 3 == 2 ? 0 : 48 - page;
		bad = 0;
		ret = gpunvme_page_get(&src, page, &got);
		if (!ret) {
			const uint64_t *words = (const uint64_t *)gnvd_lane_memory(got.base);

			bad = words[0] != from || words[12] != from || words[511] != (page % 3 ? 0 : from);
			bad |= page == 46 && words[13] != 0;
			bad |= gpunvme_page_put(&src, &got) != 0;
		}
		if (bad || (ret != (from ? status_of((from - 1) * 8) : 0) && ret != -GPUNVME_EAGAIN))
			__atomic_fetch_add(&p->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(ret == -GPUNVME_EAGAIN ? &p->again : &p->right, 1, __ATOMIC_RELAXED);
	}
}

static void run_file(uint32_t frames, bool copies, uint32_t lanes, uint32_t width, uint32_t rounds)
{
	struct cache *c = cache_new(frames, copies);

	cache_over_file(c);
	run_on(c, NULL, file_kernel, lanes, width, rounds);
}

static void files_are_what_was_asked_for(void **state)
{
	(void)state;
	run_file(12, false, 8, 1, RIG_COUNT(200, 20));
	run_file(34, true, 32, 32, RIG_COUNT(60, 8));
}

/* Over a volume of two controllers, which are one: page i is blocks 4i to 4i + 3 of each. */
static struct gpunvme_dvol *cache_over_volume(struct cache *c)
{
	struct gpunvme_dmember *member = cache_more(c, "members of the volume", 2 * sizeof(*member));
	struct gpunvme_dvol *vol = cache_more(c, "descriptor of the volume", sizeof(*vol));
	struct gpunvme_dq *dq = cache_more(c, "queues of the volume", 2 * sizeof(*dq));

	dq[0] = dq[1] = c->r->dq;
	member[0] = member[1] = (struct gpunvme_dmember){ c->view->buf, 0, 2 };
	*vol = (struct gpunvme_dvol){ .head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, *vol), .members = 2, .queues = 1,
				      .stripe_shift = 2, .lba_shift = 9, .dq = (uintptr_t)dq, .lba_count = PAGES * 8 };
	c->view->head.kind = GPUNVME_KIND_VOLUME_PAGES;
	c->view->members = 2;
	c->view->source = (uintptr_t)member;
	return vol;
}

/* Elements of the volume above, whose pages are read in two parts. */
static GPUNVME_DEVICE void volume_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	uint64_t seed = gpunvme_thread_id() + 1, at, value = 0;
	uint32_t i;
	int ret;
	const struct gpunvme_cached_volume src = { p->vol, p->cache };

	for (i = 0; i < p->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		at = (seed >> 33) % (48 * 512);
		ret = gpunvme_array_load(&src, at, 8, &value);
		if (ret != status_of(at / 1024 * 8) || (!ret && value != at / 1024 + 1))
			__atomic_fetch_add(&p->wrong, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(&p->right, 1, __ATOMIC_RELAXED);
	}
}

static void run_volume(uint32_t frames, bool copies, uint32_t lanes, uint32_t width, uint32_t rounds)
{
	struct cache *c = cache_new(frames, copies);

	run_on(c, cache_over_volume(c), volume_kernel, lanes, width, rounds);
}

static void volumes_are_what_was_asked_for(void **state)
{
	(void)state;
	run_volume(2, false, 8, 1, RIG_COUNT(200, 20));
	run_volume(3, true, 32, 32, RIG_COUNT(60, 6));
}

/* ---- Readers of many parts ---- */

#define SLOW_MS 100u /* a command takes longer, and the reader's queue has the patience for it */

static void fill_slowly(void *ctx, const struct gpunvme_sqe *cmd)
{
	RIG_NAP_US(SLOW_MS * 1250);
	fill(ctx, cmd);
}

/*
 * Page 0 of a file in eight parts: the first thread reads it, the second waits for that by a queue with a patience of so many ms.
 */
static GPUNVME_DEVICE void slow_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	struct gpunvme_dq impatient = *p->dq;
	struct gpunvme_page got;
	int ret;
	const struct gpunvme_cached_file src = { gpunvme_thread_id() ? &impatient : p->dq, p->cache };

	impatient.cmd_timeout = p->rounds * (uint64_t)p->dq->ticks_per_ms;
	while (gpunvme_thread_id() && !gnvd_page_state(gnvd_ld64(gnvd_page_at(p->cache, 0))))
		RIG_NAP_US(100);
	ret = gpunvme_page_get(&src, 0, &got);
	if (!ret)
		ret = gpunvme_page_put(&src, &got);
	__atomic_fetch_add(ret ? &p->wrong : &p->right, 1, __ATOMIC_RELAXED);
}

/* Nobody gives up a page whose reader still reads one part after the other. */
static void slow_parts_are_waited_for(void **state)
{
	struct cache *c = cache_new(2, false);
	struct pages p = { &c->r->dq, c->view, SLOW_MS, 0, 0, 0, NULL };
	struct gpunvme_dextent *table;
	uint64_t i;

	(void)state;
	cache_over_file(c);
	table = c->more[0];
	for (i = 0; i < 8; i++)
		table[i] = (struct gpunvme_dextent){ i, 2 * i, 1 };
	c->r->ctrl.seen = fill_slowly;
	c->r->dq.cmd_timeout = rig_ms(60000);
	assert_int_equal(gpunvme_cpu_launch(2, 1, slow_kernel, &p), 0);
	assert_int_equal(p.right, 2);
	assert_int_equal(__atomic_load_n(&c->r->ctrl.completed, __ATOMIC_ACQUIRE), 8);
	cache_end(c);
}

/* Pages 0 and 1 lie on both controllers, each in two parts, so a wave may read four, one after the other; and no reader comes back. */
static GPUNVME_DEVICE void waiting_for_volume_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	struct gpunvme_page got;
	const struct gpunvme_cached_volume src = { p->vol, p->cache };

	p->right = gpunvme_page_get(&src, 0, &got) == -GPUNVME_ETIMEDOUT;
}

static void waiting_for_parts_is_bounded(void **state)
{
	struct cache *c = cache_new(2, false);
	struct pages p = { &c->r->dq, c->view, 1, 0, 0, 0, NULL };
	uint64_t before;

	(void)state;
	c->r->dq.cmd_timeout = rig_ms(2);
	p.vol = cache_over_volume(c);
	c->table[0] = GPUNVME_PAGE_READING;
	before = gnvd_clock();
	assert_int_equal(gpunvme_cpu_launch(1, 1, waiting_for_volume_kernel, &p), 0);
	assert_int_equal(p.right, 1);
	assert_true(gnvd_clock() - before > 4 * 8 * rig_ms(2));
	assert_int_equal(c->table[0], GPUNVME_PAGE_READING);
	c->table[0] = 0;
	cache_end(c);
}
#endif

#if defined(GNVD_GLANCES)
/* Of the threads of a wave some want an element, the others a range. */
static GPUNVME_DEVICE void mixed_kernel(void *arg)
{
	struct pages *p = (struct pages *)arg;
	uint32_t i, want, got;
	uint64_t seed = gpunvme_thread_id() + 1, at, to[16];
	int ret;
	const struct gpunvme_cached_queue src = { p->dq, p->cache };

	for (i = 0; i < p->rounds; i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		at = (seed >> 33) % (48 * 32) * 16;
		want = (gpunvme_thread_id() + i) % 2 ? 1 : 16;
		if (want == 1)
			ret = gpunvme_array_load(&src, at, 8, to);
		else
			ret = gpunvme_array_load_range(&src, at, want, 8, to);
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
	const struct gpunvme_cached_queue src = { p->dq, p->cache };

	p->right = !gpunvme_array_load(&src, p->rounds, 8, &value) && value == p->rounds / 512 + 1;
	p->right = p->right && !gpunvme_array_load(&src, 2ull * p->rounds, 4, &half) && half == value;
}

static bool glance(struct cache *c, uint32_t element)
{
	struct pages p = { &c->r->dq, c->view, element, 0, 0, 0, NULL };

	assert_int_equal(gpunvme_cpu_launch(1, 1, glance_kernel, &p), 0);
	return p.right;
}

/*
 * Found without a reference, when there is none to be had; but not by a thread that takes longer than the word's count is good for.
 */
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
	c->r->dq.ticks_per_ms = ~0u; /* a thread may be kept from running */
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
#if !defined(SLOW_LANES)
		cmocka_unit_test(files_are_what_was_asked_for),
		cmocka_unit_test(volumes_are_what_was_asked_for),
		cmocka_unit_test(slow_parts_are_waited_for),
		cmocka_unit_test(waiting_for_parts_is_bounded),
#endif
#if defined(GNVD_GLANCES)
		cmocka_unit_test(elements_and_ranges_in_one_wave),
		cmocka_unit_test(elements_need_no_reference),
#endif
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
