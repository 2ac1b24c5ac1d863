/* SPDX-License-Identifier: MIT */
/*
 * Many threads on one queue, against a controller that completes out of order, fails some commands and dawdles: every thread gets
 * the status of its own command, exactly once, at every depth and wave width.
 */
#include "rig.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ROUNDS 60u
#else
#define ROUNDS RIG_COUNT(200u, 20u)
#endif

struct load {
	const struct gpunvme_dq *dq;
	const struct gpunvme_dbuf *dbuf;
	uint32_t rounds;
	uint32_t *seen; /* by stamp: times the controller fetched it */
	uint32_t wrong;
};

/* A third of all stamps fail, with a status that depends on the stamp. */
static GPUNVME_DEVICE uint16_t status_of(uint64_t stamp)
{
	uint64_t h = stamp * 0x9e3779b97f4a7c15ull;

	return h % 3 ? 0 : (uint16_t)(0x4000u | (1 + (h >> 40) % 0x7ff));
}

static void note(void *ctx, const struct gpunvme_sqe *cmd)
{
	struct load *load = ctx;

	load->seen[cmd->cdw10]++;
}

/* One loop for submitting and polling: see gpunvme_submit_read(). */
static GPUNVME_DEVICE int read_by_polling(const struct load *load, uint64_t stamp)
{
	int ret = -GPUNVME_EAGAIN, submitted = 0;
	struct gpunvme_req req;

	while (RIG_ANY_LANE(ret == -GPUNVME_EAGAIN)) {
		if (ret == -GPUNVME_EAGAIN && !submitted) {
			ret = gpunvme_submit_read(load->dq, load->dbuf, 0, stamp * 512, 512, &req);
			submitted = !ret;
			ret = ret ? ret : -GPUNVME_EAGAIN;
		} else if (ret == -GPUNVME_EAGAIN) {
			ret = gpunvme_poll(load->dq, &req);
		}
	}
	return ret;
}

/* Threads differ in how much they do and leave early, so waves are partly active most of the time. */
static GPUNVME_DEVICE void kernel(void *arg)
{
	struct load *load = (struct load *)arg;
	uint32_t lane = gpunvme_thread_id(), lanes = gpunvme_thread_count(), i;
	uint32_t rounds = load->rounds - (lane * 7) % (load->rounds / 2);

	for (i = 0; i < rounds; i++) {
		uint64_t stamp = (uint64_t)i * lanes + lane;
		uint16_t expect = status_of(stamp);
		int ret;

		if ((stamp * 2654435761u >> 20) % 5 == 0)
			ret = read_by_polling(load, stamp);
		else
			ret = gpunvme_write(load->dq, load->dbuf, 0, stamp * 512, 512, 0);
		if (ret != expect)
			__atomic_fetch_add(&load->wrong, 1, __ATOMIC_RELAXED);
	}
}

static void run_matrix(unsigned shift, uint32_t width, uint32_t lanes, uint64_t start)
{
	struct rig *rig = rig_new(shift, start);
	struct load load = { &rig->dq, &rig->dbuf, width == 1 ? ROUNDS * 8 : width == 4 ? ROUNDS : ROUNDS / 10, NULL, 0 };
	uint32_t i, lane, total = 0, expect = 0;

	load.seen = rig_zeroed(4ull * load.rounds * lanes);
	rig->ctrl.opts = (struct mini_opts){ .seed = shift * 100 + width, .window = 9, .idle = 30, .naps = 2, .status = status_of };
	rig->ctrl.seen = note;
	rig->ctrl.seen_ctx = &load;
	rig_start(rig);
	assert_int_equal(gpunvme_cpu_launch(lanes, width, kernel, &load), 0);
	assert_int_equal(load.wrong, 0);
	for (i = 0; i < load.rounds * lanes; i++)
		total += load.seen[i] == 1;
	for (lane = 0; lane < lanes; lane++)
		expect += load.rounds - (lane * 7) % (load.rounds / 2);
	assert_int_equal(total, expect);
	rig_end(rig, true);
	free(load.seen);
}

#define MATRIX(shift, width, lanes)                                              \
	static void depth_##shift##_width_##width(void **state)                  \
	{                                                                        \
		(void)state;                                                     \
		run_matrix(shift, width, lanes, 0);                              \
	}
MATRIX(1, 1, 3)
MATRIX(2, 1, 4)
MATRIX(5, 1, 4)
MATRIX(6, 1, 4)
MATRIX(1, 4, 8)
MATRIX(2, 4, 8)
MATRIX(5, 4, 10)
MATRIX(6, 4, 10)
MATRIX(1, 32, 32)
MATRIX(2, 32, 32)
MATRIX(5, 32, 40)
MATRIX(6, 32, 40)

/* The same where counters wrap: 16-bit ring arithmetic, 32-bit positions, and far beyond. */
static void positions_cross_2_to_16(void **state)
{
	(void)state;
	run_matrix(5, 4, 8, (1ull << 16) - 100);
}

static void positions_cross_2_to_32(void **state)
{
	(void)state;
	run_matrix(5, 1, 4, (1ull << 32) - 100);
	run_matrix(1, 4, 4, (1ull << 32) - 51);
}

static void positions_cross_2_to_48(void **state)
{
	(void)state;
	run_matrix(4, 1, 3, (1ull << 48) - 77);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(depth_1_width_1), cmocka_unit_test(depth_2_width_1), cmocka_unit_test(depth_5_width_1),
		cmocka_unit_test(depth_6_width_1), cmocka_unit_test(depth_1_width_4), cmocka_unit_test(depth_2_width_4),
		cmocka_unit_test(depth_5_width_4), cmocka_unit_test(depth_6_width_4), cmocka_unit_test(depth_1_width_32),
		cmocka_unit_test(depth_2_width_32), cmocka_unit_test(depth_5_width_32), cmocka_unit_test(depth_6_width_32),
		cmocka_unit_test(positions_cross_2_to_16), cmocka_unit_test(positions_cross_2_to_32),
		cmocka_unit_test(positions_cross_2_to_48),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
