/* SPDX-License-Identifier: MIT */
/*
 * No address space: without an IOMMU a device uses physical addresses. IOMMUFD pins the memory at a label, an address that only
 * IOMMUFD knows, and reports where the pages lie.
 * Invariant: every memory that is given out lies in one piece, since a queue, a PRP table and the first page of a transfer are
 * computed from one address.
 */
#include <errno.h>
#include <stdlib.h>

#include "mem/space_vfio.h"
#include "os/vfio/iommufd.h"

/* A memory that is pinned. */
struct gnv_space_run {
	struct gnv_space_run *next;
	uint64_t phys;
	uint64_t label;
	size_t len;
};

static int get_failed(const struct gnv_space_vfio *sv, int ret)
{
	if (ret == -EPERM)
		return gnv_fail(ret, "%s: only CAP_SYS_RAWIO may read physical addresses. Run as root", sv->bdf);
	if (ret == -ENOTTY || ret == -EOPNOTSUPP)
		return gnv_fail(-EOPNOTSUPP, "%s: this kernel does not report physical addresses: use Linux 7.3 with "
					     "CONFIG_VFIO_NOIOMMU",
				sv->bdf);
	if (ret == -EINVAL)
		return gnv_fail(-ENODEV, "%s: the DMA-BUF was revoked: its device was reset or closed. Map it again when that is "
					 "over",
				sv->bdf);
	return gnv_fail(ret, "%s: the kernel does not report where the memory lies", sv->bdf);
}

/* Piece by piece: the kernel reports how far each goes. */
static int find_phys(const struct gnv_space_vfio *sv, uint64_t label, size_t len, uint64_t *phys)
{
	size_t done = 0;

	while (done < len) {
		uint64_t at, piece = len - done;
		int ret = gnv_iommufd_phys(&sv->as, label + done, &at, &piece);

		if (ret)
			return get_failed(sv, ret);
		if (!piece || piece > len - done)
			return gnv_fail(-EPROTO, "%s: the kernel reported %llu bytes, but %zu were asked for", sv->bdf,
					(unsigned long long)piece, len - done);
		if (done && at != *phys + done)
			return gnv_fail(-EOPNOTSUPP,
					"%zu bytes for %s do not lie in one piece of physical memory, as they must without an "
					"IOMMU. Use GPUNVME_MEM_HUGE and at most 2 MiB for each buffer (vm.nr_hugepages)",
					len, sv->bdf);
		if (at > GNV_SPACE_HIGHEST || piece - 1 > GNV_SPACE_HIGHEST - at)
			return gnv_fail(-EOPNOTSUPP,
					"the memory for %s lies at 0x%llx, but some drives have only 48 bits of an address. Use an "
					"IOMMU",
					sv->bdf, (unsigned long long)at);
		if (!done)
			*phys = at;
		done += (size_t)piece;
	}
	return 0;
}

static int noiommu_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);
	struct gnv_space_run *run = calloc(1, sizeof(*run));
	int ret;

	if (!run)
		return gnv_fail(-ENOMEM, "out of memory");
	run->len = mem->len;
	ret = gnv_space_iommufd_map(space, mem, &run->label);
	if (ret)
		goto free_run;
	ret = find_phys(sv, run->label, run->len, &run->phys);
	if (ret)
		goto unmap;
	pthread_mutex_lock(&sv->lock);
	run->next = sv->runs;
	sv->runs = run;
	pthread_mutex_unlock(&sv->lock);
	*iova = run->phys;
	return 0;

unmap:
	gnv_space_iommufd_unmap(space, run->label, run->len);
free_run:
	free(run);
	return ret;
}

static int noiommu_unmap(struct gnv_space *space, uint64_t iova, size_t len)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);
	struct gnv_space_run **link, *run;
	int ret;

	pthread_mutex_lock(&sv->lock);
	for (link = &sv->runs; *link && ((*link)->phys != iova || (*link)->len != len); link = &(*link)->next)
		;
	run = *link;
	if (run)
		*link = run->next;
	pthread_mutex_unlock(&sv->lock);
	if (!run)
		return -ENOENT;
	ret = gnv_space_iommufd_unmap(space, run->label, len);
	if (ret) { /* it stays pinned, and may be asked for again */
		pthread_mutex_lock(&sv->lock);
		run->next = sv->runs;
		sv->runs = run;
		pthread_mutex_unlock(&sv->lock);
	} else {
		free(run);
	}
	return ret;
}

/* Nothing stands between the device and that memory. */
static void noiommu_cut(struct gnv_space *space, uint64_t iova, size_t len)
{
	(void)space;
	(void)iova;
	(void)len;
}

static void noiommu_close(struct gnv_space *space)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);
	struct gnv_space_run *run;

	while ((run = sv->runs)) {
		sv->runs = run->next;
		free(run);
	}
	gnv_space_vfio_close(space);
}

static const struct gnv_space_ops noiommu_ops = { "noiommu", noiommu_map, noiommu_cut, noiommu_unmap, noiommu_close };

int gnv_space_noiommu_create(const struct gnv_vfio *vfio, struct gnv_space **space)
{
	int ret = gnv_space_vfio_create(&noiommu_ops, vfio, gnv_iommufd_ranges, space);

	if (!ret)
		(*space)->one_piece = (*space)->by_dmabuf = (*space)->bare = true;
	return ret;
}
