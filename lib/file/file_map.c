/* SPDX-License-Identifier: MIT */
/*
 * Maps: lines of words and numbers. The last line has the sum of all lines before, so a map that was cut off or edited is noticed.
 *
 * - gpunvme-map 1
 * - fs NAME UUID SUPERBLOCK'S-SUM
 * - drive SERIAL FIRST-BYTE BYTES
 * - file INODE GENERATION BYTES SECONDS NANOSECONDS BLOCK
 * - place ok | shared | verity | immutable | features
 * - extent POSITION AT BYTES
 * - end SUM
 */
#include "file/file_map.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/file.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"

#define LINE_BYTES 160u /* no line is longer */
#define LINES 6u	/* in addition to the extents */

/* ---- Why a file must not be written in place ---- */

static const struct {
	const char *word, *reason;
} places[] = {
	{ "ok", NULL },
	{ "shared", "it shares blocks with another file" },
	{ "verity", "fs-verity protects it" },
	{ "immutable", "it is immutable, or for appending only" },
	{ "features", "its file system has a feature with which only its own driver may write, or one that is unknown here" },
};

static const char *word_of(const char *reason)
{
	for (size_t i = 1; reason && i < GNV_ARRAY_LEN(places); i++)
		if (places[i].reason == reason)
			return places[i].word;
	return places[0].word;
}

static bool reason_of(const char *word, const char **reason)
{
	for (size_t i = 0; i < GNV_ARRAY_LEN(places); i++) {
		if (strcmp(places[i].word, word) == 0) {
			*reason = places[i].reason;
			return true;
		}
	}
	return false;
}

const char *gnv_map_reason(const char *word)
{
	const char *reason = NULL;

	reason_of(word, &reason);
	return reason;
}

void gnv_map_freeze(struct gnv_extents *file, const struct gnv_super *super)
{
	if (super->frozen && !file->unwritable)
		file->unwritable = gnv_map_reason("features");
}

/* ---- To text ---- */

static void uuid_text(const uint8_t uuid[16], char text[33])
{
	for (unsigned i = 0; i < 16; i++)
		snprintf(text + 2 * i, 3, "%02x", uuid[i]);
}

/* All but the extents and the end. */
static size_t write_head(const struct gnv_map *map, char *text, size_t room)
{
	const struct gpunvme_file_info *info = &map->file->info;
	char uuid[33];

	uuid_text(map->super.uuid, uuid);
	return (size_t)snprintf(text, room,
				"gpunvme-map 1\nfs %s %s %016" PRIx64 "\ndrive %s %" PRIu64 " %" PRIu64 "\nfile %" PRIu64 " %u %" PRIu64
				" %" PRId64 " %u %u\nplace %s\n",
				map->super.fs->name, uuid, map->super.sum, map->serial, map->first, map->bytes, info->inode,
				info->generation, info->bytes, info->mtime, info->mtime_ns, info->block,
				word_of(map->file->unwritable));
}

int gnv_map_write(const struct gnv_map *map, char **out)
{
	const size_t room = (LINES + (size_t)map->file->gathered.count) * LINE_BYTES;
	char *text = malloc(room);
	size_t used;

	if (!text)
		return gnv_fail(-ENOMEM, "out of memory");
	used = write_head(map, text, room);
	for (uint32_t i = 0; i < map->file->gathered.count; i++) {
		const struct gnv_run *e = &map->file->gathered.run[i];

		used += (size_t)snprintf(text + used, room - used, "extent %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", e->pos, e->at, e->len);
	}
	snprintf(text + used, room - used, "end %016" PRIx64 "\n", gnv_sum(text, used));
	*out = text;
	return 0;
}

/* ---- From text ---- */

static int refuse(const char *what)
{
	return gnv_fail(-EINVAL, "%s: make the map again by `gpunvme extents FILE`", what);
}

/* The last line, and the sum of the text before it. */
static int check_end(const char *text)
{
	const char *end = strstr(text, "\nend ");
	uint64_t sum;
	int len = 0;

	if (strncmp(text, "gpunvme-map ", 12) != 0)
		return refuse("this is no map of a file");
	if (strncmp(text, "gpunvme-map 1\n", 14) != 0)
		return refuse("the map has a format of another version of this library");
	if (!end || sscanf(end, "\nend %16" SCNx64 "\n%n", &sum, &len) != 1 || !len)
		return refuse("the map was cut off");
	if (end[len] || sum != gnv_sum(text, (size_t)(end + 1 - text)))
		return refuse("the map was changed after it had been made");
	return 0;
}

static bool uuid_from(const char *text, uint8_t uuid[16])
{
	if (strspn(text, "0123456789abcdef") != 32)
		return false;
	for (unsigned i = 0; i < 16; i++)
		sscanf(text + 2 * i, "%2hhx", &uuid[i]);
	return true;
}

/* It appears in messages, and terminals must not obey it. */
static bool is_plain(const char *text)
{
	while (*text > ' ' && *text < 127)
		text++;
	return !*text;
}

static bool read_head(const char *text, struct gnv_map *map, const char **rest)
{
	struct gpunvme_file_info *info = &map->file->info;
	char name[8] = "", uuid[33], place[16];
	int len = 0;

	if (sscanf(text,
		   "gpunvme-map 1 fs %7s %32s %" SCNx64 " drive %40s %" SCNu64 " %" SCNu64 " file %" SCNu64 " %u %" SCNu64 " %" SCNd64
		   " %u %u place %15s%n",
		   name, uuid, &map->super.sum, map->serial, &map->first, &map->bytes, &info->inode, &info->generation, &info->bytes,
		   &info->mtime, &info->mtime_ns, &info->block, place, &len) != 13)
		return false;
	map->super.fs = gnv_fs_by_name(name);
	memcpy(info->fs, name, sizeof(info->fs));
	*rest = text + len;
	if (!map->super.fs || !uuid_from(uuid, map->super.uuid) || !is_plain(map->serial) ||
	    !reason_of(place, &map->file->unwritable))
		return false;
	memcpy(info->uuid, map->super.uuid, sizeof(info->uuid));
	return true;
}

