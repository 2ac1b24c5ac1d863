/* SPDX-License-Identifier: MIT */
/* Blocks with their writer, their place and a count of writes; and numbers that are the same in each run. */
#ifndef TESTS_KNOWN_H
#define TESTS_KNOWN_H

#include <stdint.h>

static inline uint32_t known_next(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

/* @words of a block; version 0: zeroes. */
static inline void known_fill(uint32_t *to, uint32_t words, uint32_t writer, uint32_t block, uint32_t version)
{
	for (uint32_t i = 0; i < words; i++)
		to[i] = version ? version ^ block << 12 ^ i ^ writer << 28 : 0;
}

#endif
