/* SPDX-License-Identifier: MIT */
/* The controller in software with a mock engine: what it asks of one, in which order, and by whose clock (soft/core/engine.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "soft/core/controller.h"

#define QUEUES 4u
#define SECOND 1000000000ull

static char calls[256]; /* one letter for each, and the queue */
static struct {
	uint64_t now;
	uint16_t refuses; /* status of the next queue */
	bool dry, quiet, aborts;
	struct gnv_soft_cmd *completed, *discarded;
	uint16_t status;
} engine;

static void note(char what, unsigned qid)
{
	const size_t len = strlen(calls);

	assert_true(len + 3 < sizeof(calls));
	calls[len] = what;
	calls[len + 1] = (char)('0' + qid);
	calls[len + 2] = ' ';
}

static void expect(const char *text)
{
	assert_string_equal(calls, text);
	memset(calls, 0, sizeof(calls));
}

/* ---- The engine ---- */

static uint16_t cq_create(struct gnv_soft *soft, const struct gnv_soft_ring *ring)
{
	(void)soft;
	note('C', ring->qid);
	return engine.refuses;
}

static uint16_t sq_create(struct gnv_soft *soft, const struct gnv_soft_ring *ring, uint16_t cqid)
{
	assert_true(soft->queue[cqid].cq);
	note('S', ring->qid);
	return engine.refuses;
}

static void sq_close(struct gnv_soft *soft, uint16_t qid)
{
	assert_true(soft->queue[qid].sq);
	note('z', qid);
}

static bool sq_is_dry(struct gnv_soft *soft, uint16_t qid)
{
	assert_true(soft->queue[qid].deleter != NULL);
	return engine.dry;
}

static void sq_delete(struct gnv_soft *soft, uint16_t qid)
{
	assert_true(soft->queue[qid].sq);
	note('s', qid);
}

static void cq_delete(struct gnv_soft *soft, uint16_t qid)
{
	assert_true(soft->queue[qid].cq && !soft->queue[qid].sqs);
	note('c', qid);
}

static bool abort_command(struct gnv_soft *soft, uint16_t sqid, uint16_t cid)
{
	(void)soft;
	assert_int_equal(cid, 7);
	note('a', sqid);
	return engine.aborts;
}

static void quiesce(struct gnv_soft *soft, bool dead)
{
	(void)soft;
	note('q', dead);
}

static bool is_quiet(struct gnv_soft *soft)
{
	(void)soft;
	return engine.quiet;
}

static void flush(struct gnv_soft *soft)
{
	(void)soft;
	note('f', 0);
}

static void complete(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, uint16_t status)
{
	(void)soft;
	engine.completed = cmd;
	engine.status = status;
}

static void discard(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	(void)soft;
	engine.discarded = cmd;
}

static uint64_t now(const struct gnv_soft *soft)
{
	(void)soft;
	return engine.now;
}

static const struct gnv_soft_engine_ops mock = {
	.name = "mock",
	.cq_create = cq_create,
	.sq_create = sq_create,
	.sq_close = sq_close,
	.sq_is_dry = sq_is_dry,
	.sq_delete = sq_delete,
	.cq_delete = cq_delete,
	.abort = abort_command,
	.quiesce = quiesce,
	.is_quiet = is_quiet,
	.flush = flush,
	.complete = complete,
	.discard = discard,
	.now = now,
};

/* ---- The controller ---- */

static struct gnv_soft soft;
static struct gnv_soft_queue queues[QUEUES + 1];
static struct gnv_soft_store store = { .block = 512, .size = 1 << 20 };
static _Alignas(4096) char bar[8192];

static uint32_t read_reg(unsigned at)
{
	uint32_t value;

	memcpy(&value, bar + at, sizeof(value));
	return value;
}

static void write_reg(unsigned at, uint32_t value)
{
	memcpy(bar + at, &value, sizeof(value));
}

static void enable(void)
{
	write_reg(GPUNVME_REG_AQA, 15 | 15 << 16);
	write_reg(GPUNVME_REG_CC, GPUNVME_CC_EN | 6u << 16 | 4u << 20);
	gnv_soft_regs_poll(&soft);
}

