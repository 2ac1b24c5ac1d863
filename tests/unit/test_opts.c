/* SPDX-License-Identifier: MIT */
/* Structures of callers that were compiled with an older or a newer header, as today's library would see them tomorrow. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "util/opts.h"

#define CANARY 0xa5

/* The structure of today, and the size that it had before a field was added. */
struct known {
	size_t size;
	uint32_t a, b;
	uint64_t added;
};
#define OLD offsetof(struct known, added)

/* A caller's bytes, and what lies after them. */
union caller {
	struct known s;
	unsigned char bytes[128];
};

static union caller of_size(size_t size)
{
	union caller c;

	memset(&c, CANARY, sizeof(c));
	memset(&c, 0, size);
	c.s.size = size;
	c.s.a = 1;
	c.s.b = 2;
	return c;
}

static void is_whole(const union caller *c, size_t size)
{
	size_t i;

	for (i = size; i < sizeof(*c); i++)
		assert_int_equal(c->bytes[i], CANARY);
}

static void test_older_options(void **state)
{
	struct known known = { sizeof(known), 0, 0, 0 };
	union caller c = of_size(OLD);

	(void)state;
	assert_int_equal(gnv_sized_in(&known, sizeof(known), &c, "known"), 0);
	assert_int_equal(known.size, sizeof(known));
	assert_int_equal(known.b, 2);
	assert_int_equal(known.added, 0); /* the canary was not read */
	c = of_size(OLD);
	c.s.size = sizeof(c.s.size); /* of a pointer */
	assert_int_equal(gnv_sized_in(&known, sizeof(known), &c, "known"), -EINVAL);
	c.s.size = sizeof(known) - 1;
	assert_int_equal(gnv_sized_in(&known, sizeof(known), &c, "known"), -EINVAL);
	c.s.size = 0;
	assert_int_equal(gnv_sized_in(&known, sizeof(known), &c, "known"), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "known.size"));
}

static void test_newer_options(void **state)
{
	struct known known = { sizeof(known), 0, 0, 0 };
	union caller c = of_size(sizeof(known) + 16);

	(void)state;
	c.s.added = 7;
	assert_int_equal(gnv_sized_in(&known, sizeof(known), &c, "known"), 0);
	assert_int_equal(known.added, 7);
	c.bytes[sizeof(known) + 15] = 1;
	known.added = 0;
	assert_int_equal(gnv_sized_in(&known, sizeof(known), &c, "known"), -EINVAL);
	assert_int_equal(known.added, 0);
	assert_non_null(strstr(gpunvme_errmsg(), "does not know"));
	assert_int_equal(gnv_sized_in(&known, sizeof(known), NULL, "known"), 0);
}

static void test_results(void **state)
{
	const struct known known = { sizeof(known), 3, 4, 5 };
	union caller c = of_size(OLD);

	(void)state;
	assert_int_equal(gnv_sized_out(&c, &known, sizeof(known), "known"), 0);
	assert_int_equal(c.s.size, OLD);
	assert_int_equal(c.s.b, 4);
	is_whole(&c, OLD);
	c = of_size(sizeof(known) + 16);
	memset(c.bytes + sizeof(known), 1, 16);
	assert_int_equal(gnv_sized_out(&c, &known, sizeof(known), "known"), 0);
	assert_int_equal(c.s.size, sizeof(known) + 16);
	assert_int_equal(c.s.added, 5);
	assert_int_equal(c.bytes[sizeof(known)], 0);
	assert_int_equal(c.bytes[sizeof(known) + 15], 0);
	is_whole(&c, sizeof(known) + 16);
	c.s.size = SIZE_MAX; /* never set */
	assert_int_equal(gnv_sized_out(&c, &known, sizeof(known), "known"), -EINVAL);
	assert_int_equal(gnv_sized_out(NULL, &known, sizeof(known), "known"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_older_options),
		cmocka_unit_test(test_newer_options),
		cmocka_unit_test(test_results),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
