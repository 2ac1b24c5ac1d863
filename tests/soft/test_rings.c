/* SPDX-License-Identifier: MIT */
/*
 * The test of doorbells that threads ring, with CPU threads as a GPU whose first mapping of BAR0 leads nowhere, whose second is
 * late now and then, and whose third works; and with one that has no third.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "common/leak.h"
#include "queue/qp.h"
#include "queue/ringtest.h"
#include "util/clock.h"
#include "util/thread.h"

#define LATE_MS 1500u /* what counts as late here, where threads share a processor with other work */
#define DELAY_MS 3000u
#define LOST_MS 20000u
#define RINGS 100u /* of which the 99th percentile leaves out one */
#define NOWHERE_MS 100u /* lost, and nothing can hold up what leads nowhere */

enum way { NOWHERE, SLOW, DIRECT, WAYS };

/* The GPU. */
static struct {
	struct gnv_gpu_ops ops;
	struct gnv_mem_ops bar0; /* the page of registers as if it were on PCI */
	bool distrusted[WAYS];
	enum way last; /* how many ways there are */
	char tries[16];
	unsigned attached;
	int launch_error;
	uint64_t go; /* where the thread that did not end reads what it is to do */
	unsigned stalls; /* launches in which the thread stands still in the middle ... */
	unsigned still_ms; /* ... for so long */
	bool keeps; /* what it has */
	/* Of the mapping that is late. */
	pthread_t copier;
	unsigned hiccups, delay_ms, copied; /* at most two hiccups one after the other */
	bool stop;
	char *shadow, *real;
	size_t len;
} gpu_of;

static struct gpunvme_dev *dev;
static char log_text[8192];

static void listen(void *ctx, enum gpunvme_log_level level, const char *line)
{
	size_t len = strlen(log_text);

	(void)ctx;
	(void)level;
	snprintf(log_text + len, sizeof(log_text) - len, "%s\n", line);
}

/* Copies doorbells of the shadow to the real ones; a store in the middle waits. */
static void *copy_doorbells(void *arg)
{
	unsigned before = 0, idle = 0;

	(void)arg;
	gpu_of.copied = 0;
	while (!__atomic_load_n(&gpu_of.stop, __ATOMIC_ACQUIRE)) {
		for (size_t at = 0; at < gpu_of.len; at += 4) {
			uint32_t value = __atomic_load_n((uint32_t *)(void *)(gpu_of.shadow + at), __ATOMIC_ACQUIRE);

			if (value == ~0u)
				continue;
			if (++gpu_of.copied % RINGS / 2 == RINGS / 4 && gpu_of.hiccups) {
				gpu_of.hiccups--;
				usleep(gpu_of.delay_ms * 1000);
			}
			__atomic_store_n((uint32_t *)(void *)(gpu_of.shadow + at), ~0u, __ATOMIC_RELEASE);
			__atomic_store_n((uint32_t *)(void *)(gpu_of.real + at), value, __ATOMIC_RELEASE);
		}
		idle = gpu_of.copied == before ? idle + 1 : 0;
		before = gpu_of.copied;
		if (idle < 64)
			sched_yield();
		else
			usleep(20);
	}
	return NULL;
}

static int attach(struct gpunvme_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_gpu_range *range)
{
	enum way way = NOWHERE;

	(void)gpu;
	while (way < gpu_of.last && gpu_of.distrusted[way])
		way++;
	if (way == gpu_of.last)
		return gnv_fail(-EOPNOTSUPP, "no way is left");
	gpu_of.tries[strlen(gpu_of.tries)] = "NSD"[way];
	gpu_of.attached++;
	dev->ringtest.lost_ns = (way == NOWHERE ? NOWHERE_MS : gpu_of.stalls ? LATE_MS : LOST_MS) * GNV_NS_PER_MS;
	range->cookie = (void *)(uintptr_t)way;
	range->doubtful = true;
	range->lane = (uintptr_t)foreign->cpu;
	if (way == DIRECT)
		return 0;
	gpu_of.len = foreign->len;
	gpu_of.real = foreign->cpu;
	gpu_of.shadow = aligned_alloc(4096, foreign->len);
	memset(gpu_of.shadow, 0xff, foreign->len);
	range->lane = (uintptr_t)gpu_of.shadow;
	gpu_of.stop = false;
	if (way == SLOW)
		assert_int_equal(pthread_create(&gpu_of.copier, NULL, copy_doorbells, NULL), 0);
	return 0;
}

static int detach(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)gpu;
	gpu_of.attached--;
	if ((uintptr_t)range->cookie == DIRECT)
		return gpu_of.keeps ? -EBUSY : 0;
	if ((uintptr_t)range->cookie == SLOW) {
		__atomic_store_n(&gpu_of.stop, true, __ATOMIC_RELEASE);
		pthread_join(gpu_of.copier, NULL);
	}
	free(gpu_of.shadow);
	return 0;
}

