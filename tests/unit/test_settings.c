/* SPDX-License-Identifier: MIT */
/* Features that were set, after a reset: which come back, and what a drive that refuses one gets. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "fake.h"

#define FID(cmd) ((cmd)->cdw10 & 0xffu)

static struct {
	struct fake *fake;
	struct gpunvme_dev *dev;
	struct gpunvme_sqe set[16]; /* Set Features but that of the number of queues, since `count` was cleared */
	unsigned char data[16][4];  /* the first bytes of each */
	unsigned count;
	uint8_t refused;  /* feature */
	uint16_t status;  /* of it */
	uint32_t missing; /* namespace that is not active */
	char log[1024];
} t;

static bool admin(struct fake *fake, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	static const struct gpunvme_id_ns none;

	(void)fake;
	if (cmd->opc == GPUNVME_ADMIN_IDENTIFY && (cmd->cdw10 & 0xff) == GPUNVME_CNS_NS && cmd->nsid == t.missing) {
		memcpy(fake_dma(cmd->prp1), &none, sizeof(none));
		return true;
	}
	if (cmd->opc != GPUNVME_ADMIN_SET_FEATURES || FID(cmd) == GPUNVME_FID_NUM_QUEUES)
		return false;
	assert_true(t.count < 16);
	if (cmd->prp1)
		memcpy(t.data[t.count], fake_dma(cmd->prp1), sizeof(t.data[0]));
	t.set[t.count++] = *cmd;
	*status = FID(cmd) == t.refused ? t.status : 0;
	return true;
}

static void keep_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	if (level <= GPUNVME_LOG_WARN)
		snprintf(t.log + strlen(t.log), sizeof(t.log) - strlen(t.log), "%s\n", text);
}

static void open_drive(void)
{
	memset(&t, 0, sizeof(t));
	t.fake = fake_new();
	t.fake->admin = admin;
	t.fake->log = keep_log;
	t.fake->id.nn = 3;
	assert_int_equal(fake_open(t.fake, &t.dev), 0);
	t.count = 0;
}

static void close_drive(void)
{
	assert_int_equal(gpunvme_dev_close(t.dev), 0);
	fake_delete(t.fake, false);
}

static int reset(void)
{
	t.count = 0;
	t.log[0] = 0;
	return gpunvme_dev_reset(t.dev);
}

static void set(uint8_t fid, uint32_t nsid, uint32_t cdw11, uint32_t cdw12, const char *data)
{
	const struct gpunvme_sqe cmd = {
		.opc = GPUNVME_ADMIN_SET_FEATURES, .nsid = nsid, .cdw10 = fid, .cdw11 = cdw11, .cdw12 = cdw12
	};
	char bytes[4] = { 0 };

	snprintf(bytes, sizeof(bytes), "%s", data);
	assert_int_equal(gpunvme_dev_admin(t.dev, &cmd, bytes, strlen(data), 1, NULL), 0);
}

static void came_back(unsigned i, uint8_t fid, uint32_t cdw11, uint32_t cdw12, const char *data)
{
	assert_true(i < t.count);
	assert_int_equal(FID(&t.set[i]), fid);
	assert_int_equal(t.set[i].cdw11, cdw11);
	assert_int_equal(t.set[i].cdw12, cdw12);
	assert_memory_equal(t.data[i], data, strlen(data));
}

/* NVM Sets, endurance groups and attributes have settings of their own. */
static void test_scopes(void **state)
{
	static const uint8_t fids[] = { 0x09, 0x12, 0x13, 0x14, 0x18, 0x1c };

	(void)state;
	for (size_t i = 0; i < sizeof(fids); i++) {
		open_drive();
		set(fids[i], 0, 1, 1, "");
		set(fids[i], 0, 2, 2, "");
		set(fids[i], 0, 1, 3, "");
		assert_int_equal(reset(), 0);
		assert_int_equal(t.count, 2);
		came_back(0, fids[i], 2, 2, "");
		came_back(1, fids[i], 1, 3, "");
		close_drive();
	}
}

