/* SPDX-License-Identifier: MIT */
/*
 * A controller held through VFIO.
 * Invariant, the order of closing: the watcher, the mapping of BAR0, the address space, the device, its container or IOMMUFD. The
 * controller makes no DMA by then.
 */
#include "port/vfio_device.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem/space_vfio.h"
#include "os/linux/sys.h"
#include "util/bits.h"

static struct gnv_port_vfio *pv_of(struct gnv_port *port)
{
	return gnv_container_of(port, struct gnv_port_vfio, port);
}

static const struct gnv_vfio *vfio_of(const struct gnv_port *port)
{
	return &gnv_container_of(port, const struct gnv_port_vfio, port)->vfio;
}

static void bar_release(struct gpunvme_mem *mem)
{
	gnv_sys_unmap(mem->cpu, mem->len);
}

/* Return: 0, with the way that stopped its DMA; -EIO. */
static int halt(struct gnv_port_vfio *pv, const char **how)
{
	enum gnv_vfio_end end;
	int ret;

	pthread_mutex_lock(&pv->lock);
	ret = gnv_vfio_quiesce(&pv->vfio, &end);
	pthread_mutex_unlock(&pv->lock);
	*how = end == GNV_VFIO_END_GONE ? "its removal" : gnv_port_force(&pv->port);
	if (ret || end != GNV_VFIO_END_MASTER || pv->vfio.reset_way == GNV_VFIO_RESET_NONE)
		return ret;
	*how = "the end of its bus mastering";
	gnv_log(&pv->port.log, GPUNVME_LOG_WARN, "%s: its reset failed, so its bus mastering was switched off", pv->vfio.bdf);
	return 0;
}

int gnv_port_vfio_halt(struct gnv_port *port)
{
	const char *how;

	return halt(pv_of(port), &how);
}

/* The kernel restores config space, so enable DMA again. */
int gnv_port_vfio_reset(struct gnv_port *port)
{
	struct gnv_port_vfio *pv = pv_of(port);
	int ret;

	pthread_mutex_lock(&pv->lock);
	ret = gnv_vfio_reset(&pv->vfio);
	if (!ret)
		ret = gnv_vfio_enable(&pv->vfio);
	if (!ret)
		ret = gnv_vfio_master(&pv->vfio);
	pthread_mutex_unlock(&pv->lock);
	return ret;
}

int gnv_port_vfio_allow_dma(struct gnv_port *port)
{
	struct gnv_port_vfio *pv = pv_of(port);
	int ret;

	pthread_mutex_lock(&pv->lock);
	if (pv->vfio.fd < 0)
		ret = gnv_fail(-ENODEV, "%s was given back to the kernel", pv->vfio.bdf);
	else
		ret = gnv_vfio_master(&pv->vfio);
	pthread_mutex_unlock(&pv->lock);
	return ret;
}

static const char *why_of(bool must_release)
{
	return must_release ? "the kernel wants the device back (unbind or removal)" :
			      "the PCI bus reported an error of the device (see dmesg)";
}

/*
 * The kernel's removal waits without limit until the device is closed, and the owner may be asleep. So the device is given back
 * here: registers become a page that reads as "gone", its bus mastering ends, the file is closed. The removal holds the device's
 * lock (Linux drivers/base/dd.c, device_release_driver_internal()), so VFIO's resets fail, and closing resets nothing
 * (drivers/pci/pci.c, pci_dev_trylock()): lost() has stopped the controller.
 */
static void give_back(struct gnv_port_vfio *pv, gnv_port_lost_fn *lost, void *ctx)
{
	int ret = gnv_sys_replace_ones(pv->bar0.cpu, pv->bar0.len);
	const char *how;

	pthread_mutex_lock(&pv->lock);
	if (!ret && pv->cmb)
		ret = gnv_sys_replace_ones(pv->cmb->cpu, pv->cmb->len);
	pthread_mutex_unlock(&pv->lock);
	if (!ret)
		ret = halt(pv, &how);
	if (ret) {
		gnv_log(&pv->port.log, GPUNVME_LOG_ERROR, "%s: the kernel wants the device back. Close it", pv->vfio.bdf);
		return;
	}
	if (lost)
		lost(ctx, GNV_PORT_RESET, why_of(true));
	pthread_mutex_lock(&pv->lock);
	gnv_vfio_release(&pv->vfio);
	pthread_mutex_unlock(&pv->lock);
	gnv_port_leave_paths(&pv->port); /* another program may use them now */
	gnv_log(&pv->port.log, GPUNVME_LOG_WARN,
		"%s: the kernel wanted the device back (unbind or removal). Its DMA was ended by %s, and it was released", pv->vfio.bdf,
		how);
}

