/* SPDX-License-Identifier: MIT */
#include "fronts.h"

#include <gpunvme/device.h>

#if defined(GNVD_CPU)
#include <stddef.h>
#define FN static inline
#define PUBLIC __attribute__((visibility("default")))
/* Launched from here, because threads and their launcher must be in one program. */
#define KERNEL(name)                                                                                                               \
	FN void body_##name(const struct front_args *a);                                                                           \
	extern const size_t name##_args;                                                                                           \
	PUBLIC const size_t name##_args = sizeof(struct front_args);                                                              \
	static void run_##name(void *args)                                                                                         \
	{                                                                                                                          \
		body_##name((const struct front_args *)args);                                                                     \
	}                                                                                                                          \
	PUBLIC int name(uint32_t lanes, uint32_t width, void *args);                                                              \
	int name(uint32_t lanes, uint32_t width, void *args)                                                                      \
	{                                                                                                                          \
		return gpunvme_cpu_launch(lanes, width, run_##name, args);                                                        \
	}                                                                                                                          \
	FN void body_##name(const struct front_args *a)
#else
#define FN static inline __attribute__((always_inline)) __attribute__((device))
#define KERNEL(name)                                                                                                               \
	FN void body_##name(const struct front_args *a);                                                                           \
	extern "C" __attribute__((global, launch_bounds(256))) void name(struct front_args args)                                  \
	{                                                                                                                          \
		body_##name(&args);                                                                                                \
	}                                                                                                                          \
	FN void body_##name(const struct front_args *a)
#endif

FN void answer(const struct front_args *a, int status)
{
	((int32_t *)a->out)[gpunvme_thread_id()] = status;
}

FN uint64_t part(const struct front_args *a)
{
	return (uint64_t)gpunvme_thread_id() * a->nblocks << a->dq.lba_shift;
}

KERNEL(front_lane)
{
	uint64_t lba = gpunvme_thread_id() * a->nblocks;
	int ret = gpunvme_write(&a->dq, &a->dbuf, part(a), lba << a->dq.lba_shift, (uint64_t)a->nblocks << a->dq.lba_shift, 0);

	answer(a, ret ? ret
		      : gpunvme_read(&a->dq, &a->dbuf, a->half + part(a), lba << a->dq.lba_shift,
				     (uint64_t)a->nblocks << a->dq.lba_shift));
}

/* Every thread at another moment, in a loop of its own. */
KERNEL(front_diverged)
{
	uint64_t lba = gpunvme_thread_id() * a->nblocks, i;
	int ret = 0;

	for (i = 0; i <= gpunvme_thread_id() % 7 && !ret; i++) {
		if ((gpunvme_thread_id() + i) % 3)
			ret = gpunvme_write(&a->dq, &a->dbuf, part(a), lba << a->dq.lba_shift,
					    (uint64_t)a->nblocks << a->dq.lba_shift, 0);
		else
			ret = gpunvme_flush(&a->dq);
	}
	ret = ret ? ret
		  : gpunvme_write(&a->dq, &a->dbuf, part(a), lba << a->dq.lba_shift, (uint64_t)a->nblocks << a->dq.lba_shift, 0);
	answer(a, ret ? ret
		      : gpunvme_read(&a->dq, &a->dbuf, a->half + part(a), lba << a->dq.lba_shift,
				     (uint64_t)a->nblocks << a->dq.lba_shift));
}

KERNEL(front_wave)
{
	uint64_t lba = gpunvme_thread_id() * a->nblocks;
	int odd = gpunvme_thread_id() & 1, ret;

	ret = gpunvme_wave_write(&a->dq, &a->dbuf, part(a), lba << a->dq.lba_shift,
				 odd ? GPUNVME_NO_TRANSFER : (uint64_t)a->nblocks << a->dq.lba_shift, 0);
	if (odd) /* half of the threads take another way for a while */
		ret = gpunvme_write(&a->dq, &a->dbuf, part(a), lba << a->dq.lba_shift, (uint64_t)a->nblocks << a->dq.lba_shift, 0);
	answer(a, ret ? ret
		      : gpunvme_wave_read(&a->dq, &a->dbuf, a->half + part(a), lba << a->dq.lba_shift,
					  (uint64_t)a->nblocks << a->dq.lba_shift));
}

/* Block by block, all in flight at once, up to four. Return: the first failure, or how many were answered twice. */
KERNEL(front_any)
{
	uint32_t lane = gpunvme_thread_id(), n = a->nblocks < 4 ? (uint32_t)a->nblocks : 4, index = 0, i, open = 0;
	uint64_t lba = lane * a->nblocks, block = 1ull << a->dq.lba_shift;
	struct gpunvme_req req[4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };
	int ret = gpunvme_write(&a->dq, &a->dbuf, part(a), lba << a->dq.lba_shift, (uint64_t)n << a->dq.lba_shift, 0), err;

	for (i = 0; i < n && !ret; i++) {
		err = gpunvme_submit_read(&a->dq, &a->dbuf, a->half + part(a) + i * block, (lba + i) << a->dq.lba_shift,
					  1ull << a->dq.lba_shift, &req[i]);
		if (err == -GPUNVME_EAGAIN) /* full: have it done now */
			err = gpunvme_read(&a->dq, &a->dbuf, a->half + part(a) + i * block, (lba + i) << a->dq.lba_shift,
					   1ull << a->dq.lba_shift);
		else
			open |= 1u << i;
		ret = err;
	}
	while (open && !ret) {
		ret = gpunvme_wait_any(&a->dq, req, n, 0, &index);
		if (index >= n || !(open >> index & 1))
			ret = 12345;
		else
			open &= ~(1u << index++);
	}
	answer(a, ret);
}

KERNEL(front_volume)
{
	uint64_t lba = 3 + gpunvme_thread_id() * a->nblocks;
	int ret = gpunvme_write(&a->vol, &a->vbuf, part(a), lba << a->vol.lba_shift, (uint64_t)a->nblocks << a->vol.lba_shift, 0);

	ret = ret ? ret : gpunvme_flush(&a->vol);
	answer(a, ret ? ret
		      : gpunvme_read(&a->vol, &a->vbuf, a->half + part(a), lba << a->vol.lba_shift,
				     (uint64_t)a->nblocks << a->vol.lba_shift));
}

KERNEL(front_block)
{
	int ret = gpunvme_block_write(&a->vol, &a->vbuf, 0, 5ull << a->vol.lba_shift, (uint64_t)a->nblocks << a->vol.lba_shift, 0);

	answer(a, ret ? ret
		      : gpunvme_block_read(&a->vol, &a->vbuf, a->half, 5ull << a->vol.lba_shift,
					   (uint64_t)a->nblocks << a->vol.lba_shift));
}

KERNEL(front_serve)
{
	uint32_t lane = gpunvme_thread_id(), groups = gpunvme_thread_count() / gnvd_block_lanes();
	uint64_t lba = lane * a->nblocks, i;
	int ret = 0;

	if (gnvd_block_number() == 0) {
		answer(a, gpunvme_poll_queue((const struct gpunvme_dq *)gnvd_lane_memory(a->served), 1, a->stop));
		return;
	}
	for (i = 0; i < a->rounds && !ret; i++)
		ret = gpunvme_write(&a->dq, &a->dbuf, part(a), lba << a->dq.lba_shift, (uint64_t)a->nblocks << a->dq.lba_shift, 0);
	ret = ret ? ret
		  : gpunvme_read(&a->dq, &a->dbuf, a->half + part(a), lba << a->dq.lba_shift,
				 (uint64_t)a->nblocks << a->dq.lba_shift);
	answer(a, ret);
	gnvd_add64(a->stop + 8, 1);
	if (lane == gnvd_block_lanes()) { /* the first that does not serve waits for the others */
		while (gnvd_ld64(a->stop + 8) < (uint64_t)(groups - 1) * gnvd_block_lanes())
			gnvd_pause(1000);
		gnvd_st32(a->stop, 1);
	}
}
