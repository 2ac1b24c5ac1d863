/* SPDX-License-Identifier: MIT */
/*
 * One name for a call on a queue, a volume and a file. In C++ the functions are overloads, and nothing is to be done. In C _Generic
 * chooses by the type of the first argument, while compiling; any other type is an error. Only device.h includes this.
 */
#ifndef GPUNVME_DEVICE_SELECT_H
#define GPUNVME_DEVICE_SELECT_H

#if !defined(__cplusplus)
#define GNVD_IF_QUEUE(call) struct gpunvme_dq *: gnvd_queue_##call, const struct gpunvme_dq *: gnvd_queue_##call
#define GNVD_IF_VOLUME(call) struct gpunvme_dvol *: gnvd_volume_##call, const struct gpunvme_dvol *: gnvd_volume_##call
#define GNVD_IF_FILE(call) struct gpunvme_cursor *: gnvd_file_##call

#define GNVD_SELECT(src, call) _Generic((src), GNVD_IF_QUEUE(call), GNVD_IF_VOLUME(call), GNVD_IF_FILE(call))
#define GNVD_SELECT_BLOCKS(src, call) _Generic((src), GNVD_IF_QUEUE(call), GNVD_IF_VOLUME(call))
#define GNVD_SELECT_ONE_QUEUE(src, call) _Generic((src), GNVD_IF_QUEUE(call), GNVD_IF_FILE(call))
#define GNVD_SELECT_GROUP(src, call) _Generic((src), GNVD_IF_VOLUME(call), GNVD_IF_FILE(call))

/* Arguments may have commas, as compound literals do; the function counts them. */
#define gpunvme_read(src, ...) GNVD_SELECT(src, read)(src, __VA_ARGS__)
#define gpunvme_write(src, ...) GNVD_SELECT(src, write)(src, __VA_ARGS__)
#define gpunvme_flush(src) GNVD_SELECT_BLOCKS(src, flush)(src)
#define gpunvme_zero(src, ...) GNVD_SELECT_BLOCKS(src, zero)(src, __VA_ARGS__)
#define gpunvme_discard(src, ...) GNVD_SELECT_BLOCKS(src, discard)(src, __VA_ARGS__)
#define gpunvme_submit_read(src, ...) GNVD_SELECT_ONE_QUEUE(src, submit_read)(src, __VA_ARGS__)
#define gpunvme_submit_write(src, ...) GNVD_SELECT_ONE_QUEUE(src, submit_write)(src, __VA_ARGS__)
#define gpunvme_wave_read(src, ...) GNVD_SELECT_ONE_QUEUE(src, wave_read)(src, __VA_ARGS__)
#define gpunvme_wave_write(src, ...) GNVD_SELECT_ONE_QUEUE(src, wave_write)(src, __VA_ARGS__)
#define gpunvme_wave_read_one(src, ...) GNVD_SELECT_ONE_QUEUE(src, wave_read_one)(src, __VA_ARGS__)
#define gpunvme_wave_write_one(src, ...) GNVD_SELECT_ONE_QUEUE(src, wave_write_one)(src, __VA_ARGS__)
#define gpunvme_block_read(src, ...) GNVD_SELECT_GROUP(src, block_read)(src, __VA_ARGS__)
#define gpunvme_block_write(src, ...) GNVD_SELECT_GROUP(src, block_write)(src, __VA_ARGS__)
#endif

#endif
