/* SPDX-License-Identifier: MIT */
/* Data pointers: PRP lists and SGLs (Base Specification 4.1). */
#include "soft/core/io.h"

#include "soft/core/data.h"
#include "util/bits.h"

#define SGL_ALIGN 3u
#define SGL_MOST 65536u /* descriptors of one command */
#define PRP_ALIGN 3u
#define PAGE_BITS 4095ull /* of the pages of emulated drives */
#define HALF_LIST 256u /* entries */

struct walk {
	const struct gnv_soft_quirks *quirks;
	struct gnv_soft_dma *dma;
	struct gnv_soft_segs *segs;
	uint32_t page; /* CC.MPS, bytes */
};

/* ---- PRPs ---- */

/* One page of a PRP list: a walk holds it while it reads entries. */
struct list_page {
	struct gnv_soft_list list;
	uint64_t iova; /* of the next entry */
	int next;      /* its number, from where the list was opened */
	unsigned left;
};

/* A list page may run past the end of a mapping if the entries that are used do not. So only these entries are mapped. */
static uint16_t open_list(const struct walk *w, uint64_t iova, uint64_t len, struct list_page *page)
{
	const uint64_t room = (w->page - (iova & (w->page - 1))) / sizeof(uint64_t), need = (len + w->page - 1) / w->page;

	page->left = (unsigned)gnv_min(room, need);
	page->iova = iova;
	page->next = 0;
	return gnv_soft_list_open(w->dma, iova, page->left * sizeof(uint64_t), &page->list);
}

/* Once: the host may be changing it. */
static inline uint64_t next_entry(bool halved, struct list_page *page)
{
	const uint64_t entry = __atomic_load_n(&page->list.word[page->next++], __ATOMIC_RELAXED);

	page->iova += sizeof(uint64_t);
	if (halved && page->iova % (PAGE_BITS + 1) == HALF_LIST * sizeof(uint64_t)) {
		page->iova -= HALF_LIST * sizeof(uint64_t);
		page->next -= (int)HALF_LIST;
	}
	return entry;
}

/* Data pages of one list page. *next is the pointer to the following page, or 0. */
static uint16_t walk_list_page(const struct walk *w, struct list_page *page, uint64_t *len, uint64_t *next)
{
	const bool halved = gnv_soft_has(w->quirks, GNV_SOFT_LISTS_HALF);
	uint16_t status = 0;
	uint64_t prp, piece;

	*next = 0;
	while (*len && !status) {
		prp = next_entry(halved, page);
		if (prp & (w->page - 1))
			return GPUNVME_SC_INVALID_PRP_OFFSET;
		if (--page->left == 0 && *len > w->page) {
			*next = prp;
			return 0;
		}
		piece = gnv_min(*len, w->page);
		status = gnv_soft_segs_add(w->dma, w->segs, prp, (size_t)piece);
		*len -= piece;
	}
	return status;
}

/* Each page after the first has room for at least 511 data pages, so a list that points to itself ends with the transfer. */
static uint16_t walk_list(const struct walk *w, uint64_t iova, uint64_t len)
{
	struct list_page page;
	uint16_t status;

	if (iova % sizeof(uint64_t))
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	while (len) {
		status = open_list(w, iova, len, &page);
		if (status)
			return status;
		status = walk_list_page(w, &page, &len, &iova);
		gnv_soft_list_close(w->dma, &page.list);
		if (status)
			return status;
	}
	return 0;
}

/* The fault of the emulated drive. */
static uint16_t skew_list(const struct gnv_soft_quirks *quirks, uint64_t *iova)
{
	if (gnv_soft_has(quirks, GNV_SOFT_LISTS_FAIL) && *iova & (quirks->number[GNV_SOFT_LISTS_FAIL] - 1))
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	if (gnv_soft_has(quirks, GNV_SOFT_LISTS_ROUND))
		*iova &= ~((uint64_t)quirks->number[GNV_SOFT_LISTS_ROUND] - 1);
	if (gnv_soft_has(quirks, GNV_SOFT_LISTS_AT) && (*iova & PAGE_BITS) == quirks->number[GNV_SOFT_LISTS_AT])
		*iova &= ~PAGE_BITS;
	return 0;
}

static uint16_t walk_prp(const struct walk *w, const struct gpunvme_sqe *sqe, uint64_t len)
{
	uint64_t first = gnv_min(len, w->page - (sqe->prp1 & (w->page - 1))), list = sqe->prp2;
	uint16_t status;

	if (sqe->prp1 & PRP_ALIGN)
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	status = gnv_soft_segs_add(w->dma, w->segs, sqe->prp1, (size_t)first);
	len -= first;
	if (status || !len)
		return status;
	if (len > w->page) {
		status = skew_list(w->quirks, &list);
		return status ? status : walk_list(w, list, len);
	}
	if (sqe->prp2 & (w->page - 1))
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	return gnv_soft_segs_add(w->dma, w->segs, sqe->prp2, (size_t)len);
}

