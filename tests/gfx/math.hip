// SPDX-License-Identifier: MIT
// The functions of math.def, once with values that differ between lanes (v_) and once with the same for all (u_); and kernels
// about waves and workgroups, whose results gfx_math.c computes in its own way.
typedef unsigned char uint8_t;
typedef signed char int8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef unsigned int uint32_t;
typedef int int32_t;
typedef unsigned long uint64_t;
typedef long int64_t;

#define GLOBAL extern "C" __attribute__((global))
#define DEVICE static __attribute__((device)) inline
#define SHARED static __attribute__((shared))

#define BALLOT(x) __builtin_amdgcn_ballot_w64(x)

DEVICE uint32_t below(uint64_t lanes)
{
	return __builtin_amdgcn_mbcnt_hi((uint32_t)(lanes >> 32), __builtin_amdgcn_mbcnt_lo((uint32_t)lanes, 0));
}

DEVICE uint32_t lane_number(void)
{
	return __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
}

#define MATH(name, ...)                                                                                       \
	DEVICE uint64_t f_##name(uint64_t a, uint64_t b, uint64_t c) { __VA_ARGS__ }                          \
	GLOBAL void v_##name(const uint64_t *in, uint64_t *out)                                               \
	{                                                                                                     \
		uint32_t i = lane_number();                                                                   \
		out[i] = f_##name(in[3 * i], in[3 * i + 1], in[3 * i + 2]);                                   \
	}                                                                                                     \
	GLOBAL void u_##name(const uint64_t *in, uint64_t *out) { out[0] = f_##name(in[0], in[1], in[2]); }
#include "math.def"
#undef MATH

DEVICE void barrier(void)
{
	__builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
	__builtin_amdgcn_s_barrier();
	__builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

// Prefix sum over the workgroup, through local memory.
GLOBAL void w_scan(const uint64_t *in, uint64_t *out)
{
	SHARED uint64_t sum[256];
	uint32_t i = __builtin_amdgcn_workitem_id_x(), at = lane_number();

	sum[i] = in[3 * at];
	barrier();
	for (uint32_t step = 1; step < 256; step *= 2) {
		uint64_t other = i >= step ? sum[i - step] : 0;
		barrier();
		sum[i] += other;
		barrier();
	}
	out[at] = sum[i];
}

// Atomics on local memory, then on memory: out[0..15] counts, the rest is what each lane saw.
GLOBAL void w_atomics(const uint64_t *in, uint64_t *out)
{
	SHARED uint32_t count[16], top, low, mix;
	uint32_t i = __builtin_amdgcn_workitem_id_x(), value = (uint32_t)in[3 * lane_number()];

	if (i < 16)
		count[i] = 0;
	if (i == 16)
		top = mix = 0;
	if (i == 17)
		low = ~0u;
	barrier();
	__scoped_atomic_fetch_add(&count[value & 15], 1 + (value >> 28), __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
	__scoped_atomic_fetch_max(&top, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
	__scoped_atomic_fetch_min(&low, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
	__scoped_atomic_fetch_xor(&mix, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
	barrier();
	if (i < 16)
		__scoped_atomic_fetch_add(&out[i], (uint64_t)count[i], __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
	if (i == 0) {
		__scoped_atomic_fetch_max(&out[16], (uint64_t)top, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
		__scoped_atomic_fetch_xor(&out[17], (uint64_t)mix, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
		__scoped_atomic_fetch_or(&out[18], (uint64_t)low, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE);
	}
}

// Ballot, rank among the voters, values handed from lane to lane; some lanes have left.
GLOBAL void w_ballot(const uint64_t *in, uint64_t *out)
{
	uint32_t i = lane_number(), value = (uint32_t)in[3 * i], rank, lane = below(~0ul);
	uint64_t votes;

	if (value % 5 == 0) {
		out[i] = 5;
		return;
	}
	votes = BALLOT(value & 1);
	rank = below(votes);
	out[i] = votes * 0x10001 + rank + ((uint64_t)(__builtin_amdgcn_readfirstlane(value) & 0xff) << 40) +
		 ((uint64_t)(__builtin_amdgcn_ds_bpermute(4 * (lane ^ 1), value) & 0xff) << 48);
}

// A lock that the lanes of a wave take one by one, as a loop around a ballot: no increment is lost.
GLOBAL void w_lock(const uint64_t *in, uint64_t *out)
{
	uint32_t *lock = (uint32_t *)&out[0], waiting = 1, lane = below(~0ul);

	while (uint64_t who = BALLOT(waiting)) {
		if (waiting && lane == (uint32_t)__builtin_ctzl(who) &&
		    !__scoped_atomic_exchange_n(lock, 1, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_DEVICE)) {
			out[1] += in[3 * lane_number()];
			__scoped_atomic_store_n(lock, 0, __ATOMIC_RELEASE, __MEMORY_SCOPE_DEVICE);
			waiting = 0;
		}
	}
}
