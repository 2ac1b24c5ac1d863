/* SPDX-License-Identifier: MIT */
/*
 * Pages and elements of files and volumes that lanes change: caches that were made with GPUNVME_PAGECACHE_WRITE_BACK. What
 * device_writable.h says holds here too, and what device_sources.h says of reading. And:
 *
 * - Of a file is changed what it has blocks for, in place: its size, extents and times stay. A change of a hole, or of what was
 *   allocated and never written, is -GPUNVME_EOPNOTSUPP, and one that does not end within the file is -GPUNVME_ERANGE; they read as
 *   zeroes as before. What lies behind the end of the file in its last block is written as zeroes.
 * - Kernels may write to a file that was opened with GPUNVME_FILE_WRITE, or leased (gpunvme_file_lease() in file.h), when the cache
 *   was made: others have no such cache. What was changed is to be flushed before the lease is given back.
 * - A page of several parts is written one part after the other: what fails first is told, and all of it remains changed.
 */
#ifndef GPUNVME_DEVICE_WRITABLE_SOURCES_H
#define GPUNVME_DEVICE_WRITABLE_SOURCES_H

#include <gpunvme/device_sources.h>
#include <gpunvme/device_writable.h>

/* ---- Files ---- */

/**
 * gpunvme_file_writable_page_get() - have a page of a file that may be changed, and keep it
 * @dq:    the queue by which it is read if it is not there, and by which others are written to make room: a view of the namespace
 *         that has the file, which may write
 * @cache: a cache over a file, made with GPUNVME_PAGECACHE_WRITE_BACK
 * @page:  its number, counted from the first of the window
 * @p:     set on success: its bytes are at p->base, for this lane to read and to store to, until gpunvme_file_writable_page_put()
 *
 * Return: as gpunvme_file_page_get() and gpunvme_writable_page_get().
 */
GPUNVME_FN int gpunvme_file_writable_page_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t page,
					      struct gpunvme_page *p)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_have_writable(dq, cache, from, page, p);
}

/**
 * gpunvme_file_writable_page_put() - give a page of a file back, changed or not
 * Parameters and results as gpunvme_writable_page_put(). And -GPUNVME_ERANGE also behind the end of the file; -GPUNVME_EOPNOTSUPP
 * the file has no blocks for some of these bytes, or they were never written: the page was not given back. Put it with @bytes 0, or
 * what it has blocks for; what was stored elsewhere goes with the page.
 */
GPUNVME_FN int gpunvme_file_writable_page_put(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache,
					      struct gpunvme_page *p, uint32_t offset, uint32_t bytes)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_give_back(dq, cache, from, p, offset, bytes);
}

/**
 * gpunvme_file_writable_array_get() - one element of a file whose elements may be changed
 * Parameters and results as gpunvme_file_array_get(), and -GPUNVME_EROFS; why no page could be written to make room.
 */
GPUNVME_FN int gpunvme_file_writable_array_get(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
					       uint32_t bytes, void *value)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_load_element(dq, cache, from, index, bytes, value);
}

/**
 * gpunvme_file_writable_array_get_range() - elements of a file that lie side by side
 * Parameters and results as gpunvme_file_array_get_range(), and those of gpunvme_file_writable_array_get().
 */
GPUNVME_FN int gpunvme_file_writable_array_get_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache,
						     uint64_t index, uint64_t count, uint32_t bytes, void *to)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_move_range(dq, cache, from, index, count, bytes, (uint64_t)(uintptr_t)to, 0);
}

/**
 * gpunvme_file_array_put() - change one element of a file
 * @dq:    as gpunvme_file_writable_page_get()
 * @cache: a cache over a file, made with GPUNVME_PAGECACHE_WRITE_BACK; element 0 is at the first byte of its window
 * @index: number of the element
 * @bytes: of an element: 4, 8 or 16; a constant
 * @value: the element; a variable of the lane's
 *
 * Return: as gpunvme_array_put(); -GPUNVME_ERANGE it does not end within the file, or the window; -GPUNVME_EOPNOTSUPP the file has
 * no blocks there, or they were never written, so that only its file system could. With a failure nothing was changed.
 */
