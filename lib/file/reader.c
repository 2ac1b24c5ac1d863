/* SPDX-License-Identifier: MIT */
#include "file/reader.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/log.h"

/* A queue that cannot be made is known before anything is looked for. */
static int try_queue(struct gnv_reader *r)
{
	struct gnv_internal q;
	int ret = gnv_internal_begin(r->dev, &r->ns, false, &q);

	if (ret)
		return ret;
	r->device = q.dq.device;
	gnv_internal_end(r->dev);
	return 0;
}

int gnv_reader_open(struct gpunvme_dev *dev, uint32_t nsid, struct gnv_reader *r)
{
	int ret;

	*r = (struct gnv_reader){ .dev = dev, .chunk = UINT64_MAX };
	ret = gnv_internal_ask(dev, nsid, &r->ns);
	if (!ret)
		ret = try_queue(r);
	if (ret)
		return ret;
	r->bytes = r->ns.info.nblocks * r->ns.info.lba_size;
	r->buf = malloc(GNV_READER_CHUNK);
	return r->buf ? 0 : gnv_fail(-ENOMEM, "out of memory");
}

void gnv_reader_close(struct gnv_reader *r)
{
	free(r->buf);
	r->buf = NULL;
}

/* By the device's queue, and to a buffer of one's own: others may look for files meanwhile. */
static int read_blocks(struct gnv_reader *r, uint64_t lba, uint32_t nblocks)
{
	struct gnv_internal q;
	int status = 0, ret = gnv_internal_begin(r->dev, &r->ns, false, &q);

	if (ret)
		return ret;
	ret = gnv_gpu_read(q.gpu, &q.dq, &q.dbuf, lba, nblocks, &status);
	if (!ret && status)
		ret = gnv_fail(status, "block %llu of namespace %u cannot be read: %s", (unsigned long long)lba, r->ns.info.nsid,
			       gpunvme_strerror(status));
	if (!ret)
		memcpy(r->buf, q.buf, (size_t)nblocks * r->ns.info.lba_size);
	gnv_internal_end(r->dev);
	return ret;
}

static int load(struct gnv_reader *r, uint64_t chunk)
{
	const uint64_t blocks = GNV_READER_CHUNK / r->ns.info.lba_size, lba = chunk * blocks;
	int ret;

	if (r->chunk == chunk)
		return 0;
	r->chunk = UINT64_MAX;
	r->loads++;
	ret = read_blocks(r, lba, (uint32_t)gnv_min(blocks, r->ns.info.nblocks - lba));
	r->chunk = ret ? UINT64_MAX : chunk;
	return ret;
}

int gnv_reader_read(struct gnv_reader *r, uint64_t at, void *buf, size_t len)
{
	int ret = 0;

	if (!gnv_within(at, len, r->bytes))
		return gnv_fail(-ERANGE, "the file system ends before byte %llu: is the namespace, or the partition, the whole of it?",
				(unsigned long long)at + len);
	at += r->first;
	while (len && !ret) {
		const size_t skip = at % GNV_READER_CHUNK, n = (size_t)gnv_min(len, GNV_READER_CHUNK - skip);

		ret = load(r, at / GNV_READER_CHUNK);
		if (!ret)
			memcpy(buf, r->buf + skip, n);
		buf = (char *)buf + n;
		at += n;
		len -= n;
	}
	return ret;
}
