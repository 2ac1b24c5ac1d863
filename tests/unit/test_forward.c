/* SPDX-License-Identifier: MIT */
/*
 * The forwarder over a page that plays BAR0: what it writes, in which order, what it never does, what it costs. It is compiled into
 * this file, so that its accesses can be listened to.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "common/wait.h"
#include "util/mmio.h"

static void heard(char what, const void *where);

static uint32_t listened_read(const void *reg)
{
	heard('r', reg);
	return gnv_word_read32(reg);
}

static void listened_write(void *reg, uint32_t value)
{
	heard('w', reg);
	gnv_mmio_write32(reg, value);
}

#define gnv_word_read32 listened_read
#define gnv_mmio_write32 listened_write
#include "nvme/forward.c"
#undef gnv_word_read32
#undef gnv_mmio_write32

#define DEPTH 16u
#define CQ_DEPTH 32u
#define LAPS 20000u
#define QUEUES 3u

static _Alignas(4096) char page[8192];
static struct gnv_ctrl ctrl;
static struct gnv_forward forward;
static struct gnv_bells bells[QUEUES];
static struct gnv_forward_queue queue[QUEUES];

/* Accesses in their order, as far as the test wants to know. */
static struct {
	char what;
	const void *where;
} noted[16];
static unsigned notes;
static bool listening;

static void heard(char what, const void *where)
{
	if (!listening)
		return;
	assert_true(notes < 16);
	noted[notes].what = what;
	noted[notes++].where = where;
}

static int setup(void **state)
{
	(void)state;
	memset(page, 0, sizeof(page));
	memset(bells, 0, sizeof(bells));
	memset(queue, 0, sizeof(queue));
	ctrl = (struct gnv_ctrl){ .bar = page, .bar_len = sizeof(page) };
	gnv_forward_init(&forward);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gnv_forward_fini(&forward);
	return 0;
}

static void *sq_reg(uint32_t qid)
{
	return page + gnv_ctrl_sq_doorbell(&ctrl, qid);
}

static void *cq_reg(uint32_t qid)
{
	return page + gnv_ctrl_cq_doorbell(&ctrl, qid);
}

static void ring(uint32_t *word, uint32_t value)
{
	__atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static void becomes(const void *reg, uint32_t value)
{
	wait_until(gnv_mmio_read32(reg) == value);
}

static void add(unsigned i)
{
	assert_int_equal(gnv_forward_add(&forward, &queue[i], &ctrl, i + 1, &bells[i]), 0);
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ ms / 1000, ms % 1000 * 1000000 }, NULL);
}

static void test_copies(void **state)
{
	(void)state;
	for (unsigned i = 0; i < QUEUES; i++)
		add(i);
	for (uint32_t value = 1; value < 200; value++) {
		ring(&bells[value % QUEUES].sq, value);
		ring(&bells[(value + 1) % QUEUES].cq, value + 7);
		becomes(sq_reg(value % QUEUES + 1), value);
		becomes(cq_reg((value + 1) % QUEUES + 1), value + 7);
	}
	ring(&bells[0].sq, 0); /* the wrap */
	becomes(sq_reg(1), 0);
	for (unsigned i = 0; i < QUEUES; i++)
		gnv_forward_remove(&forward, &queue[i]);
}

/* A removed queue has no doorbells any more: its id may belong to nobody, or to another queue. */
static void test_remove(void **state)
{
	(void)state;
	gnv_forward_remove(&forward, &queue[2]); /* never added */
	add(0);
	add(1);
	ring(&bells[0].sq, 3);
	becomes(sq_reg(1), 3);
	gnv_forward_remove(&forward, &queue[0]);
	gnv_forward_remove(&forward, &queue[0]);
	ring(&bells[0].sq, 4);
	ring(&bells[0].cq, 4);
	ring(&bells[1].sq, 5);
	becomes(sq_reg(2), 5); /* later than what was rung before */
	assert_int_equal(gnv_mmio_read32(sq_reg(1)), 3);
	assert_int_equal(gnv_mmio_read32(cq_reg(1)), 0);
	gnv_forward_remove(&forward, &queue[1]);
	/* The thread sleeps now, and is woken by the next queue, which begins with zeroed words. */
	pause_ms(2);
	bells[0] = (struct gnv_bells){ 0, 0 };
	gnv_mmio_write32(sq_reg(1), 0);
	add(0);
	ring(&bells[0].sq, 1);
	becomes(sq_reg(1), 1);
	gnv_forward_remove(&forward, &queue[0]);
}

