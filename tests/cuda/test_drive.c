/* SPDX-License-Identifier: MIT */
/*
 * A drive that runs on an NVIDIA GPU, with the mock driver and with the machine's: launches that run after one another, memory that
 * drive and threads share, what is refused.
 */
#include "cuda/drive_rig.h"

#include <errno.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gpunvme/unstable.h>

#include "os/nvidia/cuda.h"
#include "os/nvidia/uapi/cuda.h"

#define BAR 8192u /* bytes, with two queues */

static void lanes_of_cpus_use_it(void **state)
{
	struct rig r;

	(void)state;
	open_rig(&r, DRIVE, "cpu");
	write_and_read(&r);
	close_rig(&r);
}

static void lanes_of_the_same_gpu_use_it(void **state)
{
	struct rig r;

	(void)state;
	open_rig(&r, DRIVE, "cuda:0");
	write_and_read(&r);
	close_rig(&r);
}

/* ---- Memory of the GPU ---- */

/* A queue with these flags, and a buffer with these. */
static void open_in_memory_of_gpu(struct rig *r, const char *uri, const char *lanes, uint32_t queue_flags, uint32_t mem_flags)
{
	const struct gpunvme_queue_opts opts = { .size = sizeof(opts), .flags = queue_flags, .depth = 64 };
	const struct gpunvme_mem_opts mem_opts = { sizeof(mem_opts), mem_flags, 0 };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct pair *p = &r->pair;

	memset(r, 0, sizeof(*r));
	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_dev_open(uri, NULL, &p->dev));
	good(gpunvme_gpu_open(lanes, NULL, &p->gpu));
	good(gpunvme_queue_create(p->dev, p->gpu, &opts, &p->qp));
	good(gpunvme_queue_view(p->qp, &view, &p->dq));
	good(gpunvme_mem_alloc(p->gpu, p->qp, COMMANDS * 4096, &mem_opts, &p->mem));
	good(gpunvme_mem_map(p->mem, p->dev));
	good(gpunvme_mem_dbuf(p->mem, p->dev, &p->dbuf));
	assert_null(gpunvme_mem_ptr(p->mem));
}

static void data_lies_in_memory_of_the_gpu(void **state)
{
	static const char *const uris[] = { DRIVE "&link=0", DRIVE "&link=10M", "soft:ram:4M?queues=2" };
	struct rig r;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(uris) / sizeof(uris[0]); i++) {
		open_in_memory_of_gpu(&r, uris[i], "cuda:0", 0, GPUNVME_MEM_VRAM);
		write_and_read_there(&r);
		close_rig(&r);
	}
}

static const char *placement_of(struct gpunvme_queue *qp)
{
	static struct gpunvme_queue_info info;

	info.size = sizeof(info);
	good(gpunvme_queue_get_info(qp, &info));
	return info.placement;
}

/* After a recovery or a reset. */
static void view_again(struct rig *r)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	view.flags = GPUNVME_VIEW_WRITE;
	gpunvme_queue_retire(r->pair.qp);
	good(gpunvme_queue_view(r->pair.qp, &view, &r->pair.dq));
}

/* The data then lies there, too, without a flag. */
static void rings_lie_in_memory_of_the_gpu(void **state)
{
	struct rig r;

	(void)state;
	open_in_memory_of_gpu(&r, DRIVE "&link=0", "cuda:0", GPUNVME_QUEUE_VRAM, 0);
	assert_string_equal(placement_of(r.pair.qp), "soft+vram");
	write_and_read_there(&r);
	good(gpunvme_queue_recover(r.pair.qp));
	view_again(&r);
	write_and_read_there(&r);
	good(gpunvme_dev_reset(r.pair.dev));
	view_again(&r);
	write_and_read_there(&r);
	close_rig(&r);
	open_in_memory_of_gpu(&r, DRIVE "&link=0&slice=1&fault=delay:3000", "cuda:0", GPUNVME_QUEUE_VRAM, 0);
	write_and_read_there(&r);
	close_rig(&r);
}

