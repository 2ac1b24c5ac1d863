/* SPDX-License-Identifier: MIT */
/* What the tests with the stand-in share: an image of known blocks, and the check that the runtime has nothing left. */
#ifndef TESTS_HSA_RIG_H
#define TESTS_HSA_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "common/image.h"
#include "common/played.h"
#include "hsa/runtime.h"

#define BLOCKS 2048u
#define FIRST 77u

static char uri[300];
static struct standin_counts *counts;

static inline unsigned pattern(unsigned lba)
{
	return (lba * 13 + 5) & 0xff;
}

static int setup(void **state)
{
	unsigned char block[512];
	FILE *file;
	unsigned i;

	counts = played_symbol("standin_counts");
	assert_non_null(counts);
	assert_int_equal(image_make_dir(state), 0);
	image_make(image_path("i"), BLOCKS * 512);
	file = fopen(image_path("i"), "r+");
	assert_non_null(file);
	for (i = 0; i < BLOCKS; i++) {
		memset(block, (int)pattern(i), sizeof(block));
		assert_int_equal(fwrite(block, sizeof(block), 1, file), 1);
	}
	fclose(file);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("i"));
	return 0;
}

static int teardown(void **state)
{
	remove(image_path("i"));
	return image_remove_dir(state);
}

static inline void nothing_left(void)
{
	const struct standin_counts none = { 0 };

	assert_memory_equal(counts, &none, sizeof(none));
}

static inline void pretend(const char *variable, const char *value)
{
	setenv(variable, value, 1);
}

static int clear(void **state)
{
	(void)state;
	unsetenv("STANDIN_GPUS");
	unsetenv("STANDIN_GFX");
	unsetenv("STANDIN_MINOR");
	unsetenv("STANDIN_LACKS");
	unsetenv("STANDIN_FAIL");
	unsetenv("STANDIN_POINTERS");
	unsetenv("STANDIN_CPUS");
	unsetenv("STANDIN_HIVE");
	nothing_left();
	return 0;
}

#endif
