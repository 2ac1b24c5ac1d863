/* SPDX-License-Identifier: MIT */
/*
 * Structures that begin with their own size, and arrays that come with their stride: how callers that were compiled with another
 * version of the headers are served.
 *
 * A structure only ever grows at its end. What a caller of an older one does not set is 0, and what it does not know is not
 * written. A caller of a newer one may set nothing that this library does not know; of a result it reads 0 there.
 */
#ifndef GNV_UTIL_OPTS_H
#define GNV_UTIL_OPTS_H

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "util/log.h"

/* The size of each structure in the first release that had it, which is the smallest that a caller can have. Never changed. */
enum {
	GNV_FIRST_gpunvme_batch = 24,
	GNV_FIRST_gpunvme_cache_info = 64,
	GNV_FIRST_gpunvme_check = 532,
	GNV_FIRST_gpunvme_copy = 56,
	GNV_FIRST_gpunvme_dev_info = 440,
	GNV_FIRST_gpunvme_dev_opts = 48,
	GNV_FIRST_gpunvme_dev_status = 24,
	GNV_FIRST_gpunvme_event = 40,
	GNV_FIRST_gpunvme_fault = 224,
	GNV_FIRST_gpunvme_file_info = 88,
	GNV_FIRST_gpunvme_file_opts = 24,
	GNV_FIRST_gpunvme_files_entry = 48,
	GNV_FIRST_gpunvme_files_info = 80,
	GNV_FIRST_gpunvme_files_opts = 40,
	GNV_FIRST_gpunvme_gpu_entry = 136,
	GNV_FIRST_gpunvme_gpu_info = 88,
	GNV_FIRST_gpunvme_gpu_opts = 24,
	GNV_FIRST_gpunvme_litmus = 1024,
	GNV_FIRST_gpunvme_litmus_opts = 32,
	GNV_FIRST_gpunvme_litmus_result = 200,
	GNV_FIRST_gpunvme_load = 56,
	GNV_FIRST_gpunvme_mem_opts = 16,
	GNV_FIRST_gpunvme_ns_info = 56,
	GNV_FIRST_gpunvme_pagecache_info = 72,
	GNV_FIRST_gpunvme_pagecache_opts = 40,
	GNV_FIRST_gpunvme_pci_info = 320,
	GNV_FIRST_gpunvme_pci_path = 16,
	GNV_FIRST_gpunvme_peer_opts = 24,
	GNV_FIRST_gpunvme_qp_info = 96,
	GNV_FIRST_gpunvme_qp_latency = 3984,
	GNV_FIRST_gpunvme_qp_opts = 24,
	GNV_FIRST_gpunvme_server_opts = 24,
	GNV_FIRST_gpunvme_ublk_info = 80,
	GNV_FIRST_gpunvme_ublk_opts = 32,
	GNV_FIRST_gpunvme_view = 32,
	GNV_FIRST_gpunvme_volume_info = 48,
	GNV_FIRST_gpunvme_volume_opts = 32,
};

#define GNV_SIZE_MAX 65536u /* no structure is so large: this size was never set */

/* Return: 0; -EINVAL no version of the structure has this size. */
static inline int gnv_size_check(size_t size, size_t least, const char *what)
{
	if (size >= least && size <= GNV_SIZE_MAX)
		return 0;
	gnv_fail(-EINVAL, "%s.size is %zu, and was never less than %zu; set it to the size of the structure before the call", what, size,
		 least);
	return -EINVAL;
}

static inline int gnv_sized_in(void *known, size_t known_size, size_t least, const void *from, const char *what)
{
	size_t size, i;
	int ret;

	if (!from)
		return 0;
	memcpy(&size, from, sizeof(size));
	ret = gnv_size_check(size, least, what);
	if (ret)
		return ret;
	for (i = known_size; i < size; i++)
		if (((const unsigned char *)from)[i])
			return gnv_fail(-EINVAL, "%s sets an option that this version of the library does not know; update it", what);
	memcpy((char *)known + sizeof(size), (const char *)from + sizeof(size),
	       (size < known_size ? size : known_size) - sizeof(size));
	return 0;
}

/* One structure or element, of which the receiver knows `size` bytes. */
static inline void gnv_sized_put(void *to, size_t size, const void *known, size_t known_size)
{
	memcpy(to, known, size < known_size ? size : known_size);
	if (size > known_size)
		memset((char *)to + known_size, 0, size - known_size);
}

/* @n elements to an array of the receiver's, as many as *@count has room for; there it says how many they are. */
static inline void gnv_array_put(void *to, unsigned *count, size_t stride, const void *known, size_t known_size, unsigned n)
{
	unsigned i;

	if (*count > n)
		*count = n;
	for (i = 0; i < *count; i++)
		gnv_sized_put((char *)to + i * stride, stride, (const char *)known + i * known_size, known_size);
}

static inline int gnv_sized_out(void *to, const void *known, size_t known_size, size_t least, const char *what)
{
	size_t size;
	int ret;

	if (!to)
		return gnv_fail(-EINVAL, "%s is NULL", what);
	memcpy(&size, to, sizeof(size));
	ret = gnv_size_check(size, least, what);
	if (ret)
		return ret;
	gnv_sized_put(to, size, known, known_size);
	memcpy(to, &size, sizeof(size));
	return 0;
}

/* gnv_opts_copy() - the caller's options @from, which may be NULL, over the defaults in *@known. Return: 0, -EINVAL. */
#define gnv_opts_copy(known, from, type) \
	gnv_sized_in(1 ? (known) : (struct type *)0, sizeof(struct type), GNV_FIRST_##type, from, #type)

/* gnv_info_copy() - the result *@known to the caller's @to, which keeps its size. Return: 0, -EINVAL. */
#define gnv_info_copy(to, known, type) \
	gnv_sized_out(to, 1 ? (known) : (struct type *)0, sizeof(struct type), GNV_FIRST_##type, #type)

/* gnv_stride_check() - of an array of the caller's. Return: 0, -EINVAL. */
#define gnv_stride_check(stride, type) gnv_size_check(stride, GNV_FIRST_##type, #type)

#endif
