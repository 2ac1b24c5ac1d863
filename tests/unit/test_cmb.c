/* SPDX-License-Identifier: MIT */
/* Memory in a controller: what it says of it, whether it is believed, and what may lie there. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "fake.h"
#include "nvme/cmb.h"
#include "nvme/reset.h"
#include "queue/queue.h"
#include "util/mmio.h"

#define MIB 0x100000ull
#define SIZE(mib) ((mib) << 12 | 2u << 8) /* of CMBSZ, units of 1 MiB */
#define SQS GPUNVME_CMBSZ_SQS
#define DATA (GPUNVME_CMBSZ_RDS | GPUNVME_CMBSZ_WDS)
#define LISTS GPUNVME_CMBSZ_LISTS
#define ANYWHERE GPUNVME_CMBLOC_CDPCILS
#define ON (GPUNVME_CMBMSC_CRE | GPUNVME_CMBMSC_CMSE)

static struct fake *with_memory(uint32_t loc, uint32_t size)
{
	struct fake *fake = fake_new();

	fake_set_cap(fake, FAKE_CAP | GPUNVME_CAP_CMBS);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CMBLOC, loc);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CMBSZ, size);
	return fake;
}

static uint64_t told(const struct fake *fake)
{
	return gnv_mmio_read64(fake->bar + GPUNVME_REG_CMBMSC);
}

static void test_registers(void **state)
{
	static const struct {
		uint32_t loc, size;
		uint64_t bytes, offset;
		unsigned bar;
	} cases[] = {
		{ 0, 0, 0, 0, 0 },				      /* none */
		{ 2, SIZE(8u), 0, 0, 0 },			      /* for nothing */
		{ 2, SIZE(8u) | GPUNVME_CMBSZ_CQS | GPUNVME_CMBSZ_RDS | LISTS, 0, 0, 0 },
		{ 2, SIZE(8u) | SQS, 8 * MIB, 0, 2 },
		{ 4 | 3u << 12, SIZE(1u) | SQS, MIB, 3 * MIB, 4 },
		{ 2 | 1u << 12, 64u << 12 | SQS, 64 * 4096, 4096, 2 }, /* units of 4 KiB */
		{ 2, 15u << 12 | SQS, 0, 0, 0 },		      /* too small to bother */
		{ 2, 1u << 12 | 6u << 8 | SQS, 1ull << 36, 0, 2 },    /* more than lies in its BAR */
		{ 2, 1u << 12 | 7u << 8 | SQS, 0, 0, 0 },	      /* no such unit */
		{ 1, SIZE(8u) | SQS, 0, 0, 0 },			      /* no such BAR */
		{ 7, SIZE(8u) | SQS, 0, 0, 0 },
		{ 2, ~0u, 0, 0, 0 },
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake *fake = with_memory(cases[i].loc, cases[i].size);
		struct gpunvme_dev *dev;

		assert_int_equal(fake_open(fake, &dev), 0);
		assert_int_equal(dev->nvme.info.cmb, cases[i].bytes < FAKE_CMB_BAR ? cases[i].bytes : FAKE_CMB_BAR);
		assert_int_equal(!!dev->nvme.cmb.arena, !!cases[i].bytes);
		if (cases[i].bytes) {
			assert_int_equal(fake->cmb.bar, cases[i].bar);
			assert_int_equal(fake->cmb.offset, cases[i].offset);
			assert_int_equal(fake->cmb.size, cases[i].bytes);
			assert_int_equal(told(fake), FAKE_CMB_IOVA | ON);
		}
		assert_int_equal(gpunvme_dev_close(dev), 0);
		fake_delete(fake, false);
	}
}

