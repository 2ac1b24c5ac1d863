/* SPDX-License-Identifier: MIT */
/*
 * I/O commands: what the controller knows of one in flight, and of itself for them.
 *
 * The engine has the memory in which commands live, fetches and completes them; the functions here say what is next for one. They
 * know no other command, and what several threads may change is atomic: so an engine calls them for different commands at once.
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
#include "soft/core/fault_trait.h"
#include "util/medium.h"

#define GNV_SOFT_RANGES 4096u /* bytes of the ranges of a command, at most */
#define GNV_SOFT_FILL 65536u  /* bytes that one which says nothing of deallocated blocks sets to ones, of a range */

struct gnv_soft_data;	   /* where the data of a command lies; the engine's */
struct gnv_soft_dma;	   /* by which a thread of the engine reaches memory of the host */
struct gnv_soft_segs;	   /* pieces of memory of the host, in order; the engine's */
struct gnv_soft_sq;	   /* the engine's */
struct gnv_soft_store_ops; /* store/store.h */

/* What a drive says of itself that carries out the commands. */
struct gnv_soft_drive {
	struct gpunvme_id_ctrl ctrl;
	struct gpunvme_id_ns ns;
	struct gpunvme_id_ctrl_nvm limits; /* zeroes where it tells none */
};

/* What keeps the blocks of a namespace, as opening it found out; constant. */
struct gnv_soft_store {
	const struct gnv_soft_store_ops *ops;
	uint64_t size;	    /* bytes */
	uint32_t block;	    /* bytes of one; 0: as configured */
	uint64_t max_bytes; /* that one command may move; 0: no limit of its own */
	const struct gnv_soft_drive *drive; /* it takes commands as they are (GNV_SOFT_STAGE_WHOLE); NULL: it takes steps */
	struct gnv_medium medium; /* what it lies on */
	uint64_t id[2];	    /* identity, from which names are made */
	uint32_t mem_align; /* what segments should begin at a multiple of, or they are copied; 0: it takes any */
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

/* The result of a step that a drive has answered: a status, which the command ends with as it is. */
#define GNV_SOFT_ANSWER (INT_MIN / 2)
static inline bool gnv_soft_is_answer(int res)
{
	return res <= GNV_SOFT_ANSWER + (int)UINT16_MAX;
}

enum gnv_soft_stage {			      /* what the store is to do for an I/O command */
		      GNV_SOFT_STAGE_RW,      /* reading or writing the segments */
		      GNV_SOFT_STAGE_COMPARE, /* reading what is to be compared */
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
	struct gnv_soft_part *part; /* of an I/O command; a Flush of all goes from one to the next */
	struct gpunvme_sqe sqe;	    /* the copy; nothing else of the entry is ever looked at */
	struct gnv_soft_op op;
	enum gnv_soft_stage stage;
	uint16_t qid; /* of its submission queue */
	uint16_t status;
	uint32_t dw0;
	uint64_t post_at; /* no completion before this time, in ns; 0: none; UINT64_MAX: never (dropped) */
	uint64_t began;	  /* when the timing model took it, whose time post_at is; 0: it did not */
	bool stalled;	  /* GNV_SOFT_STALL: it begins at post_at */
	bool counted;	  /* limit.c */
	bool apart;	  /* its data goes through memory of the controller's own (data.h) */
	bool timed;	  /* post_at is the timing model's (lib/vdrive, which uses `began` for something else) */
	enum gnv_soft_verdict verdict; /* what is still to be done wrong */
	uint32_t number;
	uint64_t done; /* bytes of op.len that are done; Dataset Management: ranges */
	unsigned retries;
};

/* What I/O commands see of their controller. Constant while there are queues, but for what is atomic. */
struct gnv_soft_io {
	const struct gnv_soft_traits *traits;
	struct gnv_soft_rules *rules;
	struct gnv_soft_part *part; /* namespace 1 first */
	unsigned parts;
	uint32_t page;	   /* CC.MPS in bytes */
	uint64_t cmb_base; /* the address that means the controller's own memory; 0: none */
	bool write_back;   /* volatile write cache enabled (atomic, as all that follows) */
	uint32_t apst;	   /* it may go to its last power state by itself */
	uint32_t asleep;   /* told to go to its last power state, where it is slow to wake */
	uint32_t doom;	   /* GNV_SOFT_CFS or _ONES: what becomes of the controller */
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

/* What is next for a command. */
enum gnv_soft_next {
	GNV_SOFT_STEP,	   /* the store is to do cmd->stage, from cmd->done on; then gnv_soft_io_step() */
	GNV_SOFT_END,	   /* it is over, with cmd->status: complete it, but not before cmd->post_at */
	GNV_SOFT_PARK,	   /* keep it until cmd->post_at, and begin it again if it has stalled */
	GNV_SOFT_PARK_ALL, /* the same, and take nothing more from its queue until that is deleted */
	GNV_SOFT_POST	   /* post a success now, then gnv_soft_posted_early(); where there is no room, as GNV_SOFT_STEP */
};

/* ---- io.c: execution of I/O commands (NVM Command Set Specification 3) ---- */

/* Look at cmd->sqe, and find its data. Return: _STEP, after gnv_soft_io_ready(); _END or _PARK. */
enum gnv_soft_next gnv_soft_io_begin(struct gnv_soft_cmd *cmd);
/* The last look before the first step. Return: _STEP or _END, as the next one. */
enum gnv_soft_next gnv_soft_io_look(struct gnv_soft_cmd *cmd);
static inline enum gnv_soft_next gnv_soft_io_ready(struct gnv_soft_cmd *cmd)
{
	return cmd->verdict || cmd->stage == GNV_SOFT_STAGE_DSM ? gnv_soft_io_look(cmd) : GNV_SOFT_STEP;
}

/* A step has ended: @res bytes, -errno, or GNV_SOFT_ANSWER and a status. */
enum gnv_soft_next gnv_soft_io_step(struct gnv_soft_cmd *cmd, int res);
/* Be a Flush of this namespace, of the controller's own. Its first step is next: what hosts' commands meet does not concern it. */
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
 * gnv_soft_dptr() - walk the data pointer of a command; each PRP list entry and descriptor is read once
 * @len:  bytes to cover, not 0
 * @segs: where what it finds goes (data.h)
 * Return: 0, or an NVMe status; then there is nothing in *segs.
 */
uint16_t gnv_soft_dptr(const struct gnv_soft_io *io, struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe, uint64_t len,
		       struct gnv_soft_segs *segs);

/* ---- fault_action.c: commands that meet with a fault (fault_match.c says which) ---- */

/*
 * gnv_soft_carry_out() - what becomes of a command, which no hook and no rule lets go
 * @status, @number: of the verdict
 * @now:    in ns, of the engine's clock
 * Return: _STEP: it is executed, now; or what else is next.
 */
enum gnv_soft_next gnv_soft_carry_out(struct gnv_soft_cmd *cmd, enum gnv_soft_verdict verdict, uint16_t status, uint32_t number,
				      uint64_t now);
/* After GNV_SOFT_POST. Return: GNV_SOFT_PARK. */
enum gnv_soft_next gnv_soft_posted_early(struct gnv_soft_cmd *cmd, uint64_t now);
/* What the store is made to have answered, what data of the controller's own is made to be, and dwords of the completion. */
int gnv_soft_mishap_io(struct gnv_soft_cmd *cmd, int res);
void gnv_soft_mishap_data(struct gnv_soft_cmd *cmd);
void gnv_soft_mishap_entry(const struct gnv_soft_cmd *cmd, uint32_t *dw2, uint32_t *dw3);

/* ---- limit.c: commands that are too much for the drive ---- */

/* A command was fetched. Return: microseconds that it waits for the drive, which slept: the first one for its blocks ends that. */
static inline uint32_t gnv_soft_wake(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_io *io = cmd->io;

	if (!__atomic_load_n(&io->asleep, __ATOMIC_RELAXED) || !cmd->qid || !__atomic_exchange_n(&io->asleep, 0, __ATOMIC_RELAXED))
		return 0;
	return io->traits->number[GNV_SOFT_SLOW_WAKE];
}

/* Return: false it was too much: the controller dies of it, and cmd->post_at says never. */
bool gnv_soft_enter(struct gnv_soft_cmd *cmd);
/* The host is about to hear of its end, or never will; once more does nothing. */
void gnv_soft_leave(struct gnv_soft_cmd *cmd);

#endif
