/* SPDX-License-Identifier: MIT */
/* I/O commands: what they do, what they refuse. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "common/rawhost.h"

static uint16_t rw(uint8_t opc, uint64_t lba, uint32_t blocks, uint32_t at)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, opc, lba, blocks, at);

	return rawhost_io(&sqe);
}

struct io_case {
	const char *what;
	struct gpunvme_sqe sqe; /* prp1 and prp2 are offsets in the data memory, unless prp1 has a top byte */
	uint16_t status;
};

#define LAST (RAWHOST_IMAGE / 512)

static const struct io_case bad_io[] = {
	{ "unknown opcode", { .opc = 0x7f, .nsid = 1 }, GPUNVME_SC_INVALID_OPCODE },
	{ "namespace 0", { .opc = 2, .nsid = 0 }, GPUNVME_SC_INVALID_NS },
	{ "namespace 2", { .opc = 2, .nsid = 2 }, GPUNVME_SC_INVALID_NS },
	{ "read of all namespaces", { .opc = 2, .nsid = 0xffffffff }, GPUNVME_SC_INVALID_NS },
	{ "flush of namespace 2", { .opc = 0, .nsid = 2 }, GPUNVME_SC_INVALID_NS },
	{ "fused", { .opc = 2, .flags = 1, .nsid = 1 }, GPUNVME_SC_INVALID_FIELD },
	{ "reserved flag", { .opc = 2, .flags = 4, .nsid = 1 }, GPUNVME_SC_INVALID_FIELD },
	{ "PSDT 2", { .opc = 2, .flags = 0x80, .nsid = 1 }, GPUNVME_SC_INVALID_FIELD },
	{ "PSDT 3", { .opc = 2, .flags = 0xc0, .nsid = 1 }, GPUNVME_SC_INVALID_FIELD },
	{ "first block beyond the end", { .opc = 2, .nsid = 1, .cdw10 = LAST }, GPUNVME_SC_LBA_RANGE },
	{ "last block beyond the end", { .opc = 2, .nsid = 1, .cdw10 = LAST - 1, .cdw12 = 1 }, GPUNVME_SC_LBA_RANGE },
	{ "block 2^64-1", { .opc = 2, .nsid = 1, .cdw10 = ~0u, .cdw11 = ~0u }, GPUNVME_SC_LBA_RANGE },
	{ "write beyond the end", { .opc = 1, .nsid = 1, .cdw10 = LAST }, GPUNVME_SC_LBA_RANGE },
	{ "compare beyond the end", { .opc = 5, .nsid = 1, .cdw10 = LAST }, GPUNVME_SC_LBA_RANGE },
	{ "zeroes beyond the end", { .opc = 8, .nsid = 1, .cdw10 = 1, .cdw12 = 0xffff }, GPUNVME_SC_LBA_RANGE },
	{ "protection information", { .opc = 2, .nsid = 1, .cdw12 = 1u << 29 }, GPUNVME_SC_INVALID_PROTECTION },
	{ "directive", { .opc = 1, .nsid = 1, .cdw12 = 1u << 20 }, GPUNVME_SC_INVALID_FIELD },
	{ "more than MDTS", { .opc = 2, .nsid = 1, .cdw12 = 2048 }, GPUNVME_SC_INVALID_FIELD },
	{ "PRP1 nowhere", { .opc = 2, .nsid = 1, .prp1 = 0x0100000000001000 }, GPUNVME_SC_DATA_TRANSFER },
	{ "PRP1 not on a dword", { .opc = 2, .nsid = 1, .prp1 = 2 }, GPUNVME_SC_INVALID_PRP_OFFSET },
	{ "PRP2 with an offset", { .opc = 2, .nsid = 1, .prp2 = 8192 + 512, .cdw12 = 15 }, GPUNVME_SC_INVALID_PRP_OFFSET },
	{ "PRP2 nowhere", { .opc = 2, .nsid = 1, .prp2 = 1ull << 44, .cdw12 = 15 }, GPUNVME_SC_DATA_TRANSFER },
	{ "list not on a qword", { .opc = 2, .nsid = 1, .prp2 = 8192 + 4, .cdw12 = 31 }, GPUNVME_SC_INVALID_PRP_OFFSET },
	{ "list nowhere", { .opc = 2, .nsid = 1, .prp2 = 1ull << 44, .cdw12 = 31 }, GPUNVME_SC_DATA_TRANSFER },
	{ "list of zero addresses", { .opc = 2, .nsid = 1, .prp2 = 8192, .cdw12 = 31 }, GPUNVME_SC_DATA_TRANSFER },
	{ "ranges nowhere", { .opc = 9, .nsid = 1, .prp1 = 0x0100000000001000, .cdw11 = 4 }, GPUNVME_SC_DATA_TRANSFER },
};

