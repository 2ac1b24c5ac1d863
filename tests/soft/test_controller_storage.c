/* SPDX-License-Identifier: MIT */
/* What a full, limited or shrunk image does to commands. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/image.h"
#include "common/rawhost.h"

static void full_file_system_reaches_the_command(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	unsigned i, full = 0, good = 0;
	struct gpunvme_sqe sqe;
	uint16_t status;

	(void)state;
	if (mount("tmpfs", image_dir, "tmpfs", 0, "size=256k"))
		SKIP("cannot mount a tmpfs");
	c.path = image_path("image");
	image_make(c.path, 4 << 20);
	rawhost_start(&host, &c);
	rawhost_fill(&host, 0, 8192, 1);
	for (i = 0; i < 100; i++) {
		sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, i * 16, 16, 0);
		status = rawhost_io(&sqe);
		assert_true(!status || status == GPUNVME_SC_CAPACITY_EXCEEDED);
		full += status != 0;
		good += !status;
	}
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 16, 16384);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(rawhost_is_filled(&host, 16384, 8192, 1));
	rawhost_close(&host);
	assert_true(full > 60);
	assert_true(good > 10);
}

static void write_zeroes_works_where_ranges_cannot_be_zeroed(void **state)
{
	struct gpunvme_sqe zero = { .opc = GPUNVME_IO_WRITE_ZEROES, .nsid = 1, .cdw10 = 4, .cdw12 = 3 };
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	static const char zeroes[2048];
	struct gpunvme_sqe sqe;

	(void)state;
	if (mount("tmpfs", image_dir, "tmpfs", 0, "size=8m")) /* tmpfs has no FALLOC_FL_ZERO_RANGE */
		SKIP("cannot mount a tmpfs");
	c.path = image_path("image");
	image_make(c.path, 1 << 20);
	rawhost_start(&host, &c);
	rawhost_fill(&host, 0, 8192, 1);
	sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 16, 0);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_int_equal(rawhost_io(&zero), 0);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 16, 16384);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_memory_equal(rawhost_data(&host, 16384 + 2048), zeroes, 2048);
	assert_memory_equal(rawhost_data(&host, 16384 + 4096), rawhost_data(&host, 4096), 4096);
	zero.cdw10 = 0;
	zero.cdw12 = 2047;
	assert_int_equal(rawhost_io(&zero), 0);
	rawhost_close(&host);
}

static void truncated_image_fails_its_reads(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	struct gpunvme_sqe sqe;

	(void)state;
	c.path = image_path("image");
	image_make(c.path, 1 << 20);
	rawhost_start(&host, &c);
	assert_int_equal(truncate(image_path("image"), 4096), 0);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 4, 8, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_UNRECOVERED_READ);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 8, 0);
	assert_int_equal(rawhost_io(&sqe), 0);
	rawhost_close(&host);
	unlink(image_path("image"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(full_file_system_reaches_the_command, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(write_zeroes_works_where_ranges_cannot_be_zeroed, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(truncated_image_fails_its_reads, image_make_dir, image_remove_dir),
	};

	return cmocka_run_group_tests_name("controller_storage", tests, NULL, NULL);
}
