/* SPDX-License-Identifier: MIT */
/*
 * Rings, PRP tables and data in the BAR of another device, and the doorbells as a DMA-BUF that a third one writes to. For the guest of
 * tests/vm: GPUNVME_TEST_URI names the controller, GPUNVME_TEST_VRAM the device with the BAR, GPUNVME_TEST_EDU the third: none where
 * the kernel is too old for exports.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>
#include <linux/udmabuf.h>

#include "common/good.h"
#include "mem/mem_bar.h"
#include "mem/space_vfio.h"
#include "os/vfio/iommufd.h"
#include "life/life.h"
#include "queue/queue.h"
#include "util/mmio.h"

#define VRAM_BAR 2u
#define MIB (1u << 20)
#define RINGS (4u * MIB)
#define DATA MIB

static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static struct gpunvme_bar *vram;
static bool type1;

static int setup(void **state)
{
	const char *uri = getenv("GPUNVME_TEST_URI");
	char other[64];

	(void)state;
	assert_non_null(uri);
	type1 = strstr(uri, "type1");
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	snprintf(other, sizeof(other), "%s?port=%s", getenv("GPUNVME_TEST_VRAM"), type1 ? "type1" : "iommufd");
	good(gpunvme_bar_open(other, NULL, &vram));
	good(gpunvme_dev_open(uri, NULL, &dev));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gpunvme_dev_close(dev);
	gpunvme_bar_close(vram);
	gpunvme_gpu_close(gpu);
	return 0;
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(rand_r(&seed) >> 7);
}

static void bar_buffer(uint64_t offset, struct gpunvme_mem **mem, struct gpunvme_dbuf *dbuf)
{
	good(gpunvme_mem_bar(gpu, vram, VRAM_BAR, offset, DATA, mem));
	good(gpunvme_mem_map(*mem, dev));
	good(gpunvme_mem_dbuf(*mem, dev, dbuf));
}

static void view_of(struct gpunvme_queue *qp, struct gpunvme_dq *dq)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 1, 0, 0 };

	good(gpunvme_queue_view(qp, &view, dq));
}

static bool within(const void *p, const struct gpunvme_mem *mem)
{
	return (const char *)p >= (const char *)mem->cpu && (const char *)p < (const char *)mem->cpu + mem->len;
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* 4 KiB reads, for the record: emulated, so that only large differences mean something. */
static void measure(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, const char *what)
{
	struct gpunvme_req req[32];
	double start = seconds();
	unsigned n;

	for (n = 0; n < 500; n++)
		good(gpunvme_read(dq, dbuf, 0, (uint64_t)(n * 8) << dq->lba_shift, 8ull << dq->lba_shift));
	printf("figure: 4 KiB reads, %s, depth 1: %.0f per second\n", what, n / (seconds() - start));
	start = seconds();
	for (n = 0; n < 4000; n++) {
		if (n >= 32)
			good(gpunvme_wait(dq, &req[n % 32], 0));
		good(gpunvme_submit_read(dq, dbuf, n % 32 * 4096, (uint64_t)(n % 1000 * 8) << dq->lba_shift, 8ull << dq->lba_shift,
					 &req[n % 32]));
	}
	for (n = 0; n < 32; n++)
		good(gpunvme_wait(dq, &req[n], 0));
	printf("figure: 4 KiB reads, %s, depth 32: %.0f per second\n", what, 4000 / (seconds() - start));
}

static void test_everything_in_the_bar(void **state)
{
	struct gpunvme_mem *rings, *out, *in, *host;
	struct gpunvme_dbuf dout, din, dhost;
	struct gpunvme_queue *plain, *qp;
	struct gpunvme_dq dq;

	(void)state;
	good(gpunvme_queue_create(dev, gpu, NULL, &plain));
	good(gpunvme_mem_alloc(gpu, NULL, DATA, NULL, &host));
	good(gpunvme_mem_map(host, dev));
	good(gpunvme_mem_dbuf(host, dev, &dhost));
	view_of(plain, &dq);
	measure(&dq, &dhost, "host memory");
	gpunvme_queue_destroy(plain);

	good(gnv_mem_bar(vram, NULL, VRAM_BAR, 0, RINGS, &rings));
	good(gnv_dev_lend(dev, rings));
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	assert_true(within(qp->qp[0]->sq.cpu, rings) && within(qp->qp[0]->cq.cpu, rings));
	bar_buffer(RINGS, &out, &dout);
	bar_buffer(RINGS + DATA, &in, &din);
	view_of(qp, &dq);
	for (uint32_t blocks = 1; blocks <= DATA >> dq.lba_shift; blocks *= 4) {
		size_t len = (size_t)blocks << dq.lba_shift;

		fill(gpunvme_mem_ptr(out), len, blocks);
		memset(gpunvme_mem_ptr(in), 0, len);
		good(gpunvme_write(&dq, &dout, 0, 64ull << dq.lba_shift, (uint64_t)blocks << dq.lba_shift, 0));
		good(gpunvme_read(&dq, &din, 0, 64ull << dq.lba_shift, (uint64_t)blocks << dq.lba_shift));
		assert_memory_equal(gpunvme_mem_ptr(in), gpunvme_mem_ptr(out), len);
		good(gpunvme_read(&dq, &dhost, 0, 64ull << dq.lba_shift, (uint64_t)blocks << dq.lba_shift));
		assert_memory_equal(gpunvme_mem_ptr(host), gpunvme_mem_ptr(out), len);
	}
	measure(&dq, &din, "all in the BAR");
	gpunvme_queue_destroy(qp);
	gpunvme_mem_free(out);
	gpunvme_mem_free(in);
	gpunvme_mem_free(host);
}

