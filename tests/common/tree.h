/* SPDX-License-Identifier: MIT */
/* A made-up sysfs. A test calls tree_make(), then put() for each file, and hands `root` to what reads it. */
#ifndef TESTS_COMMON_TREE_H
#define TESTS_COMMON_TREE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

static char root[] = "/tmp/gpunvme-sysfs-XXXXXX";

/* The file at a path below the root, with its folders. A text that begins with '>' is where a link points to. */
__attribute__((format(printf, 2, 3))) static void put(const char *text, const char *format, ...)
{
	char path[512], full[1024];
	va_list args;
	char *slash;
	FILE *f;

	va_start(args, format);
	vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(full, 0755);
		*slash = '/';
	}
	if (text[0] == '>') {
		assert_int_equal(symlink(text + 1, full), 0);
		return;
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int tree_make(void **state)
{
	(void)state;
	memcpy(root + sizeof(root) - 7, "XXXXXX", 6);
	return !mkdtemp(root);
}

static int tree_remove(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command) != 0;
}

#endif
