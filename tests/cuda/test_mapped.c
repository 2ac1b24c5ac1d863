/* SPDX-License-Identifier: MIT */
/*
 * Memory of cuMemMap(), as the expandable segments of torch have it, as data of emulated drives: with the mock driver and with the
 * machine's. A range of addresses is reserved, and parts of it are mapped one after the other.
 */
#include "cuda/lent_rig.h"

#define PARTS 4u

typedef int reserve_fn(gnv_cuda_ptr *at, size_t len, size_t align, gnv_cuda_ptr hint, unsigned long long flags);
typedef int range_fn(gnv_cuda_ptr at, size_t len);
typedef int create_fn(gnv_cuda_handle *handle, size_t len, const void *prop, unsigned long long flags);
typedef int map_fn(gnv_cuda_ptr at, size_t len, size_t offset, gnv_cuda_handle handle, unsigned long long flags);
typedef int granularity_fn(size_t *len, const void *prop, int option);

/* CUmemAllocationProp: pinned memory of a GPU */
struct prop {
	int type, handles, location, gpu;
	void *win32;
	unsigned char flags[8];
};

struct segment {
	int device; /* whose context stays */
	size_t part; /* bytes: LEN, or the granularity where that is more */
	gnv_cuda_ptr at;
};

/* Two parts are mapped, so bytes from the middle of the first one are in both. */
static gnv_cuda_ptr data_of(const struct segment *s)
{
	return s->at + s->part - LEN / 2;
}

static void map_part(const struct segment *s, uint32_t i, unsigned gpu)
{
	const struct prop prop = { .type = 1, .location = GNV_CUDA_LOCATION_DEVICE, .gpu = (int)gpu };
	gnv_cuda_handle_fn *release_handle;
	gnv_cuda_handle handle;
	create_fn *create;
	map_fn *map;

	*(void **)&create = in_driver("cuMemCreate");
	*(void **)&map = in_driver("cuMemMap");
	*(void **)&release_handle = in_driver("cuMemRelease");
	assert_int_equal(create(&handle, s->part, &prop, 0), 0);
	assert_int_equal(map(s->at + i * s->part, s->part, 0, handle, 0), 0);
	assert_int_equal(release_handle(handle), 0); /* it ends with its mapping */
}

static void permit(const struct segment *s, uint32_t i, unsigned gpu, int flags)
{
	const struct gnv_cuda_access access = { GNV_CUDA_LOCATION_DEVICE, (int)gpu, flags };
	gnv_cuda_mem_access_fn *set;

	*(void **)&set = in_driver("cuMemSetAccess");
	assert_int_equal(set(s->at + i * s->part, s->part, &access, 1), 0);
}

static void unmap_part(const struct segment *s, uint32_t i)
{
	range_fn *unmap;

	*(void **)&unmap = in_driver("cuMemUnmap");
	assert_int_equal(unmap(s->at + i * s->part, s->part), 0);
}

static void open_segment(struct segment *s)
{
	const struct prop prop = { .type = 1, .location = GNV_CUDA_LOCATION_DEVICE };
	gnv_cuda_pop_fn *pop;
	granularity_fn *ask;
	reserve_fn *reserve;
	void *context;
	uint32_t i;

	s->device = enter(0);
	*(void **)&pop = in_driver("cuCtxPopCurrent_v2");
	*(void **)&ask = in_driver("cuMemGetAllocationGranularity");
	*(void **)&reserve = in_driver("cuMemAddressReserve");
	assert_int_equal(ask(&s->part, &prop, 0), 0);
	s->part = s->part < LEN ? LEN : s->part;
	assert_int_equal(reserve(&s->at, PARTS * s->part, 0, 0, 0), 0);
	for (i = 0; i < 2; i++) {
		map_part(s, i, 0);
		permit(s, i, 0, GNV_CUDA_ACCESS_READWRITE);
	}
	assert_int_equal(pop(&context), 0);
}

static void close_segment(const struct segment *s)
{
	range_fn *end;
	uint32_t i;

	*(void **)&end = in_driver("cuMemAddressFree");
	for (i = 0; i < 2; i++)
		unmap_part(s, i);
	assert_int_equal(end(s->at, PARTS * s->part), 0);
	release(s->device);
}

/* ---- */

static void mapped_memory_holds_data(void **state)
{
	static const char *const uris[] = { LENT, DRIVE "&link=10M", "soft:ram:4M?queues=2" };
	struct segment s;
	struct rig r;
	size_t i;

	(void)state;
	open_segment(&s);
	for (i = 0; i < sizeof(uris) / sizeof(uris[0]); i++) {
		open_lent(&r, uris[i], i ? data_of(&s) : s.at);
		write_and_read_there(&r);
		close_rig(&r);
		assert_int_equal(losses, 0);
	}
	close_segment(&s);
}

/* The library permits that GPU to access the mappings that have the data. */
static void a_drive_on_another_gpu_reaches_it(void **state)
{
	struct cuda_mock *driver = mock_driver();
	struct gpunvme_gpu *other;
	struct segment s;
	struct rig r;

	(void)state;
	if (driver)
		driver->devices = 2;
	if (gpunvme_gpu_open("cuda:1", NULL, &other))
		skip();
	gpunvme_gpu_close(other);
	open_segment(&s);
	if (driver) {
		driver->apart = true;
		cannot_be_mapped(ON_PEER, data_of(&s), -EXDEV, "no peer access");
		driver->apart = false;
		driver->fail = "cuMemSetAccess";
		driver->error = GNV_CUDA_OUT_OF_MEMORY;
		cannot_be_mapped(ON_PEER, data_of(&s), -ENOMEM, "access to memory of another GPU");
		driver->fail = NULL;
	}
	open_lent(&r, ON_PEER, data_of(&s));
	write_and_read_there(&r);
	close_rig(&r);
	close_segment(&s);
}

