/* SPDX-License-Identifier: MIT */
/*
 * The command line: a table of options, parsed by argp. A program fills an array of struct option_def, ended by OPTIONS_END, and
 * calls parse_options(), which stores the values, prints --help and refuses with one line what it does not know.
 */
#ifndef GPUNVME_EXAMPLES_OPTIONS_H
#define GPUNVME_EXAMPLES_OPTIONS_H

#include <stdint.h>

/* SIZE: a number of bytes, with K, M, G or T after it for powers of 1024. */
enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_U32, OPTION_U64, OPTION_SIZE };

/* One option, `--name value` or `--name=value`. @value points to an int, const char *, uint32_t or uint64_t. */
struct option_def {
	const char *name;
	enum option_kind kind;
	void *value;
	uint64_t min;
	const char *arg; /* the name of its value. NULL: a flag */
	const char *help;
};

#define OPTIONS_MAX 24 /* of one program */
#define OPTIONS_END                                                                                                                \
	{                                                                                                                          \
		NULL, OPTION_FLAG, NULL, 0, NULL, NULL                                                                             \
	}

/*
 * Parses everything after argv[0], operands and options in any order. Up to @room operands go to @operand. The caller checks for
 * missing ones (they stay NULL). --help begins with @usage. Returns GO_ON, or an exit code after it has printed something.
 */
int parse_options(int argc, char **argv, const char *usage, const struct option_def *defs, const char **operand, int room);

#endif
