/* SPDX-License-Identifier: MIT */
/* Streams of CPU threads: a thread runs kernels of the library one after another. gpunvme/run.h has the public functions. */
#ifndef GNV_GPU_CPU_STREAM_H
#define GNV_GPU_CPU_STREAM_H

#include "gpu/gpu.h"

#define GNV_CPU_ARGS_MAX 1024u /* bytes of a kernel's arguments */

/* Run a kernel by threads of this GPU, or by this thread alone where the system has none left: it always runs. */
void gnv_cpu_run(const struct gpunvme_gpu *gpu, enum gnv_kernel kernel, uint32_t threads, void *args);

/* Enqueue a kernel. Return: 0; -EXDEV it is a stream of another GPU; -ECHILD; -ENOMEM. */
int gnv_cpu_stream_put(struct gpunvme_gpu *gpu, struct gpunvme_stream *stream, const struct gnv_launch *launch);

#endif
