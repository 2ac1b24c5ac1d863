/* SPDX-License-Identifier: MIT */
/* As device_array.h beside it. */
#ifndef GPUNVME_DEVICE_WRITABLE_H
#define GPUNVME_DEVICE_WRITABLE_H

#include <gpunvme/device_array.h>

#define gpunvme_writable_page_get(dq, cache, page, got) gpunvme_page_get(dq, cache, page, got)
#define gpunvme_writable_page_put(dq, cache, got, offset, bytes) ((void)(cache), gpunvme_page_put(dq, got))
#define gpunvme_writable_array_get(dq, cache, index, bytes, value) gpunvme_array_get(dq, cache, index, bytes, value)
#define gpunvme_array_put(dq, cache, index, bytes, value) gpunvme_array_get(dq, cache, index, bytes, value)
#define gpunvme_writable_flush(dq, cache, part, parts) ((void)(dq), (void)(cache), abort(), 0)
#define gnvd_ld64(at) ((void)(at), abort(), 0ull)
#define gnvd_st64(at, value) ((void)(at), (void)(value), abort())

#endif