/* A space and a number. sscanf() would look for the end of the whole text each time. */
static bool read_number(const char **text, uint64_t *number)
{
	char *end;

	if ((*text)[0] != ' ' || (*text)[1] < '0' || (*text)[1] > '9')
		return false;
	errno = 0;
	*number = strtoull(*text + 1, &end, 10);
	*text = end;
	return !errno;
}

static int read_extents(const char *text, struct gnv_extents *file)
{
	uint64_t pos, at, bytes;
	int ret = 0;

	while (!ret && strncmp(text, "\nextent", 7) == 0) {
		text += 7;
		if (read_number(&text, &pos) && read_number(&text, &at) && read_number(&text, &bytes))
			ret = gnv_extents_add(file, pos, at, bytes);
		else
			ret = refuse("the map has a line that makes no sense");
	}
	if (!ret && strncmp(text, "\nend ", 5) != 0)
		ret = refuse("the map has a line that makes no sense");
	return ret;
}

int gnv_map_read(const char *text, struct gnv_map *map)
{
	const char *rest = text;
	int ret = check_end(text);

	if (ret)
		return ret;
	map->file = gnv_extents_new();
	if (!map->file)
		return -ENOMEM;
	ret = read_head(text, map, &rest) ? read_extents(rest, map->file) : refuse("the map has a line that makes no sense");
	if (ret)
		gnv_extents_free(map->file);
	return ret;
}

/* ---- On a drive ---- */

/* Is the file system that begins there still as it was? */
static int check_super(struct gnv_reader *r, struct gnv_map *map)
{
	struct gnv_super now;
	int ret;

	if (!gnv_within(map->first, map->bytes, r->bytes))
		return gnv_fail(-ERANGE, "the map is of a file system that ends after the end of namespace %u: it was made on drive %s",
				r->ns.info.nsid, map->serial);
	r->first = map->first;
	r->bytes = map->bytes;
	ret = gnv_super_read(r, &now);
	if (ret)
		return ret;
	if (now.fs != map->super.fs || memcmp(now.uuid, map->super.uuid, sizeof(now.uuid)) != 0)
		return gnv_fail(-ESTALE, "the map is of another file system than the one that is there: it was made on drive %s",
				map->serial);
	if (now.sum != map->super.sum)
		return gnv_fail(-ESTALE, "the file system was mounted for writing after the map had been made: make the map again");
	gnv_map_freeze(map->file, &now);
	return 0;
}

/* Is writing by it unsafe? */
static int check_write(const struct gnv_map *map, const struct gpunvme_file_opts *opts)
{
	if (!(opts->flags & GPUNVME_FILE_WRITE) || map->super.fs->check)
		return 0;
	return gnv_fail(-EOPNOTSUPP, "a file on %s can only be read by its map: whether its log waits to be replayed does not show",
			map->super.fs->name);
}

int gnv_map_check(struct gnv_reader *r, struct gnv_map *map, const struct gpunvme_file_opts *opts)
{
	int ret = check_super(r, map);

	if (ret)
		return ret;
	return check_write(map, opts);
}

/* ---- Files of them ---- */

/* The first map says which file system it is. */
static int check_same(struct gnv_fill *fill, const struct gnv_map *map, uint64_t *first)
{
	if (!fill->super.fs) {
		fill->super = map->super;
		*first = fill->r.first;
	}
	if (*first == fill->r.first && memcmp(fill->super.uuid, map->super.uuid, sizeof(map->super.uuid)) == 0)
		return 0;
	return gnv_fail(-EINVAL, "it is of another file system than the first: make a table for each");
}

static int map_one(struct gnv_fill *fill, const char *text, const char *name, uint64_t *first)
{
	struct gnv_reader *r = &fill->r;
	const uint32_t number = fill->set->info.files;
	struct gnv_map map = { .file = NULL }; /* that features forbid to write is known of the drive only, and said by gnv_map_check() */
	int ret = gnv_map_read(text, &map);

	if (ret)
		return ret;
	r->first = 0;
	r->bytes = r->ns.info.nblocks * r->ns.info.lba_size;
	ret = gnv_map_check(r, &map, &fill->opts);
	if (!ret)
		ret = check_same(fill, &map, first);
	if (!ret)
		ret = gnv_fill_copy(fill, name, map.file->info.inode);
	fill->scratch = map.file;
	if (!ret)
		ret = gnv_fill_set(fill, number);
	gnv_extents_free(map.file);
	return ret;
}

static int map_all(struct gnv_fill *fill, const char *const *texts, uint32_t count)
{
	const char *const *names = fill->opts.names;
	uint64_t first = 0;
	int ret = 0;

	for (uint32_t i = 0; i < count && !ret; i++) {
		if (names && !names[i])
			return gnv_fail(-EINVAL, "gpunvme_file_opts.names: name %u is NULL", i);
		ret = map_one(fill, texts[i], names ? names[i] : NULL, &first);
		if (ret && !fill->ended && !fill->alone)
			gnv_fail(ret, "map %u: %s", i, gpunvme_errmsg());
	}
	return ret;
}

int gnv_fill_maps(struct gpunvme_dev *dev, const char *const *texts, uint32_t count, struct gnv_fill *fill)
{
	int ret = gnv_reader_open(dev, fill->opts.nsid, &fill->r);

	if (ret)
		return ret;
	ret = map_all(fill, texts, count);
	gnv_reader_close(&fill->r);
	return ret;
}
