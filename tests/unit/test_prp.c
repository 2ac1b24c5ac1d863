/* SPDX-License-Identifier: MIT */
/* PRP tables, walked as a controller walks them: no chain entries, the run of a command must not cross a list page. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "nvme/prp.h"

#define TABLE_IOVA 0x5a00000000000000ull
#define DATA_IOVA 0x5a11000000000000ull

struct table {
	uint64_t *words;
	size_t size;
	size_t len;
	size_t page;
	uint64_t a, b;
	enum gnv_lists lists;
};

static void make(struct table *t, size_t len, size_t page)
{
	t->len = len;
	t->page = page;
	t->size = gnv_prp_table_size(len, page, t->lists);
	t->words = calloc(1, t->size + 8);
	assert_non_null(t->words);
	t->a = t->b = 0;
	if (t->size)
		gnv_prp_table_fill(&(struct gnv_prp_table){ t->words, TABLE_IOVA, DATA_IOVA, len, page, t->lists }, &t->a, &t->b);
}

/* The list of a transfer, from the IOVA in PRP2: entries must be the next pages, all on one list page. */
static int walk(const struct table *t, uint64_t prp2, uint64_t first_page, size_t entries)
{
	size_t i;

	for (i = 0; i < entries; i++) {
		uint64_t at = prp2 + 8 * i;

		if (at / t->page != prp2 / t->page)
			return -1;
		assert_true(at - TABLE_IOVA + 8 <= t->size);
		assert_true(t->words[(at - TABLE_IOVA) / 8] == DATA_IOVA + (first_page + i) * t->page);
	}
	return 0;
}

/* A transfer of `pages` pages from page s: one of the copies must hold entries s+1 .. s+pages-1 unbroken. */
static void transfer(const struct table *t, size_t s, size_t pages)
{
	int in_a = walk(t, t->a + 8 * (s + 1), s + 1, pages - 1);
	int in_b = walk(t, t->b + 8 * (s + 1), s + 1, pages - 1);

	if (in_a && in_b)
		fail_msg("page %zu, %zu pages: broken in both copies", s, pages);
}

static void test_none(void **state)
{
	(void)state;
	assert_int_equal(gnv_prp_table_size(1, 4096, GNV_LISTS_ANY), 0);
	assert_int_equal(gnv_prp_table_size(4096, 4096, GNV_LISTS_ANY), 0);
	assert_int_equal(gnv_prp_table_size(8192, 4096, GNV_LISTS_ANY), 0);
	assert_true(gnv_prp_table_size(8193, 4096, GNV_LISTS_ANY) > 0);
}

static void test_alignment(void **state)
{
	static const size_t lens[] = { 8193, 3 * 4096, 256 * 4096, 257 * 4096, 512 * 4096, 513 * 4096, 767 * 4096, 5000 * 4096 };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		struct table t = { .lists = GNV_LISTS_ANY };

		make(&t, lens[i], 4096);
		assert_true(t.a % 4096 == 0);
		assert_true(t.b % 4096 == 2048);
		assert_true(t.size % 4096 == 0);
		assert_true(t.b + 8 * ((lens[i] + 4095) / 4096) <= TABLE_IOVA + t.size);
		free(t.words);
	}
}

/* Every start modulo a list page, several lengths, at several table lengths. */
static void test_every_start(void **state)
{
	static const size_t sizes[] = { 3, 4, 256, 257, 258, 511, 512, 513, 768, 1025, 1700 };
	static const size_t runs[] = { 2, 3, 4, 128, 255, 256, 257 };
	size_t i, s, r;

	(void)state;
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct table t = { .lists = GNV_LISTS_ANY };

		make(&t, sizes[i] * 4096, 4096);
		for (s = 0; s < sizes[i]; s++)
			for (r = 0; r < sizeof(runs) / sizeof(runs[0]); r++)
				if (s + runs[r] <= sizes[i])
					transfer(&t, s, runs[r]);
		free(t.words);
	}
}

static void test_larger_pages(void **state)
{
	struct table t = { .lists = GNV_LISTS_ANY };
	size_t s;

	(void)state;
	make(&t, 3000 * 16384, 16384);
	for (s = 0; s + 1025 <= 3000; s++)
		transfer(&t, s, 1025);
	free(t.words);
}

/* As the device header computes it (gnvd_set_data()). */
static uint64_t prp2_of(const struct table *t, uint64_t entry)
{
	return (t->a & ~63ull) + (8 * entry << (t->a & 63));
}

/* Every start and every length that dq.max_blocks allows: the list begins at its stride and stays within it. */
static void test_strides(void **state)
{
	static const struct {
		enum gnv_lists lists;
		size_t stride;
	} cases[] = { { GNV_LISTS_64, 64 }, { GNV_LISTS_512, 512 }, { GNV_LISTS_PAGE, 4096 } };
	size_t i, s, pages;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct table t = { .lists = cases[i].lists };
		const size_t most = gnv_prp_span(t.lists, 4096) / 4096 + 1;

		assert_int_equal(most, cases[i].stride / 8 + 1);
		assert_int_equal(gnv_prp_table_size(4096 * 4096ull, 4096, t.lists), 4096 * cases[i].stride);
		make(&t, 700 * 4096, 4096);
		assert_int_equal(t.a, t.b);
		for (s = 0; s < 698; s++)
			for (pages = 3; pages <= most && s + pages <= 700; pages++) {
				assert_int_equal(prp2_of(&t, s + 1) % cases[i].stride, 0);
				assert_int_equal(walk(&t, prp2_of(&t, s + 1), s + 1, pages - 1), 0);
			}
		free(t.words);
	}
}

static void test_no_lists(void **state)
{
	(void)state;
	assert_int_equal(gnv_prp_table_size(100 * 4096, 4096, GNV_LISTS_SGL), 0);
	assert_int_equal(gnv_prp_table_size(100 * 4096, 4096, GNV_LISTS_NONE), 0);
	assert_int_equal(gnv_prp_span(GNV_LISTS_NONE, 4096), 4096);
	assert_int_equal(gnv_prp_span(GNV_LISTS_SGL, 4096), 0);
	assert_int_equal(gnv_prp_span(GNV_LISTS_ANY, 4096), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_none),	     cmocka_unit_test(test_alignment), cmocka_unit_test(test_every_start),
		cmocka_unit_test(test_larger_pages), cmocka_unit_test(test_strides),   cmocka_unit_test(test_no_lists),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