static void alarm_rang(void *ctx, bool must_release)
{
	struct gnv_port_vfio *pv = ctx;
	gnv_port_lost_fn *lost;
	void *lost_ctx;

	pthread_mutex_lock(&pv->lock);
	pv->is_lost = true;
	pv->loss = must_release ? GNV_PORT_LOST : GNV_PORT_ERROR;
	lost = pv->lost;
	lost_ctx = pv->lost_ctx;
	pthread_mutex_unlock(&pv->lock); /* a thread that maps BAR0 for a GPU has its caller's locks, and waits for this one */
	if (lost)
		lost(lost_ctx, must_release ? GNV_PORT_LOST : GNV_PORT_ERROR, why_of(must_release));
	if (must_release)
		give_back(pv, lost, lost_ctx);
	else
		gnv_log(&pv->port.log, GPUNVME_LOG_ERROR, "%s: the PCI bus reported an error of the device (see dmesg), which is no longer used",
			pv->vfio.bdf);
}

/* A write to the interrupt table can raise any interrupt of the machine. */
static int check_interrupt_table(const struct gnv_vfio *vfio, uint64_t offset, size_t len)
{
	struct gnv_range range[2];
	unsigned bar[2];
	int ret = gnv_vfio_msix(vfio, bar, range);

	if (ret == -ENOENT)
		return 0;
	if (ret)
		return gnv_fail(ret, "%s: its PCI config space does not respond", vfio->bdf);
	for (unsigned i = 0; i < 2; i++)
		if (!bar[i] && range[i].start < offset + len && range[i].last >= offset)
			return gnv_fail(-EOPNOTSUPP,
					"%s: its interrupt table shares a page with the doorbells, so these cannot be exported. A CPU "
					"thread must ring them",
					vfio->bdf);
	return 0;
}

int gnv_port_vfio_held(const struct gnv_port_vfio *pv)
{
	if ((pv->is_lost && pv->loss == GNV_PORT_LOST) || pv->vfio.fd < 0)
		return gnv_fail(-ENODEV, "%s was given back to the kernel, or will be", pv->vfio.bdf);
	return 0;
}

static int export_times(struct gnv_port *port, uint64_t offset, size_t len, unsigned times, int *fd)
{
	struct gnv_port_vfio *pv = pv_of(port);
	int ret;

	pthread_mutex_lock(&pv->lock);
	ret = gnv_port_vfio_held(pv);
	if (!ret)
		ret = check_interrupt_table(&pv->vfio, offset, len);
	if (!ret)
		ret = gnv_vfio_export(&pv->vfio, 0, offset, len, times, fd);
	pthread_mutex_unlock(&pv->lock);
	return ret;
}

int gnv_port_vfio_export(struct gnv_port *port, uint64_t offset, size_t len, int *fd)
{
	return export_times(port, offset, len, 1, fd);
}

int gnv_port_vfio_export_twice(struct gnv_port *port, uint64_t offset, size_t len, int *fd)
{
	return export_times(port, offset, len, 2, fd);
}

struct bar0_part {
	struct gnv_port *port;
	uint64_t offset;
	size_t len;
};

static int export_part(void *ctx, int *fd, uint64_t *offset)
{
	const struct bar0_part *part = ctx;

	*offset = 0;
	return gnv_port_vfio_export(part->port, part->offset, part->len, fd);
}

static int bar0_attach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range)
{
	struct gnv_port_vfio *pv = gnv_container_of(mem, struct gnv_port_vfio, bar0);
	struct bar0_part part = { &pv->port, offset, len };
	const struct gnv_gpu_foreign foreign = { (char *)mem->cpu + offset, len, export_part, &part, false };

	return gpu->ops->mmio_attach(gpu, &foreign, range);
}

static const struct gnv_mem_ops bar0_ops = { "bar", bar_release, bar0_attach, gnv_mem_detach_foreign };

