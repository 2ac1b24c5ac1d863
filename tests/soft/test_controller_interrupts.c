/* SPDX-License-Identifier: MIT */
/* Interrupts by vector, and Interrupt Coalescing (Base Specification 5.27.1.6, 5.27.1.7): how many there are, when, and for whom. */
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

#include "common/rawhost.h"
#include "soft/engine/threads.h"

#define VECTORS 4u
#define COALESCING 0x08u
#define VECTOR 0x09u
#define CD 0x10000u
#define LONG 0xff00u	/* 25.5 ms, more than which no test relies on */
#define LONG_MS 25u
#define READS 8u
#define TOLD_NS 100000u /* so long a host that was told is not told again */

static unsigned raised[VECTORS]; /* atomic */

static void raise_vector(void *ctx, unsigned vector)
{
	(void)ctx;
	assert_true(vector < VECTORS);
	__atomic_fetch_add(&raised[vector], 1, __ATOMIC_RELEASE);
}

static unsigned raises(unsigned vector)
{
	return __atomic_load_n(&raised[vector], __ATOMIC_ACQUIRE);
}

/* A server posts and raises under its lock, so a host that polls may see a completion before its interrupt. */
static unsigned raises_of_admin(void)
{
	unsigned count;

	gnv_soft_server_lock(gnv_soft_threads(host.soft)->server[0]);
	count = raises(0);
	gnv_soft_server_unlock(gnv_soft_threads(host.soft)->server[0]);
	return count;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static void sleep_ms(unsigned ms)
{
	const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

static void wait_raises(unsigned vector, unsigned count)
{
	unsigned ms;

	for (ms = 0; raises(vector) < count && ms < RAWHOST_SOON; ms++)
		sleep_ms(1);
	assert_int_equal(raises(vector), count);
}

static uint16_t set(uint32_t fid, uint32_t value)
{
	const struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = fid, .cdw11 = value };

	return rawhost_admin(&sqe, NULL);
}

static uint16_t get(uint32_t fid, uint32_t cdw11, uint32_t *value)
{
	const struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = fid, .cdw11 = cdw11 };
	struct gpunvme_cqe cqe;
	uint16_t status = rawhost_admin(&sqe, &cqe);

	*value = cqe.dw0;
	return status;
}

/* A pair of queues whose completions have interrupt vector 1, as lib/soft gives none to those of rawhost. */
static void make_pair(struct rawhost_queue *q)
{
	struct gpunvme_sqe cq = { .opc = GPUNVME_ADMIN_CREATE_CQ, .cdw10 = (RAWHOST_ENTRIES - 1) << 16 | 2, .cdw11 = 1u << 16 | 3 };
	struct gpunvme_sqe sq = { .opc = GPUNVME_ADMIN_CREATE_SQ, .cdw10 = (RAWHOST_ENTRIES - 1) << 16 | 2, .cdw11 = 2u << 16 | 1 };

	assert_int_equal(rawhost_create_pair(&host, q, 2, RAWHOST_ENTRIES, RAWHOST_ENTRIES), 0);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = 2 }, NULL), 0);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_CQ, .cdw10 = 2 }, NULL), 0);
	cq.prp1 = q->cq_iova;
	sq.prp1 = q->sq_iova;
	assert_int_equal(rawhost_admin(&cq, NULL), 0);
	assert_int_equal(rawhost_admin(&sq, NULL), 0);
}

/* Some reads at once; their completions are taken by polling. */
static void run_reads(struct rawhost_queue *q, unsigned count, uint64_t lba)
{
	const struct gpunvme_sqe read = rawhost_rw(&host, GPUNVME_IO_READ, lba, 1, 0);
	struct gpunvme_cqe cqe;
	unsigned i;

	for (i = 0; i < count; i++)
		rawhost_put(q, &read);
	rawhost_ring_sq(&host, q, q->tail);
	for (i = 0; i < count; i++)
		assert_true(rawhost_reap(&host, q, &cqe, RAWHOST_SOON, true));
}

static void queues_raise_their_own_vector(void **state)
{
	struct rawhost_queue q;
	unsigned before;

	(void)state;
	make_pair(&q);
	before = raises_of_admin();
	run_reads(&q, 1, 0);
	wait_raises(1, 1);
	run_reads(&host.io, 1, 0); /* which wants none */
	assert_int_equal(raises_of_admin(), before);
	assert_int_equal(raises(2) + raises(3), 0);
}

