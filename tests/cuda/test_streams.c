/* SPDX-License-Identifier: MIT */
/*
 * gpunvme_run_on_stream() on streams of CUDA, with the mock driver: default streams, streams and memory of others, graphs, calls that
 * fail. What it moves: cuda.test_stream.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/pair.h"
#include "common/mock.h"
#include "mocks/cuda/mock.h"
#include "os/nvidia/uapi/cuda.h"
#include "soft/streams.h"

#define BLOCK 512u
#define BUFFER (64u << 10)
#define LIST (BUFFER / 2) /* offset of the list in the buffer */

static struct cuda_mock *driver;

static struct {
	struct pair pair;
	struct streams streams;
	struct gpunvme_transfer *list;
	struct gpunvme_run run;
	uint8_t *data;
} t;

static int begin_group(void **state)
{
	(void)state;
	driver = mock_state("GPUNVME_CUDA_LIBRARY", strdup(getenv("GPUNVME_CUDA_LIBRARY")), "cuda_mock");
	return !driver;
}

static void set(uint32_t i, uint64_t pos, uint64_t offset, uint32_t flags)
{
	t.list[i] = (struct gpunvme_transfer){ pos, offset, BLOCK, flags, 99, 99 };
}

static int begin(void **state)
{
	uint32_t i;

	(void)state;
	driver->devices = 2;
	pair_open(&t.pair, "soft:ram:1M", "cuda:0", BUFFER);
	streams_begin(&t.streams, t.pair.gpu);
	t.data = gpunvme_mem_ptr(t.pair.mem);
	t.list = (struct gpunvme_transfer *)(void *)(t.data + LIST);
	t.run = (struct gpunvme_run)GPUNVME_RUN_INIT;
	t.run.dq = &t.pair.dq;
	t.run.dbuf = &t.pair.dbuf;
	t.run.list = t.pair.dbuf.base + LIST;
	t.run.count = 1;
	for (i = 0; i < 4; i++) {
		memset(t.data, 0x10 + (int)i, BLOCK);
		set(0, i * BLOCK, 0, GPUNVME_TRANSFER_WRITE);
		good(gpunvme_run_on_stream(t.pair.gpu, NULL, &t.run));
		streams_wait(&t.streams, NULL);
		assert_int_equal(t.list[0].result, BLOCK);
	}
	return 0;
}

static int end(void **state)
{
	(void)state;
	driver->fail = NULL;
	driver->foreign_stream = driver->capture = NULL;
	streams_end(&t.streams);
	pair_close(&t.pair);
	assert_int_equal(driver->contexts, 0);
	assert_int_equal(driver->streams, 0);
	assert_int_equal(driver->allocations, 0);
	assert_int_equal(driver->registrations, 0);
	if (driver->broke)
		fail_msg("%s", driver->broke);
	driver->forget(); /* also the graph, whose queues are gone */
	return 0;
}

static bool holds(uint64_t offset, uint8_t byte)
{
	uint32_t i;

	for (i = 0; i < BLOCK && t.data[offset + i] == byte; i++)
		;
	return i == BLOCK;
}

static void reads_by(void *stream)
{
	memset(t.data, 0xee, BLOCK);
	set(0, 3 * BLOCK, 0, 0);
	good(gpunvme_run_on_stream(t.pair.gpu, stream, &t.run));
	streams_wait(&t.streams, stream);
	assert_int_equal(t.list[0].result, BLOCK);
	assert_true(holds(0, 0x13));
}

/* NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, and one of the program's. */
static void every_kind_of_stream_works(void **state)
{
	void *own = streams_make(&t.streams);

	(void)state;
	reads_by(NULL);
	reads_by((void *)1);
	reads_by((void *)2);
	reads_by(own);
	streams_drop(&t.streams, own);
}

static void refused(struct gpunvme_run bad, void *stream, int error, const char *text)
{
	set(0, 0, 0, 0);
	assert_int_equal(gpunvme_run_on_stream(t.pair.gpu, stream, &bad), error);
	if (!strstr(gpunvme_errmsg(), text))
		fail_msg("no '%s' in '%s'", text, gpunvme_errmsg());
	streams_wait(&t.streams, NULL);
	assert_int_equal(t.list[0].result, 99); /* nothing was enqueued */
}

