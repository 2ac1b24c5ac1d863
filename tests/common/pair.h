/* SPDX-License-Identifier: MIT */
/* A device, a GPU, a queue of theirs, and memory that both reach. */
#ifndef TESTS_COMMON_PAIR_H
#define TESTS_COMMON_PAIR_H

#include <gpunvme/gpunvme.h>
#include <string.h>

#include "common/good.h"

struct pair {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
};

/* A queue, with a view that writes, and @bytes of memory. */
static inline void pair_make_queue(struct pair *p, size_t bytes)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_queue_create(p->dev, p->gpu, NULL, &p->qp));
	good(gpunvme_queue_view(p->qp, &view, &p->dq));
	good(gpunvme_mem_alloc(p->gpu, p->qp, bytes, NULL, &p->mem));
	good(gpunvme_mem_map(p->mem, p->dev));
	good(gpunvme_mem_dbuf(p->mem, p->dev, &p->dbuf));
}

static inline void pair_open(struct pair *p, const char *uri, const char *gpu, size_t bytes)
{
	memset(p, 0, sizeof(*p));
	good(gpunvme_dev_open(uri, NULL, &p->dev));
	good(gpunvme_gpu_open(gpu, NULL, &p->gpu));
	pair_make_queue(p, bytes);
}

static inline void pair_close(struct pair *p)
{
	gpunvme_queue_destroy(p->qp);
	good(gpunvme_mem_unmap(p->mem, p->dev));
	good(gpunvme_mem_free(p->mem));
	good(gpunvme_dev_close(p->dev));
	gpunvme_gpu_close(p->gpu);
}

/* Commands that were submitted to the queue so far. */
static inline uint64_t pair_submitted(const struct pair *p)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };

	good(gpunvme_queue_get_info(p->qp, &info));
	return info.submitted;
}

#endif
