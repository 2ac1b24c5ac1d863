/* SPDX-License-Identifier: MIT */
/* Ranges, flags and sources that make no sense: each call returns one error, and begins nothing. */
#include "rig.h"

#define IS(want, ...)                                                                                                              \
	do {                                                                                                                       \
		int got = __VA_ARGS__;                                                                                             \
                                                                                                                                   \
		if (got != (want))                                                                                                 \
			fail_msg("%s: %d, not %d (range %u)", #__VA_ARGS__, got, want, at);                                        \
	} while (0)

#define BLOCKS 1000ull
#define MOST (1ull << 55) /* blocks that 2^64 bytes have */
#define LONG (1ull << 32)

static struct rig *r;
static struct gpunvme_dq dq;
static struct gpunvme_dbuf dbuf;
static struct gpunvme_dvol vol = {
	.head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, vol), .flags = GPUNVME_DQ_WRITE, .members = 1, .queues = 1, .lba_shift = 9,
	.dq = (uintptr_t)&dq,
};
static struct gpunvme_dvbuf dvbuf = { .len = RIG_BUFFER, .member = (uintptr_t)&dbuf };
static struct gpunvme_dextent extent = { 0, 0, BLOCKS };
static struct gpunvme_dfile file = {
	.head = GPUNVME_HEAD(GPUNVME_KIND_FILE, file), .flags = GPUNVME_DQ_WRITE, .nsid = 1, .lba_shift = 9, .extents = 1,
	.table = (uintptr_t)&extent, .bytes = BLOCKS * 512,
};
static struct gpunvme_cursor cur = { &dq, &file, 0, 0, 0, 0 };
static struct gpunvme_req req;
static uint32_t at; /* the range that is looked at */

static void begin(uint64_t blocks)
{
	r = rig_new(4, 0);
	dq = r->dq;
	dq.deallocate = 8;
	dq.device = 1;
	dq.lba_count = vol.lba_count = blocks;
	dbuf = r->dbuf;
	file.device = 1;
	rig_start(r);
}

static void end(void)
{
	assert_int_equal(r->state->resv, 0);
	rig_end(r, true);
}

/* ---- Ranges ---- */

struct range {
	uint64_t pos, len;
	int ret;
};

static const struct range within_few[] = {
	{ 0, 0, -GPUNVME_EINVAL },
	{ 1, 512, -GPUNVME_EINVAL },
	{ 0, 511, -GPUNVME_EINVAL },
	{ 512, 513, -GPUNVME_EINVAL },
	{ ~0ull, 512, -GPUNVME_EINVAL },
	{ 999 * 512, 2 * 512, -GPUNVME_ERANGE },
	{ 1000 * 512, 512, -GPUNVME_ERANGE },
	{ 0, LONG + 512, -GPUNVME_ERANGE }, /* 512 in 32 bits */
	{ LONG, 512, -GPUNVME_ERANGE },
	{ ~0ull << 9, 512, -GPUNVME_ERANGE }, /* their sum is 0, 512, 0, 0 */
	{ ~0ull << 9, 1024, -GPUNVME_ERANGE },
	{ 512, ~0ull << 9, -GPUNVME_ERANGE },
	{ 1ull << 63, 1ull << 63, -GPUNVME_ERANGE },
};

/* Of a window that ends where 64 bits end. */
static const struct range within_all[] = {
	{ 0, LONG << 9, -GPUNVME_EMSGSIZE },
	{ 0, (LONG + 1) << 9, -GPUNVME_EMSGSIZE },
	{ 512, ~0ull << 9, -GPUNVME_EMSGSIZE },
	{ ~0ull << 9, 1024, -GPUNVME_ERANGE },
	{ 1ull << 63, (1ull << 63) + 512, -GPUNVME_ERANGE },
};

