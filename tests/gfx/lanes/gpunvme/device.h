/* SPDX-License-Identifier: MIT */
/*
 * Stands before <gpunvme/device.h> for programs whose lanes run on the executor (gfx_lanes.c): the same functions, each of which is
 * a launch of the kernel in calls.hip. So the tests of the device header and the examples run as they are, and what they test is
 * the code that clang made of the real header for gfx1100.
 */
#ifndef GPUNVME_DEVICE_H
#define GPUNVME_DEVICE_H

#include <gpunvme/dq.h>

#define GPUNVME_DEVICE __attribute__((unused))
#define SLOW_LANES /* a lane takes about 10 us for what a CPU does in 100 ns */

int gpunvme_read(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len);
int gpunvme_write(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
		  uint32_t flags);
int gpunvme_flush(const struct gpunvme_dq *dq);
int gpunvme_zero(const struct gpunvme_dq *dq, uint64_t pos, uint64_t len);
int gpunvme_discard(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len);
int gpunvme_submit_read(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			struct gpunvme_req *req);
int gpunvme_submit_write(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			 uint32_t flags, struct gpunvme_req *req);
int gpunvme_submit_flush(const struct gpunvme_dq *dq, struct gpunvme_req *req);
int gpunvme_submit_zero(const struct gpunvme_dq *dq, uint64_t pos, uint64_t len, struct gpunvme_req *req);
int gpunvme_submit_discard(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			   struct gpunvme_req *req);
int gpunvme_poll(const struct gpunvme_dq *dq, struct gpunvme_req *req);
int gpunvme_wait(const struct gpunvme_dq *dq, struct gpunvme_req *req, uint64_t ticks);
int gpunvme_detach(const struct gpunvme_dq *dq, struct gpunvme_req *req);
#define GPUNVME_NO_TRANSFER (~0ull)
int gpunvme_wave_read(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len);
int gpunvme_wave_write(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
		       uint32_t flags);
int gpunvme_wave_read_one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len);
int gpunvme_wave_write_one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			   uint32_t flags);
int gpunvme_wait_any(const struct gpunvme_dq *dq, struct gpunvme_req *req, uint32_t count, uint64_t ticks, uint32_t *index);
int gpunvme_poll_queue(const struct gpunvme_dq *dq, uint32_t count, uint64_t stop);
uint32_t gpunvme_thread_id(void);
uint32_t gpunvme_thread_count(void);
uint32_t gnvd_wave_lanes(void);
int gpunvme_cpu_launch(uint32_t lanes, uint32_t width, void (*kernel)(void *arg), void *arg);

/* What tests use of the header's inside. */
struct gnvd_cmd {
	uint64_t prp1, prp2, slba;
	uint32_t dw0, cdw12;
};
void gnvd_set_data(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t bytes, struct gnvd_cmd *c);
uint32_t gnvd_blocks_per_command(const struct gpunvme_dq *dq, uint64_t addr, uint32_t nblocks);
/* The lanes' clock. A lane that reads it waits: the controller gets a turn. */
uint64_t gnvd_clock(void);

static inline uint32_t gnvd_popc(uint64_t v)
{
	return (uint32_t)__builtin_popcountll(v);
}

#define gnvd_lane_memory(at) ((const void *)(uintptr_t)(at))
#define gnvd_block_lane() (abort(), 0u)

/* Kernels alone have cursors and volumes: what they call is compiled for the host only to have an address. gfx_lanes.c defines these. */
int lanes_no_file(struct gpunvme_cursor *cur, ...);
int lanes_no_volume(const struct gpunvme_dvol *v, ...);
#ifndef DEFINES_CALLS
#define QUEUE_OR_FILE(src, call) \
	_Generic((src), struct gpunvme_cursor *: lanes_no_file, const struct gpunvme_dvol *: lanes_no_volume, default: call)
#define gpunvme_read(src, ...) QUEUE_OR_FILE(src, gpunvme_read)(src, __VA_ARGS__)
#define gpunvme_write(src, ...) QUEUE_OR_FILE(src, gpunvme_write)(src, __VA_ARGS__)
#define gpunvme_submit_read(src, ...) QUEUE_OR_FILE(src, gpunvme_submit_read)(src, __VA_ARGS__)
#define gpunvme_submit_write(src, ...) QUEUE_OR_FILE(src, gpunvme_submit_write)(src, __VA_ARGS__)
#define gpunvme_wave_read(src, ...) QUEUE_OR_FILE(src, gpunvme_wave_read)(src, __VA_ARGS__)
#define gpunvme_wave_write(src, ...) QUEUE_OR_FILE(src, gpunvme_wave_write)(src, __VA_ARGS__)
#define gpunvme_wave_read_one(src, ...) QUEUE_OR_FILE(src, gpunvme_wave_read_one)(src, __VA_ARGS__)
#define gpunvme_wave_write_one(src, ...) QUEUE_OR_FILE(src, gpunvme_wave_write_one)(src, __VA_ARGS__)
#define gpunvme_block_read(src, ...) lanes_no_file(src, __VA_ARGS__)
#define gpunvme_block_write(src, ...) lanes_no_file(src, __VA_ARGS__)
#endif

/* Kernels alone use caches, too. */
#define lanes_no_cache(src) ((void)(src), abort(), 0)
#define gpunvme_page_get(src, page, got) ((void)(page), (void)(got), lanes_no_cache(src))
#define gpunvme_page_put(src, ...) lanes_no_cache(src)
#define gpunvme_array_load(src, index, bytes, value) ((void)(index), (void)(value), lanes_no_cache(src))
#define gpunvme_array_store(src, index, bytes, value) ((void)(index), (void)(value), lanes_no_cache(src))
#define gpunvme_write_back(src, part, parts) lanes_no_cache(src)
#define gpunvme_prefetch(src, page) ((void)(page), lanes_no_cache(src))
#define gpunvme_prefetch_finish(src) lanes_no_cache(src)
#define gnvd_ld64(at) ((void)(at), abort(), 0ull)
#define gnvd_st64(at, value) ((void)(at), (void)(value), abort())

#endif
