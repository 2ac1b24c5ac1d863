/* SPDX-License-Identifier: MIT */
/* Tables in memory of threads: a copy for each GPU whose threads use them, made at the first request. Any thread. */
#ifndef GNV_FILE_UPLOAD_H
#define GNV_FILE_UPLOAD_H

#include <gpunvme/gpu.h>
#include <pthread.h>
#include <stddef.h>

#define GNV_PART_ALIGN 16u

struct gnv_part {
	const void *bytes;
	size_t len;
};

struct gnv_shown;

struct gnv_shows {
	pthread_mutex_t lock; /* protects the fields below */
	struct gnv_shown *first;
};

void gnv_shows_init(struct gnv_shows *shows);
void gnv_shows_end(struct gnv_shows *shows);

/*
 * gnv_shows_get() - get the addresses of @part for the threads of a GPU. @part is the same each time
 * @lane: for each part its address, or 0 if all are empty
* Return: 0; -ENOMEM; errors of the GPU.
 */
int gnv_shows_get(struct gnv_shows *shows, struct gpunvme_gpu *gpu, const struct gnv_part *part, unsigned parts, uint64_t *lane);

#endif
