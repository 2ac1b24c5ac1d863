/* SPDX-License-Identifier: MIT */
#include "soft/store/dma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"

#define SGL_ALIGN 3u
#define SGL_MOST 65536u /* descriptors of one command */
#define PRP_ALIGN 3u
#define PAGE_BITS 4095ull /* of the pages of drives that are played */
#define HALF_LIST 256u /* entries */

/* Its mapping was in no use: another command of this pass may want it. */
static void keep(struct gnv_soft_dma *dma, struct gnv_soft_dma_entry *e)
{
	if (!dma->passing || dma->kept_count == GNV_SOFT_KEPT)
		return;
	e->refs++;
	dma->kept[dma->kept_count++] = (uint16_t)e->map->slot;
}

void gnv_soft_dma_begin_pass(struct gnv_soft_dma *dma)
{
	dma->passing = true;
}

void gnv_soft_dma_end_pass(struct gnv_soft_dma *dma)
{
	dma->passing = false;
	while (dma->kept_count)
		gnv_soft_dma_put(dma, dma->kept[--dma->kept_count]);
}

int gnv_soft_dma_get(struct gnv_soft_dma *dma, uint64_t address, size_t len, char **cpu, unsigned *slot)
{
	const uint64_t iova = gnv_soft_address(dma->io, address);
	struct gnv_soft_dma_entry *e = &dma->entry[gnv_soft_iova_is_own(iova) ? gnv_soft_iova_slot(iova) : dma->last];
	const struct gnv_soft_map *map = e->map;

	if (!e->refs || !gnv_soft_map_holds(map, iova, len) || gnv_soft_map_is_leaving(map)) {
		if (gnv_soft_space_get(dma->space, iova, len, &map))
			return -EFAULT;
		if (!gnv_soft_dma_open(dma, map)) {
			gnv_soft_space_put(dma->space, map);
			return -EFAULT;
		}
		e = &dma->entry[map->slot];
		e->map = map;
		if (e->refs)
			gnv_soft_space_put(dma->space, map); /* one for all */
		else
			keep(dma, e);
	}
	e->refs++;
	dma->last = map->slot;
	*cpu = map->cpu + (iova - map->iova);
	*slot = map->slot;
	return 0;
}

void gnv_soft_dma_put(struct gnv_soft_dma *dma, unsigned slot)
{
	struct gnv_soft_dma_entry *e = &dma->entry[slot];

	if (--e->refs == 0)
		gnv_soft_space_put(dma->space, e->map);
}

void gnv_soft_segs_init(struct gnv_soft_segs *segs)
{
	segs->iov = segs->iov_in;
	segs->slot = segs->slot_in;
	segs->count = 0;
	segs->cap = GNV_SOFT_SEGS;
	segs->far = false;
}

void gnv_soft_segs_clear(struct gnv_soft_dma *dma, struct gnv_soft_segs *segs)
{
	unsigned i;

	for (i = 0; i < segs->count; i++)
		gnv_soft_dma_put(dma, segs->slot[i]);
	if (segs->iov != segs->iov_in) {
		free(segs->iov);
		free(segs->slot);
	}
	gnv_soft_segs_init(segs);
}

/* Only transfers beyond the built-in room come here, and they take so long that malloc does not matter. */
static int grow(struct gnv_soft_segs *segs)
{
	unsigned cap = segs->cap * 4;
	struct iovec *iov = malloc(cap * sizeof(*iov));
	uint16_t *slot = malloc(cap * sizeof(*slot));

	if (!iov || !slot) {
		free(iov);
		free(slot);
		return -ENOMEM;
	}
	memcpy(iov, segs->iov, segs->count * sizeof(*iov));
	memcpy(slot, segs->slot, segs->count * sizeof(*slot));
	if (segs->iov != segs->iov_in) {
		free(segs->iov);
		free(segs->slot);
	}
	segs->iov = iov;
	segs->slot = slot;
	segs->cap = cap;
	return 0;
}

