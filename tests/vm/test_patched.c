/* SPDX-License-Identifier: MIT */
/*
 * Rings, PRP tables and data in memory of a driver that is not vfio-pci, on a kernel whose IOMMUFD takes that. The driver is the test
 * exporter of contrib/kernel: it refuses, moves, revokes and goes away. For the guest of tests/vm: GPUNVME_TEST_URI names the
 * controller, GPUNVME_TEST_VRAM the exporter's device.
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
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "mocks/kernel/vram_test.h"
#include "mem/mem.h"
#include "life/life.h"
#include "dma/mapping.h"
#include "queue/queue.h"
#include "util/clock.h"
#include "vm/lanes.h"

#define MIB (1u << 20)
#define RINGS (4u * MIB)
#define BAR_BYTES (64u * MIB)
#define CMD_MS 3000u

static char folder[64]; /* of the exporter's device */
static struct gpunvme_gpu *gpu;
static struct gpunvme_dev *dev;

static int begin(void **state)
{
	(void)state;
	assert_true(getenv("GPUNVME_TEST_URI") && getenv("GPUNVME_TEST_VRAM"));
	snprintf(folder, sizeof(folder), "/sys/bus/pci/devices/%s", getenv("GPUNVME_TEST_VRAM"));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_dev_open(getenv("GPUNVME_TEST_URI"), NULL, &dev));
	return 0;
}

static int put(const char *file, const char *text)
{
	char path[100];
	int fd, ret;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	fd = open(path, O_WRONLY);
	if (fd < 0)
		return -errno;
	ret = write(fd, text, strlen(text)) < 0 ? -errno : 0;
	close(fd);
	return ret;
}

static long pinned(void)
{
	char path[100];
	long bytes = -1;
	FILE *file;

	snprintf(path, sizeof(path), "%s/pinned", folder);
	file = fopen(path, "r");
	assert_true(file && fscanf(file, "%ld", &bytes) == 1);
	fclose(file);
	return bytes;
}

static int end(void **state)
{
	(void)state;
	good(put("refuse", "0"));
	good(put("provider", "0"));
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	assert_int_equal(pinned(), 0);
	return 0;
}

/* What the library does not know of this driver: a refusal moves nothing, and CPU threads may use its memory. */
static struct gpunvme_mem *import(int fd, uint64_t offset, size_t len)
{
	struct gpunvme_mem *mem;

	good(gpunvme_mem_import_dmabuf(gpu, fd, offset, len, &mem));
	mem->moves = false;
	return mem;
}

static struct gpunvme_mem *buffer(size_t len)
{
	struct vram_test_alloc alloc = { .size = len };
	int node = open("/dev/vram-test", O_RDWR | O_CLOEXEC);
	struct gpunvme_mem *mem;

	assert_true(node >= 0);
	assert_int_equal(ioctl(node, VRAM_TEST_ALLOC, &alloc), 0);
	mem = import(alloc.fd, 0, len);
	close(alloc.fd);
	close(node);
	assert_non_null(gpunvme_mem_ptr(mem));
	return mem;
}

struct rig {
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
};

static void open_queue(struct rig *r)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, 64, CMD_MS, 0, 0, 0 };
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 1, 0, 0 };

	good(gpunvme_queue_create(dev, gpu, &opts, &r->qp));
	good(gpunvme_queue_view(r->qp, &view, &r->dq));
}

static void map(struct rig *r)
{
	good(gpunvme_mem_map(r->mem, dev));
	good(gpunvme_mem_dbuf(r->mem, dev, &r->dbuf));
}

static void open_rig(struct rig *r)
{
	open_queue(r);
	r->mem = buffer(MIB);
	map(r);
}

static void close_rig(struct rig *r)
{
	gpunvme_queue_destroy(r->qp);
	gpunvme_mem_free(r->mem);
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(rand_r(&seed) >> 7);
}

/* Out of the first half of the buffer to the medium and back into the second one. */
static void compare(struct rig *r, unsigned seed)
{
	unsigned char *p = gpunvme_mem_ptr(r->mem);

	for (uint32_t blocks = 1; blocks <= MIB / 2 >> r->dq.lba_shift; blocks *= 4) {
		size_t len = (size_t)blocks << r->dq.lba_shift;

		fill(p, len, seed + blocks);
		memset(p + MIB / 2, 0, len);
		good(gpunvme_write(&r->dq, &r->dbuf, 0, 2048ull << r->dq.lba_shift, (uint64_t)blocks << r->dq.lba_shift, 0));
		good(gpunvme_read(&r->dq, &r->dbuf, MIB / 2, 2048ull << r->dq.lba_shift, (uint64_t)blocks << r->dq.lba_shift));
		assert_memory_equal(p, p + MIB / 2, len);
	}
}

