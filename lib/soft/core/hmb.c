/* SPDX-License-Identifier: MIT */
/*
 * Host Memory Buffer: Base Specification 5.17.2.1, 5.27.1.10, 8.9.
 *
 * The emulated drive keeps a mark in each page, looks at one whenever it polls, and is dead when one is gone. A real drive fails so
 * when the host overwrites a table of the drive. After a function reset it does not know the memory that it had.
 */
#include "soft/core/controller.h"
#include "soft/core/data.h"

#include <string.h>

#include "util/log.h"

#define ENABLE 1u
#define RETURNED 2u
#define LIST_ALIGN 15u
#define UNIT 4096u
#define LEAST_PIECE 16u /* HMMINDS */

struct entry {
	uint64_t iova;
	uint32_t pages, reserved;
};

static uint32_t asked(const struct gnv_soft *soft)
{
	return gnv_soft_has(&soft->config.quirks, GNV_SOFT_HMB) ? soft->config.quirks.number[GNV_SOFT_HMB] * (1u << 20) / UNIT : 0;
}

static bool wild(const struct gnv_soft *soft)
{
	return gnv_soft_has(&soft->config.quirks, GNV_SOFT_HMB_WILD);
}

void gnv_soft_hmb_describe(const struct gnv_soft *soft, struct gpunvme_id_ctrl *id)
{
	if (!asked(soft))
		return;
	id->hmpre = asked(soft);
	id->hmmin = asked(soft) / 4;
	id->hmminds = LEAST_PIECE;
	id->hmmaxd = GNV_SOFT_HMB_PIECES;
}

/* ---- Its data there ---- */

/* Address of page `n` of all, 0: there are fewer. */
static uint64_t page_at(const struct gnv_soft *soft, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < soft->hmb.count; n -= (uint32_t)soft->hmb.piece[i++].pages)
		if (n < soft->hmb.piece[i].pages)
			return soft->hmb.piece[i].iova + (uint64_t)n * soft->io.page;
	return 0;
}

static uint64_t mark_of(uint64_t iova)
{
	return (iova + 1) * 0x9e3779b97f4a7c15ull;
}

static bool is_marked(struct gnv_soft *soft, uint64_t iova)
{
	uint64_t word;

	return gnv_soft_dma_word(soft->dma, iova, &word, false) && word == mark_of(iova);
}

static bool mark_all(struct gnv_soft *soft)
{
	uint64_t iova, word;
	uint32_t n;

	for (n = 0; (iova = page_at(soft, n)); n++) {
		word = mark_of(iova);
		if (!gnv_soft_dma_word(soft->dma, iova, &word, true))
			return false;
	}
	return true;
}

static bool all_marked(struct gnv_soft *soft)
{
	uint64_t iova;
	uint32_t n;

	for (n = 0; (iova = page_at(soft, n)); n++)
		if (!is_marked(soft, iova))
			return false;
	return true;
}

/* ---- Wild ---- */

/* Overwrite its pages in turn, first and last words, when they are not its own, and always the words before and after a piece. */
static void scribble(struct gnv_soft *soft)
{
	const struct gnv_soft_hmb *hmb = &soft->hmb;
	uint64_t iova, garbage = 0xbad0bad0bad0bad0ull;
	uint32_t i;

	if (!hmb->count)
		return;
	iova = page_at(soft, hmb->next % hmb->pages);
	if (!hmb->on) {
		gnv_soft_dma_word(soft->dma, iova, &garbage, true);
		gnv_soft_dma_word(soft->dma, iova + soft->io.page - sizeof(garbage), &garbage, true);
	}
	i = hmb->next % hmb->count;
	gnv_soft_dma_word(soft->dma, hmb->piece[i].iova - sizeof(garbage), &garbage, true);
	gnv_soft_dma_word(soft->dma, hmb->piece[i].iova + hmb->piece[i].pages * soft->io.page, &garbage, true);
}

void gnv_soft_hmb_work(struct gnv_soft *soft)
{
	struct gnv_soft_hmb *hmb = &soft->hmb;

	if (!hmb->count)
		return;
	hmb->next++;
	if (wild(soft))
		scribble(soft);
	else if (hmb->on && !is_marked(soft, page_at(soft, hmb->next % hmb->pages))) {
		hmb->on = false;
		gnv_log(soft->log, GPUNVME_LOG_ERROR, "soft controller: the host wrote to its host memory buffer, or took it away");
		gnv_soft_fatal(soft);
	}
}

