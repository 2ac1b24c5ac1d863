/* SPDX-License-Identifier: MIT */
/* The table of many files, and how it is filled: names first, then each file by its inode, in the order in which inodes lie. */
#ifndef GNV_FILE_FILES_H
#define GNV_FILE_FILES_H

#include <gpunvme/files.h>

#include "file/fs.h"
#include "file/reader.h"

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

/* Files of a mounted file system. */
struct gnv_files_live {
	struct gnv_reader place; /* where the file system lies; closed */
	uint64_t dev;            /* its block device */
	uint64_t *was;           /* of each file, a sum of what tells of a change */
};

struct gpunvme_files {
	uint64_t process;
	uint32_t device;
	uint32_t extents, extent_room, file_room;
	struct gpunvme_files_info info;
	struct gnv_many *many;        /* info.files of them, by number ... */
	struct gpunvme_dentry *entry; /* ... and these */
	struct gpunvme_dextent *extent;
	struct gnv_names names;
	struct gpunvme_dname *name; /* by hash */
	uint32_t *bucket;
	uint32_t named, bucket_shift;
	struct gnv_shows shows;
	struct gnv_files_live *live; /* or NULL */
};

/* A call that fills a table. */
struct gnv_fill {
	struct gpunvme_files *files;
	struct gnv_reader r;
	struct gnv_super super;
	struct gpunvme_files_opts opts;
	struct gpunvme_file *scratch; /* the file that is being looked at */
	uint64_t extents_max, names_max; /* more have only file systems that are damaged */
	bool ended;                      /* by the progress function, whose result the call returns */
};

/* What was asked for, in the words of one file; the call ends with gnv_files_finish(). Return: 0, -EINVAL, -ENOMEM. */
int gnv_files_begin(const struct gpunvme_files_opts *user, struct gpunvme_file_opts *opts, struct gnv_fill *fill);

/* What was filled becomes the caller's, or goes. Return: @ret, or why not. */
int gnv_files_finish(struct gnv_fill *fill, int ret, struct gpunvme_files **files);

/* gpunvme_files_close(): what live_files.c has of them. */
void gnv_files_live_end(struct gnv_files_live *live);

/* ---- Names (names.c) ---- */

#define GNV_PATH_ROOM 4096u /* bytes of a path, and its NUL */
#define GNV_NAMES_MOST (4ull << 30) /* of all names of a table: any user may have filled a directory */

/* Room for @len bytes until they are freed. Return: 0, -ENOMEM, -E2BIG. */
int gnv_names_room(struct gnv_names *names, size_t len, char **room);
void gnv_names_free(struct gnv_names *names);

/* Once all files have their names and numbers. Return: 0, -ENOMEM. */
int gnv_names_index(struct gpunvme_files *files);

/* ---- Filling ---- */

/*
 * The next file's name, which lies in the table's memory or is NULL.
 * Return: 0, -E2BIG, -EUCLEAN, -ENOMEM; what the progress function answered.
 */
int gnv_fill_name(struct gnv_fill *fill, const char *name, uint64_t inode);

/* Files from @from on get their numbers by their names. */
void gnv_fill_sort(struct gnv_fill *fill, uint32_t from);

/* As fill->scratch has gathered it. Return: 0, or why not. */
int gnv_fill_set(struct gnv_fill *fill, uint32_t number);

/* Reads the extents of the file of a number and info to fill->scratch. Return: as gpunvme_file_open(). */
typedef int gnv_fill_read_fn(void *ctx, uint32_t number, const char *name, struct gpunvme_file *file);

/* All files that have names. Return: 0, or why not. */
int gnv_fill_all(struct gnv_fill *fill, gnv_fill_read_fn *read, void *ctx);

#endif