/* Of another context, which may be another GPU's: cuLaunchKernel() would say only that a handle is invalid. */
static void streams_of_others_are_refused(void **state)
{
	void *own = streams_make(&t.streams);
	struct gpunvme_stream *none;

	(void)state;
	driver->foreign_stream = own;
	refused(t.run, own, -EXDEV, "belongs to another GPU");
	driver->foreign_stream = NULL;
	streams_drop(&t.streams, own);
	assert_int_equal(gpunvme_stream_create(t.pair.gpu, &none), -EOPNOTSUPP);
}

static void memory_that_threads_cannot_access_is_refused(void **state)
{
	struct gpunvme_transfer *unknown = aligned_alloc(4096, 4096);
	struct gpunvme_dfile file = { .head = GPUNVME_HEAD(GPUNVME_KIND_FILE, struct gpunvme_dfile), .extents = 1, .bytes = BLOCK };
	struct gpunvme_dbuf dbuf = t.pair.dbuf;
	struct gpunvme_run bad = t.run;

	(void)state;
	bad.list = (uintptr_t)unknown;
	refused(bad, NULL, -EFAULT, "the list at");
	bad.list = t.run.list;
	bad.count = BUFFER; /* after the end of the buffer's allocation, whatever the library has put there */
	refused(bad, NULL, -ERANGE, "ends after its allocation");
	bad = t.run;
	bad.dbuf = &dbuf;
	dbuf.base = (uintptr_t)unknown;
	refused(bad, NULL, -EFAULT, "the buffer at");
	dbuf.base = t.pair.dbuf.base;
	dbuf.len = 1ull << 40;
	refused(bad, NULL, -ERANGE, "the buffer of");
	bad = t.run;
	bad.file = &file;
	file.table = (uintptr_t)unknown; /* as that of a file that was closed */
	refused(bad, NULL, -EFAULT, "the table of the file at");
	free(unknown);
}

/* What a view of a volume names, and its buffer. */
static void parts_of_a_volume_are_looked_at(void **state)
{
	static struct gpunvme_transfer unknown[64];
	struct gpunvme_dvol vol = { .head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, struct gpunvme_dvol), .members = 1, .queues = 1 };
	struct gpunvme_dvbuf vbuf = { .base = t.pair.dbuf.base, .len = BLOCK, .member = t.pair.dbuf.base };
	struct gpunvme_run bad = t.run;

	(void)state;
	bad.dq = NULL;
	bad.dbuf = NULL;
	bad.vol = &vol;
	bad.vbuf = &vbuf;
	vol.dq = (uintptr_t)unknown;
	refused(bad, NULL, -EFAULT, "the view of the volume at");
	vol.dq = t.pair.dbuf.base;
	vbuf.member = (uintptr_t)unknown;
	refused(bad, NULL, -EFAULT, "the buffer of the volume at");
	vbuf.member = t.pair.dbuf.base;
	vbuf.base = (uintptr_t)unknown;
	refused(bad, NULL, -EFAULT, "the buffer at");
}

/* Memory and queues of a second GPU. */
static void what_another_gpu_has_is_refused(void **state)
{
	struct gpunvme_run bad = t.run;
	struct gpunvme_gpu *other;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	(void)state;
	good(gpunvme_gpu_open("cuda:1", NULL, &other));
	good(gpunvme_queue_create(t.pair.dev, other, NULL, &qp));
	good(gpunvme_queue_view(qp, NULL, &dq));
	bad.dq = &dq;
	refused(bad, NULL, -EXDEV, "queue for other threads");
	bad = t.run;
	bad.list = dq.state;
	refused(bad, NULL, -EXDEV, "the list is memory of another GPU");
	gpunvme_queue_destroy(qp);
	gpunvme_gpu_close(other);
}

/* Its state has been freed, and a kernel that looks there would end the context. */
static void a_closed_device_is_refused(void **state)
{
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	struct gpunvme_run bad = t.run;

	(void)state;
	good(gpunvme_dev_open("soft:ram:1M", NULL, &dev));
	good(gpunvme_queue_create(dev, t.pair.gpu, NULL, &qp));
	good(gpunvme_queue_view(qp, NULL, &dq));
	bad.dq = &dq;
	gpunvme_queue_destroy(qp);
	good(gpunvme_dev_close(dev));
	refused(bad, NULL, -EXDEV, "one that is gone");
}

