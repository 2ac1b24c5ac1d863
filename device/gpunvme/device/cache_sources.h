/* SPDX-License-Identifier: MIT */
/*
 * The calls of cache.h for all its types: the same functions, each with its source as a constant, so that no kernel has code for
 * another source. Only cache.h includes this.
 */
#ifndef GPUNVME_DEVICE_CACHE_SOURCES_H
#define GPUNVME_DEVICE_CACHE_SOURCES_H

/* What a call needs from its first argument: whether it is refused, its queue, cache and source. */
#define GNVD_REFUSE_queue(src) 0
#define GNVD_REFUSE_file(src) 0
#define GNVD_REFUSE_volume(src) gnvd_check_volume((src)->volume)
#define GNVD_PARTS_queue(src) (src)->dq, (src)->cache, gnvd_no_source()
#define GNVD_PARTS_file(src) (src)->dq, (src)->cache, gnvd_from_file((src)->cache)
#define GNVD_PARTS_volume(src) gnvd_first_dq((src)->volume), (src)->cache, gnvd_from_volume((src)->volume)
#define GNVD_DQ_queue(src) (src)->dq
#define GNVD_DQ_file(src) (src)->dq
#define GNVD_DQ_volume(src) gnvd_first_dq((src)->volume)

#define GNVD_SOURCE(mode, of) const struct gpunvme_##mode##_##of *src

#define GNVD_LOADS(mode, of, get, load, load_range)                                                                                \
	GPUNVME_FN int GNVD_CACHE(mode##_##of, page_get)(GNVD_SOURCE(mode, of), uint64_t page, struct gpunvme_page *p)             \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : get(GNVD_PARTS_##of(src), page, p);                                                             \
	}                                                                                                                          \
                                                                                                                                   \
	GPUNVME_FN int GNVD_CACHE(mode##_##of, array_load)(GNVD_SOURCE(mode, of), uint64_t index, uint32_t bytes, void *value)     \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : load(GNVD_PARTS_##of(src), index, bytes, value);                                                \
	}                                                                                                                          \
                                                                                                                                   \
	GPUNVME_FN int GNVD_CACHE(mode##_##of, array_load_range)(GNVD_SOURCE(mode, of), uint64_t index, uint64_t count,            \
								 uint32_t bytes, void *to)                                         \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : load_range(GNVD_PARTS_##of(src), index, count, bytes, to);                                      \
	}

#define GNVD_PUTS(mode, of)                                                                                                        \
	GPUNVME_FN int GNVD_CACHE(mode##_##of, page_put)(GNVD_SOURCE(mode, of), struct gpunvme_page *p)                            \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : gnvd_put_page(GNVD_DQ_##of(src), p);                                                            \
	}

#define GNVD_PREFETCHES(of)                                                                                                        \
	GPUNVME_FN int GNVD_CACHE(prefetch_##of, prefetch)(GNVD_SOURCE(prefetch, of), uint64_t page)                               \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : gnvd_prefetch(GNVD_PARTS_##of(src), page);                                                      \
	}                                                                                                                          \
                                                                                                                                   \
	GPUNVME_FN int GNVD_CACHE(prefetch_##of, prefetch_finish)(GNVD_SOURCE(prefetch, of))                                       \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : gnvd_finish_all(GNVD_PARTS_##of(src));                                                          \
	}

#define GNVD_STORES(of)                                                                                                            \
	GPUNVME_FN int GNVD_CACHE(writable_##of, page_put)(GNVD_SOURCE(writable, of), struct gpunvme_page *p, uint32_t offset,     \
							   uint32_t bytes)                                                         \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : gnvd_give_back(GNVD_PARTS_##of(src), p, offset, bytes);                                         \
	}                                                                                                                          \
                                                                                                                                   \
	GPUNVME_FN int GNVD_CACHE(writable_##of, array_store)(GNVD_SOURCE(writable, of), uint64_t index, uint32_t bytes,           \
							      const void *value)                                                   \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : gnvd_store_element(GNVD_PARTS_##of(src), index, bytes, value);                                  \
	}                                                                                                                          \
                                                                                                                                   \
	GPUNVME_FN int GNVD_CACHE(writable_##of, array_store_range)(GNVD_SOURCE(writable, of), uint64_t index, uint64_t count,     \
								    uint32_t bytes, const void *memory)                            \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : gnvd_store_range(GNVD_PARTS_##of(src), index, count, bytes, memory);                            \
	}                                                                                                                          \
                                                                                                                                   \
	GPUNVME_FN int GNVD_CACHE(writable_##of, write_back)(GNVD_SOURCE(writable, of), uint32_t part, uint32_t parts)             \
	{                                                                                                                          \
		int ret = GNVD_REFUSE_##of(src);                                                                                   \
                                                                                                                                   \
		return ret ? ret : gnvd_flush_share(GNVD_PARTS_##of(src), part, parts);                                            \
	}

GNVD_LOADS(cached, file, gnvd_have_page, gnvd_array_get, gnvd_array_get_range)
GNVD_LOADS(cached, volume, gnvd_have_page, gnvd_array_get, gnvd_array_get_range)
GNVD_PUTS(cached, file)
GNVD_PUTS(cached, volume)

GNVD_LOADS(prefetch, queue, gnvd_have_prefetched, gnvd_prefetch_element, gnvd_prefetch_range)
GNVD_LOADS(prefetch, file, gnvd_have_prefetched, gnvd_prefetch_element, gnvd_prefetch_range)
GNVD_LOADS(prefetch, volume, gnvd_have_prefetched, gnvd_prefetch_element, gnvd_prefetch_range)
GNVD_PUTS(prefetch, queue)
GNVD_PUTS(prefetch, file)
GNVD_PUTS(prefetch, volume)
GNVD_PREFETCHES(file)
GNVD_PREFETCHES(volume)

GNVD_LOADS(writable, queue, gnvd_have_writable, gnvd_load_element, gnvd_load_range)
GNVD_LOADS(writable, file, gnvd_have_writable, gnvd_load_element, gnvd_load_range)
GNVD_LOADS(writable, volume, gnvd_have_writable, gnvd_load_element, gnvd_load_range)
GNVD_STORES(file)
GNVD_STORES(volume)

#endif
