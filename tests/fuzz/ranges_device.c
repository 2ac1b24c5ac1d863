/* SPDX-License-Identifier: MIT */
/* Calls of the device header that take a range, for fuzz_ranges. */
#include "ranges.h"


#define CALL(name, expression)                                                                                                     \
	static int name(void)                                                                                                      \
	{                                                                                                                          \
		return expression;                                                                                                 \
	}

static struct gpunvme_req req;
static struct gpunvme_cursor cur;

/* ---- Queues and volumes ---- */

static int ended(int ret)
{
	return ret ? ret : gpunvme_wait(&w.dq, &req, 0);
}

CALL(queue_read, gpunvme_read(&w.dq, &w.buf, ask.offset, ask.pos, ask.len))
CALL(queue_write, gpunvme_write(&w.dq, &w.buf, ask.offset, ask.pos, ask.len, 0))
CALL(queue_zero, gpunvme_zero(&w.dq, ask.pos, ask.len))
CALL(queue_discard, gpunvme_discard(&w.dq, &w.buf, ask.offset, ask.pos, ask.len))
CALL(submit_read, ended(gpunvme_submit_read(&w.dq, &w.buf, ask.offset, ask.pos, ask.len, &req)))
CALL(submit_write, ended(gpunvme_submit_write(&w.dq, &w.buf, ask.offset, ask.pos, ask.len, GPUNVME_FUA, &req)))
CALL(submit_zero, ended(gpunvme_submit_zero(&w.dq, ask.pos, ask.len, &req)))
CALL(submit_discard, ended(gpunvme_submit_discard(&w.dq, &w.buf, ask.offset, ask.pos, ask.len, &req)))
CALL(wave_read, gpunvme_wave_read(&w.dq, &w.buf, ask.offset, ask.pos, ask.len))
CALL(wave_write, gpunvme_wave_write(&w.dq, &w.buf, ask.offset, ask.pos, ask.len, 0))
CALL(wave_read_one, gpunvme_wave_read_one(&w.dq, &w.buf, ask.offset, ask.pos, ask.len))
CALL(wave_write_one, gpunvme_wave_write_one(&w.dq, &w.buf, ask.offset, ask.pos, ask.len, 0))
CALL(volume_read, gpunvme_read(&r.vol, &r.vbuf, ask.offset, ask.pos, ask.len))
CALL(volume_write, gpunvme_write(&r.vol, &r.vbuf, ask.offset, ask.pos, ask.len, 0))
CALL(volume_zero, gpunvme_zero(&r.vol, ask.pos, ask.len))
CALL(volume_discard, gpunvme_discard(&r.vol, &r.vbuf, ask.offset, ask.pos, ask.len))
CALL(block_read, gpunvme_block_read(&r.vol, &r.vbuf, ask.offset, ask.pos, ask.len))
CALL(block_write, gpunvme_block_write(&r.vol, &r.vbuf, ask.offset, ask.pos, ask.len, 0))

/* ---- Files ---- */

/* The last block of the buffer is the thread's, for what is not whole blocks. */
static struct gpunvme_cursor *begin(void)
{
	cur = (struct gpunvme_cursor){ &r.whole, &r.file, .bounce = w.buf.len >= BLOCK ? (w.buf.len - BLOCK) & ~3ull : 0 };
	return &cur;
}

static int file_ended(int ret)
{
	return ret || !req.tag ? ret : gpunvme_wait(&r.whole, &req, 0);
}

