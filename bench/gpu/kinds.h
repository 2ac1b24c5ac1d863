/* SPDX-License-Identifier: MIT */
/*
 * The calls of every kind of a cache of pages under one name each. `of` and `kind` are constants where these are called, so that of
 * each one call is left.
 */
#ifndef GPUNVME_BENCH_KINDS_H
#define GPUNVME_BENCH_KINDS_H

#include <gpunvme/device_ahead_sources.h>
#include <gpunvme/device_writable_sources.h>

enum of { OF_NAMESPACE, OF_FILE, OF_VOLUME, OF_COUNT };
enum kind { KIND_PLAIN, KIND_AHEAD, KIND_WRITABLE, KIND_COUNT };

#define KIND_CASE(of, kind) ((of) * KIND_COUNT + (kind))

/* Of a namespace and a file `dq` is used, of a volume `v`. */
struct reach {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dvol *v;
	const struct gpunvme_dpages *pages;
};

GNVD_FN int kind_page_get(const struct reach *r, enum of of, enum kind kind, uint64_t page, struct gpunvme_page *p)
{
	switch (KIND_CASE(of, kind)) {
	case KIND_CASE(OF_NAMESPACE, KIND_PLAIN):
		return gpunvme_page_get(r->dq, r->pages, page, p);
	case KIND_CASE(OF_NAMESPACE, KIND_AHEAD):
		return gpunvme_ahead_page_get(r->dq, r->pages, page, p);
	case KIND_CASE(OF_NAMESPACE, KIND_WRITABLE):
		return gpunvme_writable_page_get(r->dq, r->pages, page, p);
	case KIND_CASE(OF_FILE, KIND_PLAIN):
		return gpunvme_file_page_get(r->dq, r->pages, page, p);
	case KIND_CASE(OF_FILE, KIND_AHEAD):
		return gpunvme_file_ahead_page_get(r->dq, r->pages, page, p);
	case KIND_CASE(OF_FILE, KIND_WRITABLE):
		return gpunvme_file_writable_page_get(r->dq, r->pages, page, p);
	case KIND_CASE(OF_VOLUME, KIND_PLAIN):
		return gpunvme_volume_page_get(r->v, r->pages, page, p);
	case KIND_CASE(OF_VOLUME, KIND_AHEAD):
		return gpunvme_volume_ahead_page_get(r->v, r->pages, page, p);
	default:
		return gpunvme_volume_writable_page_get(r->v, r->pages, page, p);
	}
}

/* `bytes` from `offset` on were changed; 0: none. */
GNVD_FN int kind_page_put(const struct reach *r, enum of of, enum kind kind, struct gpunvme_page *p, uint32_t offset,
			  uint32_t bytes)
{
	if (kind != KIND_WRITABLE)
		return of == OF_VOLUME ? gpunvme_volume_page_put(r->v, p) : gpunvme_page_put(r->dq, p);
	switch (of) {
	case OF_NAMESPACE:
		return gpunvme_writable_page_put(r->dq, r->pages, p, offset, bytes);
	case OF_FILE:
		return gpunvme_file_writable_page_put(r->dq, r->pages, p, offset, bytes);
	default:
		return gpunvme_volume_writable_page_put(r->v, r->pages, p, offset, bytes);
	}
}

GNVD_FN int kind_get(const struct reach *r, enum of of, enum kind kind, uint64_t index, uint64_t *value)
{
	switch (KIND_CASE(of, kind)) {
	case KIND_CASE(OF_NAMESPACE, KIND_PLAIN):
		return gpunvme_array_get(r->dq, r->pages, index, 8, value);
	case KIND_CASE(OF_NAMESPACE, KIND_AHEAD):
		return gpunvme_ahead_array_get(r->dq, r->pages, index, 8, value);
	case KIND_CASE(OF_NAMESPACE, KIND_WRITABLE):
		return gpunvme_writable_array_get(r->dq, r->pages, index, 8, value);
	case KIND_CASE(OF_FILE, KIND_PLAIN):
		return gpunvme_file_array_get(r->dq, r->pages, index, 8, value);
	case KIND_CASE(OF_FILE, KIND_AHEAD):
		return gpunvme_file_ahead_array_get(r->dq, r->pages, index, 8, value);
	case KIND_CASE(OF_FILE, KIND_WRITABLE):
		return gpunvme_file_writable_array_get(r->dq, r->pages, index, 8, value);
	case KIND_CASE(OF_VOLUME, KIND_PLAIN):
		return gpunvme_volume_array_get(r->v, r->pages, index, 8, value);
	case KIND_CASE(OF_VOLUME, KIND_AHEAD):
		return gpunvme_volume_ahead_array_get(r->v, r->pages, index, 8, value);
	default:
		return gpunvme_volume_writable_array_get(r->v, r->pages, index, 8, value);
	}
}