/* Completions, data and commands in the order that queues need. */
static void order_is_kept_there(void **state)
{
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	struct gpunvme_ordering seen = GPUNVME_ORDERING_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;

	(void)state;
	opts.queue_flags = GPUNVME_QUEUE_VRAM;
	opts.commands = mock_driver() ? 200 : 20000;
	good(gpunvme_dev_open(DRIVE "&link=0", NULL, &dev));
	good(gpunvme_gpu_open("cuda:0", NULL, &gpu));
	good(gpunvme_gpu_ordering_test(dev, gpu, &opts, &seen));
	assert_int_equal(seen.failed, 0);
	assert_true(seen.queue_flags & GPUNVME_QUEUE_VRAM);
	gpunvme_gpu_close(gpu);
	good(gpunvme_dev_close(dev));
}

/* Memory of one GPU, a drive on another. */
static void memory_of_a_peer(void **state)
{
	struct cuda_mock *driver = mock_driver();
	struct gpunvme_gpu *other;
	struct rig r;

	(void)state;
	if (driver)
		driver->devices = 2;
	if (gpunvme_gpu_open("cuda:1", NULL, &other))
		skip();
	gpunvme_gpu_close(other);
	open_in_memory_of_gpu(&r, "soft:vram:4M?on=cuda:1&queues=2&link=0", "cuda:0", GPUNVME_QUEUE_VRAM, 0);
	if (driver)
		assert_int_equal(driver->access[0], 1u << 1);
	write_and_read_there(&r);
	close_rig(&r);
}

static void is_refused_there(const char *uri, const char *lanes, uint32_t mem_flags, int ret, const char *says)
{
	const struct gpunvme_mem_opts opts = { sizeof(opts), mem_flags, 0 };
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;

	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open(lanes, NULL, &gpu));
	good(gpunvme_mem_alloc(gpu, NULL, 8192, &opts, &mem));
	assert_int_equal(gpunvme_mem_map(mem, dev), ret);
	if (!strstr(gpunvme_errmsg(), says))
		fail_msg("%s: %s", uri, gpunvme_errmsg());
	good(gpunvme_mem_free(mem));
	gpunvme_gpu_close(gpu);
	good(gpunvme_dev_close(dev));
}

/* What would go past the link of the drive, and what the drive does not reach. */
static void memory_of_the_gpu_that_is_refused(void **state)
{
	struct cuda_mock *driver = mock_driver();
	const struct gpunvme_queue_opts opts = { .size = sizeof(opts), .flags = GPUNVME_QUEUE_VRAM, .depth = 64 };
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	(void)state;
	is_refused_there(DRIVE, "cuda:0", GPUNVME_MEM_VRAM, -EOPNOTSUPP, "Add link=0");
	is_refused_there(DRIVE "&link=1000T", "cuda:0", GPUNVME_MEM_VRAM, -EOPNOTSUPP, "Add link=0");
	is_refused_there("soft:vram:4M", "cuda:0", GPUNVME_MEM_VRAM, -EOPNOTSUPP, "on=cuda:N");
	good(gpunvme_gpu_open("cuda:0", NULL, &gpu));
	good(gpunvme_dev_open("soft:ram:4M", NULL, &dev));
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "cannot have rings in memory that has no CPU address"));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	if (!driver)
		return;
	driver->devices = 2;
	driver->apart = true;
	is_refused_there("soft:vram:4M?on=cuda:1&queues=2&link=0", "cuda:0", GPUNVME_MEM_VRAM, -EXDEV, "no peer access");
	driver->apart = false;
	driver->fail = "cuMemPoolSetAccess";
	driver->error = GNV_CUDA_INVALID_VALUE;
	is_refused_there("soft:vram:4M?on=cuda:1&queues=2&link=0", "cuda:0", GPUNVME_MEM_VRAM, -EIO, "memory of another GPU");
	driver->fail = NULL;
}

