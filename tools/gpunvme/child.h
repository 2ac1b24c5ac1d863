/* SPDX-License-Identifier: MIT */
/* This command once more, as a process of its own that may crash or hang. */
#ifndef GPUNVME_CHILD_H
#define GPUNVME_CHILD_H

struct child {
	char verdict[32]; /* "ok", or how it ended */
	double seconds;
	char *out, *err; /* what it said; NULL: no memory */
};

/* @argv: ended by NULL; its first word is only a name. @seconds: after them it is ended, within two more. */
void child_run(const char *const *argv, double seconds, struct child *c);
void child_free(struct child *c);

#endif
