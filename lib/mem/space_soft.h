/* SPDX-License-Identifier: MIT */
/*
 * The software address space: IOVAs for a controller that is threads of this process.
 *
 * Two faces. The host maps and unmaps through struct gnv_space. The controller translates through gnv_soft_space_get(), which
 * plays the IOMMU: an address that is not mapped, or runs over the end of its mapping, is refused.
 *
 * IOVAs are non-canonical addresses on every supported CPU (top byte 0x5a), with unmapped gaps between mappings. So a pointer used
 * as an IOVA is refused, and an IOVA used as a pointer crashes at once.
 *
 * A host in another process chooses its addresses itself, as a machine does. Its mappings are placed.
 */
#ifndef GNV_MEM_SPACE_SOFT_H
#define GNV_MEM_SPACE_SOFT_H

#include <stdbool.h>

#include "mem/space.h"

#define GNV_SOFT_IOVA_BASE 0x5a00000000000000ull
#define GNV_SOFT_SPACE_SLOTS 4096u /* mappings at one time */

/* A mapping as the controller sees it, valid while it holds a reference. Fields are constant, but for one. */
struct gnv_soft_map {
	uint64_t iova;
	size_t len;
	char *cpu;     /* of the first byte. If the CPU cannot access it, an address where nothing is mapped */
	const struct gpunvme_mem *far; /* memory of a device, moved by gnv_soft_map_get() and _put(). NULL: the host's */
	bool inside;   /* memory of the controller's own: there is nothing at its address until CMBMSC says so */
	bool hidden;   /* the CPU does not reach it: no rings there, no lists */
	bool foreign;  /* memory of another process */
	uint32_t leaving; /* no new use of it begins (atomic) */
	unsigned slot; /* 0 .. GNV_SOFT_SPACE_SLOTS-1. With `serial` it names the mapping uniquely */
	uint64_t serial;
};

/* True when all of [iova, iova + len) lies in the mapping. */
static inline bool gnv_soft_map_holds(const struct gnv_soft_map *map, uint64_t iova, size_t len)
{
	return iova >= map->iova && iova - map->iova <= map->len && len <= map->len - (iova - map->iova);
}

/*
 * Copy bytes from memory of a device to private memory and back. @at is an address as `cpu` is. Fence: as gnv_mem_far_fence(), but
 * nothing for memory of the host.
 * Return: 0; -EFAULT, -EIO with an error message.
 */
int gnv_soft_map_get(const struct gnv_soft_map *map, const char *at, void *to, size_t len);
int gnv_soft_map_put(const struct gnv_soft_map *map, const char *at, const void *from, size_t len);
void gnv_soft_map_fence(const struct gnv_soft_map *map);

/* Each slot has a stretch of addresses of its own. For an address that no slot can hold, the result is some slot. */
#define GNV_SOFT_IOVA_SLOT_SHIFT 44
static inline unsigned gnv_soft_iova_slot(uint64_t iova)
{
	return (unsigned)(iova >> GNV_SOFT_IOVA_SLOT_SHIFT) % GNV_SOFT_SPACE_SLOTS;
}

/* Is it an address that this space has chosen? */
static inline bool gnv_soft_iova_is_own(uint64_t iova)
{
	return !((iova ^ GNV_SOFT_IOVA_BASE) >> 56);
}

static inline bool gnv_soft_map_is_leaving(const struct gnv_soft_map *map)
{
	return __atomic_load_n(&map->leaving, __ATOMIC_RELAXED);
}

/*
 * gnv_soft_space_place() - map memory of another process where that process says
 * @cpu: its address in this process
 * Return: 0; -EINVAL it is empty, wraps, or lies among the space's own addresses; -EEXIST it overlaps another one; -ENOSPC;
 * -EOWNERDEAD as the map of struct gnv_space_ops.
 */
int gnv_soft_space_place(struct gnv_space *space, uint64_t iova, size_t len, void *cpu);

/*
 * gnv_soft_space_displace() - remove such a mapping: no new use begins, and uses in progress are waited for
 * @iova: of the whole mapping, placed or given up once before by this function with -EBUSY
 * Return: 0 nothing reaches the memory any more; -EBUSY something still does after @ms: call it again; -EOWNERDEAD as the unmap of
 * struct gnv_space_ops; -ENOENT.
 */
int gnv_soft_space_displace(struct gnv_space *space, uint64_t iova, uint32_t ms);

/* The first half of it: from now on there are no new users. Return: 0, -ENOENT. */
int gnv_soft_space_withdraw(struct gnv_space *space, uint64_t iova);

/* Return: 0, -ENOMEM. */
int gnv_soft_space_create(struct gnv_space **space);
/* The same for a controller that knows 48 bits of an address: it chooses from 2^47 to 2^48, for less than 32 GiB at a time. */
int gnv_soft_space_create_narrow(struct gnv_space **space);
/* Does it choose addresses as gnv_soft_space_create_narrow() says? */
bool gnv_soft_space_is_narrow(struct gnv_space *space);

/*
 * gnv_soft_space_get() - find the mapping that holds [iova, iova + len) whole and take a reference to it
 * Called by controller threads, concurrently with map and unmap. While a reference is held, unmap returns -EBUSY (after waiting
 * a bounded time for it to go).
 * Return: 0; -EFAULT.
 */
int gnv_soft_space_get(struct gnv_space *space, uint64_t iova, size_t len, const struct gnv_soft_map **map);
void gnv_soft_space_put(struct gnv_space *space, const struct gnv_soft_map *map);

/*
 * A watch of all mappings, for a controller that accesses memory by its own tables. Functions are called one at a time, under the
 * lock of the space: they neither map nor unmap.
 */
struct gnv_soft_watch {
	struct gnv_soft_watch *next; /* of the space */
	/* It is mapped, and no host knows its address yet. Return: 0; -errno with an error message: then it is not mapped. */
	int (*mapped)(struct gnv_soft_watch *watch, const struct gnv_soft_map *map);
	/*
	 * The mapping goes: it has no references, and gets none. Also called for mappings that mapped() refused or never saw, and
	 * for all that still exist when the watch ends.
	 * Return: 0 nothing reaches it any more; -EBUSY, or -EAGAIN with an error message: it is called again; -EOWNERDEAD, with an
	 * error message: nothing reaches it any more, but a GPU does not let go of the bytes, and they must stay until the process
	 * ends.
	 */
	int (*unmapping)(struct gnv_soft_watch *watch, const struct gnv_soft_map *map);
};

/*
 * gnv_soft_space_watch() - call the watch for each mapping from now on, and for those that exist
 * Return: 0; the error of mapped() for one of those: then the watch does not begin.
 *
 * gnv_soft_space_unwatch() - end the watch of all mappings. Bytes that unmapping() does not let go of are leaked later
 */
int gnv_soft_space_watch(struct gnv_space *space, struct gnv_soft_watch *watch);
void gnv_soft_space_unwatch(struct gnv_space *space, struct gnv_soft_watch *watch);

/*
 * gnv_soft_space_serial() - the mapping that stands in a slot now
 * For caches of per-mapping work (registered io_uring buffers). Return: its serial, 0 when the slot is empty.
 */
uint64_t gnv_soft_space_serial(struct gnv_space *space, unsigned slot);

#endif
