/* SPDX-License-Identifier: MIT */
/*
 * Memory of the host, by IOVA and length. The functions are linked with the controller: in this process store/dma.c and
 * store/data.c, whatever the engine. The controller knows no address but an IOVA.
 */
#ifndef GNV_SOFT_DATA_H
#define GNV_SOFT_DATA_H

#include "soft/core/io.h"

struct gnv_soft;

/*
 * gnv_soft_reply() - send @len bytes of @data to the place of a command's data pointer, zero-padded to @want
 * Return: 0 or a status.
 */
uint16_t gnv_soft_reply(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, const void *data, size_t len, uint64_t want);
/* The other way. Return: 0 or a status. */
uint16_t gnv_soft_receive(struct gnv_soft_cmd *cmd, void *to, size_t len);

/* The address that the emulated drive uses instead of an address. */
static inline uint64_t gnv_soft_address(const struct gnv_soft_io *io, uint64_t iova)
{
	return gnv_soft_has(io->quirks, GNV_SOFT_ADDR_48) ? iova & ((1ull << 48) - 1) : iova;
}

/* One load, or store, of 8 bytes at a multiple of 8. Return: false nothing is mapped there that can be reached so. */
bool gnv_soft_dma_word(struct gnv_soft_dma *dma, uint64_t iova, uint64_t *word, bool write);

/* ---- Lists ---- */

/* Words of a PRP list while it is open. */
struct gnv_soft_list {
	const uint64_t *word;
	unsigned slot; /* the engine's */
};
/* Return: 0, or the status that the command ends with. */
uint16_t gnv_soft_list_open(struct gnv_soft_dma *dma, uint64_t iova, size_t len, struct gnv_soft_list *list);
void gnv_soft_list_close(struct gnv_soft_dma *dma, const struct gnv_soft_list *list);
/* A descriptor of a segment of an SGL. Return: 0, or a status. */
uint16_t gnv_soft_sgl_read(struct gnv_soft_dma *dma, uint64_t iova, struct gpunvme_sgl *sgl);

/* ---- Data of I/O commands: pieces of memory of the host, or memory of the controller's own (apart) ---- */

/* The next piece. Return: 0, or a status. */
uint16_t gnv_soft_segs_add(struct gnv_soft_dma *dma, struct gnv_soft_segs *segs, uint64_t iova, size_t len);
void gnv_soft_segs_clear(struct gnv_soft_dma *dma, struct gnv_soft_segs *segs);

/* Find the data of a command by its data pointer (gnv_soft_dptr()). Return: 0 or a status, as the next functions. */
uint16_t gnv_soft_data_map(struct gnv_soft_cmd *cmd, uint64_t len);
/* Release the data of the command. Then cmd->apart is false. */
void gnv_soft_data_drop(struct gnv_soft_cmd *cmd);
/* Count bytes of a step as done, for data that is not apart. The next step begins after them. */
void gnv_soft_data_advance(struct gnv_soft_cmd *cmd, size_t bytes);

/* Must it go through memory of the controller's own? */
bool gnv_soft_data_must_be_apart(const struct gnv_soft_cmd *cmd);
/* Have it do so, and set cmd->apart: that memory, and in it the data that the store is to have. */
uint16_t gnv_soft_data_fill(struct gnv_soft_cmd *cmd);
/* It has been read, and is apart: to the host. */
uint16_t gnv_soft_data_hand_over(struct gnv_soft_cmd *cmd);
/* Compare the data that was read, and is apart, with the host's data. */
uint16_t gnv_soft_data_compare(struct gnv_soft_cmd *cmd);
/* Turn a bit of data that is apart. */
void gnv_soft_data_flip(struct gnv_soft_cmd *cmd, uint64_t bit);
/* The ranges of Dataset Management: a copy, from which they are checked and used. Then that copy. */
uint16_t gnv_soft_data_take_ranges(struct gnv_soft_cmd *cmd);
const struct gpunvme_dsm_range *gnv_soft_data_ranges(const struct gnv_soft_cmd *cmd);
/* Log that data did not reach its buffer. */
void gnv_soft_data_lost(struct gnv_soft_cmd *cmd);

#endif
