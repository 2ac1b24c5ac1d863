/* SPDX-License-Identifier: MIT */
/*
 * The table of regions: the memory that the drive accesses, by IOVA. All functions are called under the lock of the space.
 */
#include <errno.h>
#include <string.h>

#include "mem/mem.h"
#include "util/bits.h"
#include "vdrive/drive.h"

#define UNMAP_MS 1000u /* longest wait for a pass of the kernel. A host that unmaps tries again */

static uint64_t at_region(const struct gnv_vdrive *d, unsigned slot)
{
	return GNV_VD_AT(d, region) + slot * sizeof(struct gnv_vd_region);
}

/* ---- Placed regions, in the order of their addresses: the list that is not in use is written and becomes the one in use ---- */

static void list_placed(struct gnv_vdrive *d)
{
	struct gnv_vd_placed *order = d->order;
	unsigned slot, at;

	d->placed = 0;
	for (slot = 0; slot < GNV_VD_REGIONS; slot++) {
		if (!d->region[slot].known || !d->region[slot].placed)
			continue;
		for (at = d->placed++; at && order->iova[at - 1] > d->region[slot].iova; at--) {
			order->iova[at] = order->iova[at - 1];
			order->slot[at] = order->slot[at - 1];
		}
		order->iova[at] = d->region[slot].iova;
		order->slot[at] = slot;
	}
}

/* Workers that have seen the epoch of a change no longer use the list before it. The next change waits for that. */
static int publish_placed(struct gnv_vdrive *d, uint32_t ms)
{
	const uint32_t next = !d->place;
	const uint64_t at = GNV_VD_AT(d, place) + next * sizeof(struct gnv_vd_placed);
	int ret;

	if (!gnv_vdrive_has_seen(d, d->switched)) /* a worker may still search the list that is written now */
		return gnv_fail(-EBUSY, "the kernel of the drive does not run. Check whether other work fills its GPU");
	list_placed(d);
	ret = d->exec->ops->poke(d->exec, at + offsetof(struct gnv_vd_placed, iova), d->order->iova,
				 d->placed * sizeof(d->order->iova[0]));
	if (!ret)
		ret = d->exec->ops->poke(d->exec, at + offsetof(struct gnv_vd_placed, slot), d->order->slot,
					 d->placed * sizeof(d->order->slot[0]));
	if (!ret)
		ret = gnv_vdrive_poke64(d, GNV_VD_AT(d, placed), (uint64_t)next << 32 | d->placed);
	if (ret)
		return ret;
	d->place = next;
	d->switched = gnv_vdrive_change(d);
	if (gnv_vdrive_sync(d, ms))
		return 0;
	return gnv_fail(-EBUSY, "the kernel of the drive does not run. Check whether other work fills its GPU");
}

/* ---- Mappings ---- */

/*
 * The link of the drive is the one to the host, whose data this is not. So there must be no link, or one that the time model plays
 * for all data alike.
 */
static int check_link(const struct gnv_vdrive *d)
{
	const struct gnv_soft *soft = &d->t.soft;

	if (soft->link == soft->config.model.link)
		return 0;
	return gnv_fail(-EOPNOTSUPP,
			"data in memory of a GPU would not go over the link of this drive, which carries %llu bytes a second. Add link=0 to its "
			"URI for a drive without a link, or a rate up to that",
			(unsigned long long)soft->link);
}

static int show(struct gnv_vdrive *d, const struct gnv_soft_map *map)
{
	struct gnv_vdrive_region *region = &d->region[map->slot];
	int ret = map->far ? check_link(d) : 0;

	*region = (struct gnv_vdrive_region){ .iova = map->iova };
	if (ret)
		return ret;
	ret = map->far ? d->exec->ops->reach(d->exec, map->far, &region->at) :
			 d->exec->ops->show(d->exec, map->cpu, map->len, &region->at, &region->cookie);
	region->shown = !ret;
	region->placed = map->iova - GNV_SOFT_IOVA_BASE != (uint64_t)map->slot << GNV_SOFT_IOVA_SLOT_SHIFT;
	return ret;
}

/* ---- Memory that its user may free: it leaves the table then, as an address leaves an IOMMU ---- */

static int write_len(struct gnv_vdrive *d, unsigned slot, uint64_t len)
{
	return gnv_vdrive_poke64(d, at_region(d, slot) + offsetof(struct gnv_vd_region, len), len);
}

/* Under the lock. */
static void end_lent(struct gnv_vdrive *d, uint32_t i)
{
	d->region[d->lent[i]].lent = NULL;
	d->lent[i] = d->lent[--d->lents];
}

