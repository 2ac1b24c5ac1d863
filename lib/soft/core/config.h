/* SPDX-License-Identifier: MIT */
/* Configuration of a software controller: plain data, from a URI or a test. */
#ifndef GNV_SOFT_CONFIG_H
#define GNV_SOFT_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/core/fault.h"
#include "soft/core/timing.h"

/*
 * Interrupts of a host that requested them (Create I/O Completion Queue, IEN and IV). The admin queue has vector 0.
 * The engine calls raise() once for all new completions of a queue, from any thread of its own.
 */
struct gnv_soft_irq {
	void (*raise)(void *ctx, unsigned vector);
	void *ctx;
	unsigned vectors; /* 0: there are none, and a queue that wants one is refused */
};

#define GNV_SOFT_NAMESPACES 8u

/* One of its namespaces, as the first of these fields of the configuration are namespace 1. */
struct gnv_soft_more {
	const char *path;
	uint32_t lba_size;
	bool read_only;
};

struct gnv_soft_engine_ops; /* core/engine.h */

struct gnv_soft_config {
	const char *path;   /* regular file, block device, or generic device of the nvme driver (/dev/ng0n1). "ram:SIZE": memory, gone
			     * at the end. "./ram:..." is a path */
	uint32_t lba_size;  /* 512 or 4096, or 0: a drive's own, else 512 */
	uint32_t mdts;      /* Identify MDTS: 4096 << mdts bytes, or 0: no limit. At most a drive's own */
	uint32_t queues;    /* I/O queue pairs offered, 1 to 1024 */
	uint32_t depth;     /* MQES + 1: 2 to 65536 */
	uint32_t dstrd;     /* CAP.DSTRD, 0 to 8 */
	uint32_t threads;   /* server threads, 1 to 64 */
	bool read_only;     /* all of them */
	struct gnv_soft_quirks quirks;
	struct gnv_soft_rules rules;
	bool faulty;  /* it has quirks or rules */
	bool careful; /* refuse a namespace that can be written and may hold data */
	bool shared; /* BAR0 has a descriptor, by which another process may map it. Then its size is a power of two */
	struct gnv_soft_irq irq;
	uint16_t vendor; /* of its PCI function, or 0: it has none */
	uint32_t cmb; /* MiB of memory of its own, 0 to 1024 (gnv_soft_cmb_bytes()) */
	struct gnv_soft_model model; /* its speed, or zeroes: as this machine */
	struct gnv_soft_more more[GNV_SOFT_NAMESPACES - 1]; /* namespaces 2 and on, up to the first without a path */
	const struct gnv_soft_engine_ops *engine; /* NULL: threads of this process */
	const char *on;	   /* processor of an engine that has a choice (vdrive/exec.h). NULL: "cpu" */
	uint32_t slice_us; /* of one launch of such an engine, or 0: without a limit */
	void (*failed)(void *ctx, const char *why); /* its engine has ended its queues. Called by its own thread. May be NULL */
	void *failed_ctx;
	uint32_t *late; /* becomes 1 if the machine is too slow for the model (atomic). May be NULL */
	const char *image; /* file with the first data of namespace 1 of such an engine. NULL: zeroes */
};
#define GNV_SOFT_CONFIG_INIT \
	{ NULL, 0, 8, 64, 4096, 0, 1, false, { 0 }, { 0 }, false, false, false, { NULL, NULL, 0 }, 0, 0, { 0 }, { { 0 } }, \
	  NULL, NULL, 2000, NULL, NULL, NULL, NULL }

#endif
