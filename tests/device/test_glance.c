/* SPDX-License-Identifier: MIT */
/*
 * An element at a glance, while others do the worst to its page: between the first look at the word and the bytes, or after these.
 */
#include <gpunvme/device/platform.h>

static uint64_t glance_load(uint64_t at);

#define gnvd_ld_acquire64 glance_load
#include <gpunvme/device.h>
#undef gnvd_ld_acquire64

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PAGE 512u
#define OTHER 0x5151515151515151ull

static struct gpunvme_cache_state words;
static uint64_t table[2], frame[1], bytes[PAGE / 8];
static const struct gpunvme_dpages cache = {
	.frames = 1, .lba_shift = 9, .page_shift = 9, .lba_count = 2, .state = (uintptr_t)&words, .table = (uintptr_t)table,
	.frame = (uintptr_t)frame, .local = (uintptr_t)bytes,
};
static struct gpunvme_dq dq;
static void (*before)(void), (*behind)(void); /* the bytes */

static uint64_t glance_load(uint64_t at)
{
	uint64_t value;

	if (at - (uintptr_t)bytes < PAGE && before)
		before();
	value = gnvd_ld_after64(at);
	if (at - (uintptr_t)bytes < PAGE && behind)
		behind();
	return value;
}

static void fill(uint64_t salt)
{
	for (uint64_t i = 0; i < PAGE / 8; i++)
		gnvd_st64((uintptr_t)&bytes[i], salt ? salt : 0x0123456789000000ull + i);
}

static void goes(void)
{
	uint32_t evicted = 0;

	assert_true(gnvd_take_frame(&cache, 0, 1, &evicted));
	fill(OTHER);
}

static void comes_back(void)
{
	uint64_t word = table[0];

	fill(0);
	assert_int_equal(gnvd_cas64((uintptr_t)table, word, word + GPUNVME_PAGE_READING), word);
	gnvd_end_reading(&cache, 0, 0, word + GPUNVME_PAGE_READING, 0);
	assert_int_equal(gnvd_page_state(table[0]), GPUNVME_PAGE_VALID);
}

static void goes_and_comes_back(void)
{
	goes();
	comes_back();
}

static void is_referred_to(void)
{
	gnvd_fetch_add64((uintptr_t)table, GPUNVME_PAGE_REF);
}

static void takes_long(void)
{
	uint64_t start = gnvd_clock();

	while (gnvd_clock() - start <= dq.ticks_per_ms / GNVD_GLANCES)
		;
}

/* The element at `pos`, while they do this. 0: left alone. */
static int look(uint64_t pos, uint32_t size, void (*first)(void), void (*second)(void), uint32_t *value)
{
	struct gnvd_elements e = { pos, size, 0, value, size };

	memset(&words, 0, sizeof(words));
	table[0] = table[1] = 0;
	frame[0] = GPUNVME_FRAME_TAKEN;
	dq.ticks_per_ms = first == takes_long || second == takes_long ? 1000000 : ~0u; /* a test may be kept from running */
	before = behind = NULL;
	comes_back();
	table[0] &= ~GPUNVME_PAGE_USED;
	before = first;
	behind = second;
	memset(value, 0xee, 16);
	return gnvd_glance(&dq, &cache, &e);
}

static void elements_are_found(void **state)
{
	uint32_t v[4];

	(void)state;
	assert_int_equal(look(24, 8, NULL, NULL, v), 1);
	assert_true(v[0] == 0x89000003u && v[1] == 0x01234567u && v[2] == 0xeeeeeeeeu);
	assert_true(table[0] & GPUNVME_PAGE_USED);
	assert_int_equal(look(28, 4, NULL, NULL, v), 1);
	assert_true(v[0] == 0x01234567u && v[1] == 0xeeeeeeeeu);
	assert_int_equal(look(32, 4, NULL, NULL, v), 1);
	assert_true(v[0] == 0x89000004u && v[1] == 0xeeeeeeeeu);
	assert_int_equal(look(PAGE - 16, 16, is_referred_to, is_referred_to, v), 1);
	assert_true(v[0] == 0x8900003eu && v[1] == 0x01234567u && v[2] == 0x8900003fu && v[3] == 0x01234567u);
	assert_int_equal(table[0] & GPUNVME_PAGE_REFS, 4 * GPUNVME_PAGE_REF);
}

static void pages_that_go_are_noticed(void **state)
{
	static void (*const events[][2])(void) = {
		{ goes, NULL }, { NULL, goes }, { goes, comes_back }, { goes_and_comes_back, NULL }, { NULL, goes_and_comes_back },
		{ takes_long, NULL }, { NULL, takes_long },
	};
	uint32_t v[4];

	(void)state;
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		assert_int_equal(look(24, 8, events[i][0], events[i][1], v), 0);
		assert_int_equal(v[0], 0xeeeeeeeeu);
	}
}

/* Nothing is read of a page that is not there. */
static void pages_that_are_not_there(void **state)
{
	uint32_t v[4] = { 0 };
	struct gnvd_elements e = { PAGE, 8, 0, v, 8 };

	(void)state;
	assert_int_equal(look(0, 8, NULL, NULL, v), 1);
	before = goes;
	assert_int_equal(gnvd_glance(&dq, &cache, &e), 0);
	assert_int_equal(gnvd_page_state(table[0]), GPUNVME_PAGE_VALID);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(elements_are_found),
		cmocka_unit_test(pages_that_go_are_noticed),
		cmocka_unit_test(pages_that_are_not_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
