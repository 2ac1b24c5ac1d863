/* SPDX-License-Identifier: MIT */
/* Arithmetic on sizes that come from outside: each returns true on overflow, as the compiler's builtins do. */
#ifndef GNV_UTIL_CHECKED_H
#define GNV_UTIL_CHECKED_H

#define gnv_add_overflow(a, b, out) __builtin_add_overflow(a, b, out)
#define gnv_mul_overflow(a, b, out) __builtin_mul_overflow(a, b, out)

#endif
