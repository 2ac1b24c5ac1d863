/* SPDX-License-Identifier: MIT */
/* Partition tables: GPT (UEFI Specification, chapter 5) and MBR with logical partitions. Untrusted. */
#ifndef GNV_FILE_PARTITION_H
#define GNV_FILE_PARTITION_H

#include "file/reader.h"

/* Where a partition lies, in blocks. */
struct gnv_partition {
	uint64_t lba;
	uint64_t nblocks;
};

/* Reads @len bytes from @at on. Return: 0, or an error, with its message. */
typedef int gnv_partition_read_fn(void *ctx, uint64_t at, void *buf, size_t len);

/*
 * gnv_partition_find() - partition @number, as Linux counts, of a disk of @nblocks blocks of @lba_size bytes
 * Return: 0; -ENXIO no such partition, or no table; -EUCLEAN the table is damaged; what @read returns; -ENOMEM.
 */
int gnv_partition_find(gnv_partition_read_fn *read, void *ctx, uint32_t lba_size, uint64_t nblocks, uint32_t number,
		       struct gnv_partition *part);

/* The reader's bytes are that partition's from now on. Return: as gnv_partition_find(). */
int gnv_partition_select(struct gnv_reader *r, uint32_t number);

#endif