/* Data for its own memory lands in the page beside the right one, by the drive that is played. */
static int find_data(struct gnv_soft_dma *dma, uint64_t iova, size_t len, char **cpu, unsigned *slot)
{
	int ret = gnv_soft_dma_get(dma, iova, len, cpu, slot);

	if (ret || !dma->entry[*slot].map->inside || !gnv_soft_has(dma->io->traits, GNV_SOFT_CMB_DATA))
		return ret;
	gnv_soft_dma_put(dma, *slot);
	return gnv_soft_dma_get(dma, iova ^ 4096u, len, cpu, slot);
}

static uint16_t add(struct gnv_soft_dma *dma, struct gnv_soft_segs *segs, uint64_t iova, size_t len)
{
	struct iovec *last = segs->count ? &segs->iov[segs->count - 1] : NULL;
	unsigned slot;
	char *cpu;

	if (find_data(dma, iova, len, &cpu, &slot))
		return GPUNVME_SC_DATA_TRANSFER;
	if (last && (char *)last->iov_base + last->iov_len == cpu && segs->slot[segs->count - 1] == slot) {
		last->iov_len += len;
		gnv_soft_dma_put(dma, slot);
		return 0;
	}
	if (segs->count == segs->cap && grow(segs)) {
		gnv_soft_dma_put(dma, slot);
		return GPUNVME_SC_INTERNAL;
	}
	segs->far |= dma->entry[slot].map->far != NULL;
	segs->iov[segs->count].iov_base = cpu;
	segs->iov[segs->count].iov_len = len;
	segs->slot[segs->count++] = (uint16_t)slot;
	return 0;
}

/* One page of a PRP list, from `entry` to the end of its page: what a walk holds while it reads entries. */
struct list_page {
	const uint64_t *entry;
	unsigned left;
	unsigned slot;
};

/*
 * A list page may run past the end of a mapping if the entries that are used do not, so only as many as are needed are asked for.
 */
static uint16_t open_list(struct gnv_soft_dma *dma, uint64_t iova, uint32_t page, uint64_t len, struct list_page *list)
{
	uint64_t room = (page - (iova & (page - 1))) / sizeof(uint64_t);
	uint64_t need = (len + page - 1) / page;
	char *cpu;

	list->left = (unsigned)gnv_min(room, need);
	if (gnv_soft_dma_get(dma, iova, list->left * sizeof(uint64_t), &cpu, &list->slot))
		return GPUNVME_SC_DATA_TRANSFER;
	if (dma->entry[list->slot].map->inside && gnv_soft_has(dma->io->traits, GNV_SOFT_CMB_LISTS)) {
		gnv_soft_dma_put(dma, list->slot);
		return GPUNVME_SC_INVALID_CMB_USE;
	}
	/* Memory that the host registered may start anywhere. */
	if (dma->entry[list->slot].map->hidden || (uintptr_t)cpu % sizeof(uint64_t)) {
		gnv_soft_dma_put(dma, list->slot);
		return GPUNVME_SC_DATA_TRANSFER;
	}
	list->entry = (const uint64_t *)(void *)cpu;
	return 0;
}

/* Data pages of one list page; *next is the pointer to the following page, 0 when there is none. */
static uint16_t walk_list_page(struct gnv_soft_dma *dma, struct list_page *list, uint32_t page, uint64_t *len, uint64_t *next,
			       struct gnv_soft_segs *segs)
{
	const bool halved = gnv_soft_has(dma->io->traits, GNV_SOFT_LISTS_HALF);
	uint16_t status = 0;
	uint64_t prp, piece;

	*next = 0;
	while (*len && !status) {
		prp = __atomic_load_n(list->entry++, __ATOMIC_RELAXED); /* once: the host may be changing it */
		if (halved && (uintptr_t)list->entry % (PAGE_BITS + 1) == HALF_LIST * 8)
			list->entry -= HALF_LIST;
		if (prp & (page - 1))
			return GPUNVME_SC_INVALID_PRP_OFFSET;
		if (--list->left == 0 && *len > page) {
			*next = prp;
			return 0;
		}
		piece = gnv_min(*len, page);
		status = add(dma, segs, prp, (size_t)piece);
		*len -= piece;
	}
	return status;
}

