/* SPDX-License-Identifier: MIT */
/* Bytes of a namespace for the host: a queue of one CPU lane's, for as long as a file is looked for. One thread at a time. */
#ifndef GNV_FILE_READER_H
#define GNV_FILE_READER_H

#include <gpunvme/mem.h>
#include <gpunvme/qp.h>

#define GNV_READER_CHUNK 65536u /* bytes of one load: the largest block of a namespace, so whole blocks of each */

struct gnv_reader {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_qp *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_ns_info ns;
	uint64_t first; /* byte where the file system begins */
	uint64_t bytes; /* of what it may have: the partition's, or the namespace's */
	uint64_t chunk; /* what the buffer holds: its number; UINT64_MAX nothing */
	uint64_t loads; /* so far */
};

/* Return: 0; as gpunvme_qp_create(). */
int gnv_reader_open(struct gpunvme_dev *dev, uint32_t nsid, struct gnv_reader *r);
void gnv_reader_close(struct gnv_reader *r);

/* @len bytes from @at on, counted from r->first. Return: 0; -ERANGE it has not so many; as gpunvme_read(). */
int gnv_reader_read(struct gnv_reader *r, uint64_t at, void *buf, size_t len);

#endif
