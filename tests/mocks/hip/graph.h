/* SPDX-License-Identifier: MIT */
/* Captures of streams, which hip/mock.c asks before each call that a capture forbids. */
#ifndef TESTS_MOCKS_HIP_GRAPH_H
#define TESTS_MOCKS_HIP_GRAPH_H

#include <hip/hip_runtime_api.h>
#include <stdbool.h>

struct gfx_kernel;

hipStreamCaptureStatus capture_status(hipStream_t stream);

/* A call that asks a stream or waits for it: true if it is forbidden, and then captures are lost by it. */
bool capture_ongoing(hipStream_t stream);

/* A call that is allowed in the relaxed mode, such as hipMalloc(): hipSuccess, or the error by which captures are lost. */
hipError_t capture_allows(void);

/* A call that no mode allows: hipSuccess, or @error, by which all captures are lost. */
hipError_t capture_forbids(hipError_t error);

/* A call that would end captures in another mode than the relaxed one, also if there are none now. */
void capture_must_be_relaxed(void);

/* A launch on a stream that is captured. */
hipError_t capture_launch(hipStream_t stream, hipFunction_t function, const struct gfx_kernel *kernel, dim3 grid, dim3 block, void **args);

/* The stream is destroyed. */
void capture_drop(hipStream_t stream);

#endif
