/* SPDX-License-Identifier: MIT */
/* Memory mapped to devices: PRP tables in place, memory that a device keeps, the order of teardown. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fake.h"
#include "dma/mem_map.h"
#include "queue/qp.h"

static struct gpunvme_gpu *gpu;
static const struct gpunvme_queue_opts plain = { sizeof(plain), GPUNVME_QUEUE_NO_SELFTEST, 16, 0, 0, 0, 0 };

static int setup(void **state)
{
	(void)state;
	return gpunvme_gpu_open("cpu", NULL, &gpu);
}

static int teardown(void **state)
{
	(void)state;
	gpunvme_gpu_close(gpu);
	return 0;
}

static void test_two_devices(void **state)
{
	struct fake *fake[2] = { fake_new(), fake_new() };
	struct gpunvme_dev *dev[2];
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;
	const uint64_t *entry;
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 10 * 4096, NULL, &mem), 0);
	for (i = 0; i < 2; i++) {
		assert_int_equal(fake_open(fake[i], &dev[i]), 0);
		assert_int_equal(gpunvme_mem_dbuf(mem, dev[i], &dbuf), -EINVAL);
		assert_int_equal(gpunvme_mem_map(mem, dev[i]), 0);
		assert_int_equal(gpunvme_mem_map(mem, dev[i]), 0); /* again: nothing */
		assert_int_equal(gpunvme_mem_dbuf(mem, dev[i], &dbuf), 0);
		assert_int_equal(dbuf.base, (uintptr_t)gpunvme_mem_ptr(mem));
		assert_int_equal(dbuf.len, 10 * 4096);
		assert_int_equal(dbuf.iova, dbuf.base | FAKE_IOVA_TAG);
		assert_int_equal(dbuf.prp_a % 4096, 0);
		assert_int_equal(dbuf.prp_b % 4096, 2048);
		entry = (const uint64_t *)(uintptr_t)(dbuf.prp_b & ~FAKE_IOVA_TAG);
		assert_int_equal(entry[9], dbuf.iova + 9 * 4096);
	}
	assert_int_equal(gpunvme_mem_unmap(mem, dev[0]), 0);
	assert_int_equal(gpunvme_mem_unmap(mem, dev[0]), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev[0], &dbuf), -EINVAL);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev[1], &dbuf), 0);
	gpunvme_dev_close(dev[1]); /* still mapped */
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev[0]);
	fake_delete(fake[0], false);
	fake_delete(fake[1], false);
}

static void test_small_and_errors(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem, *big;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 8192, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	assert_int_equal(dbuf.prp_a | dbuf.prp_b, 0);
	assert_int_equal(gpunvme_mem_map(NULL, dev), -EINVAL);
	assert_int_equal(gpunvme_mem_map(mem, NULL), -EINVAL);
	assert_int_equal(gpunvme_mem_unmap(NULL, dev), -EINVAL);
	assert_int_equal(gpunvme_mem_unmap(mem, NULL), -EINVAL);
	assert_int_equal(gpunvme_mem_dbuf(NULL, dev, &dbuf), -EINVAL);
	assert_int_equal(gpunvme_mem_dbuf(mem, NULL, &dbuf), -EINVAL);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, NULL), -EINVAL);
	gpunvme_mem_free(mem);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 512 << 20, NULL, &big), 0);
	fake->map_fails_at = fake->mapped + 1; /* the buffer */
	assert_int_equal(gpunvme_mem_map(big, dev), -ENOSPC);
	fake->map_fails_at = fake->mapped + 2; /* its table, too big for a chunk */
	assert_int_equal(gpunvme_mem_map(big, dev), -ENOSPC);
	assert_int_equal(fake->maps, 1);
	assert_int_equal(gpunvme_mem_map(big, dev), 0);
	fake->fault = FAKE_GONE;
	fake->fault_opc = GPUNVME_ADMIN_GET_FEATURES;
	assert_int_equal(gpunvme_dev_get_feature(dev, 1, &(uint32_t){ 0 }), -ENODEV);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 1, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), -ENODEV);
	gpunvme_dev_close(dev); /* gone, but its port proves that DMA has stopped */
	assert_int_equal(fake->halted, 1);
	gpunvme_mem_free(mem);
	gpunvme_mem_free(big);
	fake_delete(fake, false);
}

