// SPDX-License-Identifier: MIT
// What the ISA test compiles for every GPU: whole calls, and single primitives whose machine code is checked in isolation.
#include <gpunvme/device.h>

#ifndef __global__
#define __global__ __attribute__((global))
#endif
#if defined(__HIP__)
#define LANES_AT_MOST(n) __attribute__((amdgpu_flat_work_group_size(1, n)))
#else
#define LANES_AT_MOST(n)
#endif

#ifdef PLANT_CALL
extern "C" __attribute__((noinline)) __attribute__((device)) int planted(int v)
{
	__asm__ volatile("" ::: "memory");
	return v + 1;
}

extern "C" __global__ void plant_call(int *out)
{
	*out = planted(*out);
}
#endif

#ifdef PLANT_STACK
extern "C" __global__ void plant_stack(int *out, const int *in)
{
	int copy[64];

	for (int i = 0; i < 64; i++)
		copy[i] = in[i];
	*out = copy[in[64] & 63] + copy[in[65] & 63];
}
#endif

#ifdef PLANT_REGISTERS
extern "C" __global__ void plant_registers(int *data)
{
	int kept[160];

	for (int i = 0; i < 160; i++)
		kept[i] = data[64 * i + gpunvme_thread_id()];
	__asm__ volatile("" ::: "memory");
	for (int i = 0; i < 160; i++)
		data[64 * i + gpunvme_thread_id()] = kept[i] + kept[159 - i];
}
#endif

extern "C" __global__ void prim_ring_load(uint64_t at, uint32_t *out)
{
	*out = gnvd_load_ring32(at);
}

extern "C" __global__ void prim_publish(uint64_t sqe, uint64_t ready, uint64_t doorbell, uint64_t value)
{
	uint32_t words[16];
	struct gnvd_wave w = { 1, 1, 0, 0, 0 };

	for (uint32_t i = 0; i < 16; i++)
		words[i] = (uint32_t)value + i;
	gnvd_store_sqe(sqe, words, 1);
#ifndef PLANT_NO_RELEASE
	gnvd_release_to64(&w, ready, value);
#else
	(void)w;
	gnvd_st64(ready, value);
#endif
#ifndef PLANT_NO_WAIT
	gnvd_order_system();
	gnvd_doorbell(doorbell, (uint32_t)value);
#else
	*(volatile uint32_t *)doorbell = (uint32_t)value;
#endif
}

extern "C" __global__ void prim_take(uint64_t word, const uint32_t *data, uint32_t *out)
{
#ifndef PLANT_NO_ACQUIRE
	uint64_t seen = gnvd_take64(word, 0);
#else
	uint64_t seen = gnvd_ld64(word);
#endif

	*out = (uint32_t)seen + *data;
}

extern "C" __global__ void prim_refer(struct gpunvme_dq dq, uint64_t word, const uint64_t *data, uint64_t *out)
{
	struct gnvd_wave w;
	uint64_t v;

	gnvd_enter(&w, &dq, GNVD_SITE_PAGE);
	v = gnvd_fetch_add_acquire64(word, 1);
#ifndef PLANT_NO_MEET_ACQUIRE
	gnvd_meet_acquire(&w);
#endif
	v += data[w.lane];
#ifndef PLANT_NO_MEET_RELEASE
	gnvd_meet_release(&w);
#endif
	gnvd_add_release64(word + 8, 1);
	out[w.lane] = v;
}

#ifndef PRIMS_ONLY
extern "C" __global__ void call_read(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();

	out[lane] = gpunvme_read(&dq, &buf, lane * 4096ull, lane * 512ull, 4096);
}

extern "C" __global__ void call_write_flush(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	int ret = gpunvme_write(&dq, &buf, lane * 4096ull, lane * 512ull, 4096, 0);

	out[lane] = ret ? ret : gpunvme_flush(&dq);
}

extern "C" __global__ void call_forced(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	int ret = gpunvme_write(&dq, &buf, lane * 4096ull, lane * 512ull, 4096, GPUNVME_FUA);

	out[lane] = ret ? ret : gpunvme_discard(&dq, &buf, lane * 16ull, lane * 4096ull, 4096);
}