static void bad_commands_get_their_status(void **state)
{
	struct gpunvme_sqe sqe;
	uint16_t status;
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(bad_io) / sizeof(bad_io[0]); i++) {
		sqe = bad_io[i].sqe;
		if (!(sqe.prp1 >> 56))
			sqe.prp1 += rawhost_iova(&host, 0);
		sqe.prp2 += rawhost_iova(&host, 0);
		status = rawhost_io(&sqe);
		if (status != bad_io[i].status)
			fail_msg("%s: status 0x%x instead of 0x%x", bad_io[i].what, status, bad_io[i].status);
	}
}

static void final_errors_say_do_not_retry(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, LAST, 1, 0);
	struct gpunvme_cqe cqe;

	(void)state;
	rawhost_run(&host, &host.io, &sqe, &cqe);
	assert_int_equal(cqe.status >> 1, GPUNVME_SC_LBA_RANGE | GPUNVME_ST_DNR);
}

static void what_was_written_is_read(void **state)
{
	(void)state;
	rawhost_fill(&host, 0, 8192, 7);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 5, 16, 0), 0);
	assert_int_equal(rw(GPUNVME_IO_READ, 5, 16, 16384), 0);
	assert_true(rawhost_is_filled(&host, 16384, 8192, 7));
}

static void the_last_block_can_be_written_and_read(void **state)
{
	(void)state;
	rawhost_fill(&host, 0, 512, 8);
	assert_int_equal(rw(GPUNVME_IO_WRITE, LAST - 1, 1, 0), 0);
	assert_int_equal(rw(GPUNVME_IO_READ, LAST - 1, 1, 4096), 0);
	assert_true(rawhost_is_filled(&host, 4096, 512, 8));
}

static void blocks_of_4096_bytes_work(void **state)
{
	(void)state;
	rawhost_fill(&host, 0, 8192, 9);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 3, 2, 0), 0);
	assert_int_equal(rw(GPUNVME_IO_READ, 4, 1, 16384), 0);
	assert_memory_equal(rawhost_data(&host, 16384), rawhost_data(&host, 4096), 4096);
	assert_int_equal(rw(GPUNVME_IO_READ, RAWHOST_IMAGE / 4096, 1, 0), GPUNVME_SC_LBA_RANGE);
}

static void forced_unit_access_reads_and_writes(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 9, 8, 0);

	(void)state;
	rawhost_fill(&host, 0, 4096, 10);
	sqe.cdw12 |= GPUNVME_RW_FUA;
	assert_int_equal(rawhost_io(&sqe), 0);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 9, 8, 8192);
	sqe.cdw12 |= GPUNVME_RW_FUA;
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(rawhost_is_filled(&host, 8192, 4096, 10));
}

static void flush_of_one_and_of_all_namespaces_succeeds(void **state)
{
	(void)state;
	assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 }), 0);
	assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = GPUNVME_NSID_ALL }), 0);
}

static void compare_tells_equal_from_different(void **state)
{
	(void)state;
	rawhost_fill(&host, 0, 4096, 11);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 0, 8, 0), 0);
	assert_int_equal(rw(GPUNVME_IO_COMPARE, 0, 8, 0), 0);
	rawhost_data(&host, 0)[4095] ^= 1;
	assert_int_equal(rw(GPUNVME_IO_COMPARE, 0, 8, 0), GPUNVME_SC_COMPARE_FAILURE);
}

static void zero_blocks(uint32_t flags)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_IO_WRITE_ZEROES, .nsid = 1, .cdw10 = 3, .cdw12 = flags | 7 };
	static const char zeroes[4096];

	rawhost_fill(&host, 0, 8192, 12);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 0, 16, 0), 0);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_int_equal(rw(GPUNVME_IO_READ, 0, 16, 16384), 0);
	assert_true(rawhost_is_filled(&host, 16384, 3 * 512, 12));
	assert_memory_equal(rawhost_data(&host, 16384 + 3 * 512), zeroes, 8 * 512);
	assert_memory_equal(rawhost_data(&host, 16384 + 11 * 512), rawhost_data(&host, 11 * 512), 5 * 512);
}

static void write_zeroes_zeroes_just_its_blocks(void **state)
{
	(void)state;
	zero_blocks(0);
}

static void write_zeroes_with_deallocation_reads_zero(void **state)
{
	(void)state;
	zero_blocks(GPUNVME_RW_DEAC);
}

static void write_zeroes_may_exceed_mdts(void **state)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_IO_WRITE_ZEROES, .nsid = 1, .cdw12 = LAST - 1 };

	(void)state;
	assert_int_equal(rawhost_io(&sqe), 0);
}

