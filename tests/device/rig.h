/* SPDX-License-Identifier: MIT */
/* The queue of tests/common/rig.h with a mini controller: what the tests of the device header share. */
#ifndef TESTS_DEVICE_RIG_H
#define TESTS_DEVICE_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include "common/rig.h"

#include <cmocka.h>

static inline void rig_start(struct rig *r)
{
	mini_start(&r->ctrl);
}

/* Stop the controller and check what must hold for every well-behaved run; `idle`: nothing may be left in flight. */
static inline void rig_end(struct rig *r, bool idle)
{
	mini_stop(&r->ctrl);
	assert_int_equal(r->ctrl.garbage, 0);
	assert_true(r->state->fetched <= r->state->pub && r->state->pub <= r->state->resv);
	assert_true(r->state->resv - r->state->fetched < 1u << r->dq.sq_shift);
	if (idle) {
		assert_int_equal(rig_free_cids(r), r->dq.cids);
		assert_int_equal(r->state->pub, r->state->resv);
		assert_int_equal(r->ctrl.fetched, r->ctrl.completed);
	}
	rig_free(r);
}

/* Kernels carry GPUNVME_DEVICE, so that tests/gfx finds them and runs them as machine code. There threads leave a loop together. */
#define RIG_ANY_LANE(condition) (condition)
#define RIG_NAP_US(us) nanosleep(&(struct timespec){ 0, (long)(us) * 1000 }, NULL)

/* What kernels use next to the queue: tests/gfx has to know all memory. RIG_WRITTEN: the controller writes it. */
#ifndef RIG_MEMORY
#define RIG_MEMORY(name, base, bytes, flags) ((void)0)
#define RIG_FORGET(base) ((void)0)
#endif

/* A program whose threads are slow counts less. */
#ifdef SLOW_LANES
#define RIG_COUNT(usual, slow) (slow)
#else
#define RIG_COUNT(usual, slow) (usual)
#endif

/* What gpunvme_queue_stop() does. */
static inline void rig_stop(struct rig *r, uint32_t stop)
{
	__atomic_store_n(&r->stop, stop, __ATOMIC_RELEASE);
	if (!stop)
		RIG_NAP_US(1000);
}

/* Ticks of the thread clock. */
static inline uint64_t rig_ms(uint64_t ms)
{
	return ms * 1000000;
}

#endif