GPUNVME_FN int gpunvme_file_array_put(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
				      uint32_t bytes, const void *value)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_store_element(dq, cache, from, index, bytes, value);
}

/**
 * gpunvme_file_array_put_range() - change elements of a file that lie side by side
 * @dq:     as gpunvme_file_writable_page_get()
 * @cache:  as gpunvme_file_array_put()
 * @index:  number of the first element
 * @count:  how many; 0 does nothing
 * @bytes:  of an element: 4, 8 or 16
 * @memory: where they are: global memory of the lanes, no variable of a lane's; a multiple of 4
 *
 * Return: as gpunvme_file_array_put(), where -GPUNVME_ERANGE and -GPUNVME_EOPNOTSUPP are of any of them, and nothing was changed;
 * with another failure some may have been.
 */
GPUNVME_FN int gpunvme_file_array_put_range(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint64_t index,
					    uint64_t count, uint32_t bytes, const void *memory)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_move_range(dq, cache, from, index, count, bytes, (uint64_t)(uintptr_t)memory, 1);
}

/**
 * gpunvme_file_writable_flush() - write what was changed of a file, of a share of the cache, and wait
 * Parameters and results as gpunvme_writable_flush(). A gpunvme_flush() after it makes it durable.
 */
GPUNVME_FN int gpunvme_file_writable_flush(const struct gpunvme_dq *dq, const struct gpunvme_dpages *cache, uint32_t part,
					   uint32_t parts)
{
	struct gnvd_source from = gnvd_from_file(cache);

	return gnvd_flush_share(dq, cache, from, part, parts);
}

/* ---- Volumes ---- */

/**
 * gpunvme_volume_writable_page_get() - have a page of a volume that may be changed, and keep it
 * @v:     the volume by whose queues it is read if it is not there, and others are written to make room: a view that may write
 * @cache: a cache over that volume, made with GPUNVME_PAGECACHE_WRITE_BACK
 * @page:  its number, counted from the first of the window
 * @p:     set on success: its bytes are at p->base, for this lane to read and to store to, until gpunvme_volume_writable_page_put()
 *
 * Return: as gpunvme_volume_page_get() and gpunvme_writable_page_get().
 */
GPUNVME_FN int gpunvme_volume_writable_page_get(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t page,
						struct gpunvme_page *p)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_have_writable(gnvd_first_dq(v), cache, from, page, p);
}

/**
 * gpunvme_volume_writable_page_put() - give a page of a volume back, changed or not
 * Parameters and results as gpunvme_writable_page_put().
 */
GPUNVME_FN int gpunvme_volume_writable_page_put(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache,
						struct gpunvme_page *p, uint32_t offset, uint32_t bytes)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_give_back(gnvd_first_dq(v), cache, from, p, offset, bytes);
}

/**
 * gpunvme_volume_writable_array_get() - one element of a volume whose elements may be changed
 * Parameters and results as gpunvme_volume_array_get(), and -GPUNVME_EROFS; why no page could be written to make room.
 */
GPUNVME_FN int gpunvme_volume_writable_array_get(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t index,
						 uint32_t bytes, void *value)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_load_element(gnvd_first_dq(v), cache, from, index, bytes, value);
}

/**
 * gpunvme_volume_writable_array_get_range() - elements of a volume that lie side by side
 * Parameters and results as gpunvme_volume_array_get_range(), and those of gpunvme_volume_writable_array_get().
 */
GPUNVME_FN int gpunvme_volume_writable_array_get_range(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache,
						       uint64_t index, uint64_t count, uint32_t bytes, void *to)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_move_range(gnvd_first_dq(v), cache, from, index, count, bytes, (uint64_t)(uintptr_t)to, 0);
}