static void deallocated_ranges_read_zero(void **state)
{
	struct gpunvme_dsm_range *range = (void *)rawhost_data(&host, 65536);
	struct gpunvme_sqe sqe = { .opc = GPUNVME_IO_DSM, .nsid = 1, .prp1 = rawhost_iova(&host, 65536), .cdw10 = 2, .cdw11 = 4 };
	static const char zeroes[4096];

	(void)state;
	rawhost_fill(&host, 0, 8192, 13);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 0, 16, 0), 0);
	range[0] = (struct gpunvme_dsm_range){ 0, 8, 8 };
	range[1] = (struct gpunvme_dsm_range){ 0, 0, 0 };
	range[2] = (struct gpunvme_dsm_range){ 0, 1, 0 };
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_int_equal(rw(GPUNVME_IO_READ, 0, 16, 16384), 0);
	assert_memory_equal(rawhost_data(&host, 16384), zeroes, 512);
	assert_memory_equal(rawhost_data(&host, 16384 + 512), rawhost_data(&host, 512), 7 * 512);
	assert_memory_equal(rawhost_data(&host, 16384 + 4096), zeroes, 4096);
}

static void deallocation_outside_the_namespace_is_refused_whole(void **state)
{
	struct gpunvme_dsm_range *range = (void *)rawhost_data(&host, 65536);
	struct gpunvme_sqe sqe = { .opc = GPUNVME_IO_DSM, .nsid = 1, .prp1 = rawhost_iova(&host, 65536), .cdw10 = 1, .cdw11 = 4 };

	(void)state;
	rawhost_fill(&host, 0, 4096, 14);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 0, 8, 0), 0);
	range[0] = (struct gpunvme_dsm_range){ 0, 8, 0 };
	range[1] = (struct gpunvme_dsm_range){ 0, 2, LAST - 1 };
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_LBA_RANGE);
	assert_int_equal(rw(GPUNVME_IO_READ, 0, 8, 16384), 0);
	assert_true(rawhost_is_filled(&host, 16384, 4096, 14));
}

static void read_only_controller_refuses_to_write(void **state)
{
	struct gpunvme_sqe identify = { .opc = GPUNVME_ADMIN_IDENTIFY, .nsid = 1, .prp1 = rawhost_iova(&host, 0) };

	(void)state;
	assert_true(gnv_soft_read_only(host.soft));
	assert_int_equal(rw(GPUNVME_IO_WRITE, 0, 1, 0), GPUNVME_SC_NS_WRITE_PROTECTED);
	assert_int_equal(rw(GPUNVME_IO_WRITE_ZEROES, 0, 1, 0), GPUNVME_SC_NS_WRITE_PROTECTED);
	assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = GPUNVME_IO_DSM, .nsid = 1, .prp1 = rawhost_iova(&host, 0) }),
			 GPUNVME_SC_NS_WRITE_PROTECTED);
	assert_int_equal(rw(GPUNVME_IO_READ, 0, 1, 0), 0);
	assert_int_equal(rawhost_io(&(struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 }), 0);
	assert_int_equal(rawhost_admin(&identify, NULL), 0);
	assert_int_equal(((struct gpunvme_id_ns *)(void *)rawhost_data(&host, 0))->nsattr, GPUNVME_NSATTR_WP);
}

int main(void)
{
	struct gnv_soft_config blocks_4k = GNV_SOFT_CONFIG_INIT;
	struct gnv_soft_config read_only = GNV_SOFT_CONFIG_INIT;
	const struct CMUnitTest tests[] = {
		RAWHOST_TEST(bad_commands_get_their_status),
		RAWHOST_TEST(final_errors_say_do_not_retry),
		RAWHOST_TEST(what_was_written_is_read),
		RAWHOST_TEST(the_last_block_can_be_written_and_read),
		RAWHOST_TEST_WITH(blocks_of_4096_bytes_work, &blocks_4k),
		RAWHOST_TEST(forced_unit_access_reads_and_writes),
		RAWHOST_TEST(flush_of_one_and_of_all_namespaces_succeeds),
		RAWHOST_TEST(compare_tells_equal_from_different),
		RAWHOST_TEST(write_zeroes_zeroes_just_its_blocks),
		RAWHOST_TEST(write_zeroes_with_deallocation_reads_zero),
		RAWHOST_TEST(write_zeroes_may_exceed_mdts),
		RAWHOST_TEST(deallocated_ranges_read_zero),
		RAWHOST_TEST(deallocation_outside_the_namespace_is_refused_whole),
		RAWHOST_TEST_WITH(read_only_controller_refuses_to_write, &read_only),
	};

	read_only.read_only = true;
	if (rawhost_is_vram())
		cmocka_set_skip_filter("read_only*"); /* such a drive is refused: test_vdrive.c */
	blocks_4k.lba_size = 4096;
	return cmocka_run_group_tests_name("controller_io", tests, NULL, NULL);
}
