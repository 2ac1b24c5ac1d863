/* SPDX-License-Identifier: MIT */
/* An AMD GPU's threads on the software controller, emulated by the mock; and everything that can be missing. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpunvme/gpunvme.h>

#include "common/refused.h"
#include "gpu/gpu.h"
#include "gpu/kernels/code_object.h"
#include "hsa/rig.h"
#include "util/bits.h"
#include "util/clock.h"

/* A block that the threads of the GPU read is the image's. */
static void read_on(const char *name, uint32_t width)
{
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	struct gpunvme_queue_info about = { .size = sizeof(about) };
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	int answer = -1;
	unsigned i;

	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_gpu_get_info(gpu, &info), 0);
	assert_int_equal(info.kind, GPUNVME_GPU_HSA);
	assert_int_equal(info.width, width);
	assert_string_equal(info.name, name);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0); /* with its self-test, a kernel */
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, qp, 1 << 20, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	assert_int_equal(counts->locks, 2); /* rings, doorbells; the buffer is the runtime's own */
	assert_int_equal(gnv_gpu_read(gpu, &dq, &dbuf, FIRST, 9, &answer), 0);
	assert_int_equal(answer, 0);
	for (i = 0; i < 9 * 512; i++)
		assert_int_equal(((unsigned char *)gpunvme_mem_ptr(mem))[i], pattern(FIRST + i / 512));
	assert_int_equal(gnv_gpu_read(gpu, &dq, &dbuf, dq.lba_count, 1, &answer), 0);
	assert_int_equal(answer, -ERANGE);
	assert_int_equal(gpunvme_queue_get_info(qp, &about), 0);
	assert_int_equal(about.submitted, 1);
	assert_int_equal(about.in_flight, 0);
	gpunvme_mem_free(mem);
	gpunvme_queue_destroy(qp);
	gpunvme_gpu_close(gpu);
	gpunvme_dev_close(dev);
}

static void test_read(void **state)
{
	(void)state;
	read_on("Mock of the tests, gfx1100, 0000:40:00.0", 32);
}

/* Another GPU: the code is its own or its family's, as far as this build has it; as machine code, it is executed. */
static void test_read_on_others(void **state)
{
	static const struct {
		const char *gfx, *name;
		uint32_t width;
	} others[] = {
		{ "gfx1152", "Mock of the tests, gfx1152, 0000:40:00.0", 32 },
		{ "gfx942:sramecc+:xnack-", "Mock of the tests, gfx942, 0000:40:00.0", 64 },
	};
	struct gnv_code_object code;
	unsigned i, tried = 0;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(others); i++) {
		if (gnv_code_object_find(others[i].gfx, &code))
			continue;
		pretend("MOCK_GFX", others[i].gfx);
		read_on(others[i].name, others[i].width);
		tried++;
	}
	if (!tried) {
		print_message("this build has no code for them\n");
		skip();
	}
}

static void refused(const char *spec, int ret, const char *message)
{
	gpu_refused(spec, ret, message);
	nothing_left();
}

static void test_wrong_gpu(void **state)
{
	struct gpunvme_gpu *gpu;

	(void)state;
	refused("hsa:1", -ENODEV, "knows 1: hsa:0 at 0000:40:00.0. Choose");
	refused("hsa:0000:03:00.0", -ENODEV, "0000:03:00.0");
	refused("hsa:x", -EINVAL, "hsa:0");
	refused("hsa:", -EINVAL, "hsa:0");
	refused("hsa:-1", -EINVAL, "hsa:0");
	refused("hsa:0x", -EINVAL, "hsa:0");
	pretend("MOCK_GPUS", "2");
	refused("hsa:7", -ENODEV, "'hsa:7': the HSA runtime knows 2: hsa:0 at 0000:40:00.0, hsa:1 at 0000:41:00.0. Choose");
	refused("hsa:0000:40:00", -EINVAL, "PCI address");
	assert_int_equal(gpunvme_gpu_open("hsa:0000:41:00.0", NULL, &gpu), 0);
	gpunvme_gpu_close(gpu);
	assert_int_equal(gpunvme_gpu_open("hsa:41:00.0", NULL, &gpu), 0);
	gpunvme_gpu_close(gpu);
	pretend("MOCK_GPUS", "0");
	refused("hsa:0", -ENODEV, "0x1008");
}

