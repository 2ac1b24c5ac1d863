/* SPDX-License-Identifier: MIT */
/*
 * What the applications need of CPU threads, of CUDA and of HIP, so that each is one text: FILE.c is a program of CPU threads,
 * FILE.cu and FILE.hip include it. A wave is a workgroup, and a CPU thread is a wave of its own.
 *
 * FRONT_FN                    a function of kernels
 * FRONT_WIDTH                 threads of a wave, in kernels
 * front_together()            all threads of the wave come: what each did before, each sees after it
 * front_meet(&count, n)       the same for n waves that run at the same time. count begins with 0 and is used once
 * front_fail(&status, why)    any thread that failed says why
 * front_tell(&word, v)        the CPU sees the word after all that this thread did and saw
 * front_clock()               for all threads the same
 * front_work(ticks, per_ms)   the thread has something else to do for that long
 * FRONT_KERNEL(name, type)    name(const struct type *) becomes a kernel: front_run_NAME(waves, &arg) runs it and waits,
 *                             front_start_NAME(stream, waves, &arg) starts it, front_busy(stream) says whether it runs
 *
 * Errors end the program with one line, `program: sentence`: die(), check().
 */
#ifndef GPUNVME_EXAMPLES_FRONT_H
#define GPUNVME_EXAMPLES_FRONT_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

struct front {
	const struct gpunvme_dq *dq; /* queues, for kernels */
	uint32_t queues;
	uint32_t depth; /* of each */
	uint32_t lba_size;
	uint64_t nblocks;
	uint64_t ticks; /* of front_clock() in a millisecond */
	struct gpunvme_dbuf dbuf; /* a buffer for the queues */
};

#if defined(__CUDACC__)
#include "cuda.h"
#elif defined(__HIP__)
#include "hip.h"
#else
#include "cpu.h"
#endif

/* An image for the CPU to read. */
static inline FILE *front_image(const char *path)
{
	char why[4352];
	FILE *in = fopen(path, "rb");

	if (in)
		return in;
	snprintf(why, sizeof(why), "'%s': %s: name an image by its path", path, strerror(errno));
	die(why);
	return NULL;
}

/*
 * front_open() opens controller, threads, queues and a buffer of @bytes. front_close() ends them. front_shared() is memory that
 * the CPU and kernels have at the same address, front_local() is the threads' own. Both are zero, and live as long as the
 * program.
 */

/*
 * May @waves, queue by queue in turn, have @each commands under way? Submitting does not wait for room, and a place is free a
 * little after its command's result is there.
 */
static inline int front_fits(const struct front *f, uint32_t waves, uint64_t each)
{
	return (waves + f->queues - 1) / f->queues * each <= f->depth - f->depth / 8 - 1;
}

/* A number from the command line, or the end with @usage. */
static inline uint64_t front_number(const char *text, uint64_t least, uint64_t most, const char *usage)
{
	char *end;
	unsigned long long n = (errno = 0, strtoull(text, &end, 10));

	if (*text < '0' || *text > '9' || *end || errno || n < least || n > most)
		die(usage);
	return n;
}

FRONT_FN uint64_t front_clock(void)
{
	return gnvd_clock();
}

FRONT_FN uint32_t front_lane(void)
{
	return gpunvme_thread_id() % FRONT_WIDTH;
}

FRONT_FN uint32_t front_wave(void)
{
	return gpunvme_thread_id() / FRONT_WIDTH;
}

FRONT_FN uint32_t front_waves(void)
{
	return gpunvme_thread_count() / FRONT_WIDTH;
}

#endif
