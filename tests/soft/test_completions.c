/* SPDX-License-Identifier: MIT */
/*
 * The completion thread of a queue with several pairs: pairs that end and are recovered, its start, and what it means for a pair that
 * is retired. Only that thread takes completions: those of commands that were submitted without a handle.
 */
#include <gpunvme/device.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/wait.h"
#include "dev/dev.h"
#include "queue/queue.h"
#include "run/completions.h"
#include "soft/soft.h"

#define PAIRS 3u
#define COMMANDS 5u

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *queue;
	uint16_t dropped; /* reads of this queue are not completed. 0: all are (atomic) */
} t;

static enum gnv_soft_action drop(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)status;
	(void)delay_us;
	return cmd->opc == GPUNVME_IO_READ && sqid == __atomic_load_n(&t.dropped, __ATOMIC_ACQUIRE) ? GNV_SOFT_DROP : GNV_SOFT_GO;
}

/* ---- Functions of the library that fail, or wait ---- */

static bool no_threads, no_place;
static const bool *began; /* NULL: a thread starts as ever. Else its start returns after the thread waits, or sets this (atomic) */
static bool waits; /* (atomic) */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg);
int __real_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock);
int __real_gnv_qp_place(struct gnv_qp *qp);
int __wrap_gnv_qp_place(struct gnv_qp *qp);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	int err = no_threads ? EAGAIN : __real_pthread_create(thread, attr, start, arg);

	if (!err && began)
		wait_until(__atomic_load_n(began, __ATOMIC_ACQUIRE) || __atomic_load_n(&waits, __ATOMIC_ACQUIRE));
	return err;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock)
{
	__atomic_store_n(&waits, true, __ATOMIC_RELEASE);
	return __real_pthread_cond_wait(cond, lock);
}

int __wrap_gnv_qp_place(struct gnv_qp *qp)
{
	return no_place ? gnv_fail(-ENOMEM, "no place for it") : __real_gnv_qp_place(qp);
}

/* ---- A queue ---- */

static int create(uint32_t flags, uint32_t pairs)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), flags | GPUNVME_QUEUE_NO_SELFTEST, 16, 0, pairs, 0, 0 };

	return gpunvme_queue_create(t.dev, t.gpu, &opts, &t.queue);
}

static void begin(const char *uri)
{
	memset(&t, 0, sizeof(t));
	good(gpunvme_dev_open(uri, NULL, &t.dev));
	gnv_soft_set_fault(gnv_dev_soft(t.dev), &(struct gnv_soft_fault){ drop, NULL });
	good(gpunvme_gpu_open("cpu", NULL, &t.gpu));
	good(gpunvme_mem_alloc(t.gpu, NULL, 4096, NULL, &t.mem));
	good(gpunvme_mem_map(t.mem, t.dev));
	good(gpunvme_mem_dbuf(t.mem, t.dev, &t.dbuf));
}

static void end(void)
{
	good(gpunvme_queue_destroy(t.queue));
	good(gpunvme_mem_free(t.mem));
	good(gpunvme_gpu_close(t.gpu));
	good(gpunvme_dev_close(t.dev));
}

/* On each pair. */
static void leave_commands(void)
{
	struct gpunvme_dvol vol;
	uint32_t i, n;

	good(gpunvme_queue_view(t.queue, NULL, &vol));
	for (i = 0; i < PAIRS; i++)
		for (n = 0; n < COMMANDS; n++)
			assert_int_equal(gpunvme_submit_read(gnvd_member_dq(&vol, 0, i), &t.dbuf, 0, 0, 512, NULL), 0);
}

static void wait_for_all_but(uint32_t pair)
{
	for (uint32_t i = 0; i < PAIRS; i++)
		if (i != pair)
			wait_until(!gnv_qp_in_flight(t.queue->qp[i]));
}

