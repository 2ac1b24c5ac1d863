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
#include "os/amd/hsa_table.h"
#include "util/clock.h"

#define BYTES 4096u

static struct gpunvme_gpu *gpu;

/* A thread that waits for a request to ring. Without one it ends after two seconds. */
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
	const struct gnv_launch launch = { GNV_KERNEL_RING, &args, sizeof(args), 1, 600000, NULL, NULL };

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
	__atomic_store_n((uint32_t *)(uintptr_t)w->go.lane, 1, __ATOMIC_RELEASE); /* the mock's addresses are the process's */
	while (!bell)
		assert_int_equal(gpu->ops->peek(gpu, &bell, w->rest.lane + 16, 4), 0);
}

static void says(const char *text, const char *words)
{
	if (!strstr(text, words))
		fail_msg("'%s' does not say '%s'", text, words);
}

/* What a memory fault at `lane` has left. */
static void faulted(struct waiter *w)
{
	const struct gnv_fill_args args = { w->rest.lane, 64, 0, 0 };
	const struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 40, 600000, NULL, NULL };
	struct gnv_gpu_range range;
	struct gpunvme_gpu *again;
	char at[40];
	uint32_t word;

	pthread_join(w->thread, NULL);
	assert_int_equal(w->ret, -EIO);
	snprintf(at, sizeof(at), "accessed memory at 0x%llx ", (unsigned long long)w->go.lane);
	says(w->said, "GPU 0000:40:00.0: gnvk_ring.kd ");
	says(w->said, at);
	says(w->said, "Free memory after the kernels that use it, and restart the program");
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EIO);
	says(gpunvme_errmsg(), "an earlier kernel accessed memory at");
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

static void body_freed(void *arg)
{
	struct waiter w = { 0 };

	(void)arg;
	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &w.go), 0);
	start(&w);
	gpu->ops->local_free(gpu, &w.go, BYTES);
	faulted(&w);
	works("hsa:1");
}

/* Memory of the host that goes while the GPU has it. */
static void body_unmapped(void *arg)
{
	void *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct waiter w = { 0 };

	(void)arg;
	assert_int_equal(gpu->ops->host_attach(gpu, page, BYTES, &w.go), 0);
	start(&w);
	munmap(page, BYTES);
	faulted(&w);
	gpu->ops->host_detach(gpu, &w.go);
}

/* Memory that is there and not the GPU's any more, which only the executor can tell. */
static void body_detached(void *arg)
{
	void *page = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct waiter w = { 0 };

	(void)arg;
	assert_int_equal(gpu->ops->host_attach(gpu, page, BYTES, &w.go), 0);
	start(&w);
	gpu->ops->host_detach(gpu, &w.go);
	faulted(&w);
	munmap(page, BYTES);
}

/* With queues and buffers, of which nothing can be used and everything be given back. */
static void body_queue(void *arg)
{
	struct gpunvme_copy c = GPUNVME_COPY_INIT;
	struct gpunvme_mem_opts vram = GPUNVME_MEM_OPTS_INIT;
	struct gpunvme_mem *mem[2];
	struct gpunvme_dev *dev;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp, *none = NULL;
	struct gpunvme_dq dq;
	struct waiter w = { 0 };
	unsigned i;

	(void)arg;
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	for (i = 0; i < 2; i++) {
		vram.flags = i ? GPUNVME_MEM_VRAM : 0;
		assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 65536, &vram, &mem[i]), 0);
		assert_int_equal(gpunvme_mem_map(mem[i], dev), 0);
	}
	assert_int_equal(gpunvme_mem_dbuf(mem[0], dev, &dbuf), 0);
	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &w.go), 0);
	start(&w);
	gpu->ops->local_free(gpu, &w.go, BYTES);
	faulted(&w);
	c.nblocks = 128;
	assert_int_equal(gpunvme_run_copy(gpu, &dq, 1, &dbuf, &c), -EIO);
	says(gpunvme_errmsg(), "an earlier kernel accessed memory at");
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &none), -EIO);
	says(gpunvme_errmsg(), "an earlier kernel accessed memory at");
	assert_null(none);
	assert_true(gpunvme_queue_recover(qp) < 0);
	assert_int_equal(gpunvme_mem_unmap(mem[0], dev), 0);
	gpunvme_mem_free(mem[0]);
	gpunvme_queue_destroy(qp);
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

	*(void **)&fault = mock_symbol("mock_fault");
	*(void **)&on_event = mock_symbol("hsa_amd_register_system_event_handler");
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

/* ---- In processes of their own ---- */

/* Another GPU goes on, and closing the one that faulted ends: its queue, which never would, and the rest of it are left. */
static void with_gpu(void *arg)
{
	void (*const body)(void *) = *(void (**)(void *))arg;

	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	body(NULL);
	gpunvme_gpu_close(gpu);
	left_by_faults(2); /* with the one of faulted() */
	works("hsa:1");
	left_by_faults(2);
}

static void run(void (*body)(void *))
{
	pretend("MOCK_GPUS", "2");
	apart(with_gpu, &body);
}

