/* SPDX-License-Identifier: MIT */
/*
 * Caches over files and volumes, from a kernel: pages, elements and ranges, as device_pagecache.h and device_array.h have them of a
 * namespace. A cache is of one kind (gpunvme_pagecache_create in pagecache.h), and the calls for another refuse it.
 *
 * - Of a file element 0 is its first byte, or that of the window. Holes, what was allocated and never written, and what a page has
 *   behind the end of the file are zeroes. An element that does not end within the file is refused. What somebody else does to the
 *   file after it was opened, such as making it shorter, is not seen (file.h).
 * - Of a volume a page may lie on several controllers: its lane reads one part after the other, and what fails first is the page's
 *   failure. Lanes of a wave read together what lies on one controller.
 */
#ifndef GPUNVME_DEVICE_SOURCES_H
#define GPUNVME_DEVICE_SOURCES_H

#include <gpunvme/device_array.h>

/* ---- Files ---- */

/* Asked before its bytes are: another cache has no file. */
GNVD_FN struct gnvd_source gnvd_from_file(const struct gpunvme_dpages *cache)
{
	struct gnvd_source from = { GNVD_OF_FILE, gnvd_file_of(cache), NULL };

	return from;
}

/**
 * gpunvme_file_page_get() - have a page of a file, and keep it
 * @dq:    the queue by which it is read if it is not there: a view of the namespace that has the file
 * @cache: a cache over a file
 * @page:  its number, counted from the first of the window
 * @p:     set on success: its bytes are at p->base, for this lane, until gpunvme_page_put(). What lies behind the window's last
 *         block in its last page is not defined where the file goes on there
 *
 * Return: as gpunvme_page_get(); -GPUNVME_EXDEV the queue is of another namespace or device than the file; -GPUNVME_ERANGE the page
 * lies behind the end of the file, or the queue's view has not all of its blocks; -GPUNVME_EPROTONOSUPPORT the cache is over no
 * file.
 */
GPUNVME_FN int gpunvme_file_page_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page,
				     struct gpunvme_page *p)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_have_page(dq, cache, from, GNVD_SITE_FILE_PAGE, page, p);
}

/**
 * gpunvme_file_array_get() - one element of a file
 * @dq:    as gpunvme_file_page_get()
 * @cache: a cache over a file; element 0 is at the first byte of its window
 * @index: number of the element
 * @bytes: of an element: 4, 8 or 16; a constant
 * @value: the element, on success; a variable of the lane's
 *
 * Return: as gpunvme_array_get() and gpunvme_file_page_get(); -GPUNVME_ERANGE it does not end within the file, or the window.
 */
GPUNVME_FN int gpunvme_file_array_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
				      uint32_t bytes, void *value)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_array_get(dq, cache, from, GNVD_SITE_FILE_ARRAY, index, bytes, value);
}

/**
 * gpunvme_file_array_get_range() - elements of a file that lie side by side
 * @dq:    as gpunvme_file_page_get()
 * @cache: a cache over a file
 * @index: number of the first element
 * @count: how many; 0 does nothing
 * @bytes: of an element: 4, 8 or 16
 * @to:    where they go: global memory of the lanes, no variable of a lane's; a multiple of 4
 *
 * Return: as gpunvme_file_array_get(); with a failure some of the elements may have been stored.
 */
GPUNVME_FN int gpunvme_file_array_get_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
					    uint64_t count, uint32_t bytes, void *to)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_array_get_range(dq, cache, from, GNVD_SITE_FILE_ARRAY, index, count, bytes, to);
}

/* ---- Volumes ---- */

/* By which lanes of a wave come together: the queue of the first controller that the wave uses. */
GNVD_FN const struct gpunvme_dq *gnvd_first_dq(const struct gpunvme_dvol *v)
{
	return gnvd_member_dq(v, 0, gnvd_wave_number());
}

