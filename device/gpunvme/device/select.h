/* SPDX-License-Identifier: MIT */
/*
 * One name for a call on a queue and on a volume. In C++ the functions are overloads, and nothing is to be done. In C _Generic
 * chooses by the type of the first argument, while compiling; any other type is an error. Only device.h includes this.
 */
#ifndef GPUNVME_DEVICE_SELECT_H
#define GPUNVME_DEVICE_SELECT_H

#if !defined(__cplusplus)
#define GNVD_SELECT(src, call)                                                                                                     \
	_Generic((src), struct gpunvme_dq *: gnvd_queue_##call, const struct gpunvme_dq *: gnvd_queue_##call,                      \
		 struct gpunvme_dvol *: gnvd_volume_##call, const struct gpunvme_dvol *: gnvd_volume_##call)

/* Arguments may have commas, as compound literals do; the function counts them. */
#define gpunvme_read(src, ...) GNVD_SELECT(src, read)(src, __VA_ARGS__)
#define gpunvme_write(src, ...) GNVD_SELECT(src, write)(src, __VA_ARGS__)
#define gpunvme_flush(src) GNVD_SELECT(src, flush)(src)
#define gpunvme_zero(src, ...) GNVD_SELECT(src, zero)(src, __VA_ARGS__)
#define gpunvme_discard(src, ...) GNVD_SELECT(src, discard)(src, __VA_ARGS__)
#endif

#endif
