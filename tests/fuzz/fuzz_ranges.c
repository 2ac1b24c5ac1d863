/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: the range that a program asks for, in each public call that takes one: of a queue, a volume, a file, pages and
 * elements of caches, copies, lists and loads, views, windows, memory and BARs.
 *
 * Input: 16 bytes for the windows and the buffer, then calls of 32 bytes: which call, how position, length and offset are made,
 * most of them near an end of what is allowed, and three words.
 * Properties: a call returns the one error (ERANGE) if and only if position + length, as numbers without an end, are more than the
 * limit. A refused call has sent nothing and changed nothing. Commands have blocks of the range that was asked for, and data in the
 * buffer. A successful call has moved all. Nothing else is touched.
 */
#include "ranges.h"

#include <errno.h>
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 16u
#define CALL 32u
#define CALLS 6u
#define STRIPE 8u /* blocks */
#define MEMBERS 2u
#define FRAMES 4u
#define PAGE_BYTES 1024u
#define FRAMES_IOVA (5ull << 32)
#define CACHE_BLOCKS 41u /* the last page has one block */
#define FILE_LBA 1000u	 /* block 0 of the file */
#define HOLE 8u		 /* blocks of the file from here on ... */
#define HOLE_END 12u	 /* ... to here are none of the drive */
#define MANY 8192u	 /* blocks without data that take few commands */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

struct ask ask;
struct ranges r;

static struct gpunvme_dq members[MEMBERS];
static struct gpunvme_dbuf member_buf[MEMBERS];
static struct gpunvme_dmember frames_of[MEMBERS];
static struct gpunvme_dextent extents[] = { { 0, FILE_LBA, HOLE }, { HOLE_END, FILE_LBA + HOLE_END, 0 } };
static uint64_t *words[9]; /* of the caches */
static uint8_t *frames[9];
static const struct range_call *now;
static struct {
	uint64_t first, count; /* blocks of the namespace, or of each member of a volume */
	uint64_t sent;
} drive;

/* ---- What is sent ---- */

static bool lies_in(uint64_t pos, uint64_t len, uint64_t first, uint64_t count)
{
	return pos >= first && (__uint128_t)pos + len <= (__uint128_t)first + count;
}

static void check_range_of_discard(const struct gpunvme_sqe *cmd)
{
	struct gpunvme_dsm_range range;

	check(lies_in(cmd->prp1, sizeof(range), w.buf.iova, w.buf.len));
	memcpy(&range, bytes + (cmd->prp1 - w.buf.iova), sizeof(range));
	check(!cmd->cdw10 && lies_in(range.slba, range.nlb, drive.first, drive.count));
	drive.sent += range.nlb;
}

void check_command(const struct gpunvme_sqe *cmd)
{
	const uint64_t slba = cmd->cdw10 | (uint64_t)cmd->cdw11 << 32, n = (cmd->cdw12 & 0xffff) + 1;
	const bool cached = now->rule >= PAGE && now->rule <= PART;

	check(now->write || cmd->opc == GPUNVME_IO_READ);
	check(!now->write || cmd->opc != GPUNVME_IO_READ || cached); /* what is changed was read */
	if (cmd->opc == GPUNVME_IO_DSM) {
		check_range_of_discard(cmd);
		return;
	}
	check(lies_in(slba, n, drive.first, drive.count));
	if (cmd->opc != GPUNVME_IO_WRITE_ZEROES)
		check(cached ? lies_in(cmd->prp1, n * BLOCK, FRAMES_IOVA, FRAMES * PAGE_BYTES)
			     : lies_in(cmd->prp1, n * BLOCK, w.buf.iova, w.buf.len));
	drive.sent += n;
}

/* ---- What there is ---- */