/**
 * gpunvme_volume_page_get() - have a page of a volume, and keep it
 * @v:     the volume by whose queues it is read if it is not there
 * @cache: a cache over that volume
 * @page:  its number, counted from the first of the cache's window
 * @p:     set on success: its bytes are at p->base, for this lane, until gpunvme_volume_page_put(). What lies behind the window's
 *         last block in its last page is not defined
 *
 * Return: as gpunvme_page_get(); -GPUNVME_EXDEV the volume has not the controllers and stripes of the cache's; -GPUNVME_ERANGE
 * there is no such page, or the volume's view has not its blocks; -GPUNVME_EPROTONOSUPPORT the cache is over no volume.
 */
GPUNVME_FN int gpunvme_volume_page_get(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t page,
				       struct gpunvme_page *p)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_have_page(gnvd_first_dq(v), cache, from, GNVD_SITE_VOLUME_PAGE, page, p);
}

/**
 * gpunvme_volume_page_put() - give a page of a volume back
 * @v: the volume
 * @p: the page; consumed, this lane reads it no more
 *
 * Return: as gpunvme_page_put(); -GPUNVME_EPROTONOSUPPORT @v is of another version than this header.
 */
GPUNVME_FN int gpunvme_volume_page_put(const struct gpunvme_dvol *v, struct gpunvme_page *p)
{
	int ret = gnvd_check_volume(v);

	return ret ? ret : gpunvme_page_put(gnvd_first_dq(v), p);
}

/**
 * gpunvme_volume_array_get() - one element of a volume
 * @v:     as gpunvme_volume_page_get()
 * @cache: a cache over that volume; element 0 is at the first byte of its window
 * @index: number of the element
 * @bytes: of an element: 4, 8 or 16; a constant
 * @value: the element, on success; a variable of the lane's
 *
 * Return: as gpunvme_array_get() and gpunvme_volume_page_get().
 */
GPUNVME_FN int gpunvme_volume_array_get(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t index,
					uint32_t bytes, void *value)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_array_get(gnvd_first_dq(v), cache, from, GNVD_SITE_VOLUME_ARRAY, index, bytes, value);
}

/**
 * gpunvme_volume_array_get_range() - elements of a volume that lie side by side
 * @v:     as gpunvme_volume_page_get()
 * @cache: a cache over that volume
 * @index: number of the first element
 * @count: how many; 0 does nothing
 * @bytes: of an element: 4, 8 or 16
 * @to:    where they go: global memory of the lanes, no variable of a lane's; a multiple of 4
 *
 * Return: as gpunvme_volume_array_get(); with a failure some of the elements may have been stored.
 */
GPUNVME_FN int gpunvme_volume_array_get_range(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t index,
					      uint64_t count, uint32_t bytes, void *to)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_array_get_range(gnvd_first_dq(v), cache, from, GNVD_SITE_VOLUME_ARRAY, index, count, bytes, to);
}

#if defined(__cplusplus)
namespace gpunvme {

/* What an array has its elements from: a file ... */
struct from_file {
	typedef struct gpunvme_dq queue;

	static GNVD_MEMBER int get(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, void *value)
	{
		return gpunvme_file_array_get(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count, uint32_t bytes,
				     void *to)
	{
		return gpunvme_file_array_get_range(q, cache, index, count, bytes, to);
	}

	static GNVD_MEMBER uint64_t size(const struct gpunvme_dpages *cache)
	{
		const struct gnvd_source from = gnvd_from_file(cache);

		return cache->magic == GPUNVME_DPAGES_FILE_MAGIC ? gnvd_window_bytes(cache, from) : 0; /* no element is to be had */
	}
};

/* ... or a volume. */
struct from_volume {
	typedef struct gpunvme_dvol queue;

	static GNVD_MEMBER int get(const queue *v, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, void *value)
	{
		return gpunvme_volume_array_get(v, cache, index, bytes, value);
	}

	static GNVD_MEMBER int range(const queue *v, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count, uint32_t bytes,
				     void *to)
	{
		return gpunvme_volume_array_get_range(v, cache, index, count, bytes, to);
	}

	static GNVD_MEMBER uint64_t size(const struct gpunvme_dpages *cache)
	{
		return gnvd_window_bytes(cache, gnvd_no_source());
	}
};

/* As gpunvme::array, whose first argument is the queue, or the volume. */
template <typename T> using file_array = array<T, from_file>;
template <typename T> using volume_array = array<T, from_volume>;

}
#endif

#endif
