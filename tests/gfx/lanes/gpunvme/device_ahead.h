/* SPDX-License-Identifier: MIT */
/* As device_array.h beside it. */
#ifndef GPUNVME_DEVICE_AHEAD_H
#define GPUNVME_DEVICE_AHEAD_H

#include <gpunvme/device_array.h>

#define gpunvme_ahead_prefetch(dq, cache, page) ((void)(dq), (void)(cache), (void)(page), abort(), 0)
#define gpunvme_ahead_settle(dq, cache) ((void)(dq), (void)(cache), abort(), 0)
#define gpunvme_ahead_page_get(dq, cache, page, got) gpunvme_page_get(dq, cache, page, got)
#define gpunvme_ahead_array_get(dq, cache, index, bytes, value) gpunvme_array_get(dq, cache, index, bytes, value)

#endif