/* ---- The feature ---- */

static uint16_t take_entry(const struct gnv_soft *soft, const struct entry *entry, struct gnv_soft_hmb *hmb)
{
	const uint64_t iova = gnv_soft_address(&soft->io, entry->iova);

	if (iova & (soft->io.page - 1) || !iova)
		return GPUNVME_SC_INVALID_FIELD;
	if ((uint64_t)entry->pages * soft->io.page < (uint64_t)LEAST_PIECE * UNIT)
		return GPUNVME_SC_INVALID_FIELD;
	hmb->piece[hmb->count].iova = iova;
	hmb->piece[hmb->count++].pages = entry->pages;
	hmb->pages += entry->pages;
	return 0;
}

static uint16_t read_list(struct gnv_soft *soft, uint32_t count, struct gnv_soft_hmb *hmb)
{
	uint16_t status = 0;

	if (!count || count > GNV_SOFT_HMB_PIECES || hmb->list & LIST_ALIGN)
		return GPUNVME_SC_INVALID_FIELD;
	while (hmb->count < count && !status) {
		const uint64_t at = hmb->list + hmb->count * sizeof(struct entry);
		union {
			uint64_t word[2];
			struct entry entry;
		} copy;

		if (!gnv_soft_dma_word(soft->dma, at, &copy.word[0], false) || !gnv_soft_dma_word(soft->dma, at + 8, &copy.word[1], false))
			return GPUNVME_SC_DATA_TRANSFER;
		status = take_entry(soft, &copy.entry, hmb);
	}
	return status;
}

static uint16_t enable(struct gnv_soft *soft, const struct gpunvme_sqe *sqe)
{
	const bool returned = sqe->cdw11 & RETURNED;
	const uint64_t list = gnv_soft_address(&soft->io, sqe->cdw13 | (uint64_t)sqe->cdw14 << 32);
	struct gnv_soft_hmb hmb = { .on = true, .known = true, .list = list };
	uint16_t status;

	if (soft->hmb.on)
		return GPUNVME_SC_COMMAND_SEQUENCE;
	status = read_list(soft, sqe->cdw15, &hmb);
	if (status)
		return status;
	if (hmb.pages != sqe->cdw12 || (uint64_t)hmb.pages * soft->io.page < (uint64_t)asked(soft) / 4 * UNIT)
		return GPUNVME_SC_INVALID_FIELD;
	if (returned && (!soft->hmb.known || soft->hmb.list != hmb.list || soft->hmb.count != hmb.count ||
			 memcmp(soft->hmb.piece, hmb.piece, sizeof(hmb.piece))))
		return GPUNVME_SC_INVALID_FIELD;
	soft->hmb = hmb;
	if (!returned)
		return mark_all(soft) ? 0 : GPUNVME_SC_DATA_TRANSFER;
	if (wild(soft) || all_marked(soft))
		return 0;
	gnv_log(soft->log, GPUNVME_LOG_ERROR, "soft controller: its host memory buffer came back with something else in it");
	gnv_soft_fatal(soft);
	return GPUNVME_SC_INTERNAL;
}

uint16_t gnv_soft_hmb_set(struct gnv_soft *soft, const struct gpunvme_sqe *sqe)
{
	if (!asked(soft) || sqe->cdw11 & ~(ENABLE | RETURNED))
		return GPUNVME_SC_INVALID_FIELD;
	if (sqe->cdw11 & ENABLE)
		return enable(soft, sqe);
	soft->hmb.on = false;
	return 0;
}

uint16_t gnv_soft_hmb_get(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	/* The attributes: size, address and entries of the list. */
	const uint32_t now[] = { soft->hmb.pages, (uint32_t)soft->hmb.list, (uint32_t)(soft->hmb.list >> 32), soft->hmb.count };

	if (!asked(soft))
		return GPUNVME_SC_INVALID_FIELD;
	cmd->dw0 = soft->hmb.on;
	return gnv_soft_reply(soft, cmd, now, sizeof(now), UNIT);
}