/*
 * A stream that is captured: the call runs nothing, and each launch of the graph does, with the arguments of the call and with what
 * the list holds by then.
 */
static void a_graph_has_it_as_a_node(void **state)
{
	void *own = streams_make(&t.streams);
	struct gpunvme_dq dq = t.pair.dq;
	struct gpunvme_run run = t.run;

	(void)state;
	driver->capture = own;
	run.dq = &dq;
	set(0, 0, 0, 0);
	good(gpunvme_run_on_stream(t.pair.gpu, own, &run));
	memset(&dq, 0, sizeof(dq));
	driver->capture = NULL;
	assert_int_equal(t.list[0].result, 99);
	memset(t.data, 0xee, BUFFER / 4);
	set(0, BLOCK, 0, 0);
	driver->replay();
	assert_int_equal(t.list[0].result, BLOCK);
	assert_true(holds(0, 0x11));
	set(0, 2 * BLOCK, BLOCK, 0);
	driver->replay();
	assert_int_equal(t.list[0].result, BLOCK);
	assert_true(holds(0, 0x11));
	assert_true(holds(BLOCK, 0x12));
	set(0, 2 * BLOCK, BUFFER, 0);
	t.list[0].result = BLOCK; /* of the run before */
	driver->replay();
	assert_int_equal(t.list[0].result, -ERANGE);
	streams_drop(&t.streams, own);
}

/* Memory of the GPU, as torch has it (cuMemAllocAsync()). The context is current, as after streams_begin(). */
static void *gpu_memory(size_t len)
{
	int (*alloc)(gnv_cuda_ptr *at, size_t bytes, void *stream);
	gnv_cuda_ptr at;

	streams_symbol(t.streams.driver, "cuMemAllocAsync", &alloc);
	assert_int_equal(alloc(&at, len, NULL), 0);
	return (void *)(uintptr_t)at;
}

static void free_gpu_memory(void *ptr)
{
	int (*release)(gnv_cuda_ptr at, void *stream);

	streams_symbol(t.streams.driver, "cuMemFreeAsync", &release);
	assert_int_equal(release((uintptr_t)ptr, NULL), 0);
}

/* The drive does not reach it, so data lands. Memory that was freed meanwhile is refused, and what the drive reaches needs no landing. */
static void memory_of_the_gpu_lands(void **state)
{
	const struct gpunvme_landing_opts opts = { sizeof(opts), 0, 2 };
	struct gpunvme_landing_info info = { .size = sizeof(info) };
	struct gpunvme_landing *landing;
	struct gpunvme_target target, direct;
	struct gpunvme_run run = t.run;
	uint8_t *at = gpu_memory(BUFFER);

	(void)state;
	good(gpunvme_landing_create(t.pair.qp, &opts, &landing));
	good(gpunvme_landing_get(landing, at, BUFFER, 0, &target));
	good(gpunvme_landing_get(landing, t.data, BLOCK, 0, &direct));
	assert_int_equal(target.way, GPUNVME_TARGET_LANDING);
	assert_int_equal(direct.way, GPUNVME_TARGET_DIRECT);
	good(gpunvme_landing_get_info(landing, &info));
	assert_int_equal(info.landing, 1);
	assert_int_equal(info.direct, 1);
	run.dbuf = NULL;
	run.target = &target;
	set(0, BLOCK - 3, 5, 0);
	t.list[0].len = BLOCK + 9;
	good(gpunvme_run_on_stream(t.pair.gpu, NULL, &run));
	streams_wait(&t.streams, NULL);
	assert_int_equal(t.list[0].result, BLOCK + 9);
	assert_int_equal(at[5 + 2], 0x10);
	assert_int_equal(at[5 + 3], 0x11);
	assert_int_equal(at[5 + BLOCK + 2], 0x11);
	assert_int_equal(at[5 + BLOCK + 8], 0x12);
	assert_int_equal(gpunvme_landing_get(landing, at + BLOCK, BUFFER, 0, &direct), -ERANGE);
	free_gpu_memory(at);
	refused(run, NULL, -EFAULT, "the target at");
	assert_int_equal(gpunvme_landing_get(landing, at, BUFFER, 0, &direct), -EFAULT);
	good(gpunvme_landing_put(&target));
	good(gpunvme_landing_put(&direct));
	good(gpunvme_landing_destroy(landing));
}

