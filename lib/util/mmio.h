/* SPDX-License-Identifier: MIT */
/*
 * Register accesses: one aligned load or store of the given width, never torn, merged or elided by the compiler.
 *
 * Loads acquire and stores release, so that a controller in software is ordered with its host like a PCIe device: a thread that
 * sees a register write sees all earlier writes, too. 64-bit registers are read and written as two halves, low first, which every
 * controller accepts (Base Specification 3.1.3: 64-bit registers allow 32-bit accesses).
 */
#ifndef GNV_UTIL_MMIO_H
#define GNV_UTIL_MMIO_H

#include <stdint.h>

/*
 * A pointer to registers of a device, or of an emulated one. With sparse only these functions may follow it, and they take no other
 * memory.
 */
#ifdef __CHECKER__
#define GNV_MMIO __attribute__((noderef, address_space(gnv_mmio)))
#define GNV_FORCE __attribute__((force))
#else
#define GNV_MMIO
#define GNV_FORCE
#endif

/* A word of memory that a device or threads write. */
static inline uint32_t gnv_word_read32(const void *word)
{
	return __atomic_load_n((const uint32_t *)word, __ATOMIC_ACQUIRE);
}

static inline uint32_t gnv_mmio_read32(const void GNV_MMIO *reg)
{
	return gnv_word_read32((const GNV_FORCE void *)reg);
}

static inline void gnv_mmio_write32(void GNV_MMIO *reg, uint32_t value)
{
	__atomic_store_n((GNV_FORCE uint32_t *)reg, value, __ATOMIC_RELEASE);
}

/* Stores to write-combined memory leave the CPU before any later access. */
static inline void gnv_mmio_drain(void)
{
#if defined(__x86_64__)
	__builtin_ia32_sfence();
#elif defined(__aarch64__)
	__asm__ volatile("dsb st" ::: "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline uint64_t gnv_mmio_read64(const void GNV_MMIO *reg)
{
	uint64_t low = gnv_mmio_read32(reg);

	return low | (uint64_t)gnv_mmio_read32((const char GNV_MMIO *)reg + 4) << 32;
}

static inline void gnv_mmio_write64(void GNV_MMIO *reg, uint64_t value)
{
	gnv_mmio_write32(reg, (uint32_t)value);
	gnv_mmio_write32((char GNV_MMIO *)reg + 4, (uint32_t)(value >> 32));
}

#endif
