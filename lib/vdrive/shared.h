/* SPDX-License-Identifier: MIT */
/*
 * The data that the host and the kernel of a drive share: one structure in the memory of the GPU that runs the kernel.
 *
 * The host accesses it by copies only. The host writes "Host" fields while the kernel runs, as words of 4 or 8 bytes. They arrive
 * whole, and the kernel loads them past its caches. The team of the queue writes "Worker" fields. All addresses are those of that
 * GPU. The host owns a structure while no worker can find it, that is, after gnv_vdrive_sync().
 */
#ifndef GNV_VDRIVE_SHARED_H
#define GNV_VDRIVE_SHARED_H

#include <stddef.h>
#include <stdint.h>

#include "soft/core/config.h"
#include "soft/core/io.h"
#include "soft/core/timing.h"

#define GNV_VD_LANES 128u  /* of a team on an NVIDIA GPU, where it is a block */
#define GNV_VD_BATCH 128u  /* commands of a team in one turn */
#define GNV_VD_PIECES 520u /* pieces of memory of one command: more are GPUNVME_SC_INVALID_SGL_COUNT */
#define GNV_VD_PARKED 1024u /* most commands of a queue that wait for a time */
#define GNV_VD_REGIONS 4096u /* GNV_SOFT_SPACE_SLOTS */
#define GNV_VD_ERRORS 64u   /* error entries that are kept until the host collects them */
#define GNV_VD_WORKERS 128u
#define GNV_VD_QUEUES 1025u /* by identifier, 0 is not used */

/* Memory of the host that the drive may access. The host writes @len last when it maps the region, and first when it unmaps it. */
struct gnv_vd_region {
	uint64_t iova;
	uint64_t len; /* 0: nothing is mapped */
	uint64_t at;
	uint64_t flags; /* enum gnv_vd_flags */
};

enum gnv_vd_flags {
	GNV_VD_INSIDE = 1 /* memory of the controller: valid only at io.cmb_base */
};

/* Placed regions, sorted by address. There are two lists, and the host writes the one that is not in use. */
struct gnv_vd_placed {
	uint64_t iova[GNV_VD_REGIONS];
	uint32_t slot[GNV_VD_REGIONS];
};

/* How the rules of fault= decide about commands. */
enum gnv_vd_judged {
	GNV_VD_UNJUDGED,
	GNV_VD_TOGETHER,  /* those of a turn */
	GNV_VD_ONE_BY_ONE /* a rule may stop the queue, so nothing after its command may have been fetched */
};

enum gnv_vd_sq_flags {
	GNV_VD_CLOSED = 1, /* fetch nothing, complete parked commands */
	GNV_VD_GONE = 2	   /* fetch nothing, discard parked commands */
};

/* Each thread of a team keeps it in registers during a turn. */
struct gnv_vd_sq_state {
	uint32_t head, parked;
	uint32_t stuck, reserved;
	uint64_t next_due; /* the earliest time of due[] */
	uint64_t bad;
	uint64_t drawn;
	uint64_t asked; /* the last request to abort */
};

struct gnv_vd_sq {
	/* Host. All but the first three are constant while a worker can find the queue. */
	uint32_t next; /* queue of the same worker, or 0 */
	uint32_t flags;
	uint64_t abort; /* number of the request << 16 | CID */
	uint64_t ring, doorbell;
	uint32_t size, stride;
	uint32_t cq, qid;
	uint64_t slots; /* struct gnv_soft_cmd [parked_max] */
	uint64_t due;	/* uint64_t [parked_max]: time at which each is posted or begun */
	uint64_t index; /* uint32_t [parked_max]: their slots, from the end: free slots */
	uint32_t parked_max, reserved;
	/* Worker. */
	uint64_t aborted; /* number of the last request << 1 | the command was found */
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
	uint32_t interrupts; /* posted[] counts for it */
	/* Worker */
	struct gnv_vd_cq_state state;
};

/* A piece of memory that a command's data pointer names. */
struct gnv_vd_piece {
	uint64_t at;
	uint64_t len;
};

/* Data of one command of a batch that is too large for struct gnv_vd_work. */
struct gnv_vd_room {
	struct gnv_vd_piece piece[GNV_VD_PIECES];
	struct gpunvme_dsm_range range[256];
};

/* The data of a command, for the functions of core/data.h, which the kernel provides (kernel/core.h). */
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
	uint64_t done; /* bytes that have moved */
	uint32_t differs;
};

