/* SPDX-License-Identifier: MIT */
#include "file/reader.h"

#include <errno.h>
#include <string.h>

#include "gpu/gpu.h"
#include "mem/mem.h"
#include "util/bits.h"
#include "util/checked.h"

static int open_queue(struct gnv_reader *r, uint32_t nsid)
{
	const struct gpunvme_qp_opts opts = { sizeof(opts), 0, 2, 0, 0 };
	const struct gpunvme_view view = { sizeof(view), 0, nsid, 0, 0 };
	int ret = gpunvme_ns_get_info(r->dev, nsid, &r->ns);

	if (!ret)
		ret = gpunvme_gpu_open("cpu", NULL, &r->gpu);
	if (!ret)
		ret = gpunvme_qp_create(r->dev, r->gpu, &opts, &r->qp);
	if (!ret)
		ret = gpunvme_qp_view(r->qp, &view, &r->dq);
	if (!ret)
		ret = gpunvme_mem_alloc(r->gpu, GNV_READER_CHUNK, NULL, &r->mem);
	if (!ret) {
		r->mem->ours = true;
		ret = gpunvme_mem_map(r->mem, r->dev);
	}
	if (!ret)
		ret = gpunvme_mem_dbuf(r->mem, r->dev, &r->dbuf);
	return ret;
}

int gnv_reader_open(struct gpunvme_dev *dev, uint32_t nsid, struct gnv_reader *r)
{
	int ret;

	*r = (struct gnv_reader){ .dev = dev, .ns.size = sizeof(r->ns), .chunk = UINT64_MAX };
	ret = open_queue(r, nsid);
	r->bytes = r->ns.nblocks * r->ns.lba_size;
	if (ret)
		gnv_reader_close(r);
	return ret;
}

/* What could not be deleted stays with its device, which takes the queue along, and the memory behind it. */
void gnv_reader_close(struct gnv_reader *r)
{
	gpunvme_qp_destroy(r->qp);
	gpunvme_mem_free(r->mem);
	gpunvme_gpu_close(r->gpu);
	r->qp = NULL;
	r->mem = NULL;
	r->gpu = NULL;
}

static int load(struct gnv_reader *r, uint64_t chunk)
{
	const uint64_t blocks = GNV_READER_CHUNK / r->ns.lba_size, lba = chunk * blocks;
	int status = 0, ret;

	if (r->chunk == chunk)
		return 0;
	r->chunk = UINT64_MAX;
	r->loads++;
	ret = gnv_gpu_read(r->gpu, &r->dq, &r->dbuf, lba, (uint32_t)gnv_min(blocks, r->ns.nblocks - lba), &status);
	if (!ret && status)
		ret = gnv_fail(status, "block %llu of namespace %u cannot be read: %s", (unsigned long long)lba, r->ns.nsid,
			       gpunvme_strerror(status));
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
			memcpy(buf, (const char *)gpunvme_mem_ptr(r->mem) + skip, n);
		buf = (char *)buf + n;
		at += n;
		len -= n;
	}
	return ret;
}
