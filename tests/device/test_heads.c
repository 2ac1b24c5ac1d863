/* SPDX-License-Identifier: MIT */
/* A descriptor of another kind is -EINVAL, and one of another version, or none, -EPROTONOSUPPORT: each call, each descriptor it gets. */
#include "rig.h"

static const struct wrong {
	uint32_t version;
	uint16_t kind;
	int ret;
} wrong[] = {
	{ 0, 1, -GPUNVME_EINVAL },
	{ 0, 8, -GPUNVME_EINVAL },
	{ 0, GPUNVME_KIND_PREFETCH, -GPUNVME_EINVAL },
	{ 1, 0, -GPUNVME_EPROTONOSUPPORT },
	{ 1u << 16, 0, -GPUNVME_EPROTONOSUPPORT },
	{ GPUNVME_HEAD_VERSION, 0, -GPUNVME_EPROTONOSUPPORT },
	{ 1, 1, -GPUNVME_EPROTONOSUPPORT },
};

static void spoil(struct gpunvme_head *head, const struct wrong *w)
{
	head->version ^= w->version;
	head->kind ^= w->kind;
}

#define REFUSED(head, ...)                                                                                                         \
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {                                                            \
		int ret;                                                                                                           \
                                                                                                                                   \
		spoil(&(head), &wrong[i]);                                                                                         \
		ret = __VA_ARGS__;                                                                                                 \
		spoil(&(head), &wrong[i]);                                                                                         \
		if (ret != wrong[i].ret)                                                                                           \
			fail_msg("%s: %d, not %d with %s ^ %x, %x", #__VA_ARGS__, ret, wrong[i].ret, #head, wrong[i].version,      \
				 wrong[i].kind);                                                                                   \
	}

static struct gpunvme_dq dq;
static struct gpunvme_dbuf dbuf;
static struct gpunvme_dvol vol = {
	.head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, vol), .flags = GPUNVME_DQ_WRITE, .members = 1, .queues = 1, .lba_shift = 9,
	.dq = (uintptr_t)&dq, .lba_count = 8,
};
static struct gpunvme_dvbuf dvbuf = { .len = RIG_BUFFER, .member = (uintptr_t)&dbuf };
static struct gpunvme_dextent extent = { 0, 0, 8 };
static struct gpunvme_dfile file = {
	.head = GPUNVME_HEAD(GPUNVME_KIND_FILE, file), .flags = GPUNVME_DQ_WRITE, .nsid = 1, .lba_shift = 9, .extents = 1,
	.table = (uintptr_t)&extent, .bytes = 4096,
};
static struct gpunvme_dentry entry = { 4096, 0, 1 };
static struct gpunvme_dfiles files = {
	.head = GPUNVME_HEAD(GPUNVME_KIND_FILES, files), .nsid = 1, .lba_shift = 9, .files = 1, .table = (uintptr_t)&extent,
	.entry = (uintptr_t)&entry,
};
static struct gpunvme_cache_state state;
static struct gpunvme_dmember member = { .stripe_shift = 0 };
static uint64_t table[1], frame[3], bytes[512];
static struct gpunvme_dpages pages;
static struct gpunvme_req req;
static struct gpunvme_cursor cur = { &dq, &file, 0, 0, 0, 0 };

static struct rig *begin(void)
{
	struct rig *r = rig_new(4, 0);

	dq = r->dq;
	dq.deallocate = 8;
	dbuf = r->dbuf;
	rig_start(r);
	return r;
}

/* Nothing was begun. */
static void end(struct rig *r)
{
	assert_int_equal(r->state->resv, 0);
	rig_end(r, true);
}

static void queues(void **unused)
{
	struct rig *r = begin();
	uint32_t index;

	(void)unused;
	REFUSED(dq.head, gpunvme_read(&dq, &dbuf, 0, 0, 512));
	REFUSED(dq.head, gpunvme_write(&dq, &dbuf, 0, 0, 512, 0));
	REFUSED(dq.head, gpunvme_flush(&dq));
	REFUSED(dq.head, gpunvme_zero(&dq, 0, 512));
	REFUSED(dq.head, gpunvme_discard(&dq, &dbuf, 0, 0, 512));
	REFUSED(dq.head, gpunvme_submit_read(&dq, &dbuf, 0, 0, 512, &req));
	REFUSED(dq.head, gpunvme_submit_write(&dq, &dbuf, 0, 0, 512, 0, &req));
	REFUSED(dq.head, gpunvme_submit_flush(&dq, &req));
	REFUSED(dq.head, gpunvme_submit_zero(&dq, 0, 512, &req));
	REFUSED(dq.head, gpunvme_submit_discard(&dq, &dbuf, 0, 0, 512, &req));
	REFUSED(dq.head, gpunvme_poll(&dq, &req));
	REFUSED(dq.head, gpunvme_wait(&dq, &req, 0));
	REFUSED(dq.head, gpunvme_wait_any(&dq, &req, 1, 0, &index));
	REFUSED(dq.head, gpunvme_detach(&dq, &req));
	REFUSED(dq.head, gpunvme_poll_queue(&dq, 1, (uintptr_t)&index));
	REFUSED(dq.head, gpunvme_wave_read(&dq, &dbuf, 0, 0, 512));
	REFUSED(dq.head, gpunvme_wave_write(&dq, &dbuf, 0, 0, 512, 0));
	REFUSED(dq.head, gpunvme_wave_read_one(&dq, &dbuf, 0, 0, 512));
	REFUSED(dq.head, gpunvme_wave_write_one(&dq, &dbuf, 0, 0, 512, 0));
	end(r);
}

