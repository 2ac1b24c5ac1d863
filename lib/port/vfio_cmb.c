/* SPDX-License-Identifier: MIT */
/*
 * Memory in a BAR of the controller (CMB): the CPU's mapping of it, and the addresses by which the controller knows it. These are
 * the BAR's addresses on the bus, as in Linux (nvme_map_cmb(), drivers/nvme/host/pci.c). A controller from before NVMe 1.4 knows
 * only these, and without an IOMMU only these are no other memory. Nothing is mapped at them. So with an IOMMU, a controller that
 * does not recognise them accesses nothing.
 */
#include "port/vfio_device.h"

#include <errno.h>
#include <stdlib.h>

#include "mem/space_vfio.h"
#include "os/linux/sys.h"
#include "util/bits.h"

struct cmb {
	struct gpunvme_mem mem; /* first, so that it can be freed */
	struct gnv_port_vfio *pv;
	unsigned bar;
	uint64_t offset; /* in it */
	uint64_t iova;
};

static struct cmb *cmb_of(struct gpunvme_mem *mem)
{
	return gnv_container_of(mem, struct cmb, mem);
}

static int find_address(struct cmb *cmb)
{
	struct gnv_port_vfio *pv = cmb->pv;

	if (gnv_vfio_bar_address(&pv->vfio, cmb->bar, &cmb->iova))
		return gnv_fail(-EOPNOTSUPP, "%s: the address on the bus of BAR %u, in which its memory lies, is not known", pv->vfio.bdf,
				cmb->bar);
	cmb->iova += cmb->offset;
	if (cmb->iova > GNV_SPACE_HIGHEST || cmb->mem.len - 1 > GNV_SPACE_HIGHEST - cmb->iova)
		return gnv_fail(-EOPNOTSUPP, "%s: its memory lies at 0x%llx on the bus, and drives exist that have only 48 bits of an address",
				pv->vfio.bdf, (unsigned long long)cmb->iova);
	return pv->port.space->bare ? 0 : gnv_space_vfio_avoid(gnv_space_vfio_of(pv->port.space), cmb->iova, cmb->mem.len);
}

static void cmb_release(struct gpunvme_mem *mem)
{
	struct cmb *cmb = cmb_of(mem);
	struct gnv_port_vfio *pv = cmb->pv;

	pthread_mutex_lock(&pv->lock);
	pv->cmb = NULL;
	pthread_mutex_unlock(&pv->lock);
	gnv_sys_unmap(mem->cpu, mem->len);
}

struct part {
	const struct cmb *cmb;
	uint64_t offset;
	size_t len;
};

static int export_part(void *ctx, int *fd, uint64_t *offset)
{
	const struct part *part = ctx;
	struct gnv_port_vfio *pv = part->cmb->pv;
	int ret;

	*offset = 0;
	pthread_mutex_lock(&pv->lock);
	ret = gnv_port_vfio_held(pv);
	if (!ret)
		ret = gnv_vfio_export(&pv->vfio, part->cmb->bar, part->cmb->offset + part->offset, part->len, 1, fd);
	pthread_mutex_unlock(&pv->lock);
	return ret;
}

static int cmb_attach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range)
{
	struct part part = { cmb_of(mem), offset, len };
	const struct gnv_gpu_foreign foreign = { (char *)mem->cpu + offset, len, export_part, &part, false };

	return gpu->ops->mmio_attach(gpu, &foreign, range);
}

static const struct gnv_mem_ops cmb_ops = { "cmb", cmb_release, cmb_attach, gnv_mem_detach_foreign };

/* Threads must not be able to write the interrupt table. */
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
static int take(struct cmb *cmb)
{
	struct gnv_port_vfio *pv = cmb->pv;
	struct gpunvme_mem *mem = &cmb->mem;
	int ret = gnv_port_vfio_held(pv);

	if (!ret)
		ret = check_table(&pv->vfio, cmb->bar, cmb->offset, mem->len);
	if (!ret)
		ret = find_address(cmb);
	if (!ret)
		ret = gnv_vfio_map(&pv->vfio, cmb->bar, cmb->offset, mem->len, &mem->cpu);
	if (!ret)
		pv->cmb = mem;
	return ret;
}

/* Memory outside of the BAR cannot be accessed. */
static int measure(const struct gnv_vfio *vfio, const struct gnv_port_cmb *where, size_t *len)
{
	const uint64_t page = gnv_sys_page_size(), bar = where->bar < GNV_VFIO_BARS ? vfio->bar[where->bar].size : 0;

	if (bar <= where->offset || where->offset % page)
		return gnv_fail(-EOPNOTSUPP, "%s: its memory does not begin on a page of a BAR", vfio->bdf);
	*len = (size_t)(gnv_min(where->size, bar - where->offset) / page * page);
	return *len ? 0 : gnv_fail(-EOPNOTSUPP, "%s: its memory has no page", vfio->bdf);
}

int gnv_port_vfio_cmb(struct gnv_port *port, const struct gnv_port_cmb *where, struct gpunvme_mem **mem, uint64_t *iova)
{
	struct gnv_port_vfio *pv = gnv_container_of(port, struct gnv_port_vfio, port);
	struct cmb *cmb = calloc(1, sizeof(*cmb));
	int ret;

	if (!cmb)
		return gnv_fail(-ENOMEM, "out of memory");
	gnv_mem_init(&cmb->mem, &cmb_ops);
	cmb->mem.page = gnv_sys_page_size();
	cmb->pv = pv;
	cmb->bar = where->bar;
	cmb->offset = where->offset;
	ret = measure(&pv->vfio, where, &cmb->mem.len);
	pthread_mutex_lock(&pv->lock);
	if (!ret)
		ret = take(cmb);
	pthread_mutex_unlock(&pv->lock);
	if (ret) {
		gnv_mem_fini(&cmb->mem);
		free(cmb);
		return ret;
	}
	*iova = cmb->iova;
	*mem = &cmb->mem;
	return 0;
}
