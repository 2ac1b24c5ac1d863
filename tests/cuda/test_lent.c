/* SPDX-License-Identifier: MIT */
/*
 * Memory of the program's own, of cudaMalloc() and cudaMallocAsync(), as data of emulated drives: with the mock driver and with the
 * machine's. The program may free it at any time.
 */
#include "cuda/lent_rig.h"

#include "vdrive/drive.h"

static void memory_of_the_program_holds_data(void **state)
{
	static const char *const uris[] = { LENT, DRIVE "&link=10M", "soft:ram:4M?queues=2" };
	const gnv_cuda_ptr at = allocate(0, LEN);
	struct rig r;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(uris) / sizeof(uris[0]); i++) {
		open_lent(&r, uris[i], at);
		write_and_read_there(&r);
		close_rig(&r);
		assert_int_equal(losses, 0);
	}
	give_back(0, at);
}

/* Of a pool (cudaMallocAsync()): here the library's, by another handle. */
static void memory_of_a_pool_holds_data(void **state)
{
	struct gpunvme_gpu *gpu;
	struct gnv_gpu_bytes bytes;
	struct rig r;

	(void)state;
	good(gpunvme_gpu_open("cuda:0", NULL, &gpu));
	good(gpu->ops->mem_alloc(gpu, 0, LEN + 4096, &bytes)); /* pools align to less than pages */
	open_lent(&r, LENT, (bytes.lane + 4095) & ~4095ull);
	write_and_read_there(&r);
	close_rig(&r);
	gpu->ops->mem_free(gpu, &bytes);
	gpunvme_gpu_close(gpu);
}

static void a_drive_on_another_gpu_reaches_it(void **state)
{
	struct cuda_mock *driver = mock_driver();
	struct gpunvme_gpu *other;
	gnv_cuda_ptr at;
	struct rig r;
	int i;

	(void)state;
	if (driver)
		driver->devices = 2;
	if (gpunvme_gpu_open("cuda:1", NULL, &other))
		skip();
	gpunvme_gpu_close(other);
	at = allocate(0, LEN);
	for (i = 0; i < 2; i++) { /* of a new context each time */
		open_lent(&r, ON_PEER, at);
		if (driver)
			assert_true(driver->is_peer(1, 0) && !driver->is_peer(0, 1));
		write_and_read_there(&r);
		good(gpunvme_mem_unmap(r.pair.mem, r.pair.dev));
		good(gpunvme_mem_map(r.pair.mem, r.pair.dev)); /* where the peer is enabled already */
		close_rig(&r);
	}
	give_back(0, at);
}

static void drives_that_do_not_reach_it(void **state)
{
	struct cuda_mock *driver = mock_driver();
	const gnv_cuda_ptr at = allocate(0, LEN);

	(void)state;
	cannot_be_mapped(DRIVE, at, -EOPNOTSUPP, "Add link=0");
	cannot_be_mapped("soft:vram:4M", at, -EOPNOTSUPP, "on=cuda:N");
	if (driver) {
		driver->devices = 2;
		driver->apart = true;
		cannot_be_mapped(ON_PEER, at, -EXDEV, "no peer access");
		driver->apart = false;
		driver->fail = "cuCtxEnablePeerAccess";
		driver->error = GNV_CUDA_TOO_MANY_PEERS;
		cannot_be_mapped(ON_PEER, at, -EXDEV, "too many peers");
		driver->error = GNV_CUDA_OUT_OF_MEMORY;
		cannot_be_mapped(ON_PEER, at, -ENOMEM, "access to memory of another GPU");
		driver->fail = NULL;
	}
	give_back(0, at);
}

static void memory_that_is_refused(void **state)
{
	struct cuda_mock *driver = mock_driver();
	gnv_cuda_ptr at = allocate(0, LEN);

	(void)state;
	cannot_be_registered("cuda:0", at + 4096, LEN, -ERANGE, "end after their allocation");
	if (driver) {
		driver->devices = 2;
		cannot_be_registered("cuda:1", at, LEN, -EXDEV, "memory of cuda:0");
		driver->foreign_memory = (void *)(uintptr_t)at;
		cannot_be_registered("cuda:0", at, LEN, -EXDEV, "another context");
		driver->foreign_memory = NULL;
	}
	give_back(0, at);
}

/* It moves to the host and back. That of a pool has the pool's attributes else (CUDA 13). */
static void managed_memory_is_refused(void **state)
{
	int (*alloc)(gnv_cuda_ptr *at, size_t len, unsigned flags);
	int (*pool_new)(void **pool, const int *props), (*pool_end)(void *pool);
	int (*alloc_from)(gnv_cuda_ptr *at, size_t len, void *pool, void *stream);
	gnv_cuda_free_fn *end_async;
	gnv_cuda_stream_fn *wait;
	free_fn *end;
	const int device = enter(0), props[22] = { 2, 0, GNV_CUDA_LOCATION_DEVICE, 0 }; /* CUmemPoolProps */
	gnv_cuda_ptr at = 0;
	void *pool = NULL;

	(void)state;
	*(void **)&alloc = in_driver("cuMemAllocManaged");
	*(void **)&end = in_driver("cuMemFree_v2");
	*(void **)&pool_new = in_driver("cuMemPoolCreate");
	*(void **)&pool_end = in_driver("cuMemPoolDestroy");
	*(void **)&alloc_from = in_driver("cuMemAllocFromPoolAsync");
	*(void **)&end_async = in_driver("cuMemFreeAsync");
	*(void **)&wait = in_driver("cuStreamSynchronize");
	assert_int_equal(alloc(&at, LEN, 1), 0);
	cannot_be_registered("cuda:0", at, LEN, -EOPNOTSUPP, "managed memory");
	assert_int_equal(end(at), 0);
	if (!pool_new(&pool, props)) { /* drivers before CUDA 13 have no such pools */
		assert_int_equal(alloc_from(&at, LEN + 4096, pool, NULL), 0);
		assert_int_equal(wait(NULL), 0);
		cannot_be_registered("cuda:0", (at + 4095) & ~4095ull, LEN, -EOPNOTSUPP, "managed memory");
		assert_int_equal(end_async(at, NULL), 0);
		assert_int_equal(wait(NULL), 0);
		assert_int_equal(pool_end(pool), 0);
	}
	leave(device);
}

