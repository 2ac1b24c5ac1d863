/* SPDX-License-Identifier: MIT */
/*
 * Memory that a controller has in a BAR of its own (CMB): the CPU's mapping of it, and the addresses by which the controller
 * knows it. They are those of the BAR on the bus, as Linux has it (nvme_map_cmb(), drivers/nvme/host/pci.c): the only ones that
 * a controller from before NVMe 1.4 knows, and without an IOMMU the only ones that are no other memory. Nothing is ever mapped
 * there, so that one which does not recognise them reaches nothing behind an IOMMU.
 */
#include "port/vfio_device.h"

#include <errno.h>
#include <stdlib.h>

#include "mem/space_vfio.h"
#include "os/linux/sys.h"
#include "util/bits.h"

struct inner {
	struct gpunvme_mem mem; /* first: what is freed */
	struct gnv_port_vfio *pv;
	unsigned bar;
	uint64_t offset; /* in it */
	uint64_t iova;
};

static struct inner *inner_of(struct gpunvme_mem *mem)
{
	return gnv_container_of(mem, struct inner, mem);
}

static int find_address(struct inner *inner)
{
	struct gnv_port_vfio *pv = inner->pv;

	if (gnv_vfio_bar_address(&pv->vfio, inner->bar, &inner->iova))
		return gnv_fail(-EOPNOTSUPP, "%s: the address on the bus of BAR %u, in which its memory lies, is not known", pv->vfio.bdf,
				inner->bar);
	inner->iova += inner->offset;
	if (inner->iova > GNV_SPACE_HIGHEST || inner->mem.len - 1 > GNV_SPACE_HIGHEST - inner->iova)
		return gnv_fail(-EOPNOTSUPP, "%s: its memory lies at 0x%llx on the bus, and drives exist that have only 48 bits of an address",
				pv->vfio.bdf, (unsigned long long)inner->iova);
	return pv->port.space->bare ? 0 : gnv_space_vfio_avoid(gnv_space_vfio_of(pv->port.space), inner->iova, inner->mem.len);
}

static void inner_release(struct gpunvme_mem *mem)
{
	struct inner *inner = inner_of(mem);
	struct gnv_port_vfio *pv = inner->pv;

	pthread_mutex_lock(&pv->lock);
	pv->inner = NULL;
	pthread_mutex_unlock(&pv->lock);
	gnv_sys_unmap(mem->cpu, mem->len);
}

struct part {
	const struct inner *inner;
	uint64_t offset;
	size_t len;
};

static int export_part(void *ctx, int *fd, uint64_t *offset)
{
	const struct part *part = ctx;
	struct gnv_port_vfio *pv = part->inner->pv;
	int ret;

	*offset = 0;
	pthread_mutex_lock(&pv->lock);
	ret = gnv_port_vfio_held(pv);
	if (!ret)
		ret = gnv_vfio_export(&pv->vfio, part->inner->bar, part->inner->offset + part->offset, part->len, 1, fd);
	pthread_mutex_unlock(&pv->lock);
	return ret;
}

static int inner_attach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range)
{
	struct part part = { inner_of(mem), offset, len };
	const struct gnv_gpu_foreign foreign = { (char *)mem->cpu + offset, len, export_part, &part, false };

	return gpu->ops->mmio_attach(gpu, &foreign, range);
}

static const struct gnv_mem_ops inner_ops = { "cmb", inner_release, inner_attach, gnv_mem_detach_foreign };

/* The interrupt table must not be the lanes' to write. */
static int check_table(const struct gnv_vfio *vfio, unsigned bar, uint64_t offset, size_t len)
{
	struct gnv_range range[2];
	unsigned where[2], i;
	int ret = gnv_vfio_msix(vfio, where, range);

	for (i = 0; !ret && i < 2; i++)
		if (where[i] == bar && range[i].start < offset + len && range[i].last >= offset)
			return gnv_fail(-EOPNOTSUPP, "%s: its memory shares pages with its interrupt table", vfio->bdf);
	return ret == -ENOENT ? 0 : ret;
}

/* With the lock held. */
static int take(struct inner *inner)
{
	struct gnv_port_vfio *pv = inner->pv;
	struct gpunvme_mem *mem = &inner->mem;
	int ret = gnv_port_vfio_held(pv);

	if (!ret)
		ret = check_table(&pv->vfio, inner->bar, inner->offset, mem->len);
	if (!ret)
		ret = find_address(inner);
	if (!ret)
		ret = gnv_vfio_map(&pv->vfio, inner->bar, inner->offset, mem->len, &mem->cpu);
	if (!ret)
		pv->inner = mem;
	return ret;
}

/* What it says to have beyond its BAR nobody reaches. */
static int measure(const struct gnv_vfio *vfio, const struct gnv_port_inner *where, size_t *len)
{
	const uint64_t page = gnv_sys_page_size(), bar = where->bar < GNV_VFIO_BARS ? vfio->bar[where->bar].size : 0;

	if (bar <= where->offset || where->offset % page)
		return gnv_fail(-EOPNOTSUPP, "%s: its memory does not begin on a page of a BAR", vfio->bdf);
	*len = (size_t)(gnv_min(where->size, bar - where->offset) / page * page);
	return *len ? 0 : gnv_fail(-EOPNOTSUPP, "%s: its memory has no page", vfio->bdf);
}

int gnv_port_vfio_inner(struct gnv_port *port, const struct gnv_port_inner *where, struct gpunvme_mem **mem, uint64_t *iova)
{
	struct gnv_port_vfio *pv = gnv_container_of(port, struct gnv_port_vfio, port);
	struct inner *inner = calloc(1, sizeof(*inner));
	int ret;

	if (!inner)
		return gnv_fail(-ENOMEM, "out of memory");
	gnv_mem_init(&inner->mem, &inner_ops);
	inner->mem.page = gnv_sys_page_size();
	inner->pv = pv;
	inner->bar = where->bar;
	inner->offset = where->offset;
	ret = measure(&pv->vfio, where, &inner->mem.len);
	pthread_mutex_lock(&pv->lock);
	if (!ret)
		ret = take(inner);
	pthread_mutex_unlock(&pv->lock);
	if (ret) {
		gnv_mem_fini(&inner->mem);
		free(inner);
		return ret;
	}
	*iova = inner->iova;
	*mem = &inner->mem;
	return 0;
}
