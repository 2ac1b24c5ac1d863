/* SPDX-License-Identifier: MIT */
/*
 * What keeps the blocks of a software controller: a table of operations for each kind, one file each in this folder.
 *
 * A store is opened once, and each server thread attaches to it, by a seat of its own (state.h). A command is carried out in steps
 * (cmd->stage, cmd->done); a store that does a step at once says so, another takes it and gives its result back later.
 */
#ifndef GNV_SOFT_STORE_H
#define GNV_SOFT_STORE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpunvme/spec.h>

#include "os/linux/uring.h"
#include "util/log.h"

struct gnv_soft_cmd;
struct gnv_soft_config;
struct gnv_soft_seat;
struct gnv_soft_store;

#define GNV_SOFT_LATER INT_MIN /* the step was taken; its result comes from reap() */

/* The result of a step that a drive has answered: a status, which the command ends with as it is. */
#define GNV_SOFT_ANSWER (INT_MIN / 2)
static inline bool gnv_soft_is_answer(int res)
{
	return res <= GNV_SOFT_ANSWER + UINT16_MAX;
}

struct gnv_soft_store_ops {
	const char *name;
	bool formatted; /* its blocks have a size before it is opened; a configuration need not give one */
	/* Is this address, the part of the URI behind "soft:", one of its own? */
	bool (*owns)(const char *address);
	/* Return: 0; -errno, and gnv_fail() has the sentence. */
	int (*open)(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **store);
	void (*close)(struct gnv_soft_store *store);

	/* Say by gnv_fail() what attach() or the start of a thread answered. Return: the answer; 0: it has no words for that. */
	int (*explain)(int error);

	/* All that follows is called by the server's thread. Return: 0 or -errno. */
	int (*attach)(struct gnv_soft_seat *seat);
	void (*detach)(struct gnv_soft_seat *seat);
	/* One step, under the lock. Return: bytes done, -errno, GNV_SOFT_ANSWER and a status, or GNV_SOFT_LATER. */
	int (*start)(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd);
	/* Let what was started begin. Return: 0; -EAGAIN call it again; another errno: it will not, until take_back() has it all. */
	int (*submit)(struct gnv_soft_seat *seat);
	unsigned (*take_back)(struct gnv_soft_seat *seat, void **cmd, unsigned max);
	/* Results of steps, at most @max. */
	unsigned (*reap)(struct gnv_soft_seat *seat, struct gnv_uring_done *done, unsigned max);
	/* Sleep until there is one, but not longer. Called only while steps are outstanding. */
	void (*wait)(struct gnv_soft_seat *seat, unsigned usec);
	/* Let go of memory of the host whose mapping is gone. */
	void (*tidy)(struct gnv_soft_seat *seat);
};

/* What a drive says of itself that carries out the commands. */
struct gnv_soft_drive {
	struct gpunvme_id_ctrl ctrl;
	struct gpunvme_id_ns ns;
	struct gpunvme_id_ctrl_nvm limits; /* zeroes where it tells none */
};

/* What opening found out; constant. */
struct gnv_soft_store {
	const struct gnv_soft_store_ops *ops;
	uint64_t size;	    /* bytes */
	uint32_t block;	    /* bytes of one; 0: as configured */
	uint64_t max_bytes; /* that one command may move; 0: no limit of its own */
	const struct gnv_soft_drive *drive; /* it takes commands as they are (GNV_SOFT_STAGE_WHOLE); NULL: it takes steps */
	uint64_t id[2];	    /* identity, from which names are made */
	uint32_t mem_align; /* what segments should begin at a multiple of, or they are copied; 0: it takes any */
	uint32_t len_align; /* the same of their lengths */
	bool reaches_far;   /* moves data of memory of devices by itself */
	bool read_only;
};

/* As open() of the store that owns the configuration's path. */
int gnv_soft_store_open(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **store);

/* The kinds. Every address is a path but those that another kind owns. */
extern const struct gnv_soft_store_ops gnv_soft_store_file, gnv_soft_store_ram, gnv_soft_store_nvme;

#endif
