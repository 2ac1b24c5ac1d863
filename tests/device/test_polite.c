/* SPDX-License-Identifier: MIT */
/* A CPU thread that polls in vain gives its core away, as the controller may be a thread that waits for it. */
#include "rig.h"

static _Thread_local unsigned yields;

int __real_sched_yield(void);
int __wrap_sched_yield(void);

int __wrap_sched_yield(void)
{
	yields++;
	return __real_sched_yield();
}

static enum mini_fate hold(uint64_t stamp)
{
	(void)stamp;
	return MINI_HOLD;
}

static void polling_in_vain_yields(void **state)
{
	struct rig *r = rig_new(3, 0);
	struct gpunvme_req req;
	unsigned i;

	(void)state;
	r->ctrl.opts.fate = hold;
	rig_start(r);
	assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, 512, 512, &req), 0);
	yields = 0;
	for (i = 0; i < 1280; i++)
		assert_int_equal(gpunvme_poll(&r->dq, &req), -GPUNVME_EAGAIN);
	assert_int_equal(yields, 10);
	mini_release(&r->ctrl);
	assert_int_equal(gpunvme_wait(&r->dq, &req, 0), 0);
	yields = 0;
	for (i = 0; i < 1280; i++)
		assert_int_equal(gpunvme_poll(&r->dq, &req), -GPUNVME_ESTALE);
	assert_int_equal(yields, 0);
	rig_end(r, true);
}

/* So does one that asks again and again for room. */
static void submitting_in_vain_yields(void **state)
{
	struct rig *r = rig_new(3, 0);
	struct gpunvme_req req[16], more;
	unsigned i, n = 0;

	(void)state;
	r->ctrl.opts.fate = hold;
	rig_start(r);
	while (!gpunvme_submit_read(&r->dq, &r->dbuf, 0, 512, 512, &req[n]))
		n++;
	yields = 0;
	for (i = 0; i < 1280; i++)
		assert_int_equal(gpunvme_submit_read(&r->dq, &r->dbuf, 0, 512, 512, &more), -GPUNVME_EAGAIN);
	assert_int_equal(yields, 10);
	mini_release(&r->ctrl);
	for (i = 0; i < n; i++)
		assert_int_equal(gpunvme_wait(&r->dq, &req[i], 0), 0);
	rig_end(r, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(polling_in_vain_yields),
		cmocka_unit_test(submitting_in_vain_yields),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