/* The drive goes on with other memory. */
static void use_other_memory(struct rig *r)
{
	const gnv_cuda_ptr at = allocate(0, 2 * LEN);
	struct gpunvme_mem *lost = r->pair.mem;

	good(gpunvme_mem_register(r->pair.gpu, (void *)(uintptr_t)at, LEN, &r->pair.mem));
	good(gpunvme_mem_map(r->pair.mem, r->pair.dev));
	good(gpunvme_mem_dbuf(r->pair.mem, r->pair.dev, &r->pair.dbuf));
	write_and_read_there(r);
	good(gpunvme_mem_free(r->pair.mem));
	give_back(0, at);
	r->pair.mem = lost;
}

/* Another allocation has the address then, which commands must not reach. */
static void freed_memory_leaves_the_drive(const char *uri, bool on_gpu)
{
	gnv_cuda_ptr at = allocate(0, LEN), again;
	struct rig r;

	open_lent(&r, uri, at);
	write_and_read_there(&r);
	give_back(0, at);
	again = allocate(0, LEN);
	if (mock_driver())
		assert_int_equal(again, at);
	if (on_gpu)
		await_losses(1);
	mark(0, again);
	move_all_in_vain(&r, GPUNVME_IO_WRITE, GPUNVME_SC_DATA_TRANSFER);
	move_all_in_vain(&r, GPUNVME_IO_READ, GPUNVME_SC_DATA_TRANSFER);
	check_mark(0, again);
	use_other_memory(&r);
	good(gpunvme_mem_unmap(r.pair.mem, r.pair.dev));
	assert_int_equal(gpunvme_mem_map(r.pair.mem, r.pair.dev), -EFAULT);
	give_back(0, again);
	close_rig(&r);
	if (on_gpu)
		assert_int_equal(losses, 1); /* no other memory was reported */
}

static void freed_memory_leaves_a_drive_on_the_gpu(void **state)
{
	(void)state;
	freed_memory_leaves_the_drive(LENT, true);
}

static void freed_memory_leaves_a_drive_on_threads(void **state)
{
	(void)state;
	freed_memory_leaves_the_drive("soft:ram:4M?queues=2", false);
}

/* More than are looked at before one launch. */
static void all_parts_of_freed_memory_are_found(void **state)
{
	const uint32_t count = 2 * GNV_VDRIVE_LOOKS + 10;
	const gnv_cuda_ptr at = allocate(0, LEN), other = allocate(0, 4096);
	struct gpunvme_mem **mem = calloc(count, sizeof(*mem)), *kept;
	struct rig r;
	uint32_t i;

	(void)state;
	assert_non_null(mem);
	open_lent(&r, LENT, at);
	good(gpunvme_mem_register(r.pair.gpu, (void *)(uintptr_t)other, 4096, &kept));
	for (i = 0; i < count; i++) {
		good(gpunvme_mem_register(r.pair.gpu, (void *)(uintptr_t)(at + i % COMMANDS * 4096), 4096, &mem[i]));
		good(gpunvme_mem_map(mem[i], r.pair.dev));
		if (i == count / 2)
			good(gpunvme_mem_map(kept, r.pair.dev));
	}
	for (i = 0; i < count; i += 7)
		good(gpunvme_mem_unmap(mem[i], r.pair.dev));
	give_back(0, at);
	await_losses(1 + count - (count + 6) / 7);
	for (i = 0; i < count; i++)
		good(gpunvme_mem_free(mem[i]));
	good(gpunvme_mem_free(kept));
	free(mem);
	close_rig(&r);
	give_back(0, other);
}

/* ---- By pointer ---- */

/* Directly where the drive has it, but no byte of a neighbour's. Where threads would copy, data lands. */
static void targets_by_pointer(void **state)
{
	const gnv_cuda_ptr at = allocate(0, LEN + 100);

	(void)state;
	assert_int_equal(lands(LENT, at, LEN), 0);
	assert_int_equal(lands(LENT, at + 512, 1024), 0);
	assert_int_equal(lands(LENT, at + LEN, 100), 1); /* its last page is not all of it */
	assert_int_equal(lands(DRIVE, at, LEN), 1);
	assert_int_equal(lands("soft:ram:4M?queues=2", at, LEN), 1);
	give_back(0, at);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(memory_of_the_program_holds_data, check),
		cmocka_unit_test_teardown(memory_of_a_pool_holds_data, check),
		cmocka_unit_test_teardown(a_drive_on_another_gpu_reaches_it, check),
		cmocka_unit_test_teardown(drives_that_do_not_reach_it, check),
		cmocka_unit_test_teardown(memory_that_is_refused, check),
		cmocka_unit_test_teardown(managed_memory_is_refused, check),
		cmocka_unit_test_teardown(freed_memory_leaves_a_drive_on_the_gpu, check),
		cmocka_unit_test_teardown(freed_memory_leaves_a_drive_on_threads, check),
		cmocka_unit_test_teardown(all_parts_of_freed_memory_are_found, check),
		cmocka_unit_test_teardown(targets_by_pointer, check),
	};

	return is_skipped() ? 77 : cmocka_run_group_tests_name("lent", tests, NULL, NULL);
}