static uint64_t word(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static void make_queues(const uint8_t *head)
{
	w.dq.lba_count = 1 + (word(head) & (BLOCKS_MAX >> head[8] % 56)) % BLOCKS_MAX;
	w.dq.lba_first = head[9] & 1 ? BLOCKS_MAX - w.dq.lba_count : head[10];
	r.whole = w.dq;
	r.whole.lba_first = 0;
	r.whole.lba_count = BLOCKS_MAX;
	w.buf.len = BLOCK + (head[11] | (head[12] & 127u) << 8) * 4 + (head[9] >> 1 & 3); /* one block is for what is not whole */
	__asan_poison_memory_region(bytes + w.buf.len, BYTES - w.buf.len);
	for (unsigned i = 0; i < MEMBERS; i++) {
		members[i] = r.whole;
		member_buf[i] = w.buf;
	}
	r.vol = (struct gpunvme_dvol){ .head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, r.vol),
				       .flags = GPUNVME_DQ_WRITE, .members = MEMBERS, .queues = 1, .stripe_shift = 3, .lba_shift = 9, .dq = (uintptr_t)members,
				       .lba_first = w.dq.lba_first, .lba_count = w.dq.lba_count };
	r.whole_vol = r.vol;
	r.whole_vol.lba_first = 0;
	r.whole_vol.lba_count = BLOCKS_MAX;
	r.vbuf = (struct gpunvme_dvbuf){ w.buf.base, w.buf.len, (uintptr_t)member_buf, 0 };
}

/* A file with a hole, small or as large as can be, that ends in a block or with one. */
static void make_file(const uint8_t *head)
{
	extents[1].nblocks = head[9] & 8 ? BLOCKS_MAX - FILE_LBA - HOLE_END : 100;
	r.file = (struct gpunvme_dfile){ .head = GPUNVME_HEAD(GPUNVME_KIND_FILE, r.file),
					 .flags = GPUNVME_DQ_WRITE, .nsid = w.dq.nsid, .lba_shift = 9, .extents = 2,
					 .table = (uintptr_t)extents, .bytes = (HOLE_END + extents[1].nblocks) * BLOCK - head[13] };
}

static void make_cache(struct gpunvme_dpages *cache, unsigned number, uint32_t kind, unsigned of, const uint8_t *head)
{
	const unsigned pages = (CACHE_BLOCKS * BLOCK + PAGE_BYTES - 1) / PAGE_BYTES;

	words[number] = calloc(sizeof(struct gpunvme_cache_state) / 8 + pages + 3 * FRAMES, 8);
	frames[number] = calloc(FRAMES, PAGE_BYTES);
	check(words[number] && frames[number]);
	*cache = (struct gpunvme_dpages){ .head = GPUNVME_HEAD((uint16_t)kind, *cache), .nsid = w.dq.nsid,
					  .flags = number % 3 == 2 ? GPUNVME_DPAGES_WRITABLE : 0, .frames = FRAMES, .lba_shift = 9,
					  .page_shift = 10, .members = MEMBERS, .state = (uintptr_t)words[number], .lba_count = CACHE_BLOCKS };
	cache->table = cache->state + sizeof(struct gpunvme_cache_state);
	cache->frame = cache->table + 8 * pages;
	cache->buf = (struct gpunvme_dbuf){ .base = (uintptr_t)frames[number], .len = FRAMES * PAGE_BYTES, .iova = FRAMES_IOVA };
	for (unsigned i = 0; i < MEMBERS; i++)
		frames_of[i] = (struct gpunvme_dmember){ .buf = { .len = FRAMES * PAGE_BYTES, .iova = FRAMES_IOVA }, .stripe_shift = 3 };
	if (of == GNVD_OF_FILE) /* up to the end of a small one, or of a large one its first */
		cache->lba_first = extents[1].nblocks == 100 ? HOLE_END + 100 - CACHE_BLOCKS : 2;
	else
		cache->lba_first = head[14] & 1 ? (BLOCKS_MAX - CACHE_BLOCKS) & ~1ull : head[14];
	cache->source = of == GNVD_OF_FILE ? (uintptr_t)&r.file : of == GNVD_OF_VOLUME ? (uintptr_t)frames_of : 0;
}

