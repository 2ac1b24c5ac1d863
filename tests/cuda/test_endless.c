/* SPDX-License-Identifier: MIT */
/*
 * A kernel of the program that never ends, next to a drive that runs on the same NVIDIA GPU: with the mock driver and with the
 * machine's. Calls of the driver that wait for all kernels would not return. Each case runs in a process of its own, and this one
 * ends it when it hangs.
 */
#include "cuda/drive_rig.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dev/dev.h"
#include "os/nvidia/uapi/cuda.h"
#include "soft/engine/threads.h"
#include "soft/soft.h"
#include "util/clock.h"

#define HANGS_S 120 /* no case waits for so long, also on a busy machine */
#define OF_KERNEL "a kernel of the program on cuda:0 did not end"

extern char **environ;

/* ---- The kernel: it waits for a word of the host ---- */

static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n"
			  ".visible .entry endless_kernel(.param .u64 word)\n{\n"
			  ".reg .u64 %at;\n.reg .u32 %value;\n.reg .pred %again;\n"
			  "ld.param.u64 %at, [word];\n"
			  "LOOK: ld.volatile.global.u32 %value, [%at];\n"
			  "setp.eq.u32 %again, %value, 0;\n@%again bra LOOK;\nret;\n}\n";

static struct {
	uint32_t *word; /* atomic */
	uint64_t at;
	int device;
	void *context, *module, *function, *stream;
} own;

static void own_lane(void *args)
{
	const uint64_t *at = args;

	while (!__atomic_load_n((uint32_t *)(uintptr_t)*at, __ATOMIC_ACQUIRE))
		sched_yield();
}

VISIBLE int endless_kernel(uint32_t lanes, uint32_t width, void *args);
VISIBLE int endless_kernel(uint32_t lanes, uint32_t width, void *args)
{
	(void)lanes;
	(void)width;
	own_lane(args);
	return 0;
}
VISIBLE extern const size_t endless_kernel_args;
const size_t endless_kernel_args = sizeof(uint64_t);

static void *in_driver(const char *name)
{
	const char *path = getenv("GPUNVME_CUDA_LIBRARY");
	void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW), *symbol = library ? dlsym(library, name) : NULL;

	assert_non_null(symbol);
	return symbol; /* the library stays */
}

/* Load it, before it runs. Its context stays. */
static void prepare(void)
{
	char log[512];
	int option[] = { GNV_CUDA_JIT_ERROR_LOG, GNV_CUDA_JIT_ERROR_LOG_SIZE };
	void *value[] = { log, (void *)(uintptr_t)sizeof(log) };
	gnv_cuda_init_fn *init;
	gnv_cuda_device_fn *get;
	gnv_cuda_retain_fn *retain;
	gnv_cuda_push_fn *push;
	gnv_cuda_load_fn *load;
	gnv_cuda_function_fn *find;
	gnv_cuda_stream_create_fn *create;
	gnv_cuda_register_fn *pin;
	gnv_cuda_host_pointer_fn *where;

	*(void **)&init = in_driver("cuInit");
	*(void **)&get = in_driver("cuDeviceGet");
	*(void **)&retain = in_driver("cuDevicePrimaryCtxRetain");
	*(void **)&push = in_driver("cuCtxPushCurrent_v2");
	*(void **)&load = in_driver("cuModuleLoadDataEx");
	*(void **)&find = in_driver("cuModuleGetFunction");
	*(void **)&create = in_driver("cuStreamCreate");
	*(void **)&pin = in_driver("cuMemHostRegister_v2");
	*(void **)&where = in_driver("cuMemHostGetDevicePointer_v2");
	assert_int_equal(init(0), 0);
	assert_int_equal(get(&own.device, 0), 0);
	assert_int_equal(retain(&own.context, own.device), 0);
	assert_int_equal(push(own.context), 0);
	assert_int_equal(load(&own.module, ptx, 2, option, value), 0);
	assert_int_equal(find(&own.function, own.module, "endless_kernel"), 0);
	assert_int_equal(create(&own.stream, GNV_CUDA_STREAM_NON_BLOCKING), 0);
	own.word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(own.word != MAP_FAILED);
	assert_int_equal(pin(own.word, 4096, GNV_CUDA_REGISTER_PORTABLE | GNV_CUDA_REGISTER_DEVICEMAP), 0);
	assert_int_equal(where(&own.at, own.word, 0), 0);
}

