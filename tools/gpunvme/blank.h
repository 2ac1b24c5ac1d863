/* SPDX-License-Identifier: MIT */
/*
 * Whether a drive is empty, by its first and its last MiB, where partition tables, file systems and volume managers put their
 * signatures. Empty blocks hold zeroes or ones, or a stamp of `gpunvme qualify`.
 */
#ifndef GPUNVME_BLANK_H
#define GPUNVME_BLANK_H

#include <stdbool.h>
#include <stdint.h>

/* One end of a drive. */
struct blank_end {
	const unsigned char *bytes;
	uint64_t len;
	uint64_t at; /* of the first byte, on the drive */
};

/* Return: true if both ends are empty. Otherwise @seen names the contents: "a GPT partition table", or the place of data. */
bool blank_check(const struct blank_end *first, const struct blank_end *last, uint32_t lba_size, char seen[128]);

#endif
