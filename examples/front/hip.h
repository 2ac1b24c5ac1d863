/* SPDX-License-Identifier: MIT */
/* AMD GPUs, on examples/hip/session.h. Only front.h includes this. */
#ifndef GPUNVME_EXAMPLES_FRONT_HIP_H
#define GPUNVME_EXAMPLES_FRONT_HIP_H

#include "../hip/session.h"

#define FRONT_API(name) hip##name
#define FRONT_HOST_ALLOC(at, bytes) hipHostMalloc(at, bytes, hipHostMallocDefault)
#if defined(__GFX9__)
#define FRONT_WIDTH 64u
#else
#define FRONT_WIDTH 32u
#endif

#define FRONT_NAME "hip"

#include "gpu.h"

static buffer front_buffer;

static inline uint32_t front_width()
{
	int device, width;

	check(hipGetDevice(&device), "hipGetDevice");
	check(hipDeviceGetAttribute(&width, hipDeviceAttributeWarpSize, device), "hipDeviceGetAttribute");
	return (uint32_t)width;
}

static inline void front_open(struct front *f, const char *uri, uint32_t flags, size_t bytes)
{
	front_session.open(uri, flags, FRONT_QUEUES);
	front_buffer.open(front_session.gpu, front_session.dev, front_session.queue[0], front_session.placement, bytes);
	f->dbuf = front_buffer.dbuf;
	f->queues = front_session.queues;
	front_queues(f, front_session.view[0]);
}

static inline void front_close(const struct front *)
{
	front_buffer.close();
	front_session.close();
}

#endif
