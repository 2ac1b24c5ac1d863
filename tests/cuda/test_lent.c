/* SPDX-License-Identifier: MIT */
/*
 * Memory of the program's own, of cudaMalloc() and cudaMallocAsync(), as data of emulated drives: with the mock driver and with the
 * machine's. The program may free it at any time.
 */
#include "cuda/drive_rig.h"

#include <errno.h>
#include <sched.h>

#include "os/nvidia/uapi/cuda.h"
#include "vdrive/drive.h"

#define LEN ((size_t)COMMANDS * 4096)
#define LENT DRIVE "&link=0"
#define ON_PEER "soft:vram:4M?on=cuda:1&queues=2&link=0"

/* ---- The program's calls of the driver ---- */

typedef int alloc_fn(gnv_cuda_ptr *at, size_t len);
typedef int free_fn(gnv_cuda_ptr at);

static void *in_driver(const char *name)
{
	const char *path = getenv("GPUNVME_CUDA_LIBRARY");
	void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW), *symbol = library ? dlsym(library, name) : NULL;

	assert_non_null(symbol);
	dlclose(library);
	return symbol;
}

/* Make the primary context of a GPU current. */
static int enter(unsigned gpu)
{
	gnv_cuda_device_fn *get;
	gnv_cuda_retain_fn *retain;
	gnv_cuda_push_fn *push;
	void *context;
	int device;

	*(void **)&get = in_driver("cuDeviceGet");
	*(void **)&retain = in_driver("cuDevicePrimaryCtxRetain");
	*(void **)&push = in_driver("cuCtxPushCurrent_v2");
	assert_int_equal(get(&device, (int)gpu), 0);
	assert_int_equal(retain(&context, device), 0);
	assert_int_equal(push(context), 0);
	return device;
}

static void release(int device)
{
	gnv_cuda_release_fn *end;

	*(void **)&end = in_driver("cuDevicePrimaryCtxRelease_v2");
	assert_int_equal(end(device), 0);
}

static void leave(int device)
{
	gnv_cuda_pop_fn *pop;
	void *context;

	*(void **)&pop = in_driver("cuCtxPopCurrent_v2");
	assert_int_equal(pop(&context), 0);
	release(device);
}

static gnv_cuda_ptr allocate(unsigned gpu, size_t len)
{
	gnv_cuda_pop_fn *pop;
	gnv_cuda_ptr at = 0;
	alloc_fn *alloc;
	void *context;

	(void)enter(gpu);
	*(void **)&alloc = in_driver("cuMemAlloc_v2");
	*(void **)&pop = in_driver("cuCtxPopCurrent_v2");
	assert_int_equal(alloc(&at, len), 0);
	assert_int_equal(pop(&context), 0); /* memory ends with its context, so that stays until give_back() */
	return at;
}

static void give_back(unsigned gpu, gnv_cuda_ptr at)
{
	const int device = enter(gpu);
	free_fn *end;

	*(void **)&end = in_driver("cuMemFree_v2");
	assert_int_equal(end(at), 0);
	leave(device);
	release(device);
}

/* ---- A drive whose data lies there ---- */

static uint32_t losses; /* lines of the log (atomic) */

static void count_losses(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	if (level == GPUNVME_LOG_ERROR && strstr(text, "was freed while it was mapped"))
		__atomic_fetch_add(&losses, 1, __ATOMIC_RELEASE);
}

static void await_losses(uint32_t n)
{
	while (__atomic_load_n(&losses, __ATOMIC_ACQUIRE) < n)
		sched_yield();
	assert_int_equal(losses, n);
}

static void open_lent(struct rig *r, const char *uri, gnv_cuda_ptr at)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct pair *p = &r->pair;

	memset(r, 0, sizeof(*r));
	losses = 0;
	opts.log = count_losses;
	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_dev_open(uri, &opts, &p->dev));
	good(gpunvme_gpu_open("cuda:0", NULL, &p->gpu));
	good(gpunvme_queue_create(p->dev, p->gpu, NULL, &p->qp));
	good(gpunvme_queue_view(p->qp, &view, &p->dq));
	good(gpunvme_mem_register(p->gpu, (void *)(uintptr_t)at, LEN, &p->mem));
	good(gpunvme_mem_map(p->mem, p->dev));
	good(gpunvme_mem_dbuf(p->mem, p->dev, &p->dbuf));
	assert_int_equal(p->dbuf.base, at);
	assert_null(gpunvme_mem_ptr(p->mem));
}

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
	struct stand_in *driver = mock_driver();
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

