/* SPDX-License-Identifier: MIT */
/*
 * The schedule fuzzer: the device header on coroutines, with one seed for the shape of a run and for every switch between them.
 *
 *   test_schedule PART          queue, pages or changes: a fixed list of seeds; GPUNVME_SCHEDULES=N in the environment: that many
 *   test_schedule PART SEED     that one again
 */
#include "schedule_parts.h"

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "queue"))
		return schedule_queue(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "pages"))
		return schedule_pages(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "changes"))
		return schedule_changes(argc - 1, argv + 1);
	fprintf(stderr, "usage: test_schedule queue|pages|changes [SEED]\n");
	return 2;
}