static void volumes(void **unused)
{
	struct rig *r = begin();

	(void)unused;
	REFUSED(vol.head, gpunvme_read(&vol, &dvbuf, 0, 0, 512));
	REFUSED(vol.head, gpunvme_write(&vol, &dvbuf, 0, 0, 512, 0));
	REFUSED(vol.head, gpunvme_flush(&vol));
	REFUSED(vol.head, gpunvme_zero(&vol, 0, 512));
	REFUSED(vol.head, gpunvme_discard(&vol, &dvbuf, 0, 0, 512));
	REFUSED(vol.head, gpunvme_block_read(&vol, &dvbuf, 0, 0, 512));
	REFUSED(vol.head, gpunvme_block_write(&vol, &dvbuf, 0, 0, 512, 0));
	REFUSED(vol.head, gpunvme_submit_read(&vol, &dvbuf, 0, 0, 512, &req));
	REFUSED(vol.head, gpunvme_submit_write(&vol, &dvbuf, 0, 0, 512, 0, &req));
	REFUSED(vol.head, gpunvme_submit_zero(&vol, 0, 512, &req));
	REFUSED(vol.head, gpunvme_submit_discard(&vol, &dvbuf, 0, 0, 512, &req));
	REFUSED(vol.head, gpunvme_poll(&vol, &req));
	REFUSED(vol.head, gpunvme_wait(&vol, &req, 0));
	REFUSED(vol.head, gpunvme_detach(&vol, &req));
	REFUSED(vol.head, gpunvme_wave_read(&vol, &dvbuf, 0, 0, 512));
	REFUSED(vol.head, gpunvme_wave_write(&vol, &dvbuf, 0, 0, 512, 0));
	REFUSED(vol.head, gpunvme_wave_read_one(&vol, &dvbuf, 0, 0, 512));
	REFUSED(vol.head, gpunvme_wave_write_one(&vol, &dvbuf, 0, 0, 512, 0));
	REFUSED(dq.head, gpunvme_flush(&vol));
	REFUSED(dq.head, gpunvme_submit_read(&vol, &dvbuf, 0, 0, 512, &req));
	REFUSED(dq.head, gpunvme_zero(&vol, 0, 512));
	REFUSED(dq.head, gpunvme_discard(&vol, &dvbuf, 0, 0, 512));
	end(r);
}

#define REFUSED_FILE(...)                                                                                                          \
	REFUSED(file.head, __VA_ARGS__);                                                                                           \
	REFUSED(dq.head, __VA_ARGS__)

static void files_of_a_cursor(void **unused)
{
	struct rig *r = begin();

	(void)unused;
	REFUSED_FILE(gpunvme_read(&cur, &dbuf, 0, 0, 512));
	REFUSED_FILE(gpunvme_write(&cur, &dbuf, 0, 0, 512, 0));
	REFUSED_FILE(gpunvme_submit_read(&cur, &dbuf, 0, 0, 512, &req));
	REFUSED_FILE(gpunvme_submit_write(&cur, &dbuf, 0, 0, 512, 0, &req));
	REFUSED_FILE(gpunvme_wave_read(&cur, &dbuf, 0, 0, 512));
	REFUSED_FILE(gpunvme_wave_write(&cur, &dbuf, 0, 0, 512, 0));
	REFUSED_FILE(gpunvme_wave_read_one(&cur, &dbuf, 0, 0, 512));
	REFUSED_FILE(gpunvme_wave_write_one(&cur, &dbuf, 0, 0, 512, 0));
	REFUSED_FILE(gpunvme_block_read(&cur, &dbuf, 0, 0, 512));
	REFUSED_FILE(gpunvme_block_write(&cur, &dbuf, 0, 0, 512, 0));
	end(r);
}

