/* SPDX-License-Identifier: MIT */
/* Sizes as people write them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "util/bits.h"
#include "util/size.h"

static void good_sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} sizes[] = {
		{ "0", 0 },
		{ "4096", 4096 },
		{ "64K", 65536 },
		{ "64k", 65536 },
		{ "1MiB", 1 << 20 },
		{ "1.5M", 3 << 19 },
		{ "0.25G", 1 << 28 },
		{ "2.0", 2 },
		{ "1.500000000T", 3ull << 39 },
		{ "0.998046875T", 511ull << 31 }, /* nine digits of a T have more than 64 bits */
		{ "2t", 2ull << 40 },
		{ "18446744073709551615", UINT64_MAX },
		{ "16777215T", 16777215ull << 40 },
		{ "007", 7 },
	};
	uint64_t bytes;
	size_t i;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(sizes); i++) {
		assert_int_equal(gnv_size_parse(sizes[i].text, &bytes), 0);
		assert_int_equal(bytes, sizes[i].bytes);
	}
}

static void bad_sizes(void **state)
{
	static const char *const malformed[] = { "", "K", "-1", "+1", " 1", "1 ", "1B", "1KB", "1Ki", "1.", ".5K", "1.3", "1.0000000001K", "0x10",
						 "1e3", "1KK", "1.5.5M", "1P", "0.123456789T", "0.000000001T" };
	static const char *const large[] = { "18446744073709551616", "16777216T", "99999999999999999999999", "18014398509481984K" };
	uint64_t bytes = 5;
	size_t i;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(malformed); i++)
		if (gnv_size_parse(malformed[i], &bytes) != -EINVAL)
			fail_msg("\"%s\" was taken", malformed[i]);
	for (i = 0; i < GNV_ARRAY_LEN(large); i++)
		assert_int_equal(gnv_size_parse(large[i], &bytes), -ERANGE);
	assert_int_equal(bytes, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(good_sizes), cmocka_unit_test(bad_sizes) };

	return cmocka_run_group_tests_name("size", tests, NULL, NULL);
}
