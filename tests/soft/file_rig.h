/* SPDX-License-Identifier: MIT */
/* Threads that read files of the image fs.img (common/image.h), with RIG_BYTES of memory. Needs cmocka.h and what that needs. */
#ifndef TESTS_FILE_RIG_H
#define TESTS_FILE_RIG_H

#include <stdio.h>

#include <gpunvme/gpunvme.h>

#include "common/image.h"

struct rig {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	uint32_t width; /* of a wave */
};

/* lba: bytes of a block of the drive; flags: of the view. */
static inline void rig_open(struct rig *r, const char *lanes, uint32_t lba, uint32_t flags)
{
	const struct gpunvme_view view = { sizeof(view), flags, 0, 0, 0 };
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	char uri[256];

	snprintf(uri, sizeof(uri), "soft:%s?lba=%u", image_path("fs.img"), lba);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &r->dev), 0);
	assert_int_equal(gpunvme_gpu_open(lanes, NULL, &r->gpu), 0);
	assert_int_equal(gpunvme_gpu_get_info(r->gpu, &info), 0);
	r->width = info.width;
	assert_int_equal(gpunvme_queue_create(r->dev, r->gpu, NULL, &r->qp), 0);
	assert_int_equal(gpunvme_queue_view(r->qp, &view, &r->dq), 0);
	assert_int_equal(gpunvme_mem_alloc(r->gpu, NULL, RIG_BYTES, NULL, &r->mem), 0);
	assert_int_equal(gpunvme_mem_map(r->mem, r->dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(r->mem, r->dev, &r->dbuf), 0);
}

static inline void rig_close(struct rig *r)
{
	assert_int_equal(gpunvme_queue_destroy(r->qp), 0);
	assert_int_equal(gpunvme_mem_free(r->mem), 0);
	gpunvme_gpu_close(r->gpu);
	assert_int_equal(gpunvme_dev_close(r->dev), 0);
}

#endif