/* ---- SGLs (Base Specification 4.1.2) ---- */

/* The command's own descriptor, or one of a segment, each read once. */
struct sgl_walk {
	struct walk w;
	uint64_t len;	/* still to be covered */
	unsigned count; /* descriptors of segments so far: a list that points to itself ends, too */
};

static uint16_t add_block(struct sgl_walk *w, const struct gpunvme_sgl *sgl)
{
	const uint64_t piece = gnv_min(sgl->length, w->len);

	if (piece < sgl->length && gnv_soft_has(w->w.quirks, GNV_SOFT_SGL_STRICT))
		return GPUNVME_SC_INVALID_SGL_LENGTH;
	if (sgl->addr & SGL_ALIGN || sgl->reserved[0] || sgl->reserved[1] || sgl->reserved[2])
		return GPUNVME_SC_INVALID_FIELD;
	w->len -= piece;
	return piece ? gnv_soft_segs_add(w->w.dma, w->w.segs, sgl->addr, (size_t)piece) : 0;
}

static uint16_t read_descriptor(struct sgl_walk *w, uint64_t iova, struct gpunvme_sgl *sgl)
{
	if (++w->count > SGL_MOST)
		return GPUNVME_SC_INVALID_SGL_COUNT;
	return gnv_soft_sgl_read(w->w.dma, iova, sgl);
}

static bool is_segment(const struct gpunvme_sgl *sgl)
{
	return sgl->id == GPUNVME_SGL_ID_SEGMENT || sgl->id == GPUNVME_SGL_ID_LAST_SEGMENT;
}

/* Walk the descriptors of *segment. Replace it by the next segment, or by a data block after the last one. */
static uint16_t walk_segment(struct sgl_walk *w, struct gpunvme_sgl *segment)
{
	const struct gpunvme_sgl at = *segment;
	uint16_t status = 0;
	uint32_t i;

	if (!at.length || at.length % sizeof(at) || at.addr & SGL_ALIGN)
		return GPUNVME_SC_INVALID_SGL_SEGMENT;
	for (i = 0; i < at.length / sizeof(at) && !status; i++) {
		status = read_descriptor(w, at.addr + i * sizeof(at), segment);
		if (status)
			return status;
		if (segment->id == GPUNVME_SGL_ID_DATA_BLOCK)
			status = add_block(w, segment);
		else if (!is_segment(segment))
			return GPUNVME_SC_INVALID_SGL_TYPE;
		else if (at.id == GPUNVME_SGL_ID_LAST_SEGMENT || i + 1 < at.length / sizeof(at))
			return GPUNVME_SC_INVALID_SGL_SEGMENT;
	}
	return status;
}

/* The descriptor that stands where PRPs would. */
static struct gpunvme_sgl own_descriptor(const struct gpunvme_sqe *sqe)
{
	const uint64_t high = sqe->prp2;

	return (struct gpunvme_sgl){ .addr = sqe->prp1,
				     .length = (uint32_t)high,
				     .reserved = { (uint8_t)(high >> 32), (uint8_t)(high >> 40), (uint8_t)(high >> 48) },
				     .id = (uint8_t)(high >> 56) };
}

static uint16_t walk_sgl(const struct walk *walk, const struct gpunvme_sqe *sqe, uint64_t len)
{
	struct sgl_walk w = { *walk, len, 0 };
	struct gpunvme_sgl sgl = own_descriptor(sqe);
	uint16_t status = 0;

	if (sgl.id == GPUNVME_SGL_ID_DATA_BLOCK) {
		if (gnv_soft_has(walk->quirks, GNV_SOFT_SGL_SHORT))
			sgl.addr += 512; /* the host's mapping has room after a buffer, or the command fails */
		status = add_block(&w, &sgl);
	} else if (!is_segment(&sgl)) {
		return GPUNVME_SC_INVALID_SGL_TYPE;
	}
	while (!status && is_segment(&sgl))
		status = walk_segment(&w, &sgl);
	return status || !w.len ? status : GPUNVME_SC_INVALID_SGL_LENGTH;
}

uint16_t gnv_soft_dptr(const struct gnv_soft_io *io, struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe, uint64_t len,
		       struct gnv_soft_segs *segs)
{
	const bool sgl = (sqe->flags & GPUNVME_SQE_PSDT) != GPUNVME_PSDT_PRP;
	const struct walk w = { io->quirks, dma, segs, io->page };
	const uint16_t status = sgl ? walk_sgl(&w, sqe, len) : walk_prp(&w, sqe, len);

	if (status)
		gnv_soft_segs_clear(dma, segs);
	return status;
}