static bool within(const void *p, const struct gpunvme_mem *mem)
{
	return (const char *)p >= (const char *)mem->cpu && (const char *)p < (const char *)mem->cpu + mem->len;
}

/* All that the controller reaches lies there, in blocks that are nowhere next to each other. What it read is in the host, too. */
static void test_everything_there(void **state)
{
	struct gpunvme_mem *rings = buffer(RINGS), *host;
	struct gpunvme_dbuf dhost;
	struct rig r;

	(void)state;
	good(gnv_dev_lend(dev, rings));
	open_rig(&r);
	assert_true(within(r.qp->qp[0]->sq.cpu, rings) && within(r.qp->qp[0]->cq.cpu, rings) && within(r.mem->maps->table.cpu, rings));
	assert_int_equal(pinned(), RINGS + MIB);
	compare(&r, 1);
	good(gpunvme_mem_alloc(gpu, NULL, MIB / 2, NULL, &host));
	good(gpunvme_mem_map(host, dev));
	good(gpunvme_mem_dbuf(host, dev, &dhost));
	good(gpunvme_read(&r.dq, &dhost, 0, 2048ull << r.dq.lba_shift, MIB / 2));
	good(gpunvme_read(&r.dq, &r.dbuf, 0, 2048ull << r.dq.lba_shift, MIB / 2));
	assert_memory_equal(gpunvme_mem_ptr(host), gpunvme_mem_ptr(r.mem), MIB / 2);
	gpunvme_mem_free(host);
	good(gpunvme_mem_unmap(r.mem, dev));
	assert_int_equal(pinned(), RINGS);
	close_rig(&r);
}

/* A part of a buffer that begins and ends within its blocks. */
static void test_part(void **state)
{
	struct gpunvme_mem *whole = buffer(MIB);
	unsigned char *p = gpunvme_mem_ptr(whole);
	struct rig r;

	(void)state;
	open_queue(&r);
	r.mem = import(whole->dmabuf, 3 * 4096, 9 * 4096);
	map(&r);
	fill(p, MIB, 2);
	good(gpunvme_write(&r.dq, &r.dbuf, 0, 0, 9 * 4096, 0));
	memset(p + 3 * 4096ul, 0, 9 * 4096);
	good(gpunvme_read(&r.dq, &r.dbuf, 4096, 8ull << r.dq.lba_shift, 4096));
	good(gpunvme_read(&r.dq, &r.dbuf, 0, 0, 9 * 4096));
	gpunvme_mem_free(r.mem);
	r.mem = buffer(MIB);
	fill(gpunvme_mem_ptr(r.mem), MIB, 2);
	assert_memory_equal(p, gpunvme_mem_ptr(r.mem), MIB);
	close_rig(&r);
	gpunvme_mem_free(whole);
}

static void test_refused(void **state)
{
	static const int errors[] = { EOPNOTSUPP, ERANGE, ENODEV, ENOSPC, ENOMEM };
	char text[16];
	struct rig r;

	(void)state;
	open_queue(&r);
	r.mem = buffer(MIB);
	for (unsigned i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		snprintf(text, sizeof(text), "%d", errors[i]);
		good(put("refuse", text));
		assert_int_equal(gpunvme_mem_map(r.mem, dev), -errors[i]);
		print_message("refused: %s\n", gpunvme_errmsg());
		assert_int_equal(pinned(), 0);
	}
	good(put("refuse", "0"));
	map(&r);
	compare(&r, 3);
	close_rig(&r);
}

/*
 * An exporter that names its device wants a path by P2PDMA. There is none here: drive and exporter lie on the root bus, whose host bridge
 * (8086:29c0) is not in pci_p2pdma_whitelist, and the processor is no Zen (drivers/pci/p2pdma.c).
 */
static void test_no_path(void **state)
{
	struct rig r;

	(void)state;
	open_queue(&r);
	r.mem = buffer(MIB);
	good(put("provider", "1"));
	assert_int_equal(gpunvme_mem_map(r.mem, dev), -EREMOTEIO);
	assert_non_null(strstr(gpunvme_errmsg(), "no path over PCIe"));
	assert_int_equal(pinned(), 0);
	good(put("provider", "0"));
	map(&r);
	compare(&r, 3);
	close_rig(&r);
}

