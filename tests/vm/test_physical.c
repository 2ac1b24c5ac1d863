/* SPDX-License-Identifier: MIT */
/*
 * Without an IOMMU a drive gets physical addresses: each is compared with the page tables of this process. For the guest of
 * tests/vm, as root: GPUNVME_TEST_URI names a controller by port=noiommu; there are huge pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "dma/mapping.h"
#include "queue/queue.h"

#define PAGE 4096ul
#define HUGE_PAGE (2ul << 20)
#define PRESENT (1ull << 63)
#define FRAME ((1ull << 55) - 1)

static struct gpunvme_gpu *gpu;
static struct gpunvme_dev *dev;
static struct gpunvme_queue *qp;
static struct gpunvme_dq dq;

static int setup(void **state)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 1, 0, 0 };

	(void)state;
	assert_non_null(getenv("GPUNVME_TEST_URI"));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_dev_open(getenv("GPUNVME_TEST_URI"), NULL, &dev));
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	good(gpunvme_queue_view(qp, &view, &dq));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	return 0;
}

static uint64_t physical(const void *ptr)
{
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;

	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &entry, sizeof(entry), (off_t)((uintptr_t)ptr / PAGE * sizeof(entry))), sizeof(entry));
	close(fd);
	assert_true(entry & PRESENT && entry & FRAME);
	return (entry & FRAME) * PAGE + (uintptr_t)ptr % PAGE;
}

/* The drive has this memory where it is. */
static void is_at(const void *ptr, size_t len, uint64_t address)
{
	for (size_t i = 0; i < len; i += PAGE)
		assert_int_equal(physical((const char *)ptr + i), address + i);
}

static long huge_free(void)
{
	FILE *file = fopen("/proc/meminfo", "r");
	char line[128];
	long pages = -1;

	assert_non_null(file);
	while (pages < 0 && fgets(line, sizeof(line), file))
		sscanf(line, "HugePages_Free: %ld", &pages);
	fclose(file);
	return pages;
}

static void test_rings(void **state)
{
	(void)state;
	is_at(qp->qp[0]->sq.cpu, qp->qp[0]->sq.len, qp->qp[0]->sq.iova);
	is_at(qp->qp[0]->cq.cpu, qp->qp[0]->cq.len, qp->qp[0]->cq.iova);
	assert_int_not_equal(qp->qp[0]->sq.iova, qp->qp[0]->cq.iova);
}

/* Out and back through it, and the lists of its pages are physical, too. */
static void test_huge(void **state)
{
	const struct gpunvme_mem_opts opts = { sizeof(opts), GPUNVME_MEM_HUGE, 0 };
	const long before = huge_free();
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;
	unsigned char *p;

	(void)state;
	good(gpunvme_mem_alloc(gpu, NULL, HUGE_PAGE, &opts, &mem));
	p = gpunvme_mem_ptr(mem);
	memset(p, 0x5a, HUGE_PAGE);
	assert_int_equal(before - huge_free(), 1);
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	assert_int_equal(dbuf.iova % HUGE_PAGE, 0);
	is_at(p, HUGE_PAGE, dbuf.iova);
	is_at(mem->maps->table.cpu, mem->maps->table.len, mem->maps->table.iova);
	for (uint64_t i = 0; i < HUGE_PAGE / PAGE; i++)
		p[i * PAGE] = (unsigned char)(i * 7);
	for (uint64_t i = 0; i < 16; i++)
		good(gpunvme_write(&dq, &dbuf, i * 65536, i * 65536, 65536, 0));
	memset(p, 0, HUGE_PAGE);
	for (uint64_t i = 0; i < 16; i++)
		good(gpunvme_read(&dq, &dbuf, HUGE_PAGE / 2 + i * 65536, i * 65536, 65536));
	for (uint64_t i = 0; i < HUGE_PAGE / 2; i++)
		assert_int_equal(p[HUGE_PAGE / 2 + i], i % PAGE ? 0x5a : (unsigned char)(i / PAGE * 7));
	good(gpunvme_mem_free(mem));
	assert_int_equal(huge_free(), before);
}

static void test_small(void **state)
{
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;

	(void)state;
	good(gpunvme_mem_alloc(gpu, NULL, PAGE, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	is_at(gpunvme_mem_ptr(mem), PAGE, dbuf.iova);
	good(gpunvme_mem_free(mem));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rings),
		cmocka_unit_test(test_huge),
		cmocka_unit_test(test_small),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
