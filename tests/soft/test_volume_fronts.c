/* SPDX-License-Identifier: MIT */
/* The other ways to use a volume: whole waves, and commands that a thread submits and takes later. */
#include <gpunvme/device.h>
#include <stdlib.h>
#include <string.h>

#include "soft/soft.h"
#include "queue/qp.h"
#include "volume_stage.h"

#define LANES 32u
#define EACH 37u /* blocks of a thread */
#define HALF (BUFFER / 2)

/* ---- Waves ---- */

static uint64_t first_of(uint32_t lane)
{
	return 11 + lane * 41ull;
}

/* Every third thread has no transfer in the first write, and makes it on its own. */
static void wave_kernel(void *arg)
{
	struct stage *s = arg;
	uint32_t lane = gpunvme_thread_id(), idle = lane % 3 == 2;
	uint64_t out = (uint64_t)lane * EACH * BLOCK, pos = first_of(lane) * BLOCK, len = EACH * BLOCK;
	int ret;

	fill(bytes_at(s, out), len, lane);
	memset(bytes_at(s, HALF + out), 0xee, len);
	ret = gpunvme_wave_write(&s->v, &s->buf, out, pos, idle ? GPUNVME_NO_TRANSFER : len, lane & 1 ? GPUNVME_FUA : 0);
	if (idle)
		ret = ret ? ret : gpunvme_write(&s->v, &s->buf, out, pos, len, 0);
	s->status[lane] = ret ? ret : gpunvme_wave_read(&s->v, &s->buf, HALF + out, pos, len);
}

static void run_waves(const char *keys, uint32_t members, uint32_t width, uint32_t queues, uint32_t stripe)
{
	struct stage s = { .members = members, .width = width };
	uint32_t lanes = width == LANES ? LANES : 12, i;

	open_stage(&s, keys, queues, stripe);
	assert_int_equal(gpunvme_cpu_launch(lanes, width, wave_kernel, &s), 0);
	for (i = 0; i < lanes; i++) {
		uint64_t out = (uint64_t)i * EACH * BLOCK;

		assert_int_equal(s.status[i], 0);
		assert_memory_equal(bytes_at(&s, HALF + out), bytes_at(&s, out), EACH * BLOCK);
		read_images(&s, first_of(i), EACH, bytes_at(&s, HALF + out));
		assert_memory_equal(bytes_at(&s, HALF + out), bytes_at(&s, out), EACH * BLOCK);
	}
	close_stage(&s);
}

static void lanes_of_a_wave_move_their_own_ranges(void **state)
{
	(void)state;
	run_waves("?lba=512", 3, 1, 2, 16);
	run_waves("?lba=512", 3, 4, 2, 16);
	run_waves("?lba=512&mdts=1", 2, 4, 2, 1);
	run_waves("?lba=512", 1, 4, 3, 0);
}

/* A wave of 32 on rings of two: threads without room try again. */
static void waves_are_larger_than_rings(void **state)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct stage s = { .members = 2, .width = LANES };
	uint32_t i;

	(void)state;
	open_devices(&s, "?lba=512");
	opts.depth = 2;
	opts.queues = 1;
	opts.stripe = 8;
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_create_striped(s.dev, s.members, s.gpu, &opts, &s.vol), 0);
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &s.v), 0);
	assert_int_equal(gpunvme_mem_alloc(s.gpu, NULL, BUFFER, NULL, &s.mem), 0);
	assert_int_equal(gpunvme_mem_map_queue(s.mem, s.vol, &s.buf), 0);
	assert_int_equal(gpunvme_cpu_launch(LANES, LANES, wave_kernel, &s), 0);
	for (i = 0; i < LANES; i++)
		assert_int_equal(s.status[i], 0);
	assert_memory_equal(bytes_at(&s, HALF), bytes_at(&s, 0), LANES * EACH * BLOCK);
	close_stage(&s);
}

