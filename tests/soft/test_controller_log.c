/* SPDX-License-Identifier: MIT */
/* Get Log Page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/rawhost.h"

static uint16_t get_log(uint8_t lid, uint32_t bytes, uint32_t offset, bool retain)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_GET_LOG_PAGE,
				   .nsid = GPUNVME_NSID_ALL,
				   .prp1 = rawhost_iova(&host, 0),
				   .cdw10 = (bytes / 4 - 1) << 16 | (retain ? 0x8000u : 0) | lid,
				   .cdw12 = offset };

	return rawhost_admin(&sqe, NULL);
}

static void error_log_holds_the_newest_error_first(void **state)
{
	const struct gpunvme_error_log *log = (const void *)rawhost_data(&host, 0);
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 1ull << 40, 1, 0);
	uint16_t cid = host.io.next_cid;

	(void)state;
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_LBA_RANGE);
	assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = 0x7f, .nsid = 9 }), GPUNVME_SC_INVALID_OPCODE);
	assert_int_equal(get_log(GPUNVME_LID_ERROR, 256, 0, false), 0);
	assert_int_equal(log[0].error_count, 2);
	assert_int_equal(log[0].nsid, 9);
	assert_int_equal(log[1].error_count, 1);
	assert_int_equal(log[1].sqid, 1);
	assert_int_equal(log[1].cid, cid);
	assert_int_equal(log[1].status >> 1, GPUNVME_SC_LBA_RANGE);
	assert_int_equal(log[1].lba, 1ull << 40);
	assert_int_equal(log[2].error_count, 0);
}

static void smart_log_counts_what_was_done(void **state)
{
	const struct gpunvme_smart_log *log = (const void *)rawhost_data(&host, 0);
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 16, 8192);

	(void)state;
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_int_equal(rawhost_read_block(), 0);
	assert_int_equal(rawhost_read_block(), 0);
	assert_int_equal(get_log(GPUNVME_LID_SMART, 512, 0, false), 0);
	assert_int_equal(log->host_writes[0], 1);
	assert_int_equal(log->host_reads[0], 2);
	assert_int_equal(log->data_units_read[0], 1);
	assert_int_equal(log->data_units_written[0], 1);
	assert_int_equal(log->temperature[0] | log->temperature[1] << 8, 310);
	assert_int_equal(log->media_errors[0], 0);
}

static void firmware_log_has_one_slot(void **state)
{
	const struct gpunvme_firmware_log *log = (const void *)rawhost_data(&host, 0);

	(void)state;
	assert_int_equal(get_log(GPUNVME_LID_FIRMWARE, 512, 0, false), 0);
	assert_int_equal(log->afi, 1);
	assert_memory_equal(log->frs[0], "0.1.", 4);
	assert_int_equal(log->frs[1][0], 0);
}

static void log_offset_skips_and_the_end_reads_zero(void **state)
{
	(void)state;
	rawhost_fill(&host, 0, 1024, 2);
	assert_int_equal(get_log(GPUNVME_LID_SMART, 520, 508, false), 0);
	assert_int_equal(*(uint32_t *)(void *)rawhost_data(&host, 516), 0);
	assert_true(rawhost_data(&host, 520)[0] != 0); /* what was not asked for stays */
	assert_int_equal(get_log(GPUNVME_LID_SMART, 4, 0, false), 0);
	assert_int_equal((uint8_t)rawhost_data(&host, 0)[3], 100);
	assert_int_equal(get_log(GPUNVME_LID_SMART, 4, 4, false), 0);
	assert_int_equal((uint8_t)rawhost_data(&host, 0)[0], 10);
}

/*
 * Mandatory commands of an I/O controller over PCIe. Base Specification 1.4: figures of opcodes for Admin Commands and NVM Commands;
 * 2.0: figures of admin and I/O command support requirements, and NVM Command Set Specification 1.0, figure of opcodes. The two lists
 * are equal.
 */
static const uint8_t mandatory_admin[] = { GPUNVME_ADMIN_DELETE_SQ,	GPUNVME_ADMIN_CREATE_SQ,     GPUNVME_ADMIN_GET_LOG_PAGE,
					   GPUNVME_ADMIN_DELETE_CQ,	GPUNVME_ADMIN_CREATE_CQ,     GPUNVME_ADMIN_IDENTIFY,
					   GPUNVME_ADMIN_ABORT,		GPUNVME_ADMIN_SET_FEATURES,  GPUNVME_ADMIN_GET_FEATURES,
					   GPUNVME_ADMIN_ASYNC_EVENT_REQUEST };
static const uint8_t mandatory_io[] = { GPUNVME_IO_FLUSH, GPUNVME_IO_WRITE, GPUNVME_IO_READ };

static void has_all(const uint32_t *effects, const uint8_t *opcodes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!(effects[opcodes[i]] & GPUNVME_EFFECT_SUPPORTED))
			fail_msg("mandatory command %02xh is not supported", opcodes[i]);
}