static char heard[2048];

static void hear(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	if (level == GPUNVME_LOG_DEBUG)
		return;
	assert_int_equal(level, GPUNVME_LOG_INFO);
	snprintf(heard + strlen(heard), sizeof(heard) - strlen(heard), "%s\n", text);
}

static void auto_is(enum gpunvme_gpu_kind kind, const char *name, const char *said)
{
	const struct gpunvme_gpu_opts opts = { sizeof(opts), hear, NULL };
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	struct gpunvme_gpu *gpu;

	heard[0] = 0;
	assert_int_equal(gpunvme_gpu_open("auto", &opts, &gpu), 0);
	assert_int_equal(gpunvme_gpu_get_info(gpu, &info), 0);
	assert_int_equal(info.kind, kind);
	assert_non_null(strstr(info.name, name));
	assert_non_null(strstr(heard, name));
	if (!strstr(heard, said))
		fail_msg("'%s' is not in: %s", said, heard);
	gpunvme_gpu_close(gpu);
	nothing_left();
}

/* The first GPU that can be used; else the CPU, and why. */
static void test_auto(void **state)
{
	(void)state;
	setenv("GPUNVME_CUDA_LIBRARY", "/nonexistent.so", 1);
	auto_is(GPUNVME_GPU_HSA, "0000:40:00.0", "auto: the threads");
	pretend("MOCK_GPUS", "3");
	pretend("MOCK_FAIL", "executable_freeze:1:1009");
	auto_is(GPUNVME_GPU_HSA, "0000:41:00.0", "auto: not hsa:0: ");
	unsetenv("MOCK_FAIL");
	pretend("MOCK_GFX", "gfx9999");
	auto_is(GPUNVME_GPU_CPU, "CPU", "auto: not hsa:0: this build of the library has no code for gfx9999");
	assert_null(strstr(heard, "hsa:1")); /* the same again is not said */
	assert_null(strstr(heard, "hsa:3"));
	assert_non_null(strstr(heard, "auto: not cuda:0: "));
	pretend("MOCK_GPUS", "0");
	auto_is(GPUNVME_GPU_CPU, "CPU", "0x1008");
	unsetenv("GPUNVME_CUDA_LIBRARY");
}

static void test_lacking(void **state)
{
	struct gnv_gpu_bytes bytes;
	struct gpunvme_gpu *gpu;

	(void)state;
	pretend("MOCK_GFX", "gfx9999");
	refused("hsa:0", -EOPNOTSUPP, "gfx9999");
	pretend("MOCK_GFX", "");
	pretend("MOCK_LACKS", "host,kernarg");
	refused("hsa:0", -ENODEV, "no memory of the host");
	pretend("MOCK_LACKS", "local");
	refused("hsa:0", -ENODEV, "no memory of the GPU");
	pretend("MOCK_LACKS", "fine");
	pretend("MOCK_MINOR", "7");
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->mem_alloc(gpu, 0, 4096, &bytes), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "resizable BAR"));
	gpunvme_gpu_close(gpu);
	pretend("MOCK_MINOR", "14"); /* between the versions known without and with uncached memory: not to be relied on */
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->mem_alloc(gpu, 0, 4096, &bytes), -EOPNOTSUPP);
	gpunvme_gpu_close(gpu);
	pretend("MOCK_LACKS", "bar");
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->mem_alloc(gpu, 0, 5000, &bytes), 0);
	assert_null(bytes.cpu);
	assert_true(bytes.dmabuf >= 0);
	assert_int_equal(bytes.len, 8192);
	gpu->ops->mem_free(gpu, &bytes);
	gpunvme_gpu_close(gpu);
}