static void begin_kernel(unsigned groups, unsigned lanes)
{
	gnv_cuda_launch_fn *launch;
	void *params[] = { &own.at };

	*(void **)&launch = in_driver("cuLaunchKernel");
	__atomic_store_n(own.word, 0, __ATOMIC_RELEASE);
	if (mock_driver())
		__atomic_store_n(&mock_driver()->endless, true, __ATOMIC_RELEASE);
	assert_int_equal(launch(own.function, groups, 1, 1, lanes, 1, 1, 0, own.stream, params, NULL), 0);
}

static void end_kernel(void)
{
	gnv_cuda_stream_fn *wait;

	*(void **)&wait = in_driver("cuStreamSynchronize");
	__atomic_store_n(own.word, 1, __ATOMIC_RELEASE);
	assert_int_equal(wait(own.stream), 0);
	if (mock_driver())
		__atomic_store_n(&mock_driver()->endless, false, __ATOMIC_RELEASE);
}

/* ---- What the log says ---- */

static uint32_t leaks, leaves; /* lines (atomic) */

static void count_lines(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	if (level != GPUNVME_LOG_ERROR)
		return;
	printf("log: %s\n", text);
	if (strstr(text, "bytes are leaked: " OF_KERNEL))
		__atomic_fetch_add(&leaks, 1, __ATOMIC_RELAXED);
	if (strstr(text, "leaves its code loaded") && strstr(text, OF_KERNEL))
		__atomic_fetch_add(&leaves, 1, __ATOMIC_RELAXED);
}

static void open_logged(struct rig *r, const char *uri)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct pair *p = &r->pair;

	memset(r, 0, sizeof(*r));
	opts.log = count_lines;
	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_dev_open(uri, &opts, &p->dev));
	good(gpunvme_gpu_open("cpu", NULL, &p->gpu));
	good(gpunvme_queue_create(p->dev, p->gpu, NULL, &p->qp));
	good(gpunvme_queue_view(p->qp, &view, &p->dq));
	good(gpunvme_mem_alloc(p->gpu, p->qp, COMMANDS * 4096, NULL, &p->mem));
	good(gpunvme_mem_map(p->mem, p->dev));
	good(gpunvme_mem_dbuf(p->mem, p->dev, &p->dbuf));
}

static void says(const char *text)
{
	if (!strstr(gpunvme_errmsg(), text))
		fail_msg("%s", gpunvme_errmsg());
}

static uint64_t began;

static void print_time(const char *what)
{
	printf("%s: %llu ms\n", what, (unsigned long long)((gnv_clock_ns() - began) / 1000000));
}

/* ---- Cases ---- */

/* Memory that is mapped stays its owner's until the process ends, and the log says so. */
static void close_drive(struct rig *r)
{
	began = gnv_clock_ns();
	good(gpunvme_queue_destroy(r->pair.qp));
	good(gpunvme_dev_close(r->pair.dev));
	print_time("close");
	assert_int_equal(gpunvme_mem_free(r->pair.mem), -EBUSY);
	says("until the process ends");
	gpunvme_gpu_close(r->pair.gpu);
}

static void a_drive_is_closed(void)
{
	struct rig r;

	open_logged(&r, DRIVE);
	write_and_read(&r);
	begin_kernel(1, 1);
	write_and_read(&r);
	close_drive(&r);
	assert_true(leaks >= 1);
	assert_int_equal(leaves, 1);
	end_kernel();
}

/* The program's own memory that such a drive left registered: what gets its addresses later is not read by way of the old pages. */
static void addresses_are_not_used_again(void)
{
	const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
	struct gpunvme_mem *mem;
	struct gpunvme_dev *dev;
	struct rig r;
	char *bytes;

	bytes = mmap(NULL, COMMANDS * 4096, PROT_READ | PROT_WRITE, flags, -1, 0);
	open_logged(&r, DRIVE);
	good(gpunvme_mem_register(r.pair.gpu, bytes, COMMANDS * 4096, &mem));
	good(gpunvme_mem_map(mem, r.pair.dev));
	begin_kernel(1, 1);
	close_drive(&r);
	end_kernel();
	assert_ptr_equal(mmap(bytes, COMMANDS * 4096, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0), bytes);
	good(gpunvme_dev_open(DRIVE, NULL, &dev));
	good(gpunvme_gpu_open("cpu", NULL, &r.pair.gpu));
	good(gpunvme_mem_register(r.pair.gpu, bytes, COMMANDS * 4096, &mem));
	assert_int_equal(gpunvme_mem_map(mem, dev), -EBUSY);
	says("is still registered with CUDA");
	good(gpunvme_mem_free(mem));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(r.pair.gpu);
}

