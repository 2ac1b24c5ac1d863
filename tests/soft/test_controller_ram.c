/* SPDX-License-Identifier: MIT */
/* A controller whose blocks are memory of the process: every command, what is refused, and that nothing is kept. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/image.h"
#include "common/rawhost.h"
#include "soft/engine/threads.h"

#define BLOCKS ((8u << 20) / 512)

#define TOGETHER 15u

static const char zeroes[8192];

static unsigned gets; /* references that were taken to mappings, by all threads (atomic) */

int __real_gnv_soft_space_get(struct gnv_space *space, uint64_t iova, size_t len, const struct gnv_soft_map **map);
int __wrap_gnv_soft_space_get(struct gnv_space *space, uint64_t iova, size_t len, const struct gnv_soft_map **map);
int __wrap_gnv_soft_space_get(struct gnv_space *space, uint64_t iova, size_t len, const struct gnv_soft_map **map)
{
	__atomic_fetch_add(&gets, 1, __ATOMIC_RELAXED);
	return __real_gnv_soft_space_get(space, iova, len, map);
}

static struct gnv_soft_config ram(const char *address)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;

	c.path = address;
	return c;
}

static int start(void **state)
{
	struct gnv_soft_config c = ram("ram:8M");

	(void)state;
	rawhost_start(&host, &c);
	return 0;
}

static void write_at(uint64_t lba, uint32_t seed)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, lba, 16, 0);

	rawhost_fill(&host, 0, 8192, seed);
	assert_int_equal(rawhost_io(&sqe), 0);
}

static void read_at(uint64_t lba)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, lba, 16, 16384);

	memset(rawhost_data(&host, 16384), 0xee, 8192);
	assert_int_equal(rawhost_io(&sqe), 0);
}

static void what_is_written_is_read(void **state)
{
	struct gpunvme_sqe flush = { .opc = GPUNVME_IO_FLUSH, .nsid = 1 }, sqe;

	(void)state;
	read_at(0);
	assert_memory_equal(rawhost_data(&host, 16384), zeroes, 8192);
	write_at(0, 1);
	write_at(BLOCKS - 16, 2);
	assert_int_equal(rawhost_io(&flush), 0);
	read_at(0);
	assert_true(rawhost_is_filled(&host, 16384, 8192, 1));
	read_at(BLOCKS - 16);
	assert_true(rawhost_is_filled(&host, 16384, 8192, 2));
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, BLOCKS - 15, 16, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_LBA_RANGE);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, BLOCKS, 1, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_LBA_RANGE);
}

static void compare_and_fua(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 32, 16, 0);

	(void)state;
	rawhost_fill(&host, 0, 8192, 3);
	sqe.cdw12 |= GPUNVME_RW_FUA;
	assert_int_equal(rawhost_io(&sqe), 0);
	sqe = rawhost_rw(&host, GPUNVME_IO_COMPARE, 32, 16, 0);
	assert_int_equal(rawhost_io(&sqe), 0);
	rawhost_data(&host, 0)[8191] ^= 1;
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_COMPARE_FAILURE);
}

/* Over a border of huge pages, and ragged at both ends: what is next to the range stays. */
static void zeroes_and_ranges(void **state)
{
	const uint32_t middle = (2u << 20) / 512;
	struct gpunvme_sqe zero = { .opc = GPUNVME_IO_WRITE_ZEROES, .nsid = 1, .cdw10 = middle - 7, .cdw12 = 13 };
	struct gpunvme_sqe dsm = { .opc = GPUNVME_IO_DSM, .nsid = 1, .prp1 = rawhost_iova(&host, 32768), .cdw10 = 2, .cdw11 = GPUNVME_DSM_AD };
	struct gpunvme_dsm_range *range = (void *)rawhost_data(&host, 32768);

	(void)state;
	write_at(middle - 8, 4);
	assert_int_equal(rawhost_io(&zero), 0);
	read_at(middle - 8);
	assert_memory_equal(rawhost_data(&host, 16384 + 512), zeroes, 14 * 512);
	assert_memory_equal(rawhost_data(&host, 16384), rawhost_data(&host, 0), 512);
	assert_memory_equal(rawhost_data(&host, 16384 + 15 * 512), rawhost_data(&host, 15 * 512), 512);

	write_at(0, 5);
	write_at(BLOCKS - 16, 6);
	memset(range, 0, 3 * sizeof(*range));
	range[0].slba = 1;
	range[0].nlb = BLOCKS - 2;
	range[2].slba = BLOCKS - 1;
	range[2].nlb = 1;
	assert_int_equal(rawhost_io(&dsm), 0);
	read_at(0);
	assert_true(rawhost_is_filled(&host, 16384, 512, 5)); /* before the first range */
	assert_memory_equal(rawhost_data(&host, 16384 + 512), zeroes, 8192 - 512);
	read_at(BLOCKS - 16);
	assert_memory_equal(rawhost_data(&host, 16384), zeroes, 8192);

	write_at(0, 7);
	write_at(8192, 8);
	zero.cdw10 = 0;
	zero.cdw12 = 8191 | GPUNVME_RW_DEAC;
	assert_int_equal(rawhost_io(&zero), 0);
	read_at(0);
	assert_memory_equal(rawhost_data(&host, 16384), zeroes, 8192);
	read_at(8192);
	assert_true(rawhost_is_filled(&host, 16384, 8192, 8));
	zero.cdw10 = 8192;
	zero.cdw12 = 8191;
	assert_int_equal(rawhost_io(&zero), 0);
	read_at(8192);
	assert_memory_equal(rawhost_data(&host, 16384), zeroes, 8192);
}

