/* SPDX-License-Identifier: MIT */
/* An array larger than memory for C++: the calls of cache.h as a class, over each of its types. Only cache.h includes this. */
#ifndef GPUNVME_DEVICE_ARRAY_H
#define GPUNVME_DEVICE_ARRAY_H

#define GNVD_MEMBER GPUNVME_DEVICE inline __attribute__((always_inline))

/* Return the bytes of the window. A cache over something else has no file, so no element can be loaded: return 0. */
#define GNVD_BYTES(mode, file_kind)                                                                                                \
	GNVD_FN uint64_t gnvd_bytes(const struct gpunvme_##mode##_queue *src)                                                      \
	{                                                                                                                          \
		return gnvd_window_bytes(src->cache, gnvd_no_source());                                                            \
	}                                                                                                                          \
                                                                                                                                   \
	GNVD_FN uint64_t gnvd_bytes(const struct gpunvme_##mode##_volume *src)                                                     \
	{                                                                                                                          \
		return gnvd_window_bytes(src->cache, gnvd_no_source());                                                            \
	}                                                                                                                          \
                                                                                                                                   \
	GNVD_FN uint64_t gnvd_bytes(const struct gpunvme_##mode##_file *src)                                                       \
	{                                                                                                                          \
		return gnvd_check_head(&src->cache->head, file_kind) ? 0 : gnvd_window_bytes(src->cache, gnvd_from_file(src->cache)); \
	}

GNVD_BYTES(cached, GPUNVME_KIND_FILE_PAGES)
GNVD_BYTES(prefetch, GPUNVME_KIND_FILE_PAGES | GPUNVME_KIND_PREFETCH)
GNVD_BYTES(writable, GPUNVME_KIND_FILE_PAGES)

namespace gpunvme {

/*
 * Elements of type T: a[i], a.load_range(i, n, to), and with gpunvme_writable_* a.store(i, value), a.store_range(i, n, from). Each
 * thread has its own array. error() returns the first failure. An element that could not be loaded is T().
 */
template <typename T, typename Source = gpunvme_cached_queue> class array {
	static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "elements have 4, 8 or 16 bytes");

	Source source;
	int failed;

	GNVD_MEMBER int note(int ret)
	{
		failed = failed ? failed : ret;
		return ret;
	}

public:
	explicit GNVD_MEMBER array(const Source &src) : source(src), failed(0)
	{
	}

	GNVD_MEMBER uint64_t size() const
	{
		return gnvd_bytes(&source) / sizeof(T);
	}

	GNVD_MEMBER int error() const
	{
		return failed;
	}

	GNVD_MEMBER T operator[](uint64_t index)
	{
		T value = T();

		note(gpunvme_array_load(&source, index, sizeof(T), &value));
		return value;
	}

	GNVD_MEMBER int load_range(uint64_t index, uint64_t count, T *to)
	{
		return note(gpunvme_array_load_range(&source, index, count, sizeof(T), to));
	}

	GNVD_MEMBER int store(uint64_t index, T value)
	{
		return note(gpunvme_array_store(&source, index, sizeof(T), &value));
	}

	GNVD_MEMBER int store_range(uint64_t index, uint64_t count, const T *from)
	{
		return note(gpunvme_array_store_range(&source, index, count, sizeof(T), from));
	}
};

}

#endif
