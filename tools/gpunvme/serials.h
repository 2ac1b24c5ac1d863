/* SPDX-License-Identifier: MIT */
/* Serial numbers, which identify one drive: a report leaves them out everywhere. */
#ifndef GPUNVME_SERIALS_H
#define GPUNVME_SERIALS_H

#include "common/output.h"

#define SERIALS 1024

struct serials {
	char *text[SERIALS];
	unsigned count;
	int forgot; /* there was no room, or no memory, for one of them */
};

/* Replace them in the output of a command, and remember them: in plain form, and as JSON spells them. */
void serials_hide(struct serials *s, struct json_object *json);

/* Put an x for each character of those that are remembered. */
void serials_blot_out(const struct serials *s, char *text);
void serials_free(struct serials *s);

#endif
