/* SPDX-License-Identifier: MIT */
/*
 * Waves and workgroups of NVIDIA GPUs. Lanes of one warp may be at different instructions. Masks have the lanes that are together.
 */
#ifndef GPUNVME_DEVICE_CUDA_WAVE_H
#define GPUNVME_DEVICE_CUDA_WAVE_H

GNVD_FN uint64_t gnvd_ballot(const struct gnvd_wave *w, int pred)
{
	uint32_t bits;
	if (w->count == 1)
		return pred ? w->mask : 0;
	__asm__ volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; vote.sync.ballot.b32 %0, p, %2; }"
			 : "=r"(bits) : "r"(pred), "r"((uint32_t)w->mask) : "memory");
	return bits;
}

GNVD_FN uint32_t gnvd_shfl32(const struct gnvd_wave *w, uint32_t v, uint32_t lane)
{
	uint32_t r;
	if (w->count == 1)
		return v;
	__asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, %3;" : "=r"(r) : "r"(v), "r"(lane), "r"((uint32_t)w->mask) : "memory");
	return r;
}

GNVD_FN uint64_t gnvd_shfl64(const struct gnvd_wave *w, uint64_t v, uint32_t lane)
{
	return gnvd_shfl32(w, (uint32_t)v, lane) | (uint64_t)gnvd_shfl32(w, (uint32_t)(v >> 32), lane) << 32;
}