static int make(void **state)
{
	(void)state;
	memset(calls, 0, sizeof(calls));
	memset(bar, 0, sizeof(bar));
	memset(queues, 0, sizeof(queues));
	memset(&engine, 0, sizeof(engine));
	engine.now = SECOND;
	soft = (struct gnv_soft){ .engine = &mock,
				  .config = GNV_SOFT_CONFIG_INIT,
				  .part = { { .store = &store } },
				  .parts = 1,
				  .bar = bar,
				  .bar_len = sizeof(bar),
				  .bar_fd = -1,
				  .queue = queues };
	soft.config.queues = QUEUES;
	gnv_soft_describe(&soft);
	gnv_soft_features_reset(&soft);
	gnv_soft_regs_init(&soft);
	return 0;
}

static bool admin(struct gnv_soft_cmd *cmd, uint8_t opc, uint32_t cdw10, uint32_t cdw11, uint16_t *status)
{
	*cmd = (struct gnv_soft_cmd){ .io = &soft.io, .sqe = { .opc = opc, .cdw10 = cdw10, .cdw11 = cdw11 } };
	return gnv_soft_admin(&soft, cmd, status);
}

/* A command that is over at once. */
static uint16_t ask(uint8_t opc, uint32_t cdw10, uint32_t cdw11)
{
	struct gnv_soft_cmd cmd;
	uint16_t status;

	assert_true(admin(&cmd, opc, cdw10, cdw11, &status));
	return status;
}

static void make_pair(void)
{
	assert_int_equal(ask(GPUNVME_ADMIN_CREATE_CQ, 1 | 15u << 16, GPUNVME_QUEUE_PC), 0);
	assert_int_equal(ask(GPUNVME_ADMIN_CREATE_SQ, 1 | 15u << 16, GPUNVME_QUEUE_PC | 1u << 16), 0);
	expect("C1 S1 ");
}

/* ---- Tests ---- */

static void queues_come_and_go(void **state)
{
	struct gnv_soft_cmd cmd;
	uint16_t status;

	(void)state;
	enable();
	expect("C0 S0 ");
	assert_int_equal(read_reg(GPUNVME_REG_CSTS), GPUNVME_CSTS_RDY);
	make_pair();
	assert_int_equal(ask(GPUNVME_ADMIN_CREATE_CQ, 1 | 15u << 16, GPUNVME_QUEUE_PC), GPUNVME_SC_INVALID_QID);
	assert_int_equal(ask(GPUNVME_ADMIN_DELETE_CQ, 1, 0), GPUNVME_SC_INVALID_QUEUE_DELETION);
	expect("");
	assert_false(admin(&cmd, GPUNVME_ADMIN_DELETE_SQ, 1, 0, &status)); /* kept until it is dry */
	expect("z1 ");
	assert_int_equal(gnv_soft_admin_poll(&soft), 0);
	assert_null(engine.completed);
	engine.dry = true;
	assert_int_equal(gnv_soft_admin_poll(&soft), 1);
	assert_ptr_equal(engine.completed, &cmd);
	assert_int_equal(engine.status, 0);
	assert_int_equal(ask(GPUNVME_ADMIN_DELETE_CQ, 1, 0), 0);
	expect("s1 c1 ");
	assert_int_equal(soft.io_queues, 0);
}

static void a_queue_that_the_engine_refuses_is_none(void **state)
{
	(void)state;
	enable();
	expect("C0 S0 ");
	engine.refuses = GPUNVME_SC_DATA_TRANSFER;
	assert_int_equal(ask(GPUNVME_ADMIN_CREATE_CQ, 2 | 15u << 16, GPUNVME_QUEUE_PC), GPUNVME_SC_DATA_TRANSFER);
	engine.refuses = 0;
	assert_int_equal(ask(GPUNVME_ADMIN_DELETE_CQ, 2, 0), GPUNVME_SC_INVALID_QID);
	expect("C2 ");
}

