/* SPDX-License-Identifier: MIT */
/* The table of drives, and the words that replace what it says. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpunvme/status.h>

#include "port/quirks.h"

static struct gnv_drive look(uint16_t vendor, uint16_t device, const char *words)
{
	struct gnv_drive drive;

	assert_int_equal(gnv_quirks_look(vendor, device, words, &drive), 0);
	return drive;
}

static void test_known(void **state)
{
	(void)state;
	assert_int_equal(look(0x1217, 0x8760, NULL).quirks, GNV_QUIRK_LISTS_512);
	assert_string_equal(look(0x1217, 0x8760, NULL).name, "O2 Micro 64 GB");
	assert_int_equal(look(0x1c5f, 0x0555, "").quirks, GNV_QUIRK_NO_DESCRIPTORS);
	assert_int_equal(look(0x144d, 0xa822, "").quirks, GNV_QUIRK_SLOW_READY | GNV_QUIRK_NO_WRITE_ZEROES | GNV_QUIRK_GARBAGE_NQN);
	assert_int_equal(look(0x1d0f, 0xcd02, NULL).quirks, GNV_QUIRK_ADDR_48);
	/* Both names of a pair that Linux lists twice. */
	assert_int_equal(look(0x1d97, 0x2263, NULL).quirks, GNV_QUIRK_NO_WRITE_ZEROES | GNV_QUIRK_GARBAGE_IDS);
}

static void test_unknown(void **state)
{
	(void)state;
	assert_int_equal(look(0x1217, 0x8761, NULL).quirks, 0);
	assert_string_equal(look(0, 0, NULL).name, "");
	assert_int_equal(look(0, 0, NULL).quirks, 0);
}

static void test_refused(void **state)
{
	const struct gnv_drive ans = look(0x106b, 0x2005, NULL), old = look(0x106b, 0x2001, NULL),
			       fine = look(0x1987, 0x5012, NULL);

	(void)state;
	assert_int_equal(gnv_quirks_refuse(&ans), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "Apple ANS2 cannot be driven"));
	assert_non_null(strstr(gpunvme_errmsg(), "128 bytes"));
	assert_int_equal(gnv_quirks_refuse(&old), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "more than one command"));
	assert_int_equal(gnv_quirks_refuse(&fine), 0);
}

static void test_words(void **state)
{
	(void)state;
	assert_int_equal(look(0x106b, 0x2005, "none").quirks, 0);
	assert_int_equal(look(0, 0, "lists-512,slow-ready").quirks, GNV_QUIRK_LISTS_512 | GNV_QUIRK_SLOW_READY);
	assert_int_equal(look(0x1234, 0xabcd, "1234:ABCD=stripe").quirks, GNV_QUIRK_STRIPE);
	assert_int_equal(look(0x1234, 0xabce, "1234:abcd=stripe").quirks, 0);
	assert_int_equal(look(0x1217, 0x8760, "1234:abcd=stripe").quirks, GNV_QUIRK_LISTS_512);
	assert_int_equal(look(0x1217, 0x8760, "none;1217:8760=addr-48;1:1=stripe").quirks, GNV_QUIRK_ADDR_48);
}

static void test_malformed(void **state)
{
	static const char *const bad[] = { "lists",	"lists-512,",		",", ";", "1217:8760=", "1217:8760", "12345:1=none",
					   "none none", "1217:8760=lists-512;x" };
	struct gnv_drive drive;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(gnv_quirks_look(0x1217, 0x8760, bad[i], &drive), -EINVAL);
		assert_non_null(strstr(gpunvme_errmsg(), "Valid: none,slow-ready,"));
	}
}

/* What is written as words is read as the same bits, and each has its sentence. */
static void test_there_and_back(void **state)
{
	char text[GNV_QUIRKS_TEXT];
	unsigned i;

	(void)state;
	for (i = 0; i < 15; i++) {
		gnv_quirks_text(1u << i, text);
		assert_int_equal(look(0, 0, text).quirks, 1u << i);
		assert_true(strlen(gnv_quirk_message(1u << i)) > 10);
	}
	gnv_quirks_text(0x7fff, text);
	assert_int_equal(look(0, 0, text).quirks, 0x7fff);
	gnv_quirks_text(0, text);
	assert_string_equal(text, "");
}

static void test_environment(void **state)
{
	struct gnv_drive drive;

	(void)state;
	setenv("GPUNVME_QUIRKS", "1217:8760=garbage-ids", 1);
	assert_int_equal(gnv_quirks_find(0x1217, 0x8760, &drive), 0);
	assert_int_equal(drive.quirks, GNV_QUIRK_GARBAGE_IDS);
	unsetenv("GPUNVME_QUIRKS");
	assert_int_equal(gnv_quirks_find(0x1217, 0x8760, &drive), 0);
	assert_int_equal(drive.quirks, GNV_QUIRK_LISTS_512);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),	    cmocka_unit_test(test_unknown),   cmocka_unit_test(test_refused),
		cmocka_unit_test(test_words),	    cmocka_unit_test(test_malformed), cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_environment),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
