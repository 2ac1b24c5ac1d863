/* SPDX-License-Identifier: MIT */
/* Where the data of a command lies in this process: pieces of the host's memory, or memory of the controller's own. */
#ifndef GNV_SOFT_STORE_DATA_H
#define GNV_SOFT_STORE_DATA_H

#include <sys/uio.h>

#include "soft/core/io.h"
#include "soft/store/dma.h"

struct gnv_soft_data {
	struct gnv_soft_dma *dma; /* of the thread that has the command */
	unsigned seg;	   /* first vector not yet done */
	char *bounce;	   /* private copy of the data, or NULL; of Dataset Management the ranges, and behind them what is written */
	struct iovec flat; /* the one vector of an I/O through `bounce` */
	struct gnv_soft_segs segs;
};

/* Must it go that way? */
bool gnv_soft_data_apart(const struct gnv_soft_cmd *cmd);
/* That memory. Return: 0 or a status, as the next three. */
uint16_t gnv_soft_data_room(struct gnv_soft_cmd *cmd, uint64_t len);
/* That memory, and in it the data that the store is to have. */
uint16_t gnv_soft_data_fill(struct gnv_soft_cmd *cmd);
/* From the host, and to it. */
uint16_t gnv_soft_data_take(const struct gnv_soft_cmd *cmd, void *to, uint64_t len);
uint16_t gnv_soft_data_give(const struct gnv_soft_cmd *cmd, const void *from, uint64_t len);
/* Said once: data does not reach its buffer. */
void gnv_soft_data_lost(const struct gnv_soft_cmd *cmd, const char *why);

#endif
