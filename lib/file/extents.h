/* SPDX-License-Identifier: MIT */
/* The extents of one file, and its identity, while it is examined. */
#ifndef GNV_FILE_EXTENTS_H
#define GNV_FILE_EXTENTS_H

#include <gpunvme/file.h>

#include "file/reader.h"
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

struct gnv_extents {
	struct gpunvme_file_info info;	/* bytes, identity, and block */
	struct gnv_runs gathered;	/* in bytes, until gnv_extents_seal() */
	struct gpunvme_dextent *extent; /* in blocks, after it */
	uint32_t extents, room;
	const char *unwritable; /* why it may not be written in place, or NULL */
};

/* Return: none yet, or NULL with its error message (-ENOMEM). */
struct gnv_extents *gnv_extents_new(void);
void gnv_extents_free(struct gnv_extents *file);

/*
 * gnv_extents_add() - add the next run. One that continues the last is merged with it
 * Return: 0; -EUCLEAN it overlaps the last or lies before it; -ENOMEM.
 */
int gnv_extents_add(struct gnv_extents *file, uint64_t pos, uint64_t at, uint64_t len);

/*
 * gnv_extents_seal() - make extents, in blocks of a namespace, of the runs that were gathered
 * @r: where the file system lies
 * Runs past the end of the file are cut off. Return: 0; -EUCLEAN an extent leaves the file system; -EOPNOTSUPP one is not whole
 * blocks of the namespace.
 */
int gnv_extents_seal(struct gnv_extents *file, const struct gnv_reader *r);

/* May the file be written, if the options ask for that? Return: 0, -EOPNOTSUPP, -EROFS. */
int gnv_extents_permit(const struct gnv_extents *file, const struct gpunvme_file_opts *opts, const struct gpunvme_ns_info *ns);

#endif
