/* SPDX-License-Identifier: MIT */
/* Run this command again in a new process, which may crash or hang. */
#ifndef GPUNVME_CHILD_H
#define GPUNVME_CHILD_H

struct child {
	char status[32]; /* "ok", or how it ended */
	double seconds;
	char *out, *err; /* its output, or NULL: no memory */
};

/* Run @argv, which ends with NULL and whose first word is only a name. After @seconds, kill it within two more. */
void child_run(const char *const *argv, double seconds, struct child *c);
void child_free(struct child *c);

#endif