/* What is mapped stays where it is; what is not may go, and is mapped where it is then. */
static void test_move(void **state)
{
	struct gpunvme_mem *copy;
	struct rig r;

	(void)state;
	open_rig(&r);
	good(gpunvme_mem_alloc(gpu, NULL, MIB, NULL, &copy));
	for (unsigned turn = 0; turn < 3; turn++) {
		compare(&r, 4 + turn);
		assert_int_equal(put("move", "1"), -EBUSY);
		compare(&r, 14 + turn);
		good(gpunvme_mem_unmap(r.mem, dev));
		memcpy(gpunvme_mem_ptr(copy), gpunvme_mem_ptr(r.mem), MIB);
		good(put("move", "1"));
		assert_memory_equal(gpunvme_mem_ptr(copy), gpunvme_mem_ptr(r.mem), MIB);
		map(&r);
	}
	compare(&r, 24);
	gpunvme_mem_free(copy);
	close_rig(&r);
}

/* All of the memory, past its driver: what a DMA that still comes would change. */
static unsigned char *whole_bar(void)
{
	char path[100];
	void *ptr;
	int fd;

	snprintf(path, sizeof(path), "%s/resource2", folder);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	ptr = mmap(NULL, BAR_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(ptr, MAP_FAILED);
	close(fd);
	return ptr;
}

static void unbind(void)
{
	uint64_t start = gnv_clock_ns();

	good(put("driver/unbind", getenv("GPUNVME_TEST_VRAM")));
	print_message("figure: unbind of the exporter took %.3f s\n", (double)(gnv_clock_ns() - start) / 1e9);
	assert_true(gnv_clock_ns() - start < SOON_NS);
}

static void bind_again(void)
{
	int fd = open("/sys/bus/pci/drivers_probe", O_WRONLY);

	assert_true(write(fd, getenv("GPUNVME_TEST_VRAM"), strlen(getenv("GPUNVME_TEST_VRAM"))) > 0);
	close(fd);
	good(put("refuse", "0"));
}

static void take_back(void)
{
	good(put("revoke", "1"));
}

/*
 * From the moment that the exporter has its memory back nothing lands there, though the threads go on. QEMU's controller completes
 * such commands without an error, as no real one would.
 */
static void taken_from_data(void (*event)(void))
{
	unsigned char *bar, *before = malloc(BAR_BYTES);
	struct rig r;

	assert_non_null(before);
	open_rig(&r);
	compare(&r, 30);
	lanes_begin(&r.dq, &r.dbuf);
	event();
	bar = whole_bar();
	memset(bar, 0x11, BAR_BYTES);
	memcpy(before, bar, BAR_BYTES);
	lanes_wait(100);
	lanes_end();
	assert_memory_equal(before, bar, BAR_BYTES);
	munmap(bar, BAR_BYTES);
	free(before);
	good(gpunvme_mem_unmap(r.mem, dev));
	assert_int_equal(gpunvme_mem_map(r.mem, dev), -ENODEV);
	print_message("revoked: %s\n", gpunvme_errmsg());
	gpunvme_mem_free(r.mem);
	if (event == unbind)
		bind_again();
	r.mem = buffer(MIB); /* the queue is as it was */
	map(&r);
	compare(&r, 31);
	close_rig(&r);
}

static void test_revoke_data(void **state)
{
	(void)state;
	for (unsigned turn = 0; turn < 3; turn++)
		taken_from_data(take_back);
}

static void test_unbind_data(void **state)
{
	(void)state;
	taken_from_data(unbind);
}

/*
 * The controller fetches commands from nowhere and dies of it; threads hear of that, and the next controller has its rings
 * elsewhere.
 */
static void taken_from_rings(void (*event)(void))
{
	uint64_t start;
	struct rig r;

	good(gnv_dev_lend(dev, buffer(RINGS)));
	open_rig(&r);
	compare(&r, 40);
	lanes_begin(&r.dq, &r.dbuf);
	event();
	start = gnv_clock_ns();
	while (!lanes_all_ended()) {
		assert_true(gnv_clock_ns() - start < SOON_NS);
		usleep(1000);
	}
	lanes_end();
	print_message("figure: lanes ended %.3f s after the rings went, with %d\n", (double)(gnv_clock_ns() - start) / 1e9,
		      lanes.ret[0]);
	close_rig(&r);
	gpunvme_dev_close(dev);
	if (event == unbind)
		bind_again();
	assert_int_equal(pinned(), 0);
	good(gpunvme_dev_open(getenv("GPUNVME_TEST_URI"), NULL, &dev));
	open_rig(&r);
	compare(&r, 41);
	close_rig(&r);
}

static void test_revoke_rings(void **state)
{
	(void)state;
	taken_from_rings(take_back);
}

static void test_unbind_rings(void **state)
{
	(void)state;
	taken_from_rings(unbind);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_everything_there), TEST(test_part),	      TEST(test_refused),     TEST(test_no_path),
		TEST(test_move),
		TEST(test_revoke_data),	     TEST(test_unbind_data), TEST(test_revoke_rings), TEST(test_unbind_rings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
