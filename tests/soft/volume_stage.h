/* SPDX-License-Identifier: MIT */
/* A volume over software controllers, whose image files a test reads itself. */
#ifndef TESTS_SOFT_VOLUME_STAGE_H
#define TESTS_SOFT_VOLUME_STAGE_H

#include <gpunvme/device.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"

#define MEMBERS 3u
#define MEMBERS_MOST 4u
#define BLOCK 512u
#define MEMBER_BLOCKS 2000u
#define BUFFER (2u << 20)

struct stage {
	struct gpunvme_dev *dev[MEMBERS_MOST];
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *vol;
	struct gpunvme_mem *mem;
	struct gpunvme_dvol v;
	struct gpunvme_dvbuf buf;
	uint32_t members, width;
	uint64_t lba, nblocks, offset; /* of a kernel's transfer */
	int write, status[64];
	uint32_t wrong;
};

static inline const char *member_path(uint32_t i)
{
	static const char *const name[MEMBERS] = { "a.img", "b.img", "c.img" };

	return image_path(name[i]);
}

static inline int make_images(void **state)
{
	uint32_t i;

	if (image_make_dir(state))
		return -1;
	for (i = 0; i < MEMBERS; i++)
		image_make(member_path(i), MEMBER_BLOCKS * BLOCK);
	return 0;
}

static inline int remove_images(void **state)
{
	uint32_t i;

	for (i = 0; i < MEMBERS; i++)
		unlink(member_path(i));
	return image_remove_dir(state);
}

static inline void open_devices(struct stage *s, const char *keys)
{
	char uri[512], spec[16];
	uint32_t i;

	for (i = 0; i < s->members; i++) {
		snprintf(uri, sizeof(uri), "soft:%s%s", member_path(i), keys);
		assert_int_equal(gpunvme_dev_open(uri, NULL, &s->dev[i]), 0);
	}
	snprintf(spec, sizeof(spec), "cpu:%u", s->width);
	assert_int_equal(gpunvme_gpu_open(spec, NULL, &s->gpu), 0);
}

static inline void open_stage(struct stage *s, const char *keys, uint32_t queues, uint32_t stripe)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	open_devices(s, keys);
	opts.queues = queues;
	opts.stripe = stripe;
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_create_striped(s->dev, s->members, s->gpu, &opts, &s->vol), 0);
	assert_int_equal(gpunvme_queue_view(s->vol, &view, &s->v), 0);
	assert_int_equal(gpunvme_mem_alloc(s->gpu, NULL, BUFFER, NULL, &s->mem), 0);
	assert_int_equal(gpunvme_mem_map_queue(s->mem, s->vol, &s->buf), 0);
}

static inline void close_stage(struct stage *s)
{
	uint32_t i;

	assert_int_equal(gpunvme_mem_unmap_queue(s->mem, s->vol), 0);
	gpunvme_queue_destroy(s->vol);
	gpunvme_mem_free(s->mem);
	gpunvme_gpu_close(s->gpu);
	for (i = 0; i < s->members; i++)
		gpunvme_dev_close(s->dev[i]);
}

static inline uint8_t *bytes_at(const struct stage *s, uint64_t offset)
{
	return (uint8_t *)(uintptr_t)s->buf.base + offset;
}

static inline void fill(uint8_t *p, size_t bytes, uint32_t seed)
{
	size_t i;

	for (i = 0; i < bytes; i++)
		p[i] = (uint8_t)((i * 2654435761u >> 11) + seed * 59u);
}

/* The bytes of the volume as its definition says, read from the image files. */
static inline void read_images(const struct stage *s, uint64_t lba, uint64_t nblocks, uint8_t *to)
{
	uint32_t stripe = 1u << s->v.stripe_shift;
	FILE *file[MEMBERS];
	uint64_t i;

	for (i = 0; i < s->members; i++) {
		file[i] = fopen(member_path((uint32_t)i), "rb");
		assert_non_null(file[i]);
	}
	for (i = 0; i < nblocks; i++) {
		uint64_t block = lba + i, in = s->members == 1 ? block : block / stripe / s->members * stripe + block % stripe;
		FILE *f = file[s->members == 1 ? 0 : block / stripe % s->members];

		assert_int_equal(fseek(f, (long)(in * BLOCK), SEEK_SET), 0);
		assert_int_equal(fread(to + i * BLOCK, BLOCK, 1, f), 1);
	}
	for (i = 0; i < s->members; i++)
		fclose(file[i]);
}

#endif
