/* SPDX-License-Identifier: MIT */
/*
 * One name for a call on a queue, a volume and a file, and on each of them through a page cache. In C++ the functions are
 * overloads, and this header adds nothing. In C _Generic selects the function by the type of the first argument, at compile time.
 * Any other type is an error. Only device.h includes this.
 */
#ifndef GPUNVME_DEVICE_SELECT_H
#define GPUNVME_DEVICE_SELECT_H

#if !defined(__cplusplus)
#define GNVD_IF_QUEUE(call) struct gpunvme_dq *: gnvd_queue_##call, const struct gpunvme_dq *: gnvd_queue_##call
#define GNVD_IF_VOLUME(call) struct gpunvme_dvol *: gnvd_volume_##call, const struct gpunvme_dvol *: gnvd_volume_##call
#define GNVD_IF_FILE(call) struct gpunvme_cursor *: gnvd_file_##call

#define GNVD_SELECT(src, call) _Generic((src), GNVD_IF_QUEUE(call), GNVD_IF_VOLUME(call), GNVD_IF_FILE(call))
#define GNVD_SELECT_BLOCKS(src, call) _Generic((src), GNVD_IF_QUEUE(call), GNVD_IF_VOLUME(call))
#define GNVD_SELECT_GROUP(src, call) _Generic((src), GNVD_IF_VOLUME(call), GNVD_IF_FILE(call))

#define GNVD_IF_TYPE(type, call) struct gpunvme_##type *: gnvd_##type##_##call, const struct gpunvme_##type *: gnvd_##type##_##call
#define GNVD_IF_CACHE(mode, call) \
	GNVD_IF_TYPE(mode##_queue, call), GNVD_IF_TYPE(mode##_file, call), GNVD_IF_TYPE(mode##_volume, call)

#define GNVD_SELECT_CACHE(src, call) \
	_Generic((src), GNVD_IF_CACHE(cached, call), GNVD_IF_CACHE(prefetch, call), GNVD_IF_CACHE(writable, call))
#define GNVD_SELECT_PREFETCH(src, call) _Generic((src), GNVD_IF_CACHE(prefetch, call))
#define GNVD_SELECT_WRITABLE(src, call) _Generic((src), GNVD_IF_CACHE(writable, call))

/* Arguments may have commas, as compound literals do: the function counts them. Put a first argument with commas in parentheses. */
#define gpunvme_read(src, ...) GNVD_SELECT(src, read)(src, __VA_ARGS__)
#define gpunvme_write(src, ...) GNVD_SELECT(src, write)(src, __VA_ARGS__)
#define gpunvme_flush(src) GNVD_SELECT_BLOCKS(src, flush)(src)
#define gpunvme_zero(src, ...) GNVD_SELECT_BLOCKS(src, zero)(src, __VA_ARGS__)
#define gpunvme_discard(src, ...) GNVD_SELECT_BLOCKS(src, discard)(src, __VA_ARGS__)
#define gpunvme_submit_read(src, ...) GNVD_SELECT(src, submit_read)(src, __VA_ARGS__)
#define gpunvme_submit_write(src, ...) GNVD_SELECT(src, submit_write)(src, __VA_ARGS__)
#define gpunvme_submit_zero(src, ...) GNVD_SELECT_BLOCKS(src, submit_zero)(src, __VA_ARGS__)
#define gpunvme_submit_discard(src, ...) GNVD_SELECT_BLOCKS(src, submit_discard)(src, __VA_ARGS__)
#define gpunvme_poll(src, req) GNVD_SELECT_BLOCKS(src, poll)(src, req)
#define gpunvme_wait(src, ...) GNVD_SELECT_BLOCKS(src, wait)(src, __VA_ARGS__)
#define gpunvme_detach(src, req) GNVD_SELECT_BLOCKS(src, detach)(src, req)
#define gpunvme_wave_read(src, ...) GNVD_SELECT(src, wave_read)(src, __VA_ARGS__)
#define gpunvme_wave_write(src, ...) GNVD_SELECT(src, wave_write)(src, __VA_ARGS__)
#define gpunvme_wave_read_one(src, ...) GNVD_SELECT(src, wave_read_one)(src, __VA_ARGS__)
#define gpunvme_wave_write_one(src, ...) GNVD_SELECT(src, wave_write_one)(src, __VA_ARGS__)
#define gpunvme_block_read(src, ...) GNVD_SELECT_GROUP(src, block_read)(src, __VA_ARGS__)
#define gpunvme_block_write(src, ...) GNVD_SELECT_GROUP(src, block_write)(src, __VA_ARGS__)
#define gpunvme_page_get(src, ...) GNVD_SELECT_CACHE(src, page_get)(src, __VA_ARGS__)
#define gpunvme_page_put(src, ...) GNVD_SELECT_CACHE(src, page_put)(src, __VA_ARGS__)
#define gpunvme_array_load(src, ...) GNVD_SELECT_CACHE(src, array_load)(src, __VA_ARGS__)
#define gpunvme_array_load_range(src, ...) GNVD_SELECT_CACHE(src, array_load_range)(src, __VA_ARGS__)
#define gpunvme_array_store(src, ...) GNVD_SELECT_WRITABLE(src, array_store)(src, __VA_ARGS__)
#define gpunvme_array_store_range(src, ...) GNVD_SELECT_WRITABLE(src, array_store_range)(src, __VA_ARGS__)
#define gpunvme_write_back(src, ...) GNVD_SELECT_WRITABLE(src, write_back)(src, __VA_ARGS__)
#define gpunvme_prefetch(src, page) GNVD_SELECT_PREFETCH(src, prefetch)(src, page)
#define gpunvme_prefetch_finish(src) GNVD_SELECT_PREFETCH(src, prefetch_finish)(src)
#endif

#endif