static void distrust(struct gpunvme_gpu *gpu, const struct gnv_gpu_range *range)
{
	(void)gpu;
	gpu_of.distrusted[(uintptr_t)range->cookie] = true;
}

/* What the host says to the thread, and does not get there while that stands still. */
struct relay {
	pthread_t thread;
	uint32_t *from, to;
	bool stop; /* atomic */
};

static void *relay_main(void *arg)
{
	struct relay *r = arg;
	uint64_t since = 0;

	while (!__atomic_load_n(&r->stop, __ATOMIC_ACQUIRE)) {
		uint32_t go = __atomic_load_n(r->from, __ATOMIC_ACQUIRE);

		if (!since && go == RINGS / 2)
			since = gnv_clock_ns();
		if (go < RINGS / 2 || gnv_clock_ns() - since > gpu_of.still_ms * GNV_NS_PER_MS)
			__atomic_store_n(&r->to, go, __ATOMIC_RELEASE);
		sched_yield();
	}
	return NULL;
}

/*
 * All queues of a process stand still while the kernel moves pages that its GPU maps, for 100 ms at least after TTM has evicted
 * (Linux kfd_priv.h, PROCESS_RESTORE_TIME_MS).
 */
static int launch_stalled(struct gpunvme_gpu *gpu, const struct gnv_launch *what)
{
	struct gnv_ring_args args = *(const struct gnv_ring_args *)what->args;
	struct relay r = { .from = (uint32_t *)(uintptr_t)args.go };
	struct gnv_launch other = *what;
	int ret;

	gpu_of.stalls--;
	args.go = (uintptr_t)&r.to;
	other.args = &args;
	assert_int_equal(pthread_create(&r.thread, NULL, relay_main, &r), 0);
	ret = gnv_gpu_cpu_ops.launch(gpu, &other);
	__atomic_store_n(&r.stop, true, __ATOMIC_RELEASE);
	pthread_join(r.thread, NULL);
	return ret;
}

static int launch(struct gpunvme_gpu *gpu, const struct gnv_launch *what)
{
	if (gpu_of.launch_error) {
		gpu_of.go = ((const struct gnv_ring_args *)what->args)->go;
		return gnv_fail(gpu_of.launch_error, "the GPU hangs");
	}
	return gpu_of.stalls && what->kernel == GNV_KERNEL_RING ? launch_stalled(gpu, what) : gnv_gpu_cpu_ops.launch(gpu, what);
}

static struct gpunvme_gpu *gpu;

static int make_image(void **state)
{
	return image_make_disk(state, 1ll << 20);
}

static int begin(void **state)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	char uri[512];

	(void)state;
	memset(&gpu_of, 0, sizeof(gpu_of));
	gpu_of.ops = gnv_gpu_cpu_ops;
	gpu_of.ops.mmio_attach = attach;
	gpu_of.ops.mmio_detach = detach;
	gpu_of.bar0 = (struct gnv_mem_ops){ "bar", NULL, gnv_mem_attach_foreign, gnv_mem_detach_foreign };
	gpu_of.ops.mmio_distrust = distrust;
	gpu_of.ops.launch = launch;
	gpu_of.last = WAYS;
	gpu_of.hiccups = 100;
	gpu_of.delay_ms = DELAY_MS;
	log_text[0] = 0;
	opts.log = listen;
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, &opts, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(dev->ringtest.rings, 1000);
	dev->ringtest.rings = RINGS;
	assert_int_equal(dev->ringtest.late_ns, 1000000);
	dev->ringtest.late_ns = LATE_MS * GNV_NS_PER_MS;
	gpu->ops = &gpu_of.ops;
	gpu_of.bar0.release = dev->nvme.port->bar0->ops->release;
	dev->nvme.port->bar0->ops = &gpu_of.bar0;
	return 0;
}

static int end(void **state)
{
	(void)state;
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	assert_int_equal(gpu_of.attached, 0);
	return 0;
}

/* A queue that was tested is as good as new. */
static void use(struct gpunvme_queue *qp)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;

	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), 0);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(gpunvme_read(&dq, &dbuf, 0, (uint64_t)i << dq.lba_shift, 1ull << dq.lba_shift), 0);
	gpunvme_mem_free(mem);
}

static void test_fallback(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue *qp, *second;

	(void)state;
	opts.depth = 16;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_string_equal(gpu_of.tries, "NSD");
	assert_non_null(strstr(log_text, "did not reach the controller"));
	assert_non_null(strstr(log_text, "was seen after"));
	assert_false(gpu_of.distrusted[DIRECT]);
	use(qp);
	log_text[0] = 0;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &second), 0); /* it shares what was proven */
	assert_string_equal(gpu_of.tries, "NSD");
	assert_null(strstr(log_text, "doorbell"));
	use(second);
	gpunvme_queue_destroy(qp);
	gpunvme_queue_destroy(second);
}