/* Only the transfer of the lowest thread counts; it covers several stripes. */
static void one_kernel(void *arg)
{
	struct stage *s = arg;
	uint32_t lane = gpunvme_thread_id();
	uint64_t stray = lane % s->width ? BLOCK : 0;

	s->status[lane] = s->write ? gpunvme_wave_write_one(&s->v, &s->buf, s->offset + stray, s->lba * BLOCK + stray, s->nblocks * BLOCK, 0)
				   : gpunvme_wave_read_one(&s->v, &s->buf, s->offset + stray, s->lba * BLOCK + stray, s->nblocks * BLOCK);
}

static int run_one(struct stage *s, int write, uint64_t offset)
{
	uint32_t i;

	s->write = write;
	s->offset = offset;
	assert_int_equal(gpunvme_cpu_launch(s->width, s->width, one_kernel, s), 0);
	for (i = 1; i < s->width; i++)
		assert_int_equal(s->status[i], s->status[0]);
	return s->status[0];
}

static void a_wave_makes_one_transfer(void **state)
{
	static const uint32_t width[] = { 1, 4 };
	uint32_t i;

	(void)state;
	for (i = 0; i < 2; i++) {
		struct stage s = { .members = 3, .width = width[i], .lba = 13, .nblocks = 101 };
		struct gpunvme_queue_info before = { .size = sizeof(before) }, after = before;

		open_stage(&s, "?lba=512", 2, 16);
		fill(bytes_at(&s, 0), 103 * BLOCK, i);
		assert_int_equal(gpunvme_queue_get_info(s.vol, &before), 0);
		assert_int_equal(run_one(&s, 1, 0), 0);
		assert_int_equal(gpunvme_queue_get_info(s.vol, &after), 0);
		assert_int_equal(after.submitted - before.submitted, 8); /* 3 + 6 * 16 + 2 blocks */
		assert_int_equal(run_one(&s, 0, HALF), 0);
		assert_memory_equal(bytes_at(&s, HALF), bytes_at(&s, 0), 101 * BLOCK);
		read_images(&s, 13, 101, bytes_at(&s, HALF));
		assert_memory_equal(bytes_at(&s, HALF), bytes_at(&s, 0), 101 * BLOCK);
		close_stage(&s);
	}
}

/* Blocks of a member from 40 on fail. */
static enum gnv_soft_action fail_from_40(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)delay_us;
	*status = GPUNVME_SC_LBA_RANGE;
	return cmd->cdw10 + (cmd->cdw12 & 0xffff) >= 40 ? GNV_SOFT_FAIL : GNV_SOFT_GO;
}

static void status_kernel(void *arg)
{
	struct stage *s = arg;
	uint32_t lane = gpunvme_thread_id();

	s->status[lane] = gpunvme_wave_read(&s->v, &s->buf, lane * 8ull * BLOCK, (72 + lane * 8ull) * BLOCK, 8 * BLOCK);
}

/* Stripes of 8 on two members, of which the second fails from its block 40 on: stripe 11 of the volume, thread 2. */
static void each_lane_has_its_own_failure(void **state)
{
	struct stage s = { .members = 2, .width = 4, .lba = 80, .nblocks = 20 };
	const struct gnv_soft_fault fault = { fail_from_40, NULL };
	uint32_t i;

	(void)state;
	open_stage(&s, "?lba=512", 2, 8);
	gnv_soft_set_fault(gnv_dev_soft(s.dev[1]), &fault);
	assert_int_equal(gpunvme_cpu_launch(4, 4, status_kernel, &s), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(s.status[i] & (int)GPUNVME_ST_CODE, i == 2 ? GPUNVME_SC_LBA_RANGE : 0);
	assert_int_equal(run_one(&s, 0, 0) & (int)GPUNVME_ST_CODE, GPUNVME_SC_LBA_RANGE);
	s.nblocks = 8; /* up to the failure */
	assert_int_equal(run_one(&s, 0, 0), 0);
	gnv_soft_set_fault(gnv_dev_soft(s.dev[1]), NULL);
	close_stage(&s);
}

static enum gnv_soft_action arrive(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)sqid;
	(void)cmd;
	(void)status;
	(void)delay_us;
	__atomic_store_n((uint32_t *)ctx, 1, __ATOMIC_RELEASE);
	return GNV_SOFT_GO;
}