/* The same memory is a drive's and the threads': whichever lets go first, the other still reaches it. */
static void memory_outlives_one_of_its_users(void **state)
{
	struct gpunvme_dev *other;
	struct rig r;

	(void)state;
	open_rig(&r, DRIVE, "cuda:0");
	good(gpunvme_dev_open(DRIVE, NULL, &other));
	good(gpunvme_mem_map(r.pair.mem, other));
	write_and_read(&r);
	good(gpunvme_mem_unmap(r.pair.mem, other));
	write_and_read(&r);
	good(gpunvme_mem_map(r.pair.mem, other));
	good(gpunvme_dev_close(other)); /* which ends that */
	write_and_read(&r);
	close_rig(&r);
}

/* image=FILE: what the file has is in the memory of the GPU before the kernel runs. */
static void a_drive_begins_with_an_image(void **state)
{
	char path[] = "/tmp/gpunvme-image-XXXXXX", uri[120];
	const int fd = mkstemp(path);
	unsigned char *image = malloc(1 << 20), *p;
	struct rig r;
	uint32_t i;

	(void)state;
	assert_true(fd >= 0);
	assert_non_null(image);
	for (i = 0; i < 1 << 20; i++)
		image[i] = stamp(i >> 12, i);
	assert_int_equal(write(fd, image, 1 << 20), 1 << 20);
	snprintf(uri, sizeof(uri), DRIVE "&image=%s", path);
	open_rig(&r, uri, "cuda:0");
	p = gpunvme_mem_ptr(r.pair.mem);
	move_all(&r, GPUNVME_IO_READ);
	for (i = 0; i < COMMANDS; i++)
		if (i * 37 % COMMANDS * 4096 < 1 << 20)
			assert_memory_equal(p + i * 4096, image + i * 37 % COMMANDS * 4096, (i % 8 + 1) * 512);
		else
			assert_int_equal(p[i * 4096], 0);
	close_rig(&r);
	free(image);
	assert_int_equal(close(fd) | unlink(path), 0);
}

static void commands_outlive_launches(void **state)
{
	struct rig r;

	(void)state;
	open_rig(&r, DRIVE "&slice=1&fault=delay:5000", "cpu");
	write_and_read(&r);
	close_rig(&r);
	open_rig(&r, DRIVE "&lat_us=3000&iops=100000", "cpu");
	write_and_read(&r);
	close_rig(&r);
}

/*
 * A kernel fails, and the context ends with it. The controller reports a fatal status, a reset does not bring it back, closing
 * ends. What the driver has pinned is not unmapped.
 */
static void the_context_ends(void **state)
{
	struct cuda_mock *driver = mock_driver();
	char why[300] = "";
	static struct rig r; /* its memory stays, for LeakSanitizer, too */
	uint32_t value;

	(void)state;
	if (!driver)
		skip();
	open_rig(&r, DRIVE, "cpu");
	assert_int_equal(driver->have(BAR), 1);
	write_and_read(&r);
	driver->kernel_error = GNV_CUDA_ILLEGAL_ADDRESS;
	while (!gpunvme_dev_get_feature(r.pair.dev, 7, &value)) /* number of queues */
		;
	snprintf(why, sizeof(why), "%s", gpunvme_errmsg());
	if (!strstr(why, "CFS"))
		fail_msg("%s", why);
	assert_int_not_equal(gpunvme_dev_reset(r.pair.dev), 0);
	gpunvme_queue_destroy(r.pair.qp);
	assert_int_equal(gpunvme_mem_free(r.pair.mem), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "keeps them until the process ends"));
	good(gpunvme_dev_close(r.pair.dev));
	assert_int_equal(gpunvme_mem_free(r.pair.mem), -EBUSY); /* nor later */
	gpunvme_gpu_close(r.pair.gpu);
	assert_true(driver->registrations > 2); /* registers, rings, the buffer */
	assert_int_equal(driver->lost(), 0);
	driver->forget();
}

