/* SPDX-License-Identifier: MIT */
#include "soft/store/dma.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"

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

/* A fault of the emulated drive: data for its own memory lands in the page next to the right one. */
static int find_data(struct gnv_soft_dma *dma, uint64_t iova, size_t len, char **cpu, unsigned *slot)
{
	int ret = gnv_soft_dma_get(dma, iova, len, cpu, slot);

	if (ret || !dma->entry[*slot].map->inside || !gnv_soft_has(dma->io->quirks, GNV_SOFT_CMB_DATA))
		return ret;
	gnv_soft_dma_put(dma, *slot);
	return gnv_soft_dma_get(dma, iova ^ 4096u, len, cpu, slot);
}

uint16_t gnv_soft_segs_add(struct gnv_soft_dma *dma, struct gnv_soft_segs *segs, uint64_t iova, size_t len)
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

/* ---- Lists ---- */

uint16_t gnv_soft_list_open(struct gnv_soft_dma *dma, uint64_t iova, size_t len, struct gnv_soft_list *list)
{
	const struct gnv_soft_map *map;
	uint16_t status = 0;
	char *cpu;

	if (gnv_soft_dma_get(dma, iova, len, &cpu, &list->slot))
		return GPUNVME_SC_DATA_TRANSFER;
	map = dma->entry[list->slot].map;
	if (map->inside && gnv_soft_has(dma->io->quirks, GNV_SOFT_CMB_LISTS))
		status = GPUNVME_SC_INVALID_CMB_USE;
	else if (map->hidden || (uintptr_t)cpu % sizeof(uint64_t)) /* memory that the host registered may start anywhere */
		status = GPUNVME_SC_DATA_TRANSFER;
	list->word = (const uint64_t *)(void *)cpu;
	if (status)
		gnv_soft_dma_put(dma, list->slot);
	return status;
}

void gnv_soft_list_close(struct gnv_soft_dma *dma, const struct gnv_soft_list *list)
{
	gnv_soft_dma_put(dma, list->slot);
}

uint16_t gnv_soft_sgl_read(struct gnv_soft_dma *dma, uint64_t iova, struct gpunvme_sgl *sgl)
{
	bool hidden;
	unsigned slot;
	char *cpu;

	if (gnv_soft_dma_get(dma, iova, sizeof(*sgl), &cpu, &slot))
		return GPUNVME_SC_DATA_TRANSFER;
	hidden = dma->entry[slot].map->hidden;
	if (!hidden)
		memcpy(sgl, cpu, sizeof(*sgl));
	gnv_soft_dma_put(dma, slot);
	return hidden ? GPUNVME_SC_DATA_TRANSFER : 0;
}

/* ---- Copying ---- */

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