/* The first member holds its command until the second has one, for half a minute at most. */
static enum gnv_soft_action wait_for_other(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	uint32_t i;

	(void)sqid;
	(void)cmd;
	(void)delay_us;
	for (i = 0; i < 30000 && !__atomic_load_n((uint32_t *)ctx, __ATOMIC_ACQUIRE); i++)
		usleep(1000);
	*status = GPUNVME_SC_LBA_RANGE;
	return i < 30000 ? GNV_SOFT_GO : GNV_SOFT_FAIL;
}

static void devices_work_at_the_same_time(void **state)
{
	struct stage s = { .members = 2, .width = 4 };
	uint32_t arrived = 0, i;
	const struct gnv_soft_fault first = { wait_for_other, &arrived }, second = { arrive, &arrived };

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	gnv_soft_set_fault(gnv_dev_soft(s.dev[0]), &first);
	gnv_soft_set_fault(gnv_dev_soft(s.dev[1]), &second);
	assert_int_equal(gpunvme_cpu_launch(4, 4, status_kernel, &s), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(s.status[i], 0);
	gnv_soft_set_fault(gnv_dev_soft(s.dev[0]), NULL);
	gnv_soft_set_fault(gnv_dev_soft(s.dev[1]), NULL);
	close_stage(&s);
}

static enum gnv_soft_action lose(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)cmd;
	(void)status;
	(void)delay_us;
	return GNV_SOFT_DROP;
}

/* A member loses commands: its threads get the time-out, and those of the other member their blocks. */
static void a_silent_member_ends_its_own_lanes(void **state)
{
	struct stage s = { .members = 2, .width = 4 };
	const struct gnv_soft_fault fault = { lose, NULL };
	struct gpunvme_dq *dq;
	uint32_t i;

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	dq = (struct gpunvme_dq *)(uintptr_t)s.v.dq;
	dq[1].cmd_timeout = 300 * dq[1].ticks_per_ms;
	gnv_soft_set_fault(gnv_dev_soft(s.dev[1]), &fault);
	assert_int_equal(gpunvme_cpu_launch(4, 4, status_kernel, &s), 0); /* stripes 9, 10, 11, 12 */
	for (i = 0; i < 4; i++)
		assert_int_equal(s.status[i], i % 2 ? 0 : -GPUNVME_ETIMEDOUT);
	assert_int_equal(gpunvme_cpu_launch(4, 4, status_kernel, &s), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(s.status[i], i % 2 ? 0 : -GPUNVME_ESHUTDOWN);
	gnv_soft_set_fault(gnv_dev_soft(s.dev[1]), NULL);
	assert_int_equal(gpunvme_queue_recover(s.vol), 0); /* the buffers are the caller's again */
	assert_int_equal(gpunvme_queue_retire(s.vol), 0);
	close_stage(&s);
}

/* ---- Handles ---- */

#define PIECES 12u

static int done(struct stage *s, struct gpunvme_req *req)
{
	int ret;

	do
		ret = gpunvme_poll(&s->v, req);
	while (ret == -GPUNVME_EAGAIN);
	return ret;
}

/* A piece a stripe, all in flight at once, taken in another order. */
static void stripes_are_in_flight_together(void **state)
{
	struct stage s = { .members = 3, .width = 1 };
	struct gpunvme_req req[PIECES];
	uint64_t piece = 8 * BLOCK;
	uint32_t i;

	(void)state;
	open_stage(&s, "?lba=512", 2, 8);
	fill(bytes_at(&s, 0), PIECES * piece, 3);
	for (i = 0; i < PIECES; i++)
		assert_int_equal(gpunvme_submit_write(&s.v, &s.buf, i * piece, (5 + i) * piece, piece, i & 1 ? GPUNVME_FUA : 0, &req[i]), 0);
	for (i = PIECES; i--;)
		assert_int_equal(i & 1 ? gpunvme_wait(&s.v, &req[i], 0) : done(&s, &req[i]), 0);
	read_images(&s, 5 * 8, PIECES * 8, bytes_at(&s, HALF));
	assert_memory_equal(bytes_at(&s, HALF), bytes_at(&s, 0), PIECES * piece);
	memset(bytes_at(&s, HALF), 0xee, PIECES * piece);
	for (i = 0; i < PIECES; i++)
		assert_int_equal(gpunvme_submit_read(&s.v, &s.buf, HALF + i * piece, (5 + i) * piece, piece, &req[i]), 0);
	for (i = 0; i < PIECES; i++)
		assert_int_equal(done(&s, &req[i]), 0);
	assert_memory_equal(bytes_at(&s, HALF), bytes_at(&s, 0), PIECES * piece);
	for (i = 0; i < PIECES; i++)
		assert_int_equal(gpunvme_poll(&s.v, &req[i]), -GPUNVME_ESTALE);
	close_stage(&s);
}

static void several_stripes_are_too_long_for_one_command(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 3, 100 };
	struct gpunvme_queue_info before = { .size = sizeof(before) }, after = before;
	struct gpunvme_req req;
	struct gpunvme_dvol v;

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &before), 0);
	assert_int_equal(gpunvme_submit_read(&s.v, &s.buf, 0, 7 * BLOCK, 2 * BLOCK, &req), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_submit_write(&s.v, &s.buf, 0, 7 * BLOCK, 2 * BLOCK, 0, &req), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_submit_zero(&s.v, 0, 9 * BLOCK, &req), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_submit_discard(&s.v, &s.buf, 0, 0, 9 * BLOCK, &req), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_queue_view(s.vol, &view, &v), 0); /* from block 3 on: its first stripe has 5 blocks left */
	assert_int_equal(gpunvme_submit_read(&v, &s.buf, 0, 0, 6 * BLOCK, &req), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_queue_get_info(s.vol, &after), 0);
	assert_int_equal(after.submitted, before.submitted);
	assert_int_equal(gpunvme_submit_read(&v, &s.buf, 0, 0, 5 * BLOCK, &req), 0);
	assert_int_equal(gpunvme_wait(&v, &req, 0), 0);
	close_stage(&s);
	s = (struct stage){ .members = 1, .width = 1 };
	open_stage(&s, "?lba=512", 2, 8); /* one device has no stripes */
	assert_int_equal(gpunvme_submit_read(&s.v, &s.buf, 0, 7 * BLOCK, 20 * BLOCK, &req), 0);
	assert_int_equal(gpunvme_wait(&s.v, &req, 0), 0);
	close_stage(&s);
}

