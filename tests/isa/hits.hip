// SPDX-License-Identifier: MIT
// Elements of a page cache that are there, for the copy of the headers whose lanes read no page.
#include <gpunvme/device.h>

#ifndef __global__
#define __global__ __attribute__((global))
#endif

extern "C" __global__ void hit_8(struct gpunvme_dq dq, struct gpunvme_dpages pages, const uint64_t *index, uint64_t *out, int *ret)
{
	uint32_t lane = gpunvme_thread_id();
	const struct gpunvme_cached_queue src = { &dq, &pages };

	ret[lane] = gpunvme_array_load(&src, index[lane], 8, &out[lane]);
}

extern "C" __global__ void hit_16(struct gpunvme_dq dq, struct gpunvme_dpages pages, const uint64_t *index, uint64_t *out, int *ret)
{
	uint32_t lane = gpunvme_thread_id();
	const struct gpunvme_cached_queue src = { &dq, &pages };

	ret[lane] = gpunvme_array_load(&src, index[lane], 16, &out[2 * lane]);
}

extern "C" __global__ void hit_array(struct gpunvme_dq dq, struct gpunvme_dpages pages, const uint64_t *index, uint64_t *out)
{
	gpunvme::array<uint64_t> a({ &dq, &pages });
	uint32_t lane = gpunvme_thread_id();

	out[lane] = a[index[lane]] + (uint64_t)a.error();
}
