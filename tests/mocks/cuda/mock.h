/* SPDX-License-Identifier: MIT */
/*
 * A libcuda whose GPU is CPU threads, for machines without one: contexts, streams, registered memory and kernels are checked for
 * use as the real one demands, and every call can be made to fail. It runs the library's kernels as they are compiled for CPU threads,
 * and others by their name in the program.
 */
#ifndef TESTS_MOCKS_CUDA_MOCK_H
#define TESTS_MOCKS_CUDA_MOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cuda_mock {
	const char *fail; /* the call that returns `error`, or NULL */
	int error;
	unsigned failed; /* calls that have returned it (atomic) */
	unsigned skip; /* calls of it that succeed before */
	unsigned most; /* the value of `failed` at which calls succeed again; 0: none */
	int kernel_error; /* with which the next kernel ends, and all that comes then on its GPU (atomic) */
	int devices, major, minor, pools;
	/* What exists (atomic). */
	int contexts, streams, modules, registrations, allocations, running, events;
	int waiting; /* threads in a call that waits for kernels (atomic) */
	void *foreign_memory; /* what cuMemAlloc() gave in a context that the program has made, or NULL */
	void *foreign_stream; /* a stream of a context that the program has made (cuCtxCreate()), or NULL */
	void *capture; /* a stream that is captured for all threads (CU_STREAM_CAPTURE_MODE_GLOBAL), or NULL */
	bool capture_lost; /* atomic: a call has ended it */
	void (*replay)(void); /* the graph of what was captured, and its end */
	void (*forget)(void);
	int (*thread_mode)(void); /* of capture, of the calling thread */
	int (*have)(size_t len); /* registrations of that length */
	int (*lost)(void); /* registrations whose memory is unmapped */
	struct {
		char *ptr;
		size_t len;
		uint64_t id; /* CU_POINTER_ATTRIBUTE_BUFFER_ID: of each allocation its own, also at the same address */
	} host; /* what cuMemHostAlloc() gave */
	const char *broke;   /* the first rule that was broken */
	int processors, groups; /* multiprocessors, and groups of any kernel on each */
	bool apart; /* GPUs do not access each other's memory */
	bool endless; /* atomic: kernels of the program do not end, and calls that wait for them block until then */
	bool full; /* atomic: other kernels than those of the program get no multiprocessor */
	bool held; /* atomic: launches wait, as driver 580 seems to let them while another thread's call waits for a kernel */
	int launching; /* those that wait so (atomic) */
	bool (*is_peer)(int from, int of); /* kernels of that GPU access memory of cuMemAlloc() of the other */
	unsigned access[8]; /* for the pool of each GPU, the other GPUs that may access its memory, as bits (atomic) */
};

struct cuda_mock *cuda_mock(void);

#endif