struct served {
	char dir[32];
	struct gpunvme_server *server;
	struct rig client;
};

static void serve(struct served *s)
{
	char socket[64], uri[80];

	strcpy(s->dir, "/tmp/gpunvme-drive-XXXXXX");
	assert_non_null(mkdtemp(s->dir));
	snprintf(socket, sizeof(socket), "%s/s", s->dir);
	snprintf(uri, sizeof(uri), "vfio-user:%s", socket);
	good(gpunvme_server_start(DRIVE, socket, NULL, &s->server));
	open_rig(&s->client, uri, "cpu");
}

/* Return: registrations that stay. Their memory is still mapped. */
static int end_served(struct served *s, struct cuda_mock *driver)
{
	int stay;

	close_rig(&s->client);
	good(gpunvme_server_stop(s->server));
	stay = driver->registrations;
	assert_int_equal(driver->lost(), 0);
	driver->forget();
	remove(s->dir);
	return stay;
}

/* The same of a drive that is served: the client gets its memory back, and the server keeps what the driver has pinned of it. */
static void the_context_of_a_served_drive_ends(void **state)
{
	struct cuda_mock *driver = mock_driver();
	struct served s;
	uint32_t value;

	(void)state;
	if (!driver)
		skip();
	serve(&s);
	write_and_read(&s.client);
	__atomic_store_n(&driver->kernel_error, GNV_CUDA_ILLEGAL_ADDRESS, __ATOMIC_RELEASE);
	while (!gpunvme_dev_get_feature(s.client.pair.dev, 7, &value))
		;
	assert_true(end_served(&s, driver) > 2);
}

/* On a busy machine the threads of the mock may stop for longer than those of a GPU do: the drive's launch stays for longer. */
static bool stays_long; /* atomic */
static bool refuses; /* atomic: no region can be written to the drive's memory */
int __real_gnv_cuda_write(struct gnv_cuda *cuda, uint64_t at, const void *from, size_t len);
int __wrap_gnv_cuda_write(struct gnv_cuda *cuda, uint64_t at, const void *from, size_t len);
int __wrap_gnv_cuda_write(struct gnv_cuda *cuda, uint64_t at, const void *from, size_t len)
{
	const uint32_t long_us = 5000000, short_us = 10000;

	if (len == sizeof(struct gnv_vd_region) && __atomic_load_n(&refuses, __ATOMIC_ACQUIRE))
		return -EIO;
	if (__atomic_load_n(&stays_long, __ATOMIC_ACQUIRE) && len == sizeof(short_us) && !memcmp(from, &short_us, len))
		from = &long_us;
	return __real_gnv_cuda_write(cuda, at, from, len);
}

/*
 * A drive that is served refuses memory of the client, and the driver keeps it registered. The client gets an error and has its
 * memory back. The server keeps its own map: other pages at that address would be the GPU's old ones.
 */
static void refused_memory_of_a_client_stays(void **state)
{
	struct cuda_mock *driver = mock_driver();
	struct gpunvme_mem *mem;
	struct served s;
	int before;

	(void)state;
	if (!driver)
		skip();
	serve(&s);
	good(gpunvme_mem_alloc(s.client.pair.gpu, s.client.pair.qp, 65536, NULL, &mem));
	before = driver->registrations;
	driver->error = GNV_CUDA_OUT_OF_MEMORY;
	__atomic_store_n(&driver->fail, "cuMemHostUnregister", __ATOMIC_RELEASE);
	__atomic_store_n(&refuses, true, __ATOMIC_RELEASE);
	assert_int_equal(gpunvme_mem_map(mem, s.client.pair.dev), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "Input/output error"));
	__atomic_store_n(&refuses, false, __ATOMIC_RELEASE);
	__atomic_store_n(&driver->fail, NULL, __ATOMIC_RELEASE);
	assert_int_equal(driver->registrations, before + 1);
	assert_int_equal(driver->lost(), 0);
	good(gpunvme_mem_map(mem, s.client.pair.dev)); /* by a new map of the server */
	good(gpunvme_mem_free(mem));
	write_and_read(&s.client);
	assert_int_equal(end_served(&s, driver), 1);
}