extern "C" __global__ void call_async(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	struct gpunvme_req req;
	int ret = gpunvme_submit_read(&dq, &buf, lane * 4096ull, lane * 512ull, 4096, &req);

	while (!ret && (ret = gpunvme_poll(&dq, &req)) == -GPUNVME_EAGAIN)
		ret = 0;
	out[lane] = ret;
}

// A descriptor in memory, one per lane: queues differ within a wave.
extern "C" __global__ void call_many_queues(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();

	out[lane] = gpunvme_read(&dq[lane % 3], buf, lane * 4096ull, lane * 512ull, 4096);
}

extern "C" __global__ void call_wave(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	int ret = gpunvme_wave_read(&dq, &buf, lane * 4096ull, lane * 512ull, lane % 3 ? 4096 : GPUNVME_NO_TRANSFER);

	out[lane] = ret ? ret : gpunvme_wave_write(&dq, &buf, lane * 4096ull, lane * 512ull, 4096, 0);
}

extern "C" __global__ void call_wave_one(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	out[gpunvme_thread_id()] = gpunvme_wave_read_one(&dq, &buf, 0, 0, 4096);
}

extern "C" __global__ void call_wait_any(struct gpunvme_dq dq, struct gpunvme_req *req, uint32_t count, int *out)
{
	uint32_t lane = gpunvme_thread_id(), index = 0;

	out[2 * lane] = gpunvme_wait_any(&dq, req + lane * count, count, dq.ticks_per_ms, &index);
	out[2 * lane + 1] = (int)index;
}

extern "C" __global__ void call_poll_queue(const struct gpunvme_dq *dq, uint32_t count, uint64_t stop, int *out)
{
	out[gpunvme_thread_id()] = gpunvme_poll_queue(dq, count, stop);
}

extern "C" __global__ void call_volume(struct gpunvme_dvol v, struct gpunvme_dvbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	int ret = gpunvme_read(&v, &buf, lane * 4096ull, lane * 512ull, 4096);

	ret = ret ? ret : gpunvme_write(&v, &buf, lane * 4096ull, lane * 512ull, 4096, 0);
	out[lane] = ret ? ret : gpunvme_flush(&v);
}

extern "C" __global__ void call_volume_async(struct gpunvme_dvol v, struct gpunvme_dvbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	struct gpunvme_req req;
	int ret = gpunvme_submit_read(&v, &buf, lane * 4096ull, lane * 4096ull, 4096, &req);

	while (!ret && (ret = gpunvme_poll(&v, &req)) == -GPUNVME_EAGAIN)
		ret = 0;
	out[lane] = ret;
}

extern "C" __global__ void call_volume_wave(struct gpunvme_dvol v, struct gpunvme_dvbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();

	out[lane] = gpunvme_wave_read(&v, &buf, lane * 4096ull, lane * 4096ull, lane % 3 ? 4096 : GPUNVME_NO_TRANSFER);
}

extern "C" __global__ void call_volume_wave_one(struct gpunvme_dvol v, struct gpunvme_dvbuf buf, int *out)
{
	out[gpunvme_thread_id()] = gpunvme_wave_read_one(&v, &buf, 0, 0, 4096);
}

extern "C" __global__ void call_file(struct gpunvme_dq dq, struct gpunvme_dfile file, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	struct gpunvme_cursor cur = { &dq, &file, lane * 4096ull, 0, 0, 0 };

	out[lane] = gpunvme_read(&cur, &buf, lane * 5000ull, lane * 5000ull, 5000);
}

extern "C" __global__ void call_file_write(struct gpunvme_dq dq, struct gpunvme_dfile file, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	struct gpunvme_cursor cur = { &dq, &file, 0, 0, 0, 0 };

	out[lane] = gpunvme_write(&cur, &buf, lane * 4096ull, lane * 4096ull, 4096, 0);
}

extern "C" __global__ void call_file_async(struct gpunvme_dq dq, struct gpunvme_dfile file, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	struct gpunvme_cursor cur = { &dq, &file, 0, 0, 0, 0 };
	struct gpunvme_req req;
	int ret = gpunvme_submit_read(&cur, &buf, lane * 4096ull, lane * 4096ull, 4096, &req);

	while (!ret && req.tag && (ret = gpunvme_poll(&dq, &req)) == -GPUNVME_EAGAIN)
		ret = 0;
	out[lane] = ret;
}

