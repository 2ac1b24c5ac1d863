/* SPDX-License-Identifier: MIT */
/*
 * What the host and the kernel of a drive share: one structure in the memory of the GPU that carries out the commands.
 *
 * The host reaches it by copies only. "Host" fields are written by the host while the kernel runs: words of 4 or 8 bytes, which
 * arrive whole and which the kernel loads past its caches. "Worker" fields are written by the team that serves the queue. All
 * addresses are those of that GPU. A structure is the host's as long as no worker can find it: after gnv_vd_sync().
 */
#ifndef GNV_VDRIVE_SHARED_H
#define GNV_VDRIVE_SHARED_H

#include <stddef.h>
#include <stdint.h>

#include "soft/core/config.h"
#include "soft/core/io.h"
#include "soft/core/timing.h"

#define GNV_VD_LANES 128u  /* of a team on an NVIDIA GPU, where it is a block */
#define GNV_VD_BATCH 128u  /* commands that a team works on at a time */
#define GNV_VD_PIECES 520u /* pieces of memory of one command: more are GPUNVME_SC_INVALID_SGL_COUNT */
#define GNV_VD_MAX_BYTES (1u << 20) /* of one command: 257 pages, or less */
#define GNV_VD_PARKED 1024u /* commands of a queue that wait for a time, at most */
#define GNV_VD_REGIONS 4096u /* GNV_SOFT_SPACE_SLOTS */
#define GNV_VD_ERRORS 64u   /* that are kept until the host collects them */
#define GNV_VD_WORKERS 128u
#define GNV_VD_QUEUES 1025u /* by identifier; 0 is not used */

/* Memory that the drive reaches. All of it is the host's; @len is written last when it appears, and first when it goes. */
struct gnv_vd_region {
	uint64_t iova;
	uint64_t len; /* 0: nothing is mapped */
	uint64_t at;
	uint64_t flags; /* enum gnv_vd_flags */
};

enum gnv_vd_flags {
	GNV_VD_INSIDE = 1, /* memory of the controller: there only at io.cmb_base */
	GNV_VD_OWN = 2	   /* its number follows from its address */
};

/* Regions that were placed, by address. The host fills the one that is not in use. */
struct gnv_vd_placed {
	uint64_t iova[GNV_VD_REGIONS];
	uint32_t slot[GNV_VD_REGIONS];
};

enum gnv_vd_sq_flags {
	GNV_VD_CLOSED = 1, /* fetch nothing, end what is parked */
	GNV_VD_GONE = 2	   /* fetch nothing, discard what is parked */
};

/* Each lane of a team has it in registers during a turn. */
struct gnv_vd_sq_state {
	uint32_t head, parked;
	uint32_t stuck, reserved;
	uint64_t next_due; /* the earliest of due[] */
	uint64_t bad;
	uint64_t drawn;
	uint64_t asked; /* the last request to abort */
};

struct gnv_vd_sq {
	/* Host; constant while a worker finds it, but for the first three. */
	uint32_t next; /* of the same worker; 0: none */
	uint32_t flags;
	uint64_t abort; /* number of the request << 16 | CID */
	uint64_t ring, doorbell;
	uint32_t size, stride;
	uint32_t cq, qid;
	uint64_t slots; /* struct gnv_soft_cmd [parked_max] */
	uint64_t due;	/* uint64_t [parked_max]: when they are to be posted or begun */
	uint64_t index; /* uint32_t [parked_max]: in slots; from the end: those that are free */
	uint32_t parked_max, reserved;
	/* Worker. */
	uint64_t aborted; /* number of the last request << 1 | it was found */
	struct gnv_vd_sq_state state;
};

struct gnv_vd_cq_state {
	uint32_t head, tail;
	uint32_t phase, reserved;
	uint64_t bad;
};

struct gnv_vd_cq {
	/* Host */
	uint64_t ring, doorbell;
	uint32_t size;
	uint32_t interrupts; /* posted[] is kept for it */
	/* Worker */
	struct gnv_vd_cq_state state;
};

/* A piece of memory that a command's data pointer names. */
struct gnv_vd_piece {
	uint64_t at;
	uint64_t len;
};

/* What a team has of a command of its batch, and what is too large to be kept for longer. */
struct gnv_vd_room {
	struct gnv_vd_piece piece[GNV_VD_PIECES];
	struct gpunvme_dsm_range range[256];
};

/* The data of a command: what the functions of core/data.h work on, which the kernel gives (kernel/core.h). */
struct gnv_vd_segs {
	struct gnv_vd_piece first; /* most commands have no other */
	struct gnv_vd_piece *more;
	uint32_t count;
};
struct gnv_vd_dma {
	struct gnv_vd *vd;
};
struct gnv_vd_data {
	struct gnv_vd_segs segs;
	struct gnv_vd_room *room;
	struct gnv_vd_dma *dma;
	uint64_t done; /* bytes of it that are moved */
	uint32_t differs;
};

