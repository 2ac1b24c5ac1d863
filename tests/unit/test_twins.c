/* SPDX-License-Identifier: MIT */
/* What a drive says of its namespaces while another controller of its subsystem is the kernel's (played): slowly, or not at all. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fake.h"

static unsigned told;

/* The linker sends the library's call here (--wrap). It asks for all of them, as that of a machine with such a controller does. */
int __wrap_gnv_port_check_twins(const struct gnv_port *port, const struct gnv_identity *drive);
int __wrap_gnv_port_check_twins(const struct gnv_port *port, const struct gnv_identity *drive)
{
	struct gnv_identity_ns ns;
	int ret;

	(void)port;
	for (told = 0; !(ret = drive->nth(drive->ctx, told, &ns)); told++)
		assert_int_equal(ns.nsid, told + 1);
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

/* Each is told in time, all of them together are not. */
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
	assert_non_null(strstr(gpunvme_errmsg(), "cannot be told"));
	assert_non_null(strstr(gpunvme_errmsg(), "Internal Error"));
	drop(fake);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_told),
		cmocka_unit_test(test_slow),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