/* Each of the runtime's functions fails once while a GPU is opened and used. */
static void test_failures(void **state)
{
	static const char *const functions[] = {
		"init",
		"iterate_agents",
		"amd_agent_iterate_memory_pools",
		"queue_create",
		"amd_memory_pool_allocate",
		"amd_agents_allow_access",
		"signal_create",
		"code_object_reader_create_from_memory",
		"executable_create_alt",
		"executable_load_agent_code_object",
		"executable_freeze",
		"amd_memory_lock_to_pool",
		"amd_memory_fill",
		"memory_copy",
		"executable_get_symbol_by_name",
	};
	char plan[100];
	size_t i, n;

	(void)state;
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		for (n = 1;; n++) {
			struct gpunvme_gpu *gpu = NULL;
			struct gpunvme_dev *dev = NULL;
			struct gpunvme_queue *qp = NULL;
			int ret;

			snprintf(plan, sizeof(plan), "%s:%zu:1009", functions[i], n);
			pretend("MOCK_FAIL", plan);
			ret = gpunvme_gpu_open("hsa:0", NULL, &gpu);
			if (!ret)
				ret = gpunvme_dev_open(uri, NULL, &dev);
			if (!ret)
				ret = gpunvme_queue_create(dev, gpu, NULL, &qp);
			assert_true(!ret || gpunvme_errmsg()[0]);
			gpunvme_queue_destroy(qp);
			gpunvme_dev_close(dev);
			gpunvme_gpu_close(gpu);
			nothing_left();
			assert_true(n < 60);
			if (!ret)
				break;
		}
		assert_true(n > 1); /* the function was used */
	}
}

/* A kernel that never ends, and one that breaks the queue: said so, and nothing more is asked of that GPU. */
static void test_lost_kernels(void **state)
{
	static const struct {
		const char *plan;
		uint32_t timeout_ms;
		int ret;
		const char *message;
	} table[] = { { "dispatch:1:0", 50, -ETIMEDOUT, "did not end" }, { "dispatch:1:29", 60000, -EIO, "0x29" } };
	size_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct gnv_fill_args args = { 0, 0, 0, 0 };
		struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 1, table[i].timeout_ms, NULL, NULL };
		struct gpunvme_gpu *gpu;

		pretend("MOCK_FAIL", table[i].plan);
		assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
		assert_int_equal(gpu->ops->launch(gpu, &launch), table[i].ret);
		assert_non_null(strstr(gpunvme_errmsg(), table[i].message));
		assert_int_equal(gpu->ops->launch(gpu, &launch), -EIO);
		gpunvme_gpu_close(gpu);
		nothing_left();
	}
}

static bool three_times(void *ctx)
{
	return ++*(unsigned *)ctx <= 3;
}

/* A kernel that hangs is waited for as long as something happens; a copy, no longer than its queue's time-out and the slack. */
static void test_bounded(void **state)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_NO_SELFTEST, 0, 200, 0, 0, 0 };
	struct gnv_fill_args args = { 0, 0, 0, 0 };
	unsigned asked = 0;
	struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 1, 50, three_times, &asked };
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct hsa_path p;
	uint64_t start;

	(void)state;
	hsa_path_open(&p, &opts);
	copy.nblocks = BLOCKS;
	copy.threads = 1;
	copy.step = 1; /* 2048 commands of 0.2 s each, if it came to that: longer than the test may take (TIMEOUT) */
	pretend("MOCK_FAIL", "dispatch:1:0");
	assert_int_equal(gpunvme_run_copy(p.gpu, &p.dq, 1, &p.dbuf, &copy), -ETIMEDOUT);
	assert_int_equal(gpunvme_mem_free(p.mem), -EBUSY); /* a GPU that hangs is not asked what is in flight */
	assert_int_equal(gpunvme_queue_destroy(p.qp), 0);
	assert_int_equal(gpunvme_mem_free(p.mem), 0);
	gpunvme_dev_close(p.dev);
	gpunvme_gpu_close(p.gpu);
	assert_int_equal(counts->allocations, 2); /* which a thread may still use */
	counts->allocations = 0;

	pretend("MOCK_FAIL", "dispatch:01:0");
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &p.gpu), 0);
	start = gnv_clock_ns();
	assert_int_equal(p.gpu->ops->launch(p.gpu, &launch), -ETIMEDOUT);
	assert_true(gnv_clock_ns() - start >= 200 * GNV_NS_PER_MS);
	assert_int_equal(asked, 4);
	gpunvme_gpu_close(p.gpu);
}

