/* SPDX-License-Identifier: MIT */
/*
 * A libcuda whose GPU is CPU threads, for machines without one: contexts, streams, registered memory and kernels are checked for
 * use as the real one demands, and every call can be made to fail. It runs the library's kernels as they are compiled for CPU lanes,
 * and others by their name in the program.
 */
#ifndef TESTS_CUDA_STAND_IN_H
#define TESTS_CUDA_STAND_IN_H

struct stand_in {
	const char *fail; /* the call that answers `error`, or NULL */
	int error;
	unsigned skip; /* calls of it that succeed before */
	int devices, major, minor, pools;
	/* What exists (atomic). */
	int contexts, streams, modules, registrations, allocations, running;
	void *device_memory; /* a pointer that is taken for one of cuMemAlloc() */
	const char *broke;   /* the first rule that was broken */
};

struct stand_in *stand_in(void);

#endif
