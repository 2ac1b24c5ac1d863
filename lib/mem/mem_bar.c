/* SPDX-License-Identifier: MIT */
/*
 * BAR0 -> DMA-BUF of other devices; that of the controller itself is port/vfio_device.c.
 * Invariant: the device is open as long as any memory in its BARs exists.
 */
#include "mem/mem_bar.h"

#include <errno.h>
#include <stdlib.h>

#include "gpu.h"
#include "os/dmabuf.h"
#include "os/iommufd.h"
#include "os/sys.h"
#include "os/type1.h"
#include "util/bits.h"

struct gnv_bar_dev {
	struct gnv_vfio vfio;
	unsigned refs; /* atomic */
};

struct mem_bar {
	struct gpunvme_mem mem; /* first: what is freed */
	struct gnv_bar_dev *dev;
};

int gnv_bar_dev_open(const char *bdf, bool type1, struct gnv_bar_dev **out)
{
	struct gnv_bar_dev *dev = calloc(1, sizeof(*dev));
	struct gnv_pci pci;
	int ret;

	if (!dev)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gnv_sysfs_pci(GNV_SYSFS, bdf, &pci);
	if (!ret)
		ret = type1 ? gnv_type1_open(&pci, &dev->vfio) : gnv_iommufd_open(&pci, &dev->vfio);
	if (ret)
		goto free_dev;
	ret = gnv_vfio_enable(&dev->vfio); /* before any export: one made while memory is off is born revoked */
	if (ret)
		goto close_dev;
	dev->refs = 1;
	*out = dev;
	return 0;

close_dev:
	gnv_vfio_close(&dev->vfio);
free_dev:
	free(dev);
	return ret;
}

void gnv_bar_dev_put(struct gnv_bar_dev *dev)
{
	if (__atomic_sub_fetch(&dev->refs, 1, __ATOMIC_ACQ_REL))
		return;
	gnv_vfio_close(&dev->vfio);
	free(dev);
}

int gnv_bar_dev_reset(struct gnv_bar_dev *dev)
{
	int ret = gnv_vfio_quiesce(&dev->vfio);

	return ret ? ret : gnv_vfio_enable(&dev->vfio);
}

static void bar_release(struct gpunvme_mem *mem)
{
	struct mem_bar *bar = gnv_container_of(mem, struct mem_bar, mem);

	gnv_sys_unmap(mem->cpu, mem->len);
	if (mem->dmabuf >= 0)
		gnv_dmabuf_close(mem->dmabuf);
	gnv_bar_dev_put(bar->dev);
}

static const struct gnv_mem_ops bar_ops = { "bar", bar_release };

int gnv_mem_bar(struct gnv_bar_dev *dev, struct gpunvme_gpu *gpu, unsigned index, uint64_t offset, size_t len,
		struct gpunvme_mem **out)
{
	struct mem_bar *bar = calloc(1, sizeof(*bar));
	void *cpu;
	int ret;

	if (!bar)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gnv_vfio_map(&dev->vfio, index, offset, len, &cpu);
	if (ret) {
		free(bar);
		return ret;
	}
	gnv_mem_init(&bar->mem, &bar_ops);
	bar->dev = dev;
	bar->mem.cpu = cpu;
	bar->mem.lane = (uintptr_t)cpu;
	bar->mem.len = len;
	bar->mem.page = gnv_sys_page_size();
	if (dev->vfio.iommufd >= 0)
		ret = gnv_vfio_export(&dev->vfio, index, offset, len, &bar->mem.dmabuf);
	__atomic_fetch_add(&dev->refs, 1, __ATOMIC_RELAXED);
	if (gpu)
		bar->mem.gpu = gnv_gpu_get(gpu);
	if (ret) {
		gnv_mem_release(&bar->mem);
		return ret;
	}
	*out = &bar->mem;
	return 0;
}