extern "C" __global__ void call_file_wave(struct gpunvme_dq dq, struct gpunvme_dfile file, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	struct gpunvme_cursor cur = { &dq, &file, lane * 4096ull, 0, 0, 0 };

	out[lane] = gpunvme_wave_read(&cur, &buf, lane * 5000ull, lane * 5000ull, 5000);
}

extern "C" __global__ void call_file_wave_one(struct gpunvme_dq dq, struct gpunvme_dfile file, struct gpunvme_dbuf buf, uint64_t pos, int *out)
{
	struct gpunvme_cursor cur = { &dq, &file, 0, 0, 0, 0 };

	out[gpunvme_thread_id()] = gpunvme_wave_read_one(&cur, &buf, 4096, pos, 5000);
}

extern "C" __global__ LANES_AT_MOST(256) void call_file_block(struct gpunvme_dq dq, struct gpunvme_dfile file, struct gpunvme_dbuf buf, uint64_t len, int *out)
{
	struct gpunvme_cursor cur = { &dq, &file, 0, 0, 0, 0 };

	out[gpunvme_thread_id()] = gpunvme_block_read(&cur, &buf, 1 << 20, 0, len);
}

extern "C" __global__ void call_files(struct gpunvme_dfiles files, const uint64_t *hash, uint64_t *out)
{
	uint32_t lane = gpunvme_thread_id(), number = 0;
	struct gpunvme_dfile file;
	int ret = gpunvme_files_find_hash(&files, hash[lane], &number);

	ret = ret ? ret : gpunvme_files_get(&files, number, &file);
	out[lane] = ret ? (uint64_t)ret : file.table + file.extents + file.bytes;
}

extern "C" __global__ void call_array(struct gpunvme_dq dq, struct gpunvme_dpages pages, const uint64_t *index, uint64_t *out)
{
	gpunvme::array<uint64_t> a({ &dq, &pages });
	uint32_t lane = gpunvme_thread_id();

	out[lane] = a[index[lane]] + (uint64_t)a.error();
}

extern "C" __global__ void call_range(struct gpunvme_dq dq, struct gpunvme_dpages pages, uint64_t *to, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	const struct gpunvme_cached_queue src = { &dq, &pages };

	out[lane] = gpunvme_array_load_range(&src, 100ull * lane, 100, 8, to + 100ull * lane);
}

extern "C" __global__ void call_page(struct gpunvme_dq dq, struct gpunvme_dpages pages, uint64_t *out)
{
	struct gpunvme_page page = { 0, 0 };
	uint32_t lane = gpunvme_thread_id();
	const struct gpunvme_cached_queue src = { &dq, &pages };

	out[lane] = (uint64_t)gpunvme_page_get(&src, lane / 7, &page);
	if (page.word)
		out[lane] += *(const uint64_t *)gnvd_lane_memory(page.base);
	gpunvme_page_put(&src, &page);
}

#if !defined(WITHOUT_KINDS) /* of caches; they take a third of the time */
extern "C" __global__ void call_prefetch(struct gpunvme_dq dq, struct gpunvme_dpages pages, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	const struct gpunvme_prefetch_queue src = { &dq, &pages };

	out[lane] = gpunvme_prefetch(&src, lane / 7);
}

extern "C" __global__ void call_prefetch_finish(struct gpunvme_dq dq, struct gpunvme_dpages pages, int *out)
{
	const struct gpunvme_prefetch_queue src = { &dq, &pages };

	out[gpunvme_thread_id()] = gpunvme_prefetch_finish(&src);
}

extern "C" __global__ void call_prefetch_page(struct gpunvme_dq dq, struct gpunvme_dpages pages, uint64_t *out)
{
	struct gpunvme_page page = { 0, 0 };
	uint32_t lane = gpunvme_thread_id();
	const struct gpunvme_prefetch_queue src = { &dq, &pages };

	out[lane] = (uint64_t)gpunvme_page_get(&src, lane / 7, &page);
	if (page.word)
		out[lane] += *(const uint64_t *)gnvd_lane_memory(page.base);
	gpunvme_page_put(&src, &page);
}

extern "C" __global__ void call_prefetch_array(struct gpunvme_dq dq, struct gpunvme_dpages pages, const uint64_t *index, uint64_t *out)
{
	gpunvme::array<uint64_t, gpunvme_prefetch_queue> a({ &dq, &pages });
	uint32_t lane = gpunvme_thread_id();

	out[lane] = a[index[lane]] + (uint64_t)a.error() + a.size();
}

