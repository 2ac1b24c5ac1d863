/* SPDX-License-Identifier: MIT */
/* A kernel of the library's own on queues of the user's: threads get descriptors, and return one result each. */
#ifndef GNV_RUN_RUN_H
#define GNV_RUN_RUN_H

#include "gpu/gpu.h"
#include "util/entry.h"
#include "util/opts.h"

#define GNV_RUN_THREADS_MAX 65536u

struct gnv_run {
	struct gpunvme_gpu *gpu;
	const struct gpunvme_dq *dq;
	uint32_t queues;
	uint32_t threads;
	enum gnv_kernel kernel;
	void *args;
	size_t args_len;
	uint64_t *args_dq;     /* two fields of the arguments are filled here: the threads' addresses of the descriptors */
	uint64_t *args_result; /* and of the results */
	void *result;          /* where they are copied to */
	bool sent;             /* and from, before: they are questions, too */
	size_t result_size;    /* of one thread */
	uint32_t ms;           /* the kernel's own time, in addition to that of its commands */
	struct gnv_gpu_range views, results;
	uint64_t seen; /* of the queues' positions */
};
#define GNV_RUN_INIT(gpu_, dq_, queues_, kernel_, args_, result_) \
	{ .gpu = (gpu_), .dq = (dq_), .queues = (queues_), .kernel = (kernel_), .args = (args_), .args_len = sizeof(*(args_)), \
	  .args_dq = &(args_)->dq, .args_result = &(args_)->result, .result_size = sizeof(result_) }

static inline int gnv_run_opts(int ret, void *known, size_t size, const void *user, const char *what)
{
	return ret ? ret : gnv_sized_in(known, size, user, what);
}

/*
 * gnv_run_enter() - begin a public function with threads, views, a buffer and options, all of which must be given
 * @known: struct gpunvme_NAME with its defaults, over which come the options of @user
 * Return: 0; -EINVAL, -ECHILD, with the error message.
 */
#define gnv_run_enter(gpu, dq, dbuf, user, known, name) \
	gnv_run_opts(gnv_enter(gpu, (gpu) && (dq) && (dbuf) && (user), "gpu, dq, dbuf and " #name), \
		     1 ? (known) : (struct gpunvme_##name *)0, sizeof(struct gpunvme_##name), user, "gpunvme_" #name)

/* Is it the head of a view of this kind, which @maker fills? Return: 0; -EPROTONOSUPPORT another version, or none; -EINVAL. */
int gnv_run_check_head(const struct gpunvme_head *head, enum gpunvme_kind kind, const char *maker);

/* Did gpunvme_queue_view() fill these views? Return: as gnv_run_check_head(). */
int gnv_run_check_views(const struct gpunvme_dq *dq, uint32_t queues);

/* Queues and buffer of other threads: these would fault, or see data late. Return: 0, -EINVAL, -EPROTONOSUPPORT, -EXDEV. */
int gnv_run_check(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf);

/*
 * Do @nblocks from block @lba on lie in each of the views, and in the buffer from its first byte on? Asked of the whole, before a
 * thread runs: threads look at their parts alone. Return: 0, -ERANGE.
 */
int gnv_run_check_range(const struct gpunvme_dq *dq, uint32_t queues, const struct gpunvme_dbuf *dbuf, uint64_t lba,
			uint64_t nblocks);

/*
 * It ends at the latest when its queues have moved nothing for the longest of their command time-outs.
 * Return: 0, -ENOMEM, -ETIMEDOUT, -EIO.
 */
int gnv_run_kernel(struct gnv_run *run);

/* As gnv_run_kernel(), with room for results, which the caller frees in any case. */
int gnv_run_for_results(struct gnv_run *run);

#endif