/* The host has been told of all completions of the pair, and the controller knows that it has taken them. */
static void wait_all_told(void)
{
	struct gnv_soft_cq *cq = gnv_soft_threads(host.soft)->cqs[2];
	bool open = true;
	unsigned ms;

	for (ms = 0; open && ms < RAWHOST_SOON; ms++) {
		sleep_ms(1);
		gnv_soft_server_lock(cq->server);
		open = cq->unsaid || cq->told;
		gnv_soft_server_unlock(cq->server);
	}
	assert_false(open);
}

/* One interrupt for all of them, if it came before it was due by time. Return: false when the machine was too slow to tell. */
static bool came_by_number(struct rawhost_queue *q)
{
	unsigned before = raises(1);
	uint64_t start = now_ms();
	bool in_time;

	run_reads(q, READS, 0);
	while (raises(1) == before && now_ms() - start < RAWHOST_SOON)
		sleep_ms(1);
	in_time = now_ms() - start < LONG_MS;
	wait_all_told();
	if (in_time)
		assert_int_equal(raises(1), before + 1);
	return in_time;
}

static void completions_share_an_interrupt(void **state)
{
	unsigned tries = 200, before;
	struct rawhost_queue q;
	uint64_t start;

	(void)state;
	make_pair(&q);
	assert_int_equal(set(COALESCING, LONG | (READS - 1)), 0);
	while (!came_by_number(&q))
		assert_true(--tries);
	before = raises(1);
	start = now_ms();
	run_reads(&q, 1, 0);
	wait_raises(1, before + 1);
	assert_true(now_ms() - start >= LONG_MS);
}

/* Several reads, each told of before the next. Return: milliseconds that the fastest took. */
static uint64_t fastest(struct rawhost_queue *q, uint64_t lba)
{
	uint64_t start, best = UINT64_MAX;
	unsigned i, before;

	for (i = 0; i < 40; i++) {
		wait_all_told();
		before = raises(1);
		start = now_ms();
		run_reads(q, 1, lba);
		wait_raises(1, before + 1);
		if (now_ms() - start < best)
			best = now_ms() - start;
	}
	return best;
}

static void errors_are_told_at_once(void **state)
{
	struct rawhost_queue q;

	(void)state;
	make_pair(&q);
	assert_int_equal(set(COALESCING, LONG | 0xff), 0);
	assert_true(fastest(&q, RAWHOST_IMAGE) < LONG_MS);
}

static void a_vector_is_left_out(void **state)
{
	struct rawhost_queue q;
	uint32_t value;

	(void)state;
	make_pair(&q);
	assert_int_equal(set(COALESCING, LONG | 0xff), 0);
	assert_int_equal(get(COALESCING, 0, &value), 0);
	assert_int_equal(value, LONG | 0xff);
	assert_int_equal(set(VECTOR, CD | 1), 0);
	assert_int_equal(get(VECTOR, 1, &value), 0);
	assert_int_equal(value, CD | 1);
	assert_true(fastest(&q, 0) < LONG_MS);
	assert_int_equal(set(VECTOR, 1), 0);
	assert_int_equal(get(VECTOR, 1, &value), 0);
	assert_int_equal(value, 1);
}

static void neither_time_nor_number_alone_makes_them_wait(void **state)
{
	struct rawhost_queue q;

	(void)state;
	make_pair(&q);
	assert_int_equal(set(COALESCING, 0xff), 0);
	run_reads(&q, 1, 0);
	wait_raises(1, 1);
	assert_int_equal(set(COALESCING, LONG), 0);
	assert_true(fastest(&q, 0) < LONG_MS);
}

/* The thread of the queue has nothing else to do, and still tells of what came before. */
static void the_last_one_is_told_though_its_submission_queue_has_gone(void **state)
{
	struct rawhost_queue q;

	(void)state;
	make_pair(&q);
	assert_int_equal(set(COALESCING, LONG | 0xff), 0);
	run_reads(&q, 1, 0);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = 2 }, NULL), 0);
	wait_raises(1, 1);
}

/* Commands that need no I/O: of ranges that are not to be deallocated. Their completions stay in the queue. */
static void put_hints(struct rawhost_queue *q, unsigned count)
{
	const struct gpunvme_sqe hint = { .opc = GPUNVME_IO_DSM, .nsid = 1, .prp1 = host.iova + RAWHOST_DATA };
	unsigned i;

	for (i = 0; i < count; i++)
		rawhost_put(q, &hint);
	rawhost_ring_sq(&host, q, q->tail);
}

static void take(struct rawhost_queue *q, unsigned count)
{
	struct gpunvme_cqe cqe;

	while (count--)
		assert_true(rawhost_reap(&host, q, &cqe, RAWHOST_SOON, false));
}

