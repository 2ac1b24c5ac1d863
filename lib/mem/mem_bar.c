/* SPDX-License-Identifier: MIT */
/*
 * Memory in BARs of other devices, as DMA-BUFs. (Memory of the controller itself: port/vfio_device.c.) Invariant: the device is
 * open as long as any memory in its BARs exists, unless the kernel wanted it back. Order of locks: that of the device, that of a
 * memory in it.
 */
#include "mem/mem_bar.h"

#include <errno.h>
#include <stdlib.h>

#include "os/linux/dmabuf.h"
#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/process.h"

struct mem_bar {
	struct gpunvme_mem mem; /* first: it has the address of the whole */
	struct gpunvme_bar *dev;
	struct mem_bar *next;
};

struct gpunvme_bar {
	uint64_t process; /* that opened it (util/process.h) */
	struct gnv_vfio vfio;
	struct gnv_vfio_watch watch;
	struct gnv_log log;
	unsigned refs;        /* atomic */
	pthread_mutex_t lock; /* protects the fields below, and vfio.fd against the watcher */
	struct mem_bar *mems;
};

/* End all uses of this memory by devices that have it mapped. */
static void lose_all(struct gpunvme_bar *dev, bool gone)
{
	struct mem_bar *bar;

	for (bar = dev->mems; bar; bar = bar->next)
		gnv_mem_lose(&bar->mem, gone);
}

/* As the port does with a controller: the kernel's remover must not wait. */
static void give_back(struct gpunvme_bar *dev)
{
	struct mem_bar *bar;
	enum gnv_vfio_end end;
	int ret = 0;

	for (bar = dev->mems; bar && !ret; bar = bar->next)
		ret = gnv_sys_replace_ones(bar->mem.cpu, bar->mem.len);
	if (!ret)
		ret = gnv_vfio_quiesce(&dev->vfio, &end);
	if (ret) {
		gnv_log(&dev->log, GPUNVME_LOG_ERROR, "%s: the kernel wants the device back. Free the memory in it and close it",
			dev->vfio.bdf);
		return;
	}
	gnv_vfio_release(&dev->vfio);
	gnv_log(&dev->log, GPUNVME_LOG_WARN, "%s: the kernel wanted the device back (unbind or removal), so it was released",
		dev->vfio.bdf);
}

static void alarm_rang(void *ctx, bool must_release)
{
	struct gpunvme_bar *dev = ctx;

	pthread_mutex_lock(&dev->lock);
	lose_all(dev, must_release);
	if (must_release)
		give_back(dev);
	else
		gnv_log(&dev->log, GPUNVME_LOG_ERROR, "%s: the PCI bus reported an error of the device (see dmesg). Reset it",
			dev->vfio.bdf);
	pthread_mutex_unlock(&dev->lock);
}

int gnv_bar_dev_open(gnv_vfio_take *take, const struct gnv_pci *pci, const struct gnv_log *log, struct gpunvme_bar **out)
{
	struct gpunvme_bar *dev = calloc(1, sizeof(*dev));
	int ret;

	if (!dev)
		return gnv_fail(-ENOMEM, "out of memory");
	dev->log = *log;
	dev->process = gnv_process();
	dev->refs = 1;
	pthread_mutex_init(&dev->lock, NULL);
	ret = gnv_vfio_open(take, pci, NULL, &dev->vfio);
	if (ret)
		goto free_dev;
	ret = gnv_vfio_enable(&dev->vfio); /* before any export: one made while memory is off is born revoked */
	if (!ret)
		ret = gnv_vfio_master(&dev->vfio); /* its DMA ends in an address space of its own, which is empty */
	if (!ret)
		ret = gnv_vfio_watch_start(&dev->watch, &dev->vfio, alarm_rang, dev);
	if (ret)
		goto close_device;
	*out = dev;
	return 0;

close_device:
	gnv_vfio_close(&dev->vfio);
free_dev:
	pthread_mutex_destroy(&dev->lock);
	free(dev);
	return ret;
}

static void put(struct gpunvme_bar *dev)
{
	if (__atomic_sub_fetch(&dev->refs, 1, __ATOMIC_ACQ_REL))
		return;
	gnv_vfio_watch_stop(&dev->watch);
	gnv_vfio_close(&dev->vfio);
	pthread_mutex_destroy(&dev->lock);
	free(dev);
}

GPUNVME_API int gpunvme_bar_close(struct gpunvme_bar *bar)
{
	if (!bar)
		return 0;
	if (gnv_foreign(bar->process))
		return -ECHILD;
	gnv_log_end(&bar->log); /* memory in it may keep it open, but its user's log is the user's again */
	put(bar);
	return 0;
}

static int check_held(const struct gpunvme_bar *dev)
{
	return gnv_vfio_released(&dev->vfio) ? gnv_fail(-ENODEV, "%s was given back to the kernel", dev->vfio.bdf) : 0;
}