#define THREADS 8
static struct {
	struct pair pair;
	pthread_barrier_t barrier;
	struct starter {
		pthread_t thread;
		void *stream;
		struct gpunvme_transfer *transfer;
		struct gpunvme_run run;
		int ret;
	} starter[THREADS];
} other; /* a second handle of the GPU */

static void open_other(void)
{
	uint32_t i;

	pair_open(&other.pair, "soft:ram:1M", "cuda:0", BUFFER);
	for (i = 0; i < THREADS; i++) {
		struct starter *s = &other.starter[i];

		s->transfer = (struct gpunvme_transfer *)(void *)((char *)gpunvme_mem_ptr(other.pair.mem) + LIST) + i;
		*s->transfer = (struct gpunvme_transfer){ 0, i * BLOCK, BLOCK, 0, 99, 99 };
		s->stream = streams_make(&t.streams);
		s->run = t.run;
		s->run.dq = &other.pair.dq;
		s->run.dbuf = &other.pair.dbuf;
		s->run.list = other.pair.dbuf.base + LIST + i * sizeof(*s->transfer);
	}
}

static void close_other(void)
{
	uint32_t i;

	for (i = 0; i < THREADS; i++)
		streams_drop(&t.streams, other.starter[i].stream);
	pair_close(&other.pair);
	assert_int_equal(driver->modules, 2);
}

static void *start(void *arg)
{
	struct starter *s = arg;

	pthread_barrier_wait(&other.barrier);
	s->ret = gpunvme_run_on_stream(other.pair.gpu, s->stream, &s->run);
	return NULL;
}

/* Opening a GPU does not compile them. The first lists of several threads load them once for each handle. */
static void kernels_are_loaded_with_the_first_list(void **state)
{
	uint32_t i;

	(void)state;
	assert_int_equal(driver->modules, 2); /* what opening loads, and the kernels of begin()'s lists */
	open_other();
	assert_int_equal(driver->modules, 3);
	pthread_barrier_init(&other.barrier, NULL, THREADS);
	for (i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&other.starter[i].thread, NULL, start, &other.starter[i]), 0);
	for (i = 0; i < THREADS; i++) {
		pthread_join(other.starter[i].thread, NULL);
		good(other.starter[i].ret);
		streams_wait(&t.streams, other.starter[i].stream);
		assert_int_equal(other.starter[i].transfer->result, BLOCK);
	}
	assert_int_equal(driver->modules, 4);
	pthread_barrier_destroy(&other.barrier);
	close_other();
}

static void loading_fails(const char *call, unsigned skip, int error, int want, const char *text)
{
	struct starter *s = &other.starter[0];

	driver->error = error;
	driver->skip = skip;
	driver->fail = call;
	assert_int_equal(gpunvme_run_on_stream(other.pair.gpu, s->stream, &s->run), want);
	driver->fail = NULL;
	driver->skip = 0;
	if (!strstr(gpunvme_errmsg(), text))
		fail_msg("no '%s' in '%s'", text, gpunvme_errmsg());
	assert_int_equal(driver->modules, 3); /* nothing of it is left */
}

static void a_load_that_fails_is_tried_again(void **state)
{
	struct starter *s = &other.starter[0];

	(void)state;
	open_other();
	loading_fails("cuModuleLoadDataEx", 0, 222, -EOPNOTSUPP, "cannot use the library's kernels (CUDA error 222): line 1: not for me");
	loading_fails("cuModuleLoadDataEx", 0, GNV_CUDA_OUT_OF_MEMORY, -ENOMEM, "cannot use the library's kernels (CUDA error 2)");
	loading_fails("cuModuleLoadDataEx", 0, GNV_CUDA_ILLEGAL_ADDRESS, -EIO, "Restart the program");
	loading_fails("cuModuleGetFunction", 1, GNV_CUDA_OUT_OF_MEMORY, -ENOMEM, "gnvk_stream_file: out of memory");
	streams_wait(&t.streams, s->stream);
	assert_int_equal(s->transfer->result, 99);
	good(gpunvme_run_on_stream(other.pair.gpu, s->stream, &s->run));
	streams_wait(&t.streams, s->stream);
	assert_int_equal(s->transfer->result, BLOCK);
	assert_int_equal(driver->modules, 4);
	close_other();
}

