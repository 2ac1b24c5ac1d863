/* SPDX-License-Identifier: MIT */
/*
 * Streams of the threads under test: of CPU threads, of CUDA by the driver that GPUNVME_CUDA_LIBRARY names, or of HIP by the runtime
 * that GPUNVME_HIP_LIBRARY names, as a program uses them.
 * Needs cmocka.h and what that needs.
 */
#ifndef TESTS_STREAMS_H
#define TESTS_STREAMS_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "common/good.h"

struct streams {
	struct gpunvme_gpu *gpu;
	void *driver, *context; /* NULL: CPU threads; HIP has no context */
	int (*create)(void **stream, unsigned flags);
	int (*wait)(void *stream);
	int (*destroy)(void *stream);
};

static inline void streams_symbol(void *driver, const char *name, void *function)
{
	void *symbol = dlsym(driver, name);

	assert_non_null(symbol);
	memcpy(function, &symbol, sizeof(symbol));
}

static inline void streams_begin_hip(struct streams *s)
{
	const char *library = getenv("GPUNVME_HIP_LIBRARY");

	s->driver = dlopen(library ? library : "libamdhip64.so", RTLD_NOW);
	assert_non_null(s->driver);
	streams_symbol(s->driver, "hipStreamCreateWithFlags", &s->create);
	streams_symbol(s->driver, "hipStreamSynchronize", &s->wait);
	streams_symbol(s->driver, "hipStreamDestroy", &s->destroy);
}

/* The GPU's primary context becomes that of this thread, as cudaSetDevice() does. */
static inline void streams_begin(struct streams *s, struct gpunvme_gpu *gpu)
{
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	const char *library = getenv("GPUNVME_CUDA_LIBRARY");
	int (*device)(int *device, int index), (*retain)(void **context, int device), (*push)(void *context), n;

	memset(s, 0, sizeof(*s));
	s->gpu = gpu;
	good(gpunvme_gpu_get_info(gpu, &info));
	if (info.kind == GPUNVME_GPU_HSA)
		streams_begin_hip(s);
	if (info.kind != GPUNVME_GPU_CUDA)
		return;
	s->driver = dlopen(library ? library : "libcuda.so.1", RTLD_NOW);
	assert_non_null(s->driver);
	streams_symbol(s->driver, "cuStreamCreate", &s->create);
	streams_symbol(s->driver, "cuStreamSynchronize", &s->wait);
	streams_symbol(s->driver, "cuStreamDestroy_v2", &s->destroy);
	streams_symbol(s->driver, "cuDeviceGet", &device);
	streams_symbol(s->driver, "cuDevicePrimaryCtxRetain", &retain);
	streams_symbol(s->driver, "cuCtxPushCurrent_v2", &push);
	assert_int_equal(device(&n, 0), 0);
	assert_int_equal(retain(&s->context, n), 0);
	assert_int_equal(push(s->context), 0);
}

static inline void streams_end(struct streams *s)
{
	int (*device)(int *device, int index), (*release)(int device), (*pop)(void **context), n;

	if (!s->context)
		return;
	streams_symbol(s->driver, "cuDeviceGet", &device);
	streams_symbol(s->driver, "cuDevicePrimaryCtxRelease_v2", &release);
	streams_symbol(s->driver, "cuCtxPopCurrent_v2", &pop);
	assert_int_equal(pop(&s->context), 0);
	assert_int_equal(device(&n, 0), 0);
	release(n);
	dlclose(s->driver);
}

static inline void *streams_make(struct streams *s)
{
	struct gpunvme_stream *stream = NULL;
	void *theirs = NULL;

	if (s->driver) {
		assert_int_equal(s->create(&theirs, 1), 0); /* CU_STREAM_NON_BLOCKING, hipStreamNonBlocking */
		return theirs;
	}
	good(gpunvme_stream_create(s->gpu, &stream));
	return stream;
}

static inline void streams_wait(struct streams *s, void *stream)
{
	if (s->driver)
		assert_int_equal(s->wait(stream), 0);
	else if (stream)
		good(gpunvme_stream_wait(stream));
}

static inline void streams_drop(struct streams *s, void *stream)
{
	if (s->driver)
		s->destroy(stream);
	else
		gpunvme_stream_destroy(stream);
}

#endif