/**
 * gpunvme_volume_array_put() - change one element of a volume
 * @v:     as gpunvme_volume_writable_page_get()
 * @cache: a cache over that volume, made with GPUNVME_PAGECACHE_WRITE_BACK; element 0 is at the first byte of its window
 * @index: number of the element
 * @bytes: of an element: 4, 8 or 16; a constant
 * @value: the element; a variable of the lane's
 *
 * Return: as gpunvme_array_put() and gpunvme_volume_writable_page_get().
 */
GPUNVME_FN int gpunvme_volume_array_put(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t index,
					uint32_t bytes, const void *value)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_store_element(gnvd_first_dq(v), cache, from, index, bytes, value);
}

/**
 * gpunvme_volume_array_put_range() - change elements of a volume that lie side by side
 * @v:      as gpunvme_volume_writable_page_get()
 * @cache:  as gpunvme_volume_array_put()
 * @index:  number of the first element
 * @count:  how many; 0 does nothing
 * @bytes:  of an element: 4, 8 or 16
 * @memory: where they are: global memory of the lanes, no variable of a lane's; a multiple of 4
 *
 * Return: as gpunvme_volume_array_put(); with a failure some of the elements may have been changed.
 */
GPUNVME_FN int gpunvme_volume_array_put_range(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint64_t index,
					      uint64_t count, uint32_t bytes, const void *memory)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_move_range(gnvd_first_dq(v), cache, from, index, count, bytes, (uint64_t)(uintptr_t)memory, 1);
}

/**
 * gpunvme_volume_writable_flush() - write what was changed of a volume, of a share of the cache, and wait
 * Parameters and results as gpunvme_writable_flush(). A gpunvme_flush() after it makes it durable, on all controllers.
 */
GPUNVME_FN int gpunvme_volume_writable_flush(const struct gpunvme_dvol *v, const struct gpunvme_dpages *cache, uint32_t part,
					     uint32_t parts)
{
	struct gnvd_source from = { GNVD_OF_VOLUME, NULL, v };
	int ret = gnvd_check_volume(v);

	return ret ? ret : gnvd_flush_share(gnvd_first_dq(v), cache, from, part, parts);
}

#if defined(__cplusplus)
namespace gpunvme {

/* What a writable array has its elements from: a file ... */
struct from_writable_file {
	typedef struct gpunvme_dq queue;

	static GNVD_MEMBER int get(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, void *value)
	{
		return gpunvme_file_writable_array_get(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count, uint32_t bytes,
				     void *to)
	{
		return gpunvme_file_writable_array_get_range(q, cache, index, count, bytes, to);
	}

	static GNVD_MEMBER int put(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, const void *value)
	{
		return gpunvme_file_array_put(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int put_range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count,
					 uint32_t bytes, const void *from)
	{
		return gpunvme_file_array_put_range(q, cache, index, count, bytes, from);
	}

	static GNVD_MEMBER uint64_t size(const struct gpunvme_dpages *cache)
	{
		return from_file::size(cache);
	}
};

/* ... or a volume. */
struct from_writable_volume {
	typedef struct gpunvme_dvol queue;

	static GNVD_MEMBER int get(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, void *value)
	{
		return gpunvme_volume_writable_array_get(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count, uint32_t bytes,
				     void *to)
	{
		return gpunvme_volume_writable_array_get_range(q, cache, index, count, bytes, to);
	}

	static GNVD_MEMBER int put(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint32_t bytes, const void *value)
	{
		return gpunvme_volume_array_put(q, cache, index, bytes, value);
	}

	static GNVD_MEMBER int put_range(const queue *q, const struct gpunvme_dpages *cache, uint64_t index, uint64_t count,
					 uint32_t bytes, const void *from)
	{
		return gpunvme_volume_array_put_range(q, cache, index, count, bytes, from);
	}

	static GNVD_MEMBER uint64_t size(const struct gpunvme_dpages *cache)
	{
		return from_volume::size(cache);
	}
};

/* As gpunvme::writable_array, whose first argument is the queue, or the volume. */
template <typename T> using writable_file_array = writable_array<T, from_writable_file>;
template <typename T> using writable_volume_array = writable_array<T, from_writable_volume>;

}
#endif

#endif
