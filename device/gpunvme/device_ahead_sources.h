/* SPDX-License-Identifier: MIT */
/*
 * Prefetch of files and volumes: caches over these that were made with GPUNVME_PAGECACHE_AHEAD. What device_ahead.h says holds here
 * too, and what device_sources.h says of reading. And:
 *
 * - Of a volume each page comes by one queue, which follows from its number, whatever wave asks. Lanes that come together name the
 *   same volume, and all lanes views of the same queues.
 * - A page that takes several commands, because it lies in several extents or on several controllers, is not prefetched: pages as
 *   large as blocks of the file system, and no larger than stripes, are.
 */
#ifndef GPUNVME_DEVICE_AHEAD_SOURCES_H
#define GPUNVME_DEVICE_AHEAD_SOURCES_H

#include <gpunvme/device_ahead.h>
#include <gpunvme/device_sources.h>

/* ---- Files ---- */

/**
 * gpunvme_file_ahead_prefetch() - begin to read a page of a file, if it is not there
 * @dq:    the queue: a view of the namespace that has the file
 * @cache: a cache over a file, with GPUNVME_PAGECACHE_AHEAD
 * @page:  its number, counted from the first of the window
 *
 * Return: as gpunvme_ahead_prefetch() and gpunvme_file_page_get(). 0 also of a page that is a hole, for which there is nothing to
 * read; -GPUNVME_EMSGSIZE also of one that lies in several extents.
 */
GPUNVME_FN int gpunvme_file_ahead_prefetch(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_prefetch(dq, cache, from, page);
}

/**
 * gpunvme_file_ahead_settle() - wait for all pages of a file that are coming
 * Parameters and results as gpunvme_ahead_settle().
 */
GPUNVME_FN int gpunvme_file_ahead_settle(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_settle_all(dq, cache, from);
}

/**
 * gpunvme_file_ahead_page_get() - have a page of a file, and keep it
 * @dq:    as gpunvme_file_ahead_prefetch()
 * @cache: a cache over a file, with GPUNVME_PAGECACHE_AHEAD
 * @page:  its number, counted from the first of the window
 * @p:     set on success, as by gpunvme_file_page_get(); give it back with gpunvme_page_put()
 *
 * Return: as gpunvme_file_page_get() and gpunvme_ahead_page_get().
 */
GPUNVME_FN int gpunvme_file_ahead_page_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page,
					   struct gpunvme_page *p)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_have_ahead(dq, cache, from, page, p);
}

/**
 * gpunvme_file_ahead_array_get() - one element of a file
 * Parameters and results as gpunvme_file_array_get() and gpunvme_file_ahead_page_get().
 */
GPUNVME_FN int gpunvme_file_ahead_array_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
					    uint32_t bytes, void *value)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_ahead_element(dq, cache, from, index, bytes, value);
}

/**
 * gpunvme_file_ahead_array_get_range() - elements of a file that lie side by side, read ahead
 * Parameters and results as gpunvme_file_array_get_range() and gpunvme_ahead_array_get_range().
 */
GPUNVME_FN int gpunvme_file_ahead_array_get_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
						  uint64_t count, uint32_t bytes, void *to)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_ahead_range(dq, cache, from, index, count, bytes, to);
}

/* ---- Volumes ---- */

/**
 * gpunvme_volume_ahead_prefetch() - begin to read a page of a volume, if it is not there
 * @v:     the volume
 * @cache: a cache over that volume, with GPUNVME_PAGECACHE_AHEAD
 * @page:  its number, counted from the first of the window
 *
 * Return: as gpunvme_ahead_prefetch() and gpunvme_volume_page_get(). -GPUNVME_EMSGSIZE also of one that lies on several
 * controllers.
 */
GPUNVME_FN int gpunvme_volume_ahead_prefetch(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t page)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_prefetch(gnvd_first_dq(v), cache, from, page);
}

/**
 * gpunvme_volume_ahead_settle() - wait for all pages of a volume that are coming
 * Parameters and results as gpunvme_ahead_settle(), of one queue after the other, also when one fails: of a controller that is
 * silent a lane waits for one time-out of each of its queues. -GPUNVME_EXDEV the volume has not the controllers and stripes of
 * the cache's.
 */
GPUNVME_FN int gpunvme_volume_ahead_settle(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_settle_all(gnvd_first_dq(v), cache, from);
}

/**
 * gpunvme_volume_ahead_page_get() - have a page of a volume, and keep it
 * @v:     as gpunvme_volume_ahead_prefetch()
 * @cache: a cache over that volume, with GPUNVME_PAGECACHE_AHEAD
 * @page:  its number, counted from the first of the window
 * @p:     set on success, as by gpunvme_volume_page_get(); give it back with gpunvme_volume_page_put()
 *
 * Return: as gpunvme_volume_page_get() and gpunvme_ahead_page_get().
 */
GPUNVME_FN int gpunvme_volume_ahead_page_get(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t page,
					     struct gpunvme_page *p)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_have_ahead(gnvd_first_dq(v), cache, from, page, p);
}

/**
 * gpunvme_volume_ahead_array_get() - one element of a volume
 * Parameters and results as gpunvme_volume_array_get() and gpunvme_volume_ahead_page_get().
 */
GPUNVME_FN int gpunvme_volume_ahead_array_get(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t index,
					      uint32_t bytes, void *value)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_ahead_element(gnvd_first_dq(v), cache, from, index, bytes, value);
}

/**
 * gpunvme_volume_ahead_array_get_range() - elements of a volume that lie side by side, read ahead
 * Parameters and results as gpunvme_volume_array_get_range() and gpunvme_ahead_array_get_range().
 */
GPUNVME_FN int gpunvme_volume_ahead_array_get_range(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache,
						    uint64_t index, uint64_t count, uint32_t bytes, void *to)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_ahead_range(gnvd_first_dq(v), cache, from, index, count, bytes, to);
}

#if defined(__cplusplus)
namespace gpunvme {

/* What an array has its elements from: a file with prefetch ... */
struct from_ahead_file {
	typedef struct gpunvme_dq queue;

	static GNVD_MEMBER int get(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, void *value)
	{
		return gpunvme_file_ahead_array_get(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count, uint32_t bytes,
				     void *to)
	{
		return gpunvme_file_ahead_array_get_range(q, cache, index, count, bytes, to);
	}

	static GNVD_MEMBER uint64_t size(const struct gpunvme_dpages *cache)
	{
		const struct gnvd_source from = gnvd_from_file(cache);

		return cache->magic == GPUNVME_DPAGES_FILE_AHEAD_MAGIC ? gnvd_window_bytes(cache, from) : 0; /* no element is to be had */
	}
};

/* ... or a volume. */
struct from_ahead_volume {
	typedef struct gpunvme_dvol queue;

	static GNVD_MEMBER int get(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, void *value)
	{
		return gpunvme_volume_ahead_array_get(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count, uint32_t bytes,
				     void *to)
	{
		return gpunvme_volume_ahead_array_get_range(q, cache, index, count, bytes, to);
	}

	static GNVD_MEMBER uint64_t size(const struct gpunvme_dpages *cache)
	{
		return from_volume::size(cache);
	}
};

/* As gpunvme::array, whose first argument is the queue, or the volume. */
template <typename T> using ahead_file_array = array<T, from_ahead_file>;
template <typename T> using ahead_volume_array = array<T, from_ahead_volume>;

}
#endif

#endif
