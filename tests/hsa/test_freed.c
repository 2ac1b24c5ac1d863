/* SPDX-License-Identifier: MIT */
/* Memory that is taken away while a kernel uses it: the launch says so, all that comes later says so, and closing is clean. */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "hsa/rig.h"
#include "util/clock.h"

#define BYTES 4096u

static struct gpunvme_gpu *gpu;

/* A lane that waits to be told to ring. Where nobody ever does it ends after two seconds. */
struct waiter {
	pthread_t thread;
	struct gnv_gpu_range go, rest;
	int ret;
	char said[600];
};

static void *wait_main(void *arg)
{
	struct waiter *w = arg;
	const struct gnv_ring_args args = { .go = w->go.lane,
					    .doorbell = w->rest.lane + 16,
					    .rung = w->go.lane + 8,
					    .timeout = 2000ull * gnv_gpu_ticks_per_ms(gpu),
					    .rings = 2,
					    .mask = 1 };
	const struct gnv_launch launch = { GNV_KERNEL_RING, &args, sizeof(args), 1, 60000, NULL, NULL };

	w->ret = gpu->ops->launch(gpu, &launch);
	snprintf(w->said, sizeof(w->said), "%s", gpunvme_errmsg());
	return NULL;
}

/* When it has rung once it runs. */
static void start(struct waiter *w)
{
	uint32_t bell = 0;

	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &w->rest), 0);
	assert_int_equal(pthread_create(&w->thread, NULL, wait_main, w), 0);
	__atomic_store_n((uint32_t *)(uintptr_t)w->go.lane, 1, __ATOMIC_RELEASE); /* the stand-in's addresses are the process's */
	while (!bell)
		assert_int_equal(gpu->ops->peek(gpu, &bell, w->rest.lane + 16, 4), 0);
}

static void says(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("'%s' does not say '%s'", text, words);
}

/* What a memory fault at `lane` has left behind. */
static void faulted(struct waiter *w)
{
	const struct gnv_fill_args args = { w->rest.lane, 64, 0, 0 };
	const struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 40, 20000, NULL, NULL };
	struct gnv_gpu_range range;
	struct gpunvme_gpu *again;
	char at[40];
	uint32_t word;

	pthread_join(w->thread, NULL);
	assert_int_equal(w->ret, -EIO);
	snprintf(at, sizeof(at), "touched memory at 0x%llx ", (unsigned long long)w->go.lane);
	says(w->said, "GPU 0000:40:00.0: gnvk_ring.kd ");
	says(w->said, at);
	says(w->said, "free memory after the kernels that use it, and start the program anew");
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EIO);
	says(gpunvme_errmsg(), "an earlier kernel touched memory at");
	assert_int_equal(gpu->ops->peek(gpu, &word, w->rest.lane, 4), -EIO); /* a copy would never end */
	assert_int_equal(gpu->ops->poke(gpu, w->rest.lane, &word, 4), -EIO);
	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &range), -EIO);
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &again), 0); /* it is the same GPU */
	assert_int_equal(again->ops->launch(again, &launch), -EIO);
	gpunvme_gpu_close(again);
	gpu->ops->local_free(gpu, &w->rest, BYTES);
}

static void works(const char *which)
{
	struct gpunvme_gpu *other;
	struct gnv_gpu_range range;

	assert_int_equal(gpunvme_gpu_open(which, NULL, &other), 0);
	assert_int_equal(other->ops->local_alloc(other, BYTES, &range), 0);
	assert_int_equal(gnv_gpu_fill(other, range.lane, BYTES, 1), 0);
	other->ops->local_free(other, &range, BYTES);
	gpunvme_gpu_close(other);
}

static int begin(void **state)
{
	(void)state;
	pretend("STANDIN_GPUS", "2");
	return gpunvme_gpu_open("hsa:0", NULL, &gpu);
}

static int end(void **state)
{
	gpunvme_gpu_close(gpu);
	nothing_left();
	works("hsa:0"); /* the stand-in's GPU does, in a new runtime */
	return clear(state);
}

static void test_freed(void **state)
{
	struct waiter w = { 0 };

	(void)state;
	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &w.go), 0);
	start(&w);
	gpu->ops->local_free(gpu, &w.go, BYTES);
	faulted(&w);
	works("hsa:1");
}

