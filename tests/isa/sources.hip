// SPDX-License-Identifier: MIT
// Caches over files and volumes with prefetch and with pages that lanes change: calls as kernels.hip has them for a namespace.
#include <gpunvme/device.h>

#ifndef __global__
#define __global__ __attribute__((global))
#endif

#define CALLS(source, type)                                                                                                        \
	extern "C" __global__ void call_##source##_prefetch(struct type from, struct gpunvme_dpages pages, int *out)               \
	{                                                                                                                          \
		const struct gpunvme_prefetch_##source src = { &from, &pages };                                                    \
		uint32_t lane = gpunvme_thread_id();                                                                                    \
                                                                                                                                   \
		out[lane] = gpunvme_prefetch(&src, lane / 7);                                                                      \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_prefetch_finish(struct type from, struct gpunvme_dpages pages, int *out)                 \
	{                                                                                                                          \
		const struct gpunvme_prefetch_##source src = { &from, &pages };                                                    \
                                                                                                                                   \
		out[gpunvme_thread_id()] = gpunvme_prefetch_finish(&src);                                                               \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_prefetch_array(struct type from, struct gpunvme_dpages pages,                      \
							       const uint64_t *index, uint64_t *out)                               \
	{                                                                                                                          \
		gpunvme::array<uint64_t, gpunvme_prefetch_##source> a({ &from, &pages });                                          \
		uint32_t lane = gpunvme_thread_id();                                                                                    \
                                                                                                                                   \
		out[lane] = a[index[lane]] + (uint64_t)a.error();                                                                  \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_prefetch_range(struct type from, struct gpunvme_dpages pages, uint64_t *to,        \
							       int *out)                                                           \
	{                                                                                                                          \
		const struct gpunvme_prefetch_##source src = { &from, &pages };                                                    \
		uint32_t lane = gpunvme_thread_id();                                                                                    \
                                                                                                                                   \
		out[lane] = gpunvme_array_load_range(&src, 100ull * lane, 100, 8, to + 100ull * lane);                             \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_writable_get(struct type from, struct gpunvme_dpages pages,                     \
								const uint64_t *index, uint64_t *out)                              \
	{                                                                                                                          \
		gpunvme::array<uint64_t, gpunvme_writable_##source> a({ &from, &pages });                                          \
		uint32_t lane = gpunvme_thread_id();                                                                                    \
                                                                                                                                   \
		out[lane] = a[index[lane]] + (uint64_t)a.error();                                                                  \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_put(struct type from, struct gpunvme_dpages pages, const uint64_t *index, int *out) \
	{                                                                                                                          \
		const struct gpunvme_writable_##source src = { &from, &pages };                                                    \
		uint32_t lane = gpunvme_thread_id();                                                                                    \
		uint64_t value = lane;                                                                                             \
                                                                                                                                   \
		out[lane] = gpunvme_array_store(&src, index[lane], 8, &value);                                                     \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_put_range(struct type from, struct gpunvme_dpages pages, const uint64_t *values, \
							     int *out)                                                             \
	{                                                                                                                          \
		const struct gpunvme_writable_##source src = { &from, &pages };                                                    \
		uint32_t lane = gpunvme_thread_id();                                                                                    \
                                                                                                                                   \
		out[lane] = gpunvme_array_store_range(&src, 100ull * lane, 100, 8, values + 100ull * lane);                        \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_writable_page(struct type from, struct gpunvme_dpages pages, int *out)          \
	{                                                                                                                          \
		const struct gpunvme_writable_##source src = { &from, &pages };                                                    \
		struct gpunvme_page page = { 0, 0 };                                                                               \
		uint32_t lane = gpunvme_thread_id();                                                                                    \
                                                                                                                                   \
		out[lane] = gpunvme_page_get(&src, lane / 7, &page);                                                               \
		gpunvme_page_put(&src, &page, 0, 8);                                                                               \
	}                                                                                                                          \
                                                                                                                                   \
	extern "C" __global__ void call_##source##_flush_changes(struct type from, struct gpunvme_dpages pages, int *out)          \
	{                                                                                                                          \
		const struct gpunvme_writable_##source src = { &from, &pages };                                                    \
                                                                                                                                   \
		out[gpunvme_thread_id()] = gpunvme_write_back(&src, gpunvme_thread_id(), gpunvme_thread_count());                                   \
	}

CALLS(file, gpunvme_dq)
CALLS(volume, gpunvme_dvol)
