/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "port/port.h"
#include "port/uri.h"
#include "util/bits.h"

static void test_good(void **state)
{
	static const struct {
		const char *text, *scheme, *address, *key, *value;
	} table[] = {
		{ "soft:/a/b.img", "soft", "/a/b.img", NULL, NULL },
		{ "soft:a%20b%3fc%25", "soft", "a b?c%", NULL, NULL },
		{ "soft:x?lba=4096", "soft", "x", "lba", "4096" },
		{ "soft:x?ro", "soft", "x", "ro", "" },
		{ "soft:x?a=b=c", "soft", "x", "a", "b=c" },
		{ "soft:x?k%3d=%41%42", "soft", "x", "k=", "AB" },
		{ "soft:x?k=?", "soft", "x", "k", "?" },
		{ "pci:0000:01:00.0?port=auto", "pci", "0000:01:00.0", "port", "auto" },
		{ "0000:aF:00.0", "pci", "0000:aF:00.0", NULL, NULL },
		{ "01:00.0?ns=2", "pci", "01:00.0", "ns", "2" },
	};
	struct gnv_uri uri;
	const char *value;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		assert_int_equal(gnv_uri_parse(table[i].text, &uri), 0);
		assert_string_equal(uri.scheme, table[i].scheme);
		assert_string_equal(uri.address, table[i].address);
		if (table[i].key) {
			assert_int_equal(gnv_uri_check_taken(&uri), -EINVAL);
			gnv_uri_take(&uri, table[i].key, &value);
			assert_string_equal(value, table[i].value);
		}
		assert_int_equal(gnv_uri_check_taken(&uri), 0);
		gnv_uri_take(&uri, "absent", &value);
		assert_null(value);
		gnv_uri_fini(&uri);
	}
}

static void test_bad(void **state)
{
	static const char *const table[] = {
		"",
		"soft",
		"soft:",
		"soft:?a=b",
		":x",
		"SOFT:x",
		"/dev/nvme0",
		"soft:%",
		"soft:%4",
		"soft:%zz",
		"soft:a%00b",
		"soft:x?",
		"soft:x?&a=b",
		"soft:x?a=b&",
		"soft:x?=b",
		"soft:x?a=%",
		"soft:x?a=1&a=2",
		"soft:x?a&%61",
		"averylongschemename:x",
		"0000:01:00",
		"0000:01:00.0x",
	};
	struct gnv_uri uri;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (gnv_uri_parse(table[i], &uri) != -EINVAL)
			fail_msg("'%s' was accepted", table[i]);
		assert_true(strlen(gpunvme_errmsg()) > 10);
	}
}

static void test_too_many_keys(void **state)
{
	char text[1000] = "soft:x?k=1";
	struct gnv_uri uri;
	int i;

	(void)state;
	for (i = 1; i < GNV_URI_MAX_KEYS; i++)
		sprintf(text + strlen(text), "&k%d=1", i);
	assert_int_equal(gnv_uri_parse(text, &uri), 0);
	gnv_uri_fini(&uri);
	strcat(text, "&last=1");
	assert_int_equal(gnv_uri_parse(text, &uri), -EINVAL);
}

static void test_numbers(void **state)
{
	static const char *const bad[] = { "", "-1", "+1", " 1", "1x", "0", "65", "99999999999999999999", "0x" };
	uint32_t value = 7;
	struct gnv_uri uri;
	char text[64];
	size_t i;

	(void)state;
	assert_int_equal(gnv_uri_parse("soft:x?n=64&h=0x10", &uri), 0);
	assert_int_equal(gnv_uri_take_u32(&uri, "absent", 1, 64, &value), 0);
	assert_int_equal(value, 7);
	assert_int_equal(gnv_uri_take_u32(&uri, "n", 1, 64, &value), 0);
	assert_int_equal(value, 64);
	assert_int_equal(gnv_uri_take_u32(&uri, "h", 1, 64, &value), 0);
	assert_int_equal(value, 16);
	gnv_uri_fini(&uri);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "soft:x?n=%s", bad[i]);
		assert_int_equal(gnv_uri_parse(text, &uri), 0);
		if (gnv_uri_take_u32(&uri, "n", 1, 64, &value) != -EINVAL)
			fail_msg("'%s' was accepted", bad[i]);
		assert_non_null(strstr(gpunvme_errmsg(), "n="));
		gnv_uri_fini(&uri);
	}
}

static void test_unknown_key_is_named(void **state)
{
	struct gpunvme_dev *dev = NULL;

	(void)state;
	assert_int_equal(gpunvme_dev_open("soft:/nonexistent?qeues=4", NULL, &dev), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "qeues"));
	assert_non_null(strstr(gpunvme_errmsg(), "queues"));
	assert_non_null(strstr(gpunvme_errmsg(), "ns, "));
	assert_int_equal(gpunvme_dev_open("soft:/nonexistent?queues=0", NULL, &dev), -EINVAL);
	assert_int_equal(gpunvme_dev_open("soft:/nonexistent?ns=0", NULL, &dev), -EINVAL);
	assert_int_equal(gpunvme_dev_open("soft:/nonexistent?ro=2", NULL, &dev), -EINVAL);
	assert_int_equal(gpunvme_dev_open("soft:/nonexistent", NULL, &dev), -ENOENT);
	assert_int_equal(gpunvme_dev_open("nvme:/nonexistent", NULL, &dev), -EINVAL);
	assert_int_equal(gpunvme_dev_open("fffe:01:00.0", NULL, &dev), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), "lspci"));
	assert_int_equal(gpunvme_dev_open("pci:1:2:3", NULL, &dev), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "DDDD:BB:DD.F"));
	assert_int_equal(gpunvme_dev_open("pci:fffe:01:00.0?lba=512", NULL, &dev), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "port"));
	assert_null(dev);
}

/* All that take a controller's place on the bus take a URI, too, and read it as gpunvme_dev_open() does. */
static void test_places(void **state)
{
	static const char *const good[] = { "0000:af:00.0", "AF:00.0", "pci:0000:af:00.0", "pci:af:00.0?ns=2&ro", "af:00.0?ns=2", "pci:af:00%2e0" };
	static const char *const bad[] = { "", "soft:af:00.0", "pci:", "pci:af:00.0?ns&ns", "af:00.8", "pci:af:00.0%", "pci:/dev/nvme0" };
	char bdf[GNV_BDF_BYTES];
	size_t i;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(good); i++) {
		assert_int_equal(gnv_uri_pci(good[i], bdf), 0);
		assert_string_equal(bdf, "0000:af:00.0");
	}
	for (i = 0; i < GNV_ARRAY_LEN(bad); i++) {
		assert_int_equal(gnv_uri_pci(bad[i], bdf), -EINVAL);
		assert_non_null(strstr(gpunvme_errmsg(), "is not a PCI address. Write DDDD:BB:DD.F"));
	}
	assert_true(gnv_uri_has_scheme("soft:a?ro", "soft"));
	assert_true(gnv_uri_has_scheme("soft:a?x&x", "soft")); /* whatever else is wrong with it */
	assert_false(gnv_uri_has_scheme("vfio-user:a", "soft"));
	assert_false(gnv_uri_has_scheme("soft", "soft"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_bad),
		cmocka_unit_test(test_too_many_keys),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_unknown_key_is_named),
		cmocka_unit_test(test_places),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