static void blocks_are_zeroed_and_discarded(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_req zero, discard;

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	fill(bytes_at(&s, 0), 32 * BLOCK, 1);
	assert_int_equal(gpunvme_write(&s.v, &s.buf, 0, 0, 32 * BLOCK, 0), 0);
	assert_int_equal(gpunvme_submit_zero(&s.v, 9 * BLOCK, 6 * BLOCK, &zero), 0);
	assert_int_equal(gpunvme_submit_discard(&s.v, &s.buf, BUFFER - 16, 16 * BLOCK, 8 * BLOCK, &discard), 0);
	assert_int_equal(gpunvme_wait(&s.v, &discard, 0), 0);
	assert_int_equal(gpunvme_wait(&s.v, &zero, 0), 0);
	memset(bytes_at(&s, 9 * BLOCK), 0, 6 * BLOCK);
	memset(bytes_at(&s, 16 * BLOCK), 0, 8 * BLOCK);
	read_images(&s, 0, 32, bytes_at(&s, HALF));
	assert_memory_equal(bytes_at(&s, HALF), bytes_at(&s, 0), 32 * BLOCK);
	close_stage(&s);
}

static void detached_commands_free_their_places(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_req req;

	(void)state;
	open_stage(&s, "?lba=512", 1, 8);
	assert_int_equal(gpunvme_submit_read(&s.v, &s.buf, 0, 8 * BLOCK, BLOCK, &req), 0);
	assert_int_equal(gpunvme_detach(&s.v, &req), 0);
	assert_int_equal(gpunvme_detach(&s.v, &req), -GPUNVME_ESTALE);
	assert_int_equal(gpunvme_submit_read(&s.v, &s.buf, 0, 0, BLOCK, NULL), 0);
	do { /* calls of the volume take the completions */
		assert_int_equal(gpunvme_read(&s.v, &s.buf, 0, 0, 16 * BLOCK), 0);
		assert_int_equal(gpunvme_queue_get_info(s.vol, &info), 0);
	} while (info.in_flight);
	close_stage(&s);
}

