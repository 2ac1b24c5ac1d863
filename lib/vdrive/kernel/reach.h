/* SPDX-License-Identifier: MIT */
/*
 * Access to memory of the host and of GPUs by IOVA, for functions of the controller (core/data.h). One thread calls each function.
 */
#ifndef GNV_VDRIVE_REACH_H
#define GNV_VDRIVE_REACH_H

#include "vdrive/kernel/core.h"
#include "vdrive/kernel/prim.h"

#define OWN_SHIFT 44u /* GNV_SOFT_IOVA_SLOT_SHIFT */

/* The last placed region that begins at or below the address. */
static const struct gnv_vd_region *placed_region(const struct gnv_vd *vd, uint64_t iova)
{
	const uint64_t placed = vd_acquire64(&vd->placed); /* before the list. publish_placed() (regions.c) writes it after the list */
	const struct gnv_vd_placed *place = &vd->place[placed >> 32];
	uint32_t low = 0, high = (uint32_t)placed, middle;

	while (low < high) {
		middle = low + (high - low) / 2;
		if (vd_get64(&place->iova[middle]) <= iova)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &vd->region[vd_get32(&place->slot[low - 1])] : NULL;
}

static const struct gnv_vd_region *region_of(const struct gnv_vd *vd, uint64_t iova)
{
	const uint64_t slot = (iova - vd->first_own) >> OWN_SHIFT;

	return slot < GNV_VD_REGIONS ? &vd->region[slot] : placed_region(vd, iova);
}

/* Return: the address at which this processor accesses all of [address, address + len), or 0. */
static uint64_t reach(const struct gnv_vd *vd, uint64_t address, uint64_t len, uint64_t *flags)
{
	const uint64_t iova = gnv_soft_address(&vd->view.io, address);
	const struct gnv_vd_region *region = region_of(vd, iova);
	uint64_t has, begins;

	if (!region)
		return 0;
	has = vd_acquire64(&region->len); /* loaded before the rest. enter() of regions.c writes it after the rest */
	begins = vd_get64(&region->iova);
	*flags = vd_get64(&region->flags);
	if (iova < begins || !gnv_within(iova - begins, len, has))
		return 0;
	if (*flags & GNV_VD_INSIDE && begins != vd->view.io.cmb_base)
		return 0;
	return vd_get64(&region->at) + (iova - begins);
}

/* ---- Lists ---- */

uint16_t gnv_soft_list_open(struct gnv_soft_dma *dma, uint64_t iova, size_t len, struct gnv_soft_list *list)
{
	uint64_t flags;
	const uint64_t at = reach(dma->vd, iova, len, &flags);

	list->word = (const uint64_t *)(uintptr_t)at;
	if (at && flags & GNV_VD_INSIDE && gnv_soft_has(dma->vd->view.io.quirks, GNV_SOFT_CMB_LISTS))
		return GPUNVME_SC_INVALID_CMB_USE;
	return !at || at % sizeof(uint64_t) ? GPUNVME_SC_DATA_TRANSFER : 0; /* memory that the host registered may begin anywhere */
}

void gnv_soft_list_close(struct gnv_soft_dma *dma, const struct gnv_soft_list *list)
{
	(void)dma;
	(void)list;
}

/* Load by dwords, to which it is aligned. */
uint16_t gnv_soft_sgl_read(struct gnv_soft_dma *dma, uint64_t iova, struct gpunvme_sgl *sgl)
{
	uint64_t flags;
	const uint64_t at = reach(dma->vd, iova, sizeof(*sgl), &flags);
	union {
		uint32_t word[4];
		struct gpunvme_sgl sgl;
	} copy;
	unsigned i;

	if (!at || at % sizeof(uint32_t))
		return GPUNVME_SC_DATA_TRANSFER;
	for (i = 0; i < 4; i++)
		copy.word[i] = vd_get32((const uint32_t *)(uintptr_t)at + i);
	*sgl = copy.sgl;
	return 0;
}

/* ---- Pieces ---- */

/* fault=cmb-data: data for memory of the controller goes to the page next to the right one. */
static uint64_t reach_data(const struct gnv_vd *vd, uint64_t iova, uint64_t len)
{
	uint64_t flags;
	const uint64_t at = reach(vd, iova, len, &flags);

	if (!at || !(flags & GNV_VD_INSIDE) || !gnv_soft_has(vd->view.io.quirks, GNV_SOFT_CMB_DATA))
		return at;
	return reach(vd, iova ^ 4096u, len, &flags);
}

static inline struct gnv_vd_piece *piece_of(struct gnv_vd_segs *segs, uint32_t i)
{
	return i ? &segs->more[i - 1] : &segs->first;
}

/* Pieces that follow each other are merged. */
uint16_t gnv_soft_segs_add(struct gnv_soft_dma *dma, struct gnv_soft_segs *segs, uint64_t iova, size_t len)
{
	struct gnv_vd_piece *last = segs->count ? piece_of(segs, segs->count - 1) : NULL;
	const uint64_t at = reach_data(dma->vd, iova, len);

	if (!at)
		return GPUNVME_SC_DATA_TRANSFER;
	if (last && last->at + last->len == at) {
		last->len += len;
		return 0;
	}
	if (segs->count == GNV_VD_PIECES)
		return GPUNVME_SC_INVALID_SGL_COUNT;
	*piece_of(segs, segs->count++) = (struct gnv_vd_piece){ at, len };
	return 0;
}

void gnv_soft_segs_clear(struct gnv_soft_dma *dma, struct gnv_soft_segs *segs)
{
	(void)dma;
	segs->count = 0;
}

/* ---- Data of commands ---- */

uint16_t gnv_soft_data_map(struct gnv_soft_cmd *cmd, uint64_t len)
{
	struct gnv_soft_data *data = cmd->data;

	data->segs.more = data->room->piece;
	data->segs.count = 0;
	data->done = 0;
	data->differs = 0;
	return gnv_soft_dptr(cmd->io, data->dma, &cmd->sqe, len, &data->segs);
}

void gnv_soft_data_drop(struct gnv_soft_cmd *cmd)
{
	cmd->data->segs.count = 0;
}

void gnv_soft_data_advance(struct gnv_soft_cmd *cmd, size_t bytes)
{
	cmd->data->done += bytes;
}

/* All data moves between the drive's memory and the host's. Faults that need memory between the two are refused (refuse.c). */
bool gnv_soft_data_must_be_apart(const struct gnv_soft_cmd *cmd)
{
	(void)cmd;
	return false;
}

uint16_t gnv_soft_data_fill(struct gnv_soft_cmd *cmd)
{
	(void)cmd;
	return GPUNVME_SC_INTERNAL;
}

uint16_t gnv_soft_data_hand_over(struct gnv_soft_cmd *cmd)
{
	(void)cmd;
	return GPUNVME_SC_INTERNAL;
}

void gnv_soft_data_flip(struct gnv_soft_cmd *cmd, uint64_t bit)
{
	(void)cmd;
	(void)bit;
}

void gnv_soft_data_lost(struct gnv_soft_cmd *cmd)
{
	(void)cmd;
}

/* The team has compared already (move.h). */
uint16_t gnv_soft_data_compare(struct gnv_soft_cmd *cmd)
{
	return cmd->data->differs ? GPUNVME_SC_COMPARE_FAILURE : 0;
}

/* Pieces begin and end at dwords, except in registered memory that begins anywhere. */
static void copy_out(uint8_t *to, uint64_t from, uint64_t len)
{
	uint64_t i;

	if ((from | len) % sizeof(uint32_t) == 0)
		for (i = 0; i < len / sizeof(uint32_t); i++)
			((uint32_t *)(void *)to)[i] = vd_get32((const uint32_t *)(uintptr_t)from + i);
	else
		for (i = 0; i < len; i++)
			to[i] = (uint8_t)vd_load8((const uint8_t *)(uintptr_t)from + i);
}

uint16_t gnv_soft_data_take_ranges(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_data *data = cmd->data;
	const struct gnv_vd_piece *piece;
	uint64_t done = 0;
	uint32_t i;

	for (i = 0; i < data->segs.count; i++, done += piece->len) {
		piece = piece_of(&data->segs, i);
		copy_out((uint8_t *)data->room->range + done, piece->at, piece->len);
	}
	return 0;
}

const struct gpunvme_dsm_range *gnv_soft_data_ranges(const struct gnv_soft_cmd *cmd)
{
	return cmd->data->room->range;
}

#endif
