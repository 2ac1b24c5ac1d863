/* SPDX-License-Identifier: MIT */
#include "serve/dma_maps.h"

#include <errno.h>
#include <string.h>

#include "mem/space_soft.h"
#include "util/log.h"

#define PAGE 4096u
#define DRAIN_MS 4000u /* QEMU gives up after 5 s (x-msg-timeout) */

static uint64_t last_of(uint64_t iova, uint64_t len)
{
	return iova + (len - 1);
}

/* Of those without memory the space does not know. */
static bool overlaps(const struct gnv_dma_maps *maps, uint64_t iova, uint64_t len)
{
	const struct gnv_dma_map *r;
	unsigned i;

	for (i = 0; i < maps->count; i++) {
		r = &maps->map[i];
		if (r->iova <= last_of(iova, len) && iova <= last_of(r->iova, r->len))
			return true;
	}
	return false;
}

static int check(const struct gnv_dma_maps *maps, uint64_t iova, uint64_t len)
{
	if (!len || (iova | len) % PAGE || last_of(iova, len) < iova || last_of(iova, len) >= GNV_SOFT_IOVA_BASE)
		return gnv_fail(-EINVAL, "DMA_MAP of 0x%llx bytes at 0x%llx: whole pages below 0x%llx can be mapped", (unsigned long long)len,
				(unsigned long long)iova, GNV_SOFT_IOVA_BASE);
	if (overlaps(maps, iova, len))
		return gnv_fail(-EEXIST, "DMA_MAP of 0x%llx bytes at 0x%llx: something is mapped there", (unsigned long long)len,
				(unsigned long long)iova);
	if (maps->count == GNV_DMA_MAPS)
		return gnv_fail(-ENOSPC, "DMA_MAP: the client has mapped %u regions already", GNV_DMA_MAPS);
	return 0;
}

static void log_leak(const struct gnv_dma_maps *maps, uint64_t len)
{
	gnv_log(maps->log, GPUNVME_LOG_ERROR, "0x%llx bytes of the client are leaked: %s", (unsigned long long)len, gpunvme_errmsg());
}

/*
 * Pages that a GPU keeps stay mapped here: a later mapping at their addresses would find the old pages registered. This is logged.
 * The client gets EIO, because only this process loses the pages: for the client nothing is mapped.
 */
static int place(const struct gnv_dma_maps *maps, struct gnv_dma_map *r)
{
	const int ret = gnv_soft_space_place(maps->space, r->iova, r->len, r->memory.ptr);

	if (ret == -EOWNERDEAD) {
		log_leak(maps, r->len);
		return -EIO;
	}
	if (!ret)
		return 0;
	gnv_shared_unmap(&r->memory);
	return gnv_fail(ret, "DMA_MAP of 0x%llx bytes at 0x%llx: no room", (unsigned long long)r->len, (unsigned long long)r->iova);
}

int gnv_dma_maps_add(struct gnv_dma_maps *maps, uint64_t iova, uint64_t len, int fd, uint64_t offset)
{
	struct gnv_dma_map r = { .iova = iova, .len = len };
	int ret = check(maps, iova, len);

	if (!ret && fd >= 0)
		ret = gnv_shared_map(fd, offset, len, &r.memory);
	if (!ret && r.memory.ptr)
		ret = place(maps, &r);
	if (!ret)
		maps->map[maps->count++] = r;
	return ret;
}

static bool lies_in(const struct gnv_dma_map *r, uint64_t iova, uint64_t last)
{
	return r->iova >= iova && last_of(r->iova, r->len) <= last;
}

/* How many lie in the range. Return: that, or -EINVAL when one lies there in part. */
static int count_in(const struct gnv_dma_maps *maps, uint64_t iova, uint64_t last)
{
	const struct gnv_dma_map *r;
	unsigned i;
	int n = 0;

	for (i = 0; i < maps->count; i++) {
		r = &maps->map[i];
		if (lies_in(r, iova, last))
			n++;
		else if (r->iova <= last && iova <= last_of(r->iova, r->len))
			return -EINVAL;
	}
	return n;
}

/* Withdraw all at once, so that commands that are waited for later are not begun anew meanwhile. */
static void withdraw(struct gnv_dma_maps *maps, uint64_t iova, uint64_t last)
{
	unsigned i;

	for (i = 0; i < maps->count; i++)
		if (maps->map[i].memory.ptr && lies_in(&maps->map[i], iova, last))
			gnv_soft_space_withdraw(maps->space, maps->map[i].iova);
}

/* Pages that a GPU keeps stay mapped: see place(). */
static int take_away(struct gnv_dma_maps *maps, struct gnv_dma_map *r)
{
	const int ret = r->memory.ptr ? gnv_soft_space_displace(maps->space, r->iova, DRAIN_MS) : 0;

	if (ret && ret != -EOWNERDEAD)
		return gnv_fail(-EBUSY,
				"DMA_UNMAP at 0x%llx: I/O to that memory does not end. Check the storage of the image, and whether other "
				"work fills the GPU of the drive",
				(unsigned long long)r->iova);
	if (ret)
		log_leak(maps, r->len);
	else
		gnv_shared_unmap(&r->memory);
	*r = maps->map[--maps->count];
	return 0;
}

void gnv_dma_maps_end(struct gnv_dma_maps *maps)
{
	while (maps->count)
		if (take_away(maps, &maps->map[maps->count - 1])) {
			maps->count--;
			log_leak(maps, maps->map[maps->count].len);
		}
}

int gnv_dma_maps_remove(struct gnv_dma_maps *maps, uint64_t iova, uint64_t len)
{
	uint64_t last = last_of(iova, len);
	unsigned i = 0;
	int n, ret = 0;

	if (!len || last < iova)
		return gnv_fail(-EINVAL, "DMA_UNMAP of 0x%llx bytes at 0x%llx: no such range", (unsigned long long)len,
				(unsigned long long)iova);
	n = count_in(maps, iova, last);
	if (n <= 0)
		return gnv_fail(n ? n : -ENOENT, "DMA_UNMAP of 0x%llx bytes at 0x%llx: %s", (unsigned long long)len,
				(unsigned long long)iova, n ? "a region lies there in part" : "nothing is mapped there");
	withdraw(maps, iova, last);
	if (gnv_soft_has_ring(maps->soft, iova, len))
		ret = gnv_soft_function_reset(maps->soft);
	while (i < maps->count && !ret)
		if (lies_in(&maps->map[i], iova, last))
			ret = take_away(maps, &maps->map[i]);
		else
			i++;
	return ret;
}