/* A command about some events of a placement handle leaves the other handles and the other events alone. */
static void test_placement_events(void **state)
{
	(void)state;
	open_drive();
	set(0x1e, 1, 2u << 16 | 0, 1, "ab");
	set(0x1e, 1, 2u << 16 | 1, 1, "ab");
	set(0x1e, 1, 1u << 16 | 0, 1, "c");
	set(0x1e, 1, 2u << 16 | 0, 0, "ab");
	assert_int_equal(reset(), 0);
	assert_int_equal(t.count, 3);
	came_back(0, 0x1e, 2u << 16 | 1, 1, "ab");
	came_back(1, 0x1e, 1u << 16 | 0, 1, "c");
	came_back(2, 0x1e, 2u << 16 | 0, 0, "ab");
	close_drive();
}

/* A drive keeps these itself, and would refuse them: namespaces exist, the value is not saved, the queue is deleted. */
static void test_not_again(void **state)
{
	static const uint8_t fids[] = { 0x0e, 0x1d, 0x1f, 0x21, 0x84 };

	(void)state;
	open_drive();
	for (size_t i = 0; i < sizeof(fids); i++)
		set(fids[i], 1, 1, 1, "x");
	set(0x02, 0, 1, 0, "");
	assert_int_equal(reset(), 0);
	assert_int_equal(t.count, 1);
	came_back(0, 0x02, 1, 0, "");
	close_drive();
}

/* A namespace that is detached or deleted takes its settings with it, once. The others come back, also those after it. */
static void test_namespace_gone(void **state)
{
	static const uint16_t status[] = { GPUNVME_SC_INVALID_NS, GPUNVME_SC_INVALID_FIELD };

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		open_drive();
		assert_int_equal(gpunvme_dev_set_feature(t.dev, 0x02, 1), 0);
		assert_int_equal(gpunvme_ns_set_feature(t.dev, 2, 0x05, 7), 0);
		assert_int_equal(gpunvme_ns_set_feature(t.dev, 3, 0x0a, 8), 0);
		t.refused = 0x05;
		t.status = status[i] | GPUNVME_ST_DNR;
		t.missing = 2;
		assert_int_equal(reset(), 0);
		assert_int_equal(t.fake->resets, 0); /* of the function */
		assert_int_equal(t.count, 3);
		came_back(0, 0x02, 1, 0, "");
		came_back(1, 0x05, 7, 0, "");
		came_back(2, 0x0a, 8, 0, "");
		assert_non_null(strstr(t.log, "namespace 2 is no longer active: its feature 0x05 is not set again"));
		assert_int_equal(reset(), 0);
		assert_int_equal(t.count, 2);
		came_back(1, 0x0a, 8, 0, "");
		assert_string_equal(t.log, "");
		close_drive();
	}
}

/* A refusal with no such reason ends the drive, and the setting is kept for the next reset. */
static void test_refused(void **state)
{
	static const struct {
		uint32_t nsid;
		uint8_t fid;
		uint16_t status;
	} table[] = {
		{ 1, 0x05, GPUNVME_SC_INVALID_FIELD }, /* it is active */
		{ 2, 0x05, GPUNVME_SC_INTERNAL },
		{ 2, GPUNVME_FID_VWC, GPUNVME_SC_INVALID_NS },
		{ 0, 0x05, GPUNVME_SC_INVALID_NS },
		{ GPUNVME_NSID_ALL, 0x05, GPUNVME_SC_INVALID_NS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		open_drive();
		set(table[i].fid, table[i].nsid, 7, 0, "");
		t.refused = table[i].fid;
		t.status = table[i].status;
		t.missing = 2;
		assert_int_equal(reset(), table[i].status);
		assert_int_equal(t.fake->resets, 1);
		assert_non_null(strstr(gpunvme_errmsg(), "back: the controller refused admin command 0x09"));
		t.refused = 0;
		assert_int_equal(reset(), 0);
		assert_int_equal(t.count, 1);
		close_drive();
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_scopes),
		cmocka_unit_test(test_placement_events),
		cmocka_unit_test(test_not_again),
		cmocka_unit_test(test_namespace_gone),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
