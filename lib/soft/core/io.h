/* SPDX-License-Identifier: MIT */
/*
 * I/O commands: the controller's state of one in flight, and of itself for them.
 *
 * The engine has the memory of commands, fetches and completes them. The functions here decide the next step of one. They access no
 * other command, and fields that several threads may change are atomic: so an engine calls them for different commands at once.
 * They use no C library, as they also run on a GPU (tests/abi/core compiles them for it).
 */
#ifndef GNV_SOFT_IO_H
#define GNV_SOFT_IO_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpunvme/spec.h>

#include "soft/core/cmd.h"
#include "soft/core/event.h"
#include "soft/core/fault.h"
#include "soft/core/fault_quirk.h"
#include "util/medium.h"

#define GNV_SOFT_RANGES 4096u /* bytes of the ranges of a command, at most */
#define GNV_SOFT_FILL 65536u  /* bytes of a range that a drive with `unsaid` sets to ones */

struct gnv_soft_data;	   /* place of the data of a command, defined by the engine */
struct gnv_soft_dma;	   /* by which a thread of the engine reaches memory of the host */
struct gnv_soft_segs;	   /* pieces of memory of the host, in order, defined by the engine */
struct gnv_soft_sq;	   /* the engine's */
struct gnv_soft_store_ops; /* store/store.h */

/* Identify data of a drive that executes the commands. */
struct gnv_soft_drive {
	struct gpunvme_id_ctrl ctrl;
	struct gpunvme_id_ns ns;
	struct gpunvme_id_ctrl_nvm limits; /* zeroes if it reports none */
};

/* The store of a namespace, as opening found it. Constant. */
struct gnv_soft_store {
	const struct gnv_soft_store_ops *ops;
	uint64_t size;	    /* bytes */
	uint32_t block;	    /* bytes of one, or 0: as configured */
	uint64_t max_bytes; /* that one command may move, or 0: no limit of its own */
	const struct gnv_soft_drive *drive; /* it takes whole commands (GNV_SOFT_STAGE_WHOLE), or NULL: steps */
	struct gnv_medium medium; /* its medium */
	uint64_t id[2];	    /* identity, from which names are made */
	uint32_t mem_align; /* alignment of segments, which are copied otherwise. 0: any */
	uint32_t len_align; /* the same of their lengths */
	bool reaches_far;   /* moves data of memory of devices by itself */
	bool read_only;
	bool keeps_old;	    /* deallocated blocks may keep their old data */
};

/* A namespace: its geometry and its store. Constant but for the last. */
struct gnv_soft_part {
	struct gnv_soft_store *store;
	struct gnv_soft_ns ns;
	bool no_zero_range; /* the store cannot zero a range (atomic) */
};

/* The result of a step from a drive: a status, with which the command ends. */
#define GNV_SOFT_ANSWER (INT_MIN / 2)
static inline bool gnv_soft_is_answer(int res)
{
	return res <= GNV_SOFT_ANSWER + (int)UINT16_MAX;
}

enum gnv_soft_stage {			      /* the step of the store for an I/O command */
		      GNV_SOFT_STAGE_RW,      /* reading or writing the segments */
		      GNV_SOFT_STAGE_COMPARE, /* reading data for a comparison */
		      GNV_SOFT_STAGE_ZERO,    /* asking the file system for zeroes */
		      GNV_SOFT_STAGE_FILL,    /* writing zeroes */
		      GNV_SOFT_STAGE_DSM,
		      GNV_SOFT_STAGE_WHOLE, /* a drive is to carry it out */
		      GNV_SOFT_STAGE_SYNC /* last: data must reach the medium */
};

