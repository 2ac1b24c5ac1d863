/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>

static void test_statuses(void **state)
{
	(void)state;
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_LBA_RANGE), "LBA Out of Range");
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_LBA_RANGE | GPUNVME_ST_DNR | GPUNVME_ST_MORE), "LBA Out of Range");
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_UNRECOVERED_READ), "Unrecovered Read Error");
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_INVALID_QID), "Invalid Queue Identifier");
	assert_string_equal(gpunvme_strerror(GPUNVME_SC_HOST_PATH), "Host Pathing Error");
	assert_string_equal(gpunvme_strerror(0x37f), "Unknown Path Related Status");
	assert_string_equal(gpunvme_strerror(0x7c0), "Vendor Specific Status");
	assert_string_equal(gpunvme_strerror(0x07f), "Unknown Generic Command Status");
}

static void test_errors(void **state)
{
	static const int all[] = { EAGAIN,   EBUSY,	      EXDEV,	  ENODEV,    EINVAL,	EROFS,	ERANGE,	   EPROTO,
				   EMSGSIZE, EPROTONOSUPPORT, EOPNOTSUPP, ESHUTDOWN, ETIMEDOUT, ESTALE, ECANCELED, EIO };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		assert_string_not_equal(gpunvme_strerror(-all[i]), "unknown error");
	assert_string_equal(gpunvme_strerror(0), "success");
	assert_string_equal(gpunvme_strerror(-4000), "unknown error");
	assert_string_equal(gpunvme_strerror(-2147483647 - 1), "unknown error");
}

/* Any number has a text. */
static void test_total(void **state)
{
	int i;

	(void)state;
	for (i = -5000; i < 0x8000; i++)
		assert_true(strlen(gpunvme_strerror(i)) > 2);
	assert_non_null(gpunvme_strerror(0x7fffffff));
}

static void test_version(void **state)
{
	(void)state;
	assert_int_equal(gpunvme_version(), GPUNVME_VERSION_MAJOR << 16 | GPUNVME_VERSION_MINOR << 8 | GPUNVME_VERSION_PATCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_statuses),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_total),
		cmocka_unit_test(test_version),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