static void test_freed(void **state)
{
	(void)state;
	run(body_freed);
}

static void test_unmapped(void **state)
{
	(void)state;
	run(body_unmapped);
}

static void test_detached(void **state)
{
	const char *lanes = getenv("MOCK_LANES");

	(void)state;
	if (lanes && !strcmp(lanes, "gfx"))
		run(body_detached);
}

static void test_queue(void **state)
{
	(void)state;
	run(body_queue);
}

/* The queue tells of the same fault in another way, earlier or later: what the fault says stands. */
static void test_also(void **state)
{
	(void)state;
	pretend("MOCK_ALSO", "before");
	run(body_freed);
	pretend("MOCK_ALSO", "after");
	run(body_freed);
}

/* The GPU is reset while a kernel of the library runs: the process goes on without it. */
static void body_reset(void *arg)
{
	void (*reset)(unsigned gpu);
	struct waiter w = { 0 };
	uint32_t word;

	(void)arg;
	*(void **)&reset = mock_symbol("mock_gpu_reset");
	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &w.go), 0);
	start(&w);
	reset(0);
	pthread_join(w.thread, NULL);
	assert_int_equal(w.ret, -EIO);
	says(w.said, "its driver has reset it (dmesg says why), and gnvk_ring.kd with it");
	assert_int_equal(gpu->ops->peek(gpu, &word, w.rest.lane, 4), -EIO);
	gpunvme_gpu_close(gpu);
	_exit(0);
}

static void test_reset(void **state)
{
	(void)state;
	run(body_reset);
}

/* A kernel that the driver cannot take off the GPU: closing resets that, and opening it again in this process is an error. */
static void body_wedged(void *arg)
{
	struct gnv_fill_args args = { 0, 0, 0, 0 };
	const struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 1, 50, NULL, NULL };

	(void)arg;
	pretend("MOCK_FAIL", "dispatch:1:0");
	pretend("MOCK_WEDGED", "1");
	assert_int_equal(gpu->ops->launch(gpu, &launch), -ETIMEDOUT);
	gpunvme_gpu_close(gpu);
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EIO);
	says(gpunvme_errmsg(), "its driver has reset it");
	gpunvme_gpu_close(gpu);
	_exit(0);
}

static void test_wedged(void **state)
{
	(void)state;
	run(body_wedged);
}

/* Memory of the library's own that the driver does not free is lost, and no reason to end a process; a user's the runtime decides. */
static void body_kept(void *arg)
{
	struct gnv_gpu_range range;

	(void)arg;
	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &range), 0);
	pretend("MOCK_FAIL", "amd_memory_pool_free:1:1");
	gpu->ops->local_free(gpu, &range, BYTES);
	unsetenv("MOCK_FAIL");
	works("hsa:0");
	gpunvme_gpu_close(gpu);
	_exit(0);
}

static void test_kept(void **state)
{
	(void)state;
	run(body_kept);
}

/* A second fault in a process is not reported: its kernel is late, and then nothing more is asked of that GPU either. */
static void body_second(void *arg)
{
	struct gnv_fill_args args = { 0x7ff123450000, 64, 0, 0 };
	const struct gnv_launch launch = { GNV_KERNEL_FILL, &args, sizeof(args), 1, 500, NULL, NULL };
	struct gpunvme_gpu *other;
	struct gnv_gpu_range range;
	uint32_t word;

	(void)arg;
	assert_int_equal(gpunvme_gpu_open("hsa:1", NULL, &other), 0);
	(*(struct gnv_hsa **)other->priv)->bound.ms = 300;
	assert_int_equal(other->ops->local_alloc(other, BYTES, &range), 0);
	assert_int_equal(gpu->ops->launch(gpu, &launch), -EIO);
	args.at += 1 << 20;
	assert_int_equal(other->ops->launch(other, &launch), -ETIMEDOUT);
	assert_int_equal(other->ops->peek(other, &word, range.lane, 4), -EIO);
	assert_int_equal(other->ops->poke(other, range.lane, &word, 4), -EIO);
	says(gpunvme_errmsg(), "an earlier kernel or fence failed or never ended");
	other->ops->local_free(other, &range, BYTES);
	assert_int_equal(other->ops->local_alloc(other, BYTES, &range), -EIO);
	gpunvme_gpu_close(gpu);
	gpunvme_gpu_close(other); /* its queue does not end: given up after a while */
	_exit(0);
}

static void test_second(void **state)
{
	(void)state;
	run(body_second);
}

int main(void)
{
	const struct CMUnitTest tests[] = { /* all fork, with no thread */
		cmocka_unit_test(test_others),	      cmocka_unit_test_teardown(test_freed, clear),
		cmocka_unit_test_teardown(test_unmapped, clear), cmocka_unit_test_teardown(test_detached, clear),
		cmocka_unit_test_teardown(test_queue, clear),	 cmocka_unit_test_teardown(test_also, clear),
		cmocka_unit_test_teardown(test_reset, clear),	 cmocka_unit_test_teardown(test_second, clear),
		cmocka_unit_test_teardown(test_wedged, clear),	 cmocka_unit_test_teardown(test_kept, clear),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