/* The batch. It lies in the memory of a GPU's multiprocessor: a turn leaves nothing there that a later one needs. */
struct gnv_vd_work {
	struct gnv_soft_cmd cmd[GNV_VD_BATCH];
	struct gnv_vd_data data[GNV_VD_BATCH];
	uint8_t next[GNV_VD_BATCH]; /* enum gnv_soft_next */
	uint64_t from[GNV_VD_BATCH], to[GNV_VD_BATCH]; /* of transfers of one piece */
};

/* How well a worker keeps the times of the model: sums. Times are in units of 1 << GNV_VD_PACE_SHIFT ns. */
#define GNV_VD_PACE_SHIFT 8u
struct gnv_vd_pace {
	uint64_t asked, late;
	uint64_t commands;
	uint64_t turns, starved; /* at queues; and in how many of them commands stayed in the queue that the drive would have begun */
};

struct gnv_vd_worker {
	uint32_t first; /* host: its first submission queue; 0: none */
	uint32_t reserved;
	uint64_t looked; /* when it looked last */
	struct gnv_vd_pace pace;
	struct gnv_soft_counters counters;
	struct gnv_vd_room room[GNV_VD_BATCH];
	struct gnv_vd_work work; /* on CPU threads */
};

/* An error, until the host has it: words, the second of which goes last. */
struct gnv_vd_error {
	uint64_t lba;
	uint64_t nsid_number; /* its number, from 1, << 32 | the namespace */
	uint64_t command;     /* status << 32 | CID << 16 | queue */
};

/* What commands see of their controller: copies with addresses of the GPU, made while there are no queues. */
struct gnv_vd_view {
	struct gnv_soft_io io;
	struct gnv_soft_part part[GNV_SOFT_NAMESPACES];
	struct gnv_soft_store store[GNV_SOFT_NAMESPACES];
	struct gnv_soft_traits traits;
	struct gnv_soft_timing timing;
	uint64_t flash[GNV_SOFT_NAMESPACES];
};

struct gnv_vd {
	/* Host */
	uint64_t epoch;	    /* of what the host has changed; a worker stores what it saw before a pass in ack[] after it */
	uint32_t stop;
	uint32_t stay; /* us: a launch does not end by its slice, but after so long without work; 0: by its slice. Read with stop */
	uint32_t silent, reserved;
	uint64_t placed;    /* which << 32 | how many */
	uint64_t first_own; /* address of region 0, if it has a number in it */
	uint64_t stay_since; /* when the first team saw that launches stay (atomic); the host makes it 0 before */
	uint64_t hook;	    /* a struct gnv_soft_fault; on CPU threads only */
	uint32_t workers;
	uint32_t judged; /* there are rules */
	struct gnv_soft_rules rules;
	struct gnv_vd_view view;
	struct gnv_vd_dma dma;
	struct gnv_vd_region region[GNV_VD_REGIONS];
	struct gnv_vd_placed place[2];
	struct gnv_vd_sq sq[GNV_VD_QUEUES];
	struct gnv_vd_cq cq[GNV_VD_QUEUES];
	/* Workers */
	uint64_t worked; /* when one had work last, nearly; relaxed stores of all of them */
	uint64_t ended; /* teams that have ended, of all launches (atomic) */
	uint32_t staying, reserved2; /* teams of the launch that stay (atomic) */
	uint64_t ack[GNV_VD_WORKERS];
	uint64_t runs[GNV_VD_WORKERS]; /* beginnings and ends of each worker, ever: odd while it runs */
	uint64_t posted[GNV_VD_QUEUES]; /* completions of each queue with interrupts, ever */
	uint32_t raised[GNV_SOFT_EVENTS]; /* how often (atomic) */
	uint32_t errors; /* ever (atomic) */
	struct gnv_vd_error error[GNV_VD_ERRORS];
	struct gnv_vd_worker worker[]; /* workers of them */
};
_Static_assert(offsetof(struct gnv_vd, stop) % 8 == 0 && offsetof(struct gnv_vd, stay) == offsetof(struct gnv_vd, stop) + 4,
	       "they are one word to the kernel");

/* The kernel: worker @index serves its queues for @slice_ns, or, with 0, until it is to stop. */
struct gnv_vd_args {
	uint64_t vd;
	uint64_t slice_ns;
	uint64_t idle_ns; /* it also ends after so long without work; 0: it does not */
};

/* The kernel on CPU threads. Return: it found work. */
bool gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index);

#endif
