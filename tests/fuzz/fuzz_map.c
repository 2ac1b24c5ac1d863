/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: a hostile map of a file.
 *
 * Input: byte 0 bit 0 the last line is made right, then the text. Properties: the extents of what is a map ascend and do not wrap, its
 * words may stand in a sentence, and written again it is the same map.
 */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/file_map.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

static char *text_of(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 32);

	check(text != NULL);
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	if (data[0] & 1)
		sprintf(text + strlen(text), "end %016" PRIx64 "\n", gnv_sum(text, strlen(text)));
	return text;
}

static void check_map(const struct gnv_map *map)
{
	const struct gnv_run *e = map->file->gathered.run;
	uint64_t end = 0;

	for (uint32_t i = 0; i < map->file->gathered.count; end = e[i].pos + e[i].len, i++)
		check(e[i].len && e[i].pos >= end && e[i].pos + e[i].len > e[i].pos && e[i].at + e[i].len > e[i].at);
	for (const char *c = map->serial; *c; c++)
		check(*c > ' ' && *c < 127);
	check(map->super.fs && memcmp(map->file->info.uuid, map->super.uuid, sizeof(map->super.uuid)) == 0);
}

static void check_again(const struct gnv_map *map)
{
	struct gnv_map again = { .file = NULL };
	char *text, *same;

	check(!gnv_map_write(map, &text));
	check(!gnv_map_read(text, &again));
	check(again.file->gathered.count == map->file->gathered.count && again.file->unwritable == map->file->unwritable);
	check(!gnv_map_write(&again, &same) && strcmp(text, same) == 0);
	gnv_extents_free(again.file);
	free(same);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gnv_map map = { .file = NULL };
	char *text;

	if (!size)
		return 0;
	text = text_of(data, size);
	if (!gnv_map_read(text, &map)) {
		check_map(&map);
		check_again(&map);
		gnv_extents_free(map.file);
	}
	free(text);
	return 0;
}