/* The log of commands agrees with what the commands do: one that is not named there is an invalid opcode. */
static void effects_log_names_the_commands(void **state)
{
	static uint32_t log[512];
	struct gpunvme_sqe sqe = { .nsid = 1 };
	unsigned opc;

	(void)state;
	assert_int_equal(get_log(GPUNVME_LID_EFFECTS, 4096, 0, false), 0);
	memcpy(log, rawhost_data(&host, 0), sizeof(log));
	has_all(log, mandatory_admin, sizeof(mandatory_admin));
	has_all(log + 256, mandatory_io, sizeof(mandatory_io));
	for (opc = 0; opc < 256; opc++) {
		sqe.opc = (uint8_t)opc;
		assert_int_equal(log[256 + opc] & 1, rawhost_io(&sqe) != GPUNVME_SC_INVALID_OPCODE);
		if (opc == GPUNVME_ADMIN_ASYNC_EVENT_REQUEST)
			assert_int_equal(log[opc], GPUNVME_EFFECT_SUPPORTED); /* it would complete much later */
		else
			assert_int_equal(log[opc] & 1, rawhost_admin(&sqe, NULL) != GPUNVME_SC_INVALID_OPCODE);
	}
	assert_int_equal(log[256 + GPUNVME_IO_READ], GPUNVME_EFFECT_SUPPORTED);
	assert_int_equal(log[256 + GPUNVME_IO_FLUSH], GPUNVME_EFFECT_SUPPORTED);
	assert_int_equal(log[256 + GPUNVME_IO_WRITE], GPUNVME_EFFECT_SUPPORTED | GPUNVME_EFFECT_CONTENT);
	assert_int_equal(log[256 + GPUNVME_IO_DSM], GPUNVME_EFFECT_SUPPORTED | GPUNVME_EFFECT_CONTENT);
	assert_int_equal(log[256 + GPUNVME_IO_WRITE_ZEROES], GPUNVME_EFFECT_SUPPORTED | GPUNVME_EFFECT_CONTENT);
}

/* Base Specification 1.4: figure of log pages, of an I/O controller. Those of 2.0 are not there. */
static void mandatory_logs_of_1_4_are_there(void **state)
{
	unsigned lid;

	(void)state;
	assert_int_equal(rawhost_read32(&host, GPUNVME_REG_VS), 0x10400);
	for (lid = 0; lid < 256; lid++)
		assert_int_equal(get_log((uint8_t)lid, 512, 0, false), lid >= 1 && lid <= 5 ? 0 : GPUNVME_SC_INVALID_LOG_PAGE);
}

/* Of 2.0: the lists of log pages and features, which agree with what the commands do. */
static void mandatory_logs_of_2_0_are_there(void **state)
{
	static uint32_t logs[256], features[256];
	unsigned id;

	(void)state;
	assert_int_equal(rawhost_read32(&host, GPUNVME_REG_VS), 0x20000);
	assert_int_equal(get_log(GPUNVME_LID_SUPPORTED, 1024, 0, false), 0);
	memcpy(logs, rawhost_data(&host, 0), sizeof(logs));
	assert_int_equal(get_log(GPUNVME_LID_FEATURES, 1024, 0, false), 0);
	memcpy(features, rawhost_data(&host, 0), sizeof(features));
	for (id = 0; id < 256; id++) {
		const struct gpunvme_sqe get = { .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = 3 << 8 | id, .prp1 = rawhost_iova(&host, 0) };

		assert_int_equal(logs[id], get_log((uint8_t)id, 512, 0, false) != GPUNVME_SC_INVALID_LOG_PAGE);
		assert_int_equal(features[id] & 1, rawhost_admin(&get, NULL) != GPUNVME_SC_INVALID_FIELD);
	}
	assert_int_equal(features[GPUNVME_FID_POWER], GPUNVME_EFFECT_SUPPORTED | GPUNVME_EFFECT_CONTROLLER);
}

int main(void)
{
	struct gnv_soft_config modern = GNV_SOFT_CONFIG_INIT;
	const struct CMUnitTest tests[] = {
		RAWHOST_TEST(error_log_holds_the_newest_error_first),
		RAWHOST_TEST(smart_log_counts_what_was_done),
		RAWHOST_TEST(firmware_log_has_one_slot),
		RAWHOST_TEST(log_offset_skips_and_the_end_reads_zero),
		RAWHOST_TEST(effects_log_names_the_commands),
		RAWHOST_TEST_WITH(effects_log_names_the_commands, &modern),
		RAWHOST_TEST(mandatory_logs_of_1_4_are_there),
		RAWHOST_TEST_WITH(mandatory_logs_of_2_0_are_there, &modern),
	};

	modern.quirks.set = 1ull << GNV_SOFT_HINTS;
	return cmocka_run_group_tests_name("controller_log", tests, NULL, NULL);
}
