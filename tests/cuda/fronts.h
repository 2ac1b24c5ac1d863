/* SPDX-License-Identifier: MIT */
/* Kernels of tests/cuda: one text for GPU and CPU threads. Every thread stores what its calls answered to out[thread]. */
#ifndef TESTS_CUDA_FRONTS_H
#define TESTS_CUDA_FRONTS_H

#include <gpunvme/dq.h>

struct front_args {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dvol vol;
	struct gpunvme_dvbuf vbuf;
	uint64_t out;     /* int32_t for each thread */
	uint64_t half;    /* offset of the buffer's second half, into which everything is read */
	uint64_t nblocks; /* of block and volume; of each thread for the others */
	uint64_t stop;    /* 32-bit word for the service, then one that counts threads; of the threads' own memory */
	uint64_t served;  /* a table of one dq */
	uint64_t rounds;
};

/*
 * front_lane, front_diverged, front_wave, front_any: thread i writes its blocks [i * nblocks, ..) from its part of the first half
 * of the buffer and reads them into the second. front_volume: the same through the volume. front_block: one workgroup, the whole
 * range. front_serve: group 0 serves, the others write and read without waiting.
 */
#define FRONTS(X) X(front_lane) X(front_diverged) X(front_wave) X(front_any) X(front_volume) X(front_block) X(front_serve)

#endif
