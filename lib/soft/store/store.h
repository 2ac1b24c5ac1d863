/* SPDX-License-Identifier: MIT */
/*
 * The stores of blocks of a software controller: a table of operations for each kind, one file each in this folder.
 *
 * A store is opened once, and each worker thread attaches to it by its own seat. A command is executed in steps (cmd->stage,
 * cmd->done). A store does a step at once, or takes it and returns its result later.
 */
#ifndef GNV_SOFT_STORE_H
#define GNV_SOFT_STORE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpunvme/spec.h>

#include "os/linux/uring.h"
#include "soft/core/controller.h"
#include "soft/store/data.h"
#include "util/log.h"

struct gnv_soft_seat;

#define GNV_SOFT_CMDS 1024u	/* commands one thread works on at a time */
#define GNV_SOFT_LATER INT_MIN /* the step was taken. Its result comes from reap() */

struct gnv_soft_store_ops {
	const char *name;
	bool formatted; /* its blocks have a size before it is opened, so a configuration need not give one */
	/* Is this address, the part of the URI after "soft:", of this kind? */
	bool (*owns)(const char *address);
	/* Return: 0; -errno, and gnv_fail() has the message. */
	int (*open)(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **store);
	void (*close)(struct gnv_soft_store *store);

	/* Explain an error of attach() or of a thread's start by gnv_fail(). Return: the error; 0: it has no message for it. */
	int (*explain)(int error);

	/* All that follows is called by the server's thread. Return: 0 or -errno. */
	int (*attach)(struct gnv_soft_seat *seat);
	void (*detach)(struct gnv_soft_seat *seat);
	/* One step, under the lock. Return: bytes done, -errno, GNV_SOFT_ANSWER and a status, or GNV_SOFT_LATER. */
	int (*start)(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd);
	/*
	 * Submit the started steps. Return: 0; -EAGAIN call it again; another errno: it fails until take_back() has returned them
	 * all.
	 */
	int (*submit)(struct gnv_soft_seat *seat);
	unsigned (*take_back)(struct gnv_soft_seat *seat, void **cmd, unsigned max);
	/* Results of steps, at most @max. */
	unsigned (*reap)(struct gnv_soft_seat *seat, struct gnv_uring_done *done, unsigned max);
	/* Sleep until there is one, but not longer. Called only while steps are outstanding. */
	void (*wait)(struct gnv_soft_seat *seat, unsigned usec);
	/* Let go of memory of the host whose mapping is gone. */
	void (*tidy)(struct gnv_soft_seat *seat);
};

/* The state of a mapping's memory in a ring. */
struct gnv_soft_held {
	uint64_t registered; /* serial of the mapping that is registered under this slot, or 0 */
	uint64_t counted;    /* serial of the mapping that `uses` counts */
	uint32_t uses;	     /* single-segment I/Os so far, to choose mappings worth registering */
};

/* A thread at a store. */
struct gnv_soft_seat {
	const struct gnv_soft *soft;
	struct gnv_soft_dma *dma; /* of the thread */
	struct gnv_soft_store *store;
	unsigned thread;	/* its number */
	unsigned taken;		/* commands whose step the store has */
	uint64_t refused_since; /* when it began to take no steps, or 0: it takes them */
	struct gnv_uring *ring; /* ring.c's, as the next three */
	struct gnv_soft_held *held; /* by slot of the address space */
	unsigned registered;	    /* mappings that are */
	bool buffers_refused;	    /* said once that memory cannot be registered */
};

/* As open() of the store that owns the configuration's path. */
int gnv_soft_store_open(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **store);

/* The kinds. Every address is a path but those that another kind owns. */
extern const struct gnv_soft_store_ops gnv_soft_store_file, gnv_soft_store_ram, gnv_soft_store_nvme, gnv_soft_store_vram;

#endif