/* No runtime, something else in its place, and the real one on a machine that has a GPU or none. */
static void test_other_libraries(void **state)
{
	char *mock = strdup(getenv("GPUNVME_HSA_LIBRARY"));
	struct gpunvme_gpu *gpu = NULL;
	int ret;

	(void)state;
	setenv("GPUNVME_HSA_LIBRARY", "/nonexistent.so", 1);
	refused("hsa:0", -ENODEV, "/nonexistent.so");
	setenv("GPUNVME_HSA_LIBRARY", "libc.so.6", 1);
	refused("hsa:0", -EOPNOTSUPP, "hsa_init");
	unsetenv("GPUNVME_HSA_LIBRARY");
	ret = gpunvme_gpu_open("hsa:0", NULL, &gpu);
	print_message("the runtime of this machine: %d %s\n", ret, ret ? gpunvme_errmsg() : "");
	assert_true(!ret || ret == -ENODEV || ret == -EOPNOTSUPP);
	gpunvme_gpu_close(gpu);
	setenv("GPUNVME_HSA_LIBRARY", mock, 1);
	free(mock);
}

static void test_launch(void **state)
{
	struct gnv_fill_args args = { 0, 1000, 0x12345678, 0 };
	struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 300, 600000, NULL, NULL };
	struct gnv_gpu_range range;
	struct gpunvme_gpu *gpu;
	uint32_t seen[1001];
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->local_alloc(gpu, sizeof(seen), &range), 0);
	args.at = range.lane;
	assert_int_equal(gpu->ops->launch(gpu, &launch), 0);
	assert_int_equal(gpu->ops->peek(gpu, seen, range.lane, sizeof(seen)), 0);
	for (i = 0; i < 1000; i++)
		assert_int_equal(seen[i], 0x12345678);
	assert_int_equal(seen[1000], 0);
	launch.args_len = 1000;
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EINVAL);
	launch.kernel = GNV_KERNELS;
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EINVAL);
	gpu->ops->local_free(gpu, &range, sizeof(seen));
	gpunvme_gpu_close(gpu);
}

#define TEST(name) cmocka_unit_test_teardown(name, clear)

/* gfx9 has waves of 64 threads, which a kernel's ballots and shuffles then have. */
static void test_wide(void **state)
{
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	unsigned i;
	int ret;

	(void)state;
	if (getenv("MOCK_LANES") && !strcmp(getenv("MOCK_LANES"), "gfx"))
		skip(); /* the executor is a gfx11 */
	pretend("MOCK_GFX", "gfx90a");
	ret = gpunvme_gpu_open("hsa:0", NULL, &gpu);
	if (ret == -EOPNOTSUPP)
		skip(); /* this build has no code for it */
	assert_int_equal(ret, 0);
	assert_int_equal(gpunvme_gpu_get_info(gpu, &info), 0);
	assert_int_equal(info.width, 64);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, qp, BLOCKS * 512, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	copy.nblocks = BLOCKS;
	copy.step = 4;
	copy.threads = 200; /* three waves, and one that is not full */
	assert_int_equal(gpunvme_run_copy(gpu, &dq, 1, &dbuf, &copy), 0);
	for (i = 0; i < BLOCKS * 512; i++)
		if (((unsigned char *)gpunvme_mem_ptr(mem))[i] != pattern(i / 512))
			fail_msg("byte %u is 0x%x", i, ((unsigned char *)gpunvme_mem_ptr(mem))[i]);
	gpunvme_mem_free(mem);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_read),	 TEST(test_wrong_gpu), TEST(test_auto),	   TEST(test_lacking), TEST(test_failures),
		TEST(test_lost_kernels), TEST(test_launch),    TEST(test_bounded), TEST(test_other_libraries),
		TEST(test_wide),	 TEST(test_read_on_others),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