/* Nothing is lost: it is unmapped when the kernel has ended. */
static void memory_is_unmapped(void)
{
	struct rig r;
	int i;

	open_logged(&r, DRIVE);
	begin_kernel(1, 1);
	for (i = 0; i < 2; i++) {
		began = gnv_clock_ns();
		assert_int_equal(gpunvme_mem_unmap(r.pair.mem, r.pair.dev), -EBUSY);
		print_time("unmap");
		says(OF_KERNEL);
	}
	end_kernel();
	good(gpunvme_mem_unmap(r.pair.mem, r.pair.dev));
	good(gpunvme_mem_map(r.pair.mem, r.pair.dev));
	good(gpunvme_mem_dbuf(r.pair.mem, r.pair.dev, &r.pair.dbuf));
	write_and_read(&r);
	close_rig(&r);
	assert_int_equal(leaks + leaves, 0);
}

/* The other one goes on, a third one is refused, and later drives can be opened. */
static void two_drives_are_there(void)
{
	static struct rig first, second, third;
	struct gpunvme_dev *dev;
	int held;

	open_logged(&first, DRIVE);
	open_logged(&second, DRIVE);
	begin_kernel(1, 1);
	close_drive(&first);
	write_and_read(&second);
	held = mock_driver() ? mock_driver()->contexts + mock_driver()->streams : 0;
	began = gnv_clock_ns();
	assert_int_equal(gpunvme_dev_open(DRIVE, NULL, &dev), -EBUSY);
	assert_int_equal(mock_driver() ? mock_driver()->contexts + mock_driver()->streams : 0, held);
	print_time("open");
	says(OF_KERNEL);
	write_and_read(&second);
	close_drive(&second);
	end_kernel();
	open_logged(&third, DRIVE);
	write_and_read(&third);
	close_rig(&third);
	assert_int_equal(leaves, 2);
}

/* The drive is refused, and gets its image later. */
static void a_drive_has_an_image(void)
{
	char path[] = "/tmp/gpunvme-image-XXXXXX", uri[120];
	const int fd = mkstemp(path);
	struct gpunvme_dev *dev;
	struct rig r;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, ptx, sizeof(ptx)), sizeof(ptx));
	snprintf(uri, sizeof(uri), DRIVE "&image=%s", path);
	begin_kernel(1, 1);
	began = gnv_clock_ns();
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), -EBUSY);
	print_time("open");
	says(OF_KERNEL);
	end_kernel();
	open_logged(&r, uri);
	move_all(&r, GPUNVME_IO_READ);
	assert_memory_equal(gpunvme_mem_ptr(r.pair.mem), ptx, sizeof(ptx));
	close_rig(&r);
	assert_int_equal(close(fd) | unlink(path), 0);
}

/* Threads of the GPU that the drive runs on are closed before the drive. */
static void threads_are_closed(void)
{
	struct gpunvme_gpu *gpu;
	struct rig r;

	open_logged(&r, DRIVE);
	good(gpunvme_gpu_open("cuda:0", NULL, &gpu));
	begin_kernel(1, 1);
	began = gnv_clock_ns();
	gpunvme_gpu_close(gpu);
	print_time("close of threads");
	close_drive(&r);
	end_kernel();
}