/* Queues come and go while another one is busy: neither starves. */
static void test_changes(void **state)
{
	(void)state;
	add(0);
	for (uint32_t n = 1; n <= 500; n++) {
		ring(&bells[0].sq, n);
		bells[1] = (struct gnv_bells){ 0, 0 };
		add(1);
		ring(&bells[1].sq, n);
		becomes(sq_reg(2), n);
		gnv_forward_remove(&forward, &queue[1]);
		becomes(sq_reg(1), n);
	}
	gnv_forward_remove(&forward, &queue[0]);
}

static void expect(unsigned i, char what, const void *where)
{
	assert_int_equal(noted[i].what, what);
	assert_ptr_equal(noted[i].where, where);
}

/* One look at a queue: tail before head when reading, head before tail when writing, and no write without a change. */
static void test_accesses(void **state)
{
	struct gnv_forward_queue q = { .bells = &bells[0], .sq_reg = sq_reg(1), .cq_reg = cq_reg(1) };

	(void)state;
	listening = true;
	notes = 0;
	assert_false(copy(&q));
	assert_int_equal(notes, 2);
	bells[0].sq = 3;
	bells[0].cq = 5;
	assert_true(copy(&q));
	assert_int_equal(notes, 6);
	expect(2, 'r', &bells[0].sq);
	expect(3, 'r', &bells[0].cq);
	expect(4, 'w', cq_reg(1));
	expect(5, 'w', sq_reg(1));
	bells[0].sq = 4;
	assert_true(copy(&q));
	assert_int_equal(notes, 9);
	expect(8, 'w', sq_reg(1));
	assert_false(copy(&q));
	listening = false;
}

/* Threads: as many commands as the ring holds, the head of the CQ told before the room it makes is used. */
static void *lanes(void *arg)
{
	uint64_t *fetched = arg, pos = 0;

	while (pos < (uint64_t)DEPTH * LAPS) {
		uint64_t room = __atomic_load_n(fetched, __ATOMIC_ACQUIRE) + DEPTH - 1;

		if (room == pos) {
			sched_yield();
			continue;
		}
		pos += 1 + pos * 7 % (room - pos);
		ring(&bells[0].cq, (uint32_t)(pos % CQ_DEPTH));
		ring(&bells[0].sq, (uint32_t)(pos % DEPTH));
	}
	return NULL;
}

/*
 * The controller's side: tails only go forward, and the head that belongs to a tail is there when the tail is. The positions are
 * told apart by the difference to the last, which is below a lap.
 */
static void test_order(void **state)
{
	uint64_t fetched = 0, head = 0;
	pthread_t thread;

	(void)state;
	add(0);
	assert_int_equal(pthread_create(&thread, NULL, lanes, &fetched), 0);
	while (fetched < (uint64_t)DEPTH * LAPS) {
		uint32_t tail = gnv_mmio_read32(sq_reg(1)), ahead = (tail - (uint32_t)fetched) % DEPTH;
		uint32_t told = gnv_mmio_read32(cq_reg(1));

		head += (told - (uint32_t)head) % CQ_DEPTH;
		assert_true(ahead < DEPTH);
		assert_true(head >= fetched + ahead);
		assert_true(head < fetched + ahead + DEPTH);
		__atomic_store_n(&fetched, fetched + ahead, __ATOMIC_RELEASE);
		if (!ahead)
			sched_yield();
	}
	pthread_join(thread, NULL);
	gnv_forward_remove(&forward, &queue[0]);
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Without work the thread takes next to nothing, with queues and, less still, without. */
static void test_idle(void **state)
{
	uint64_t start;

	(void)state;
	add(0);
	pause_ms(1100);
	start = cpu_ns();
	pause_ms(500);
	start = cpu_ns() - start;
	print_message("figure: forwarder, idle: %.2f %% of a CPU\n", (double)start / 5e6);
	assert_true(start < 50000000);
	gnv_forward_remove(&forward, &queue[0]);
	pause_ms(20);
	start = cpu_ns();
	pause_ms(200);
	assert_true(cpu_ns() - start < 10000000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_copies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_remove, setup, teardown),
		cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_accesses, setup, teardown),
		cmocka_unit_test_setup_teardown(test_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