/* Memory of the host that goes while the GPU has it. */
static void test_unmapped(void **state)
{
	void *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct waiter w = { 0 };

	(void)state;
	assert_int_equal(gpu->ops->host_attach(gpu, page, BYTES, &w.go), 0);
	start(&w);
	munmap(page, BYTES);
	faulted(&w);
	gpu->ops->host_detach(gpu, &w.go);
}

/* Memory that is there and not the GPU's any more, which only the executor can tell. */
static void test_detached(void **state)
{
	void *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const char *lanes = getenv("STANDIN_LANES");
	struct waiter w = { 0 };

	(void)state;
	if (lanes && !strcmp(lanes, "gfx")) {
		assert_int_equal(gpu->ops->host_attach(gpu, page, BYTES, &w.go), 0);
		start(&w);
		gpu->ops->host_detach(gpu, &w.go);
		faulted(&w);
	}
	munmap(page, BYTES);
}

/* With queues and buffers, of which nothing can be used and everything be given back. */
static void test_queue(void **state)
{
	struct gpunvme_copy c = GPUNVME_COPY_INIT;
	struct gpunvme_mem_opts vram = GPUNVME_MEM_OPTS_INIT;
	struct gpunvme_mem *mem[2];
	struct gpunvme_dev *dev;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_qp *qp, *none = NULL;
	struct gpunvme_dq dq;
	struct waiter w = { 0 };
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_qp_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_qp_view(qp, NULL, &dq), 0);
	for (i = 0; i < 2; i++) {
		vram.flags = i ? GPUNVME_MEM_VRAM : GPUNVME_MEM_HOST;
		assert_int_equal(gpunvme_mem_alloc(gpu, 65536, &vram, &mem[i]), 0);
		assert_int_equal(gpunvme_mem_map(mem[i], dev), 0);
	}
	assert_int_equal(gpunvme_mem_dbuf(mem[0], dev, &dbuf), 0);
	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &w.go), 0);
	start(&w);
	gpu->ops->local_free(gpu, &w.go, BYTES);
	faulted(&w);
	c.nblocks = 128;
	assert_int_equal(gpunvme_copy(gpu, &dq, 1, &dbuf, &c), -EIO);
	says(gpunvme_errmsg(), "an earlier kernel touched memory at");
	assert_int_equal(gpunvme_qp_create(dev, gpu, NULL, &none), -EIO);
	says(gpunvme_errmsg(), "an earlier kernel touched memory at");
	assert_null(none);
	assert_true(gpunvme_qp_recover(qp) < 0);
	assert_int_equal(gpunvme_mem_unmap(mem[0], dev), 0);
	gpunvme_mem_free(mem[0]);
	gpunvme_qp_destroy(qp);
	gpunvme_dev_close(dev); /* unmaps the other one */
	gpunvme_mem_free(mem[1]);
}

/* ---- A fault of a kernel that is not the library's ---- */

static hsa_status_t take(const hsa_amd_event_t *event, void *ctx)
{
	*(uint64_t *)ctx = event->memory_fault.virtual_address;
	return HSA_STATUS_SUCCESS;
}

static void child(bool taken)
{
	hsa_status_t (*on_event)(hsa_amd_system_event_callback_t callback, void *data);
	void (*fault)(unsigned gpu, uint64_t address);
	uint64_t at = 0;
	uint32_t word;

	*(void **)&fault = played_symbol("standin_fault");
	*(void **)&on_event = played_symbol("hsa_amd_register_system_event_handler");
	if (gpunvme_gpu_open("hsa:0", NULL, &gpu))
		_exit(1);
	if (taken)
		on_event(take, &at);
	fault(0, 0x123000);
	if (at != 0x123000 || gpu->ops->peek(gpu, &word, 0, 4) != -EIO || !strstr(gpunvme_errmsg(), "0x123000"))
		_exit(2);
	gpunvme_gpu_close(gpu);
	_exit(0);
}

/* The program's own handler decides; without one the runtime ends the process, and the library does not keep it from doing so. */
static void test_others(void **state)
{
	int taken, status;
	pid_t pid;

	(void)state;
	for (taken = 0; taken < 2; taken++) {
		pid = fork();
		assert_true(pid >= 0);
		if (!pid)
			child(taken);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(taken ? WIFEXITED(status) && !WEXITSTATUS(status) : WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_others), /* first, because it forks */
		TEST(test_freed), TEST(test_unmapped), TEST(test_detached), TEST(test_queue),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