/* Copies from the GPU fail for a while: for some looks of the drive's threads, or until the controller has a fatal status. */
static void errors_that_pass(bool fatal)
{
	struct cuda_mock *driver = mock_driver();
	const unsigned before = driver ? driver->failed : 0;
	struct rig r;
	uint32_t value;

	if (!driver)
		skip();
	open_rig(&r, DRIVE, "cpu");
	write_and_read(&r);
	driver->error = GNV_CUDA_OUT_OF_MEMORY;
	driver->most = fatal ? 0 : before + 9;
	__atomic_store_n(&driver->fail, "cuMemcpyDtoHAsync_v2", __ATOMIC_RELEASE);
	while (fatal ? !gpunvme_dev_get_feature(r.pair.dev, 7, &value) : __atomic_load_n(&driver->failed, __ATOMIC_ACQUIRE) - before < 9)
		sched_yield();
	if (fatal && !strstr(gpunvme_errmsg(), "CFS"))
		fail_msg("%s", gpunvme_errmsg());
	__atomic_store_n(&driver->fail, NULL, __ATOMIC_RELEASE);
	if (fatal) {
		good(gpunvme_dev_reset(r.pair.dev));
		good(gpunvme_dev_get_feature(r.pair.dev, 7, &value));
	} else {
		write_and_read(&r);
	}
	close_rig(&r);
}

static void a_drive_outlives_errors_that_pass(void **state)
{
	(void)state;
	errors_that_pass(false);
}

static void a_reset_brings_a_drive_back(void **state)
{
	(void)state;
	errors_that_pass(true);
}

struct reads {
	struct rig *rig;
	uint32_t stop; /* atomic */
	int ret;
};

