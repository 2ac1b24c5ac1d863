/* SPDX-License-Identifier: MIT */
#include "nearest.h"

#include <string.h>

#define LONGEST 24u /* no name is longer */

static unsigned least(unsigned a, unsigned b, unsigned c)
{
	const unsigned ab = a < b ? a : b;

	return ab < c ? ab : c;
}

/* Characters to insert, delete or replace (Levenshtein). Both texts have at most LONGEST. */
static unsigned edits_between(const char *a, size_t len, const char *b)
{
	unsigned row[LONGEST + 1], above_left, above;
	const size_t width = strlen(b);

	for (unsigned j = 0; j <= width; j++)
		row[j] = j;
	for (unsigned i = 0; i < len; i++) {
		above_left = row[0];
		row[0] = i + 1;
		for (unsigned j = 0; j < width; j++) {
			above = row[j + 1];
			row[j + 1] = least(above + 1, row[j] + 1, above_left + (a[i] != b[j]));
			above_left = above;
		}
	}
	return row[width];
}

void nearest_look(struct nearest *n, const char *name)
{
	unsigned edits;

	if (n->len > LONGEST || strlen(name) > LONGEST)
		return;
	edits = edits_between(n->word, n->len, name);
	if (edits >= n->edits || edits >= strlen(name) || edits >= n->len) /* a word with nothing in common is not near */
		return;
	n->edits = edits;
	n->name = name;
}