/* A handle of a queue that the volume has not, of another of its queues, and of nothing; what the calls refuse. */
static void strange_handles_are_refused(void **state)
{
	struct stage s = { .members = 2, .width = 1 };
	struct gpunvme_req req, strange;
	struct gpunvme_dvol v, wide;

	(void)state;
	open_stage(&s, "?lba=512", 2, 8);
	wide = s.v;
	wide.lba_count = 1ull << 50;
	assert_int_equal(gpunvme_submit_read(&s.v, &s.buf, 0, 8 * BLOCK, BLOCK, &req), 0);
	strange = req;
	strange.gen += 4;
	assert_int_equal(gpunvme_poll(&s.v, &strange), -GPUNVME_EXDEV);
	assert_int_equal(gpunvme_wait(&s.v, &strange, 0), -GPUNVME_EXDEV);
	assert_int_equal(gpunvme_detach(&s.v, &strange), -GPUNVME_EXDEV);
	strange = req;
	strange.gen ^= 2; /* another queue of the member */
	assert_int_equal(gpunvme_poll(&s.v, &strange), -GPUNVME_EXDEV);
	memset(&strange, 0, sizeof(strange));
	assert_int_equal(gpunvme_poll(&s.v, &strange), -GPUNVME_ESTALE);
	assert_int_equal(gpunvme_queue_view(s.vol, NULL, &v), 0);
	assert_int_equal(gpunvme_submit_write(&v, &s.buf, 0, 0, BLOCK, 0, &strange), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_submit_write(&s.v, &s.buf, 0, 0, BLOCK, 2, &strange), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_submit_read(&s.v, &s.buf, 0, s.v.lba_count * BLOCK, BLOCK, &strange), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_submit_read(&s.v, &s.buf, BUFFER, 0, BLOCK, &strange), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_submit_read(&s.v, &s.buf, 0, ~0ull << 9, 2 * BLOCK, &strange), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_submit_zero(&wide, 0, (uint64_t)BLOCK << 32, &strange), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_wave_read(&wide, &s.buf, 0, 0, (uint64_t)BLOCK << 32), -GPUNVME_EMSGSIZE);
	assert_int_equal(gpunvme_wave_read(&s.v, &s.buf, 0, ~0ull << 9, 2 * BLOCK), -GPUNVME_ERANGE);
	assert_int_equal(gpunvme_wave_read(&s.v, &s.buf, 0, 0, BLOCK - 1), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_wave_write(&v, &s.buf, 0, 0, BLOCK, 0), -GPUNVME_EROFS);
	assert_int_equal(gpunvme_wave_write_one(&s.v, &s.buf, 0, 0, BLOCK, 2), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_wave_read_one(&s.v, &s.buf, 0, 0, GPUNVME_NO_TRANSFER), -GPUNVME_EINVAL);
	assert_int_equal(gpunvme_wait(&v, &req, 0), 0);
	close_stage(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lanes_of_a_wave_move_their_own_ranges),
		cmocka_unit_test(waves_are_larger_than_rings),
		cmocka_unit_test(a_wave_makes_one_transfer),
		cmocka_unit_test(each_lane_has_its_own_failure),
		cmocka_unit_test(devices_work_at_the_same_time),
		cmocka_unit_test(a_silent_member_ends_its_own_lanes),
		cmocka_unit_test(stripes_are_in_flight_together),
		cmocka_unit_test(several_stripes_are_too_long_for_one_command),
		cmocka_unit_test(blocks_are_zeroed_and_discarded),
		cmocka_unit_test(detached_commands_free_their_places),
		cmocka_unit_test(strange_handles_are_refused),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, make_images, remove_images);
}
