/* SPDX-License-Identifier: MIT */
/*
 * PRP lists. What a lane makes of a transfer: PRP1, PRP2 and which entries of a list the controller takes, for any page that CC.MPS
 * can name (4 KiB to 128 MiB), any offset and any length, in a buffer of up to 2^44 bytes. How long a table is: buffers of up to
 * 2^28 pages of these sizes. What the host writes to it: buffers of 3 to PAGES pages anywhere, pages of 64 bytes, so that a page of
 * memory has 8 entries and few cross from one to the next; the functions know no other size of page than the one they are given.
 * The two meet in entry i of a table, which is the address of page i.
 */
#include "proofs.h"

#include <stdlib.h>

#include <gpunvme/device/command.h>

#include "nvme/prp.c"

#define LEN (1ull << 44)
#define PAGE 64u
#ifndef PAGES
#define PAGES 19u
#endif
#ifndef MPS_FROM
#define MPS_FROM 12
#define MPS_TO 27
#endif

/* The most that a command may move, wherever in a page it begins. It moves something where there is something to move. */
void prove_span(void)
{
	struct gpunvme_dq dq;
	uint64_t addr = nondet_64(), page;
	uint32_t nblocks = nondet_32(), n;

	TAKE(dq.page_shift >= 12 && dq.page_shift <= 27 && dq.lba_shift >= 9 && dq.lba_shift <= 16 && !(dq.flags & GPUNVME_DQ_SGL));
	page = 1ull << dq.page_shift;
	n = gnvd_blocks_per_command(&dq, addr, nblocks);
	PROVE(n <= nblocks && (n <= dq.max_blocks || n == 1));
	PROVE((addr & (page - 1)) + ((uint64_t)n << dq.lba_shift) <= page + (1ull << (2 * dq.page_shift - 4)));
	PROVE(n || !nblocks);
}

/* Any transfer of up to `most` bytes with its page: what the command says, and what it leaves for PRP2. */
static uint64_t make(struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t bytes, struct gnvd_cmd *c)
{
	const uint64_t page = 1ull << dq->page_shift, head = page - (offset & (page - 1));

	TAKE(!(dq->flags & GPUNVME_DQ_SGL));
	TAKE(dbuf->len <= LEN && dbuf->iova <= ~0ull - LEN && !(dbuf->iova & (page - 1)));
	TAKE(offset <= dbuf->len && bytes && bytes <= dbuf->len - offset);
	gnvd_set_data(dq, dbuf, offset, bytes, c);
	PROVE(c->prp1 == dbuf->iova + offset);
	return bytes > head ? bytes - head : 0;
}

/* The controller takes entry e of the list for the page `first` + e of the buffer; no list leaves its page of memory. */
void prove_data_pointer(void)
{
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	uint64_t offset = nondet_64(), bytes = nondet_64(), e = nondet_64(), page, first, left, at;

	TAKE(dq.page_shift >= MPS_FROM && dq.page_shift <= MPS_TO);
	page = 1ull << dq.page_shift;
	TAKE((offset & (page - 1)) + bytes <= page + (1ull << (2 * dq.page_shift - 4))); /* prove_span */
	TAKE(dbuf.prp_a <= ~0ull - LEN && !(dbuf.prp_a & (page - 1)));
	TAKE(dbuf.prp_b <= ~0ull - LEN && (dbuf.prp_b & (page - 1)) == page / 2);
	left = make(&dq, &dbuf, offset, bytes, &c);
	first = (offset >> dq.page_shift) + 1;
	TAKE(e <= LEN >> 12 && e << dq.page_shift < left);
	if (left <= page) {
		PROVE(c.prp2 == dbuf.iova + (first << dq.page_shift));
	} else {
		at = c.prp2 + 8 * e;
		PROVE((c.prp2 & (page - 1)) + 8 * ((left + page - 1) >> dq.page_shift) <= page);
		PROVE(at == dbuf.prp_a + 8 * (first + e) || at == dbuf.prp_b + 8 * (first + e));
		PROVE((first + e) << dq.page_shift < dbuf.len);
	}
}

/* The same where each entry has a list of its own, at a multiple of its size. */
void prove_strided_pointer(void)
{
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };
	uint64_t offset = nondet_64(), bytes = nondet_64(), page, left, s = nondet_64();

	TAKE(dq.page_shift >= MPS_FROM && dq.page_shift <= MPS_TO && (s == 3 || s == 6 || s == dq.page_shift - 3u));
	page = 1ull << dq.page_shift;
	TAKE(bytes <= page << s); /* gnv_prp_span() */
	TAKE(dbuf.prp_a <= ~0ull >> 1 && (dbuf.prp_a & (page - 1)) == s && dbuf.prp_b == dbuf.prp_a);
	left = make(&dq, &dbuf, offset, bytes, &c);
	if (left > page) {
		PROVE(c.prp2 == dbuf.prp_a - s + (((offset >> dq.page_shift) + 1) << (s + 3)));
		PROVE((left + page - 1) >> dq.page_shift <= 1ull << s);
	}
}

/* A table has room for both copies, and the second is staggered by half a list page. */
void prove_table_size(void)
{
	uint64_t len = nondet_64(), mps = nondet_64(), page, count, size;

	TAKE(mps >= 12 && mps <= 27);
	page = 1ull << mps;
	TAKE(len <= page << 28);
	count = (len + page - 1) >> mps;
	size = gnv_prp_table_size(len, page, GNV_LISTS_ANY);
	PROVE(!(size & (page - 1)) && (count > 2) == (size > 0));
	if (size) {
		PROVE(size >= gnv_align_up(8 * count, page) + page / 2 + 8 * count);
		PROVE(size <= gnv_align_up(8 * count, page) + page / 2 + 8 * count + page - 8);
	}
}

/* A buffer of `count` whole pages anywhere, and its table, after which nothing may be written. */
static struct gnv_prp_table table_of(size_t count, enum gnv_lists lists)
{
	struct gnv_prp_table t = { NULL, nondet_64(), nondet_64(), count * PAGE, PAGE, lists };

	TAKE(!((t.iova | t.table_iova) & (PAGE - 1)));
	t.words = malloc(gnv_prp_table_size(t.len, PAGE, lists));
	TAKE(t.words);
	return t;
}

void prove_copies(void)
{
	size_t count, i;
	uint64_t a, b;

	for (count = 3; count <= PAGES; count++) {
		const struct gnv_prp_table t = table_of(count, GNV_LISTS_ANY);

		gnv_prp_table_fill(&t, &a, &b);
		PROVE(a == t.table_iova && ((b - a) & (PAGE - 1)) == PAGE / 2);
		for (i = 0; i < count; i++) {
			PROVE(t.words[i] == t.iova + i * PAGE);
			PROVE(t.words[(gnv_align_up(8 * count, PAGE) + PAGE / 2) / 8 + i] == t.iova + i * PAGE);
		}
		PROVE(b - a == gnv_align_up(8 * count, PAGE) + PAGE / 2);
		free(t.words);
	}
}

void prove_lists(void)
{
	size_t count, i, e;
	uint64_t a, b;

	for (count = 3; count <= PAGES; count++) {
		const struct gnv_prp_table t = table_of(count, GNV_LISTS_64);

		gnv_prp_table_fill(&t, &a, &b);
		PROVE(a == b && a == t.table_iova + 3);
		for (i = 0; i < count; i++)
			for (e = 0; e < 8 && i + e < count; e++)
				PROVE(t.words[8 * i + e] == t.iova + (i + e) * PAGE);
		free(t.words);
	}
}
