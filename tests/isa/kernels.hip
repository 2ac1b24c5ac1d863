// SPDX-License-Identifier: MIT
// What the ISA test compiles for every GPU: whole calls, and single primitives whose machine code is checked in isolation.
#include <gpunvme/device.h>

#ifndef __global__
#define __global__ __attribute__((global))
#endif

extern "C" __global__ void call_read(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_lane();

	out[lane] = gpunvme_read(&dq, &buf, lane * 4096ull, lane, 8);
}

extern "C" __global__ void call_write_flush(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_lane();
	int ret = gpunvme_write(&dq, &buf, lane * 4096ull, lane, 8);

	out[lane] = ret ? ret : gpunvme_flush(&dq);
}

extern "C" __global__ void call_async(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_lane();
	struct gpunvme_req req;
	int ret = gpunvme_submit_read(&dq, &buf, lane * 4096ull, lane, 8, &req);

	while (!ret && (ret = gpunvme_poll(&dq, &req)) == -GPUNVME_EAGAIN)
		ret = 0;
	out[lane] = ret;
}

// A descriptor in memory, one per lane: queues differ within a wave.
extern "C" __global__ void call_many_queues(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *buf, int *out)
{
	uint32_t lane = gpunvme_lane();

	out[lane] = gpunvme_read(&dq[lane % 3], buf, lane * 4096ull, lane, 8);
}

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
	gnvd_store_sqe(sqe, words);
#ifndef PLANT_NO_RELEASE
	gnvd_release_to64(&w, ready, value);
#else
	(void)w;
	gnvd_st64(ready, value);
#endif
#ifndef PLANT_NO_WAIT
	gnvd_doorbell(doorbell, (uint32_t)value);
#else
	*(volatile uint32_t *)doorbell = (uint32_t)value;
#endif
}

extern "C" __global__ void prim_take(uint64_t word, const uint32_t *data, uint32_t *out)
{
	uint64_t seen = gnvd_ld64(word);

#ifndef PLANT_NO_ACQUIRE
	gnvd_acquire64(word);
#endif
	*out = (uint32_t)seen + *data;
}
