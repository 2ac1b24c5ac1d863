/* SPDX-License-Identifier: MIT */
/*
 * What runs the kernel of a drive: threads of this process, or a GPU. Addresses in its memory are numbers to the host, which
 * reaches them by copies only; aligned words of 4 and 8 bytes arrive whole, in the order of the calls.
 *
 * Functions may be called by any thread, several at a time, but for open() and close(). Return: 0; -errno with an error message.
 */
#ifndef GNV_VDRIVE_EXEC_H
#define GNV_VDRIVE_EXEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/log.h"

struct gnv_vd_exec;

/* What a drive wants. */
struct gnv_vd_wish {
	const char *on;	  /* of the URI; NULL: "cpu" */
	const char *rest; /* of it, after the ':'; NULL: there is none */
	uint32_t threads, queues;
};

struct gnv_vd_exec_ops {
	const char *name; /* before the ':' of on= */
	/* @workers: that there will be. */
	int (*open)(const struct gnv_vd_wish *wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec);
	/* After stop() has returned true, or without start(). */
	void (*close)(struct gnv_vd_exec *exec);

	/* Memory of its own, zeroes. Copies return -ENOTRECOVERABLE when no kernel of this process runs there any more, for good. */
	int (*alloc)(struct gnv_vd_exec *exec, size_t len, uint64_t *at);
	void (*free)(struct gnv_vd_exec *exec, uint64_t at);
	int (*peek)(struct gnv_vd_exec *exec, void *to, uint64_t at, size_t len);
	int (*poke)(struct gnv_vd_exec *exec, uint64_t at, const void *from, size_t len);

	/* Memory of the host becomes visible to it. @cookie: for hide(). */
	int (*show)(struct gnv_vd_exec *exec, void *cpu, size_t len, uint64_t *at, void **cookie);
	/* Return: 0; -EBUSY it stays visible. */
	int (*hide)(struct gnv_vd_exec *exec, void *cookie);

	/* Run the kernel with this structure, launch after launch. @slice_ns: of one; 0: it runs until it is stopped. */
	int (*start)(struct gnv_vd_exec *exec, uint64_t vd, uint64_t slice_ns);
	/*
	 * Was a launch given to the processor that has not ended? Workers that do not run then wait for a place there. False: the
	 * processor runs all that it is given at once, or that is not known.
	 */
	bool (*is_queued)(struct gnv_vd_exec *exec);
	/* The structure says stop: wait for the end. Return: false it did not end within @ms. */
	bool (*stop)(struct gnv_vd_exec *exec, uint32_t ms);
};

struct gnv_vd_exec {
	const struct gnv_vd_exec_ops *ops;
	bool is_cpu; /* its addresses are this process's, and functions of tests may be called */
};

int gnv_vd_exec_open(struct gnv_vd_wish wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec);

extern const struct gnv_vd_exec_ops gnv_vd_exec_cpu, gnv_vd_exec_cuda;

#endif