static void make_caches(const uint8_t *head)
{
	for (unsigned of = 0; of < 3; of++) {
		make_cache(&r.pages[of], 3 * of, GPUNVME_KIND_PAGES + of, of, head);
		make_cache(&r.ahead[of], 3 * of + 1, (GPUNVME_KIND_PAGES + of) | GPUNVME_KIND_PREFETCH, of, head);
		make_cache(&r.writable[of], 3 * of + 2, GPUNVME_KIND_PAGES + of, of, head);
	}
}

/* ---- What is asked ---- */

static bool is_of_blocks(enum rule rule)
{
	return rule == WINDOW || rule == PAGES || (rule >= COPY && rule <= BATCH_ONLY);
}

static uint64_t window_bytes(unsigned of)
{
	const uint64_t all = CACHE_BLOCKS * BLOCK, left = r.file.bytes - r.pages[of].lba_first * BLOCK;

	return of == GNVD_OF_FILE && left < all ? left : all;
}

static uint64_t limit_of(enum rule rule, uint64_t any)
{
	switch (rule) {
	case FILE_READ:
	case FILE_WRITE:
		return r.file.bytes;
	case PAGE:
		return (CACHE_BLOCKS * BLOCK + PAGE_BYTES - 1) / PAGE_BYTES;
	case ELEMENT:
	case ELEMENTS:
		return window_bytes(now->of) / ask.unit;
	case PART:
		return PAGE_BYTES;
	case WINDOW:
	case PAGES:
		return any & 1 ? BLOCKS_MAX - any / 2 % 16 : 1 + any % BLOCKS_MAX;
	case DMABUF:
		return 4096 + (any & ~4095ull) % (INT64_MAX - 8191);
	case ADDRESS:
		return UINT64_MAX;
	default:
		return is_of_blocks(rule) ? w.dq.lba_count : w.dq.lba_count * BLOCK;
	}
}

/* A number at or near one of these: 0, an end, what is left up to an end, the largest; or any. */
static uint64_t number(unsigned how, uint64_t any, uint64_t end, uint64_t left, uint64_t step)
{
	const uint64_t near = (any % 17 - 8) * (how & 8 ? 1 : step);

	switch (how & 7) {
	case 0:
		return any % 64 * step;
	case 1:
	case 2:
		return end + near;
	case 3:
	case 4:
		return left + near;
	case 5:
		return near;
	case 6:
		return any / step * step;
	default:
		return any >> (how >> 3 & 31);
	}
}

static void make_ask(const uint8_t *at)
{
	const bool pages = now->rule == DMABUF || now->rule == ADDRESS;
	const uint64_t step = pages ? 4096 : now->rule >= PAGE || is_of_blocks(now->rule) ? 1 : BLOCK;
	const uint64_t room = is_of_blocks(now->rule) ? w.buf.len / BLOCK : w.buf.len;

	ask.unit = 4u << at[1] % 3;
	ask.limit = limit_of(now->rule, word(at + 24));
	ask.pos = number(at[2], word(at + 8), ask.limit, ask.limit - word(at + 16) % 512 * step, step);
	ask.len = number(at[3], word(at + 16), at[4] & 1 ? room : ask.limit, ask.limit - ask.pos, step);
	ask.offset = number(at[5], word(at + 24), w.buf.len, w.buf.len - ask.len * (is_of_blocks(now->rule) ? BLOCK : 1), 4);
	if (now->rule == PART) {
		ask.pos = (uint32_t)ask.pos;
		ask.len = (uint32_t)ask.len;
	}
	if (now->rule == LOAD || now->rule == BATCH || now->rule == BATCH_RANGE || now->rule == BATCH_ONLY)
		ask.len = (uint32_t)ask.len;
	if (now->rule == LOAD)
		ask.pos = 0;
	if (now->rule == PAGE || now->rule == ELEMENT)
		ask.len = 1;
}

/* ---- What must come of it ---- */

static bool fits(uint64_t pos, uint64_t len, uint64_t limit)
{
	return (__uint128_t)pos + len <= limit;
}

