/* SPDX-License-Identifier: MIT */
/* As device_array.h beside it. */
#ifndef GPUNVME_DEVICE_FILE_H
#define GPUNVME_DEVICE_FILE_H

#include <gpunvme/device.h>

#define FILE_CALL(dq, file, cur, dbuf, offset, pos, len) \
	((void)(dq), (void)(file), (void)(cur), (void)(dbuf), (void)(offset), (void)(pos), (void)(len), abort(), 0)
#define gpunvme_file_read FILE_CALL
#define gpunvme_file_write FILE_CALL
#define gpunvme_file_wave_read FILE_CALL
#define gpunvme_file_wave_read_one FILE_CALL
#define gpunvme_file_block_read FILE_CALL
#define gpunvme_file_submit_read(dq, file, cur, dbuf, offset, pos, len, req) \
	((req)->tag = 0, FILE_CALL(dq, file, cur, dbuf, offset, pos, len))
#define gnvd_lane_memory(at) ((const void *)(uintptr_t)(at))
#define gnvd_block_lane() (abort(), 0u)

#endif