GPUNVME_API int gpunvme_bar_reset(struct gpunvme_bar *bar)
{
	int ret = gnv_enter(bar, bar, "bar");

	if (ret)
		return ret;
	pthread_mutex_lock(&bar->lock);
	ret = check_held(bar);
	if (!ret && bar->vfio.reset_way != GNV_VFIO_RESET_NONE)
		lose_all(bar, false);
	if (!ret)
		ret = gnv_vfio_reset(&bar->vfio);
	if (!ret)
		ret = gnv_vfio_enable(&bar->vfio);
	if (!ret)
		ret = gnv_vfio_master(&bar->vfio);
	pthread_mutex_unlock(&bar->lock);
	return ret;
}

static void bar_release(struct gpunvme_mem *mem)
{
	struct mem_bar *bar = gnv_container_of(mem, struct mem_bar, mem), **link;
	struct gpunvme_bar *dev = bar->dev;

	pthread_mutex_lock(&dev->lock);
	for (link = &dev->mems; *link != bar; link = &(*link)->next)
		;
	*link = bar->next;
	pthread_mutex_unlock(&dev->lock);
	gnv_sys_unmap(mem->cpu, mem->len);
	if (mem->dmabuf >= 0)
		gnv_dmabuf_close(mem->dmabuf);
	put(dev);
}

static const struct gnv_mem_ops bar_ops = { "bar", bar_release, gnv_mem_attach_foreign, gnv_mem_detach_foreign };

/* With the device's lock held. IOMMUFD needs a DMA-BUF. Type 1 maps the CPU's mapping and needs none. */
static int map_bar(struct mem_bar *bar, unsigned index, uint64_t offset, size_t len)
{
	struct gpunvme_bar *dev = bar->dev;
	int ret = check_held(dev);

	if (!ret)
		ret = gnv_vfio_map(&dev->vfio, index, offset, len, &bar->mem.cpu);
	if (ret)
		return ret;
	ret = gnv_vfio_export(&dev->vfio, index, offset, len, 1, &bar->mem.dmabuf);
	if (!ret || dev->vfio.group >= 0)
		return 0;
	gnv_sys_unmap(bar->mem.cpu, len);
	return ret;
}

int gnv_mem_bar(struct gpunvme_bar *dev, struct gpunvme_gpu *gpu, unsigned index, uint64_t offset, size_t len,
		struct gpunvme_mem **out)
{
	struct mem_bar *bar;
	int ret;

	if (index >= GNV_VFIO_BARS)
		return gnv_fail(-EINVAL, "a PCI device has no BAR %u, only 0 to %u", index, GNV_VFIO_BARS - 1);
	if (!len && offset < dev->vfio.bar[index].size)
		len = (size_t)(dev->vfio.bar[index].size - offset);
	if (!len || (offset | len) & (gnv_sys_page_size() - 1))
		return gnv_fail(-EINVAL, "%s: the part of BAR %u (offset 0x%llx, %zu bytes) must begin and end on a page", dev->vfio.bdf,
				index, (unsigned long long)offset, len);
	if (dev->vfio.bar[index].size && !gnv_within(offset, len, dev->vfio.bar[index].size))
		return gnv_fail(-ERANGE, "%s: offset 0x%llx and %zu bytes are not within the %llu bytes of BAR %u", dev->vfio.bdf,
				(unsigned long long)offset, len, (unsigned long long)dev->vfio.bar[index].size, index);
	bar = calloc(1, sizeof(*bar));
	if (!bar)
		return gnv_fail(-ENOMEM, "out of memory");
	gnv_mem_init(&bar->mem, &bar_ops);
	bar->dev = dev;
	bar->mem.len = len;
	bar->mem.page = gnv_sys_page_size();
	pthread_mutex_lock(&dev->lock);
	ret = map_bar(bar, index, offset, len);
	if (!ret) {
		bar->next = dev->mems;
		dev->mems = bar;
	}
	pthread_mutex_unlock(&dev->lock);
	if (ret) {
		gnv_mem_fini(&bar->mem);
		free(bar);
		return ret;
	}
	__atomic_fetch_add(&dev->refs, 1, __ATOMIC_RELAXED);
	if (gpu)
		bar->mem.gpu = gnv_gpu_get(gpu);
	*out = &bar->mem;
	return 0;
}

GPUNVME_API int gpunvme_mem_bar(struct gpunvme_gpu *gpu, struct gpunvme_bar *bar, unsigned index, uint64_t offset, size_t len,
				struct gpunvme_mem **mem)
{
	int ret = gnv_enter(bar, gpu && bar && mem, "gpu, bar and mem");

	if (ret)
		return ret;
	return gnv_mem_bar(bar, gpu, index, offset, len, mem);
}
