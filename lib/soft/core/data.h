/* SPDX-License-Identifier: MIT */
/*
 * Memory of the host, by IOVA and length: functions that the place gives in which the controller runs. In this process
 * store/dma.c and store/data.c are it, whatever the engine; the controller knows no address but an IOVA.
 */
#ifndef GNV_SOFT_DATA_H
#define GNV_SOFT_DATA_H

#include "soft/core/io.h"

struct gnv_soft;

/*
 * gnv_soft_reply() - send @len bytes of @data to where a command's data pointer says, zero-padded to @want
 * Return: 0 or a status.
 */
uint16_t gnv_soft_reply(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, const void *data, size_t len, uint64_t want);
/* The other way. Return: 0 or a status. */
uint16_t gnv_soft_receive(struct gnv_soft_cmd *cmd, void *to, size_t len);

/* What the drive that is played makes of an address. */
static inline uint64_t gnv_soft_address(const struct gnv_soft_io *io, uint64_t iova)
{
	return gnv_soft_has(io->traits, GNV_SOFT_ADDR_48) ? iova & ((1ull << 48) - 1) : iova;
}

/* One load, or store, of 8 bytes at a multiple of 8. Return: false nothing is mapped there that can be reached so. */
bool gnv_soft_dma_word(struct gnv_soft_dma *dma, uint64_t iova, uint64_t *word, bool write);

#endif