/* What may lie there, by the bits of both registers; what may not is refused by its name. */
static void test_holds(void **state)
{
	static const struct {
		uint32_t loc, size, holds;
	} cases[] = {
		{ 2 | ANYWHERE, SQS | LISTS | DATA, GPUNVME_CMB_QUEUES | GPUNVME_CMB_LISTS | GPUNVME_CMB_DATA },
		{ 2 | ANYWHERE, SQS, GPUNVME_CMB_QUEUES },
		{ 2 | ANYWHERE, DATA, GPUNVME_CMB_DATA },
		{ 2 | ANYWHERE, SQS | GPUNVME_CMBSZ_WDS, GPUNVME_CMB_QUEUES },
		{ 2 | ANYWHERE, SQS | LISTS, GPUNVME_CMB_QUEUES | GPUNVME_CMB_LISTS },
		{ 2, SQS | LISTS, GPUNVME_CMB_QUEUES }, /* of queues that lie there, too */
	};
	struct gpunvme_mem_opts listed = { sizeof(listed), GPUNVME_MEM_CMB_LISTS, 0 };
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_gpu *gpu;

	(void)state;
	opts.flags = GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_NO_SELFTEST;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fake *fake = with_memory(cases[i].loc, SIZE(8u) | cases[i].size);
		struct gpunvme_mem *mem = NULL;
		struct gpunvme_queue *qp = NULL;
		struct gpunvme_dev *dev;

		assert_int_equal(fake_open(fake, &dev), 0);
		assert_int_equal(dev->nvme.info.cmb_holds, cases[i].holds);
		if (!(cases[i].holds & GPUNVME_CMB_QUEUES)) {
			assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EOPNOTSUPP);
			assert_non_null(strstr(gpunvme_errmsg(), "takes no submission queues"));
		}
		if (!(cases[i].holds & GPUNVME_CMB_DATA)) {
			assert_int_equal(gpunvme_mem_cmb(gpu, dev, 4096, NULL, &mem), -EOPNOTSUPP);
			assert_non_null(strstr(gpunvme_errmsg(), "takes no data"));
		}
		if (!(cases[i].holds & GPUNVME_CMB_LISTS)) {
			assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 65536, &listed, &mem), 0);
			assert_int_equal(gpunvme_mem_map(mem, dev), -EOPNOTSUPP);
			assert_non_null(strstr(gpunvme_errmsg(), "takes no PRP lists"));
			assert_int_equal(gpunvme_mem_free(mem), 0);
		}
		assert_int_equal(gpunvme_dev_close(dev), 0);
		fake_delete(fake, false);
	}
	gpunvme_gpu_close(gpu);
}

/* Before NVMe 1.4 nobody tells a controller: the addresses of the BAR are its own, and there is no such register to write to. */
static void test_old_kind(void **state)
{
	struct fake *fake = with_memory(2, SIZE(8u) | SQS);
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;

	(void)state;
	fake_set_cap(fake, FAKE_CAP | GPUNVME_CAP_PMRS);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CMBSTS, GPUNVME_CMBSTS_CBAI); /* which means nothing */
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(dev->nvme.info.cmb, 8 * MIB);
	assert_true(dev->nvme.info.pmr);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	opts.flags = GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_NO_SELFTEST;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_in_range(qp->qp[0]->sq.iova, FAKE_CMB_IOVA, FAKE_CMB_IOVA + 8 * MIB);
	assert_int_equal(gpunvme_dev_reset(dev), 0);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	assert_int_equal(told(fake), 0);
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
}

/* Memory that cannot be reached; an address that it does not want. */
static void test_left(void **state)
{
	unsigned way;

	(void)state;
	for (way = 1; way < 3; way++) {
		struct fake *fake = with_memory(2, SIZE(8u) | SQS);
		struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
		struct gpunvme_gpu *gpu;
		struct gpunvme_dev *dev;
		struct gpunvme_queue *qp;

		fake->no_cmb = way == 1;
		gnv_mmio_write32(fake->bar + GPUNVME_REG_CMBSTS, way == 2 ? GPUNVME_CMBSTS_CBAI : 0);
		assert_int_equal(fake_open(fake, &dev), 0);
		assert_int_equal(dev->nvme.info.cmb | dev->nvme.info.cmb_holds, 0);
		assert_int_equal(told(fake) & GPUNVME_CMBMSC_CMSE, 0);
		assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
		opts.flags = GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_NO_SELFTEST;
		assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), "CMB"));
		assert_int_equal(gpunvme_dev_close(dev), 0);
		gpunvme_gpu_close(gpu);
		fake_delete(fake, false);
	}
}