static void file_sets(void **unused)
{
	struct gpunvme_dfile one = { .nsid = 0 };
	uint32_t number;

	(void)unused;
	REFUSED(files.head, gpunvme_files_get(&files, 0, &one));
	REFUSED(files.head, gpunvme_files_find_hash(&files, 0, &number));
	assert_int_equal(one.nsid, 0);
	assert_int_equal(gpunvme_files_get(&files, 0, &one), 0);
	assert_int_equal(one.head.version, GPUNVME_HEAD_VERSION);
	assert_int_equal(one.head.kind, GPUNVME_KIND_FILE);
	assert_int_equal(one.head.size, sizeof(one));
}

static void make_pages(unsigned kind, uintptr_t source)
{
	memset(table, 0, sizeof(table));
	memset(frame, 0, sizeof(frame));
	pages = (struct gpunvme_dpages){
		.head = GPUNVME_HEAD((uint16_t)kind, pages), .flags = GPUNVME_DPAGES_WRITABLE, .nsid = 1, .frames = 1, .lba_shift = 9,
		.page_shift = 12, .members = 1, .state = (uintptr_t)&state, .table = (uintptr_t)table, .frame = (uintptr_t)frame,
		.lba_count = 8, .buf = { (uintptr_t)bytes, sizeof(bytes), RIG_IOVA, 0, 0 }, .source = source,
	};
}

#define REFUSED_PAGES(...)                                                                                                         \
	REFUSED(pages.head, __VA_ARGS__);                                                                                          \
	REFUSED(*first, __VA_ARGS__);                                                                                              \
	REFUSED(dq.head, __VA_ARGS__)

#define REFUSED_LOADS(src)                                                                                                         \
	REFUSED_PAGES(gpunvme_page_get(src, 0, &p));                                                                               \
	REFUSED_PAGES(gpunvme_array_load(src, 0, 8, &value));                                                                      \
	REFUSED_PAGES(gpunvme_array_load_range(src, 0, 1, 8, &value))

/* @first: what the source names, the queue or the volume. */
#define TEST_OF_PAGES(of, of_kind, source, named)                                                                                  \
	static void pages_of_a_##of(void **unused)                                                                                 \
	{                                                                                                                          \
		const struct gpunvme_cached_##of cached = { &(named), &pages };                                                    \
		const struct gpunvme_prefetch_##of prefetch = { &(named), &pages };                                                \
		const struct gpunvme_writable_##of writable = { &(named), &pages };                                                \
		struct gpunvme_head *first = &(named).head;                                                                        \
		struct gpunvme_page p = { (uintptr_t)bytes, (uintptr_t)table };                                                    \
		struct rig *r = begin();                                                                                           \
		uint64_t value = 0;                                                                                                \
                                                                                                                                   \
		(void)unused;                                                                                                      \
		make_pages(of_kind, source);                                                                                       \
		REFUSED_LOADS(&cached);                                                                                            \
		REFUSED_LOADS(&writable);                                                                                          \
		REFUSED_PAGES(gpunvme_page_put(&writable, &p, 0, 8));                                                              \
		REFUSED_PAGES(gpunvme_array_store(&writable, 0, 8, &value));                                                       \
		REFUSED_PAGES(gpunvme_array_store_range(&writable, 0, 1, 8, &value));                                              \
		REFUSED_PAGES(gpunvme_write_back(&writable, 0, 1));                                                                \
		assert_int_equal(gpunvme_prefetch(&prefetch, 0), -GPUNVME_EINVAL);                                                 \
		make_pages((of_kind) | GPUNVME_KIND_PREFETCH, source);                                                                \
		REFUSED_LOADS(&prefetch);                                                                                          \
		REFUSED_PAGES(gpunvme_prefetch(&prefetch, 0));                                                                     \
		REFUSED_PAGES(gpunvme_prefetch_finish(&prefetch));                                                                 \
		assert_int_equal(gpunvme_page_get(&cached, 0, &p), -GPUNVME_EINVAL);                                               \
		assert_int_equal(gpunvme_array_store(&writable, 0, 8, &value), -GPUNVME_EINVAL);                                   \
		assert_int_equal(table[0], 0);                                                                                     \
		end(r);                                                                                                            \
	}

TEST_OF_PAGES(queue, GPUNVME_KIND_PAGES, 0, dq)
TEST_OF_PAGES(file, GPUNVME_KIND_FILE_PAGES, (uintptr_t)&file, dq)
TEST_OF_PAGES(volume, GPUNVME_KIND_VOLUME_PAGES, (uintptr_t)&member, vol)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(queues),
		cmocka_unit_test(volumes),
		cmocka_unit_test(files_of_a_cursor),
		cmocka_unit_test(file_sets),
		cmocka_unit_test(pages_of_a_queue),
		cmocka_unit_test(pages_of_a_file),
		cmocka_unit_test(pages_of_a_volume),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