/* As fault=unsaid has it: of a range that was given back the begin is ones, and the rest what it was. */
static void ranges_of_one_that_says_nothing(void **state)
{
	struct gnv_soft_config c = ram("ram:1M");
	const uint32_t first = 32, ones = GNV_SOFT_FILL / 512;
	struct gpunvme_sqe dsm = { .opc = GPUNVME_IO_DSM, .nsid = 1, .cdw11 = GPUNVME_DSM_AD };
	struct gpunvme_dsm_range *range;

	(void)state;
	c.quirks.set = 1ull << GNV_SOFT_UNSAID;
	rawhost_start(&host, &c);
	write_at(first - 16, 1);
	write_at(first, 2);
	write_at(first + ones, 3);
	range = (void *)rawhost_data(&host, 32768);
	*range = (struct gpunvme_dsm_range){ .slba = first, .nlb = ones + 16 };
	dsm.prp1 = rawhost_iova(&host, 32768);
	assert_int_equal(rawhost_io(&dsm), 0);
	read_at(first - 16);
	assert_true(rawhost_is_filled(&host, 16384, 8192, 1));
	read_at(first);
	for (unsigned i = 0; i < 8192; i++)
		assert_int_equal((unsigned char)rawhost_data(&host, 16384)[i], 0xff);
	read_at(first + ones);
	assert_true(rawhost_is_filled(&host, 16384, 8192, 3));
	rawhost_close(&host);
}

/* What threads share is touched once for all commands that were found together, though each is over before the next begins. */
static void commands_together_share_a_reference(void **state)
{
	const struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 16, 16384);
	struct gpunvme_cqe cqe;
	unsigned i;

	(void)state;
	__atomic_store_n(&gets, 0, __ATOMIC_RELAXED);
	for (i = 0; i < TOGETHER; i++)
		rawhost_put(&host.io, &sqe);
	rawhost_ring_sq(&host, &host.io, host.io.tail);
	for (i = 0; i < TOGETHER; i++) {
		assert_true(rawhost_reap(&host, &host.io, &cqe, 5000, true));
		assert_int_equal(cqe.status >> 1, 0);
	}
	assert_int_equal(__atomic_load_n(&gets, __ATOMIC_RELAXED), 1);
}

/* Transfers whose pages lie apart, by a list. */
static void scattered_data(void **state)
{
	uint64_t *list = (void *)rawhost_data(&host, 1 << 20);
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 64, 256, 512);
	unsigned i;

	(void)state;
	for (i = 0; i < 33; i++) {
		list[i] = rawhost_iova(&host, (2 << 20) - i * 8192);
		rawhost_fill(&host, (2 << 20) - i * 8192, 4096, i);
	}
	rawhost_fill(&host, 512, 3584, 99);
	sqe.prp2 = rawhost_iova(&host, 1 << 20);
	assert_int_equal(rawhost_io(&sqe), 0);
	for (i = 0; i < 33; i++)
		memset(rawhost_data(&host, (2 << 20) - i * 8192), 0, 4096);
	memset(rawhost_data(&host, 512), 0, 3584);
	sqe.opc = GPUNVME_IO_READ;
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(rawhost_is_filled(&host, 512, 3584, 99));
	for (i = 0; i < 31; i++)
		assert_true(rawhost_is_filled(&host, (2 << 20) - i * 8192, 4096, i));
	assert_true(rawhost_is_filled(&host, (2 << 20) - 31 * 8192, 512, 31));
	assert_int_equal(rawhost_data(&host, (2 << 20) - 31 * 8192)[512], 0);
}

static enum gnv_soft_action in_halves(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *number)
{
	unsigned *asked = ctx;

	(void)sqid;
	(void)cmd;
	(void)status;
	(void)number;
	++*asked;
	return GNV_SOFT_SHORT;
}

