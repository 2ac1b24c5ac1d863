/* SPDX-License-Identifier: MIT */
/* Two GPUs, emulated by the mock, on one controller: queues of their own, a buffer in common, BAR0 for each by itself. */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "hsa/rig.h"
#include "dev/dev.h"

#define LEN 65536u

static bool (*sees)(unsigned gpu, const void *ptr);
static struct gpunvme_gpu *gpu[2];
static struct gpunvme_dev *dev;

static int begin(void **state)
{
	(void)state;
	*(void **)&sees = mock_symbol("mock_sees");
	pretend("MOCK_GPUS", "2");
	return !sees || gpunvme_gpu_open("hsa:0", NULL, &gpu[0]) || gpunvme_gpu_open("hsa:1", NULL, &gpu[1]) ||
	       gpunvme_dev_open(uri, NULL, &dev);
}

static int end(void **state)
{
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu[0]);
	gpunvme_gpu_close(gpu[1]);
	gpu[0] = NULL;
	return clear(state);
}

/* A thread of the GPU reads `lba` into the buffer at `offset` blocks. */
static void read_block(struct gpunvme_gpu *by, struct gpunvme_queue *qp, struct gpunvme_dbuf dbuf, unsigned lba)
{
	struct gpunvme_dq dq;
	unsigned char seen[512];
	int answer = -1;

	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gnv_gpu_read(by, &dq, &dbuf, lba, 1, &answer), 0);
	assert_int_equal(answer, 0);
	memcpy(seen, (const void *)(uintptr_t)dbuf.base, sizeof(seen)); /* addresses of the mock's threads are the process's */
	assert_int_equal(seen[0], pattern(lba));
	assert_int_equal(seen[511], pattern(lba));
}

static bool sees_queue(unsigned n, struct gpunvme_queue *qp)
{
	struct gpunvme_dq dq;

	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	return sees(n, (const void *)(uintptr_t)dq.sq) && sees(n, (const void *)(uintptr_t)dq.cq) &&
	       sees(n, (const void *)(uintptr_t)dq.stop) && sees(n, (const void *)(uintptr_t)(dq.sq_db & ~4095ull));
}

/* Rings of both lie in one chunk of memory: the second GPU must see it as well, and still when the first one goes. */
static void test_queues(void **state)
{
	struct gpunvme_queue *qp[2];
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		assert_int_equal(gpunvme_queue_create(dev, gpu[i], NULL, &qp[i]), 0);
		assert_true(sees_queue(i, qp[i]));
	}
	assert_true(sees_queue(0, qp[0]));
	gpunvme_queue_destroy(qp[0]);
	gpunvme_gpu_close(gpu[0]);
	gpu[0] = NULL;
	assert_true(sees_queue(1, qp[1]));
	assert_int_equal(gpunvme_mem_alloc(gpu[1], qp[1], LEN, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	read_block(gpu[1], qp[1], dbuf, FIRST);
	gpunvme_mem_free(mem);
	gpunvme_queue_destroy(qp[1]);
}

/* Memory that is locked for each GPU; the default is the runtime's own, to which GPUs are given access. */
static const struct gpunvme_mem_opts locked = { sizeof(locked), GPUNVME_MEM_SHARED, 0 };

/* One buffer, mapped once, used by both and by threads of the CPU. */
static void test_buffer(void **state)
{
	struct gpunvme_dbuf dbuf[2], again;
	struct gpunvme_queue *qp[2];
	struct gpunvme_mem *mem;
	struct gpunvme_gpu *cpu;
	int locks;
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &cpu), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu[0], NULL, LEN, &locked, &mem), 0);
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, gpu[1], &again), -EINVAL); /* not mapped yet */
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf[0]), 0);
	locks = counts->locks;
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, gpu[1], &dbuf[1]), 0);
	assert_int_equal(counts->locks, locks + 1);
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, gpu[1], &again), 0);
	assert_memory_equal(&again, &dbuf[1], sizeof(again));
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, gpu[0], &again), 0);
	assert_memory_equal(&again, &dbuf[0], sizeof(again));
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, cpu, &again), 0);
	assert_true(again.base == (uintptr_t)gpunvme_mem_ptr(mem));
	assert_int_equal(counts->locks, locks + 1);
	for (i = 0; i < 2; i++) {
		assert_true(sees(i, (const void *)(uintptr_t)dbuf[i].base));
		assert_int_equal(dbuf[i].iova, dbuf[0].iova);
		assert_int_equal(gpunvme_queue_create(dev, gpu[i], NULL, &qp[i]), 0);
		read_block(gpu[i], qp[i], dbuf[i], FIRST + i);
		assert_int_equal(*(unsigned char *)gpunvme_mem_ptr(mem), pattern(FIRST + i));
	}
	assert_int_equal(gpunvme_mem_unmap(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, gpu[1], &again), -EINVAL);
	assert_false(sees(1, gpunvme_mem_ptr(mem)));
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, gpu[1], &again), 0);
	gpunvme_gpu_close(cpu);
	gpunvme_queue_destroy(qp[0]);
	gpunvme_queue_destroy(qp[1]);
	gpunvme_mem_free(mem); /* unmaps, also from the guest */
}

