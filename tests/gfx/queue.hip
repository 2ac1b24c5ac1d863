// SPDX-License-Identifier: MIT
// Kernels that use a queue in all ways there are. Lane results go to out[stamp]; the host knows what they must be.
#include <gpunvme/device.h>

#define GLOBAL extern "C" __attribute__((global))
#define DEVICE static inline __attribute__((device, always_inline))

#define WRONG_DATA 0x10000 // or'ed to a result: the data is not what the controller wrote

struct work {
	int *out;        // one for each command
	uint32_t rounds; // commands of the busiest lane
	uint32_t queues;
};

// What a block of stamp s starts with, as the controller writes and expects it.
DEVICE uint32_t pattern(uint64_t stamp, uint32_t word)
{
	return (uint32_t)(stamp * 2654435761u) ^ (word * 0x01000193u) ^ 0x5bd1e995u;
}

DEVICE int look(const struct gpunvme_dbuf *buf, uint64_t offset, uint64_t stamp, int ret)
{
	const uint32_t *data = (const uint32_t *)(buf->base + offset);

	return !ret && (data[0] != pattern(stamp, 0) || data[9] != pattern(stamp, 9)) ? WRONG_DATA : ret;
}

// Submitting and polling must share a loop that the lanes of a wave leave together: a lane that tries again for room would
// otherwise keep those from polling that hold what it waits for.
DEVICE int read_by_polling(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *buf, uint64_t offset,
			   uint64_t stamp)
{
	struct gpunvme_req req;
	int ret = -GPUNVME_EAGAIN, submitted = 0;

#ifdef RETRY_ALONE
	do
		ret = gpunvme_submit_read(dq, buf, offset, stamp << dq->lba_shift, 1ull << dq->lba_shift, &req);
	while (ret == -GPUNVME_EAGAIN);
	submitted = !ret;
	ret = ret ? ret : -GPUNVME_EAGAIN;
#endif
	while (gnvd_ballot(0, ret == -GPUNVME_EAGAIN)) {
		if (ret == -GPUNVME_EAGAIN && !submitted) {
			ret = gpunvme_submit_read(dq, buf, offset, stamp << dq->lba_shift, 1ull << dq->lba_shift, &req);
			submitted = !ret;
			ret = ret ? ret : -GPUNVME_EAGAIN;
		} else if (ret == -GPUNVME_EAGAIN) {
			ret = gpunvme_poll(dq, &req);
		}
	}
	return ret;
}

DEVICE int one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *buf, uint64_t offset, uint64_t stamp)
{
	uint32_t *data = (uint32_t *)(buf->base + offset);

	switch ((uint32_t)(stamp * 2654435761u) >> 20 & 3) {
	case 0:
		return look(buf, offset, stamp, read_by_polling(dq, buf, offset, stamp));
	case 1:
		data[0] = pattern(stamp, 0);
		data[9] = pattern(stamp, 9);
		return gpunvme_write(dq, buf, offset, stamp << dq->lba_shift, 1ull << dq->lba_shift, 0);
	default:
		return look(buf, offset, stamp, gpunvme_read(dq, buf, offset, stamp << dq->lba_shift, 1ull << dq->lba_shift));
	}
}

// Lanes differ in how much they do and leave early.
DEVICE uint32_t rounds_of(const struct work *work, uint32_t lane)
{
	return work->rounds - (lane * 7) % (work->rounds / 2);
}

GLOBAL void mixed(struct gpunvme_dq dq, struct gpunvme_dbuf buf, struct work work)
{
	uint32_t lane = gpunvme_thread_id(), lanes = gpunvme_thread_count(), rounds = rounds_of(&work, lane);

	for (uint32_t i = 0; i < rounds; i++)
		work.out[i * lanes + lane] = one(&dq, &buf, lane * 512ull, (uint64_t)i * lanes + lane);
}

GLOBAL void many(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *buf, struct work work)
{
	uint32_t lane = gpunvme_thread_id(), lanes = gpunvme_thread_count(), rounds = rounds_of(&work, lane);

	for (uint32_t i = 0; i < rounds; i++)
		work.out[i * lanes + lane] = one(&dq[(lane + i) % work.queues], buf, lane * 512ull, (uint64_t)i * lanes + lane);
}

// Each half of a wave of 64 lanes uses a queue of its own: leaders beyond lane 31.
GLOBAL void halves(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *buf, struct work work)
{
	uint32_t lane = gpunvme_thread_id(), lanes = gpunvme_thread_count(), rounds = rounds_of(&work, lane);

	for (uint32_t i = 0; i < rounds; i++)
		work.out[i * lanes + lane] = one(&dq[lane / 32 % work.queues], buf, lane * 512ull, (uint64_t)i * lanes + lane);
}

// Several commands of a lane in flight at once, and waits in another order.
GLOBAL void deep(struct gpunvme_dq dq, struct gpunvme_dbuf buf, struct work work)
{
	uint32_t lane = gpunvme_thread_id(), lanes = gpunvme_thread_count();
	struct gpunvme_req a, b;

	for (uint32_t i = 0; i + 1 < work.rounds; i += 2) {
		uint64_t s = (uint64_t)i * lanes + lane, t = s + lanes;
		int first, second = -GPUNVME_EAGAIN;

		first = gpunvme_submit_read(&dq, &buf, lane * 512ull, s << dq.lba_shift, 1ull << dq.lba_shift, &a);
		if (!first)
			second = gpunvme_submit_write(&dq, &buf, lane * 512ull, (uint64_t)t << dq.lba_shift, 1ull << dq.lba_shift, 0, &b);
		if (!second)
			second = gpunvme_wait(&dq, &b, 0);
		work.out[s] = first ? first : gpunvme_wait(&dq, &a, 0);
		work.out[t] = second;
	}
}