/* If the table cannot be written, the next look finds it again. */
static void look_at_one(struct gnv_vdrive *d, uint32_t i)
{
	const struct gpunvme_mem *mem = d->region[d->lent[i]].lent;

	if (gnv_mem_is_there(mem) || write_len(d, d->lent[i], 0))
		return;
	gnv_log(d->t.soft.log, GPUNVME_LOG_ERROR,
		"the drive soft:vram: has lost %zu bytes at 0x%llx: memory of the GPU was freed while it was mapped, so commands for it fail. "
		"Call gpunvme_mem_free() before",
		mem->len, (unsigned long long)mem->lane);
	end_lent(d, i);
}

void gnv_vdrive_look_at_lent(void *drive)
{
	struct gnv_vdrive *d = drive;
	uint32_t left;

	pthread_mutex_lock(&d->lending);
	for (left = (uint32_t)gnv_min(d->lents, GNV_VDRIVE_LOOKS); left && d->lents; left--) {
		if (!d->next_lent || d->next_lent > d->lents)
			d->next_lent = d->lents;
		look_at_one(d, --d->next_lent);
	}
	pthread_mutex_unlock(&d->lending);
}

/* The region is seen and looked at from now on. */
static int lend(struct gnv_vdrive *d, const struct gnv_soft_map *map)
{
	const bool lent = map->far && map->far->borrowed;
	int ret;

	pthread_mutex_lock(&d->lending);
	ret = lent ? gnv_mem_check_there(map->far) : 0; /* again, now that no launch begins */
	if (!ret)
		ret = write_len(d, map->slot, map->len);
	if (!ret && lent) {
		d->region[map->slot].lent = map->far;
		d->lent[d->lents++] = map->slot;
	}
	pthread_mutex_unlock(&d->lending);
	return ret;
}

static void give_back(struct gnv_vdrive *d, unsigned slot)
{
	uint32_t i;

	pthread_mutex_lock(&d->lending);
	for (i = 0; i < d->lents && d->region[slot].lent; i++)
		if (d->lent[i] == slot)
			end_lent(d, i);
	pthread_mutex_unlock(&d->lending);
}

/* The length is written last, and makes the region valid. */
static int enter(struct gnv_vdrive *d, const struct gnv_soft_map *map)
{
	struct gnv_vd_region region = { .iova = map->iova,
					.at = d->region[map->slot].at,
					.flags = map->inside ? GNV_VD_INSIDE : 0 };
	int ret = d->exec->ops->poke(d->exec, at_region(d, map->slot), &region, sizeof(region));

	if (!ret)
		ret = lend(d, map);
	d->region[map->slot].known = !ret;
	return ret || !d->region[map->slot].placed ? ret : publish_placed(d, d->t.soft.patience_ms);
}

int gnv_vdrive_map(struct gnv_soft *soft, const struct gnv_soft_map *map)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	int ret = show(d, map);

	return ret ? ret : enter(d, map);
}

/* Return: no worker runs any more. They have stopped, or the context of the GPU has ended. */
static bool is_over(struct gnv_vdrive *d)
{
	return __atomic_load_n(&d->stopped, __ATOMIC_ACQUIRE) || __atomic_load_n(&d->dead, __ATOMIC_ACQUIRE);
}

/*
 * A worker that has seen the epoch does not find the region. Data moves within one pass, so none of its commands accesses it then.
 */
static int withdraw(struct gnv_vdrive *d, unsigned slot)
{
	struct gnv_vdrive_region *region = &d->region[slot];
	const int ret = write_len(d, slot, 0);

	if (ret)
		return ret == -ENOTRECOVERABLE ? 0 : -EBUSY;
	region->known = false;
	if (region->placed && publish_placed(d, UNMAP_MS))
		return -EBUSY;
	return gnv_vdrive_sync(d, UNMAP_MS) ? 0 : -EBUSY;
}

static bool is_ready(const struct gnv_vdrive *d)
{
	return gnv_mmio_read32((char GNV_FORCE GNV_MMIO *)d->t.soft.bar + GPUNVME_REG_CSTS) & GPUNVME_CSTS_RDY;
}

/*
 * Hide the memory after that. Memory of a dead GPU cannot be unregistered, so it stays. So does memory that a kernel of the program
 * holds, when the controller is closed. Before that the host tries again.
 */
int gnv_vdrive_unmap(struct gnv_soft *soft, const struct gnv_soft_map *map)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	struct gnv_vdrive_region *region = &d->region[map->slot];
	int ret;

	if (!region->shown)
		return 0;
	if (!is_over(d) && withdraw(d, map->slot))
		return -EBUSY; /* a launch may still find it, so the drive goes on to look whether it is freed */
	give_back(d, map->slot);
	region->known = false;
	ret = d->exec->ops->hide(d->exec, region->cookie);
	region->shown = ret == -EAGAIN && is_ready(d);
	if (ret == -EAGAIN && !region->shown)
		d->exec->ops->detach(region->cookie);
	return region->shown ? -EAGAIN : ret ? -EOWNERDEAD : 0;
}
