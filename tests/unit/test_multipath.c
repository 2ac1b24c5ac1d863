/* SPDX-License-Identifier: MIT */
/*
 * What a drive says of its namespaces while another controller of its subsystem is the kernel's (emulated): slowly, or not at all.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fake.h"
#include "util/mmio.h"

static unsigned told;
static struct gnv_identity_ns last; /* that was told */
static bool nqn_told;

/* The linker sends the library's call here (--wrap). It asks for all of them, as that of a machine with such a controller does. */
int __wrap_gnv_port_hold_paths(struct gnv_port *port, const struct gnv_identity *drive);
int __wrap_gnv_port_hold_paths(struct gnv_port *port, const struct gnv_identity *drive)
{
	struct gnv_identity_ns ns;
	int ret;

	(void)port;
	nqn_told = drive->nqn[0];
	for (told = 0; !(ret = drive->nth(drive->ctx, told, &ns)); told++) {
		assert_int_equal(ns.nsid, told + 1);
		last = ns;
	}
	return ret == -ENOENT ? 0 : ret;
}

#define SHARED 64u

static struct fake *shared(void)
{
	struct fake *fake = fake_new();
	unsigned i;

	fake->id.nn = fake->ns_count = SHARED;
	fake->ns_list = malloc(SHARED * sizeof(*fake->ns_list));
	assert_non_null(fake->ns_list);
	for (i = 0; i < SHARED; i++)
		fake->ns_list[i] = i + 1;
	return fake;
}

static void drop(struct fake *fake)
{
	free(fake->ns_list);
	fake_delete(fake, false);
}

static void test_all_told(void **state)
{
	struct fake *fake = shared();
	struct gpunvme_dev *dev;

	(void)state;
	fake->no_desc = true; /* which is no identifier, and no failure */
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(told, SHARED);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	drop(fake);
}

/* What a drive is known to err with is not asked, and what it is known to make up is not believed. */
static void test_quirks(void **state)
{
	static const struct gnv_identity_ns none;
	static const struct {
		const char *words;
		uint32_t cns;
		bool nqn, uuid, nguid;
	} cases[] = {
		{ "none", 0x4f, true, true, true },	     { "no-descriptors", 0x47, true, false, true },
		{ "cns-01", 0x03, true, false, true },	     { "garbage-nqn", 0x4f, false, true, true },
		{ "garbage-ids", 0x4f, true, false, false },
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct gpunvme_ns_info ns = { .size = sizeof(ns) };
		struct fake *fake = shared();
		struct gpunvme_dev *dev;

		fake_set_cap(fake, FAKE_CAP | GPUNVME_CAP_CSS_IO);
		gnv_mmio_write32(fake->bar + GPUNVME_REG_VS, 0x20000);
		fake->id.oncs = GPUNVME_ONCS_DSM;
		strcpy((char *)fake->id.subnqn, "nqn.of-all");
		fake->ns.nguid[0] = fake->ns.eui64[7] = 1;
		memcpy(fake->desc, (uint8_t[]){ GPUNVME_NIDT_UUID, 16, 0, 0, 1 }, 5);
		setenv("GPUNVME_QUIRKS", cases[i].words, 1);
		assert_int_equal(fake_open(fake, &dev), 0);
		unsetenv("GPUNVME_QUIRKS");
		assert_int_equal(gpunvme_ns_get_info(dev, 1, &ns), 0);
		assert_int_equal(fake->cns, cases[i].cns);
		assert_int_equal(told, SHARED);
		assert_int_equal(nqn_told, cases[i].nqn);
		assert_int_equal(!!memcmp(last.uuid, none.uuid, 16), cases[i].uuid);
		assert_int_equal(!!memcmp(last.nguid, none.nguid, 16), cases[i].nguid);
		assert_int_equal(!!memcmp(last.eui64, none.eui64, 8), cases[i].nguid);
		assert_int_equal(gpunvme_dev_close(dev), 0);
		drop(fake);
	}
}

/* Each reply comes in time, all of them together do not. */
static void test_slow(void **state)
{
	struct fake *fake = shared();
	struct gpunvme_dev *dev;

	(void)state;
	fake->slow_us = 10000;
	fake->admin_ms = 300;
	assert_int_equal(fake_open(fake, &dev), -ETIMEDOUT);
	assert_non_null(strstr(gpunvme_errmsg(), "takes too long to identify its namespaces"));
	assert_true(told < SHARED);
	drop(fake);
}

/* A status is no result of opening a drive: an errno, and its sentence. */
static void test_refused(void **state)
{
	struct fake *fake = shared();
	struct gpunvme_dev *dev;

	(void)state;
	fake->no_list = true;
	fake->list_status = GPUNVME_SC_INTERNAL;
	assert_int_equal(fake_open(fake, &dev), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "is unknown"));
	assert_non_null(strstr(gpunvme_errmsg(), "Internal Error"));
	drop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_told),
		cmocka_unit_test(test_quirks),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
