/* SPDX-License-Identifier: MIT */
/* The table of one file or many, and how it is filled: names first, then each file by its inode, in the order in which they lie. */
#ifndef GNV_FILE_FILE_H
#define GNV_FILE_FILE_H

#include <gpunvme/file.h>
#include <stdbool.h>

#include "file/extents.h"
#include "file/fs.h"
#include "file/upload.h"

struct gnv_many {
	const char *name; /* in the table's memory of names, or NULL */
	uint64_t inode;
};

struct gnv_piece;

/* Memory of names, which only grows. */
struct gnv_names {
	struct gnv_piece *piece;
	uint64_t bytes, max; /* 0: as many as there are */
};

struct gnv_live;

struct gpunvme_file {
	uint64_t process;
	uint32_t device; /* the number that queues of its device have (struct gpunvme_dq) */
	uint32_t extents, extent_room, file_room;
	struct gpunvme_file_info info;
	struct gnv_many *many;        /* info.files of them, by number ... */
	struct gpunvme_dentry *entry; /* ... and these */
	struct gpunvme_dextent *extent;
	struct gnv_names names;
	struct gpunvme_dname *name; /* by hash */
	uint32_t *bucket;
	uint32_t named, bucket_shift;
	struct gnv_shows shows;
	const char *unwritable; /* of one file: why it may not be written in place, or NULL */
	struct gnv_live *live;  /* of a mounted file system, or NULL */
};

/* A call that fills a table. */
struct gnv_fill {
	struct gpunvme_file *set;
	struct gnv_reader r;
	struct gnv_super super;
	struct gpunvme_file_opts opts;
	bool alone; /* one file, no directories */
	struct gnv_extents *scratch; /* the file that is being looked at */
	uint64_t extents_max, names_max; /* more have only file systems that are damaged */
	bool ended;                      /* by the progress function. The call returns its result */
};

/* One way of opening files: it fills the table. Return: 0, or the error. */
typedef int gnv_fill_fn(struct gpunvme_dev *dev, const char *const *names, uint32_t count, struct gnv_fill *fill);

gnv_fill_fn gnv_fill_maps, gnv_fill_mounted;

/* The parts of a table that threads need. */
enum { GNV_PART_ENTRIES, GNV_PART_EXTENTS, GNV_PART_NAMES, GNV_PART_BUCKETS, GNV_PARTS };

void gnv_file_parts(const struct gpunvme_file *set, struct gnv_part part[GNV_PARTS]);

/* Does a path stay below the root? Return: 0, -EINVAL, -ENAMETOOLONG. */
int gnv_path_check(const char *path);

/* ---- Names ---- */

#define GNV_PATH_ROOM 4096u /* bytes of a path, and its NUL */
#define GNV_NAMES_MOST (4ull << 30) /* of all names of a table: any user may have filled a directory */

/* Room for @len bytes until they are freed. Return: 0, -ENOMEM, -E2BIG. */
int gnv_names_room(struct gnv_names *names, size_t len, char **room);
void gnv_names_free(struct gnv_names *names);

/* Once all files have their names and numbers. Return: 0, -ENOMEM. */
int gnv_names_index(struct gpunvme_file *set);

/* ---- Filling ---- */

/*
 * The next file's name, which lies in the table's memory or is NULL.
 * Return: 0, -E2BIG, -EUCLEAN, -ENOMEM; the result of the progress function.
 */
int gnv_fill_name(struct gnv_fill *fill, const char *name, uint64_t inode);

/* The same with a name that the caller has. NULL: none. */
int gnv_fill_copy(struct gnv_fill *fill, const char *name, uint64_t inode);

/* Files from @from on get their numbers by their names. */
void gnv_fill_sort(struct gnv_fill *fill, uint32_t from);

/* As fill->scratch has gathered it. Return: 0, or why not. */
int gnv_fill_set(struct gnv_fill *fill, uint32_t number);

/* Reads the extents of the file of a number and info to fill->scratch. Return: as gpunvme_file_open(). */
typedef int gnv_fill_read_fn(void *ctx, uint32_t number, const char *name, struct gnv_extents *file);

/* All files that have names. Return: 0, or why not. */
int gnv_fill_all(struct gnv_fill *fill, gnv_fill_read_fn *read, void *ctx);

#endif
