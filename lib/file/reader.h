/* SPDX-License-Identifier: MIT */
/* Bytes of a namespace for the host, by the queue that a device keeps for the library. One thread at a time. */
#ifndef GNV_FILE_READER_H
#define GNV_FILE_READER_H

#include <gpunvme/dev.h>

#include "queue/internal.h"

#define GNV_READER_CHUNK GNV_INTERNAL_BYTES /* of one load */

struct gnv_reader {
	struct gpunvme_dev *dev;
	uint32_t device; /* the number that queues of the device have (struct gpunvme_dq) */
	char *buf;	 /* a chunk */
	struct gnv_internal_ns ns;
	uint64_t first; /* byte where the file system begins */
	uint64_t bytes; /* that it may have: of the partition, or of the namespace */
	uint64_t chunk; /* number of the chunk in the buffer. UINT64_MAX: none */
	uint64_t loads; /* so far */
};

/* Return: 0; -ENOMEM; as gpunvme_ns_get_info() and gnv_internal_begin(). */
int gnv_reader_open(struct gpunvme_dev *dev, uint32_t nsid, struct gnv_reader *r);
void gnv_reader_close(struct gnv_reader *r);

/* @len bytes from @at on, counted from r->first. Return: 0; -ERANGE it has not so many; as gpunvme_read(). */
int gnv_reader_read(struct gnv_reader *r, uint64_t at, void *buf, size_t len);

#endif