static void *use_other(void *arg)
{
	struct gpunvme_gpu *third;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;

	(void)arg;
	good(gpunvme_mem_alloc(other.pair.gpu, NULL, BUFFER, NULL, &mem));
	good(gpunvme_mem_map(mem, other.pair.dev));
	good(gpunvme_queue_create(other.pair.dev, other.pair.gpu, NULL, &qp)); /* its self-test is a kernel */
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(mem));
	good(gpunvme_gpu_open("cuda:0", NULL, &third));
	gpunvme_gpu_close(third);
	return NULL;
}

/*
 * A stream is captured for all threads (CU_STREAM_CAPTURE_MODE_GLOBAL, the default of torch). What this thread and another one call
 * then does not end it, nor does loading code for the first list.
 */
static void captures_stay_valid(void **state)
{
	struct starter *s = &other.starter[0];
	pthread_t thread;

	(void)state;
	open_other();
	driver->capture = s->stream;
	good(gpunvme_run_on_stream(other.pair.gpu, s->stream, &s->run));
	assert_int_equal(driver->modules, 4);
	use_other(NULL);
	assert_int_equal(pthread_create(&thread, NULL, use_other, NULL), 0);
	pthread_join(thread, NULL);
	good(gpunvme_run_on_stream(other.pair.gpu, s->stream, &s->run));
	assert_false(driver->capture_lost);
	assert_int_equal(driver->thread_mode(), GNV_CUDA_CAPTURE_GLOBAL);
	driver->capture = NULL;
	assert_int_equal(s->transfer->result, 99);
	driver->replay();
	assert_int_equal(s->transfer->result, BLOCK);
	close_other();
}

static void fails_by(const char *call, int error, int want)
{
	driver->error = error;
	driver->fail = call;
	assert_int_equal(gpunvme_run_on_stream(t.pair.gpu, NULL, &t.run), want);
	driver->fail = NULL;
}

/* Each call of the driver, with what it may say. */
static void the_driver_refuses(void **state)
{
	(void)state;
	set(0, 0, 0, 0);
	fails_by("cuThreadExchangeStreamCaptureMode", GNV_CUDA_OUT_OF_MEMORY, -ENOMEM);
	fails_by("cuCtxPushCurrent_v2", GNV_CUDA_OUT_OF_MEMORY, -ENOMEM);
	assert_int_equal(driver->thread_mode(), GNV_CUDA_CAPTURE_GLOBAL);
	fails_by("cuPointerGetAttribute", GNV_CUDA_OUT_OF_MEMORY, -ENOMEM);
	fails_by("cuStreamGetCtx", GNV_CUDA_INVALID_VALUE, -EIO);
	fails_by("cuLaunchKernel", GNV_CUDA_OUT_OF_MEMORY, -ENOMEM);
	fails_by("cuLaunchKernel", 906, -EIO); /* the default stream, while another one is captured (CU_STREAM_CAPTURE_MODE_GLOBAL) */
	assert_int_equal(t.list[0].result, 99);
	reads_by(NULL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, end)
	const struct CMUnitTest tests[] = {
		CASE(every_kind_of_stream_works),
		CASE(streams_of_others_are_refused),
		CASE(memory_that_threads_cannot_access_is_refused),
		CASE(parts_of_a_volume_are_looked_at),
		CASE(what_another_gpu_has_is_refused),
		CASE(a_closed_device_is_refused),
		CASE(memory_of_the_gpu_lands),
		CASE(a_graph_has_it_as_a_node),
		CASE(the_driver_refuses),
		CASE(kernels_are_loaded_with_the_first_list),
		CASE(a_load_that_fails_is_tried_again),
		CASE(captures_stay_valid),
	};

	return cmocka_run_group_tests(tests, begin_group, NULL);
}
