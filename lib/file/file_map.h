/* SPDX-License-Identifier: MIT */
/* A file as text. A text that is read back is untrusted. */
#ifndef GNV_FILE_FILE_MAP_H
#define GNV_FILE_FILE_MAP_H

#include "file/fs.h"

struct gnv_map {
	struct gnv_extents *file; /* its info is set, its runs are gathered */
	struct gnv_super super;
	uint64_t first; /* where the file system begins in the namespace, in bytes */
	uint64_t bytes; /* and how many it has */
	char serial[41]; /* of the drive, without white space. For people */
};

/* Return: 0, *text is the caller's to free; -ENOMEM. */
int gnv_map_write(const struct gnv_map *map, char **text);

/* Return: 0, map->file is the caller's to close; -EINVAL no map, cut off or edited; -ENOMEM. */
int gnv_map_read(const char *text, struct gnv_map *map);

/*
 * Does the map fit the namespace, and may it be used as the options ask? Then the reader's bytes are its file system's.
 * Return: as gpunvme_file_open().
 */
int gnv_map_check(struct gnv_reader *r, struct gnv_map *map, const struct gpunvme_file_opts *opts);

/* Words of a map for why a file must not be written in place. Their meaning is in file_map.c. NULL: it may. */
const char *gnv_map_reason(const char *word);

/* A file is as unwritable as its file system. */
void gnv_map_freeze(struct gnv_extents *file, const struct gnv_super *super);

#endif
