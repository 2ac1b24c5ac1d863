/* SPDX-License-Identifier: MIT */
/* As device.h beside it. Kernels alone call these; they are compiled for the host only to have an address. */
#ifndef GPUNVME_DEVICE_ARRAY_H
#define GPUNVME_DEVICE_ARRAY_H

#include <gpunvme/device.h>

#define gpunvme_page_get(dq, cache, page, got) ((void)(dq), (void)(cache), (void)(page), (void)(got), abort(), 0)
#define gpunvme_page_put(dq, got) ((void)(dq), (void)(got), abort(), 0)
#define gpunvme_array_get(dq, cache, index, bytes, value) ((void)(dq), (void)(cache), (void)(index), (void)(value), abort(), 0)

#endif