/* A poisoned queue with a command in flight keeps every buffer, until it is deleted. */
static void test_busy(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	struct gpunvme_mem *kept, *freed, *ours;
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &kept), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &freed), 0);
	assert_int_equal(gpunvme_mem_map(kept, dev), 0);
	assert_int_equal(gpunvme_mem_map(freed, dev), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &ours), 0); /* not mapped: goes at once */
	gnv_map_free(ours);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &ours), 0);
	assert_int_equal(gpunvme_mem_map(ours, dev), 0);
	((uint64_t *)(uintptr_t)dq.result)[3] = 5ull << GPUNVME_RES_GEN_SHIFT | GPUNVME_RES_SUBMITTED;
	((struct gpunvme_dq_state *)(uintptr_t)dq.state)->poison = ETIMEDOUT;
	assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
	assert_int_equal(info.in_flight, 1);
	assert_int_equal(info.poison, ETIMEDOUT);
	assert_int_equal(gpunvme_mem_unmap(kept, dev), -EBUSY);
	assert_int_equal(gpunvme_mem_free(freed), -EBUSY);
	assert_int_equal(fake->maps, 4);
	gnv_map_free(ours); /* kept internally, released with the device */
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_mem_free(freed), 0);
	assert_int_equal(gpunvme_mem_unmap(kept, dev), 0);
	fake->unmap_busy = true;
	assert_int_equal(gpunvme_mem_map(kept, dev), 0);
	assert_int_equal(gpunvme_mem_unmap(kept, dev), -EBUSY);
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY); /* the mapping cannot be undone */
	assert_int_equal(gpunvme_mem_free(kept), -EBUSY);
	fake->unmap_busy = false;
	assert_int_equal(gpunvme_dev_close(dev), 0);
	assert_int_equal(gpunvme_mem_free(kept), 0);
	fake_delete(fake, false);
}

/* Neither CC.EN nor the port stops it: everything it may reach stays, until one of the two does. */
static void test_unstoppable(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	char *p;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	fake_hurry(fake, dev);
	fake->fault = FAKE_NEVER_DISABLED;
	fake->halt_fails = true;
	p = gpunvme_mem_ptr(mem);
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	assert_int_equal(fake->halted, 1);
	assert_true(fake->maps > 0);
	assert_int_equal(gpunvme_mem_free(mem), -EBUSY);
	assert_int_equal(gpunvme_mem_unmap(mem, dev), -EBUSY);
	p[0] = 1; /* still there */
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	assert_int_equal(fake->halted, 2);
	fake->halt_fails = false;
	fake->fault = FAKE_WELL; /* it would come back, and its user has said that it must not */
	assert_int_equal(gpunvme_dev_reset(dev), -ESHUTDOWN);
	assert_non_null(strstr(gpunvme_errmsg(), "the device is being closed. Call gpunvme_dev_close() again"));
	assert_int_equal(fake->resets, 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	fake_delete(fake, false);
}

/* Without an IOMMU the controller reaches what was unmapped: a command in flight of a queue that is well keeps memory, too. */
static void test_bare(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	uint64_t *result;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	result = (uint64_t *)(uintptr_t)dq.result + 3;
	*result = 5ull << GPUNVME_RES_GEN_SHIFT | GPUNVME_RES_SUBMITTED;
	assert_int_equal(gpunvme_mem_unmap(mem, dev), 0); /* the IOMMU sees to it */
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	fake->space.bare = true;
	assert_int_equal(gpunvme_mem_unmap(mem, dev), -EBUSY);
	assert_int_equal(gpunvme_mem_free(mem), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "in flight"));
	*result = 0;
	assert_int_equal(gpunvme_mem_free(mem), 0);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	fake_delete(fake, false);
}

