/* SPDX-License-Identifier: MIT */
/* The other ways to use a queue: whole waves, many handles of one thread, a service that takes the completions. */
#include "rig.h"

static enum mini_fate hold_below_100(uint64_t stamp)
{
	return stamp < 100 ? MINI_HOLD : MINI_COMPLETE;
}

static GPUNVME_DEVICE uint16_t status_of(uint64_t stamp)
{
	return stamp % 3 ? 0 : (uint16_t)(0x4000u | (1 + stamp % 0x7f));
}

static int submit(struct rig *r, uint64_t stamp, struct gpunvme_req *req)
{
	return gpunvme_submit_read(&r->dq, &r->dbuf, 0, stamp * 512, 512, req);
}

/* ---- Waves ---- */

struct waves {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	uint32_t rounds, wrong;
};

/* Threads come late, each at another time; every third has nothing to do. */
static GPUNVME_DEVICE void wave_kernel(void *arg)
{
	struct waves *w = (struct waves *)arg;
	uint32_t lane = gpunvme_thread_id(), i;

	for (i = 0; i < w->rounds; i++) {
		uint64_t stamp = (uint64_t)i * gpunvme_thread_count() + lane;
		int idle = (lane + i) % 3 == 0, ret;

		RIG_NAP_US((lane * 13 + i * 7) % 5 * 100);
		ret = gpunvme_wave_read(w->dq, w->dbuf, 0, stamp * 512, idle ? GPUNVME_NO_TRANSFER : 512);
		if (ret != (idle ? 0 : status_of(stamp)))
			__atomic_fetch_add(&w->wrong, 1, __ATOMIC_RELAXED);
	}
}

static void run_waves(uint32_t lanes, uint32_t width, uint32_t rounds)
{
	struct rig *r = rig_new(9, 0); /* identifiers of several words: each wave has a word to itself */
	struct waves w = { &r->dq, &r->dbuf, rounds, 0 };

	r->ctrl.opts.status = status_of;
	rig_start(r);
	assert_int_equal(gpunvme_cpu_launch(lanes, width, wave_kernel, &w), 0);
	assert_int_equal(w.wrong, 0);
	/* One place in the queue for a wave: however late its threads come, it rings once a round, or another wave does it. */
	assert_true(r->state->doorbells <= (lanes + width - 1) / width * rounds);
	rig_end(r, true);
}

static void waves_come_whole(void **state)
{
	(void)state;
	run_waves(2, 1, 60);
	run_waves(4, 4, 60);
	run_waves(10, 4, 40);
	run_waves(32, 32, 10);
}

/* Some threads have left the kernel: the wave is what remains. */
static GPUNVME_DEVICE void shrinking_kernel(void *arg)
{
	struct waves *w = (struct waves *)arg;
	uint32_t i;

	for (i = 0; i < 5 * (gpunvme_thread_id() + 1); i++)
		if (gpunvme_wave_write(w->dq, w->dbuf, 0, (1 + 3 * (uint64_t)i) * 512, 512, 0))
			__atomic_fetch_add(&w->wrong, 1, __ATOMIC_RELAXED);
}

static void waves_do_without_lanes_that_left(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct waves w = { &r->dq, &r->dbuf, 0, 0 };

	(void)state;
	rig_start(r);
	assert_int_equal(gpunvme_cpu_launch(4, 4, shrinking_kernel, &w), 0);
	assert_int_equal(w.wrong, 0);
	assert_true(r->state->doorbells <= 20);
	rig_end(r, true);
}

/* One transfer for a wave, whose threads come late, each at another time, and all get its status. */
static GPUNVME_DEVICE void wave_one_kernel(void *arg)
{
	struct waves *w = (struct waves *)arg;
	uint32_t lane = gpunvme_thread_id(), width = gnvd_wave_lanes(), i;
	int ret;

	for (i = 0; i < w->rounds; i++) {
		uint64_t stamp = (uint64_t)i * gpunvme_thread_count() + lane / width;

		RIG_NAP_US((lane * 13 + i * 7) % 5 * 100);
		ret = i % 2 ? gpunvme_wave_read_one(w->dq, w->dbuf, 0, stamp * 512, 512)
			    : gpunvme_wave_write_one(w->dq, w->dbuf, 0, stamp * 512, 512, 0);
		if (ret != status_of(stamp))
			__atomic_fetch_add(&w->wrong, 1, __ATOMIC_RELAXED);
	}
}

