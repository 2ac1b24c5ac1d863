/* SPDX-License-Identifier: MIT */
/* CPU threads that read without end, each its own part of a buffer, until the test stops them or a read fails. */
#ifndef TESTS_VM_LANES_H
#define TESTS_VM_LANES_H

#include <pthread.h>
#include <unistd.h>
#include <gpunvme/device.h>
#include "util/clock.h"

#define LANES 4u
#define SOON_NS (10000 * GNV_NS_PER_MS)
#define HANG_NS (60000 * GNV_NS_PER_MS) /* threads that work do something within that, on a busy machine, too */

static struct lanes {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	unsigned rounds; /* atomic */
	unsigned ended;	 /* atomic: threads */
	bool stop;	 /* atomic */
	int ret[LANES];
	pthread_t thread[LANES];
} lanes;

static void *lane_main(void *arg)
{
	unsigned lane = (unsigned)(uintptr_t)arg;
	int ret = 0;

	while (!ret && !__atomic_load_n(&lanes.stop, __ATOMIC_RELAXED)) {
		ret = gpunvme_read(lanes.dq, lanes.dbuf, lane * 65536, (uint64_t)(lane * 128) << lanes.dq->lba_shift, 65536);
		__atomic_fetch_add(&lanes.rounds, 1, __ATOMIC_RELAXED);
	}
	lanes.ret[lane] = ret;
	__atomic_fetch_add(&lanes.ended, 1, __ATOMIC_RELAXED);
	return NULL;
}

static bool lanes_all_ended(void)
{
	return __atomic_load_n(&lanes.ended, __ATOMIC_RELAXED) == LANES;
}

/* Or until they have all ended. */
static void lanes_wait(unsigned rounds)
{
	unsigned from = __atomic_load_n(&lanes.rounds, __ATOMIC_RELAXED);
	uint64_t start = gnv_clock_ns();

	while (__atomic_load_n(&lanes.rounds, __ATOMIC_RELAXED) - from < rounds && !lanes_all_ended()) {
		if (gnv_clock_ns() - start > HANG_NS)
			fail_msg("lanes hang: %u of %u rounds", __atomic_load_n(&lanes.rounds, __ATOMIC_RELAXED) - from, rounds);
		usleep(1000);
	}
}

static void lanes_begin(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf)
{
	lanes = (struct lanes){ .dq = dq, .dbuf = dbuf };
	for (unsigned i = 0; i < LANES; i++)
		assert_int_equal(pthread_create(&lanes.thread[i], NULL, lane_main, (void *)(uintptr_t)i), 0);
	lanes_wait(100);
}

static void lanes_end(void)
{
	__atomic_store_n(&lanes.stop, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < LANES; i++)
		pthread_join(lanes.thread[i], NULL);
}

#endif
