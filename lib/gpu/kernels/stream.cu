/* SPDX-License-Identifier: MIT */
/* The kernels of stream.h for NVIDIA GPUs. Their driver compiles them when the first list is enqueued, not when a GPU is opened. */
#include "gpu/kernels/kernels.h"

#include <gpunvme/device.h>

#include "gpu/kernels/entry.h"
#include "gpu/kernels/stream.h"
