/* SPDX-License-Identifier: MIT */
/*
 * PRP tables of a buffer, as struct gpunvme_dbuf of dq.h explains them: all entries, twice, the second copy staggered by half a
 * list page. Pure arithmetic.
 */
#ifndef GNV_NVME_PRP_H
#define GNV_NVME_PRP_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the table of a buffer of `len` bytes, for pages of `page` bytes; 0 when it needs none. */
size_t gnv_prp_table_size(size_t len, size_t page);

/*
 * gnv_prp_table_fill() - write the table
 * @table: gnv_prp_table_size() bytes at IOVA @table_iova, a multiple of @page
 * @iova:  of the buffer, a multiple of @page
 * @prp_a, @prp_b: as in struct gpunvme_dbuf
 */
void gnv_prp_table_fill(uint64_t *table, uint64_t table_iova, uint64_t iova, size_t len, size_t page, uint64_t *prp_a,
			uint64_t *prp_b);

#endif
