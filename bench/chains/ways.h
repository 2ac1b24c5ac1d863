/* SPDX-License-Identifier: MIT */
/*
 * --ways of a benchmark: GPU threads, or numbers of CPU threads on bare rings, each with its queues. What uses the data that CPU
 * threads read is a kernel that stays (waves.h), or kernels that they start (batches.h).
 */
#ifndef BENCH_CHAINS_WAYS_H
#define BENCH_CHAINS_WAYS_H

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <vector>

#include "rig.h"

struct way {
	uint32_t threads; /* of the CPU that start the reads; 0: the GPU's start them */
	uint32_t queues;
	uint32_t at_once; /* queries or nodes under way */
	uint32_t batches; /* of each CPU thread, for which it starts kernels; 0: a kernel stays */
	bool graph;	  /* each kernel is a CUDA graph */
};

static const char *kernels_of(const struct way &w)
{
	return !w.threads ? "one" : !w.batches ? "stays" : w.graph ? "graph" : "launch";
}

/* What follows the numbers: nothing, ":graphN" or ":launchN", with N batches of each CPU thread. Return whether it is right. */
static bool read_batches(const char *text, struct way *w)
{
	char name[8];

	if (!*text)
		return true;
	if (sscanf(text, ":%6[a-z]%" SCNu32, name, &w->batches) != 2 || !w->batches || !w->threads)
		return false;
	w->graph = !strcmp(name, "graph");
	return w->graph || !strcmp(name, "launch");
}

/* Of "THREADS:QUEUES:AT_ONCE[:graphN|:launchN],...". */
static std::vector<struct way> ways_of(char *text, const char *usage)
{
	std::vector<struct way> ways;

	for (char *part = strtok(text, ","); part; part = strtok(nullptr, ",")) {
		struct way w = {};
		int end = 0;

		if (sscanf(part, "%" SCNu32 ":%" SCNu32 ":%" SCNu32 "%n", &w.threads, &w.queues, &w.at_once, &end) != 3 || !w.queues ||
		    !w.at_once || !read_batches(part + end, &w))
			die(usage);
		if (w.threads && (w.queues % w.threads || w.at_once % (w.threads * std::max(w.batches, 1u))))
			die("the other numbers of a way are multiples of its CPU threads, and all are in equal batches");
		ways.push_back(w);
	}
	return ways;
}

#endif