/* A step that is answered in part is gone on with. */
static void transfers_in_parts(void **state)
{
	unsigned asked = 0;
	const struct gnv_soft_fault fault = { in_halves, &asked };

	(void)state;
	gnv_soft_set_fault(host.soft, &fault);
	write_at(128, 9);
	read_at(128);
	gnv_soft_set_fault(host.soft, NULL);
	assert_int_equal(asked, 2);
	assert_true(rawhost_is_filled(&host, 16384, 8192, 9));
}

static void other_threads_and_blocks(void **state)
{
	struct gnv_soft_config c = ram("ram:1.5MiB");
	struct gpunvme_sqe sqe;

	(void)state;
	c.lba_size = 4096;
	c.threads = 3;
	rawhost_start(&host, &c);
	sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 383, 1, 0);
	rawhost_fill(&host, 0, 4096, 1);
	assert_int_equal(rawhost_io(&sqe), 0);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 384, 1, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_LBA_RANGE);
	assert_true(rawhost_disable(&host)); /* a reset keeps what is stored */
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, RAWHOST_ENTRIES, RAWHOST_ENTRIES), 0);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 383, 1, 8192);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(rawhost_is_filled(&host, 8192, 4096, 1));
	rawhost_close(&host);
}

/* Nothing is kept: the next one begins with zeroes, and is another drive. */
static void nothing_is_kept(void **state)
{
	struct gpunvme_sqe identify = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = 1 };
	char serial[2][20];
	unsigned i;

	for (i = 0; i < 2; i++) {
		start(state);
		read_at(0);
		assert_memory_equal(rawhost_data(&host, 16384), zeroes, 8192);
		write_at(0, 1);
		identify.prp1 = rawhost_iova(&host, 0);
		assert_int_equal(rawhost_admin(&identify, NULL), 0);
		memcpy(serial[i], rawhost_data(&host, 4), 20);
		rawhost_close(&host);
	}
	assert_memory_not_equal(serial[0], serial[1], 20);
}

static void expect_refusal(struct gnv_soft_config c, int error, const char *word)
{
	struct gnv_soft *soft = NULL;
	struct gnv_space *space;

	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(gnv_soft_create(&c, space, NULL, &soft), error);
	assert_null(soft);
	if (!strstr(gpunvme_errmsg(), word))
		fail_msg("\"%s\" does not say \"%s\"", gpunvme_errmsg(), word);
	gnv_space_put(space);
}

static void bad_sizes_are_refused(void **state)
{
	static const char *const malformed[] = { "ram:", "ram:M", "ram:64MB", "ram:64M,64M", "ram:-1", "ram: 64M", "ram:0x1000", "ram:1.M",
						 "ram:64M/file" };
	struct gnv_soft_config c = ram("ram:64M");
	unsigned i;

	(void)state;
	for (i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++)
		expect_refusal(ram(malformed[i]), -EINVAL, "soft:./ram:");
	expect_refusal(ram("ram:0"), -EINVAL, "whole number of blocks");
	expect_refusal(ram("ram:511"), -EINVAL, "whole number of blocks");
	expect_refusal(ram("ram:1000"), -EINVAL, "whole number of blocks");
	expect_refusal(ram("ram:99999999999999999999"), -ENOMEM, "address space");
	expect_refusal(ram("ram:16777216T"), -ENOMEM, "address space");
	expect_refusal(ram("ram:4194304T"), -ENOMEM, "smaller size"); /* 2^62, which no system has */
	c.read_only = true;
	expect_refusal(c, -EINVAL, "ro");
}

/* A file of such a name is named as a path. */
static void files_of_that_name(void **state)
{
	struct gnv_soft_config c = ram("./ram:64M");
	struct gpunvme_sqe sqe;

	(void)state;
	assert_int_equal(chdir(image_dir), 0);
	expect_refusal(c, -ENOENT, "./ram:64M");
	image_make("ram:64M", 4096);
	rawhost_start(&host, &c);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 8, 1, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_LBA_RANGE);
	rawhost_close(&host);
	unlink("ram:64M");
	assert_int_equal(chdir("/"), 0);
}

#define RAM_TEST(test) cmocka_unit_test_setup_teardown(test, start, rawhost_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		RAM_TEST(what_is_written_is_read),
		RAM_TEST(compare_and_fua),
		RAM_TEST(zeroes_and_ranges),
		RAM_TEST(commands_together_share_a_reference),
		RAM_TEST(scattered_data),
		RAM_TEST(transfers_in_parts),
		cmocka_unit_test(ranges_of_one_that_says_nothing),
		cmocka_unit_test(other_threads_and_blocks),
		cmocka_unit_test(nothing_is_kept),
		cmocka_unit_test(bad_sizes_are_refused),
		cmocka_unit_test_setup_teardown(files_of_that_name, image_make_dir, image_remove_dir),
	};

	return cmocka_run_group_tests_name("controller_ram", tests, NULL, NULL);
}
