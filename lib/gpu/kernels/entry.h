/* SPDX-License-Identifier: MIT */
/* GNVK_KERNEL(name) { ... }: a kernel, for each kind of threads, whose body sees its arguments as `a`. For kernels.c, stream.cu. */
#ifndef GNV_GPU_ENTRY_H
#define GNV_GPU_ENTRY_H

#if defined(GNVD_CPU)
#define GNVK_FN static inline
#define GNVK_ENTRY(name)                                                                                                           \
	static void gnvk_##name(void *args)                                                                                        \
	{                                                                                                                          \
		run_##name((const struct gnv_##name##_args *)args);                                                                      \
	}
#else
#if defined(GNVD_AMD)
#define GNVK_GROUP amdgpu_flat_work_group_size(1, GNV_KERNEL_GROUP)
#else
#define GNVK_GROUP launch_bounds(GNV_KERNEL_GROUP)
#endif
#define GNVK_FN static inline __attribute__((always_inline)) __attribute__((device))
#define GNVK_ENTRY(name)                                                                                                           \
	extern "C" __attribute__((global, GNVK_GROUP))                                                                             \
	void gnvk_##name(struct gnv_##name##_args args)                                                                            \
	{                                                                                                                          \
		run_##name(&args);                                                                                                 \
	}
#endif

#define GNVK_KERNEL(name)                                                                                                          \
	GNVK_FN void run_##name(const struct gnv_##name##_args *a);                                                                      \
	GNVK_ENTRY(name)                                                                                                           \
	GNVK_FN void run_##name(const struct gnv_##name##_args *a)

/* Memory of the threads. Plain accesses, which may hit caches. */
#if defined(GNVD_AMD)
#define GNVK_GLOBAL __attribute__((address_space(1)))
#else
#define GNVK_GLOBAL
#endif
#define GNVK_AT(type, address) ((GNVK_GLOBAL type *)(address))

/* Load a word as plain code does: caches have it afterwards. A volatile or an atomic load passes by them. */
GNVK_FN void gnvk_touch(uint64_t at)
{
	uint32_t v = *GNVK_AT(const uint32_t, at);

#if defined(GNVD_AMD)
	__asm__ volatile("" : : "v"(v));
#else
	__asm__ volatile("" : : "r"(v));
#endif
}

/* GNVK_OWN_DQ(dq, from): a descriptor that is the same for all threads of a wave, where they reach it soonest, as *dq. */
#if defined(GNVD_CUDA)
#define GNVK_OWN_DQ(dq, from)                                                                                                      \
	GNVD_SHARED struct gpunvme_dq dq##_of_wave[GNV_KERNEL_GROUP / 32];                                                         \
	const struct gpunvme_dq *dq = &dq##_of_wave[gnvd_block_lane() / 32];                                                       \
                                                                                                                                   \
	if (gnvd_block_lane() % 32 == 0)                                                                                           \
		dq##_of_wave[gnvd_block_lane() / 32] = *(from);                                                                    \
	gnvd_block_sync(dq)
#else
#define GNVK_OWN_DQ(dq, from)                                                                                                      \
	struct gpunvme_dq dq##_own;                                                                                                \
	const struct gpunvme_dq *dq = &dq##_own;                                                                                   \
                                                                                                                                   \
	__builtin_memcpy(&dq##_own, (const void *)(from), sizeof(dq##_own))
#endif

/* A number that all threads of a group share. */
GNVK_FN uint32_t gnvk_group(void)
{
#if defined(GNVD_CPU)
	return gpunvme_thread_id();
#else
	return gnvd_block_number();
#endif
}

#endif