static void open_queue(struct gpunvme_queue **qp, struct gpunvme_dq *dq)
{
	good(gpunvme_queue_create(dev, gpu, NULL, qp));
	view_of(*qp, dq);
}

static void test_import(void **state)
{
	struct gpunvme_mem *bar, *import;
	struct gpunvme_dbuf dbar, dimport;
	unsigned char *p;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	(void)state;
	open_queue(&qp, &dq);
	bar_buffer(8 * MIB, &bar, &dbar);
	p = gpunvme_mem_ptr(bar);
	if (type1)
		goto out;
	assert_int_equal(gpunvme_mem_import_dmabuf(gpu, bar->dmabuf, 0, DATA + 4096, &import), -ERANGE);
	assert_int_equal(gpunvme_mem_import_dmabuf(gpu, bar->dmabuf, 8, 4096, &import), -EINVAL);
	good(gpunvme_mem_import_dmabuf(gpu, bar->dmabuf, 65536, 65536, &import));
	assert_null(gpunvme_mem_ptr(import));
	good(gpunvme_mem_map(import, dev));
	good(gpunvme_mem_dbuf(import, dev, &dimport));
	fill(p, 65536, 5);
	good(gpunvme_write(&dq, &dbar, 0, 500ull << dq.lba_shift, 65536, 0));
	memset(p + 65536, 0, 65536);
	good(gpunvme_read(&dq, &dimport, 0, 500ull << dq.lba_shift, 65536));
	assert_memory_equal(p, p + 65536, 65536);
	gpunvme_mem_free(import);
out:
	gpunvme_mem_free(bar);
	gpunvme_queue_destroy(qp);
}

/* A DMA-BUF of another exporter: today's kernels refuse it, and the library says which rule that is. */
static void test_foreign_exporter(void **state)
{
	struct udmabuf_create create = { .size = DATA };
	struct gpunvme_mem *mem;
	int control, fd;

	(void)state;
	if (access("/dev/udmabuf", F_OK))
		skip(); /* no other exporter in this kernel */
	create.memfd = (uint32_t)memfd_create("pages", MFD_ALLOW_SEALING);
	assert_int_equal(ftruncate((int)create.memfd, DATA), 0);
	assert_int_equal(fcntl((int)create.memfd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
	control = open("/dev/udmabuf", O_RDWR);
	assert_true(control >= 0);
	fd = ioctl(control, UDMABUF_CREATE, &create);
	assert_true(fd >= 0);
	good(gpunvme_mem_import_dmabuf(gpu, fd, 0, DATA, &mem));
	if (type1) {
		printf("type 1 answers %d for a DMA-BUF of udmabuf\n", gpunvme_mem_map(mem, dev));
	} else {
		assert_int_equal(gpunvme_mem_map(mem, dev), -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), "vfio-pci"));
	}
	gpunvme_mem_free(mem);
	close(fd);
	close(control);
	close((int)create.memfd);
}

/* Addresses that nothing is mapped at: the controller reports what it fetches from there, and works on. */
static void test_unmapped_address(void **state)
{
	struct gpunvme_dbuf nowhere = { 0, DATA, 0x7000000000ull, 0x7100000000ull, 0x7200000800ull };
	struct gpunvme_mem *host;
	struct gpunvme_dbuf dhost;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	(void)state;
	open_queue(&qp, &dq);
	assert_int_equal(gpunvme_read(&dq, &nowhere, 0, 0, 16384) & GPUNVME_ST_CODE, GPUNVME_SC_DATA_TRANSFER);
	good(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &host));
	good(gpunvme_mem_map(host, dev));
	good(gpunvme_mem_dbuf(host, dev, &dhost));
	fill(gpunvme_mem_ptr(host), 4096, 3);
	good(gpunvme_write(&dq, &dhost, 0, 40ull << dq.lba_shift, 4096, 0));
	gpunvme_mem_free(host);
	gpunvme_queue_destroy(qp);
}

/* The edu device copies between a bus address and its buffer at 0x40000. */
static void edu_copy(char *regs, uint64_t from, uint64_t to, uint64_t len, uint64_t command)
{
	double start = seconds();

	gnv_mmio_write64(regs + 0x80, from);
	gnv_mmio_write64(regs + 0x88, to);
	gnv_mmio_write64(regs + 0x90, len);
	gnv_mmio_write64(regs + 0x98, command);
	while (gnv_mmio_read32(regs + 0x98) & 1)
		assert_true(seconds() - start < 60);
}