void gnv_port_vfio_watch(struct gnv_port *port, gnv_port_lost_fn *lost, void *ctx)
{
	struct gnv_port_vfio *pv = pv_of(port);

	pthread_mutex_lock(&pv->lock);
	pv->lost = lost;
	pv->lost_ctx = ctx;
	if (pv->is_lost)
		lost(ctx, pv->loss, why_of(pv->loss != GNV_PORT_ERROR));
	pthread_mutex_unlock(&pv->lock);
}

void gnv_port_vfio_close(struct gnv_port *port)
{
	struct gnv_port_vfio *pv = pv_of(port);

	gnv_vfio_watch_stop(&pv->watch);
	bar_release(&pv->bar0);
	gnv_mem_fini(&pv->bar0);
	gnv_space_put(port->space);
	if (!port->keep)
		gnv_vfio_close(&pv->vfio);
	pthread_mutex_destroy(&pv->lock);
	free(pv);
}

/* With the device taken. On failure the caller undoes the rest by closing the device. */
static int bring_up(struct gnv_port_vfio *pv, const struct gnv_vfio_way *way, const struct gnv_port *share)
{
	size_t len = (size_t)(pv->vfio.bar[0].size & ~(uint64_t)(gnv_sys_page_size() - 1));
	void *bar;
	int ret = gnv_vfio_enable(&pv->vfio);

	if (!ret)
		ret = gnv_vfio_map(&pv->vfio, 0, 0, len, &bar);
	if (ret)
		return ret;
	ret = share ? gnv_space_vfio_joined(share->space) : way->space(&pv->vfio, &pv->port.space);
	if (ret)
		goto unmap;
	if (share)
		pv->port.space = gnv_space_get(share->space);
	pv->bar0.cpu = bar;
	pv->bar0.len = len;
	ret = gnv_vfio_watch_start(&pv->watch, &pv->vfio, alarm_rang, pv);
	if (!ret)
		return 0;
	gnv_space_put(pv->port.space);
unmap:
	gnv_sys_unmap(bar, len);
	return ret;
}

/* The kernel tries its methods in the order of this file, and the first almost always does. */
static void name_reset(struct gnv_port_vfio *pv)
{
	char path[96], text[64] = "", *name = pv->port.reset_name;

	snprintf(path, sizeof(path), GNV_SYSFS "/bus/pci/devices/%s/reset_method", pv->vfio.bdf);
	if (pv->vfio.reset_way == GNV_VFIO_RESET_FUNCTION)
		gnv_sysfs_read(path, text, sizeof(text));
	text[strcspn(text, " ")] = 0;
	if (pv->vfio.reset_way != GNV_VFIO_RESET_FUNCTION)
		snprintf(text, sizeof(text), "%s", pv->vfio.reset_way == GNV_VFIO_RESET_SLOT ? "slot" : "none");
	snprintf(name, sizeof(pv->port.reset_name), "%.15s", *text ? text : "function");
}

int gnv_port_vfio_open(const struct gnv_vfio_way *way, const struct gnv_pci *pci, const struct gnv_port *share,
		       const struct gnv_log *log, struct gnv_port **port)
{
	struct gnv_port_vfio *pv = calloc(1, sizeof(*pv));
	int ret;

	if (!pv)
		return gnv_fail(-ENOMEM, "out of memory");
	gnv_mem_init(&pv->bar0, &bar0_ops);
	pv->bar0.page = gnv_sys_page_size();
	pthread_mutex_init(&pv->lock, NULL);
	pv->port.log = *log;
	pv->port.ops = way->ops;
	pv->port.bar0 = &pv->bar0;
	pv->port.placement = "vfio-host";
	pv->port.remote = true;
	snprintf(pv->port.address, sizeof(pv->port.address), "%s", pci->bdf);
	pv->port.vendor = pci->vendor;
	pv->port.device = pci->device;
	ret = gnv_vfio_open(way->take, pci, share ? &vfio_of(share)->as : NULL, &pv->vfio);
	if (ret)
		goto free_port;
	name_reset(pv);
	ret = bring_up(pv, way, share);
	if (ret)
		goto close_device;
	*port = &pv->port;
	return 0;

close_device:
	gnv_vfio_close(&pv->vfio);
free_port:
	pthread_mutex_destroy(&pv->lock);
	gnv_mem_fini(&pv->bar0);
	free(pv);
	return ret;
}
