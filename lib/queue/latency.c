/* SPDX-License-Identifier: MIT */
/* The time within which so many of the commands of a queue were completed. */
#include <gpunvme/queue.h>

/* The first time that belongs to a later bucket. */
static uint64_t bucket_end(uint32_t i)
{
	uint32_t shift = i < GPUNVME_LATENCY_STEPS ? 0 : i / GPUNVME_LATENCY_STEPS - 1;

	if (i + 1 >= GPUNVME_LATENCY_BUCKETS)
		return UINT64_MAX;
	return ((uint64_t)(i - GPUNVME_LATENCY_STEPS * shift) + 1) << shift;
}

GPUNVME_API uint64_t gpunvme_latency_ns(const struct gpunvme_queue_latency *latency, uint32_t per_million)
{
	uint64_t all = 0, seen = 0, want, end;
	uint32_t i;

	if (!latency || !latency->ticks_per_ms)
		return 0;
	for (i = 0; i < GPUNVME_LATENCY_BUCKETS; i++)
		all += latency->bucket[i];
	if (!all)
		return 0;
	per_million = per_million < 1000000 ? per_million : 1000000;
	want = all / 1000000 * per_million + (all % 1000000 * per_million + 999999) / 1000000;
	for (i = 0; i < GPUNVME_LATENCY_BUCKETS - 1; i++) {
		seen += latency->bucket[i];
		if (seen && seen >= want)
			break;
	}
	end = bucket_end(i);
	return end / latency->ticks_per_ms > UINT64_MAX / 1000000 - 1
		       ? UINT64_MAX
		       : end / latency->ticks_per_ms * 1000000 + end % latency->ticks_per_ms * 1000000 / latency->ticks_per_ms;
}
