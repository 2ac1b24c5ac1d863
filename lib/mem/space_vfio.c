/* SPDX-License-Identifier: MIT */
/*
 * The choice of addresses for VFIO spaces.
 * Invariant: the kernel reports an address that is given out as usable, and it lies in the window of no PCI device: below a switch
 * without access control such a DMA could end in that device.
 */
#include "mem/space_vfio.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/log.h"

#define LOWEST 0x100000u      /* below it a stray zero or small number would be an address */
#define ALIGN_MIN (64u << 10) /* so that it fits controllers with large memory pages as well */
#define ALIGN_MAX (2u << 20)  /* lets the IOMMU use large pages */

/* Call `ranges` with a buffer that has room for all. Return: how many, or a negative errno. */
static int kernel_ranges(const struct gnv_space_vfio *sv, struct gnv_range **out)
{
	unsigned room = 32;

	for (;;) {
		struct gnv_range *range = calloc(room, sizeof(*range));
		int count = range ? sv->ranges(&sv->as, range, room) : -ENOMEM;

		if (count >= 0 && (unsigned)count <= room) {
			*out = range;
			return count;
		}
		free(range);
		if (count < 0)
			return count;
		room = (unsigned)count + 8;
	}
}

static int exclude_windows(struct gnv_iova *iova)
{
	int count = gnv_sysfs_mmio(GNV_SYSFS, NULL, 0), room = (count < 0 ? 0 : count) + 16, i;
	struct gnv_range *range = calloc((size_t)room, sizeof(*range));
	int ret = range ? gnv_iova_exclude(iova, 0, LOWEST - 1) : -ENOMEM;

	if (!ret)
		ret = gnv_iova_exclude(iova, GNV_SPACE_HIGHEST + 1, UINT64_MAX);
	count = range ? gnv_sysfs_mmio(GNV_SYSFS, range, (unsigned)room) : 0;
	if (!ret && count < 0)
		ret = gnv_fail(count, "the memory windows of PCI devices cannot be read below /sys: %s", strerror(-count));
	for (i = 0; i < count && i < room && !ret; i++)
		ret = gnv_iova_exclude(iova, range[i].start, range[i].last);
	free(range);
	return ret;
}

static int fill(struct gnv_space_vfio *sv)
{
	struct gnv_range *range = NULL;
	int count = kernel_ranges(sv, &range), i, ret = 0;

	if (count < 0)
		return count;
	for (i = 0; i < count && !ret; i++)
		ret = gnv_iova_add(&sv->iova, range[i].start, range[i].last);
	if (!count) /* the kernel reports nothing: 39 bits, without the interrupt window of x86 */
		ret = gnv_iova_add(&sv->iova, LOWEST, (1ull << 39) - 1) || gnv_iova_exclude(&sv->iova, 0xfee00000, 0xfeefffff)
			      ? -ENOMEM : 0;
	free(range);
	if (ret)
		return ret;
	return exclude_windows(&sv->iova);
}

/* Exclude the gaps between the ranges, which the kernel lists in ascending order. */
static int exclude_gaps(struct gnv_iova *iova, const struct gnv_range *range, int count)
{
	uint64_t next = 0;
	int i, ret = 0;

	for (i = 0; i < count && !ret; i++) {
		if (range[i].start > next)
			ret = gnv_iova_exclude(iova, next, range[i].start - 1);
		next = range[i].last + 1;
	}
	return ret || !count || !next ? ret : gnv_iova_exclude(iova, next, UINT64_MAX);
}

int gnv_space_vfio_joined(struct gnv_space *space)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);
	struct gnv_range *range = NULL;
	int count = kernel_ranges(sv, &range), ret = count;

	if (count >= 0) {
		pthread_mutex_lock(&sv->lock);
		ret = exclude_gaps(&sv->iova, range, count);
		pthread_mutex_unlock(&sv->lock);
	}
	free(range);
	return ret ? gnv_fail(ret, "the addresses that the devices may share cannot be read: %s", strerror(-ret)) : 0;
}

int gnv_space_vfio_create(const struct gnv_space_ops *ops, const struct gnv_vfio *vfio, gnv_space_ranges *ranges,
			  struct gnv_space **space)
{
	struct gnv_space_vfio *sv = calloc(1, sizeof(*sv));
	int ret;