/* Kernel after kernel. */
static void *run_reads(void *arg)
{
	struct reads *reads = arg;
	struct rig *r = reads->rig;
	struct gpunvme_workload load = GPUNVME_WORKLOAD_INIT;

	load.flags = GPUNVME_WORKLOAD_RANDOM;
	load.threads = LANES;
	load.nblocks = 8;
	load.ms = 300;
	do
		reads->ret = gpunvme_workload_run(r->pair.gpu, &r->pair.dq, 1, &r->pair.dbuf, &load);
	while (!reads->ret && !__atomic_load_n(&reads->stop, __ATOMIC_ACQUIRE));
	__atomic_store_n(&reads->stop, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Until one more is read, or the thread has ended. */
static void await_a_read(const struct reads *reads)
{
	const uint64_t before = pair_submitted(&reads->rig->pair);

	while (pair_submitted(&reads->rig->pair) == before && !__atomic_load_n(&reads->stop, __ATOMIC_ACQUIRE))
		sched_yield();
}

/*
 * To unregister memory, the driver waits for the kernels that run and launches nothing meanwhile. The kernel of the reads waits for
 * the drive's on the same GPU. Both go on, because the library unregisters between two kernels.
 */
static void memory_goes_while_a_long_kernel_reads(void **state)
{
	struct gpunvme_mem *other;
	struct reads reads;
	pthread_t thread;
	struct rig r;
	int i;

	(void)state;
	open_rig(&r, DRIVE, "cuda:0");
	reads = (struct reads){ .rig = &r };
	assert_int_equal(pthread_create(&thread, NULL, run_reads, &reads), 0);
	for (i = 0; i < 3; i++) {
		good(gpunvme_mem_alloc(r.pair.gpu, r.pair.qp, 65536, NULL, &other));
		good(gpunvme_mem_map(other, r.pair.dev));
		await_a_read(&reads);
		good(gpunvme_mem_unmap(other, r.pair.dev));
		good(gpunvme_mem_free(other));
	}
	__atomic_store_n(&reads.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	good(reads.ret);
	write_and_read(&r);
	close_rig(&r);
}

/* ---- A kernel of the program's, which the library does not know; for the mock driver ---- */

struct own_args {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	uint32_t *reads, *errors; /* atomic */
};

static void own_lane(void *pointer)
{
	struct own_args *args = pointer;
	uint32_t i;

	for (i = 0; i < 1000; i++) {
		if (gpunvme_read(&args->dq, &args->dbuf, gpunvme_thread_id() * 4096ull, i % 64 * 4096ull, 4096))
			__atomic_fetch_add(args->errors, 1, __ATOMIC_RELAXED);
		__atomic_fetch_add(args->reads, 1, __ATOMIC_RELEASE);
	}
}

VISIBLE int own_kernel(uint32_t lanes, uint32_t width, void *args);
VISIBLE int own_kernel(uint32_t lanes, uint32_t width, void *args)
{
	return gpunvme_cpu_launch(lanes, width, own_lane, args);
}
VISIBLE extern const size_t own_kernel_args;
const size_t own_kernel_args = sizeof(struct own_args);

static void *in_library(const char *name)
{
	void *library = dlopen(getenv("GPUNVME_CUDA_LIBRARY"), RTLD_NOW | RTLD_NOLOAD), *symbol = dlsym(library, name);

	dlclose(library);
	assert_non_null(symbol);
	return symbol;
}

static void launch_own(struct own_args *args)
{
	gnv_cuda_retain_fn *retain;
	gnv_cuda_release_fn *release;
	gnv_cuda_push_fn *push;
	gnv_cuda_pop_fn *pop;
	gnv_cuda_stream_create_fn *create;
	gnv_cuda_stream_fn *destroy;
	gnv_cuda_function_fn *find;
	gnv_cuda_launch_fn *launch;
	void *context, *stream, *function, *params[] = { args };

	*(void **)&retain = in_library("cuDevicePrimaryCtxRetain");
	*(void **)&release = in_library("cuDevicePrimaryCtxRelease_v2");
	*(void **)&push = in_library("cuCtxPushCurrent_v2");
	*(void **)&pop = in_library("cuCtxPopCurrent_v2");
	*(void **)&create = in_library("cuStreamCreate");
	*(void **)&destroy = in_library("cuStreamDestroy_v2");
	*(void **)&find = in_library("cuModuleGetFunction");
	*(void **)&launch = in_library("cuLaunchKernel");
	assert_int_equal(retain(&context, 40), 0);
	assert_int_equal(push(context), 0);
	assert_int_equal(create(&stream, GNV_CUDA_STREAM_NON_BLOCKING), 0);
	assert_int_equal(find(&function, NULL, "own_kernel"), 0);
	assert_int_equal(launch(function, 1, 1, 1, 8, 1, 1, 0, stream, params, NULL), 0);
	assert_int_equal(destroy(stream), 0); /* when the kernel has ended */
	assert_int_equal(pop(&context), 0);
	assert_int_equal(release(40), 0);
}

/* The same for such a kernel, which no call of the library waits for: the drive's last launch stays. */
static void memory_goes_while_a_kernel_of_the_program_reads(void **state)
{
	static uint32_t reads, errors;
	struct gpunvme_mem *other;
	struct own_args args;
	struct rig r;

	(void)state;
	if (!mock_driver())
		skip();
	open_rig(&r, DRIVE, "cuda:0");
	good(gpunvme_mem_alloc(r.pair.gpu, r.pair.qp, 65536, NULL, &other));
	good(gpunvme_mem_map(other, r.pair.dev));
	args = (struct own_args){ r.pair.dq, r.pair.dbuf, &reads, &errors };
	launch_own(&args);
	while (!__atomic_load_n(&reads, __ATOMIC_ACQUIRE))
		sched_yield();
	__atomic_store_n(&stays_long, true, __ATOMIC_RELEASE);
	good(gpunvme_mem_free(other));
	__atomic_store_n(&stays_long, false, __ATOMIC_RELEASE);
	assert_int_equal(__atomic_load_n(&reads, __ATOMIC_ACQUIRE), 8000); /* that was waited for */
	assert_int_equal(errors, 0);
	write_and_read(&r);
	close_rig(&r);
}

static uint64_t link_of(const char *uri)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_dev *dev;

	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_dev_get_info(dev, &info));
	good(gpunvme_dev_close(dev));
	assert_int_equal(info.no_link, strstr(uri, "link=0") != NULL);
	return info.link;
}

static uint32_t blocks_of(const char *uri)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_dev *dev;

	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_dev_get_info(dev, &info));
	good(gpunvme_dev_close(dev));
	return info.blocks;
}

