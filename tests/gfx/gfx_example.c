/* SPDX-License-Identifier: MIT */
/*
 * An example with its lanes on the executor: everything else, the library and the controller in software with its threads, is real.
 * SOURCE is the example, KERNELS what it launches: K(function, argument). What opens queues and launches lanes is compiled in the
 * same unit, so that this file sees every queue, buffer and table.
 */
#include "gfx/lanes.h"

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

/* The controller's threads need the processor too. */
static void give_way(void)
{
	static unsigned turns;

	if (turns++ % 16)
		sched_yield();
	else
		nanosleep(&(struct timespec){ 0, 50000 }, NULL);
}

/* What the example allocates is what its kernels may touch. */
static int open_view(struct gpunvme_queue *qp, const struct gpunvme_view *view, struct gpunvme_dq *dq)
{
	int ret = gpunvme_queue_view(qp, view, dq);

	lanes_outside = give_way;
	if (!ret)
		lanes_queue(dq, true);
	return ret;
}

static int allocate(struct gpunvme_gpu *gpu, struct gpunvme_queue *queue, size_t bytes, const struct gpunvme_mem_opts *opts, struct gpunvme_mem **mem)
{
	int ret = gpunvme_mem_alloc(gpu, queue, bytes, opts, mem);

	if (!ret)
		lanes_memory("buffer", gpunvme_mem_ptr(*mem), gpunvme_mem_len(*mem), GFX_DEVICE);
	return ret;
}

static __attribute__((unused)) void *table(size_t count, size_t bytes)
{
	void *p = calloc(count, bytes);

	if (p)
		lanes_memory("table", p, count * bytes, 0);
	return p;
}

int example(int argc, char **argv);

#define main example
#undef gpunvme_queue_view
#define gpunvme_queue_view(qp, view, dq) open_view(qp, view, dq)
#define gpunvme_mem_alloc(gpu, queue, bytes, opts, mem) allocate(gpu, queue, bytes, opts, mem)
#define calloc(count, bytes) table(count, bytes)
#ifdef COPIES
#include "common/copy.c"
#endif
#ifdef SESSION
#include "common/session.c"
#endif
#include SOURCE
#undef main

#define K(function, argument) { function, "run_" #function, sizeof(argument) },
const struct lanes_kernel lanes_kernels[] = { KERNELS { NULL, NULL, 0 } };

int main(int argc, char **argv)
{
	return example(argc, argv);
}
