/* SPDX-License-Identifier: MIT */
/*
 * The address space of a type 1 container. It maps whatever this process has mapped, the BAR of another device included, and
 * knows nothing of DMA-BUFs.
 */
#include <errno.h>

#include "mem/space_vfio.h"
#include "os/vfio/type1.h"

static int type1_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *out)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);
	uint64_t iova;
	int ret;

	if (!mem->cpu)
		return gnv_fail(-EOPNOTSUPP,
				"type 1 cannot map %s memory, which has no address in this process. Use port=iommufd "
				"(CONFIG_IOMMUFD)",
				mem->ops->kind);
	if (mem->moves && !sv->unsafe_vram)
		return gnv_fail(-EOPNOTSUPP,
				"VFIO type 1 is not notified when the driver moves memory of a GPU%s, and the drive would then "
				"write to memory of others. unsafe-vram=1 in the URI allows it",
				mem->local ? "" : ", as the exporter of this DMA-BUF may");
	ret = gnv_space_vfio_take(sv, mem->len, &iova);
	if (ret)
		return ret;
	ret = gnv_type1_map(&sv->as, mem->cpu, mem->len, iova);
	if (ret) {
		gnv_space_vfio_give(sv, iova, mem->len);
		if (ret == -ENOSPC)
			return gnv_fail(ret,
					"%zu bytes are not mapped for %s: its container has as many mappings as it may. Unmap "
					"buffers, or raise dma_entry_limit of the module vfio_iommu_type1",
					mem->len, sv->bdf);
		return gnv_space_vfio_refused(sv, mem, ret);
	}
	*out = iova;
	return 0;
}

/* The kernel takes nothing away by itself here. */
static void type1_cut(struct gnv_space *space, uint64_t iova, size_t len)
{
	gnv_type1_unmap(&gnv_space_vfio_of(space)->as, iova, len);
}

static int type1_unmap(struct gnv_space *space, uint64_t iova, size_t len)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);
	int ret = gnv_type1_unmap(&sv->as, iova, len);

	/* It was cut. Or the last device of the container was removed: then it has no IOMMU any more, and no mappings. */
	if (ret == -ENOENT || (ret && gnv_type1_ranges(&sv->as, NULL, 0) < 0))
		ret = 0;
	if (!ret)
		gnv_space_vfio_give(sv, iova, len);
	return ret;
}

static const struct gnv_space_ops type1_ops = { "type1", type1_map, type1_cut, type1_unmap, gnv_space_vfio_close };

int gnv_space_type1_create(const struct gnv_vfio *vfio, struct gnv_space **space)
{
	return gnv_space_vfio_create(&type1_ops, vfio, gnv_type1_ranges, space);
}