/* Each page after the first has room for at least 511 data pages, so a list that points to itself ends with the transfer. */
static uint16_t walk_list(struct gnv_soft_dma *dma, uint64_t iova, uint32_t page, uint64_t len, struct gnv_soft_segs *segs)
{
	struct list_page list;
	uint16_t status;

	if (iova % sizeof(uint64_t))
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	while (len) {
		status = open_list(dma, iova, page, len, &list);
		if (status)
			return status;
		status = walk_list_page(dma, &list, page, &len, &iova, segs);
		gnv_soft_dma_put(dma, list.slot);
		if (status)
			return status;
	}
	return 0;
}

/* What is wrong with the drive that is played. */
static uint16_t skew_list(const struct gnv_soft_dma *dma, uint64_t *iova)
{
	const struct gnv_soft_traits *traits = dma->io->traits;

	if (gnv_soft_has(traits, GNV_SOFT_LISTS_FAIL) && *iova & (traits->number[GNV_SOFT_LISTS_FAIL] - 1))
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	if (gnv_soft_has(traits, GNV_SOFT_LISTS_ROUND))
		*iova &= ~((uint64_t)traits->number[GNV_SOFT_LISTS_ROUND] - 1);
	if (gnv_soft_has(traits, GNV_SOFT_LISTS_AT) && (*iova & PAGE_BITS) == traits->number[GNV_SOFT_LISTS_AT])
		*iova &= ~PAGE_BITS;
	return 0;
}

static uint16_t walk_prp(struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe, uint32_t page, uint64_t len,
			 struct gnv_soft_segs *segs)
{
	uint64_t first = gnv_min(len, page - (sqe->prp1 & (page - 1))), list = sqe->prp2;
	uint16_t status;

	if (sqe->prp1 & PRP_ALIGN)
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	status = add(dma, segs, sqe->prp1, (size_t)first);
	len -= first;
	if (status || !len)
		return status;
	if (len > page) {
		status = skew_list(dma, &list);
		return status ? status : walk_list(dma, list, page, len, segs);
	}
	if (sqe->prp2 & (page - 1))
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	return add(dma, segs, sqe->prp2, (size_t)len);
}

/* ---- SGLs (Base Specification 4.1.2) ---- */

/* The command's own descriptor, or one of a segment, each read once. */
struct sgl_walk {
	struct gnv_soft_dma *dma;
	struct gnv_soft_segs *segs;
	uint64_t len;	/* still to be covered */
	unsigned count; /* descriptors of segments so far: a list that points to itself ends, too */
};

static uint16_t add_block(struct sgl_walk *w, const struct gpunvme_sgl *sgl)
{
	const uint64_t piece = gnv_min(sgl->length, w->len);

	if (piece < sgl->length && gnv_soft_has(w->dma->io->traits, GNV_SOFT_SGL_STRICT))
		return GPUNVME_SC_INVALID_SGL_LENGTH;
	if (sgl->addr & SGL_ALIGN || sgl->reserved[0] || sgl->reserved[1] || sgl->reserved[2])
		return GPUNVME_SC_INVALID_FIELD;
	w->len -= piece;
	return piece ? add(w->dma, w->segs, sgl->addr, (size_t)piece) : 0;
}

static uint16_t read_descriptor(struct sgl_walk *w, uint64_t iova, struct gpunvme_sgl *sgl)
{
	bool hidden;
	unsigned slot;
	char *cpu;

	if (++w->count > SGL_MOST)
		return GPUNVME_SC_INVALID_SGL_COUNT;
	if (gnv_soft_dma_get(w->dma, iova, sizeof(*sgl), &cpu, &slot))
		return GPUNVME_SC_DATA_TRANSFER;
	hidden = w->dma->entry[slot].map->hidden;
	if (!hidden)
		memcpy(sgl, cpu, sizeof(*sgl));
	gnv_soft_dma_put(w->dma, slot);
	return hidden ? GPUNVME_SC_DATA_TRANSFER : 0;
}