struct gnv_soft_cmd {
	struct gnv_soft_cmd *next; /* the engine's, as the next two */
	struct gnv_soft_sq *sq;
	struct gnv_soft_data *data;
	struct gnv_soft_io *io;	    /* of its controller */
	struct gnv_soft_part *part; /* of an I/O command. A Flush of all goes from one to the next */
	struct gpunvme_sqe sqe;	    /* the copy. The entry is never read again */
	struct gnv_soft_op op;
	enum gnv_soft_stage stage;
	uint16_t qid; /* of its submission queue */
	uint16_t status;
	uint32_t dw0;
	uint64_t post_at; /* no completion before this time, in ns, 0: at once, UINT64_MAX: never (dropped) */
	uint64_t began;	  /* when the timing model took it and set post_at, or 0 */
	bool stalled;	  /* GNV_SOFT_STALL: it begins at post_at */
	bool counted;	  /* limit.c */
	bool apart;	  /* its data goes through memory of the controller's own (data.h) */
	bool timed;	  /* post_at is the timing model's (lib/vdrive, which uses `began` for something else) */
	enum gnv_soft_action action; /* the rest of the fault */
	uint32_t number;
	uint64_t done; /* bytes of op.len that are done, or ranges of Dataset Management */
	unsigned retries;
};

/* The part of a controller for its I/O commands. Constant while there are queues, but for the atomic fields. */
struct gnv_soft_io {
	const struct gnv_soft_quirks *quirks;
	struct gnv_soft_rules *rules;
	struct gnv_soft_part *part; /* namespace 1 first */
	unsigned parts;
	uint32_t page;	   /* CC.MPS in bytes */
	uint64_t cmb_base; /* the address of the controller's own memory, or 0 */
	bool write_back;   /* volatile write cache enabled (atomic, as the next fields) */
	uint32_t apst;	   /* it may go to its last power state by itself */
	uint32_t asleep;   /* set to its last power state, from which it is slow to wake */
	uint32_t doom;	   /* GNV_SOFT_CFS or _ONES: the end of the controller */
	uint32_t events;   /* raised and not reported, 1 << GNV_SOFT_EVENT_* */
	uint32_t flying;   /* limit.c: I/O commands in flight, and the identifiers of all that are */
	uint32_t tags[65536 / 32];
};

static inline bool gnv_soft_is_reading(const struct gnv_soft_cmd *cmd)
{
	return cmd->op.opc == GPUNVME_IO_READ || cmd->op.opc == GPUNVME_IO_COMPARE;
}

static inline void gnv_soft_io_raise(struct gnv_soft_io *io, enum gnv_soft_event event)
{
	__atomic_fetch_or(&io->events, 1u << event, __ATOMIC_RELAXED);
}

/* True when writes of this command must reach the medium before it completes. */
static inline bool gnv_soft_is_durable(const struct gnv_soft_cmd *cmd)
{
	return cmd->op.fua || !__atomic_load_n(&cmd->io->write_back, __ATOMIC_RELAXED);
}

struct gnv_soft_counters {
	uint64_t reads, writes;			/* commands */
	uint64_t sectors_read, sectors_written; /* units of 512 bytes */
	uint64_t media_errors;
	uint64_t busy_ns;
};

/* The next step of a command. */
enum gnv_soft_next {
	GNV_SOFT_STEP,	   /* the store does cmd->stage, from cmd->done on, then gnv_soft_io_step() */
	GNV_SOFT_END,	   /* it is over, with cmd->status: complete it, but not before cmd->post_at */
	GNV_SOFT_PARK,	   /* keep it until cmd->post_at, and begin it again if it has stalled */
	GNV_SOFT_PARK_ALL, /* the same, and take nothing more from its queue until that is deleted */
	GNV_SOFT_POST	   /* post a success now, then gnv_soft_posted_early(). Without room, as GNV_SOFT_STEP */
};

/* ---- io.c: execution of I/O commands (NVM Command Set Specification 3) ---- */