/* The batch. It is in the shared memory of a GPU's multiprocessor, and no turn needs what an earlier one left there. */
struct gnv_vd_work {
	struct gnv_soft_cmd cmd[GNV_VD_BATCH];
	struct gnv_vd_data data[GNV_VD_BATCH];
	uint8_t next[GNV_VD_BATCH]; /* enum gnv_soft_next */
	uint64_t from[GNV_VD_BATCH], to[GNV_VD_BATCH]; /* of transfers of one piece */
};

/* Sums that show how well a worker keeps the times of the model. Times are in units of 1 << GNV_VD_PACE_SHIFT ns. */
#define GNV_VD_PACE_SHIFT 8u
struct gnv_vd_pace {
	uint64_t asked, late;
	uint64_t commands;
	uint64_t turns, starved; /* starved: turns that left commands in the queue which the drive would have begun */
};

struct gnv_vd_worker {
	uint32_t first; /* host: its first submission queue, or 0 */
	uint32_t reserved;
	uint64_t looked; /* when its last pass began */
	uint64_t lead;	 /* ns from the look for parked commands that are due to their completions, a mean of turns */
	struct gnv_vd_pace pace;
	struct gnv_soft_counters counters;
	struct gnv_vd_room room[GNV_VD_BATCH];
	struct gnv_vd_work work; /* on CPU threads */
};

/* An error, until the host collects it. nsid_number is written last. */
struct gnv_vd_error {
	uint64_t lba;
	uint64_t nsid_number; /* number of the error, from 1, << 32 | the namespace */
	uint64_t command;     /* status << 32 | CID << 16 | queue */
};

/* The state of the controller that commands use: copies with addresses of the GPU, made while there are no queues. */
struct gnv_vd_view {
	struct gnv_soft_io io;
	struct gnv_soft_part part[GNV_SOFT_NAMESPACES];
	struct gnv_soft_store store[GNV_SOFT_NAMESPACES];
	struct gnv_soft_quirks quirks;
	struct gnv_soft_timing timing;
	uint64_t flash[GNV_SOFT_NAMESPACES];
};

struct gnv_vd {
	/* Host */
	uint64_t epoch;	    /* of the host's changes. After a pass a worker stores in ack[] the epoch that it loaded before */
	uint32_t stop;
	uint32_t stay; /* us without work after which a launch ends, or 0: it ends by its slice. Read together with stop */
	uint32_t silent, reserved;
	uint64_t placed;    /* index of the list << 32 | its entries */
	uint64_t first_own; /* IOVA of slot 0, of regions whose slot follows from the address */
	uint64_t stay_since; /* when the first team saw that launches stay (atomic). The host writes 0 before */
	uint64_t hook;	    /* a struct gnv_soft_fault, on CPU threads only */
	uint32_t workers;
	uint32_t judged; /* enum gnv_vd_judged */
	struct gnv_soft_rules rules;
	struct gnv_vd_view view;
	struct gnv_vd_dma dma;
	struct gnv_vd_region region[GNV_VD_REGIONS];
	struct gnv_vd_placed place[2];
	struct gnv_vd_sq sq[GNV_VD_QUEUES];
	struct gnv_vd_cq cq[GNV_VD_QUEUES];
	/* Workers */
	uint64_t worked; /* about when a worker last had work. All workers store it, relaxed */
	uint64_t ended; /* teams that have ended, of all launches (atomic) */
	uint32_t staying, reserved2; /* teams of the launch that stay (atomic) */
	uint64_t ack[GNV_VD_WORKERS];
	uint64_t runs[GNV_VD_WORKERS]; /* beginnings and ends of each worker so far: odd while it runs */
	uint64_t posted[GNV_VD_QUEUES]; /* completions so far of each queue with interrupts */
	uint32_t raised[GNV_SOFT_EVENTS]; /* number of each event so far (atomic) */
	uint32_t errors; /* errors so far (atomic) */
	struct gnv_vd_error error[GNV_VD_ERRORS];
	struct gnv_vd_worker worker[]; /* as many as workers */
};
_Static_assert(offsetof(struct gnv_vd, stop) % 8 == 0 && offsetof(struct gnv_vd, stay) == offsetof(struct gnv_vd, stop) + 4,
	       "the kernel loads both as one word");

/* Arguments of the kernel. A worker polls its queues for @slice_ns, or if that is 0, until stop. */
struct gnv_vd_args {
	uint64_t vd;
	uint64_t slice_ns;
	uint64_t idle_ns; /* it also ends after this time without work, unless it is 0 */
};

/* The kernel of worker @index on a CPU thread. Return: it found work. */
bool gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index);

#endif