/* The same of memory that is the runtime's own. */
static void test_own_buffer(void **state)
{
	struct gpunvme_dbuf dbuf[2];
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	const int locks = counts->locks;
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_mem_alloc(gpu[0], NULL, LEN, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf[0]), 0);
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, gpu[1], &dbuf[1]), 0);
	assert_int_equal(counts->locks, locks);
	for (i = 0; i < 2; i++) {
		assert_true(sees(i, (const void *)(uintptr_t)dbuf[i].base));
		assert_int_equal(gpunvme_queue_create(dev, gpu[i], NULL, &qp), 0);
		read_block(gpu[i], qp, dbuf[i], FIRST + i);
		assert_int_equal(*(unsigned char *)gpunvme_mem_ptr(mem), pattern(FIRST + i));
		gpunvme_queue_destroy(qp);
	}
	assert_int_equal(gpunvme_mem_free(mem), 0);
}

/* What cannot be shared, and that a refusal leaves nothing. */
static void test_refusals(void **state)
{
	const struct gpunvme_mem_opts vram = { sizeof(vram), GPUNVME_MEM_VRAM, 0 };
	const struct gpunvme_queue_opts local = { sizeof(local), GPUNVME_QUEUE_VRAM, 16, 0, 0, 0, 0 };
	struct gpunvme_mem *mem, *host;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(gpunvme_mem_alloc(gpu[0], NULL, LEN, &vram, &mem), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, gpu[0], &dbuf), 0);
	assert_int_equal(gpunvme_mem_dbuf_for(mem, dev, gpu[1], &dbuf), -EXDEV);
	assert_non_null(strstr(gpunvme_errmsg(), "GPUNVME_MEM_HOST"));
	gpunvme_mem_free(mem);

	dev->nvme.port->remote = true; /* threads would keep the order wherever queues and data lie */
	assert_int_equal(gpunvme_mem_alloc(gpu[0], NULL, LEN, &locked, &host), 0);
	assert_int_equal(gpunvme_mem_map(host, dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu[1], &local, &qp), 0);
	assert_int_equal(gpunvme_mem_dbuf_for(host, dev, gpu[1], &dbuf), -EXDEV);
	gpunvme_queue_destroy(qp);
	pretend("MOCK_FAIL", "amd_memory_lock_to_pool:1:1008");
	assert_int_equal(gpunvme_mem_dbuf_for(host, dev, gpu[1], &dbuf), -ENOMEM);
	unsetenv("MOCK_FAIL");
	assert_int_equal(gpunvme_queue_create(dev, gpu[1], &local, &qp), 0); /* the place was given back */
	gpunvme_queue_destroy(qp);
	assert_int_equal(gpunvme_mem_dbuf_for(host, dev, gpu[1], &dbuf), 0);
	assert_int_equal(gpunvme_mem_dbuf_for(NULL, dev, gpu[1], &dbuf), -EINVAL);
	assert_int_equal(gpunvme_mem_dbuf_for(host, dev, NULL, &dbuf), -EINVAL);
	gpunvme_dev_close(dev); /* undoes the mapping, and what the guest saw */
	dev = NULL;
	gpunvme_mem_free(host);
}

/* BAR0 by its DMA-BUF: two queues of a GPU share one import, another GPU makes its own, and each goes with its last queue. */
static void test_doorbells(void **state)
{
	static const struct gnv_mem_ops far = { "bar", NULL, gnv_mem_attach_foreign, gnv_mem_detach_foreign };
	const struct gpunvme_queue_opts untested = { sizeof(untested), GPUNVME_QUEUE_NO_SELFTEST, 16, 0, 0, 0, 0 };
	const struct gnv_mem_ops *near = dev->nvme.port->bar0->ops;
	struct gpunvme_queue *qp[3];
	int *importers = mock_symbol("mock_importers"), before[2], fd = memfd_create("bar0", MFD_CLOEXEC);
	unsigned i;

	(void)state;
	assert_non_null(importers);
	pretend("MOCK_INTEROP", "1");
	memcpy(before, importers, sizeof(before));
	assert_int_equal(ftruncate(fd, (off_t)dev->nvme.port->bar0->len + 65536), 0);
	dev->nvme.port->bar0->ops = &far;
	dev->nvme.port->bar0->dmabuf = fd;
	for (i = 0; i < 3; i++)
		assert_int_equal(gpunvme_queue_create(dev, gpu[i > 1], &untested, &qp[i]), 0);
	assert_int_equal(importers[0] - before[0], 1);
	assert_int_equal(importers[1] - before[1], 1);
	gpunvme_queue_destroy(qp[0]);
	assert_int_equal(counts->imports, 2);
	gpunvme_queue_destroy(qp[1]);
	assert_int_equal(counts->imports, 1);
	gpunvme_queue_destroy(qp[2]);
	assert_int_equal(counts->imports, 0);
	dev->nvme.port->bar0->ops = near;
	dev->nvme.port->bar0->dmabuf = -1;
	close(fd);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_queues), TEST(test_buffer), TEST(test_own_buffer), TEST(test_refusals), TEST(test_doorbells) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
