/* SPDX-License-Identifier: MIT */
/*
 * Structures that begin with their own size. A caller that was compiled with a newer header may pass a larger one; what this
 * library does not know must be zero in options, and is left untouched in results.
 */
#ifndef GNV_UTIL_OPTS_H
#define GNV_UTIL_OPTS_H

#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "util/log.h"

/* Copy the caller's options, which may be NULL, over the defaults in `known`. Return: 0, -EINVAL. */
static inline int gnv_opts_copy(void *known, size_t known_size, const void *from, const char *what)
{
	size_t size, i;

	if (!from)
		return 0;
	memcpy(&size, from, sizeof(size));
	if (size < known_size)
		return gnv_fail(-EINVAL, "%s.size is %zu, less than %zu; initialise the options with their _INIT macro", what, size,
				known_size);
	for (i = known_size; i < size; i++)
		if (((const unsigned char *)from)[i])
			return gnv_fail(-EINVAL, "%s sets an option that this version of the library does not know; update it", what);
	memcpy(known, from, known_size);
	return 0;
}

/* Copy a result of `known_size` bytes out, keeping the caller's size. Return: 0, -EINVAL. */
static inline int gnv_info_copy(void *to, const void *known, size_t known_size, const char *what)
{
	size_t size;

	if (!to)
		return gnv_fail(-EINVAL, "%s is NULL", what);
	memcpy(&size, to, sizeof(size));
	if (size < known_size)
		return gnv_fail(-EINVAL, "%s.size is %zu, less than %zu; set it to the size of the structure before the call", what, size,
				known_size);
	memcpy((char *)to + sizeof(size), (const char *)known + sizeof(size), known_size - sizeof(size));
	return 0;
}

#endif