GNVD_FN int kind_get_range(const struct reach *r, enum of of, enum kind kind, uint64_t index, uint64_t count, uint64_t *to)
{
	switch (KIND_CASE(of, kind)) {
	case KIND_CASE(OF_NAMESPACE, KIND_PLAIN):
		return gpunvme_array_get_range(r->dq, r->pages, index, count, 8, to);
	case KIND_CASE(OF_NAMESPACE, KIND_AHEAD):
		return gpunvme_ahead_array_get_range(r->dq, r->pages, index, count, 8, to);
	case KIND_CASE(OF_NAMESPACE, KIND_WRITABLE):
		return gpunvme_writable_array_get_range(r->dq, r->pages, index, count, 8, to);
	case KIND_CASE(OF_FILE, KIND_PLAIN):
		return gpunvme_file_array_get_range(r->dq, r->pages, index, count, 8, to);
	case KIND_CASE(OF_FILE, KIND_AHEAD):
		return gpunvme_file_ahead_array_get_range(r->dq, r->pages, index, count, 8, to);
	case KIND_CASE(OF_FILE, KIND_WRITABLE):
		return gpunvme_file_writable_array_get_range(r->dq, r->pages, index, count, 8, to);
	case KIND_CASE(OF_VOLUME, KIND_PLAIN):
		return gpunvme_volume_array_get_range(r->v, r->pages, index, count, 8, to);
	case KIND_CASE(OF_VOLUME, KIND_AHEAD):
		return gpunvme_volume_ahead_array_get_range(r->v, r->pages, index, count, 8, to);
	default:
		return gpunvme_volume_writable_array_get_range(r->v, r->pages, index, count, 8, to);
	}
}

/* Of caches whose pages lanes change. */
GNVD_FN int kind_put(const struct reach *r, enum of of, uint64_t index, const uint64_t *value)
{
	switch (of) {
	case OF_NAMESPACE:
		return gpunvme_array_put(r->dq, r->pages, index, 8, value);
	case OF_FILE:
		return gpunvme_file_array_put(r->dq, r->pages, index, 8, value);
	default:
		return gpunvme_volume_array_put(r->v, r->pages, index, 8, value);
	}
}

GNVD_FN int kind_put_range(const struct reach *r, enum of of, uint64_t index, uint64_t count, const uint64_t *from)
{
	switch (of) {
	case OF_NAMESPACE:
		return gpunvme_array_put_range(r->dq, r->pages, index, count, 8, from);
	case OF_FILE:
		return gpunvme_file_array_put_range(r->dq, r->pages, index, count, 8, from);
	default:
		return gpunvme_volume_array_put_range(r->v, r->pages, index, count, 8, from);
	}
}

GNVD_FN int kind_flush(const struct reach *r, enum of of, uint32_t part, uint32_t parts)
{
	switch (of) {
	case OF_NAMESPACE:
		return gpunvme_writable_flush(r->dq, r->pages, part, parts);
	case OF_FILE:
		return gpunvme_file_writable_flush(r->dq, r->pages, part, parts);
	default:
		return gpunvme_volume_writable_flush(r->v, r->pages, part, parts);
	}
}

/* Of caches with prefetch. */
GNVD_FN int kind_prefetch(const struct reach *r, enum of of, uint64_t page)
{
	switch (of) {
	case OF_NAMESPACE:
		return gpunvme_ahead_prefetch(r->dq, r->pages, page);
	case OF_FILE:
		return gpunvme_file_ahead_prefetch(r->dq, r->pages, page);
	default:
		return gpunvme_volume_ahead_prefetch(r->v, r->pages, page);
	}
}

GNVD_FN int kind_settle(const struct reach *r, enum of of)
{
	switch (of) {
	case OF_NAMESPACE:
		return gpunvme_ahead_settle(r->dq, r->pages);
	case OF_FILE:
		return gpunvme_file_ahead_settle(r->dq, r->pages);
	default:
		return gpunvme_volume_ahead_settle(r->v, r->pages);
	}
}

#endif