CALL(file_read, gpunvme_read(begin(), &w.buf, ask.offset, ask.pos, ask.len))
CALL(file_write, gpunvme_write(begin(), &w.buf, ask.offset, ask.pos, ask.len, 0))
CALL(file_submit_read, file_ended(gpunvme_submit_read(begin(), &w.buf, ask.offset, ask.pos, ask.len, &req)))
CALL(file_submit_write, file_ended(gpunvme_submit_write(begin(), &w.buf, ask.offset, ask.pos, ask.len, GPUNVME_FUA, &req)))
CALL(file_wave_read, gpunvme_wave_read(begin(), &w.buf, ask.offset, ask.pos, ask.len))
CALL(file_wave_write, gpunvme_wave_write(begin(), &w.buf, ask.offset, ask.pos, ask.len, 0))
CALL(file_wave_read_one, gpunvme_wave_read_one(begin(), &w.buf, ask.offset, ask.pos, ask.len))
CALL(file_wave_write_one, gpunvme_wave_write_one(begin(), &w.buf, ask.offset, ask.pos, ask.len, 0))
CALL(file_block_read, gpunvme_block_read(begin(), &w.buf, ask.offset, ask.pos, ask.len))
CALL(file_block_write, gpunvme_block_write(begin(), &w.buf, ask.offset, ask.pos, ask.len, 0))

/* ---- Pages and elements ---- */

/* Gives back what it gets, so that no page stays. */
#define GET_PAGE(name, type, source, cache, ...)                                                                                   \
	static int name(void)                                                                                                      \
	{                                                                                                                          \
		const struct gpunvme_##type src = { source, cache };                                                               \
		struct gpunvme_page p = { 0, 0 };                                                                                  \
		int ret = gpunvme_page_get(&src, ask.pos, &p);                                                                     \
                                                                                                                                   \
		check(!ret == (p.word != 0));                                                                                      \
		if (!ret)                                                                                                          \
			check(!gpunvme_page_put(&src, __VA_ARGS__));                                                               \
		return ret;                                                                                                        \
	}

/* Page 0, of which the bytes are changed. */
#define PUT_PART(name, type, source, cache)                                                                                        \
	static int name(void)                                                                                                      \
	{                                                                                                                          \
		const struct gpunvme_##type src = { source, cache };                                                               \
		struct gpunvme_page p = { 0, 0 };                                                                                  \
		int ret = gpunvme_page_get(&src, 0, &p), kept;                                                                     \
                                                                                                                                   \
		check(!ret);                                                                                                       \
		w.commands = 0;                                                                                                    \
		ret = gpunvme_page_put(&src, &p, (uint32_t)ask.pos, (uint32_t)ask.len);                                            \
		kept = p.word != 0;                                                                                                \
		check(!ret == !kept);                                                                                              \
		if (kept)                                                                                                          \
			check(!gpunvme_page_put(&src, &p, 0, 0));                                                                  \
		return ret;                                                                                                        \
	}

/* One call on `src`. */
#define BY(name, type, source, cache, call)                                                                                        \
	static int name(void)                                                                                                      \
	{                                                                                                                          \
		const struct gpunvme_##type src = { source, cache };                                                               \
                                                                                                                                   \
		return call;                                                                                                       \
	}