/* The device in whose BAR memory lies takes it away: the error names the buffer to its user, which may map it again. */
static void test_taken_away(void **state)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	int fd;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_dev_event_fd(dev, &fd), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	gnv_mem_lose(mem, false);
	assert_int_equal(fake->cuts, 1);
	assert_int_equal(gpunvme_dev_next_event(dev, &event), 0);
	assert_int_equal(event.type, GPUNVME_EVENT_MEM_REVOKED);
	assert_ptr_equal(event.mem, mem);
	assert_null(event.queue);
	assert_int_equal(gpunvme_dev_next_event(dev, &event), -EAGAIN);
	assert_int_equal(*(uint32_t *)(uintptr_t)dq.stop, GPUNVME_ENODEV);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), -ESTALE);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	fake_delete(fake, false);
}

/* A command that nobody waits for keeps the lists of what is unmapped after it: when there is no room for more, it is named. */
static void test_lists_kept(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	unsigned i;
	int ret;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 65536, NULL, &mem), 0);
	((struct gpunvme_dq_state *)(uintptr_t)dq.state)->resv = 6;
	((uint64_t *)(uintptr_t)dq.result)[3] = 5ull << GPUNVME_RES_GEN_SHIFT | GPUNVME_RES_SUBMITTED;
	for (i = 0, ret = 0; i < 1000 && !ret; i++) {
		fake->map_fails_at = fake->mapped + 2; /* the second of a call is more memory for lists */
		ret = gpunvme_mem_map(mem, dev);
		if (!ret)
			assert_int_equal(gpunvme_mem_unmap(mem, dev), 0);
	}
	assert_int_equal(ret, -ENOSPC);
	assert_non_null(strstr(gpunvme_errmsg(), "commands of queue 1 that were in flight"));
	assert_non_null(strstr(gpunvme_errmsg(), "recover"));
	fake->map_fails_at = fake->mapped + 2;
	assert_int_equal(gpunvme_queue_recover(qp), 0);
	fake->map_fails_at = fake->mapped + 2;
	assert_int_equal(gpunvme_mem_map(mem, dev), 0); /* where theirs lay */
	assert_int_equal(gpunvme_mem_free(mem), 0);
	fake->map_fails_at = 0;
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	fake_delete(fake, false);
}

struct mapper {
	struct gpunvme_dev *dev;
	struct gpunvme_mem *mem;
};

static void *map_often(void *arg)
{
	struct mapper *m = arg;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *own;
	unsigned i;

	for (i = 0; i < 200; i++) {
		if (gpunvme_mem_alloc(gpu, NULL, 20000, NULL, &own) || gpunvme_mem_map(own, m->dev) || gpunvme_mem_map(m->mem, m->dev) ||
		    gpunvme_mem_dbuf(own, m->dev, &dbuf) || gpunvme_mem_unmap(m->mem, m->dev))
			return arg;
		gpunvme_mem_free(own);
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct fake *fake = fake_new();
	struct mapper m;
	pthread_t thread[4];
	unsigned i;
	void *bad;

	(void)state;
	assert_int_equal(fake_open(fake, &m.dev), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 20000, NULL, &m.mem), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, map_often, &m), 0);
	for (i = 0; i < 4; i++) {
		pthread_join(thread[i], &bad);
		assert_null(bad);
	}
	gpunvme_mem_free(m.mem);
	gpunvme_dev_close(m.dev);
	fake_delete(fake, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two_devices), cmocka_unit_test(test_small_and_errors), cmocka_unit_test(test_busy),
		cmocka_unit_test(test_unstoppable), cmocka_unit_test(test_threads), cmocka_unit_test(test_bare),
		cmocka_unit_test(test_lists_kept), cmocka_unit_test(test_taken_away),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
