/* SPDX-License-Identifier: MIT */
/*
 * A doorbell that rings while other I/O is outstanding is seen at once. The kernel is made slow by keeping a completion back; then
 * the doorbell rings at the worst moment, when the controller has just begun to sleep in io_uring. The best of many turns tells how
 * long it sleeps whatever else the machine does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/rawhost.h"
#include "soft/engine/threads.h"
#include "util/clock.h"

#define TURNS 100u
#define QUIET_WAITS 8u /* sleeps of the controller before the doorbell rings: they used to grow to half a millisecond */
#define AT_ONCE_NS 250000u
#define EXPECTED_MS 1000u /* IO_HOPE_NS of lib/soft/engine/rest.c: then it sleeps longer whatever rings */

static struct {
	bool keep;	     /* what completes next is kept back (atomic) */
	struct gnv_uring_done kept;
	bool have;	     /* something is kept back (atomic) */
	unsigned waits;	     /* of the server, since the last command (atomic) */
	bool ring;	     /* at the next wait but QUIET_WAITS (atomic) */
	uint64_t rung;	     /* when (atomic) */
	unsigned looked_for; /* microseconds of a wait; 0 once there was one (atomic) */
} mock;

unsigned __real_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);
unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);
void __real_gnv_uring_wait(struct gnv_uring *ring, unsigned usec);
void __wrap_gnv_uring_wait(struct gnv_uring *ring, unsigned usec);

/* Runs on the thread of the server, as the next one does. */
unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max)
{
	unsigned n;

	if (__atomic_load_n(&mock.have, __ATOMIC_ACQUIRE) && !__atomic_load_n(&mock.keep, __ATOMIC_ACQUIRE)) {
		done[0] = mock.kept;
		__atomic_store_n(&mock.have, false, __ATOMIC_RELEASE);
		return 1;
	}
	n = __real_gnv_uring_reap(ring, done, max);
	if (n && __atomic_load_n(&mock.keep, __ATOMIC_ACQUIRE) && !__atomic_load_n(&mock.have, __ATOMIC_ACQUIRE)) {
		mock.kept = done[--n];
		__atomic_store_n(&mock.have, true, __ATOMIC_RELEASE);
	}
	return n;
}

void __wrap_gnv_uring_wait(struct gnv_uring *ring, unsigned usec)
{
	unsigned waits = __atomic_add_fetch(&mock.waits, 1, __ATOMIC_ACQ_REL);

	if (usec == __atomic_load_n(&mock.looked_for, __ATOMIC_ACQUIRE))
		__atomic_store_n(&mock.looked_for, 0, __ATOMIC_RELEASE);
	if (waits > QUIET_WAITS && __atomic_exchange_n(&mock.ring, false, __ATOMIC_ACQ_REL)) {
		__atomic_store_n(&mock.rung, gnv_soft_now(), __ATOMIC_RELEASE);
		rawhost_ring_sq(&host, &host.io, host.io.tail);
	}
	__real_gnv_uring_wait(ring, usec);
}

/* One read, while another is outstanding. Return: nanoseconds from the doorbell to its completion. */
static uint64_t turn(const struct gpunvme_sqe *read)
{
	uint16_t cid = rawhost_put(&host.io, read);
	struct gpunvme_cqe cqe;
	uint64_t end;

	__atomic_store_n(&mock.waits, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&mock.ring, true, __ATOMIC_RELEASE);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	end = gnv_soft_now();
	assert_int_equal(cqe.cid, cid);
	assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, 0);
	return end - __atomic_load_n(&mock.rung, __ATOMIC_ACQUIRE);
}

static void doorbell_does_not_wait_behind_slow_io(void **state)
{
	struct gpunvme_sqe read = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	uint64_t best = UINT64_MAX, took, sum = 0;
	struct gpunvme_cqe cqe;
	uint16_t slow;
	unsigned i;

	(void)state;
	__atomic_store_n(&mock.keep, true, __ATOMIC_RELEASE);
	slow = rawhost_submit(&host, &host.io, &read);
	for (i = 0; i < TURNS; i++) {
		took = turn(&read);
		sum += took;
		if (took < best)
			best = took;
	}
	printf("figure: a doorbell rung as the controller went to sleep was answered after %.0f us at best, %.0f us on average\n",
	       (double)best / 1e3, (double)sum / TURNS / 1e3);
	__atomic_store_n(&mock.keep, false, __ATOMIC_RELEASE);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.cid, slow);
	assert_true(best < AT_ONCE_NS);
}

/* Does the controller sleep for so long, while it expects the end of a command any moment? */
static bool sleeps(unsigned us)
{
	struct gnv_deadline deadline = gnv_deadline_in(EXPECTED_MS);
	bool seen;

	__atomic_store_n(&mock.looked_for, us, __ATOMIC_RELEASE);
	do
		seen = !__atomic_load_n(&mock.looked_for, __ATOMIC_ACQUIRE);
	while (!seen && gnv_deadline_poll_again(&deadline));
	return seen;
}

static void reap_one(void)
{
	struct gpunvme_cqe cqe;

	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
}

/* Of a host that has one command at a time the controller is not woken by timers; when one rings meanwhile it expects that again. */
static void no_doorbell_is_expected_where_none_rings(void **state)
{
	struct gpunvme_sqe read = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	bool longer = false, shortly = false;
	unsigned i;

	(void)state;
	for (i = 0; i < TURNS && !longer; i++) { /* on a busy machine it has not slept often enough when it gives up expecting */
		__atomic_store_n(&mock.keep, true, __ATOMIC_RELEASE);
		rawhost_submit(&host, &host.io, &read);
		longer = sleeps(150);
		__atomic_store_n(&mock.keep, longer, __ATOMIC_RELEASE);
		if (!longer)
			reap_one();
	}
	assert_true(longer);
	__atomic_store_n(&mock.looked_for, 20, __ATOMIC_RELEASE);
	for (i = 0; i < TURNS && !shortly; i++) { /* on a busy machine it wakes up late, and sleeps longer for that reason */
		rawhost_submit(&host, &host.io, &read);
		reap_one();
		gnv_sleep_ms(1); /* it goes to sleep some time after the last work */
		shortly = !__atomic_load_n(&mock.looked_for, __ATOMIC_ACQUIRE);
	}
	assert_true(shortly);
	__atomic_store_n(&mock.keep, false, __ATOMIC_RELEASE);
	reap_one();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RAWHOST_TEST(doorbell_does_not_wait_behind_slow_io),
		RAWHOST_TEST(no_doorbell_is_expected_where_none_rings),
	};

	return cmocka_run_group_tests_name("controller_doorbell", tests, NULL, NULL);
}