static int in_buffer(uint64_t offset, __uint128_t len)
{
	if ((w.buf.iova + offset) & 3)
		return -GPUNVME_EINVAL;
	return (__uint128_t)offset + len <= w.buf.len ? 0 : -GPUNVME_ERANGE;
}

static int expect_io(uint64_t unit)
{
	if ((ask.pos | ask.len) % unit || !ask.len)
		return -GPUNVME_EINVAL;
	if (!fits(ask.pos, ask.len, ask.limit))
		return -GPUNVME_ERANGE;
	if (now->special != WORKGROUP && unit == BLOCK && ask.len / BLOCK >> 32)
		return -GPUNVME_EMSGSIZE;
	switch (now->rule) {
	case QUEUE_ONLY:
	case VOLUME_ONLY:
	case BATCH_ONLY:
		return 0;
	case QUEUE_RANGE:
	case VOLUME_RANGE:
	case BATCH_RANGE:
		return in_buffer(ask.offset, sizeof(struct gpunvme_dsm_range));
	default:
		return in_buffer(ask.offset, (__uint128_t)ask.len * (BLOCK / unit));
	}
}

static int expect_file(void)
{
	if (!fits(ask.offset, ask.len, w.buf.len))
		return -GPUNVME_ERANGE;
	if (now->rule == FILE_READ)
		return 0;
	if (!ask.len || (ask.pos | ask.len) % BLOCK || (w.buf.iova + ask.offset) & 3)
		return -GPUNVME_EINVAL;
	return fits(ask.pos, ask.len, ask.limit) ? 0 : -GPUNVME_ERANGE;
}

static int expect_window(void)
{
	const uint64_t len = ask.len || ask.pos >= ask.limit ? ask.len : ask.limit - ask.pos;

	if (!len || !fits(ask.pos, len, ask.limit))
		return -ERANGE;
	return now->rule == PAGES && (__uint128_t)(len / 8 + (len % 8 != 0)) * 4096 > UINT64_MAX ? -ERANGE : 0;
}

static int expect_copy(void)
{
	if (!ask.len)
		return -EINVAL;
	return fits(ask.pos, ask.len, ask.limit) && (__uint128_t)ask.len * BLOCK <= w.buf.len ? 0 : -ERANGE;
}

static int expected(void)
{
	switch (now->rule) {
	case BATCH:
	case BATCH_RANGE:
	case BATCH_ONLY:
		return expect_io(1);
	case FILE_READ:
	case FILE_WRITE:
		return expect_file();
	case WINDOW:
	case PAGES:
		return expect_window();
	case COPY:
	case LOAD:
		return expect_copy();
	case DMABUF:
		if (!ask.len && ask.pos < ask.limit && now->run == host_calls[host_calls_count - 1].run)
			return ask.pos % 4096 ? -EINVAL : 0; /* a BAR up to its end */
		return !ask.len || (ask.pos | ask.len) % 4096 ? -EINVAL : fits(ask.pos, ask.len, ask.limit) ? 0 : -ERANGE;
	default:
		return now->rule <= VOLUME_ONLY ? expect_io(BLOCK) : fits(ask.pos, ask.len, ask.limit) ? 0 : -GPUNVME_ERANGE;
	}
}

/* ---- Calls ---- */

static void allow(uint64_t first, uint64_t count)
{
	drive.first = first;
	drive.count = count;
}

/* What a member has of the stripes that these blocks of the volume lie in. */
static void allow_members(uint64_t first, uint64_t count)
{
	const uint64_t row = STRIPE * MEMBERS, begin = first / row * STRIPE;

	allow(begin, ((first + count - 1) / row + 1) * STRIPE - begin);
}

static void allow_file(void)
{
	const uint64_t end = fits(ask.pos, ask.len, r.file.bytes) ? ask.pos + ask.len : r.file.bytes;

	if (ask.pos < end)
		allow(FILE_LBA + ask.pos / BLOCK, (end + BLOCK - 1) / BLOCK - ask.pos / BLOCK);
}

