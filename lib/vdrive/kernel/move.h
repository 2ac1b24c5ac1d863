/* SPDX-License-Identifier: MIT */
/* Moving data with all threads of a team. Each function is collective, and its arguments are the same for all threads. */
#ifndef GNV_VDRIVE_MOVE_H
#define GNV_VDRIVE_MOVE_H

#include "vdrive/kernel/reach.h"

#define VEC sizeof(struct vd_vec)
#define DEEP 8u /* loads of a thread in flight */
#define DEALLOCATE_MAX (32u << 20) /* bytes of one command. Its other blocks stay allocated, as the command is a hint */

static void *at_vec(uint64_t at, uint64_t i)
{
	return (void *)(uintptr_t)(at + i * VEC);
}

static void move_vecs(uint64_t to, uint64_t from, uint64_t vecs)
{
	struct vd_vec v[DEEP];
	uint64_t i;
	uint32_t j;

	for (i = vd_lane(); i < vecs; i += DEEP * VD_WIDTH) {
		VD_UNROLL
		for (j = 0; j < DEEP; j++)
			if (i + j * VD_WIDTH < vecs)
				v[j] = vd_load(at_vec(from, i + j * VD_WIDTH));
		VD_UNROLL
		for (j = 0; j < DEEP; j++)
			if (i + j * VD_WIDTH < vecs)
				vd_store(at_vec(to, i + j * VD_WIDTH), v[j]);
	}
}

/* @count transfers of 1 << @shift vectors each. */
static void move_many(const uint64_t *to, const uint64_t *from, uint32_t count, uint32_t shift)
{
	const uint32_t all = count << shift, mask = (1u << shift) - 1;
	struct vd_vec v[DEEP];
	uint32_t i, j, k;

	for (i = vd_lane(); i < all; i += DEEP * VD_WIDTH) {
		VD_UNROLL
		for (j = 0, k = i; j < DEEP; j++, k += VD_WIDTH)
			if (k < all)
				v[j] = vd_load(at_vec(from[k >> shift], k & mask));
		VD_UNROLL
		for (j = 0, k = i; j < DEEP; j++, k += VD_WIDTH)
			if (k < all)
				vd_store(at_vec(to[k >> shift], k & mask), v[j]);
	}
}

static void move(uint64_t to, uint64_t from, uint64_t len)
{
	uint64_t i;

	if ((to | from | len) % VEC == 0)
		move_vecs(to, from, len / VEC);
	else if ((to | from | len) % sizeof(uint32_t) == 0)
		for (i = vd_lane(); i < len / sizeof(uint32_t); i += VD_WIDTH)
			*((volatile uint32_t *)(uintptr_t)to + i) = vd_get32((const uint32_t *)(uintptr_t)from + i);
	else
		for (i = vd_lane(); i < len; i += VD_WIDTH)
			*((volatile uint8_t *)(uintptr_t)to + i) = (uint8_t)vd_load8((const uint8_t *)(uintptr_t)from + i);
}

static bool vecs_differ(uint64_t a, uint64_t b, uint64_t vecs)
{
	struct vd_vec x[DEEP], y[DEEP];
	uint32_t j, found = 0;
	uint64_t i;

	for (i = vd_lane(); i < vecs; i += DEEP * VD_WIDTH) {
		VD_UNROLL
		for (j = 0; j < DEEP; j++)
			if (i + j * VD_WIDTH < vecs) {
				x[j] = vd_load(at_vec(a, i + j * VD_WIDTH));
				y[j] = vd_load(at_vec(b, i + j * VD_WIDTH));
			}
		VD_UNROLL
		for (j = 0; j < DEEP; j++)
			if (i + j * VD_WIDTH < vecs)
				found |= (x[j].w[0] ^ y[j].w[0]) | (x[j].w[1] ^ y[j].w[1]) | (x[j].w[2] ^ y[j].w[2]) | (x[j].w[3] ^ y[j].w[3]);
	}
	return found != 0;
}