static bool is_segment(const struct gpunvme_sgl *sgl)
{
	return sgl->id == GPUNVME_SGL_ID_SEGMENT || sgl->id == GPUNVME_SGL_ID_LAST_SEGMENT;
}

/* The descriptors that *segment points to; the next segment goes to its place, or a data block when this was the last one. */
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

static uint16_t walk_sgl(struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe, uint64_t len, struct gnv_soft_segs *segs)
{
	struct sgl_walk w = { dma, segs, len, 0 };
	struct gpunvme_sgl sgl;
	uint16_t status = 0;

	memcpy(&sgl, (const char *)sqe + offsetof(struct gpunvme_sqe, prp1), sizeof(sgl));
	if (sgl.id == GPUNVME_SGL_ID_DATA_BLOCK) {
		if (gnv_soft_has(dma->io->traits, GNV_SOFT_SGL_SHORT))
			sgl.addr += 512; /* the host's mapping has room behind a buffer, or the command fails */
		status = add_block(&w, &sgl);
	} else if (!is_segment(&sgl)) {
		return GPUNVME_SC_INVALID_SGL_TYPE;
	}
	while (!status && is_segment(&sgl))
		status = walk_segment(&w, &sgl);
	return status || !w.len ? status : GPUNVME_SC_INVALID_SGL_LENGTH;
}

uint16_t gnv_soft_dptr(struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe, uint32_t page, uint64_t len,
		       struct gnv_soft_segs *segs)
{
	bool sgl = (sqe->flags & GPUNVME_SQE_PSDT) != GPUNVME_PSDT_PRP;
	uint16_t status = sgl ? walk_sgl(dma, sqe, len, segs) : walk_prp(dma, sqe, page, len, segs);

	if (status)
		gnv_soft_segs_clear(dma, segs);
	return status;
}

uint16_t gnv_soft_segs_write(const struct gnv_soft_dma *dma, const struct gnv_soft_segs *segs, const void *from, size_t len)
{
	const struct gnv_soft_map *map;
	const char *p = from;
	size_t piece;
	unsigned i;

	for (i = 0; i < segs->count && len; i++) {
		piece = gnv_min(len, segs->iov[i].iov_len);
		map = dma->entry[segs->slot[i]].map;
		if (!map->far)
			memcpy(segs->iov[i].iov_base, p, piece);
		else if (gnv_soft_map_put(map, segs->iov[i].iov_base, p, piece))
			return GPUNVME_SC_DATA_TRANSFER;
		p += piece;
		len -= piece;
	}
	return 0;
}

uint16_t gnv_soft_segs_read(const struct gnv_soft_dma *dma, const struct gnv_soft_segs *segs, void *to, size_t len)
{
	const struct gnv_soft_map *map;
	char *p = to;
	size_t piece;
	unsigned i;

	for (i = 0; i < segs->count && len; i++) {
		piece = gnv_min(len, segs->iov[i].iov_len);
		map = dma->entry[segs->slot[i]].map;
		if (!map->far)
			memcpy(p, segs->iov[i].iov_base, piece);
		else if (gnv_soft_map_get(map, segs->iov[i].iov_base, p, piece))
			return GPUNVME_SC_DATA_TRANSFER;
		p += piece;
		len -= piece;
	}
	return 0;
}

bool gnv_soft_dma_word(struct gnv_soft_dma *dma, uint64_t iova, uint64_t *word, bool write)
{
	uint64_t *at;
	unsigned slot;
	char *cpu;
	bool reached;

	if (gnv_soft_dma_get(dma, iova, sizeof(*word), &cpu, &slot))
		return false;
	at = (uint64_t *)(void *)cpu;
	reached = !dma->entry[slot].map->hidden;
	if (reached && write)
		__atomic_store_n(at, *word, __ATOMIC_RELAXED);
	else if (reached)
		*word = __atomic_load_n(at, __ATOMIC_RELAXED);
	gnv_soft_dma_put(dma, slot);
	return reached;
}
