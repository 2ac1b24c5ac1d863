/* SPDX-License-Identifier: MIT */
/*
 * gfx_dump CODE-OBJECT: address, length in bytes and text of every instruction.
 * gfx_dump --opcodes: how many opcodes the executor knows.
 * gfx_dump --launch KERNEL LANES WIDTH CODE-OBJECT: run a kernel without arguments, or with one pointer to 4 KiB of memory.
 * gfx_dump --survive KERNEL CODE-OBJECT...: run it in waves of 32 lanes, and list, if they can be loaded; 0 whatever comes of it.
 */
#include "gfx/gfx.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int dump(struct gfx_code *code)
{
	struct gfx_inst in;
	char text[160];
	uint64_t at;

	for (at = 0; at < code->text_size; at += in.len ? in.len : 4) {
		gfx_decode(code, at, &in);
		gfx_text(&in, text, sizeof(text));
		printf("%" PRIx64 " %u %s\n", code->text + at, in.len, text);
	}
	return 0;
}

static int launch(struct gfx_code *code, const char *name, const char *lanes, const char *width)
{
	static uint32_t memory[1024];
	uint64_t pointer = (uintptr_t)memory;
	const struct gfx_kernel *k = gfx_find(code, name);
	struct gfx m = { .code = code, .rules = GFX_NASTY, .random = 1, .stir = 10, .max_steps = 1000000 };
	int ret;

	gfx_register(&m, "memory", memory, sizeof(memory), 0);
	ret = gfx_launch(&m, name, (uint32_t)strtoul(lanes, NULL, 0), (uint32_t)strtoul(width, NULL, 0), &pointer,
			 k && k->explicit_size ? 8 : 0);
	printf("%s\n", ret ? m.error : "good");
	return ret ? 1 : 0;
}

/* Each is loaded anew, as by a program of its own, which takes a sanitizer longer than the file does. */
static int survive(const char *kernel, char *const *paths)
{
	struct gfx_code *code;
	char why[300];

	for (; *paths; paths++) {
		for (int look = 0; look < 2; look++) {
			code = gfx_load(*paths, why, sizeof(why));
			if (!code)
				continue;
			if (look)
				dump(code);
			else
				launch(code, kernel, "32", "32");
			gfx_unload(code);
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct gfx_code *code;
	unsigned count;
	char why[300];
	int ret;

	if (argc > 3 && !strcmp(argv[1], "--survive"))
		return survive(argv[2], argv + 3);
	if (argc == 2 && !strcmp(argv[1], "--opcodes")) {
		gfx_op_table(ISA_11, &count);
		printf("%u opcodes besides comparisons\n", count);
		return 0;
	}
	if (argc != 2 && (argc != 6 || strcmp(argv[1], "--launch"))) {
		fprintf(stderr, "usage: gfx_dump CODE-OBJECT | --opcodes | --launch KERNEL LANES WIDTH CODE-OBJECT | "
				"--survive KERNEL CODE-OBJECT...\n");
		return 2;
	}
	code = gfx_load(argv[argc - 1], why, sizeof(why));
	if (!code) {
		printf("%s\n", why);
		return 2;
	}
	ret = argc == 2 ? dump(code) : launch(code, argv[2], argv[3], argv[4]);
	gfx_unload(code);
	return ret;
}