/* A part of a GPU (MIG) may be smaller than the drive would be: then a block serves several queues. */
static void a_small_gpu(void **state)
{
	struct cuda_mock *driver = mock_driver();
	const char *uri = "soft:vram:4M?on=cuda:0&queues=6";
	struct gpunvme_dev *dev;

	(void)state;
	if (!driver)
		skip();
	assert_int_equal(blocks_of(uri), 6);
	driver->processors = 2;
	assert_int_equal(blocks_of(uri), 4);
	driver->groups = 0;
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "no multiprocessor"));
	driver->groups = 2;
	driver->processors = 132;
}

/* Each has its own blocks, and one that is closed takes nothing from the other. */
static void two_drives_on_one_gpu(void **state)
{
	static struct rig first, second;

	(void)state;
	open_rig(&first, DRIVE, "cuda:0");
	open_rig(&second, DRIVE, "cpu");
	write_and_read(&first);
	memset(gpunvme_mem_ptr(second.pair.mem), 0xff, COMMANDS * 4096);
	move_all(&second, GPUNVME_IO_READ);
	assert_int_equal(((unsigned char *)gpunvme_mem_ptr(second.pair.mem))[0], 0);
	write_and_read(&second);
	close_rig(&first);
	write_and_read(&second);
	close_rig(&second);
}

/* What a child of fork() does with the drive: nothing, and its parent does not notice. */
static void a_child_leaves_it_alone(void **state)
{
	struct rig r;
	int status;
	pid_t child;

	(void)state;
	open_in_memory_of_gpu(&r, DRIVE "&link=0", "cuda:0", GPUNVME_QUEUE_VRAM, 0);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(gpunvme_queue_destroy(r.pair.qp) != -ECHILD || gpunvme_mem_unmap(r.pair.mem, r.pair.dev) != -ECHILD ||
		      gpunvme_mem_free(r.pair.mem) != -ECHILD || gpunvme_dev_close(r.pair.dev) != -ECHILD);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	write_and_read_there(&r);
	close_rig(&r);
}

/* That of the GPU is measured, and a URI can only ask for a slower one. */
static void the_link_is_the_slower_one(void **state)
{
	const uint64_t petabyte = 1000000000000000;

	(void)state;
	assert_in_range(link_of(DRIVE), 1, petabyte - 1);
	assert_in_range(link_of(DRIVE "&link=1000T"), 1, petabyte - 1);
	assert_int_equal(link_of(DRIVE "&link=1000000"), 1000000);
	assert_int_equal(link_of(DRIVE "&link=0"), 0);
}

static void drives_that_cannot_be_are_refused(void **state)
{
	static const struct {
		const char *uri, *says;
		int ret;
	} cases[] = {
		{ "soft:vram:4M?on=cuda", "number of a GPU must follow", -EINVAL },
		{ "soft:vram:4M?on=cuda:x", "number of a GPU must follow", -EINVAL },
		{ "soft:vram:4M?on=cuda:1x", "number of a GPU must follow", -EINVAL },
		{ "soft:vram:4M?on=cuda:77", "numbered from 0", -ENODEV },
		{ "soft:vram:4M?on=cuda:0&slice=0", "slice=1 or more", -EINVAL },
		{ "soft:vram:60000000G?on=cuda:0", "Use a smaller size", -ENOMEM },
	};
	struct gpunvme_dev *dev;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const int ret = gpunvme_dev_open(cases[i].uri, NULL, &dev);

		if (ret != cases[i].ret || !strstr(gpunvme_errmsg(), cases[i].says))
			fail_msg("%s: %d, %s", cases[i].uri, ret, gpunvme_errmsg());
	}
}