static void *end_later(void *arg)
{
	(void)arg;
	gnv_sleep_ms(1500);
	__atomic_store_n(own.word, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Threads that no drive of this GPU knew when they began lose nothing by a kernel that lasts longer than a drive waits for. */
static void threads_wait_for_long_kernels(void)
{
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_mem *mem;
	pthread_t ender;
	struct rig r;

	good(gpunvme_gpu_open("cuda:0", NULL, &gpu));
	open_logged(&r, DRIVE);
	good(gpunvme_dev_open("soft:ram:1M", NULL, &dev));
	good(gpunvme_mem_alloc(gpu, NULL, 1 << 21, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	begin_kernel(1, 1);
	assert_int_equal(gpunvme_mem_unmap(r.pair.mem, r.pair.dev), -EBUSY);
	assert_int_equal(pthread_create(&ender, NULL, end_later, NULL), 0);
	good(gpunvme_mem_free(mem));
	pthread_join(ender, NULL);
	end_kernel();
	good(gpunvme_mem_unmap(r.pair.mem, r.pair.dev));
	good(gpunvme_mem_map(r.pair.mem, r.pair.dev));
	close_rig(&r);
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	assert_int_equal(leaks + leaves, 0);
}

/* The kernel has all multiprocessors, so launches of the drive do not end. It stays until they have. */
static void the_gpu_is_full(void)
{
	struct gpunvme_dev *dev;
	struct rig r;
	int ret;

	open_logged(&r, DRIVE);
	dev = r.pair.dev;
	dev->nvme.admin.timeout_ms = dev->nvme.ctrl.disable_ms = dev->nvme.ctrl.shutdown_ms = gnv_dev_soft(dev)->patience_ms = 300;
	begin_kernel(mock_driver() ? 1 : 4096, mock_driver() ? 1 : 1024);
	if (mock_driver())
		__atomic_store_n(&mock_driver()->full, true, __ATOMIC_RELEASE);
	gnv_sleep_ms(100);
	began = gnv_clock_ns();
	ret = gpunvme_dev_close(r.pair.dev);
	print_time("close");
	assert_int_equal(ret, -EBUSY);
	says("could not be stopped");
	if (mock_driver())
		__atomic_store_n(&mock_driver()->full, false, __ATOMIC_RELEASE);
	end_kernel();
	gnv_dev_soft(dev)->patience_ms = 60000; /* its registers do not end it any more */
	good(gpunvme_dev_close(r.pair.dev));
	good(gpunvme_mem_free(r.pair.mem));
	gpunvme_gpu_close(r.pair.gpu);
}

/* Nor does a launch that the driver holds back hang its end. */
static void a_launch_waits(void)
{
	struct gpunvme_dev *dev;
	struct rig r;

	open_logged(&r, DRIVE);
	dev = r.pair.dev;
	if (mock_driver()) {
		dev->nvme.admin.timeout_ms = dev->nvme.ctrl.disable_ms = dev->nvme.ctrl.shutdown_ms = gnv_dev_soft(dev)->patience_ms = 300;
		__atomic_store_n(&mock_driver()->held, true, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&mock_driver()->launching, __ATOMIC_ACQUIRE))
			gnv_sleep_ms(1);
		assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
		__atomic_store_n(&mock_driver()->held, false, __ATOMIC_RELEASE);
		gnv_dev_soft(dev)->patience_ms = 60000;
	}
	good(gpunvme_dev_close(dev));
	good(gpunvme_mem_free(r.pair.mem));
	gpunvme_gpu_close(r.pair.gpu);
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "a_drive_is_closed", a_drive_is_closed },	  { "memory_is_unmapped", memory_is_unmapped },
	{ "two_drives_are_there", two_drives_are_there }, { "a_drive_has_an_image", a_drive_has_an_image },
	{ "threads_are_closed", threads_are_closed },	  { "the_gpu_is_full", the_gpu_is_full },
	{ "addresses_are_not_used_again", addresses_are_not_used_again },
	{ "threads_wait_for_long_kernels", threads_wait_for_long_kernels },
	{ "a_launch_waits", a_launch_waits },
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

static void run_case(void **state)
{
	const size_t *i = *state;

	prepare();
	cases[*i].run();
	if (mock_driver() && mock_driver()->broke)
		fail_msg("%s", mock_driver()->broke);
}

/* In this process, which ends without the handlers of the driver. */
static void run_one(size_t i)
{
	const struct CMUnitTest test[] = { { cases[i].name, run_case, NULL, NULL, &i } };
	const int failed = cmocka_run_group_tests_name(cases[i].name, test, NULL, NULL);

	fflush(NULL);
	_exit(failed ? 1 : 0);
}

/* Return: 0: it passed. */
static int await(pid_t child)
{
	int status = 0, looks;

	for (looks = 0; looks < HANGS_S * 10; looks++) {
		if (waitpid(child, &status, WNOHANG) == child)
			return status;
		gnv_sleep_ms(100);
	}
	kill(child, SIGKILL);
	waitpid(child, &status, 0);
	printf("it did not end within %u s\n", HANGS_S);
	return -1;
}

static int spawn_case(char *program, const char *name)
{
	char *args[] = { program, (char *)(uintptr_t)name, NULL };
	pid_t child;

	if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, args, environ))
		return -1;
	return await(child);
}

/* A process that has looked for a GPU must not have children that use it. Each finds out by itself. */
int main(int argc, char **argv)
{
	int failed = 0;
	size_t i;

	for (i = 0; i < CASES; i++)
		if (argc > 1 && !strcmp(argv[1], cases[i].name))
			run_one(i);
	if (is_skipped())
		return 77;
	for (i = 0; i < CASES; i++)
		failed |= spawn_case(argv[0], cases[i].name);
	return failed != 0;
}
