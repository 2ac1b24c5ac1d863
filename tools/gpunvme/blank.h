/* SPDX-License-Identifier: MIT */
/*
 * Is a drive empty? Judged by its first and its last MiB, where partition tables, file systems and volume managers put their
 * signatures. Empty are blocks of zeroes or of ones, and those that `gpunvme accept` has stamped.
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

/* Return: true when both ends are empty; else @seen says what is there, "a GPT partition table" or where the first data is. */
bool blank_check(const struct blank_end *first, const struct blank_end *last, uint32_t lba_size, char seen[128]);

#endif