GNVD_FN int gnvd_first(void)
{
	uint32_t here, below;

	__asm__ volatile("activemask.b32 %0;" : "=r"(here) : : "memory");
	__asm__("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
	return !(here & below);
}

GNVD_FN uint32_t gnvd_below(const struct gnvd_wave *w, uint64_t lanes)
{
	return gnvd_popc(lanes & ((1ull << w->lane) - 1));
}

GNVD_FN void gnvd_meet(const struct gnvd_wave *w)
{
	if (w->count == 1)
		__asm__ volatile("" ::: "memory");
	else
		__asm__ volatile("bar.warp.sync %0;" : : "r"((uint32_t)w->mask) : "memory");
}

GNVD_FN void gnvd_meet_acquire(const struct gnvd_wave *w)
{
	gnvd_meet(w);
}

GNVD_FN void gnvd_meet_release(const struct gnvd_wave *w)
{
	gnvd_meet(w);
}

GNVD_FN void gnvd_release_to64(const struct gnvd_wave *w, uint64_t a, uint64_t v)
{
	gnvd_order_agent();
	gnvd_meet(w);
	if (w->rank == 0)
		gnvd_st64(a, v);
}

#define GNVD_EACH_QUEUE(dq)

#define GNVD_ALONE(w) ((w)->count == 1)
/* Not for a lane on its own: if many lanes wait for a queue, its own work under the drain lock could keep the others waiting. */
#define GNVD_OWNS(w) ((w)->count > 1 && (w)->mask == 0xffffffffull)

/* Three copies: for a lane on its own, which needs no votes, for a whole wave, whose mask and ranks are known, and for any wave. */
#define GNVD_APART(w, alone, together)                                                                                             \
	do {                                                                                                                       \
		if ((w).count == 1) {                                                                                              \
			(w).mask = (w).count = 1;                                                                                  \
			(w).lane = (w).rank = 0;                                                                                   \
			alone;                                                                                                     \
		} else if ((w).mask == 0xffffffffull) {                                                                            \
			(w).mask = 0xffffffffull;                                                                                  \
			(w).count = 32;                                                                                            \
			(w).rank = (w).lane;                                                                                       \
			together;                                                                                                  \
		} else {                                                                                                           \
			together;                                                                                                  \
		}                                                                                                                  \
	} while (0)

GNVD_FN void gnvd_enter(struct gnvd_wave *w, const struct gpunvme_dq *dq, enum gnvd_site site)
{
	uint32_t mask, below;

	if (site < GNVD_SITE_WAVE)
		__asm__ volatile("activemask.b32 %0;" : "=r"(mask) : : "memory");
	else /* wait for every lane that has not left the kernel, and return these lanes */
		__asm__ volatile("{ .reg .pred p; setp.eq.u32 p, 0, 0; vote.sync.ballot.b32 %0, p, 0xffffffff; }" : "=r"(mask) : : "memory");
	__asm__ volatile("match.any.sync.b64 %0, %1, %2;" : "=r"(mask) : "l"(dq->state), "r"(mask) : "memory");
	__asm__("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
	__asm__("mov.u32 %0, %%laneid;" : "=r"(w->lane));
	w->mask = mask;
	w->count = gnvd_popc(mask);
	w->rank = gnvd_popc(mask & below);
}

GNVD_FN uint32_t gnvd_hint(void)
{
	uint32_t block, thread;

	__asm__("mov.u32 %0, %%ctaid.x;" : "=r"(block));
	__asm__("mov.u32 %0, %%tid.x;" : "=r"(thread));
	return block * 32 + thread / 32;
}

GNVD_FN void gnvd_leave(const struct gnvd_wave *w)
{
	(void)w;
}

GPUNVME_FN uint32_t gpunvme_thread_id(void)
{
	uint32_t block, width, thread;

	__asm__("mov.u32 %0, %%ctaid.x;" : "=r"(block));
	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(width));
	__asm__("mov.u32 %0, %%tid.x;" : "=r"(thread));
	return block * width + thread;
}

GPUNVME_FN uint32_t gpunvme_thread_count(void)
{
	uint32_t blocks, width;

	__asm__("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(width));
	return blocks * width;
}

/* ---- The workgroup ---- */

GNVD_FN uint32_t gnvd_block_lane(void)
{
	uint32_t x, y, z, nx, ny;

	__asm__("mov.u32 %0, %%tid.x;" : "=r"(x));
	__asm__("mov.u32 %0, %%tid.y;" : "=r"(y));
	__asm__("mov.u32 %0, %%tid.z;" : "=r"(z));
	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(nx));
	__asm__("mov.u32 %0, %%ntid.y;" : "=r"(ny));
	return x + nx * (y + ny * z);
}

GNVD_FN uint32_t gnvd_block_lanes(void)
{
	uint32_t x, y, z;

	__asm__("mov.u32 %0, %%ntid.x;" : "=r"(x));
	__asm__("mov.u32 %0, %%ntid.y;" : "=r"(y));
	__asm__("mov.u32 %0, %%ntid.z;" : "=r"(z));
	return x * y * z;
}

GNVD_FN uint32_t gnvd_block_number(void)
{
	uint32_t v;

	__asm__("mov.u32 %0, %%ctaid.x;" : "=r"(v));
	return v;
}

GNVD_FN uint32_t gnvd_wave_lanes(void)
{
	return 32;
}

GNVD_FN void gnvd_block_sync(const struct gpunvme_dq *dq)
{
	(void)dq;
	__asm__ volatile("bar.sync 0;" ::: "memory");
}

#define GNVD_SHARED static __attribute__((shared))

GNVD_FN uint64_t gnvd_block_min(const struct gpunvme_dq *dq, uint64_t v, uint32_t *came)
{
	GNVD_SHARED uint64_t least;
	GNVD_SHARED uint32_t count;

	gnvd_block_sync(dq); /* no lane still reads the result of the previous call */
	if (gnvd_block_lane() == 0) {
		least = ~0ull;
		count = 0;
	}
	gnvd_block_sync(dq);
	__asm__ volatile("red.relaxed.cta.min.u64 [%0], %1;" : : "l"(&least), "l"(v) : "memory");
	__asm__ volatile("red.relaxed.cta.add.u32 [%0], 1;" : : "l"(&count) : "memory");
	gnvd_block_sync(dq);
	*came = count;
	return least;
}

#endif
