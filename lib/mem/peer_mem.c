/* SPDX-License-Identifier: MIT */
/*
 * BAR0 -> DMA-BUF of other devices; that of the controller itself is port/vfio_device.c.
 * Invariant: the device is open as long as any memory in its BARs exists, unless the kernel wanted it back. Locks, in the order
 * they are taken: that of the device, that of a memory in it.
 */
#include "mem/peer_mem.h"

#include <errno.h>
#include <stdlib.h>

#include "os/linux/dmabuf.h"
#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/process.h"

struct mem_bar {
	struct gpunvme_mem mem; /* first: what is freed */
	struct gpunvme_peer *peer;
	struct mem_bar *next;
};

struct gpunvme_peer {
	uint64_t process; /* that opened it (util/process.h) */
	struct gnv_vfio vfio;
	struct gnv_vfio_watch watch;
	struct gnv_log log;
	unsigned refs;        /* atomic */
	pthread_mutex_t lock; /* protects what follows, and vfio.fd against the watcher */
	struct mem_bar *mems;
};

/* Each device that has this memory mapped ends what uses it. */
static void lose_all(struct gpunvme_peer *peer, bool gone)
{
	struct mem_bar *bar;

	for (bar = peer->mems; bar; bar = bar->next)
		gnv_mem_lose(&bar->mem, gone);
}

/* As the port does with a controller: nobody may make the kernel's remover wait. */
static void give_back(struct gpunvme_peer *peer)
{
	struct mem_bar *bar;
	enum gnv_vfio_end end;
	int ret = 0;

	for (bar = peer->mems; bar && !ret; bar = bar->next)
		ret = gnv_sys_replace_ones(bar->mem.cpu, bar->mem.len);
	if (!ret)
		ret = gnv_vfio_quiesce(&peer->vfio, &end);
	if (ret) {
		gnv_log(&peer->log, GPUNVME_LOG_ERROR, "%s: the kernel wants the device back; free the memory in it and close it",
			peer->vfio.bdf);
		return;
	}
	gnv_vfio_release(&peer->vfio);
	gnv_log(&peer->log, GPUNVME_LOG_WARN, "%s: the kernel wanted the device back (unbind or removal); it was released",
		peer->vfio.bdf);
}

static void alarm_rang(void *ctx, bool must_release)
{
	struct gpunvme_peer *peer = ctx;

	pthread_mutex_lock(&peer->lock);
	lose_all(peer, must_release);
	if (must_release)
		give_back(peer);
	else
		gnv_log(&peer->log, GPUNVME_LOG_ERROR, "%s: the PCI bus reported an error of the device (see dmesg); reset it",
			peer->vfio.bdf);
	pthread_mutex_unlock(&peer->lock);
}

int gnv_peer_open(gnv_vfio_take *take, const struct gnv_pci *pci, const struct gnv_log *log, struct gpunvme_peer **out)
{
	struct gpunvme_peer *peer = calloc(1, sizeof(*peer));
	int ret;

	if (!peer)
		return gnv_fail(-ENOMEM, "out of memory");
	peer->log = *log;
	peer->process = gnv_process();
	peer->refs = 1;
	pthread_mutex_init(&peer->lock, NULL);
	ret = gnv_vfio_open(take, pci, NULL, &peer->vfio);
	if (ret)
		goto free_peer;
	ret = gnv_vfio_enable(&peer->vfio); /* before any export: one made while memory is off is born revoked */
	if (!ret)
		ret = gnv_vfio_master(&peer->vfio); /* its DMA ends in an address space of its own, where nothing is */
	if (!ret)
		ret = gnv_vfio_watch_start(&peer->watch, &peer->vfio, alarm_rang, peer);
	if (ret)
		goto close_device;
	*out = peer;
	return 0;

close_device:
	gnv_vfio_close(&peer->vfio);
free_peer:
	pthread_mutex_destroy(&peer->lock);
	free(peer);
	return ret;
}

static void put(struct gpunvme_peer *peer)
{
	if (__atomic_sub_fetch(&peer->refs, 1, __ATOMIC_ACQ_REL))
		return;
	gnv_vfio_watch_stop(&peer->watch);
	gnv_vfio_close(&peer->vfio);
	pthread_mutex_destroy(&peer->lock);
	free(peer);
}

GPUNVME_API int gpunvme_peer_close(struct gpunvme_peer *peer)
{
	if (!peer)
		return 0;
	if (gnv_foreign(peer->process))
		return -ECHILD;
	gnv_log_end(&peer->log); /* memory in it may keep it open, but its user's log is the user's again */
	put(peer);
	return 0;
}

static int check_held(const struct gpunvme_peer *peer)
{
	return gnv_vfio_released(&peer->vfio) ? gnv_fail(-ENODEV, "%s was given back to the kernel", peer->vfio.bdf) : 0;
}

