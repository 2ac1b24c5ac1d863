/* SPDX-License-Identifier: MIT */
/* The file of a copy: input that may be a pipe, output that appears under its name when it is complete. */
#ifndef GPUNVME_EXAMPLES_COPY_FILE_H
#define GPUNVME_EXAMPLES_COPY_FILE_H

#include <stdint.h>
#include <sys/types.h>

#include "session.h"

struct copy_file {
	const struct session_opts *o;
	const char *path; /* NULL: standard input or output */
	const char *name; /* for sentences */
	int fd;
	char *target; /* path that an output file will have */
	char *part;   /* and has before it is complete, if @named */
	int named;
};

/* @path NULL or "-" is the stream. */
void copy_file_name(struct copy_file *f, const struct session_opts *opts, const char *path, const char *stream);

/*
 * Output. A regular file is written under another name and renamed. A file that exists is replaced only with --force, also through
 * a symbolic link. A device is opened only with --yes, a block device only if no other program has it. What @s lies on is refused.
 * Then copy_file_finish(), in any case.
 */
int copy_file_create(struct copy_file *f, const struct session *s);
/* Return: 0 or -errno. */
int copy_file_write(struct copy_file *f, const void *buf, size_t len);
/* Gives the file its name if @ret is 0, else removes it. Return: @ret, or the error of this call. */
int copy_file_finish(struct copy_file *f, int ret);

/*
 * Input. *bytes: at most so many. After the call: the bytes of a regular file. *endless: the length is not known before, but is at
 * most *bytes. Then copy_file_close(), in any case.
 */
int copy_file_open(struct copy_file *f, uint64_t *bytes, int *endless);
/* Reads until @len bytes, the end of the file, or a signal. Return: bytes, or -errno. */
ssize_t copy_file_read(struct copy_file *f, void *buf, size_t len);
/* Refuses what @s lies on as input. */
int copy_file_check(const struct copy_file *f, const struct session *s);
void copy_file_close(struct copy_file *f);

#endif