/* Memory that is mapped to the same addresses is another's, which commands must not reach. */
static void unmapped_memory_leaves_the_drive(const char *uri, uint32_t part, bool on_gpu)
{
	struct segment s;
	struct rig r;

	open_segment(&s);
	open_lent(&r, uri, data_of(&s));
	write_and_read_there(&r);
	unmap_part(&s, part);
	map_part(&s, part, 0);
	permit(&s, part, 0, GNV_CUDA_ACCESS_READWRITE);
	if (on_gpu)
		await_losses(1);
	mark(0, data_of(&s));
	move_all_in_vain(&r, GPUNVME_IO_WRITE, GPUNVME_SC_DATA_TRANSFER);
	move_all_in_vain(&r, GPUNVME_IO_READ, GPUNVME_SC_DATA_TRANSFER);
	check_mark(0, data_of(&s));
	good(gpunvme_mem_unmap(r.pair.mem, r.pair.dev));
	assert_int_equal(gpunvme_mem_map(r.pair.mem, r.pair.dev), -EFAULT);
	close_rig(&r);
	close_segment(&s);
}

static void unmapped_memory_leaves_drives(void **state)
{
	(void)state;
	unmapped_memory_leaves_the_drive(LENT, 0, true);
	unmapped_memory_leaves_the_drive(LENT, 1, true);
	unmapped_memory_leaves_the_drive("soft:ram:4M?queues=2", 0, false);
	unmapped_memory_leaves_the_drive("soft:ram:4M?queues=2", 1, false);
}

static void memory_that_is_refused(void **state)
{
	const char *says = "no memory of cuda:0 is mapped there that its kernels may read and write";
	struct segment s;

	(void)state;
	open_segment(&s);
	cannot_be_registered("cuda:0", s.at + 2 * s.part - LEN / 2, LEN, -EOPNOTSUPP, says); /* the third part is not mapped */
	cannot_be_registered("cuda:0", s.at + 3 * s.part, LEN, -EFAULT, ""); /* no memory of a GPU, nor of the host */
	map_part(&s, 2, 0);
	cannot_be_registered("cuda:0", s.at + 2 * s.part - LEN / 2, LEN, -EOPNOTSUPP, says);
	permit(&s, 2, 0, 1); /* CU_MEM_ACCESS_FLAGS_PROT_READ */
	cannot_be_registered("cuda:0", s.at + 2 * s.part - LEN / 2, LEN, -EOPNOTSUPP, says);
	unmap_part(&s, 2);
	if (mock_driver()) {
		mock_driver()->devices = 2;
		map_part(&s, 2, 1);
		permit(&s, 2, 0, GNV_CUDA_ACCESS_READWRITE);
		cannot_be_registered("cuda:0", s.at + 2 * s.part - LEN / 2, LEN, -EOPNOTSUPP, says); /* a part of it is another GPU's */
		unmap_part(&s, 2);
	}
	close_segment(&s);
}

/* Directly in one mapping. The cache of mappings keeps ranges of one, so data for more lands. */
static void targets_by_pointer(void **state)
{
	struct segment s;

	(void)state;
	open_segment(&s);
	assert_int_equal(lands(LENT, s.at, LEN), 0);
	assert_int_equal(lands(LENT, s.at + s.part + 512, 1024), 0);
	assert_int_equal(lands(LENT, data_of(&s), LEN), 1);
	assert_int_equal(lands("soft:ram:4M?queues=2", s.at, LEN), 1);
	close_segment(&s);
}

/* The cache finds memory again, but not what is mapped to its addresses later. */
static void the_cache_sees_its_end(void **state)
{
	struct gpunvme_mem_cache_info info = { .size = sizeof(info) };
	struct gpunvme_mem_use use;
	struct segment s;
	struct rig r;
	int i;

	(void)state;
	open_segment(&s);
	open_lent(&r, LENT, s.at + s.part);
	for (i = 0; i < 3; i++) {
		good(gpunvme_mem_get(r.pair.gpu, r.pair.dev, (void *)(uintptr_t)s.at, 8192, 0, &use));
		good(gpunvme_mem_put(&use));
		if (i != 1)
			continue;
		unmap_part(&s, 0);
		map_part(&s, 0, 0);
		permit(&s, 0, 0, GNV_CUDA_ACCESS_READWRITE);
	}
	good(gpunvme_mem_cache_get_info(r.pair.dev, &info));
	assert_int_equal(info.misses, 2);
	assert_int_equal(info.hits, 1);
	close_rig(&r);
	close_segment(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(mapped_memory_holds_data, check),
		cmocka_unit_test_teardown(a_drive_on_another_gpu_reaches_it, check),
		cmocka_unit_test_teardown(unmapped_memory_leaves_drives, check),
		cmocka_unit_test_teardown(memory_that_is_refused, check),
		cmocka_unit_test_teardown(targets_by_pointer, check),
		cmocka_unit_test_teardown(the_cache_sees_its_end, check),
	};

	return is_skipped() ? 77 : cmocka_run_group_tests_name("mapped", tests, NULL, NULL);
}
