/* SPDX-License-Identifier: MIT */
/* Every allocation and every mapping fails once: the call says so, and nothing is left. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <gpunvme/device.h>

#include "fake.h"
#include "util/mmio.h"

/* The linker sends the library's calls here (--wrap). */
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);

static _Thread_local unsigned calls, fails_at;
static _Thread_local bool no_realloc;

static bool fails(void)
{
	return fails_at && ++calls == fails_at;
}

void *__wrap_calloc(size_t count, size_t size)
{
	return fails() ? NULL : __real_calloc(count, size);
}

void *__wrap_malloc(size_t size)
{
	return fails() ? NULL : __real_malloc(size);
}

void *__wrap_realloc(void *old, size_t size)
{
	return no_realloc ? NULL : __real_realloc(old, size);
}

/* Everything from open to a mapped buffer. Return: the first failure. */
static int run(struct fake *fake)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_NO_SELFTEST, 0, 0, 0, 0, 0 };
	struct gpunvme_gpu *gpu = NULL;
	struct gpunvme_dev *dev = NULL;
	struct gpunvme_mem *mem = NULL;
	struct gpunvme_queue *qp = NULL;
	int ret = gpunvme_gpu_open("cpu", NULL, &gpu);

	if (!ret)
		ret = fake_open(fake, &dev);
	else
		fake->closed++; /* it was never handed over */
	if (!ret)
		ret = gpunvme_queue_create(dev, gpu, &opts, &qp);
	if (!ret)
		ret = gpunvme_mem_alloc(gpu, NULL, 3 << 20, NULL, &mem);
	if (!ret)
		ret = gpunvme_mem_map(mem, dev);
	gpunvme_mem_free(mem);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return ret;
}

static void test_allocations(void **state)
{
	int ret = -ENOMEM;
	unsigned n;

	(void)state;
	for (n = 1; ret; n++) {
		struct fake *fake = fake_new();

		calls = 0;
		fails_at = n;
		ret = run(fake);
		fails_at = 0;
		assert_int_equal(ret, calls < n ? 0 : -ENOMEM); /* no failure is passed over */
		assert_true(n < 50);
		fake_delete(fake, false);
	}
	assert_true(n > 8); /* the wrapping works */
}

static void test_mappings(void **state)
{
	int ret = -ENOSPC;
	unsigned n;

	(void)state;
	for (n = 1; ret; n++) {
		struct fake *fake = fake_new();

		fake->map_fails_at = n;
		ret = run(fake);
		assert_true(ret == 0 || ret == -ENOSPC);
		assert_true(n < 50);
		fake_delete(fake, false);
	}
	assert_true(n > 2);
}

/* Memory in the drive that nobody will use is not left switched on. */
static void test_cmb(void **state)
{
	unsigned n, without = 0;
	bool whole = false;

	(void)state;
	for (n = 1; !whole; n++) {
		struct fake *fake = fake_new();
		struct gpunvme_dev *dev;
		int ret;

		fake_set_cap(fake, FAKE_CAP | GPUNVME_CAP_CMBS);
		gnv_mmio_write32(fake->bar + GPUNVME_REG_CMBLOC, 2);
		gnv_mmio_write32(fake->bar + GPUNVME_REG_CMBSZ, 8u << 12 | 2u << 8 | 1); /* 8 MiB, for submission queues */
		calls = 0;
		fails_at = n;
		ret = fake_open(fake, &dev);
		fails_at = 0;
		assert_true(n < 50);
		if (!ret) {
			whole = dev->nvme.cmb.arena;
			without += !whole;
			assert_int_equal(!!(gnv_mmio_read64(fake->bar + GPUNVME_REG_CMBMSC) & GPUNVME_CMBMSC_CMSE), whole);
			assert_int_equal(gpunvme_dev_close(dev), 0);
		}
		fake_delete(fake, false);
	}
	assert_int_equal(without, 3); /* the memory, the arena, and its chunk */
}

/* Memory that was mapped and could not be listed, while the controller may write anywhere: it goes with the device. */
static void test_cache(void **state)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_NO_SELFTEST, 0, 50, 0, 0, 0 };
	const struct gpunvme_dbuf nowhere = { 0, 4096, 0x10000, 0, 0 };
	void *memory = aligned_alloc(4096, 4096);
	struct fake *fake = fake_new();
	struct gpunvme_mem_use use;
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	unsigned maps;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_read(&dq, &nowhere, 0, 0, 1ull << dq.lba_shift), -GPUNVME_ETIMEDOUT);
	maps = fake->maps;
	no_realloc = true;
	assert_int_equal(gpunvme_mem_get(gpu, dev, memory, 4096, 0, &use), -ENOMEM);
	no_realloc = false;
	assert_int_equal(fake->maps, maps + 1);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	assert_int_equal(gpu->refs, 1);
	gpunvme_gpu_close(gpu);
	free(memory);
	fake_delete(fake, false);
}

static void test_uri(void **state)
{
	struct gpunvme_dev *dev = NULL;
	unsigned n;
	int ret;

	(void)state;
	for (n = 1, ret = -ENOMEM; ret == -ENOMEM; n++) {
		calls = 0;
		fails_at = n;
		ret = gpunvme_dev_open("soft:/nonexistent?lba=512&queues=3", NULL, &dev);
		fails_at = 0;
		assert_true(n < 50);
	}
	assert_int_equal(ret, -ENOENT);
	assert_null(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_allocations),
		cmocka_unit_test(test_mappings),
		cmocka_unit_test(test_cmb),
		cmocka_unit_test(test_cache),
		cmocka_unit_test(test_uri),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