/* What comes while the host is at it, and is taken with the rest, needs no interrupt. Return: false: the machine was too slow. */
static bool was_told_once(struct rawhost_queue *q)
{
	unsigned before = raises(1);
	uint64_t start = now_ms();

	put_hints(q, 1);
	while (raises(1) == before && now_ms() - start < RAWHOST_SOON)
		sched_yield();
	put_hints(q, READS - 1);
	take(q, READS);
	rawhost_ring_cq(&host, q, q->head);
	wait_all_told();
	return raises(1) == before + 1;
}

static void a_host_that_is_at_it_is_not_told_again(void **state)
{
	struct rawhost_queue q;
	unsigned tries = 2000;

	(void)state;
	make_pair(&q);
	while (!was_told_once(&q))
		assert_true(--tries);
}

static void what_it_leaves_it_is_told_of_again(void **state)
{
	struct rawhost_queue q;

	(void)state;
	make_pair(&q);
	put_hints(&q, 1);
	wait_raises(1, 1);
	put_hints(&q, 1); /* the head is not moved: for a while only */
	wait_raises(1, 2);
	take(&q, 1);
	rawhost_ring_cq(&host, &q, q.head);
	put_hints(&q, 1);
	wait_raises(1, 3);
	take(&q, 2);
	rawhost_ring_cq(&host, &q, q.head);
	wait_all_told();
	assert_int_equal(raises(1), 3);
}

/* Enough have come for an interrupt, so only the host is waited for, and the thread does not sleep until these were due. */
static void one_that_waits_for_no_more_is_not_late(void **state)
{
	struct gnv_soft_cq *cq;
	struct rawhost_queue q;
	uint64_t deadline = UINT64_MAX;
	bool in_time;

	(void)state;
	make_pair(&q);
	assert_int_equal(set(COALESCING, LONG | 1), 0);
	cq = gnv_soft_threads(host.soft)->cqs[2];
	gnv_soft_server_lock(cq->server);
	cq->told = true;
	cq->unsaid = 3;
	cq->due = gnv_soft_now() + LONG_MS * 1000000ull;
	gnv_soft_interrupt(cq->server);
	gnv_soft_interrupt_by(cq->server, &deadline);
	in_time = cq->comes && deadline <= gnv_soft_now() + TOLD_NS;
	cq->unsaid = 0;
	cq->told = false;
	gnv_soft_server_unlock(cq->server);
	assert_true(in_time);
}

static void what_makes_no_sense_is_refused(void **state)
{
	struct rawhost_queue q;
	uint32_t value;

	(void)state;
	assert_int_equal(set(VECTOR, 1), GPUNVME_SC_INVALID_FIELD); /* no queue has it yet */
	make_pair(&q);
	assert_int_equal(set(COALESCING, 0x10000), GPUNVME_SC_INVALID_FIELD);
	assert_int_equal(set(VECTOR, CD | 0), GPUNVME_SC_INVALID_FIELD); /* the admin queue's */
	assert_int_equal(set(VECTOR, CD | 3), GPUNVME_SC_INVALID_FIELD);
	assert_int_equal(set(VECTOR, CD | 0xffff), GPUNVME_SC_INVALID_FIELD);
	assert_int_equal(set(VECTOR, 0x20001), GPUNVME_SC_INVALID_FIELD);
	assert_int_equal(get(VECTOR, 2, &value), GPUNVME_SC_INVALID_FIELD);
	assert_int_equal(get(VECTOR, CD | 1, &value), GPUNVME_SC_INVALID_FIELD);
	assert_int_equal(get(0x300 | VECTOR, 0, &value), 0); /* supported: can be changed */
	assert_int_equal(value, 4);
}

static int start(void **state)
{
	unsigned i;

	for (i = 0; i < VECTORS; i++)
		raised[i] = 0;
	return rawhost_setup(state);
}

#define TEST(test) cmocka_unit_test_prestate_setup_teardown(test, start, rawhost_teardown, &config)

int main(void)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;
	const struct CMUnitTest tests[] = {
		TEST(queues_raise_their_own_vector),
		TEST(completions_share_an_interrupt),
		TEST(errors_are_told_at_once),
		TEST(a_vector_is_left_out),
		TEST(neither_time_nor_number_alone_makes_them_wait),
		TEST(the_last_one_is_told_though_its_submission_queue_has_gone),
		TEST(a_host_that_is_at_it_is_not_told_again),
		TEST(what_it_leaves_it_is_told_of_again),
		TEST(one_that_waits_for_no_more_is_not_late),
		TEST(what_makes_no_sense_is_refused),
	};

	config.threads = 3;
	config.irq = (struct gnv_soft_irq){ raise_vector, NULL, VECTORS };
	return cmocka_run_group_tests_name("controller_interrupts", tests, NULL, NULL);
}
