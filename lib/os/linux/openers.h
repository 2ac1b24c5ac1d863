/* SPDX-License-Identifier: MIT */
/* Which processes have a file open, as far as this one may look. */
#ifndef GNV_OS_LINUX_OPENERS_H
#define GNV_OS_LINUX_OPENERS_H

#include <stdbool.h>
#include <stdint.h>

#define GNV_PROC "/proc"

enum gnv_opened_kind { GNV_OPENED_BLOCK, GNV_OPENED_CHAR, GNV_OPENED_FILE };

/* The file to search for. */
struct gnv_opened {
	enum gnv_opened_kind kind;
	uint64_t dev;  /* the number of the device, or of a file's file system */
	uint64_t ino;  /* of a file */
	char name[40]; /* for messages: "/dev/nvme0n1" */
};

struct gnv_opener {
	int pid;
	char command[16];
	const struct gnv_opened *what;
};

/* Which descriptors count. */
enum gnv_openers_how {
	GNV_OPENERS_ANY,
	GNV_OPENERS_WRITING, /* that can write */
	GNV_OPENERS_LOCKED,  /* that hold a lock of their own (F_OFD_SETLK) */
};

struct gnv_openers_query {
	const struct gnv_opened *what;
	unsigned count;
	const int *own; /* descriptors of this process that do not count */
	unsigned owned;
	enum gnv_openers_how how;
};

/* Is this file @what? */
struct statx;
bool gnv_opened_is(const struct gnv_opened *what, const struct statx *st);

/*
 * gnv_openers_find() - a process, perhaps this one, that has one of the files open
 * @proc:   "/proc" but in tests
 * @unseen: how many processes could not be checked, 1 if there is no @proc. May be NULL
 *
 * Not seen at all: files that only the kernel holds (mappings, io_uring's registered files, messages under way), and processes of
 * other PID namespaces. Return: true if there is one, described in the out-parameter.
 */
bool gnv_openers_find(const char *proc, const struct gnv_openers_query *query, struct gnv_opener *who, unsigned *unseen);

/* Does this process not see its own entry there, and so perhaps those of no others? */
bool gnv_openers_no_proc(const char *proc);

#endif