/* A pair ends with commands in flight, whose completions never come. The others go on, and so does that one after it was recovered. */
static void it_goes_on_with_a_pair_that_was_recovered(void **state)
{
	uint32_t pair, i, qid[PAIRS];

	(void)state;
	begin("soft:ram:8M");
	good(create(GPUNVME_QUEUE_COMPLETION_THREAD, PAIRS));
	for (pair = 0; pair < PAIRS; pair++) {
		for (i = 0; i < PAIRS; i++)
			qid[i] = t.queue->qp[i]->qid;
		__atomic_store_n(&t.dropped, qid[pair], __ATOMIC_RELEASE);
		leave_commands();
		wait_for_all_but(pair);
		assert_int_equal(gnv_qp_in_flight(t.queue->qp[pair]), COMMANDS);
		gnv_qp_command(t.queue->qp[pair], GPUNVME_ETIMEDOUT);
		good(gpunvme_queue_recover(t.queue));
		for (i = 0; i < PAIRS; i++)
			assert_int_equal(t.queue->qp[i]->qid != qid[i], i == pair);
		__atomic_store_n(&t.dropped, 0, __ATOMIC_RELEASE);
		leave_commands();
		wait_for_all_but(PAIRS);
	}
	good(gpunvme_queue_retire(t.queue));
	leave_commands();
	wait_for_all_but(PAIRS);
	end();
}

/* ---- Its start ---- */

/* The controller has no more pairs than one such queue, so another can be created only when nothing is left of the first. */
static void a_start_that_fails_leaves_nothing(void **state)
{
	struct gpunvme_queue *const none = (struct gpunvme_queue *)&t;

	(void)state;
	begin("soft:ram:8M?queues=3");
	t.queue = none;
	no_threads = true;
	assert_int_equal(create(GPUNVME_QUEUE_COMPLETION_THREAD, PAIRS), -EAGAIN);
	no_threads = false;
	assert_string_equal(gpunvme_errmsg(), "no completion thread. Raise the limit of threads (ulimit -u)");
	assert_ptr_equal(t.queue, none);
	assert_null(gnv_qp_first(t.dev));
	good(create(GPUNVME_QUEUE_COMPLETION_THREAD, PAIRS));
	leave_commands();
	wait_for_all_but(PAIRS);
	end();
}

struct seen {
	struct gnv_completions *out;
	bool viewed, early; /* (atomic) */
};

static uint32_t view_nothing(void *ctx, struct gpunvme_dq *dq)
{
	struct seen *seen = ctx;

	(void)dq;
	if (!__atomic_load_n(&seen->out, __ATOMIC_ACQUIRE))
		__atomic_store_n(&seen->early, true, __ATOMIC_RELEASE);
	__atomic_store_n(&seen->viewed, true, __ATOMIC_RELEASE);
	return 0;
}

/* A pair that changes asks by that pointer for new views. */
static void it_takes_no_view_before_its_queue_knows_it(void **state)
{
	struct seen seen = { NULL, false, false };

	(void)state;
	__atomic_store_n(&waits, false, __ATOMIC_RELEASE);
	began = &seen.viewed;
	good(gnv_completions_start(1, view_nothing, &seen, &seen.out));
	began = NULL;
	wait_until(__atomic_load_n(&seen.viewed, __ATOMIC_ACQUIRE));
	assert_false(__atomic_load_n(&seen.early, __ATOMIC_ACQUIRE));
	gnv_completions_free(seen.out);
}

/* ---- A pair that is over ---- */

static struct gnv_qp *old_pair(void)
{
	struct gnv_qp *qp = gnv_qp_first(t.dev);

	while (qp && !qp->heir)
		qp = gnv_qp_next(qp);
	return qp;
}

/*
 * A pair that was deleted, could not be created anew, and was retired: no kernel has a view of it. Recovered, it gets its identifier
 * again, as there is no other. The completion thread may still ring that doorbell, so it is locked out.
 */
static void recover_retired(uint32_t flags, bool locks)
{
	begin("soft:ram:8M?queues=1");
	good(create(flags, 1));
	no_place = true;
	assert_int_equal(gpunvme_queue_recover(t.queue), -ENOMEM);
	no_place = false;
	good(gpunvme_queue_retire(t.queue));
	good(gpunvme_queue_recover(t.queue));
	assert_non_null(old_pair());
	assert_int_equal(old_pair()->qid, t.queue->qp[0]->qid);
	assert_int_equal(old_pair()->gate_held, locks);
	good(gpunvme_queue_retire(t.queue));
	assert_null(old_pair());
	end();
}

static void it_rings_no_doorbell_of_an_old_pair(void **state)
{
	(void)state;
	recover_retired(GPUNVME_QUEUE_COMPLETION_THREAD, true);
	recover_retired(0, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_goes_on_with_a_pair_that_was_recovered),
		cmocka_unit_test(a_start_that_fails_leaves_nothing),
		cmocka_unit_test(it_takes_no_view_before_its_queue_knows_it),
		cmocka_unit_test(it_rings_no_doorbell_of_an_old_pair),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
