/* SPDX-License-Identifier: MIT */
#include "file/upload.h"

#include <errno.h>
#include <stdlib.h>

#include "gpu/gpu.h"
#include "util/bits.h"
#include "util/log.h"

struct gnv_shown {
	struct gnv_shown *next;
	struct gpunvme_gpu *gpu;
	struct gnv_gpu_range range;
	size_t bytes;
};

static void drop(struct gnv_shown *shown)
{
	shown->gpu->ops->local_free(shown->gpu, &shown->range, shown->bytes);
	gnv_gpu_put(shown->gpu);
	free(shown);
}

void gnv_shows_init(struct gnv_shows *shows)
{
	pthread_mutex_init(&shows->lock, NULL);
	shows->first = NULL;
}

void gnv_shows_end(struct gnv_shows *shows)
{
	struct gnv_shown *shown;

	while ((shown = shows->first)) {
		shows->first = shown->next;
		drop(shown);
	}
	pthread_mutex_destroy(&shows->lock);
}

static size_t aligned(size_t len)
{
	return gnv_align_up(len, GNV_PART_ALIGN);
}

static int copy(const struct gnv_shown *shown, const struct gnv_part *part, unsigned parts)
{
	uint64_t lane = shown->range.lane;
	int ret = 0;

	for (unsigned i = 0; i < parts && !ret; i++) {
		if (part[i].len)
			ret = shown->gpu->ops->poke(shown->gpu, lane, part[i].bytes, part[i].len);
		lane += aligned(part[i].len);
	}
	return ret;
}

/* With the lock held. */
static int show(struct gnv_shows *shows, struct gpunvme_gpu *gpu, const struct gnv_part *part, unsigned parts, size_t bytes,
		struct gnv_shown **out)
{
	struct gnv_shown *shown = calloc(1, sizeof(*shown));
	int ret;

	if (!shown)
		return gnv_fail(-ENOMEM, "out of memory");
	shown->bytes = bytes;
	ret = gpu->ops->local_alloc(gpu, shown->bytes, &shown->range);
	if (ret) {
		free(shown);
		return ret;
	}
	shown->gpu = gnv_gpu_get(gpu);
	ret = copy(shown, part, parts);
	if (ret) {
		drop(shown);
		return ret;
	}
	shown->next = shows->first;
	*out = shows->first = shown;
	return 0;
}

int gnv_shows_get(struct gnv_shows *shows, struct gpunvme_gpu *gpu, const struct gnv_part *part, unsigned parts, uint64_t *lane)
{
	struct gnv_shown *shown;
	uint64_t at = 0;
	size_t bytes = 0;
	unsigned i;
	int ret = 0;

	for (i = 0; i < parts; i++) {
		bytes += aligned(part[i].len);
		lane[i] = 0;
	}
	if (!bytes)
		return 0;
	pthread_mutex_lock(&shows->lock);
	for (shown = shows->first; shown && shown->gpu != gpu;)
		shown = shown->next;
	if (!shown)
		ret = show(shows, gpu, part, parts, bytes, &shown);
	if (!ret)
		at = shown->range.lane;
	pthread_mutex_unlock(&shows->lock);
	for (i = 0; i < parts && !ret; i++) {
		lane[i] = at;
		at += aligned(part[i].len);
	}
	return ret;
}