static void cannot_be_mapped(const char *uri, gnv_cuda_ptr at, int ret, const char *says)
{
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;

	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cuda:0", NULL, &gpu));
	good(gpunvme_mem_register(gpu, (void *)(uintptr_t)at, LEN, &mem));
	assert_int_equal(gpunvme_mem_map(mem, dev), ret);
	if (!strstr(gpunvme_errmsg(), says))
		fail_msg("%s: %s", uri, gpunvme_errmsg());
	good(gpunvme_mem_free(mem));
	gpunvme_gpu_close(gpu);
	good(gpunvme_dev_close(dev));
}

static void drives_that_do_not_reach_it(void **state)
{
	struct stand_in *driver = mock_driver();
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

static void cannot_be_registered(const char *lanes, gnv_cuda_ptr at, size_t len, int ret, const char *says)
{
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;

	good(gpunvme_gpu_open(lanes, NULL, &gpu));
	assert_int_equal(gpunvme_mem_register(gpu, (void *)(uintptr_t)at, len, &mem), ret);
	if (!strstr(gpunvme_errmsg(), says))
		fail_msg("%s", gpunvme_errmsg());
	gpunvme_gpu_close(gpu);
}

static void memory_that_is_refused(void **state)
{
	struct stand_in *driver = mock_driver();
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
	if (!driver)
		return;
	driver->of_map = true;
	at = allocate(0, LEN);
	cannot_be_registered("cuda:0", at, LEN, -EOPNOTSUPP, "neither cudaMalloc() nor cudaMallocAsync()");
	give_back(0, at);
	driver->of_map = false;
}

/* Each command gets this status. */
static void move_all_in_vain(struct rig *r, uint32_t op, uint16_t status)
{
	struct gpunvme_commands list = { sizeof(list), LANES, EACH, r->cmd };
	uint32_t i;

	for (i = 0; i < COMMANDS; i++)
		r->cmd[i] = (struct gpunvme_command){ .offset = i * 4096ull, .lba = i * 8, .nblocks = 8, .op = op };
	(void)gpunvme_run_commands(r->pair.gpu, &r->pair.dq, 1, &r->pair.dbuf, &list);
	for (i = 0; i < COMMANDS; i++)
		if ((r->cmd[i].status & 0x7ff) != status)
			fail_msg("command %u: 0x%x", i, r->cmd[i].status);
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

static unsigned char marks[LEN];

static void mark(unsigned gpu, gnv_cuda_ptr at)
{
	const int device = enter(gpu);
	int (*put)(gnv_cuda_ptr at, const void *from, size_t len);

	memset(marks, 0x5e, sizeof(marks));
	*(void **)&put = in_driver("cuMemcpyHtoD_v2");
	assert_int_equal(put(at, marks, LEN), 0);
	leave(device);
}

static void check_mark(unsigned gpu, gnv_cuda_ptr at)
{
	const int device = enter(gpu);
	int (*get)(void *to, gnv_cuda_ptr at, size_t len);
	size_t i;

	memset(marks, 0, sizeof(marks));
	*(void **)&get = in_driver("cuMemcpyDtoH_v2");
	assert_int_equal(get(marks, at, LEN), 0);
	for (i = 0; i < LEN; i++)
		if (marks[i] != 0x5e)
			fail_msg("byte %zu of another allocation: 0x%x", i, marks[i]);
	leave(device);
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

static uint32_t lands(const char *uri, gnv_cuda_ptr at, size_t len)
{
	struct gpunvme_landing_info info = { .size = sizeof(info) };
	struct gpunvme_landing *landing;
	struct gpunvme_target target;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;

	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cuda:0", NULL, &gpu));
	good(gpunvme_landing_create(gpu, dev, NULL, &landing));
	good(gpunvme_landing_get(landing, (void *)(uintptr_t)at, len, 0, &target));
	good(gpunvme_landing_get_info(landing, &info));
	assert_int_equal(info.direct + info.landing, 1);
	good(gpunvme_landing_put(&target));
	good(gpunvme_landing_destroy(landing));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	return info.landing;
}

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
		cmocka_unit_test_teardown(freed_memory_leaves_a_drive_on_the_gpu, check),
		cmocka_unit_test_teardown(freed_memory_leaves_a_drive_on_threads, check),
		cmocka_unit_test_teardown(all_parts_of_freed_memory_are_found, check),
		cmocka_unit_test_teardown(targets_by_pointer, check),
	};

	return is_skipped() ? 77 : cmocka_run_group_tests_name("lent", tests, NULL, NULL);
}