#define LOADS(type, source, cache, ...)                                                                                            \
	GET_PAGE(type##_page_get, type, source, cache, __VA_ARGS__)                                                                \
	BY(type##_load, type, source, cache, gpunvme_array_load(&src, ask.pos, ask.unit, ask.memory))                              \
	BY(type##_load_range, type, source, cache, gpunvme_array_load_range(&src, ask.pos, ask.len, ask.unit, ask.memory))

#define PREFETCHES(type, source, cache)                                                                                            \
	LOADS(type, source, cache, &p)                                                                                             \
	BY(type##_prefetch, type, source, cache, gpunvme_prefetch(&src, ask.pos))

#define STORES(type, source, cache)                                                                                                \
	LOADS(type, source, cache, &p, 0, 0)                                                                                       \
	PUT_PART(type##_page_part, type, source, cache)                                                                            \
	BY(type##_store, type, source, cache, gpunvme_array_store(&src, ask.pos, ask.unit, ask.memory))                            \
	BY(type##_store_range, type, source, cache, gpunvme_array_store_range(&src, ask.pos, ask.len, ask.unit, ask.memory))

LOADS(cached_queue, &r.whole, &r.pages[0], &p)
PREFETCHES(prefetch_queue, &r.whole, &r.ahead[0])
STORES(writable_queue, &r.whole, &r.writable[0])
LOADS(cached_file, &r.whole, &r.pages[1], &p)
PREFETCHES(prefetch_file, &r.whole, &r.ahead[1])
STORES(writable_file, &r.whole, &r.writable[1])
LOADS(cached_volume, &r.whole_vol, &r.pages[2], &p)
PREFETCHES(prefetch_volume, &r.whole_vol, &r.ahead[2])
STORES(writable_volume, &r.whole_vol, &r.writable[2])

#define PAGES_OF(source, of)                                                                                                       \
	{ cached_##source##_page_get, PAGE, 0, of, 0 }, { cached_##source##_load, ELEMENT, 0, of, 0 },                             \
	{ cached_##source##_load_range, ELEMENTS, 0, of, 0 }, { prefetch_##source##_page_get, PAGE, 0, of, 0 },                    \
	{ prefetch_##source##_load, ELEMENT, 0, of, 0 }, { prefetch_##source##_load_range, ELEMENTS, 0, of, 0 },                   \
	{ prefetch_##source##_prefetch, PAGE, 0, of, ONE }, { writable_##source##_page_get, PAGE, 1, of, 0 },                      \
	{ writable_##source##_page_part, PART, 1, of, 0 }, { writable_##source##_load, ELEMENT, 1, of, 0 },                        \
	{ writable_##source##_load_range, ELEMENTS, 1, of, 0 }, { writable_##source##_store, ELEMENT, 1, of, 0 },                  \
	{ writable_##source##_store_range, ELEMENTS, 1, of, 0 }

const struct range_call device_calls[] = {
	{ queue_read, QUEUE, 0, 0, 0 }, { queue_write, QUEUE, 1, 0, 0 }, { queue_zero, QUEUE_ONLY, 1, 0, 0 },
	{ queue_discard, QUEUE_RANGE, 1, 0, 0 }, { submit_read, QUEUE, 0, 0, ONE }, { submit_write, QUEUE, 1, 0, ONE },
	{ submit_zero, QUEUE_ONLY, 1, 0, ONE }, { submit_discard, QUEUE_RANGE, 1, 0, ONE }, { wave_read, QUEUE, 0, 0, WAVE },
	{ wave_write, QUEUE, 1, 0, WAVE }, { wave_read_one, QUEUE, 0, 0, 0 }, { wave_write_one, QUEUE, 1, 0, 0 },
	{ volume_read, VOLUME, 0, 0, 0 }, { volume_write, VOLUME, 1, 0, 0 }, { volume_zero, VOLUME_ONLY, 1, 0, 0 },
	{ volume_discard, VOLUME_RANGE, 1, 0, 0 }, { block_read, VOLUME, 0, 0, WORKGROUP }, { block_write, VOLUME, 1, 0, WORKGROUP },
	{ file_read, FILE_READ, 0, 0, 0 }, { file_write, FILE_WRITE, 1, 0, 0 }, { file_submit_read, FILE_READ, 0, 0, 0 },
	{ file_submit_write, FILE_WRITE, 1, 0, 0 }, { file_wave_read, FILE_READ, 0, 0, WAVE }, { file_wave_write, FILE_WRITE, 1, 0, WAVE },
	{ file_wave_read_one, FILE_READ, 0, 0, 0 }, { file_wave_write_one, FILE_WRITE, 1, 0, 0 },
	{ file_block_read, FILE_READ, 0, 0, 0 }, { file_block_write, FILE_WRITE, 1, 0, 0 },
	PAGES_OF(queue, GNVD_OF_NAMESPACE), PAGES_OF(file, GNVD_OF_FILE), PAGES_OF(volume, GNVD_OF_VOLUME),
};
const unsigned device_calls_count = sizeof(device_calls) / sizeof(device_calls[0]);
