/* SPDX-License-Identifier: MIT */
/*
 * PRP tables: Base Specification 4.1.1. Entry i of a copy is page i of the buffer; no entry ever points to a next list, since a
 * command uses a copy only where its run of entries ends within one list page.
 */
#include "nvme/prp.h"

#include "util/bits.h"

static size_t page_count(size_t len, size_t page)
{
	return len / page + (len % page != 0);
}

size_t gnv_prp_table_size(size_t len, size_t page)
{
	size_t count = page_count(len, page);

	if (count <= 2)
		return 0;
	return gnv_align_up(count * 8, page) + gnv_align_up(page / 2 + count * 8, page);
}

void gnv_prp_table_fill(uint64_t *table, uint64_t table_iova, uint64_t iova, size_t len, size_t page, uint64_t *prp_a,
			uint64_t *prp_b)
{
	size_t count = page_count(len, page), i;
	size_t second = gnv_align_up(count * 8, page) + page / 2;

	for (i = 0; i < count; i++) {
		table[i] = iova + i * page;
		table[second / 8 + i] = iova + i * page;
	}
	*prp_a = table_iova;
	*prp_b = table_iova + second;
}