/* It says to have more than its BAR shows: what is there must do, in pages of the controller. */
static void test_small_window(void **state)
{
	static const struct {
		size_t room;
		uint32_t page;
		bool used;
	} cases[] = {
		{ 32768, 65536, false }, { 65536, 65536, false }, { 131072, 65536, true }, { 61440, 4096, false }, { 65536, 4096, true },
	};
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev;
	uint32_t page;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CMBLOC, 2);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CMBSZ, SIZE(8u) | SQS);
	dev->nvme.ctrl.cap |= GPUNVME_CAP_CMBS;
	page = dev->nvme.ctrl.page_size;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake->cmb_room = cases[i].room;
		dev->nvme.ctrl.page_size = cases[i].page;
		gnv_cmb_open(&dev->nvme);
		assert_int_equal(!!dev->nvme.cmb.arena, cases[i].used);
		assert_int_equal(told(fake) & GPUNVME_CMBMSC_CMSE, cases[i].used ? GPUNVME_CMBMSC_CMSE : 0);
		gnv_cmb_close(&dev->nvme);
		gnv_ctrl_cmb_off(&dev->nvme.ctrl);
	}
	dev->nvme.ctrl.page_size = page;
	assert_int_equal(gpunvme_dev_close(dev), 0);
	fake_delete(fake, false);
}

/* Threads of a GPU store their data past the drive: nothing makes it arrive before the command, unless somebody has tried. */
static void test_lanes_of_gpu(void **state)
{
	struct fake *fake = with_memory(2, SIZE(1u) | SQS);
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;

	(void)state;
	fake->port.remote = true;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	opts.flags = GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_NO_SELFTEST;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	gpu->info.kind = GPUNVME_GPU_HSA;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "GPUNVME_QUEUE_NO_READBACK"));
	opts.flags |= GPUNVME_QUEUE_NO_READBACK;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	gpu->info.kind = GPUNVME_GPU_CPU;
	assert_int_equal(gpunvme_dev_close(dev), 0);
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
}

static void let_go(void *dev)
{
	(void)dev;
}

static void test_queues(void **state)
{
	struct fake *fake = with_memory(2, 64u << 12 | SQS); /* 256 KiB */
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue *qp[4];
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;

	(void)state;
	fake->granted = 7 | 7u << 16;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	opts.flags = GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_NO_SELFTEST;
	opts.depth = 1024; /* 64 KiB */
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp[i]), 0);
		assert_int_equal(fake->last.opc, GPUNVME_ADMIN_CREATE_SQ);
		assert_int_equal(fake->last.prp1, qp[i]->qp[0]->sq.iova);
		assert_true(qp[i]->qp[0]->sq.iova >= FAKE_CMB_IOVA && qp[i]->qp[0]->sq.iova + qp[i]->qp[0]->sq.len <= FAKE_CMB_IOVA + 64 * 4096);
		assert_true(qp[i]->qp[0]->cq.iova < FAKE_CMB_IOVA);
		assert_int_equal(gpunvme_queue_get_info(qp[i], &info), 0);
		assert_string_equal(info.placement, "cmb");
	}
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp[3]), -ENOSPC);
	assert_non_null(strstr(gpunvme_errmsg(), "fewer or shorter"));
	opts.depth = 16;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp[3]), 0);
	assert_int_equal(gpunvme_queue_destroy(qp[3]), 0);
	assert_int_equal(gpunvme_queue_destroy(qp[1]), 0);
	opts.depth = 1024;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp[1]), 0);
	/* A function reset forgets where it is. */
	gnv_mmio_write64(fake->bar + GPUNVME_REG_CMBMSC, 0);
	assert_int_equal(gnv_reset(&dev->nvme, let_go, dev), 0);
	assert_int_equal(told(fake), FAKE_CMB_IOVA | ON);
	for (unsigned i = 0; i < 3; i++)
		gpunvme_queue_destroy(qp[i]);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
}

/* What a GPU does not let go of must stay memory of that drive, or its threads would reach what comes after it. */
static void test_gpu_keeps_it(void **state)
{
	struct fake *fake = with_memory(2, SIZE(1u) | SQS);
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	volatile unsigned char *ring;
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;

	(void)state;
	fake->cmb_stays = true;
	assert_int_equal(fake_open(fake, &dev), 0);
	leak_expected(true);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	leak_expected(false);
	opts.flags = GPUNVME_QUEUE_CMB | GPUNVME_QUEUE_NO_SELFTEST;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	ring = qp->qp[0]->sq.cpu;
	assert_int_equal(gpunvme_queue_destroy(qp), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0); /* which is no reason to stop */
	assert_false(fake->port.keep);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	assert_true(fake->port.keep);
	*ring = 1; /* it is still there */
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_registers),
		cmocka_unit_test(test_holds),
		cmocka_unit_test(test_old_kind),
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_small_window),
		cmocka_unit_test(test_queues),
		cmocka_unit_test(test_lanes_of_gpu),
		cmocka_unit_test(test_gpu_keeps_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