static void waves_share_one_transfer(void **state)
{
	static const uint32_t shapes[][2] = { { 2, 1 }, { 8, 4 }, { 32, 32 } };
	uint32_t i, rounds = 20;

	(void)state;
	for (i = 0; i < 3; i++) {
		struct rig *r = rig_new(3, 0);
		struct waves w = { &r->dq, &r->dbuf, rounds, 0 };

		r->ctrl.opts.status = status_of;
		rig_start(r);
		assert_int_equal(gpunvme_cpu_launch(shapes[i][0], shapes[i][1], wave_one_kernel, &w), 0);
		assert_int_equal(w.wrong, 0);
		assert_int_equal(r->state->pub, shapes[i][0] / shapes[i][1] * rounds); /* no thread but one of each wave had a command */
		rig_end(r, true);
	}
}

static void waves_refuse_what_lanes_refuse(void **state)
{
	struct rig *r = rig_new(4, 0);

	(void)state;
	rig_start(r);
	assert_int_equal(gpunvme_wave_read(&r->dq, &r->dbuf, 0, 0, 0), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_wave_read(&r->dq, &r->dbuf, RIG_BUFFER, 0, 512), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_wave_read_one(&r->dq, &r->dbuf, 0, 0, 0), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_wave_read_one(&r->dq, &r->dbuf, RIG_BUFFER, 0, 512), -GPUNVME_ERANGE);
	r->dq.flags &= ~(uint32_t)GPUNVME_DQ_WRITE;
	assert_int_equal(gpunvme_wave_write(&r->dq, &r->dbuf, 0, 0, 512, 0), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_wave_read(&r->dq, &r->dbuf, 0, 0, GPUNVME_NO_TRANSFER), 0);
	rig_end(r, true);
}

/* ---- Waves on a volume ---- */

#define STRIPE 8u

struct striped {
	struct gpunvme_dvol v;
	struct gpunvme_dvbuf buf;
	struct gpunvme_dq dq[2];
	struct gpunvme_dbuf dbuf[2];
};

struct volume_waves {
	const struct gpunvme_dvol *v;
	const struct gpunvme_dvbuf *buf;
	uint32_t rounds, wrong;
};

/* Of blocks that lie in several stripes, each of which is one command: that of the first one that fails. */
static GPUNVME_DEVICE int status_of_blocks(uint64_t lba, uint64_t end)
{
	uint64_t next;
	int ret = 0;

	for (; lba < end && !ret; lba = next) {
		next = (lba / STRIPE + 1) * STRIPE;
		ret = status_of(lba / STRIPE / 2 * STRIPE + lba % STRIPE);
	}
	return ret;
}

static GPUNVME_DEVICE void volume_kernel(void *arg)
{
	struct volume_waves *w = (struct volume_waves *)arg;
	uint32_t lane = gpunvme_thread_id(), i;

	for (i = 0; i < w->rounds; i++) {
		uint64_t lba = ((uint64_t)i * gpunvme_thread_count() + lane) * 7 + 1, n = 1 + (lane + i) % 5 * 4;
		int idle = (lane + i) % 3 == 0, ret;

		RIG_NAP_US((lane * 13 + i * 7) % 5 * 100);
		ret = gpunvme_wave_read(w->v, w->buf, 0, lba * 512, idle ? GPUNVME_NO_TRANSFER : n * 512);
		if (ret != (idle ? 0 : status_of_blocks(lba, lba + n)))
			__atomic_fetch_add(&w->wrong, 1, __ATOMIC_RELAXED);
	}
}

static void run_on_volume(uint32_t lanes, uint32_t width, uint32_t rounds, unsigned sq_shift)
{
	struct rig *rig[2] = { rig_new(sq_shift, 0), rig_new(sq_shift, 0) };
	struct striped *s = rig_zeroed(sizeof(*s));
	struct volume_waves w = { &s->v, &s->buf, rounds, 0 };
	uint32_t i;

	s->v = (struct gpunvme_dvol){ .head = GPUNVME_HEAD(GPUNVME_KIND_VOLUME, s->v), .members = 2, .queues = 1, .lba_shift = 9,
				      .stripe_shift = 3, .dq = (uintptr_t)s->dq, .lba_count = 1 << 20 };
	s->buf = (struct gpunvme_dvbuf){ .len = RIG_BUFFER, .member = (uintptr_t)s->dbuf };
	for (i = 0; i < 2; i++) {
		rig[i]->ctrl.opts = (struct mini_opts){ .seed = i, .window = 5, .idle = 10, .status = status_of };
		s->dq[i] = rig[i]->dq;
		s->dbuf[i] = rig[i]->dbuf;
		rig_start(rig[i]);
	}
	RIG_MEMORY("volume", s, sizeof(*s), RIG_READONLY);
	assert_int_equal(gpunvme_cpu_launch(lanes, width, volume_kernel, &w), 0);
	assert_int_equal(w.wrong, 0);
	RIG_FORGET(s);
	free(s);
	rig_end(rig[0], true);
	rig_end(rig[1], true);
}

