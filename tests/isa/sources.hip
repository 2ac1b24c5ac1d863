// SPDX-License-Identifier: MIT
// Caches over files and volumes with prefetch and with pages that lanes change: calls as kernels.hip has them for a namespace.
#include <gpunvme/device_ahead_sources.h>
#include <gpunvme/device_writable_sources.h>

#ifndef __global__
#define __global__ __attribute__((global))
#endif

#define CALLS(source, type)                                                                                                        \
	extern "C" __global__ void call_##source##_prefetch(struct type from, struct gpunvme_dpages pages, int *out)               \
	{                                                                                                                          \
		uint32_t lane = gpunvme_lane();                                                                                    \
                                                                                                                                   \
		out[lane] = gpunvme_##source##_ahead_prefetch(&from, &pages, lane / 7);                                            \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_settle(struct type from, struct gpunvme_dpages pages, int *out)                 \
	{                                                                                                                          \
		out[gpunvme_lane()] = gpunvme_##source##_ahead_settle(&from, &pages);                                              \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_ahead_array(struct type from, struct gpunvme_dpages pages,                      \
							       const uint64_t *index, uint64_t *out)                                \
	{                                                                                                                          \
		gpunvme::ahead_##source##_array<uint64_t> a(&from, &pages);                                                        \
		uint32_t lane = gpunvme_lane();                                                                                    \
                                                                                                                                   \
		out[lane] = a[index[lane]] + (uint64_t)a.error();                                                                  \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_ahead_range(struct type from, struct gpunvme_dpages pages, uint64_t *to,        \
							       int *out)                                                            \
	{                                                                                                                          \
		uint32_t lane = gpunvme_lane();                                                                                    \
                                                                                                                                   \
		out[lane] = gpunvme_##source##_ahead_array_get_range(&from, &pages, 100ull * lane, 100, 8, to + 100ull * lane);    \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_writable_get(struct type from, struct gpunvme_dpages pages,                     \
								const uint64_t *index, uint64_t *out)                               \
	{                                                                                                                          \
		gpunvme::writable_##source##_array<uint64_t> a(&from, &pages);                                                     \
		uint32_t lane = gpunvme_lane();                                                                                    \
                                                                                                                                   \
		out[lane] = a[index[lane]] + (uint64_t)a.error();                                                                  \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_put(struct type from, struct gpunvme_dpages pages, const uint64_t *index, int *out) \
	{                                                                                                                          \
		uint32_t lane = gpunvme_lane();                                                                                    \
		uint64_t value = lane;                                                                                             \
                                                                                                                                   \
		out[lane] = gpunvme_##source##_array_put(&from, &pages, index[lane], 8, &value);                                   \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_put_range(struct type from, struct gpunvme_dpages pages, const uint64_t *values, \
							     int *out)                                                             \
	{                                                                                                                          \
		uint32_t lane = gpunvme_lane();                                                                                    \
                                                                                                                                   \
		out[lane] = gpunvme_##source##_array_put_range(&from, &pages, 100ull * lane, 100, 8, values + 100ull * lane);      \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_writable_page(struct type from, struct gpunvme_dpages pages, int *out)          \
	{                                                                                                                          \
		struct gpunvme_page page = { 0, 0 };                                                                               \
		uint32_t lane = gpunvme_lane();                                                                                    \
                                                                                                                                   \
		out[lane] = gpunvme_##source##_writable_page_get(&from, &pages, lane / 7, &page);                                  \
		gpunvme_##source##_writable_page_put(&from, &pages, &page, 0, 8);                                                  \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_flush_changes(struct type from, struct gpunvme_dpages pages, int *out)          \
	{                                                                                                                          \
		out[gpunvme_lane()] = gpunvme_##source##_writable_flush(&from, &pages, gpunvme_lane(), gpunvme_lanes());           \
	}

CALLS(file, gpunvme_dq)
CALLS(volume, gpunvme_dvol)
