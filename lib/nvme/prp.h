/* SPDX-License-Identifier: MIT */
/*
 * PRP tables of a buffer, as struct gpunvme_dbuf of dq.h explains them. Pure arithmetic.
 */
#ifndef GNV_NVME_PRP_H
#define GNV_NVME_PRP_H

#include <stddef.h>
#include <stdint.h>

/* Where lists may begin so that a controller reads them as it should: the further down, the more of them it endures. */
enum gnv_lists {
	GNV_LISTS_ANY, /* anywhere: all entries, twice, the second copy staggered by half a list page */
	GNV_LISTS_64,  /* at multiples of 64 bytes, within them: one list for each entry */
	GNV_LISTS_512,
	GNV_LISTS_PAGE,
	GNV_LISTS_SGL,	/* none: data pointers are SGLs */
	GNV_LISTS_NONE, /* none: no command moves more than a page */
};

/* Bytes that one command can move in pages of `page` bytes, from any byte of its first page. 0: no limit beyond the header's. */
size_t gnv_prp_span(enum gnv_lists lists, size_t page);

/* Bytes of the table of a buffer of `len` bytes. 0: it needs none. */
size_t gnv_prp_table_size(size_t len, size_t page, enum gnv_lists lists);

/* A buffer of whole pages, and where its table goes. */
struct gnv_prp_table {
	uint64_t *words;     /* gnv_prp_table_size() bytes */
	uint64_t table_iova; /* of them, a multiple of the page */
	uint64_t iova;	     /* of the buffer, a multiple of the page */
	size_t len;
	size_t page;
	enum gnv_lists lists;
};

/* Write it. @prp_a, @prp_b: as in struct gpunvme_dbuf. */
void gnv_prp_table_fill(const struct gnv_prp_table *table, uint64_t *prp_a, uint64_t *prp_b);

#endif