static bool bytes_differ(uint64_t a, uint64_t b, uint64_t len)
{
	bool found = false;
	uint64_t i;

	for (i = vd_lane(); i < len; i += VD_WIDTH)
		found |= vd_load8((const uint8_t *)(uintptr_t)a + i) != vd_load8((const uint8_t *)(uintptr_t)b + i);
	return found;
}

/* Return: a byte differs. */
static bool differs(uint64_t a, uint64_t b, uint64_t len)
{
	return vd_any((a | b | len) % VEC ? bytes_differ(a, b, len) : vecs_differ(a, b, len / VEC));
}

/* Fill blocks. @len: bytes, a multiple of VEC. */
static void fill(uint64_t at, uint64_t len, uint32_t word)
{
	const struct vd_vec v = { { word, word, word, word } };
	uint64_t i;

	for (i = vd_lane(); i < len / VEC; i += VD_WIDTH)
		vd_store(at_vec(at, i), v);
}

/* Move or compare data between blocks at @at and the pieces of a command, from data->done on. Return: a byte differs. */
static bool walk_pieces(const struct gnv_soft_cmd *cmd, uint64_t at, uint64_t len)
{
	struct gnv_soft_data *data = cmd->data;
	uint64_t skip = data->done, n;
	bool found = false;
	uint32_t i;

	for (i = 0; i < data->segs.count && len; i++) {
		const struct gnv_vd_piece piece = *piece_of(&data->segs, i);

		if (skip >= piece.len) {
			skip -= piece.len;
			continue;
		}
		n = gnv_min(piece.len - skip, len);
		if (cmd->op.opc == GPUNVME_IO_READ)
			move(piece.at + skip, at, n);
		else if (cmd->op.opc == GPUNVME_IO_WRITE)
			move(at, piece.at + skip, n);
		else
			found |= differs(at, piece.at + skip, n);
		at += n;
		len -= n;
		skip = 0;
	}
	return found;
}

static uint64_t flash_of(const struct gnv_vd *vd, const struct gnv_soft_cmd *cmd)
{
	return vd->view.flash[cmd->part - vd->view.io.part];
}

/* data->done counts the bytes of all ranges, because this command moves no other data. */
static void deallocate(const struct gnv_vd *vd, const struct gnv_soft_cmd *cmd)
{
	const struct gpunvme_dsm_range *range = &cmd->data->room->range[cmd->done];
	const uint32_t shift = cmd->part->ns.lba_shift;
	const bool ones = gnv_soft_has(cmd->io->quirks, GNV_SOFT_UNSAID);
	const uint64_t left = DEALLOCATE_MAX - cmd->data->done, want = (uint64_t)range->nlb << shift;
	const uint64_t len = gnv_min(gnv_min(want, left), ones ? GNV_SOFT_FILL : DEALLOCATE_MAX);

	fill(flash_of(vd, cmd) + (range->slba << shift), len, ones ? ~0u : 0);
	vd_meet();
	if (vd_lane() == 0)
		cmd->data->done += len;
}

/* Carry out the current step of a command. Return: bytes that are done. */
static VD_RARE int carry(const struct gnv_vd *vd, struct gnv_soft_cmd *cmd)
{
	const uint64_t at = flash_of(vd, cmd) + cmd->op.offset + cmd->done, len = cmd->op.len - cmd->done;
	bool found;

	switch (cmd->stage) {
	case GNV_SOFT_STAGE_RW:
	case GNV_SOFT_STAGE_COMPARE:
		found = walk_pieces(cmd, at, len);
		if (vd_lane() == 0)
			cmd->data->differs |= found;
		return (int)len;
	case GNV_SOFT_STAGE_ZERO:
	case GNV_SOFT_STAGE_FILL:
		fill(at, len, 0);
		return (int)gnv_min(len, INT_MAX);
	case GNV_SOFT_STAGE_DSM:
		deallocate(vd, cmd);
		return 0;
	default:
		return 0; /* flush: blocks have no volatile cache */
	}
}

#endif