static void cannot_be_opened(int error, const char *call, unsigned skip, int ret, const char *says)
{
	struct cuda_mock *driver = mock_driver();
	struct gpunvme_dev *dev;
	int got;

	driver->error = error;
	driver->skip = skip;
	driver->fail = call;
	got = gpunvme_dev_open(DRIVE "&link=0", NULL, &dev);
	driver->fail = NULL;
	driver->skip = 0;
	if (got != ret || !strstr(gpunvme_errmsg(), says))
		fail_msg("%s: %d, %s", call, got, gpunvme_errmsg());
}

/* Another process has the GPU alone, or its memory. Nothing stays (check()), whichever allocation fails. */
static void gpus_that_others_have_are_refused(void **state)
{
	(void)state;
	if (!mock_driver())
		skip();
	cannot_be_opened(GNV_CUDA_UNAVAILABLE, "cuDevicePrimaryCtxRetain", 0, -EIO, "exclusive compute mode");
	cannot_be_opened(GNV_CUDA_OUT_OF_MEMORY, "cuMemAllocAsync", 0, -ENOMEM, "Use a smaller size, or another GPU");
	cannot_be_opened(GNV_CUDA_OUT_OF_MEMORY, "cuMemAllocAsync", 1, -ENOMEM, "Use a smaller size, or another GPU");
	cannot_be_opened(GNV_CUDA_NO_DEVICE, "cuInit", 0, -ENODEV, "no GPU can be used");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(lanes_of_cpus_use_it, check),
		cmocka_unit_test_teardown(lanes_of_the_same_gpu_use_it, check),
		cmocka_unit_test_teardown(data_lies_in_memory_of_the_gpu, check),
		cmocka_unit_test_teardown(rings_lie_in_memory_of_the_gpu, check),
		cmocka_unit_test_teardown(order_is_kept_there, check),
		cmocka_unit_test_teardown(memory_of_a_peer, check),
		cmocka_unit_test_teardown(memory_of_the_gpu_that_is_refused, check),
		cmocka_unit_test_teardown(memory_outlives_one_of_its_users, check),
		cmocka_unit_test_teardown(a_drive_begins_with_an_image, check),
		cmocka_unit_test_teardown(commands_outlive_launches, check),
		cmocka_unit_test_teardown(memory_goes_while_a_long_kernel_reads, check),
		cmocka_unit_test_teardown(memory_goes_while_a_kernel_of_the_program_reads, check),
		cmocka_unit_test_teardown(a_drive_outlives_errors_that_pass, check),
		cmocka_unit_test_teardown(a_reset_brings_a_drive_back, check),
		cmocka_unit_test_teardown(the_context_ends, check),
		cmocka_unit_test_teardown(the_context_of_a_served_drive_ends, check),
		cmocka_unit_test_teardown(refused_memory_of_a_client_stays, check),
		cmocka_unit_test_teardown(a_small_gpu, check),
		cmocka_unit_test_teardown(two_drives_on_one_gpu, check),
		cmocka_unit_test_teardown(a_child_leaves_it_alone, check),
		cmocka_unit_test_teardown(the_link_is_the_slower_one, check),
		cmocka_unit_test_teardown(drives_that_cannot_be_are_refused, check),
		cmocka_unit_test_teardown(gpus_that_others_have_are_refused, check),
	};

	return is_skipped() ? 77 : cmocka_run_group_tests_name("drive", tests, NULL, NULL);
}