	if (!sv)
		return gnv_fail(-ENOMEM, "out of memory");
	sv->base.ops = ops;
	sv->base.refs = 1;
	sv->ranges = ranges;
	memcpy(sv->bdf, vfio->bdf, sizeof(sv->bdf));
	gnv_iova_init(&sv->iova);
	ret = gnv_vfio_as_dup(&vfio->as, &sv->as);
	if (ret)
		goto free_space;
	ret = fill(sv);
	if (ret) {
		gnv_fail(ret, "%s: the usable addresses of its IOMMU cannot be read: %s", vfio->bdf, strerror(-ret));
		goto close_as;
	}
	if (!sv->iova.count) {
		ret = gnv_fail(-EOPNOTSUPP, "%s: its IOMMU has no address below 2^48, and some drives have only 48 bits of an "
					    "address. Use another slot",
			       vfio->bdf);
		goto close_as;
	}
	pthread_mutex_init(&sv->lock, NULL);
	*space = &sv->base;
	return 0;

close_as:
	gnv_iova_fini(&sv->iova);
	gnv_vfio_as_close(&sv->as);
free_space:
	free(sv);
	return ret;
}

struct gnv_space_vfio *gnv_space_vfio_of(struct gnv_space *space)
{
	return gnv_container_of(space, struct gnv_space_vfio, base);
}

void gnv_space_vfio_close(struct gnv_space *space)
{
	struct gnv_space_vfio *sv = gnv_space_vfio_of(space);

	pthread_mutex_destroy(&sv->lock);
	gnv_iova_fini(&sv->iova);
	gnv_vfio_as_close(&sv->as);
	free(sv);
}

int gnv_space_vfio_take(struct gnv_space_vfio *sv, size_t len, uint64_t *iova)
{
	uint64_t align = len ? 1ull << gnv_log2(gnv_min(gnv_align_up(len, ALIGN_MIN), ALIGN_MAX)) : ALIGN_MIN;
	int ret;

	pthread_mutex_lock(&sv->lock);
	ret = gnv_iova_alloc(&sv->iova, len, align, iova);
	pthread_mutex_unlock(&sv->lock);
	if (ret)
		return gnv_fail(ret, "%s: its IOMMU has no %zu free addresses in a row. Unmap something", sv->bdf, len);
	return 0;
}

void gnv_space_vfio_give(struct gnv_space_vfio *sv, uint64_t iova, size_t len)
{
	pthread_mutex_lock(&sv->lock);
	gnv_iova_free(&sv->iova, iova, len);
	pthread_mutex_unlock(&sv->lock);
}

int gnv_space_vfio_avoid(struct gnv_space_vfio *sv, uint64_t start, uint64_t len)
{
	int ret;

	pthread_mutex_lock(&sv->lock);
	ret = len - 1 > UINT64_MAX - start ? -EINVAL : gnv_iova_exclude(&sv->iova, start, start + len - 1);
	pthread_mutex_unlock(&sv->lock);
	return ret ? gnv_fail(ret, "%s: the addresses of its own memory cannot be kept free: %s", sv->bdf, strerror(-ret)) : 0;
}

int gnv_space_vfio_refused(const struct gnv_space_vfio *sv, const struct gpunvme_mem *mem, int ret)
{
	const char *bdf = sv->bdf;
	uint64_t limit = gnv_sys_lock_limit();

	if (ret == -ENOMEM && limit != UINT64_MAX)
		return gnv_fail(ret,
				"%zu bytes cannot be pinned for %s: the locked-memory limit is %llu KiB. Raise RLIMIT_MEMLOCK "
				"(ulimit -l, or memlock in limits.conf)",
				mem->len, bdf, (unsigned long long)limit / 1024);
	if (ret == -EFAULT)
		return gnv_fail(ret, "%s memory of %zu bytes cannot be pinned for %s: it is not ordinary memory of this process",
				mem->ops->kind, mem->len, bdf);
	return gnv_fail(ret, "the kernel refused to map %zu bytes of %s memory for %s: %s", mem->len, mem->ops->kind, bdf,
			strerror(-ret));
}