extern "C" __global__ void call_prefetch_range(struct gpunvme_dq dq, struct gpunvme_dpages pages, uint64_t *to, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	const struct gpunvme_prefetch_queue src = { &dq, &pages };

	out[lane] = gpunvme_array_load_range(&src, 100ull * lane, 100, 8, to + 100ull * lane);
}

extern "C" __global__ void call_writable_put(struct gpunvme_dq dq, struct gpunvme_dpages pages, const uint64_t *index, uint64_t *out)
{
	gpunvme::array<uint64_t, gpunvme_writable_queue> a({ &dq, &pages });
	uint32_t lane = gpunvme_thread_id();

	a.store(index[lane], lane);
	out[lane] = (uint64_t)a.error();
}

extern "C" __global__ void call_writable_get(struct gpunvme_dq dq, struct gpunvme_dpages pages, const uint64_t *index, uint64_t *out)
{
	gpunvme::array<uint64_t, gpunvme_writable_queue> a({ &dq, &pages });
	uint32_t lane = gpunvme_thread_id();

	out[lane] = a[index[lane]] + (uint64_t)a.error();
}

extern "C" __global__ void call_writable_page(struct gpunvme_dq dq, struct gpunvme_dpages pages, uint64_t *out)
{
	struct gpunvme_page page = { 0, 0 };
	uint32_t lane = gpunvme_thread_id();
	const struct gpunvme_writable_queue src = { &dq, &pages };

	out[lane] = (uint64_t)gpunvme_page_get(&src, lane / 7, &page);
	if (page.word)
		out[lane] += *(const uint64_t *)gnvd_lane_memory(page.base);
	gpunvme_page_put(&src, &page, 0, 8);
}

extern "C" __global__ void call_writable_flush(struct gpunvme_dq dq, struct gpunvme_dpages pages, int *out)
{
	const struct gpunvme_writable_queue src = { &dq, &pages };

	out[gpunvme_thread_id()] = gpunvme_write_back(&src, gpunvme_thread_id(), gpunvme_thread_count());
}
#endif

extern "C" __global__ void call_file_array(struct gpunvme_dq dq, struct gpunvme_dpages pages, const uint64_t *index, uint64_t *out)
{
	gpunvme::array<uint64_t, gpunvme_cached_file> a({ &dq, &pages });
	uint32_t lane = gpunvme_thread_id();

	out[lane] = a[index[lane]] + (uint64_t)a.error() + a.size();
}

extern "C" __global__ void call_volume_array(struct gpunvme_dvol v, struct gpunvme_dpages pages, const uint64_t *index, uint64_t *out)
{
	gpunvme::array<uint64_t, gpunvme_cached_volume> a({ &v, &pages });
	uint32_t lane = gpunvme_thread_id();

	out[lane] = a[index[lane]] + (uint64_t)a.error() + a.size();
}

extern "C" __global__ void call_volume_page(struct gpunvme_dvol v, struct gpunvme_dpages pages, uint64_t *out)
{
	struct gpunvme_page page = { 0, 0 };
	uint32_t lane = gpunvme_thread_id();
	const struct gpunvme_cached_volume src = { &v, &pages };

	out[lane] = (uint64_t)gpunvme_page_get(&src, lane / 7, &page);
	if (page.word)
		out[lane] += *(const uint64_t *)gnvd_lane_memory(page.base);
	gpunvme_page_put(&src, &page);
}

extern "C" __global__ void call_volume_deallocate(struct gpunvme_dvol v, struct gpunvme_dvbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();

	out[lane] = gpunvme_discard(&v, &buf, lane * 16ull, lane * 512000ull, 512000);
}

// Whole workgroups keep more in registers; of 1024 lanes they would not have enough.
extern "C" __global__ LANES_AT_MOST(256) void call_block(struct gpunvme_dvol v, struct gpunvme_dvbuf buf, uint64_t nblocks, int *out)
{
	int ret = gpunvme_block_read(&v, &buf, 0, 0, nblocks * 512);

	out[gpunvme_thread_id()] = ret ? ret : gpunvme_block_write(&v, &buf, 0, nblocks * 512, nblocks * 512, 0);
}
#endif
