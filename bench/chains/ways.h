/* SPDX-License-Identifier: MIT */
/* --ways of a benchmark: GPU threads, or numbers of CPU threads on bare rings, each with its queues. */
#ifndef BENCH_CHAINS_WAYS_H
#define BENCH_CHAINS_WAYS_H

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <vector>

#include "rig.h"

struct way {
	uint32_t threads; /* of the CPU that start the reads; 0: the GPU's start them */
	uint32_t queues;
	uint32_t at_once; /* queries or nodes under way */
};

/* Of "THREADS:QUEUES:AT_ONCE,...". */
static std::vector<struct way> ways_of(char *text, const char *usage)
{
	std::vector<struct way> ways;

	for (char *part = strtok(text, ","); part; part = strtok(nullptr, ",")) {
		struct way w;

		if (sscanf(part, "%" SCNu32 ":%" SCNu32 ":%" SCNu32, &w.threads, &w.queues, &w.at_once) != 3 || !w.queues || !w.at_once)
			die(usage);
		if (w.threads && (w.queues % w.threads || w.at_once % w.threads))
			die("the other two numbers of a way are multiples of its CPU threads");
		ways.push_back(w);
	}
	return ways;
}

#endif