static void allow_cache(void)
{
	const uint64_t first = r.pages[now->of].lba_first;

	if (now->of == GNVD_OF_VOLUME)
		allow_members(first, CACHE_BLOCKS);
	else
		allow(first + (now->of == GNVD_OF_FILE ? FILE_LBA : 0), CACHE_BLOCKS);
}

/* Blocks that a command may have; asked of what is to be carried out. */
static void allow_asked(void)
{
	const uint64_t unit = is_of_blocks(now->rule) ? 1 : BLOCK;

	if (now->rule >= PAGE && now->rule <= PART)
		allow_cache();
	else if (now->rule == FILE_READ || now->rule == FILE_WRITE)
		allow_file();
	else if (now->rule == VOLUME || now->rule == VOLUME_RANGE || now->rule == VOLUME_ONLY)
		allow_members(w.dq.lba_first + ask.pos / unit, ask.len / unit);
	else if (now->rule == LOAD)
		allow(w.dq.lba_first, w.dq.lba_count);
	else
		allow(w.dq.lba_first + ask.pos / unit, ask.len / unit);
}

/* Is it no range, would it take a thread too long, or may it succeed in this process' memory? */
static bool is_left_out(int want)
{
	const bool no_data = now->rule == QUEUE_RANGE || now->rule == VOLUME_RANGE || now->rule == QUEUE_ONLY ||
			     now->rule == VOLUME_ONLY || now->rule == BATCH_RANGE || now->rule == BATCH_ONLY;

	if (now->special == WAVE && ask.len == GPUNVME_NO_TRANSFER)
		return true;
	if (now->rule == ADDRESS)
		return !want || !ask.pos;
	return !want && no_data && ask.len / (is_of_blocks(now->rule) ? 1 : BLOCK) > MANY;
}

static void check_result(int ret, int want)
{
	const bool moves = now->rule < FILE_READ || now->rule == COPY || now->rule >= BATCH;
	const bool may_fail = now->rule >= FILE_READ && now->rule <= PART;

	if (now->rule == ADDRESS)
		check(ret < 0);
	else if (want)
		check(ret == want && !w.commands);
	else
		check(!ret || (now->special == ONE && ret == -GPUNVME_EMSGSIZE) || (may_fail && ret != -GPUNVME_ERANGE));
	check_error(ret == -EFAULT ? 0 : ret);
	if (!ret && moves && now->rule < ADDRESS)
		check(drive.sent == ask.len / (is_of_blocks(now->rule) ? 1 : BLOCK));
}

/* Return: false when a command may still come. */
static bool call(const uint8_t *at)
{
	const unsigned which = at[0] % (device_calls_count + host_calls_count);
	int want, ret;

	now = which < device_calls_count ? &device_calls[which] : &host_calls[which - device_calls_count];
	make_ask(at);
	want = expected();
	if (is_left_out(want))
		return true;
	drive.count = drive.sent = 0;
	if (!want || now->rule == PART) /* the page is read before */
		allow_asked();
	ask.memory = calloc(1, want ? 16 : now->rule == ELEMENTS ? ask.len * ask.unit : ask.unit);
	check(ask.memory != NULL);
	begin_call();
	ret = now->run();
	check_result(ret, want);
	free(ask.memory);
	return end_call();
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	host_init();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t honest[QUEUE_BYTES + 33] = { 5, 6, 31 };
	const uint8_t *at = data + HEAD, *end = data + size;

	if (size < HEAD + CALL || size > HEAD + CALLS * CALL)
		return 0;
	begin_queue(honest, honest + sizeof(honest));
	make_queues(data);
	make_file(data);
	make_caches(data);
	for (; end - at >= (ptrdiff_t)CALL && call(at); at += CALL)
		;
	for (unsigned i = 0; i < 9; i++) {
		free(words[i]);
		free(frames[i]);
	}
	end_queue();
	return 0;
}
