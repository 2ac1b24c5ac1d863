/* SPDX-License-Identifier: MIT */
/* What the host writes while the kernel of a drive runs (lib/vdrive/shared.h), as regions of memory. */
#ifndef TESTS_GFX_DRIVE_H
#define TESTS_GFX_DRIVE_H

#include "gfx/gfx.h"
#include "vdrive/shared.h"

#define GFX_DRIVE_QUEUES 4u /* the first ones, whose rings are known */
#define GFX_DRIVE_PARTS (5u + 5u * GFX_DRIVE_QUEUES)

/* Words of the host and rings want all bits of a load. Return: how many there are. */
static inline unsigned gfx_drive_parts(const struct gnv_vd *vd, struct gfx_region part[GFX_DRIVE_PARTS])
{
	const uint32_t ring = GFX_GLC | GFX_SLC | GFX_DLC | GFX_DEVICE;
	unsigned n = 0, i;

	part[n++] = (struct gfx_region){ "epoch", (uintptr_t)&vd->epoch, 8, ring };
	part[n++] = (struct gfx_region){ "stop", (uintptr_t)&vd->stop, 8, ring };
	part[n++] = (struct gfx_region){ "silent", (uintptr_t)&vd->silent, 4, ring };
	part[n++] = (struct gfx_region){ "placed", (uintptr_t)&vd->placed, 8, ring };
	part[n++] = (struct gfx_region){ "first", (uintptr_t)&vd->worker[0].first, 4, ring };
	for (i = 1; i <= GFX_DRIVE_QUEUES; i++) {
		const struct gnv_vd_sq *sq = &vd->sq[i];
		const struct gnv_vd_cq *cq = &vd->cq[i];

		part[n++] = (struct gfx_region){ "words of a queue", (uintptr_t)&sq->next, 16, ring };
		if (!sq->ring || !cq->ring)
			continue;
		part[n++] = (struct gfx_region){ "sq", sq->ring, (uint64_t)sq->size * sq->stride, ring | GFX_READONLY };
		part[n++] = (struct gfx_region){ "cq", cq->ring, 16ull * cq->size, ring };
		part[n++] = (struct gfx_region){ "sq doorbell", sq->doorbell, 4, ring | GFX_READONLY };
		part[n++] = (struct gfx_region){ "cq doorbell", cq->doorbell, 4, ring | GFX_READONLY };
	}
	return n;
}

#endif