static void a_reset_waits_for_the_engine(void **state)
{
	struct gnv_soft_cmd deleter, event;
	uint16_t status;

	(void)state;
	enable();
	expect("C0 S0 ");
	make_pair();
	assert_false(admin(&event, GPUNVME_ADMIN_ASYNC_EVENT_REQUEST, 0, 0, &status));
	assert_false(admin(&deleter, GPUNVME_ADMIN_DELETE_SQ, 1, 0, &status));
	write_reg(GPUNVME_REG_CC, 0);
	gnv_soft_regs_poll(&soft);
	gnv_soft_regs_poll(&soft);
	expect("z1 q1 ");
	assert_ptr_equal(engine.discarded, &event);
	assert_int_equal(soft.deleting, 0);
	assert_int_equal(read_reg(GPUNVME_REG_CSTS), GPUNVME_CSTS_RDY);
	engine.quiet = true;
	gnv_soft_regs_poll(&soft);
	expect("s0 s1 c0 c1 ");
	assert_int_equal(read_reg(GPUNVME_REG_CSTS), 0);
}

static void a_shutdown_flushes_when_all_is_quiet(void **state)
{
	(void)state;
	enable();
	expect("C0 S0 ");
	write_reg(GPUNVME_REG_CC, read_reg(GPUNVME_REG_CC) | GPUNVME_CC_SHN_NORMAL);
	gnv_soft_regs_poll(&soft);
	gnv_soft_regs_poll(&soft);
	expect("q0 ");
	engine.quiet = true;
	gnv_soft_regs_poll(&soft);
	expect("f0 ");
	assert_int_equal(read_reg(GPUNVME_REG_CSTS) & GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_BUSY);
	engine.quiet = false; /* it writes */
	gnv_soft_regs_poll(&soft);
	assert_int_equal(read_reg(GPUNVME_REG_CSTS) & GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_BUSY);
	engine.quiet = true;
	gnv_soft_regs_poll(&soft);
	expect("");
	assert_int_equal(read_reg(GPUNVME_REG_CSTS) & GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_DONE);
}

static void aborts_and_events(void **state)
{
	struct gnv_soft_cmd cmd, event;
	uint16_t status;

	(void)state;
	enable();
	expect("C0 S0 ");
	make_pair();
	assert_true(admin(&cmd, GPUNVME_ADMIN_ABORT, 1 | 7u << 16, 0, &status));
	assert_int_equal(cmd.dw0, 1);
	engine.aborts = true;
	assert_true(admin(&cmd, GPUNVME_ADMIN_ABORT, 1 | 7u << 16, 0, &status));
	assert_int_equal(cmd.dw0, 0);
	expect("a1 a1 ");
	assert_false(admin(&event, GPUNVME_ADMIN_ASYNC_EVENT_REQUEST, 0, 0, &status));
	gnv_soft_io_raise(&soft.io, GNV_SOFT_EVENT_DOORBELL_VALUE);
	assert_int_equal(gnv_soft_events_poll(&soft), 1);
	assert_ptr_equal(engine.completed, &event);
	assert_int_equal(event.dw0, 1u << 8 | GPUNVME_LID_ERROR << 16);
}

/* A drive that dies when it is enabled within two seconds of a reset: by the engine's clock, whatever the machine's says. */
static void time_is_the_engine_s(void **state)
{
	(void)state;
	soft.config.quirks.set = 1ull << GNV_SOFT_HASTY;
	engine.quiet = true;
	for (unsigned i = 0; i < 2; i++) {
		enable();
		expect("C0 S0 ");
		write_reg(GPUNVME_REG_CC, 0);
		gnv_soft_regs_poll(&soft);
		gnv_soft_regs_poll(&soft);
		expect("q1 s0 c0 ");
		engine.now += 2 * SECOND;
	}
	engine.now--;
	enable();
	expect("");
	assert_true(read_reg(GPUNVME_REG_CSTS) & GPUNVME_CSTS_CFS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(queues_come_and_go, make),
		cmocka_unit_test_setup(a_queue_that_the_engine_refuses_is_none, make),
		cmocka_unit_test_setup(a_reset_waits_for_the_engine, make),
		cmocka_unit_test_setup(a_shutdown_flushes_when_all_is_quiet, make),
		cmocka_unit_test_setup(aborts_and_events, make),
		cmocka_unit_test_setup(time_is_the_engine_s, make),
	};

	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
