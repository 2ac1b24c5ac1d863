/* SPDX-License-Identifier: MIT */
/* "Did you mean": the name of a list that a mistyped word is nearest to. */
#ifndef GPUNVME_EXAMPLES_NEAREST_H
#define GPUNVME_EXAMPLES_NEAREST_H

#include <stddef.h>

struct nearest {
	const char *word; /* as typed */
	size_t len;	  /* of it */
	const char *name; /* the nearest so far, or NULL: none is near */
	unsigned edits;	  /* between the two */
};

#define NEAREST_INIT(word, len) { (word), (len), NULL, 3 } /* three edits make another word */

/* Look at one more @name of the list. It has to live as long as @n. */
void nearest_look(struct nearest *n, const char *name);

#endif