static void waves_use_volumes(void **state)
{
	(void)state;
	run_on_volume(2, 1, RIG_COUNT(40, 10), 4);
	run_on_volume(8, 4, RIG_COUNT(40, 6), 4);
	run_on_volume(32, 32, RIG_COUNT(10, 3), 3); /* more threads than places */
}

/* ---- Many handles ---- */

/* Whatever the order, every handle is over once, with its own status. */
static void wait_any_takes_each_once(void **state)
{
	struct rig *r = rig_new(5, 0);
	struct gpunvme_req req[12];
	uint32_t index = 0, i, round, seen;

	(void)state;
	r->ctrl.opts = (struct mini_opts){ .seed = 3, .window = 9, .idle = 30, .status = status_of };
	rig_start(r);
	for (round = 0; round < 50; round++) {
		for (i = 0; i < 12; i++)
			assert_int_equal(submit(r, round * 12 + i, &req[i]), 0);
		for (i = 0, seen = 0; i < 12; i++) {
			int ret = gpunvme_wait_any(&r->dq, req, 12, 0, &index);

			assert_true(index < 12);
			assert_false(seen >> index & 1);
			assert_int_equal(ret, status_of(round * 12 + index));
			seen |= 1u << index;
			index++;
		}
		index = 5;
		assert_int_equal(gpunvme_wait_any(&r->dq, req, 12, 0, &index), -GPUNVME_ESTALE);
		assert_int_equal(index, 12);
	}
	rig_end(r, true);
}

struct holders {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	uint32_t wrong;
};

/* Threads with different numbers of handles, in waves. */
static GPUNVME_DEVICE void holding_kernel(void *arg)
{
	struct holders *h = (struct holders *)arg;
	uint32_t lane = gpunvme_thread_id(), count = 1 + lane % 3, index = 0, i, round;
	struct gpunvme_req req[3];
	uint64_t stamp[3];
	int ret;

	for (round = 0; round < 30; round++) {
		for (i = 0; i < count; i++) {
			stamp[i] = 1000 * lane + 3 * round + i;
			do
				ret = gpunvme_submit_read(h->dq, h->dbuf, 0, (uint64_t)stamp[i] * 512, 512, &req[i]);
			while (ret == -GPUNVME_EAGAIN);
			if (ret)
				__atomic_fetch_add(&h->wrong, 1, __ATOMIC_RELAXED);
		}
		for (i = 0; i < count; i++) {
			ret = gpunvme_wait_any(h->dq, req, count, 0, &index);
			if (index >= count || ret != status_of(stamp[index]))
				__atomic_fetch_add(&h->wrong, 1, __ATOMIC_RELAXED);
			index++;
		}
	}
}

static void waves_wait_for_any(void **state)
{
	static const uint32_t width[] = { 1, 4, 32 };
	uint32_t i;

	(void)state;
	for (i = 0; i < 3; i++) {
		struct rig *r = rig_new(7, 0);
		struct holders h = { &r->dq, &r->dbuf, 0 };

		r->ctrl.opts = (struct mini_opts){ .seed = i, .window = 7, .idle = 20, .status = status_of };
		rig_start(r);
		assert_int_equal(gpunvme_cpu_launch(width[i] == 32 ? 32 : 8, width[i], holding_kernel, &h), 0);
		assert_int_equal(h.wrong, 0);
		rig_end(r, true);
	}
}

