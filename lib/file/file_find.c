/* SPDX-License-Identifier: MIT */
/* Names of many files: where they lie, and which file has one. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/file.h"
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
static int sort_names(struct gpunvme_file *set)
{
	struct hashed *all = malloc(set->named * sizeof(*all)), *h = all;
	uint32_t i, kept = 0;

	if (!all)
		return gnv_fail(-ENOMEM, "out of memory");
	for (i = 0; i < set->info.files; i++)
		if (set->many[i].name)
			*h++ = (struct hashed){ gnv_sum(set->many[i].name, strlen(set->many[i].name)), set->many[i].name, i };
	qsort(all, set->named, sizeof(*all), by_hash);
	for (h = all; h < all + set->named; h++)
		if (h == all || h->hash != h[-1].hash || strcmp(h->name, h[-1].name) != 0)
			set->name[kept++] = (struct gpunvme_dname){ h->hash, h->number, 0 };
	set->named = kept;
	free(all);
	return 0;
}

static void fill_buckets(struct gpunvme_file *set, uint32_t buckets)
{
	uint32_t i, b = 0;

	for (i = 0; i < set->named; i++)
		while (b <= set->name[i].hash >> set->bucket_shift)
			set->bucket[b++] = i;
	while (b <= buckets)
		set->bucket[b++] = set->named;
}

int gnv_names_index(struct gpunvme_file *set)
{
	uint32_t bits, i;
	int ret;

	for (i = 0; i < set->info.files; i++)
		set->named += set->many[i].name != NULL;
	if (!set->named)
		return 0;
	bits = gnv_log2(set->named);
	bits += !bits; /* a shift by 64 bits is none */
	set->bucket_shift = 64 - bits;
	set->name = malloc(set->named * sizeof(*set->name));
	set->bucket = malloc(((1ull << bits) + 1) * sizeof(*set->bucket));
	if (!set->name || !set->bucket)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = sort_names(set);
	if (!ret)
		fill_buckets(set, 1u << bits);
	return ret;
}

GPUNVME_API int gpunvme_file_find(const struct gpunvme_file *file, const char *name, uint32_t *number)
{
	uint64_t hash;
	uint32_t i;
	int ret = gnv_enter(file, file && name && number, "file, name and number");

	if (ret)
		return ret;
	hash = gnv_sum(name, strlen(name));
	for (i = file->named ? file->bucket[hash >> file->bucket_shift] : 0; i < file->named && file->name[i].hash <= hash; i++) {
		if (file->name[i].hash == hash && strcmp(file->many[file->name[i].number].name, name) == 0) {
			*number = file->name[i].number;
			return 0;
		}
	}
	return gnv_fail(-ENOENT, "no file of the table has this name: give it as gpunvme_file_get_entry() returns it");
}
