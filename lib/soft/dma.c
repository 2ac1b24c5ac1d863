/* SPDX-License-Identifier: MIT */
#include "soft/dma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"

#define SGL_ALIGN 3u
#define PRP_ALIGN 3u

int gnv_soft_dma_get(struct gnv_soft_dma *dma, uint64_t iova, size_t len, char **cpu, unsigned *slot)
{
	unsigned s = gnv_soft_iova_slot(iova);
	struct gnv_soft_dma_entry *e = &dma->entry[s];
	const struct gnv_soft_map *map;

	if (e->refs) {
		map = e->map;
		if (!gnv_soft_map_holds(map, iova, len))
			return -EFAULT;
	} else {
		if (gnv_soft_space_get(dma->space, iova, len, &map))
			return -EFAULT;
		e->map = map;
	}
	e->refs++;
	*cpu = map->cpu + (iova - map->iova);
	*slot = s;
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

static uint16_t add(struct gnv_soft_dma *dma, struct gnv_soft_segs *segs, uint64_t iova, size_t len)
{
	struct iovec *last = segs->count ? &segs->iov[segs->count - 1] : NULL;
	unsigned slot;
	char *cpu;

	if (gnv_soft_dma_get(dma, iova, len, &cpu, &slot))
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
	uint16_t status = 0;
	uint64_t prp, piece;

	*next = 0;
	while (*len && !status) {
		prp = __atomic_load_n(list->entry++, __ATOMIC_RELAXED); /* once: the host may be changing it */
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

static uint16_t walk_prp(struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe, uint32_t page, uint64_t len,
			 struct gnv_soft_segs *segs)
{
	uint64_t first = gnv_min(len, page - (sqe->prp1 & (page - 1)));
	uint16_t status;

	if (sqe->prp1 & PRP_ALIGN)
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	status = add(dma, segs, sqe->prp1, (size_t)first);
	len -= first;
	if (status || !len)
		return status;
	if (len > page)
		return walk_list(dma, sqe->prp2, page, len, segs);
	if (sqe->prp2 & (page - 1))
		return GPUNVME_SC_INVALID_PRP_OFFSET;
	return add(dma, segs, sqe->prp2, (size_t)len);
}

static uint16_t walk_sgl(struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe, uint64_t len, struct gnv_soft_segs *segs)
{
	struct gpunvme_sgl sgl;

	memcpy(&sgl, (const char *)sqe + offsetof(struct gpunvme_sqe, prp1), sizeof(sgl));
	if (sgl.id != GPUNVME_SGL_ID_DATA_BLOCK)
		return GPUNVME_SC_INVALID_SGL_TYPE;
	if (sgl.length != len)
		return GPUNVME_SC_INVALID_SGL_LENGTH;
	if (sgl.addr & SGL_ALIGN || sgl.reserved[0] || sgl.reserved[1] || sgl.reserved[2])
		return GPUNVME_SC_INVALID_FIELD;
	return add(dma, segs, sgl.addr, (size_t)len);
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