static void wait_any_is_bounded(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req req[3], done;
	uint64_t began = gnvd_clock();
	uint32_t index = 7;

	(void)state;
	r->ctrl.opts.fate = hold_below_100;
	rig_start(r);
	assert_int_equal(submit(r, 1, &req[0]), 0);
	assert_int_equal(submit(r, 2, &req[1]), 0);
	assert_int_equal(submit(r, 3, &req[2]), 0);
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 3, rig_ms(20), &index), -GPUNVME_ETIMEDOUT);
	assert_int_equal(index, 3);
	assert_in_range(gnvd_clock() - began, rig_ms(20), rig_ms(20000));
	assert_int_equal(r->state->poison, 0);
	rig_stop(r, 1);
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 3, 0, &index), -GPUNVME_ECANCELED);
	assert_int_equal(index, 3);
	rig_stop(r, 0);
	assert_int_equal(submit(r, 200, &done), 0);
	assert_int_equal(gpunvme_wait_any(&r->dq, &done, 1, 0, &index), 0);
	assert_int_equal(index, 0);
	mini_release(&r->ctrl);
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 3, 0, &index), 0);
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 3, 0, &index), 0);
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 3, 0, &index), 0);
	rig_end(r, true);
}

static void wait_any_names_the_silent_command(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_req req[2];
	uint32_t index = 0;

	(void)state;
	r->ctrl.opts.fate = hold_below_100;
	r->dq.cmd_timeout = rig_ms(30);
	rig_start(r);
	assert_int_equal(submit(r, 1, &req[0]), 0);
	assert_int_equal(submit(r, 2, &req[1]), 0);
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 2, 0, &index), -GPUNVME_ETIMEDOUT);
	assert_true(index < 2);
	assert_int_equal(r->state->poison, GPUNVME_ETIMEDOUT);
	assert_int_equal(submit(r, 3, &req[0]), -GPUNVME_ESHUTDOWN);
	rig_end(r, false);
}

static void wait_any_refuses_bad_handles(void **state)
{
	struct rig *r = rig_new(4, 0);
	struct gpunvme_dq other = r->dq, reborn = r->dq;
	struct gpunvme_req req[3] = { { 0, 0, 0, 0 } }, copy;
	uint32_t index = 0;

	(void)state;
	other.tag = 1u << 16 | 8;
	reborn.tag = 2u << 16 | RIG_QID;
	rig_start(r);
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 0, 0, &index), -GPUNVME_ESTALE);
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 3, 0, &index), -GPUNVME_ESTALE);
	assert_int_equal(index, 3);
	assert_int_equal(submit(r, 1, &req[1]), 0);
	copy = req[1];
	assert_int_equal(gpunvme_wait_any(&other, req, 3, 0, &index), -GPUNVME_EXDEV);
	assert_int_equal(index, 1);
	assert_int_equal(gpunvme_wait_any(&reborn, req, 3, 0, &index), -GPUNVME_ESTALE);
	assert_int_equal(index, 1);
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 3, 0, &index), 0);
	assert_int_equal(index, 1);
	req[2] = copy; /* waited for twice */
	assert_int_equal(gpunvme_wait_any(&r->dq, req, 3, 0, &index), -GPUNVME_ESTALE);
	assert_int_equal(index, 2);
	other.head.version ^= 1;
	assert_int_equal(gpunvme_wait_any(&other, req, 3, 0, &index), -GPUNVME_EPROTONOSUPPORT);
	rig_end(r, true);
}

/* ---- Service ---- */

struct served {
	struct gpunvme_dq dq[2];
	const struct gpunvme_dbuf *dbuf;
	uint32_t stop, busy, wrong;
	int ended;
};

/* Are all command identifiers free? */
static GPUNVME_DEVICE int idle(const struct gpunvme_dq *dq)
{
	const uint64_t *map = (const uint64_t *)dq->cid_map;
	uint32_t n = 0, i;

	for (i = 0; i < (dq->cids + 63) / 64; i++)
		n += (uint32_t)__builtin_popcountll(__atomic_load_n(&map[i], __ATOMIC_ACQUIRE));
	return n == dq->cids;
}

