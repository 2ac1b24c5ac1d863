/* SPDX-License-Identifier: MIT */
/*
 * The calls of every kind of a cache of pages under one name each. `of` and `kind` are constants where these are called, so that of
 * each one call is left.
 */
#ifndef GPUNVME_BENCH_KINDS_H
#define GPUNVME_BENCH_KINDS_H

#include <gpunvme/device.h>

enum of { OF_NAMESPACE, OF_FILE, OF_VOLUME, OF_COUNT };
enum kind { KIND_PLAIN, KIND_PREFETCH, KIND_WRITABLE, KIND_COUNT };

/* Of a namespace and a file `dq` is used, of a volume `v`. */
struct reach {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dvol *v;
	const struct gpunvme_dpages *pages;
};

/* Returns what `call` on `src` returns, which is the source that `of` says, through a cache of that mode. */
#define ON(type, queue, call)                                                                                                      \
	{                                                                                                                          \
		const struct gpunvme_##type src = { queue, r->pages };                                                             \
                                                                                                                                   \
		return call;                                                                                                       \
	}
#define EACH_SOURCE(mode, call)                                                                                                    \
	{                                                                                                                          \
		if (of == OF_VOLUME)                                                                                               \
			ON(mode##_volume, r->v, call)                                                                              \
		if (of == OF_FILE)                                                                                                 \
			ON(mode##_file, r->dq, call)                                                                               \
		ON(mode##_queue, r->dq, call)                                                                                      \
	}

GNVD_FN int kind_page_get(const struct reach *r, enum of of, enum kind kind, uint64_t page, struct gpunvme_page *p)
{
	if (kind == KIND_PREFETCH)
		EACH_SOURCE(prefetch, gpunvme_page_get(&src, page, p))
	if (kind == KIND_WRITABLE)
		EACH_SOURCE(writable, gpunvme_page_get(&src, page, p))
	EACH_SOURCE(cached, gpunvme_page_get(&src, page, p))
}

/* `bytes` from `offset` on were changed; 0: none. */
GNVD_FN int kind_page_put(const struct reach *r, enum of of, enum kind kind, struct gpunvme_page *p, uint32_t offset,
			  uint32_t bytes)
{
	if (kind == KIND_PREFETCH)
		EACH_SOURCE(prefetch, gpunvme_page_put(&src, p))
	if (kind == KIND_WRITABLE)
		EACH_SOURCE(writable, gpunvme_page_put(&src, p, offset, bytes))
	EACH_SOURCE(cached, gpunvme_page_put(&src, p))
}

GNVD_FN int kind_get(const struct reach *r, enum of of, enum kind kind, uint64_t index, uint64_t *value)
{
	if (kind == KIND_PREFETCH)
		EACH_SOURCE(prefetch, gpunvme_array_load(&src, index, 8, value))
	if (kind == KIND_WRITABLE)
		EACH_SOURCE(writable, gpunvme_array_load(&src, index, 8, value))
	EACH_SOURCE(cached, gpunvme_array_load(&src, index, 8, value))
}

GNVD_FN int kind_get_range(const struct reach *r, enum of of, enum kind kind, uint64_t index, uint64_t count, uint64_t *to)
{
	if (kind == KIND_PREFETCH)
		EACH_SOURCE(prefetch, gpunvme_array_load_range(&src, index, count, 8, to))
	if (kind == KIND_WRITABLE)
		EACH_SOURCE(writable, gpunvme_array_load_range(&src, index, count, 8, to))
	EACH_SOURCE(cached, gpunvme_array_load_range(&src, index, count, 8, to))
}

/* Of caches whose pages threads change. */
GNVD_FN int kind_put(const struct reach *r, enum of of, uint64_t index, const uint64_t *value)
{
	EACH_SOURCE(writable, gpunvme_array_store(&src, index, 8, value))
}

GNVD_FN int kind_put_range(const struct reach *r, enum of of, uint64_t index, uint64_t count, const uint64_t *from)
{
	EACH_SOURCE(writable, gpunvme_array_store_range(&src, index, count, 8, from))
}

GNVD_FN int kind_flush(const struct reach *r, enum of of, uint32_t part, uint32_t parts)
{
	EACH_SOURCE(writable, gpunvme_write_back(&src, part, parts))
}

/* Of caches with prefetch. */
GNVD_FN int kind_prefetch(const struct reach *r, enum of of, uint64_t page)
{
	EACH_SOURCE(prefetch, gpunvme_prefetch(&src, page))
}

GNVD_FN int kind_finish(const struct reach *r, enum of of)
{
	EACH_SOURCE(prefetch, gpunvme_prefetch_finish(&src))
}

#endif