static void refuse_queue(const struct range *g)
{
	IS(g->ret, gpunvme_read(&dq, &dbuf, 0, g->pos, g->len));
	IS(g->ret, gpunvme_write(&dq, &dbuf, 0, g->pos, g->len, 0));
	IS(g->ret, gpunvme_zero(&dq, g->pos, g->len));
	IS(g->ret, gpunvme_discard(&dq, &dbuf, 0, g->pos, g->len));
	IS(g->ret, gpunvme_wave_read(&dq, &dbuf, 0, g->pos, g->len));
	IS(g->ret, gpunvme_wave_write(&dq, &dbuf, 0, g->pos, g->len, 0));
	IS(g->ret, gpunvme_wave_read_one(&dq, &dbuf, 0, g->pos, g->len));
	IS(g->ret, gpunvme_wave_write_one(&dq, &dbuf, 0, g->pos, g->len, 0));
	IS(g->ret, gpunvme_submit_read(&dq, &dbuf, 0, g->pos, g->len, &req));
	IS(g->ret, gpunvme_submit_write(&dq, &dbuf, 0, g->pos, g->len, 0, &req));
	IS(g->ret, gpunvme_submit_zero(&dq, g->pos, g->len, &req));
	IS(g->ret, gpunvme_submit_discard(&dq, &dbuf, 0, g->pos, g->len, &req));
}

/* A workgroup moves any number of blocks, but not to a buffer that lacks the bytes. */
static void refuse_volume(const struct range *g)
{
	const int whole = g->ret == -GPUNVME_EMSGSIZE ? -GPUNVME_ERANGE : g->ret;

	IS(g->ret, gpunvme_read(&vol, &dvbuf, 0, g->pos, g->len));
	IS(g->ret, gpunvme_write(&vol, &dvbuf, 0, g->pos, g->len, 0));
	IS(g->ret, gpunvme_zero(&vol, g->pos, g->len));
	IS(g->ret, gpunvme_discard(&vol, &dvbuf, 0, g->pos, g->len));
	IS(g->ret, gpunvme_wave_read(&vol, &dvbuf, 0, g->pos, g->len));
	IS(g->ret, gpunvme_wave_write(&vol, &dvbuf, 0, g->pos, g->len, 0));
	IS(g->ret, gpunvme_wave_read_one(&vol, &dvbuf, 0, g->pos, g->len));
	IS(g->ret, gpunvme_wave_write_one(&vol, &dvbuf, 0, g->pos, g->len, 0));
	IS(whole, gpunvme_block_read(&vol, &dvbuf, 0, g->pos, g->len));
	IS(whole, gpunvme_block_write(&vol, &dvbuf, 0, g->pos, g->len, 0));
	IS(g->ret, gpunvme_submit_read(&vol, &dvbuf, 0, g->pos, g->len, &req));
	IS(g->ret, gpunvme_submit_write(&vol, &dvbuf, 0, g->pos, g->len, 0, &req));
	IS(g->ret, gpunvme_submit_zero(&vol, g->pos, g->len, &req));
	IS(g->ret, gpunvme_submit_discard(&vol, &dvbuf, 0, g->pos, g->len, &req));
}

/* Reads of a file begin and end at any byte, and end with it. What is written is whole blocks that the file has. */
static void refuse_file(const struct range *g)
{
	const int room = g->len > RIG_BUFFER ? -GPUNVME_ERANGE : g->ret;

	IS(room, gpunvme_write(&cur, &dbuf, 0, g->pos, g->len, 0));
	IS(room, gpunvme_wave_write(&cur, &dbuf, 0, g->pos, g->len, 0));
	IS(room, gpunvme_wave_write_one(&cur, &dbuf, 0, g->pos, g->len, 0));
	IS(room, gpunvme_block_write(&cur, &dbuf, 0, g->pos, g->len, 0));
	IS(room, gpunvme_submit_write(&cur, &dbuf, 0, g->pos, g->len, 0, &req));
	if (g->len <= RIG_BUFFER)
		return;
	IS(-GPUNVME_ERANGE, gpunvme_read(&cur, &dbuf, 0, g->pos, g->len));
	IS(-GPUNVME_ERANGE, gpunvme_wave_read(&cur, &dbuf, 0, g->pos, g->len));
	IS(-GPUNVME_ERANGE, gpunvme_wave_read_one(&cur, &dbuf, 0, g->pos, g->len));
	IS(-GPUNVME_ERANGE, gpunvme_block_read(&cur, &dbuf, 0, g->pos, g->len));
	IS(-GPUNVME_ERANGE, gpunvme_submit_read(&cur, &dbuf, 0, g->pos, g->len, &req));
}

