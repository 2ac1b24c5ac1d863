/* SPDX-License-Identifier: MIT */
/*
 * The system calls of lib/os/amd/kfd.c, drm.c and amdregs.c, emulated: the linker sends them here (--wrap). Descriptors and ranges
 * of addresses are counted, one call can be made to fail, and a test handles the ioctls.
 */
#ifndef TESTS_MOCKS_CALLS_H
#define TESTS_MOCKS_CALLS_H

#include <stdbool.h>
#include <stddef.h>

#define CALLS_FD 1000 /* descriptors handed out begin here; smaller ones are real */

struct calls {
	int (*ioctl)(int fd, unsigned long request, void *arg); /* 0, or an errno */
	const char *const *nodes;				/* what open() finds next to the real files, ends with NULL */
	int open_errno;						/* why no node opens; 0: they do */
	unsigned fails_at;					/* the how-manieth call fails; 0: none */
	int fails_with;

	/* What happened. */
	unsigned count;	 /* calls that could fail */
	unsigned fds;	 /* open */
	unsigned ranges; /* reserved, with PROT_NONE */
	char order[256]; /* a letter for each event, the tests' to write as well */
};
extern struct calls calls;

/* Forget everything. */
void calls_reset(void);
/* Append to calls.order. */
void calls_note(char letter);

#endif
