/* SPDX-License-Identifier: MIT */
/* Names of many files: where they lie, and which file has one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/files.h"
#include "util/bits.h"
#include "util/entry.h"

#define PIECE 65536u /* bytes of names */

struct gnv_piece {
	struct gnv_piece *next;
	size_t used, room;
	char bytes[];
};

int gnv_names_room(struct gnv_names *names, size_t len, char **room)
{
	struct gnv_piece *piece = names->piece;
	const size_t more = len > PIECE ? len : PIECE;

	if (!piece || piece->room - piece->used < len) {
		if (names->max && names->bytes + sizeof(*piece) + more > names->max)
			return gnv_fail(-E2BIG, "the names of the files take more than %llu MiB: make several tables, or check the file system",
					(unsigned long long)names->max >> 20);
		piece = malloc(sizeof(*piece) + more);
		if (!piece)
			return gnv_fail(-ENOMEM, "out of memory");
		*piece = (struct gnv_piece){ names->piece, 0, more };
		names->piece = piece;
		names->bytes += sizeof(*piece) + more;
	}
	*room = piece->bytes + piece->used;
	piece->used += len;
	return 0;
}

void gnv_names_free(struct gnv_names *names)
{
	struct gnv_piece *piece;

	while ((piece = names->piece)) {
		names->piece = piece->next;
		free(piece);
	}
	names->bytes = 0;
}

/* ---- Which file has a name ---- */

struct hashed {
	uint64_t hash;
	const char *name;
	uint32_t number;
};

/* Names with the same hash are sorted by their bytes: a user of the file system can make many of them. */
static int by_hash(const void *one, const void *other)
{
	const struct hashed *a = one, *b = other;
	int names;

	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	names = strcmp(a->name, b->name);
	return names ? names : a->number < b->number ? -1 : a->number > b->number;
}

/* Of several files with one name the first is kept. */
static int sort_names(struct gpunvme_files *files)
{
	struct hashed *all = malloc(files->named * sizeof(*all)), *h = all;
	uint32_t i, kept = 0;

	if (!all)
		return gnv_fail(-ENOMEM, "out of memory");
	for (i = 0; i < files->info.files; i++)
		if (files->many[i].name)
			*h++ = (struct hashed){ gnv_sum(files->many[i].name, strlen(files->many[i].name)), files->many[i].name, i };
	qsort(all, files->named, sizeof(*all), by_hash);
	for (h = all; h < all + files->named; h++)
		if (h == all || h->hash != h[-1].hash || strcmp(h->name, h[-1].name) != 0)
			files->name[kept++] = (struct gpunvme_dname){ h->hash, h->number, 0 };
	files->named = kept;
	free(all);
	return 0;
}

static void fill_buckets(struct gpunvme_files *files, uint32_t buckets)
{
	uint32_t i, b = 0;

	for (i = 0; i < files->named; i++)
		while (b <= files->name[i].hash >> files->bucket_shift)
			files->bucket[b++] = i;
	while (b <= buckets)
		files->bucket[b++] = files->named;
}

int gnv_names_index(struct gpunvme_files *files)
{
	uint32_t bits, i;
	int ret;

	for (i = 0; i < files->info.files; i++)
		files->named += files->many[i].name != NULL;
	if (!files->named)
		return 0;
	bits = gnv_log2(files->named);
	bits += !bits; /* a shift by 64 bits is none */
	files->bucket_shift = 64 - bits;
	files->name = malloc(files->named * sizeof(*files->name));
	files->bucket = malloc(((1ull << bits) + 1) * sizeof(*files->bucket));
	if (!files->name || !files->bucket)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = sort_names(files);
	if (!ret)
		fill_buckets(files, 1u << bits);
	return ret;
}

GPUNVME_API int gpunvme_files_find(const struct gpunvme_files *files, const char *name, uint32_t *number)
{
	uint64_t hash;
	uint32_t i;
	int ret = gnv_enter(files, files && name && number, "files, name and number");

	if (ret)
		return ret;
	hash = gnv_sum(name, strlen(name));
	for (i = files->named ? files->bucket[hash >> files->bucket_shift] : 0; i < files->named && files->name[i].hash <= hash; i++) {
		if (files->name[i].hash == hash && strcmp(files->many[files->name[i].number].name, name) == 0) {
			*number = files->name[i].number;
			return 0;
		}
	}
	return gnv_fail(-ENOENT, "no file of the table has this name: give it as gpunvme_files_get_entry() tells it");
}