GPUNVME_API int gpunvme_peer_reset(struct gpunvme_peer *peer)
{
	int ret = gnv_enter(peer, peer, "peer");

	if (ret)
		return ret;
	pthread_mutex_lock(&peer->lock);
	ret = check_held(peer);
	if (!ret && peer->vfio.reset_way != GNV_VFIO_RESET_NONE)
		lose_all(peer, false);
	if (!ret)
		ret = gnv_vfio_reset(&peer->vfio);
	if (!ret)
		ret = gnv_vfio_enable(&peer->vfio);
	if (!ret)
		ret = gnv_vfio_master(&peer->vfio);
	pthread_mutex_unlock(&peer->lock);
	return ret;
}

static void bar_release(struct gpunvme_mem *mem)
{
	struct mem_bar *bar = gnv_container_of(mem, struct mem_bar, mem), **link;
	struct gpunvme_peer *peer = bar->peer;

	pthread_mutex_lock(&peer->lock);
	for (link = &peer->mems; *link != bar; link = &(*link)->next)
		;
	*link = bar->next;
	pthread_mutex_unlock(&peer->lock);
	gnv_sys_unmap(mem->cpu, mem->len);
	if (mem->dmabuf >= 0)
		gnv_dmabuf_close(mem->dmabuf);
	put(peer);
}

static const struct gnv_mem_ops bar_ops = { "bar", bar_release, gnv_mem_attach_foreign, gnv_mem_detach_foreign };

/* With the device's lock held. A DMA-BUF is what IOMMUFD wants; type 1 maps the CPU's mapping and can do without. */
static int map_bar(struct mem_bar *bar, unsigned index, uint64_t offset, size_t len)
{
	struct gpunvme_peer *peer = bar->peer;
	int ret = check_held(peer);

	if (!ret)
		ret = gnv_vfio_map(&peer->vfio, index, offset, len, &bar->mem.cpu);
	if (ret)
		return ret;
	ret = gnv_vfio_export(&peer->vfio, index, offset, len, 1, &bar->mem.dmabuf);
	if (!ret || peer->vfio.group >= 0)
		return 0;
	gnv_sys_unmap(bar->mem.cpu, len);
	return ret;
}

int gnv_mem_bar(struct gpunvme_peer *peer, struct gpunvme_gpu *gpu, unsigned index, uint64_t offset, size_t len,
		struct gpunvme_mem **out)
{
	struct mem_bar *bar;
	int ret;

	if (index >= GNV_VFIO_BARS)
		return gnv_fail(-EINVAL, "a PCI device has no BAR %u, only 0 to %u", index, GNV_VFIO_BARS - 1);
	if (!len && offset < peer->vfio.bar[index].size)
		len = (size_t)(peer->vfio.bar[index].size - offset);
	if (!len || (offset | len) & (gnv_sys_page_size() - 1))
		return gnv_fail(-EINVAL, "%s: the part of BAR %u (offset 0x%llx, %zu bytes) must begin and end on a page", peer->vfio.bdf,
				index, (unsigned long long)offset, len);
	if (peer->vfio.bar[index].size && !gnv_within(offset, len, peer->vfio.bar[index].size))
		return gnv_fail(-ERANGE, "%s: offset 0x%llx and %zu bytes are not within the %llu bytes of BAR %u", peer->vfio.bdf,
				(unsigned long long)offset, len, (unsigned long long)peer->vfio.bar[index].size, index);
	bar = calloc(1, sizeof(*bar));
	if (!bar)
		return gnv_fail(-ENOMEM, "out of memory");
	gnv_mem_init(&bar->mem, &bar_ops);
	bar->peer = peer;
	bar->mem.len = len;
	bar->mem.page = gnv_sys_page_size();
	pthread_mutex_lock(&peer->lock);
	ret = map_bar(bar, index, offset, len);
	if (!ret) {
		bar->next = peer->mems;
		peer->mems = bar;
	}
	pthread_mutex_unlock(&peer->lock);
	if (ret) {
		gnv_mem_fini(&bar->mem);
		free(bar);
		return ret;
	}
	__atomic_fetch_add(&peer->refs, 1, __ATOMIC_RELAXED);
	if (gpu)
		bar->mem.gpu = gnv_gpu_get(gpu);
	*out = &bar->mem;
	return 0;
}

GPUNVME_API int gpunvme_mem_bar(struct gpunvme_gpu *gpu, struct gpunvme_peer *peer, unsigned bar, uint64_t offset, size_t len,
				struct gpunvme_mem **mem)
{
	int ret = gnv_enter(peer, gpu && peer && mem, "gpu, peer and mem");

	if (ret)
		return ret;
	return gnv_mem_bar(peer, gpu, bar, offset, len, mem);
}
