/* SPDX-License-Identifier: MIT */
/* Where the data of a command lies in this process: pieces of the host's memory, or memory of the controller's own. */
#ifndef GNV_SOFT_STORE_DATA_H
#define GNV_SOFT_STORE_DATA_H

#include <sys/uio.h>

#include "soft/core/data.h"
#include "soft/store/dma.h"

struct gnv_soft_data {
	struct gnv_soft_dma *dma; /* of the thread that has the command */
	unsigned seg;	   /* first vector not yet done */
	char *bounce;	   /* private copy of the data, or NULL. Of Dataset Management the ranges, then the bytes to write */
	struct iovec flat; /* the one vector of an I/O through `bounce` */
	struct gnv_soft_segs segs;
};

#endif
