/* SPDX-License-Identifier: MIT */
/* Doorbells that have to be proven: a kernel rings a thousand times on request, and each is seen. */
#include <gpunvme/gpunvme.h>
#include <pthread.h>

#include "gpu/bar.h"
#include "gpu/gpu.h"
#include "hsa/rig.h"
#include "dev/dev.h"
#include "util/clock.h"

#define STILL_MS 5000u

static void *doorbells;
static char said[4096];

static void keep_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", text);
}

static int attach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range)
{
	static struct gnv_bar bar; /* the first way there is */
	int ret = gpu->ops->host_attach(gpu, (char *)mem->cpu + offset, len, range);

	doorbells = range->cookie;
	range->cookie = &bar;
	range->doubtful = true;
	return ret;
}

static int detach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)mem;
	range->cookie = doorbells;
	gpu->ops->host_detach(gpu, range);
	return 0;
}

static void test_bells(void **state)
{
	static struct gnv_mem_ops doubtful;
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, 16, 0, 0, 0, 0 };
	struct gpunvme_dev_opts dev_opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	(void)state;
	dev_opts.log = keep_log;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open(uri, &dev_opts, &dev), 0);
	doubtful = *dev->nvme.port->bar0->ops;
	doubtful.attach = attach;
	doubtful.detach = detach;
	dev->nvme.port->bar0->ops = &doubtful;
	dev->ringtest.late_ns = dev->ringtest.lost_ns = 10000 * GNV_NS_PER_MS; /* threads play the threads */
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_true(gnv_mem_visibility(dev->nvme.port->bar0, gpu)->proven);
	if (strstr(said, "doorbell"))
		fail_msg("%s", said);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

static void *stop_lanes(void *arg)
{
	unsigned (*evict)(unsigned ms);

	(void)arg;
	*(void **)&evict = mock_symbol("mock_evict");
	while (!evict(STILL_MS)) /* until there are threads */
		;
	return NULL;
}

/*
 * The driver stops all threads for longer than a command may take, and their clock goes on: what was completed meanwhile has not
 * timed out.
 */
static void test_still(void **state)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_NO_SELFTEST, 16, STILL_MS / 2, 0, 0, 0 };
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct hsa_path p;
	pthread_t thread;

	(void)state;
	hsa_path_open(&p, &opts);
	copy.nblocks = BLOCKS;
	copy.step = 1;
	copy.threads = 8;
	assert_int_equal(pthread_create(&thread, NULL, stop_lanes, NULL), 0);
	assert_int_equal(gpunvme_run_copy(p.gpu, &p.dq, 1, &p.dbuf, &copy), 0);
	pthread_join(thread, NULL);
	gpunvme_mem_free(p.mem);
	gpunvme_queue_destroy(p.qp);
	gpunvme_dev_close(p.dev);
	gpunvme_gpu_close(p.gpu);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(test_bells, clear), cmocka_unit_test_teardown(test_still, clear) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