/* Look at cmd->sqe, and find its data. Return: _STEP, after gnv_soft_io_ready(); _END or _PARK. */
enum gnv_soft_next gnv_soft_io_begin(struct gnv_soft_cmd *cmd);
/* The last look before the first step. Return: _STEP or _END, as the next one. */
enum gnv_soft_next gnv_soft_io_look(struct gnv_soft_cmd *cmd);
static inline enum gnv_soft_next gnv_soft_io_ready(struct gnv_soft_cmd *cmd)
{
	return cmd->action || cmd->stage == GNV_SOFT_STAGE_DSM ? gnv_soft_io_look(cmd) : GNV_SOFT_STEP;
}

/* A step has ended: @res bytes, -errno, or GNV_SOFT_ANSWER and a status. */
enum gnv_soft_next gnv_soft_io_step(struct gnv_soft_cmd *cmd, int res);
/* Make it a Flush of this namespace by the controller itself. Go on with its first step: faults of hosts' commands do not apply. */
void gnv_soft_io_flush(struct gnv_soft_cmd *cmd, struct gnv_soft_part *part);
/* A command ended by gnv_soft_io_step(). */
static inline void gnv_soft_io_count(struct gnv_soft_counters *counters, const struct gnv_soft_cmd *cmd)
{
	const uint16_t code = cmd->status & GPUNVME_ST_CODE;

	if (code == GPUNVME_SC_WRITE_FAULT || code == GPUNVME_SC_UNRECOVERED_READ)
		counters->media_errors++;
	if (cmd->status)
		return;
	if (gnv_soft_is_reading(cmd)) {
		counters->reads++;
		counters->sectors_read += cmd->op.len >> 9;
	} else if (cmd->op.opc == GPUNVME_IO_WRITE) {
		counters->writes++;
		counters->sectors_written += cmd->op.len >> 9;
	}
}

/* ---- dptr.c: data pointers (Base Specification 4.1) ---- */

/*
 * gnv_soft_dptr() - walk the data pointer of a command, and read each PRP list entry and descriptor once
 * @len:  bytes to cover, not 0
 * @segs: the segments that it finds (data.h)
 * Return: 0, or an NVMe status; then there is nothing in *segs.
 */
uint16_t gnv_soft_dptr(const struct gnv_soft_io *io, struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe, uint64_t len,
		       struct gnv_soft_segs *segs);

/* ---- fault_action.c: actions on commands (fault_match.c selects them) ---- */

/*
 * gnv_soft_carry_out() - begin the action on a command
 * @status, @number: of the action
 * @now:    in ns, of the engine's clock
 * Return: _STEP: execute it now; or another next step.
 */
enum gnv_soft_next gnv_soft_carry_out(struct gnv_soft_cmd *cmd, enum gnv_soft_action action, uint16_t status, uint32_t number,
				      uint64_t now);
/* After GNV_SOFT_POST. Return: GNV_SOFT_PARK. */
enum gnv_soft_next gnv_soft_posted_early(struct gnv_soft_cmd *cmd, uint64_t now);
/* Fake the result of the store, the data in the controller's own memory, and dwords of the completion. */
int gnv_soft_action_io(struct gnv_soft_cmd *cmd, int res);
void gnv_soft_action_data(struct gnv_soft_cmd *cmd);
void gnv_soft_action_entry(const struct gnv_soft_cmd *cmd, uint32_t *dw2, uint32_t *dw3);

/* ---- limit.c: commands that are too much for the drive ---- */

/* A command was fetched. Return: microseconds that it waits for the drive, which slept: the first one for its blocks ends that. */
static inline uint32_t gnv_soft_wake(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_io *io = cmd->io;

	if (!__atomic_load_n(&io->asleep, __ATOMIC_RELAXED) || !cmd->qid || !__atomic_exchange_n(&io->asleep, 0, __ATOMIC_RELAXED))
		return 0;
	return io->quirks->number[GNV_SOFT_SLOW_WAKE];
}

/* Return: false it was too much: the controller dies of it, and cmd->post_at is UINT64_MAX. */
bool gnv_soft_enter(struct gnv_soft_cmd *cmd);
/* The command is about to complete, or never will. A second call does nothing. */
void gnv_soft_leave(struct gnv_soft_cmd *cmd);

#endif
