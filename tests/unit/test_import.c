/* SPDX-License-Identifier: MIT */
/* Memory that comes in by a DMA-BUF, by its exporter: what the kernel says of that, and of type 1 mappings, is emulated. */
#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "fake.h"
#include "mem/mem.h"
#include "mem/space_vfio.h"

#define BYTES 8192u

static const char *exporter; /* NULL: this kernel does not tell */
static unsigned type1_maps;
static int container = -1;
static struct gpunvme_gpu *gpu;
static unsigned scratches; /* that the GPU gave */

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

/* drivers/dma-buf/dma-buf.c, dma_buf_show_fdinfo(), below what every descriptor has. */
int __wrap_open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;
	int fd;

	if (!strncmp(path, "/proc/self/fdinfo/", 18)) {
		fd = memfd_create("fdinfo", MFD_CLOEXEC);
		dprintf(fd, "pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t12\nsize:\t%u\ncount:\t1\n", BYTES);
		if (exporter)
			dprintf(fd, "exp_name:\t%s\nname:\tudmabuf\n", exporter);
		lseek(fd, 0, SEEK_SET);
		return fd;
	}
	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	return __real_open(path, flags, mode);
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (request == VFIO_IOMMU_MAP_DMA)
		type1_maps++;
	else if (request != VFIO_IOMMU_GET_INFO && request != VFIO_IOMMU_UNMAP_DMA)
		return __real_ioctl(fd, request, arg);
	return 0;
}

static struct gpunvme_mem *import(const char *by)
{
	int fd = memfd_create("buffer", MFD_CLOEXEC);
	struct gpunvme_mem *mem;

	exporter = by;
	assert_true(fd >= 0 && !ftruncate(fd, BYTES));
	assert_int_equal(gpunvme_mem_import_dmabuf(gpu, fd, 0, BYTES, &mem), 0);
	close(fd);
	return mem;
}

static const char *const moving[] = { "drm", "amdgpu", "i915", "nvidia", "", "system2", "udm", NULL };
static const char *const still[] = { "vfio_pci_core", "udmabuf", "system", "linux,cma" };

/* Type 1 does not learn that memory moves. */
static void test_type1(void **state)
{
	struct gnv_vfio vfio = { .bdf = "0000:04:00.0", .as.fd = container, .group = 3 };
	struct gpunvme_mem *mem;
	struct gnv_space *space;
	uint64_t iova;
	size_t i;

	(void)state;
	assert_int_equal(gnv_space_type1_create(&vfio, &space), 0);
	for (i = 0; i < sizeof(moving) / sizeof(moving[0]); i++) {
		mem = import(moving[i]);
		gnv_space_vfio_of(space)->unsafe_vram = false;
		type1_maps = 0;
		assert_int_equal(space->ops->map(space, mem, &iova), -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), "unsafe-vram=1"));
		assert_int_equal(type1_maps, 0);
		gnv_space_vfio_of(space)->unsafe_vram = true;
		assert_int_equal(space->ops->map(space, mem, &iova), 0);
		assert_int_equal(type1_maps, 1);
		gpunvme_mem_free(mem);
	}
	gnv_space_vfio_of(space)->unsafe_vram = false;
	for (i = 0; i < sizeof(still) / sizeof(still[0]); i++) {
		mem = import(still[i]);
		assert_int_equal(space->ops->map(space, mem, &iova), 0);
		gpunvme_mem_free(mem);
	}
	gnv_space_put(space);
}

static int give_scratch(struct gpunvme_gpu *of, uint32_t how, size_t len, struct gnv_gpu_bytes *bytes)
{
	(void)of;
	(void)how;
	*bytes = (struct gnv_gpu_bytes){ .cpu = aligned_alloc(4096, len), .len = len, .page = 4096, .dmabuf = -1 };
	scratches++;
	return bytes->cpu ? 0 : -ENOMEM;
}

static void take_scratch(struct gpunvme_gpu *of, struct gnv_gpu_bytes *bytes)
{
	(void)of;
	free(bytes->cpu);
	bytes->cpu = NULL;
}

static struct gpunvme_dev *open_remote(struct fake *fake)
{
	struct gpunvme_dev *dev;

	fake->port.remote = true;
	fake->space.by_dmabuf = true;
	assert_int_equal(fake_open(fake, &dev), 0);
	return dev;
}

/* By IOMMUFD a scratch buffer goes first, once for a device; what stays where it is needs none. */
static void test_scratch(void **state)
{
	const struct gnv_gpu_ops *real = gpu->ops;
	struct gnv_gpu_ops ops = *real;
	struct fake *fake = fake_new();
	struct gpunvme_dev *dev = open_remote(fake);
	struct gpunvme_mem *kept = import("udmabuf"), *mem = import("drm"), *more = import("drm");
	unsigned before = fake->mapped;

	(void)state;
	ops.mem_alloc = give_scratch;
	ops.mem_free = take_scratch;
	gpu->ops = &ops;
	scratches = 0;
	assert_int_equal(gpunvme_mem_map(kept, dev), 0);
	assert_int_equal(fake->mapped, before + 1);
	assert_int_equal(scratches, 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(scratches, 1);
	assert_int_equal(fake->mapped, before + 3);
	assert_int_equal(gpunvme_mem_map(more, dev), 0);
	assert_int_equal(scratches, 1);
	gpunvme_mem_free(more);
	gpunvme_mem_free(mem);
	gpunvme_mem_free(kept);
	gpunvme_dev_close(dev);
	gpu->ops = real;
	fake_delete(fake, false);
}

/* A refused scratch buffer, or none to be had: the kernel never sees the DMA-BUF. */
static void test_scratch_refused(void **state)
{
	const struct gnv_gpu_ops *real = gpu->ops;
	struct gnv_gpu_ops ops = *real;
	struct fake *fake[2] = { fake_new(), fake_new() };
	struct gpunvme_dev *dev[2] = { open_remote(fake[0]), open_remote(fake[1]) };
	struct gpunvme_mem *mem = import("drm");
	unsigned before = fake[0]->mapped, other = fake[1]->mapped;

	(void)state;
	ops.mem_alloc = give_scratch;
	ops.mem_free = take_scratch;
	gpu->ops = &ops;
	fake[0]->map_fails_at = before + 1;
	assert_int_equal(gpunvme_mem_map(mem, dev[0]), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "scratch"));
	assert_int_equal(gpunvme_mem_map(mem, dev[0]), -EOPNOTSUPP);
	assert_int_equal(fake[0]->mapped, before + 1);
	gpu->ops = real; /* has no memory */
	assert_int_equal(gpunvme_mem_map(mem, dev[1]), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "Import it with the GPU that it is of"));
	assert_int_equal(fake[1]->mapped, other);
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev[0]);
	gpunvme_dev_close(dev[1]);
	fake_delete(fake[0], false);
	fake_delete(fake[1], false);
}

static int setup(void **state)
{
	(void)state;
	container = memfd_create("container", MFD_CLOEXEC);
	return container < 0 ? -1 : gpunvme_gpu_open("cpu", NULL, &gpu);
}

static int teardown(void **state)
{
	(void)state;
	gpunvme_gpu_close(gpu);
	return close(container);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_type1),
		cmocka_unit_test(test_scratch),
		cmocka_unit_test(test_scratch_refused),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