/* QEMU's educational device as the one that rings: its registers, and the address space that it makes DMA in. */
struct ringer {
	struct gnv_vfio vfio;
	struct gnv_space *space;
	void *regs;
	struct gpunvme_mem *doorbells, *word;
	uint64_t offset, bell, value; /* of the doorbells in BAR0, of the doorbells and of the word in the space */
	size_t len;
};

static void ringer_open(struct ringer *r)
{
	struct gnv_pci pci;
	int fd;

	good(gnv_sysfs_pci(GNV_SYSFS, getenv("GPUNVME_TEST_EDU"), &pci));
	good(gnv_vfio_open(gnv_iommufd_take, &pci, NULL, &r->vfio));
	good(gnv_vfio_enable(&r->vfio));
	good(gnv_vfio_master(&r->vfio));
	good(gnv_vfio_map(&r->vfio, 0, 0, 4096, &r->regs));
	good(gnv_space_iommufd_create(&r->vfio, &r->space));
	good(gpunvme_dev_export_doorbells(dev, &fd, &r->offset, &r->len));
	assert_int_equal(r->offset, 4096);
	assert_int_equal(r->len, 4096);
	good(gpunvme_mem_import_dmabuf(gpu, fd, 0, r->len, &r->doorbells));
	close(fd);
	good(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &r->word));
	good(r->space->ops->map(r->space, r->doorbells, &r->bell));
	good(r->space->ops->map(r->space, r->word, &r->value));
}

static void ringer_close(struct ringer *r)
{
	good(r->space->ops->unmap(r->space, r->bell, r->len));
	good(r->space->ops->unmap(r->space, r->value, 4096));
	assert_int_equal(r->space->ops->unmap(r->space, r->value, 4096), -ENOENT);
	gpunvme_mem_free(r->word);
	gpunvme_mem_free(r->doorbells);
	gnv_space_put(r->space);
	munmap(r->regs, 4096);
	gnv_vfio_close(&r->vfio);
}

/* Rings the submission doorbell of a queue with a tail of 1: copied by the device from the word to the register. */
static void ring(struct ringer *r, const struct gpunvme_queue *qp)
{
	*(uint32_t *)gpunvme_mem_ptr(r->word) = 1;
	edu_copy(r->regs, r->value, 0x40000, 4, 1);
	edu_copy(r->regs, 0x40000, r->bell + gnv_ctrl_sq_doorbell(&dev->nvme.ctrl, qp->qp[0]->qid) - r->offset, 4, 3);
}

/* One read, written by hand, that nobody but the other device rings for. */
static void read_rung_by(struct ringer *r)
{
	struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_NO_SELFTEST, 4, 0, 0, 0, 0 };
	struct gpunvme_mem *data;
	struct gpunvme_dbuf ddata;
	struct gpunvme_queue *qp;
	double start;

	good(gpunvme_queue_create(dev, gpu, &opts, &qp));
	good(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &data));
	good(gpunvme_mem_map(data, dev));
	good(gpunvme_mem_dbuf(data, dev, &ddata));
	memset(gpunvme_mem_ptr(data), 0xee, 4096);
	*(struct gpunvme_sqe *)qp->qp[0]->sq.cpu =
		(struct gpunvme_sqe){ .opc = GPUNVME_IO_READ, .cid = 7, .nsid = 1, .prp1 = ddata.iova, .cdw12 = 7 };
	ring(r, qp);
	for (start = seconds(); !(gnv_mmio_read32((char *)qp->qp[0]->cq.cpu + 12) & GPUNVME_CQE_DW3_PHASE);)
		assert_true(seconds() - start < 60);
	assert_int_equal(gnv_mmio_read32((char *)qp->qp[0]->cq.cpu + 12) & GPUNVME_CQE_DW3_CID, 7);
	assert_int_not_equal(*(unsigned char *)gpunvme_mem_ptr(data), 0xee);
	gpunvme_queue_destroy(qp);
	gpunvme_mem_free(data);
}

static void test_other_device_rings_doorbell(void **state)
{
	struct ringer ringer;
	int fd;

	(void)state;
	if (!getenv("GPUNVME_TEST_EDU"))
		skip();
	if (type1) {
		good(gpunvme_dev_export_doorbells(dev, &fd, &ringer.offset, &ringer.len)); /* for group descriptors as well */
		close(fd);
		return;
	}
	ringer_open(&ringer);
	read_rung_by(&ringer);
	ringer_close(&ringer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_import),	   cmocka_unit_test(test_foreign_exporter),
		cmocka_unit_test(test_unmapped_address),
		cmocka_unit_test(test_other_device_rings_doorbell),
		cmocka_unit_test(test_everything_in_the_bar),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
