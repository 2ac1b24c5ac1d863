/* SPDX-License-Identifier: MIT */
/* Sizes as people write them. */
#ifndef GNV_UTIL_SIZE_H
#define GNV_UTIL_SIZE_H

#include <stdint.h>

/*
 * gnv_size_parse() - 4096, 64K, 1MiB, 1.5G: K, M, G and T are powers of 1024, with or without iB
 * No sign, no space, and a whole number of bytes. Return: 0; -EINVAL it is none; -ERANGE too large.
 */
int gnv_size_parse(const char *text, uint64_t *bytes);

#endif
