/* SPDX-License-Identifier: MIT */
/* A file: its extents, and what identifies it. */
#ifndef GNV_FILE_FILE_H
#define GNV_FILE_FILE_H

#include <gpunvme/file.h>
#include <stdbool.h>

#include "file/reader.h"
#include "file/upload.h"
#include "util/log.h"

/* A run of bytes of a file that lie side by side, while they are gathered. */
struct gnv_run {
	uint64_t pos; /* in the file */
	uint64_t at;  /* in the file system */
	uint64_t len;
};

struct gnv_runs {
	struct gnv_run *run;
	uint32_t count, room;
};

struct gnv_live;

struct gpunvme_file {
	uint64_t process;
	uint32_t device; /* the number that queues of its device have (struct gpunvme_dq) */
	struct gpunvme_file_info info;
	struct gnv_runs gathered;	/* in bytes, until gnv_file_seal() */
	struct gpunvme_dextent *extent; /* in blocks, after it */
	uint32_t extents, room;
	const char *unwritable; /* why it may not be written in place, or NULL */
	struct gnv_shows shows;
	struct gnv_live *live; /* of a file of a mounted file system, or NULL */
};

/* Return: the file, or NULL with its sentence (-ENOMEM). */
struct gpunvme_file *gnv_file_new(void);

/*
 * gnv_file_add() - the next run; one that continues the last is merged with it
 * Return: 0; -EUCLEAN it overlaps the last or lies before it; -ENOMEM.
 */
int gnv_file_add(struct gpunvme_file *file, uint64_t pos, uint64_t at, uint64_t len);

/*
 * gnv_file_seal() - make extents, in blocks of a namespace, of the runs that were gathered
 * @r: where the file system lies
* Runs past the end of the file are cut off. Return: 0; -EUCLEAN an extent leaves the file system; -EOPNOTSUPP one is not whole
 * blocks of the namespace.
 */
int gnv_file_seal(struct gpunvme_file *file, const struct gnv_reader *r);

/* What the options ask for: may it be written? Return: 0, -EOPNOTSUPP, -EROFS. */
int gnv_file_permit(struct gpunvme_file *file, const struct gpunvme_file_opts *opts, const struct gpunvme_ns_info *ns);

/* Known options over the defaults. Return: 0, -EINVAL. */
int gnv_file_opts(struct gpunvme_file_opts *opts, const struct gpunvme_file_opts *user);

/* Does a path stay below the root? Return: 0, -EINVAL, -ENAMETOOLONG. */
int gnv_path_check(const char *path);

#endif
