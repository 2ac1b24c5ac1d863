/* SPDX-License-Identifier: MIT */
/* Arithmetic on sizes that come from outside: gnv_*_overflow() return true on overflow, as the compiler's builtins do. */
#ifndef GNV_UTIL_CHECKED_H
#define GNV_UTIL_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

#define gnv_add_overflow(a, b, out) __builtin_add_overflow(a, b, out)
#define gnv_mul_overflow(a, b, out) __builtin_mul_overflow(a, b, out)

/* Do @len from @pos on lie within @limit? Nothing wraps, whatever the three values are. GNVD_WITHIN() is the same for threads. */
static inline bool gnv_within(uint64_t pos, uint64_t len, uint64_t limit)
{
	return pos <= limit && len <= limit - pos;
}

#endif
