/* SPDX-License-Identifier: MIT */
/* The choice of DMA addresses: holes, alignment, late reuse, joining, and a random run against a bit per page. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "mem/iova.h"

#define PAGE 4096ull

static struct gnv_iova iova;

static int setup(void **state)
{
	(void)state;
	gnv_iova_init(&iova);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gnv_iova_fini(&iova);
	return 0;
}

static void test_holes(void **state)
{
	uint64_t at;

	(void)state;
	assert_int_equal(gnv_iova_add(&iova, 0, 0xffff), 0);
	assert_int_equal(gnv_iova_add(&iova, 0x20000, 0x2ffff), 0);
	assert_int_equal(gnv_iova_exclude(&iova, 0, 0xfff), 0);
	assert_int_equal(gnv_iova_exclude(&iova, 0x4000, 0x4fff), 0);
	assert_int_equal(gnv_iova_exclude(&iova, 0xf000, 0x20fff), 0);
	assert_int_equal(iova.count, 3);
	assert_int_equal(gnv_iova_alloc(&iova, 0x4000, PAGE, &at), 0);
	assert_int_equal(at, 0x5000);
	assert_int_equal(gnv_iova_alloc(&iova, 0xf000, PAGE, &at), 0);
	assert_int_equal(at, 0x21000);
	assert_int_equal(gnv_iova_alloc(&iova, 0x3000, PAGE, &at), 0);
	assert_int_equal(gnv_iova_alloc(&iova, 0x10000, PAGE, &at), -ENOSPC);
	assert_int_equal(gnv_iova_alloc(&iova, 0, PAGE, &at), -ENOSPC);
	assert_int_equal(gnv_iova_exclude(&iova, 0, UINT64_MAX), 0);
	assert_int_equal(iova.count, 0);
	gnv_iova_free(&iova, 0x21000, 0xf000);
	assert_int_equal(iova.count, 1);
}

static void test_align_and_reuse(void **state)
{
	uint64_t a, b, c;

	(void)state;
	assert_int_equal(gnv_iova_add(&iova, PAGE, UINT64_MAX), 0);
	assert_int_equal(gnv_iova_alloc(&iova, PAGE, 2 << 20, &a), 0);
	assert_int_equal(a, 2 << 20);
	assert_int_equal(gnv_iova_alloc(&iova, PAGE, PAGE, &b), 0);
	gnv_iova_free(&iova, a, PAGE);
	assert_int_equal(gnv_iova_alloc(&iova, PAGE, PAGE, &c), 0);
	assert_true(c > b); /* not the one just freed */
	assert_int_equal(gnv_iova_alloc(&iova, 1ull << 63, 1ull << 63, &a), 0);
	assert_int_equal(a, 1ull << 63);
	assert_int_equal(gnv_iova_alloc(&iova, 1ull << 63, PAGE, &a), -ENOSPC);
	gnv_iova_free(&iova, 1ull << 63, 1ull << 63);
	gnv_iova_free(&iova, b, PAGE);
	gnv_iova_free(&iova, c, PAGE);
	assert_int_equal(iova.count, 1);
	assert_int_equal(iova.free[0].start, PAGE);
	assert_int_equal(iova.free[0].last, UINT64_MAX);
}

static void test_random(void **state)
{
	enum { PAGES = 512, SLOTS = 64 };
	struct { uint64_t at, pages; } slot[SLOTS] = { { 0, 0 } };
	unsigned char used[PAGES] = { 0 };
	unsigned seed = 1, i, k;

	(void)state;
	assert_int_equal(gnv_iova_add(&iova, 0, PAGES * PAGE - 1), 0);
	for (i = 0; i < 20000; i++) {
		unsigned s = (unsigned)rand_r(&seed) % SLOTS;
		uint64_t pages = (uint64_t)rand_r(&seed) % 24 + 1, align = PAGE << (unsigned)rand_r(&seed) % 4, at;

		if (slot[s].pages) {
			memset(used + slot[s].at, 0, slot[s].pages);
			gnv_iova_free(&iova, slot[s].at * PAGE, slot[s].pages * PAGE);
			slot[s].pages = 0;
		} else if (!gnv_iova_alloc(&iova, pages * PAGE, align, &at)) {
			assert_int_equal(at % align, 0);
			slot[s].at = at / PAGE;
			slot[s].pages = pages;
			for (k = 0; k < pages; k++)
				assert_int_equal(used[slot[s].at + k]++, 0);
		}
	}
	for (i = 0; i < SLOTS; i++)
		if (slot[i].pages)
			gnv_iova_free(&iova, slot[i].at * PAGE, slot[i].pages * PAGE);
	assert_int_equal(iova.count, 1);
	assert_int_equal(iova.live, 0);
	assert_int_equal(iova.free[0].last, PAGES * PAGE - 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_holes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_align_and_reuse, setup, teardown),
		cmocka_unit_test_setup_teardown(test_random, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
