/* SPDX-License-Identifier: MIT */
/*
 * Blocks that say whose they are: which run of the program wrote them, for which place, in which generation. Every word of a stamp
 * follows from these three, so a block that is half of one and half of another is not taken for either.
 */
#ifndef GPUNVME_STAMP_H
#define GPUNVME_STAMP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stamp {
	uint64_t magic;
	uint64_t run;
	uint64_t lba;
	uint64_t generation;
};

/* Stamps @nblocks blocks of @lba_size bytes, the first of which is for block @lba. */
void stamp_fill(void *to, uint32_t lba_size, const struct stamp *first, uint64_t nblocks);

/* Read the stamp of a block. Return: false if it has no whole stamp. */
bool stamp_read(const void *block, uint32_t lba_size, struct stamp *stamp);

/* The first of @nblocks blocks with a wrong stamp, or @nblocks if all are right. */
uint64_t stamp_check(const void *data, uint32_t lba_size, const struct stamp *first, uint64_t nblocks);

/* The contents of a block as text: "zeroes", "block 7 of generation 3", "a torn stamp of block 7", "foreign data". */
const char *stamp_tell(const void *block, uint32_t lba_size, uint64_t run, char text[96]);

#endif
