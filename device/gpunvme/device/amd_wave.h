/* SPDX-License-Identifier: MIT */
/* Waves and workgroups of AMD GPUs. All lanes of a wave execute the same instruction. The mask has the lanes that are active. */
#ifndef GPUNVME_DEVICE_AMD_WAVE_H
#define GPUNVME_DEVICE_AMD_WAVE_H

GNVD_FN uint64_t gnvd_ballot(const struct gnvd_wave *w, int pred)
{
	(void)w;
	return __builtin_amdgcn_ballot_w64(pred != 0); /* The upper half is 0 in waves of 32. clang 23 has no macro for the size */
}

GNVD_FN uint32_t gnvd_shfl32(const struct gnvd_wave *w, uint32_t v, uint32_t lane)
{
	(void)w;
	return (uint32_t)__builtin_amdgcn_readlane((int)v, (int)lane);
}

GNVD_FN uint64_t gnvd_shfl64(const struct gnvd_wave *w, uint64_t v, uint32_t lane)
{
	return gnvd_shfl32(w, (uint32_t)v, lane) | (uint64_t)gnvd_shfl32(w, (uint32_t)(v >> 32), lane) << 32;
}

GNVD_FN uint32_t gnvd_below(const struct gnvd_wave *w, uint64_t lanes)
{
	(void)w;
	return __builtin_amdgcn_mbcnt_hi((uint32_t)(lanes >> 32), __builtin_amdgcn_mbcnt_lo((uint32_t)lanes, 0));
}

GNVD_FN int gnvd_first(void)
{
	return !gnvd_below(NULL, gnvd_ballot(NULL, 1));
}

/* Lanes of a wave store in order, and a fence of one lane is a fence of all. */
GNVD_FN void gnvd_meet(const struct gnvd_wave *w)
{
	(void)w;
}

GNVD_FN void gnvd_meet_acquire(const struct gnvd_wave *w)
{
	(void)w;
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
}

/* The data that was read has arrived. Lanes that only read have nothing to write back, and no cache to invalidate. */
GNVD_FN void gnvd_meet_release(const struct gnvd_wave *w)
{
	(void)w;
	__asm__ volatile(GNVD_WAIT_READS ::: "memory");
}

GNVD_FN void gnvd_release_to64(const struct gnvd_wave *w, uint64_t a, uint64_t v)
{
	__asm__ volatile(GNVD_WRITE_BACK_AGENT GNVD_WAIT_ALL ::: "memory"); /* as gnvd_order_system() */
	if (w->rank == 0)
		gnvd_st64(a, v);
}

/*
 * Returns whether this lane uses the queue of the first lane in the mask. The values that are read from that lane change with the
 * mask. Otherwise a compiler that knows the address to be the same for all lanes keeps a copy in each lane for the whole call.
 */
GNVD_FN int gnvd_same_queue(const struct gpunvme_dq *dq, uint64_t todo)
{
	uint32_t low = (uint32_t)(dq->state ^ todo), high = (uint32_t)(dq->state >> 32 ^ todo);
	int first = (int)gnvd_lowest(todo);

	low = (uint32_t)__builtin_amdgcn_readlane((int)low, first);
	high = (uint32_t)__builtin_amdgcn_readlane((int)high, first);
	return dq->state == ((low | (uint64_t)high << 32) ^ (uint32_t)todo ^ todo << 32);
}

/* The ballots in the loop keep a compiler from moving the block out of it. */
#define GNVD_EACH_QUEUE(dq)                                                                                                        \
	for (uint64_t gnvd_todo = gnvd_ballot(NULL, 1), gnvd_mine;                                                                 \
	     gnvd_todo && (gnvd_mine = gnvd_same_queue(dq, gnvd_todo), 1); gnvd_todo &= ~gnvd_ballot(NULL, gnvd_mine != 0))         \
		if (gnvd_mine)

#define GNVD_APART(w, alone, together) together
#define GNVD_ALONE(w) 0
#define GNVD_OWNS(w) 0

GNVD_FN void gnvd_enter(struct gnvd_wave *w, const struct gpunvme_dq *dq, enum gnvd_site site)
{
	uint32_t low, high;

	(void)dq;
	(void)site;
	w->mask = gnvd_ballot(w, 1);
	low = (uint32_t)w->mask;
	high = (uint32_t)(w->mask >> 32);
	w->count = gnvd_popc(w->mask);
	w->rank = __builtin_amdgcn_mbcnt_hi(high, __builtin_amdgcn_mbcnt_lo(low, 0));
	w->lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0));
}

GNVD_FN uint32_t gnvd_hint(void)
{
	return gnvd_same32(__builtin_amdgcn_workgroup_id_x() * 32 + __builtin_amdgcn_workitem_id_x() / 32);
}

GNVD_FN void gnvd_leave(const struct gnvd_wave *w)
{
	(void)w;
}

GPUNVME_FN uint32_t gpunvme_thread_id(void)
{
	return __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
}

GPUNVME_FN uint32_t gpunvme_thread_count(void)
{
	return __builtin_amdgcn_grid_size_x();
}

/* ---- The workgroup ---- */

GNVD_FN uint32_t gnvd_block_lane(void)
{
	return __builtin_amdgcn_workitem_id_x() +
	       __builtin_amdgcn_workgroup_size_x() *
		       (__builtin_amdgcn_workitem_id_y() + __builtin_amdgcn_workgroup_size_y() * __builtin_amdgcn_workitem_id_z());
}

GNVD_FN uint32_t gnvd_block_lanes(void)
{
	return (uint32_t)__builtin_amdgcn_workgroup_size_x() * __builtin_amdgcn_workgroup_size_y() * __builtin_amdgcn_workgroup_size_z();
}

GNVD_FN uint32_t gnvd_block_number(void)
{
	return __builtin_amdgcn_workgroup_id_x();
}

GNVD_FN uint32_t gnvd_wave_lanes(void)
{
#if defined(__GFX9__)
	return 64;
#else
	return __builtin_amdgcn_wavefrontsize();
#endif
}

/* Agent scope: the stores of other waves must have left these waves before one wave writes them back for all. */
GNVD_FN void gnvd_block_sync(const struct gpunvme_dq *dq)
{
	(void)dq;
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent");
}

#if defined(__cplusplus)
#define GNVD_SHARED static __attribute__((shared))
#else
#define GNVD_SHARED static __attribute__((address_space(3), loader_uninitialized))
#endif

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
	__atomic_fetch_min(&least, v, __ATOMIC_RELAXED);
	__atomic_fetch_add(&count, 1u, __ATOMIC_RELAXED);
	gnvd_block_sync(dq);
	*came = count;
	return least;
}

#endif