static void ranges_do_not_wrap(void **state)
{
	(void)state;
	begin(BLOCKS);
	for (at = 0; at < sizeof(within_few) / sizeof(within_few[0]); at++) {
		refuse_queue(&within_few[at]);
		refuse_volume(&within_few[at]);
		refuse_file(&within_few[at]);
	}
	end();
	begin(MOST);
	dq.flags |= GPUNVME_DQ_WRITE_ZEROES;
	for (at = 0; at < sizeof(within_all) / sizeof(within_all[0]); at++) {
		refuse_queue(&within_all[at]);
		refuse_volume(&within_all[at]);
	}
	end();
}

/* ---- Flags ---- */

static void unknown_flags_are_refused(void **state)
{
	static const uint32_t unknown[] = { 1, GPUNVME_FUA | 2, ~0u, ~GPUNVME_FUA };

	(void)state;
	begin(BLOCKS);
	for (at = 0; at < sizeof(unknown) / sizeof(unknown[0]); at++) {
		const uint32_t flags = unknown[at];

		IS(-GPUNVME_EINVAL, gpunvme_write(&dq, &dbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_wave_write(&dq, &dbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_wave_write_one(&dq, &dbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_submit_write(&dq, &dbuf, 0, 0, 512, flags, &req));
		IS(-GPUNVME_EINVAL, gpunvme_write(&vol, &dvbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_wave_write(&vol, &dvbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_wave_write_one(&vol, &dvbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_block_write(&vol, &dvbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_submit_write(&vol, &dvbuf, 0, 0, 512, flags, &req));
		IS(-GPUNVME_EINVAL, gpunvme_write(&cur, &dbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_wave_write(&cur, &dbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_wave_write_one(&cur, &dbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_block_write(&cur, &dbuf, 0, 0, 512, flags));
		IS(-GPUNVME_EINVAL, gpunvme_submit_write(&cur, &dbuf, 0, 0, 512, flags, &req));
	}
	end();
}

/* ---- Sources ---- */

/* A block that is read in part would go through bytes that are read: nothing is read. */
static void a_bounce_block_inside_the_bytes_is_refused(void **state)
{
	static const struct {
		uint64_t offset, pos, len, bounce;
		int ret;
	} reads[] = {
		{ 0, 3, 1000, 0, -GPUNVME_EINVAL }, /* as with a cursor without one */
		{ 0, 0, 1000, 512, -GPUNVME_EINVAL },
		{ 2, 0, 1024, 1024, -GPUNVME_EINVAL }, /* unaligned memory */
		{ 512, 512, 700, 1000, -GPUNVME_EINVAL }, /* the last bytes */
		{ 512, 512, 700, 1, -GPUNVME_EINVAL }, /* the first ones */
		{ 0, BLOCKS * 512, 100, 0, 0 }, /* the end of the file */
	};

	(void)state;
	begin(BLOCKS);
	for (at = 0; at < sizeof(reads) / sizeof(reads[0]); at++) {
		cur.bounce = reads[at].bounce;
		IS(reads[at].ret, gpunvme_read(&cur, &dbuf, reads[at].offset, reads[at].pos, reads[at].len));
		IS(reads[at].ret, gpunvme_wave_read(&cur, &dbuf, reads[at].offset, reads[at].pos, reads[at].len));
		IS(reads[at].ret, gpunvme_wave_read_one(&cur, &dbuf, reads[at].offset, reads[at].pos, reads[at].len));
		IS(reads[at].ret, gpunvme_block_read(&cur, &dbuf, reads[at].offset, reads[at].pos, reads[at].len));
	}
	cur.bounce = 0;
	end();
}

static void files_of_another_device_are_refused(void **state)
{
	(void)state;
	begin(BLOCKS);
	at = 0;
	file.device = 2;
	IS(-GPUNVME_EXDEV, gpunvme_read(&cur, &dbuf, 0, 0, 512));
	IS(-GPUNVME_EXDEV, gpunvme_write(&cur, &dbuf, 0, 0, 512, 0));
	IS(-GPUNVME_EXDEV, gpunvme_wave_read(&cur, &dbuf, 0, 0, 512));
	IS(-GPUNVME_EXDEV, gpunvme_wave_write(&cur, &dbuf, 0, 0, 512, 0));
	IS(-GPUNVME_EXDEV, gpunvme_wave_read_one(&cur, &dbuf, 0, 0, 512));
	IS(-GPUNVME_EXDEV, gpunvme_wave_write_one(&cur, &dbuf, 0, 0, 512, 0));
	IS(-GPUNVME_EXDEV, gpunvme_block_read(&cur, &dbuf, 0, 0, 512));
	IS(-GPUNVME_EXDEV, gpunvme_block_write(&cur, &dbuf, 0, 0, 512, 0));
	IS(-GPUNVME_EXDEV, gpunvme_submit_read(&cur, &dbuf, 0, 0, 512, &req));
	IS(-GPUNVME_EXDEV, gpunvme_submit_write(&cur, &dbuf, 0, 0, 512, 0, &req));
	end();
}

static struct gpunvme_cache_state state_of_pages;
static struct gpunvme_dmember member;
static uint64_t table[1], frame[3], bytes[512];
static struct gpunvme_dpages pages;
static struct gpunvme_page page;
static uint64_t value;
static const struct gpunvme_cached_queue cached_queue = { &dq, &pages };
static const struct gpunvme_cached_file cached_file = { &dq, &pages };
static const struct gpunvme_cached_volume cached_volume = { &vol, &pages };
static const struct gpunvme_prefetch_queue prefetch_queue = { &dq, &pages };
static const struct gpunvme_prefetch_file prefetch_file = { &dq, &pages };
static const struct gpunvme_prefetch_volume prefetch_volume = { &vol, &pages };
static const struct gpunvme_writable_queue writable_queue = { &dq, &pages };
static const struct gpunvme_writable_file writable_file = { &dq, &pages };
static const struct gpunvme_writable_volume writable_volume = { &vol, &pages };

static void make_pages(uint32_t kind, uint32_t flags)
{
	uint32_t of = kind & ~(uint32_t)GPUNVME_KIND_PREFETCH;

	memset(table, 0, sizeof(table));
	memset(frame, 0, sizeof(frame));
	pages = (struct gpunvme_dpages){
		.head = GPUNVME_HEAD((uint16_t)kind, pages), .flags = flags, .nsid = 1, .device = 1, .frames = 1, .lba_shift = 9,
		.page_shift = 12, .members = 1, .state = (uintptr_t)&state_of_pages, .table = (uintptr_t)table,
		.frame = (uintptr_t)frame, .lba_count = 8, .buf = { (uintptr_t)bytes, sizeof(bytes), RIG_IOVA, 0, 0 },
		.source = of == GPUNVME_KIND_FILE_PAGES ? (uintptr_t)&file : of == GPUNVME_KIND_VOLUME_PAGES ? (uintptr_t)&member : 0,
	};
	member.device = 1;
}

#define LOADS(want, src)                                                                                                           \
	do {                                                                                                                       \
		IS(want, gpunvme_page_get(src, 0, &page));                                                                         \
		IS(want, gpunvme_array_load(src, 0, 8, &value));                                                                   \
		IS(want, gpunvme_array_load_range(src, 0, 1, 8, &value));                                                          \
	} while (0)

#define STORES(want, src)                                                                                                          \
	do {                                                                                                                       \
		LOADS(want, src);                                                                                                  \
		page = (struct gpunvme_page){ (uintptr_t)bytes, (uintptr_t)table };                                                \
		IS(want, gpunvme_page_put(src, &page, 0, 8));                                                                      \
		IS(want, gpunvme_array_store(src, 0, 8, &value));                                                                  \
		IS(want, gpunvme_array_store_range(src, 0, 1, 8, &value));                                                         \
		IS(want, gpunvme_write_back(src, 0, 1));                                                                           \
	} while (0)

#define PREFETCHES(want, src)                                                                                                      \
	do {                                                                                                                       \
		LOADS(want, src);                                                                                                  \
		IS(want, gpunvme_prefetch(src, 0));                                                                                \
		IS(want, gpunvme_prefetch_finish(src));                                                                            \
	} while (0)

/* Each of three sources with a cache over each of the two others. */
static void caches_over_another_source_are_refused(void **state)
{
	static const uint32_t kind[] = { GPUNVME_KIND_PAGES, GPUNVME_KIND_FILE_PAGES, GPUNVME_KIND_VOLUME_PAGES };
	uint32_t i;

	(void)state;
	begin(BLOCKS);
	at = 0;
	for (i = 0; i < 3; i++) {
		make_pages(kind[i], GPUNVME_DPAGES_WRITABLE);
		if (i != 0) {
			LOADS(-GPUNVME_EINVAL, &cached_queue);
			STORES(-GPUNVME_EINVAL, &writable_queue);
		}
		if (i != 1) {
			LOADS(-GPUNVME_EINVAL, &cached_file);
			STORES(-GPUNVME_EINVAL, &writable_file);
		}
		if (i != 2) {
			LOADS(-GPUNVME_EINVAL, &cached_volume);
			STORES(-GPUNVME_EINVAL, &writable_volume);
		}
		make_pages(kind[i] | GPUNVME_KIND_PREFETCH, 0);
		if (i != 0)
			PREFETCHES(-GPUNVME_EINVAL, &prefetch_queue);
		if (i != 1)
			PREFETCHES(-GPUNVME_EINVAL, &prefetch_file);
		if (i != 2)
			PREFETCHES(-GPUNVME_EINVAL, &prefetch_volume);
	}
	end();
}

/* A cache without prefetch, without write-back, and with prefetch alone. */
#define MODES(of, pages_of)                                                                                                        \
	make_pages(pages_of, 0);                                                                                                   \
	PREFETCHES(-GPUNVME_EINVAL, &prefetch_##of);                                                                               \
	STORES(-GPUNVME_EROFS, &writable_##of);                                                                                    \
	make_pages((pages_of) | GPUNVME_KIND_PREFETCH, 0);                                                                            \
	LOADS(-GPUNVME_EINVAL, &cached_##of);                                                                                      \
	STORES(-GPUNVME_EINVAL, &writable_##of)

static void caches_keep_to_their_mode(void **state)
{
	(void)state;
	begin(BLOCKS);
	at = 0;
	MODES(queue, GPUNVME_KIND_PAGES);
	MODES(file, GPUNVME_KIND_FILE_PAGES);
	MODES(volume, GPUNVME_KIND_VOLUME_PAGES);
	end();
}

/* The view of the queue, the file or the volume cannot write. */
static void views_that_cannot_write_are_refused(void **state)
{
	(void)state;
	begin(BLOCKS);
	at = 0;
	dq.flags = 0;
	make_pages(GPUNVME_KIND_PAGES, GPUNVME_DPAGES_WRITABLE);
	STORES(-GPUNVME_EROFS, &writable_queue);
	make_pages(GPUNVME_KIND_FILE_PAGES, GPUNVME_DPAGES_WRITABLE);
	STORES(-GPUNVME_EROFS, &writable_file);
	dq.flags = r->dq.flags;
	file.flags = 0;
	STORES(-GPUNVME_EROFS, &writable_file);
	file.flags = GPUNVME_DQ_WRITE;
	make_pages(GPUNVME_KIND_VOLUME_PAGES, GPUNVME_DPAGES_WRITABLE);
	vol.flags = 0;
	STORES(-GPUNVME_EROFS, &writable_volume);
	vol.flags = GPUNVME_DQ_WRITE;
	end();
}

/* The queue is of another device than the cache. */
#define OF_ANOTHER(of, pages_of)                                                                                                   \
	make_pages(pages_of, GPUNVME_DPAGES_WRITABLE);                                                                             \
	LOADS(-GPUNVME_EXDEV, &cached_##of);                                                                                       \
	LOADS(-GPUNVME_EXDEV, &writable_##of);                                                                                     \
	make_pages((pages_of) | GPUNVME_KIND_PREFETCH, 0);                                                                            \
	PREFETCHES(-GPUNVME_EXDEV, &prefetch_##of)

static void caches_of_another_device_are_refused(void **state)
{
	(void)state;
	begin(BLOCKS);
	at = 0;
	dq.device = 2;
	OF_ANOTHER(queue, GPUNVME_KIND_PAGES);
	OF_ANOTHER(file, GPUNVME_KIND_FILE_PAGES);
	OF_ANOTHER(volume, GPUNVME_KIND_VOLUME_PAGES);
	make_pages(GPUNVME_KIND_PAGES, GPUNVME_DPAGES_WRITABLE);
	STORES(-GPUNVME_EXDEV, &writable_queue);
	end();
}

/* Numbers that a shift would make small. */
#define INDICES(of, pages_of)                                                                                                      \
	make_pages(pages_of, GPUNVME_DPAGES_WRITABLE);                                                                             \
	for (at = 0; at < sizeof(index) / sizeof(index[0]); at++) {                                                                \
		IS(-GPUNVME_ERANGE, gpunvme_array_load(&cached_##of, index[at], 8, &value));                                       \
		IS(-GPUNVME_ERANGE, gpunvme_array_load_range(&cached_##of, index[at], 1, 8, &value));                              \
		IS(-GPUNVME_ERANGE, gpunvme_array_load_range(&cached_##of, 1, index[at], 8, &value));                              \
		IS(-GPUNVME_ERANGE, gpunvme_array_load(&writable_##of, index[at], 8, &value));                                     \
		IS(-GPUNVME_ERANGE, gpunvme_array_store(&writable_##of, index[at], 8, &value));                                    \
		IS(-GPUNVME_ERANGE, gpunvme_array_store_range(&writable_##of, 1, index[at], 8, &value));                           \
		IS(-GPUNVME_ERANGE, gpunvme_page_get(&cached_##of, index[at], &page));                                             \
	}                                                                                                                          \
	make_pages((pages_of) | GPUNVME_KIND_PREFETCH, 0);                                                                            \
	for (at = 0; at < sizeof(index) / sizeof(index[0]); at++) {                                                                \
		IS(-GPUNVME_ERANGE, gpunvme_array_load(&prefetch_##of, index[at], 8, &value));                                     \
		IS(-GPUNVME_ERANGE, gpunvme_array_load_range(&prefetch_##of, 1, index[at], 8, &value));                            \
		IS(-GPUNVME_ERANGE, gpunvme_prefetch(&prefetch_##of, index[at]));                                                  \
	}

static void indices_do_not_wrap(void **state)
{
	static const uint64_t index[] = { 512, LONG, 1ull << 52, 1ull << 61, (1ull << 61) + 1, 1ull << 63, ~0ull };

	(void)state;
	begin(BLOCKS);
	INDICES(queue, GPUNVME_KIND_PAGES)
	INDICES(file, GPUNVME_KIND_FILE_PAGES)
	INDICES(volume, GPUNVME_KIND_VOLUME_PAGES)
	end();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranges_do_not_wrap),
		cmocka_unit_test(unknown_flags_are_refused),
		cmocka_unit_test(a_bounce_block_inside_the_bytes_is_refused),
		cmocka_unit_test(files_of_another_device_are_refused),
		cmocka_unit_test(caches_over_another_source_are_refused),
		cmocka_unit_test(caches_keep_to_their_mode),
		cmocka_unit_test(views_that_cannot_write_are_refused),
		cmocka_unit_test(caches_of_another_device_are_refused),
		cmocka_unit_test(indices_do_not_wrap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
