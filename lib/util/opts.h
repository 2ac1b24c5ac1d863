/* SPDX-License-Identifier: MIT */
/*
 * Structures that begin with their own size, and arrays that come with their stride. Callers may be compiled with another version
 * of the headers.
 *
 * A structure only ever grows at its end. A smaller structure is an older one: the fields that it lacks are 0, and nothing is
 * written after its end. A larger structure is a newer one: an option that this library does not know must be 0, and a result is 0
 * there.
 */
#ifndef GNV_UTIL_OPTS_H
#define GNV_UTIL_OPTS_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "util/log.h"

#define GNV_SIZE_MAX 65536u /* no structure is so large: this size was never set */

/* Return: 0; -EINVAL no version of the structure has this size: its fields are words, and there is one after the size. */
static inline int gnv_size_check(size_t size, const char *what)
{
	if (size > sizeof(size) && size <= GNV_SIZE_MAX && !(size % sizeof(uint32_t)))
		return 0;
	gnv_fail(-EINVAL, "%s.size is %zu. Set it to the size of the structure before the call", what, size);
	return -EINVAL;
}

static inline int gnv_sized_in(void *known, size_t known_size, const void *from, const char *what)
{
	size_t size, i;
	int ret;

	if (!from)
		return 0;
	memcpy(&size, from, sizeof(size));
	ret = gnv_size_check(size, what);
	if (ret)
		return ret;
	for (i = known_size; i < size; i++)
		if (((const unsigned char *)from)[i])
			return gnv_fail(-EINVAL, "%s sets an option that this version of the library does not know. Update the "
						 "library", what);
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

/*
 * A list of the receiver's: `room` elements of `stride` bytes each. All functions that list something fill one. Their parameter
 * *count is the room when they are called, and afterwards how many elements there are, which may be more.
 */
struct gnv_list {
	void *to;
	size_t stride;
	uint32_t room, count; /* elements: the room for them, and how many there are */
};

/* Begin to fill a list of struct @what. Return: 0; -EINVAL no count, no list where there is room, or no version's stride. */
static inline int gnv_list_begin(struct gnv_list *list, void *to, const uint32_t *count, size_t stride, const char *what)
{
	*list = (struct gnv_list){ to, stride, count ? *count : 0, 0 };
	if (!count || (*count && !to))
		return gnv_fail(-EINVAL, "a list of struct %s and its count must not be NULL", what);
	return gnv_size_check(stride, what);
}

/* One more element, which is stored if there is room. */
static inline void gnv_list_add(struct gnv_list *list, const void *known, size_t known_size)
{
	if (list->count < list->room)
		gnv_sized_put((char *)list->to + list->count * list->stride, list->stride, known, known_size);
	list->count++;
}

/* Copy @n elements to an array with room for *@count. Then *@count is how many there are. */
static inline void gnv_array_put(void *to, uint32_t *count, size_t stride, const void *known, size_t known_size, uint32_t n)
{
	struct gnv_list all = { to, stride, *count, 0 };

	while (all.count < n)
		gnv_list_add(&all, (const char *)known + all.count * known_size, known_size);
	*count = n;
}

static inline int gnv_sized_out(void *to, const void *known, size_t known_size, const char *what)
{
	size_t size;
	int ret;

	if (!to)
		return gnv_fail(-EINVAL, "%s is NULL", what);
	memcpy(&size, to, sizeof(size));
	ret = gnv_size_check(size, what);
	if (ret)
		return ret;
	gnv_sized_put(to, size, known, known_size);
	memcpy(to, &size, sizeof(size));
	return 0;
}

/* gnv_opts_copy() - the caller's options @from, which may be NULL, over the defaults in *@known. Return: 0, -EINVAL. */
#define gnv_opts_copy(known, from, type) \
	gnv_sized_in(1 ? (known) : (struct type *)0, sizeof(struct type), from, #type)

/* gnv_info_copy() - the result *@known to the caller's @to, which keeps its size. Return: 0, -EINVAL. */
#define gnv_info_copy(to, known, type) \
	gnv_sized_out(to, 1 ? (known) : (struct type *)0, sizeof(struct type), #type)

/* gnv_stride_check() - of an array of the caller's. Return: 0, -EINVAL. */
#define gnv_stride_check(stride, type) gnv_size_check(stride, #type)

#endif
