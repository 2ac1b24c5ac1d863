/* SPDX-License-Identifier: MIT */
/*
 * The processor that runs the kernel of a drive: threads of this process, or a GPU. The host accesses the processor's memory by
 * copies only, and its addresses are numbers to the host. Aligned words of 4 and 8 bytes arrive whole, in the order of the calls.
 *
 * Any thread may call these functions, several at a time, but for open() and close(). Return: 0; -errno with an error message.
 */
#ifndef GNV_VDRIVE_EXEC_H
#define GNV_VDRIVE_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/log.h"

struct gpunvme_mem;
struct gnv_vd_exec;

/* The requests of the URI. */
struct gnv_vd_wish {
	const char *on;	  /* of the URI. NULL: "cpu" */
	const char *rest; /* the part of on= after the ':', or NULL */
	uint32_t threads, queues;
	void (*before_launch)(void *ctx); /* called by a processor that makes launches, and accesses memory of devices */
	void *ctx;
};

struct gnv_vd_exec_ops {
	const char *name; /* before the ':' of on= */
	/* @workers: set to the number of workers. */
	int (*open)(const struct gnv_vd_wish *wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec);
	/* After stop() has returned true, or without start(). */
	void (*close)(struct gnv_vd_exec *exec);

	/* Memory of the processor, zeroed. Copies return -ENOTRECOVERABLE when no kernel of this process can run there any more. */
	int (*alloc)(struct gnv_vd_exec *exec, size_t len, uint64_t *at);
	void (*free)(struct gnv_vd_exec *exec, uint64_t at);
	int (*peek)(struct gnv_vd_exec *exec, void *to, uint64_t at, size_t len);
	int (*poke)(struct gnv_vd_exec *exec, uint64_t at, const void *from, size_t len);

	/* Make memory of the host accessible to the processor. @cookie: for hide(). */
	int (*show)(struct gnv_vd_exec *exec, void *cpu, size_t len, uint64_t *at, void **cookie);
	/* Return: 0; -EBUSY it stays accessible; -EAGAIN, with an error message, it does until a kernel of the program has ended. */
	int (*hide)(struct gnv_vd_exec *exec, void *cookie);
	/* After -EAGAIN, where hide() is not called again. NULL: there is no -EAGAIN. */
	void (*detach)(void *cookie);

	/*
	 * Make memory of a device accessible, for as long as it exists. Return: 0; -EOPNOTSUPP, -EXDEV the processor does not
	 * access it; -EIO.
	 */
	int (*reach)(struct gnv_vd_exec *exec, const struct gpunvme_mem *mem, uint64_t *at);

	/* Run the kernel with this structure, launch after launch. @slice_ns: of one launch, or 0: one launch runs until stop(). */
	int (*start)(struct gnv_vd_exec *exec, uint64_t vd, uint64_t slice_ns);
	/*
	 * Return: a launch was given to the processor and has not ended. Workers that do not run then wait for a multiprocessor.
	 * False: the processor begins each launch at once, or the state is unknown.
	 */
	bool (*is_queued)(struct gnv_vd_exec *exec);
	/*
	 * Wait for the end of launches and of the kernel, after stop was set in the structure, up to @ms for each. Return: false
	 * one did not end, and its memory stays. The next call goes on.
	 */
	bool (*stop)(struct gnv_vd_exec *exec, uint32_t ms);
};

struct gnv_vd_exec {
	const struct gnv_vd_exec_ops *ops;
	bool is_cpu; /* its addresses are those of this process, and it can call functions of tests */
};

int gnv_vd_exec_open(struct gnv_vd_wish wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec);

extern const struct gnv_vd_exec_ops gnv_vd_exec_cpu, gnv_vd_exec_cuda;
extern const struct gnv_vd_exec_ops gnv_vd_exec_hsa; /* where GNV_WITH_HSA */

#endif