/* One late doorbell in a hundred is no late mapping; two are, and get one more round. */
static void test_hiccup(void **state)
{
	struct gpunvme_queue *qp;

	(void)state;
	for (unsigned hiccups = 1; hiccups <= 2; hiccups++) {
		gpu_of.distrusted[NOWHERE] = true;
		gpu_of.hiccups = hiccups;
		gpu_of.tries[0] = log_text[0] = 0;
		assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
		assert_string_equal(gpu_of.tries, "S");
		assert_false(gpu_of.distrusted[SLOW]);
		assert_int_equal(strstr(log_text, "was seen after") != NULL, hiccups == 2);
		assert_true(gpu_of.copied >= RINGS);
		use(qp);
		gpunvme_queue_destroy(qp);
	}
}

/*
 * Threads that stand still say nothing of the way to the doorbells, however often: three launches in which they go on within the
 * host's patience (2 s), and three in which they do not.
 */
static void test_still(void **state)
{
	static const unsigned still_ms[] = { LATE_MS + 500, 10000 };
	struct gpunvme_queue *qp;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		gpu_of.distrusted[NOWHERE] = gpu_of.distrusted[SLOW] = true;
		gpu_of.stalls = 3;
		gpu_of.still_ms = still_ms[i];
		memset(gpu_of.tries, 0, sizeof(gpu_of.tries));
		log_text[0] = 0;
		assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
		assert_string_equal(gpu_of.tries, "D");
		assert_false(gpu_of.distrusted[DIRECT]);
		assert_int_equal(strstr(log_text, "the GPU ran no kernel in time") != NULL, i);
		assert_int_equal(gpu_of.stalls, i ? 0 : 2);
		use(qp);
		gpunvme_queue_destroy(qp);
	}
}

/* Without a way that works the forwarder rings. */
static void test_forwarder(void **state)
{
	struct gpunvme_queue *qp;

	(void)state;
	gpu_of.last = SLOW;
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_string_equal(gpu_of.tries, "N");
	assert_non_null(strstr(log_text, "a CPU thread rings the doorbells: no way is left"));
	use(qp);
	gpunvme_queue_destroy(qp);
}

/* The smallest queue, and one that is created without a test. */
static void test_small(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue *qp;

	(void)state;
	gpu_of.distrusted[NOWHERE] = gpu_of.distrusted[SLOW] = true;
	opts.depth = 2;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	use(qp);
	gpunvme_queue_destroy(qp);
	gpu_of.launch_error = -EIO;
	opts.flags = GPUNVME_QUEUE_NO_SELFTEST;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	gpunvme_queue_destroy(qp);
}

/* A GPU that does not let go of BAR0: the device must not be closed after it. */
static void test_kept(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue *qp;

	(void)state;
	gpu_of.distrusted[NOWHERE] = gpu_of.distrusted[SLOW] = gpu_of.keeps = true;
	opts.flags = GPUNVME_QUEUE_NO_SELFTEST;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_false(dev->nvme.port->keep);
	gpunvme_queue_destroy(qp);
	assert_true(dev->nvme.port->keep);
	gnv_gpu_put(gpu); /* the reference that stays with it */
}

static int begin_leaky(void **state)
{
	leak_expected(true);
	begin(state);
	leak_expected(false);
	return 0;
}

/* A GPU that runs nothing is no reason to distrust the mapping. When the thread begins after all, it reads that it is to end. */
static void test_dead_gpu(void **state)
{
	struct gpunvme_queue *qp = NULL;

	(void)state;
	gpu_of.launch_error = -ETIMEDOUT;
	leak_expected(true);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), -EIO);
	leak_expected(false);
	assert_non_null(strstr(gpunvme_errmsg(), "the GPU hangs"));
	assert_null(qp);
	assert_false(gpu_of.distrusted[NOWHERE]);
	assert_non_null(strstr(log_text, "are leaked: a thread that did not end in time may still use them"));
	assert_int_equal(gpunvme_dev_close(dev), 0);
	dev = NULL;
	assert_int_equal(*(const volatile uint32_t *)(uintptr_t)gpu_of.go, ~0u);
	gnv_gpu_put(gpu); /* the reference that stays with the memory */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_fallback, begin, end),
		cmocka_unit_test_setup_teardown(test_hiccup, begin, end),
		cmocka_unit_test_setup_teardown(test_still, begin, end),
		cmocka_unit_test_setup_teardown(test_forwarder, begin, end),
		cmocka_unit_test_setup_teardown(test_small, begin, end),
		cmocka_unit_test_setup_teardown(test_kept, begin, end),
		cmocka_unit_test_setup_teardown(test_dead_gpu, begin_leaky, end),
	};

	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
