/* SPDX-License-Identifier: MIT */
/* As device_array.h beside it. */
#ifndef GPUNVME_DEVICE_SOURCES_H
#define GPUNVME_DEVICE_SOURCES_H

#include <gpunvme/device_array.h>

#define gpunvme_file_page_get(dq, cache, page, got) gpunvme_page_get(dq, cache, page, got)
#define gpunvme_file_array_get(dq, cache, index, bytes, value) gpunvme_array_get(dq, cache, index, bytes, value)
#define gpunvme_volume_array_get(v, cache, index, bytes, value) gpunvme_array_get(v, cache, index, bytes, value)

#endif
