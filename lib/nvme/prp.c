/* SPDX-License-Identifier: MIT */
/*
 * PRP tables: Base Specification 4.1.1. No entry ever points to a next list, since a command uses a list only where its run of
 * entries ends within one list page.
 */
#include "nvme/prp.h"

#include "util/bits.h"

static size_t page_count(size_t len, size_t page)
{
	return len / page + (len % page != 0);
}

/* Bytes from the list of one entry to that of the next. 0: there are no lists. */
static size_t stride(enum gnv_lists lists, size_t page)
{
	switch (lists) {
	case GNV_LISTS_ANY:
		return 8;
	case GNV_LISTS_64:
		return 64;
	case GNV_LISTS_512:
		return 512;
	case GNV_LISTS_PAGE:
		return page;
	default:
		return 0;
	}
}

size_t gnv_prp_span(enum gnv_lists lists, size_t page)
{
	if (lists == GNV_LISTS_ANY || lists == GNV_LISTS_SGL)
		return 0;
	return lists == GNV_LISTS_NONE ? page : stride(lists, page) / 8 * page;
}

size_t gnv_prp_table_size(size_t len, size_t page, enum gnv_lists lists)
{
	size_t count = page_count(len, page);

	if (count <= 2 || !stride(lists, page))
		return 0;
	if (lists == GNV_LISTS_ANY)
		return gnv_align_up(count * 8, page) + gnv_align_up(page / 2 + count * 8, page);
	return gnv_align_up(count * stride(lists, page), page);
}

/* Entry i of a copy is page i of the buffer. */
static void fill_copies(const struct gnv_prp_table *t, size_t second)
{
	size_t count = page_count(t->len, t->page), i;

	for (i = 0; i < count; i++) {
		t->words[i] = t->iova + i * t->page;
		t->words[second / 8 + i] = t->iova + i * t->page;
	}
}

/* List i begins with page i of the buffer. */
static void fill_lists(const struct gnv_prp_table *t, size_t entries)
{
	size_t count = page_count(t->len, t->page), i, j;

	for (i = 0; i < count; i++)
		for (j = 0; j < entries && i + j < count; j++)
			t->words[i * entries + j] = t->iova + (i + j) * t->page;
}

void gnv_prp_table_fill(const struct gnv_prp_table *t, uint64_t *prp_a, uint64_t *prp_b)
{
	size_t second = gnv_align_up(page_count(t->len, t->page) * 8, t->page) + t->page / 2, entries;

	if (t->lists == GNV_LISTS_ANY) {
		fill_copies(t, second);
		*prp_a = t->table_iova;
		*prp_b = t->table_iova + second;
		return;
	}
	entries = stride(t->lists, t->page) / 8;
	fill_lists(t, entries);
	*prp_a = *prp_b = t->table_iova + gnv_log2(entries);
}
