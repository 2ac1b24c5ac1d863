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

/* The last block of the buffer is the lane's, for what is not whole blocks. */
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
#define GET_PAGE(name, get, source, cache, put)                                                                                    \
	static int name(void)                                                                                                      \
	{                                                                                                                          \
		struct gpunvme_page p = { 0, 0 };                                                                                  \
		int ret = get(source, cache, ask.pos, &p);                                                                         \
                                                                                                                                   \
		check(!ret == (p.word != 0));                                                                                      \
		if (!ret)                                                                                                          \
			check(!put);                                                                                               \
		return ret;                                                                                                        \
	}

/* Page 0, of which the bytes are changed. */
#define PUT_PART(name, get, put, source, cache)                                                                                    \
	static int name(void)                                                                                                      \
	{                                                                                                                          \
		struct gpunvme_page p = { 0, 0 };                                                                                  \
		int ret = get(source, cache, 0, &p), kept;                                                                         \
                                                                                                                                   \
		check(!ret);                                                                                                       \
		w.commands = 0;                                                                                                    \
		ret = put(source, cache, &p, (uint32_t)ask.pos, (uint32_t)ask.len);                                                \
		kept = p.word != 0;                                                                                                \
		check(!ret == !kept);                                                                                              \
		if (kept)                                                                                                          \
			check(!put(source, cache, &p, 0, 0));                                                                      \
		return ret;                                                                                                        \
	}

#define PLAIN(kind, source, cache, put)                                                                                            \
	GET_PAGE(kind##page_get, gpunvme_##kind##page_get, source, cache, gpunvme_##put##page_put(source, &p))                      \
	CALL(kind##array_get, gpunvme_##kind##array_get(source, cache, ask.pos, ask.unit, ask.memory))                              \
	CALL(kind##get_range, gpunvme_##kind##array_get_range(source, cache, ask.pos, ask.len, ask.unit, ask.memory))

#define AHEAD(kind, source, cache, put)                                                                                            \
	PLAIN(kind##ahead_, source, cache, put)                                                                                    \
	CALL(kind##prefetch, gpunvme_##kind##ahead_prefetch(source, cache, ask.pos))

#define WRITABLE(kind, source, cache)                                                                                              \
	GET_PAGE(kind##writable_page_get, gpunvme_##kind##writable_page_get, source, cache,                                         \
		 gpunvme_##kind##writable_page_put(source, cache, &p, 0, 0))                                                        \
	PUT_PART(kind##page_part, gpunvme_##kind##writable_page_get, gpunvme_##kind##writable_page_put, source, cache)              \
	CALL(kind##writable_get, gpunvme_##kind##writable_array_get(source, cache, ask.pos, ask.unit, ask.memory))                  \
	CALL(kind##writable_range, gpunvme_##kind##writable_array_get_range(source, cache, ask.pos, ask.len, ask.unit, ask.memory)) \
	CALL(kind##array_put, gpunvme_##kind##array_put(source, cache, ask.pos, ask.unit, ask.memory))                              \
	CALL(kind##put_range, gpunvme_##kind##array_put_range(source, cache, ask.pos, ask.len, ask.unit, ask.memory))

PLAIN(, &r.whole, &r.pages[0], )
AHEAD(, &r.whole, &r.ahead[0], )
WRITABLE(, &r.whole, &r.writable[0])
PLAIN(file_, &r.whole, &r.pages[1], )
AHEAD(file_, &r.whole, &r.ahead[1], )
WRITABLE(file_, &r.whole, &r.writable[1])
PLAIN(volume_, &r.whole_vol, &r.pages[2], volume_)
AHEAD(volume_, &r.whole_vol, &r.ahead[2], volume_)
WRITABLE(volume_, &r.whole_vol, &r.writable[2])

#define PAGES_OF(kind, of)                                                                                                         \
	{ kind##page_get, PAGE, 0, of, 0 }, { kind##array_get, ELEMENT, 0, of, 0 }, { kind##get_range, ELEMENTS, 0, of, 0 },       \
	{ kind##ahead_page_get, PAGE, 0, of, 0 }, { kind##ahead_array_get, ELEMENT, 0, of, 0 },                                    \
	{ kind##ahead_get_range, ELEMENTS, 0, of, 0 }, { kind##prefetch, PAGE, 0, of, ONE },                                         \
	{ kind##writable_page_get, PAGE, 1, of, 0 }, { kind##page_part, PART, 1, of, 0 },                                          \
	{ kind##writable_get, ELEMENT, 1, of, 0 }, { kind##writable_range, ELEMENTS, 1, of, 0 },                                   \
	{ kind##array_put, ELEMENT, 1, of, 0 }, { kind##put_range, ELEMENTS, 1, of, 0 }

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
	PAGES_OF(, GNVD_OF_NAMESPACE), PAGES_OF(file_, GNVD_OF_FILE), PAGES_OF(volume_, GNVD_OF_VOLUME),
};
const unsigned device_calls_count = sizeof(device_calls) / sizeof(device_calls[0]);
