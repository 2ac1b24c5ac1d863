/* SPDX-License-Identifier: MIT */
/* NVIDIA GPUs, on examples/cuda/session.h. Only front.h includes this. */
#ifndef GPUNVME_EXAMPLES_FRONT_CUDA_H
#define GPUNVME_EXAMPLES_FRONT_CUDA_H

#include "../cuda/session.h"

#define FRONT_API(name) cuda##name
#define FRONT_HOST_ALLOC(at, bytes) cudaMallocHost(at, bytes)
#define FRONT_WIDTH 32u
#define FRONT_NAME "cuda"

#include "gpu.h"

static inline uint32_t front_width()
{
	return FRONT_WIDTH;
}

static inline void front_open(struct front *f, const char *uri, uint32_t flags, size_t bytes)
{
	front_session.open(uri, flags, FRONT_QUEUES);
	front_session.buffer(bytes);
	f->dbuf = front_session.dbuf;
	f->queues = front_session.queues();
	front_queues(f, front_session.dq[0]);
}

static inline void front_close(const struct front *)
{
	front_session.close();
}

#endif