/* Wave 0 serves; the others submit what nobody asks for, and go away. */
static GPUNVME_DEVICE void submit_and_leave(void *arg)
{
	struct served *s = (struct served *)arg;
	uint32_t lane = gpunvme_thread_id(), i;
	int ret;

	if (lane == 0) {
		ret = gpunvme_poll_queue(s->dq, 2, (uint64_t)(uintptr_t)&s->stop);
		__atomic_store_n(&s->ended, ret ? ret : 1, __ATOMIC_RELAXED);
		return;
	}
	for (i = 0; i < 300; i++) {
		const struct gpunvme_dq *dq = &s->dq[(lane + i) & 1];

		do
			ret = gpunvme_submit_read(dq, s->dbuf, 0, (1 + 3 * (uint64_t)i + lane % 2) * 512, 512, NULL);
		while (ret == -GPUNVME_EAGAIN);
		if (ret || gpunvme_read(dq, s->dbuf, 0, (3 * (uint64_t)i) * 512, 512) != status_of(3 * (uint64_t)i))
			__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
	}
	if (__atomic_sub_fetch(&s->busy, 1, __ATOMIC_ACQ_REL))
		return;
	while (!idle(&s->dq[0]) || !idle(&s->dq[1]))
		RIG_NAP_US(10); /* only the service takes completions now */
	__atomic_store_n(&s->stop, 1, __ATOMIC_RELEASE);
}

static void service_takes_what_nobody_waits_for(void **state)
{
	struct rig *rig[2] = { rig_new(3, 0), rig_new(5, 0) };
	struct served s = { .dbuf = &rig[0]->dbuf, .busy = 3 };
	unsigned i;

	(void)state;
	for (i = 0; i < 2; i++) {
		rig[i]->dq.flags |= GPUNVME_DQ_POLLED;
		rig[i]->ctrl.opts = (struct mini_opts){ .seed = i, .window = 5, .idle = 10, .status = status_of };
		s.dq[i] = rig[i]->dq;
		rig_start(rig[i]);
	}
	assert_int_equal(gpunvme_cpu_launch(4, 1, submit_and_leave, &s), 0);
	assert_int_equal(s.wrong, 0);
	assert_int_equal(s.ended, 1);
	assert_int_equal(rig[0]->state->detached_errors + rig[1]->state->detached_errors, 0);
	rig_end(rig[0], true);
	rig_end(rig[1], true);
}

/* A service that does not run costs time, nothing else: threads help themselves now and then. */
static void nothing_hangs_on_the_service(void **state)
{
	struct rig *r = rig_new(4, 0);
	unsigned i;

	(void)state;
	r->dq.flags |= GPUNVME_DQ_POLLED;
	r->ctrl.opts.status = status_of;
	rig_start(r);
	for (i = 0; i < 50; i++)
		assert_int_equal(gpunvme_read(&r->dq, &r->dbuf, 0, (uint64_t)i * 512, 512), status_of(i));
	rig_end(r, true);
}

static void service_ends_with_its_queues(void **state)
{
	struct rig *rig[2] = { rig_new(3, 0), rig_new(3, 0) };
	struct served s = { .stop = 0 };

	(void)state;
	s.dq[0] = rig[0]->dq;
	s.dq[1] = rig[1]->dq;
	rig_start(rig[0]);
	rig_start(rig[1]);
	rig[0]->state->poison = GPUNVME_ENODEV;
	rig[1]->stop = 1;
	assert_int_equal(gpunvme_poll_queue(s.dq, 2, (uint64_t)(uintptr_t)&s.stop), -GPUNVME_ESHUTDOWN);
	assert_int_equal(gpunvme_poll_queue(s.dq, 0, (uint64_t)(uintptr_t)&s.stop), -GPUNVME_EINVAL);
	s.stop = 1;
	assert_int_equal(gpunvme_poll_queue(s.dq, 2, (uint64_t)(uintptr_t)&s.stop), 0);
	s.dq[1].head.version = 0;
	assert_int_equal(gpunvme_poll_queue(s.dq, 2, (uint64_t)(uintptr_t)&s.stop), -GPUNVME_EPROTONOSUPPORT);
	rig_end(rig[0], false);
	rig_end(rig[1], true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waves_come_whole),
		cmocka_unit_test(waves_do_without_lanes_that_left),
		cmocka_unit_test(waves_share_one_transfer),
		cmocka_unit_test(waves_refuse_what_lanes_refuse),
		cmocka_unit_test(waves_use_volumes),
		cmocka_unit_test(wait_any_takes_each_once),
		cmocka_unit_test(waves_wait_for_any),
		cmocka_unit_test(wait_any_is_bounded),
		cmocka_unit_test(wait_any_names_the_silent_command),
		cmocka_unit_test(wait_any_refuses_bad_handles),
		cmocka_unit_test(service_takes_what_nobody_waits_for),
		cmocka_unit_test(nothing_hangs_on_the_service),
		cmocka_unit_test(service_ends_with_its_queues),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
