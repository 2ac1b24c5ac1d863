/* SPDX-License-Identifier: MIT */
/*
 * Page caches over a controller in software, by source (namespace, file, volume) and mode (plain, prefetch, write-back; in place or
 * copied). Each row of a part is a test with its source and its mode.
 *
 *   test_cache [PART]    reads, failures, prefetches, parts, changes, lost or refused; usually all
 */
#include "stage.h"

#include <stdio.h>
#include <string.h>

static const struct {
	const char *name;
	int (*run)(void);
} part[] = {
	{ "reads", run_reads },	    { "failures", run_read_failures }, { "prefetches", run_prefetches }, { "parts", run_prefetched_parts },
	{ "changes", run_changes }, { "lost", run_lost_changes },      { "refused", run_refused_changes },
};

int main(int argc, char **argv)
{
	unsigned i, found = 0;
	int failed = 0;

	for (i = 0; i < sizeof(part) / sizeof(part[0]); i++)
		if (argc < 2 || !strcmp(argv[1], part[i].name)) {
			failed += part[i].run();
			found++;
		}
	if (!found)
		fprintf(stderr, "there is no part %s\n", argv[1]);
	return found ? failed : 2;
}
