/* SPDX-License-Identifier: MIT */
/*
 * The state of a software controller, and which file does what to it.
 *
 * Threads. Thread 0 plays the registers and the admin queue and owns struct gnv_soft. Every thread serves the submission queues
 * whose completion queue has number i with i % threads == its index, so a completion queue has one writer. A thread holds its
 * `lock` for one pass over its queues; whoever else (thread 0, mostly) needs its queues, commands or counters takes that lock. The
 * store's part of a thread is touched by that thread only. Lock order: thread 0's, another thread's, errors.lock.
 */
#ifndef GNV_SOFT_STATE_H
#define GNV_SOFT_STATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpunvme/spec.h>

#include "soft/core/cmd.h"
#include "soft/dma.h"
#include "soft/soft.h"
#include "soft/store/store.h"
#include "soft/core/timing.h"
#include "util/clock.h"
#include "util/mmio.h"

#define GNV_SOFT_CMDS 1024u	/* commands one thread works on at a time */
#define GNV_SOFT_CMDS_ADMIN 16u /* of them kept for the admin queue, so that stuck I/O can always be aborted */
#define GNV_SOFT_OAES 0x00000300u /* notices: namespace attributes, firmware activation */
#define GNV_SOFT_AERS 4u	/* Asynchronous Event Requests outstanding */
#define GNV_SOFT_ERRORS 64u	/* entries of the error log */
#define GNV_SOFT_ABORTS 4u
#define GNV_SOFT_VECTORS 2048u /* of interrupts: as many as MSI-X has */
#define GNV_SOFT_MAX_MPS 4u	  /* CAP.MPSMAX: 64 KiB */
#define GNV_SOFT_DEEPEST 2u	  /* power state of one that sleeps */
#define GNV_SOFT_HMB_PIECES 32u	  /* HMMAXD */
#define GNV_SOFT_RANGE 1024u	  /* blocks that one with hints deallocates by a range */
#define GNV_SOFT_WZSL 5u	  /* and its limit for Write Zeroes: 128 KiB */
#define GNV_SOFT_RANGES 4096u	  /* bytes of the ranges of a command, at most */
#define GNV_SOFT_FILL 65536u	  /* bytes that one which says nothing of deallocated blocks sets to ones, of a range */
#define GNV_SOFT_1_4 0x00010400u  /* of the specification */
#define GNV_SOFT_2_0 0x00020000u  /* since which drives tell limits of Dataset Management and Write Zeroes */
#define GNV_SOFT_TEMPERATURE 310u /* kelvin, for ever */

struct gnv_soft_server;

/* ---- Queues and commands; guarded by the lock of the server they belong to ---- */

struct gnv_soft_cq {
	struct gnv_soft_server *server;
	struct gnv_soft_cq *next; /* of the server */
	const struct gnv_soft_map *map;
	uint32_t *ring;
	uint32_t GNV_MMIO *doorbell;
	uint32_t size, head, tail;
	uint32_t phase; /* of the next entry: 0 or 1 */
	uint64_t bad;	/* doorbell value that was refused last; UINT64_MAX: none */
	uint32_t sqs;	/* submission queues that complete here */
	uint16_t qid;
	bool interrupts; /* the host wants them, by this vector */
	uint16_t vector;
	bool urgent;	 /* an error is among those */
	uint32_t unsaid; /* completions since the last one */
	uint64_t due;	 /* when it is told of them at the latest, in ns; 0: not yet known */
	bool told;	 /* it had an interrupt, and has not moved the head since */
	uint64_t comes;	 /* until when that is a reason not to tell it again, in ns; 0: not yet known */
	struct gnv_soft_cmd *held, **held_end; /* completions that wait for room, oldest first */
};

struct gnv_soft_sq {
	struct gnv_soft_server *server;
	struct gnv_soft_sq *next; /* of the server */
	struct gnv_soft_cq *cq;
	const struct gnv_soft_map *map;
	const uint64_t *ring;
	uint32_t words; /* of 8 bytes, of an entry */
	uint32_t GNV_MMIO *doorbell;
	uint32_t size, head, tail;
	uint64_t bad;	   /* as in the completion queue */
	uint32_t inflight; /* commands fetched and not yet completed, whatever keeps them */
	uint16_t qid;
	uint64_t drawn;	   /* latencies of its commands */
	bool closed;		      /* fetch nothing more, hold no completion for it */
	bool stuck;		      /* GNV_SOFT_STUCK: the same, but its completions are still posted */
	bool dead;		      /* controller reset: its commands vanish without completions */
	struct gnv_soft_cmd *deleter; /* the Delete I/O Submission Queue that waits for inflight to become 0 */
};

/* A namespace: its geometry, and the store behind it. Constant but for the last. */
struct gnv_soft_part {
	struct gnv_soft_store *store;
	struct gnv_soft_ns ns;
	bool no_zero_range; /* the store cannot zero a range (atomic) */
};

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
	struct gnv_soft_cmd *next;
	struct gnv_soft_sq *sq;
	struct gnv_soft_part *part; /* of an I/O command; a Flush of all goes from one to the next */
	struct gpunvme_sqe sqe; /* the copy; nothing else of the entry is ever looked at */
	struct gnv_soft_op op;
	enum gnv_soft_stage stage;
	uint16_t status;
	uint32_t dw0;
	uint64_t post_at; /* no completion before this time, in ns; 0: none; UINT64_MAX: never (dropped) */
	uint64_t began;	  /* when the timing model took it, whose time post_at is; 0: it did not */
	bool stalled;	  /* GNV_SOFT_STALL: it begins at post_at */
	bool counted;	  /* limit.c */
	enum gnv_soft_verdict verdict; /* what is still to be done wrong */
	uint32_t number;
	uint64_t done;	  /* bytes of op.len that are done; Dataset Management: ranges */
	unsigned seg;	  /* first vector not yet done */
	unsigned retries;
	char *bounce;	   /* private copy of the data, or NULL; of Dataset Management the ranges, and behind them what is written */
	struct iovec flat; /* the one vector of an I/O through `bounce` */
	struct gnv_soft_segs segs;
};

struct gnv_soft_counters {
	uint64_t reads, writes;			/* commands */
	uint64_t sectors_read, sectors_written; /* units of 512 bytes */
	uint64_t media_errors;
	uint64_t busy_ns;
};

/* What is known of a mapping's memory with a ring. */
struct gnv_soft_held {
	uint64_t registered; /* serial of the mapping that is registered under this slot; 0: none */
	uint64_t counted;    /* serial of the mapping that `uses` counts */
	uint32_t uses;	     /* single-segment I/Os so far, to choose what is worth registering */
};

/* A thread at a store. */
struct gnv_soft_seat {
	struct gnv_soft_server *server;
	struct gnv_soft_store *store;
	unsigned taken;		/* commands whose step the store has */
	uint64_t refused_since; /* when it began to take no steps; 0: it takes them */
	struct gnv_uring *ring; /* ring.c's, as the next two */
	struct gnv_soft_held *held; /* by slot of the address space */
	unsigned registered;	    /* mappings that are */
};

struct gnv_soft_server {
	struct gnv_soft *soft;
	unsigned index;
	pthread_t thread;
	pthread_mutex_t lock; /* recursive */
	pthread_cond_t wake;  /* a server without queues sleeps here */
	uint32_t wanted;      /* others that want the lock (atomic) */
	bool stop;
	int started; /* 0: not yet; 1: running; negative: errno of its start */
	struct gnv_soft_sq *sqs;
	struct gnv_soft_cq *cqs;
	struct gnv_soft_cmd *free;
	unsigned free_count;
	struct gnv_soft_cmd **parked; /* a heap by post_at: commands that wait for it, and dropped ones; as large as cmds */
	unsigned parked_count;
	uint64_t now, looked; /* with a timing model: when this pass began, and the one before */
	struct gnv_soft_pace_kept kept;
	bool posted;		     /* to a queue of its own that has interrupts, since that was told */
	unsigned in_store;	     /* commands whose step a store has taken */
	uint64_t busy_since;	     /* when in_store left 0 */
	bool buffers_refused;	     /* said once that memory cannot be registered */
	bool refusal_said;	     /* once */
	bool lost_said;		     /* once, that data did not reach its buffer */
	bool ended;		     /* its thread has nothing in flight any more, and returns (atomic) */
	bool joined;
	struct gnv_soft_fault fault;
	struct gnv_soft_counters counters;
	struct gnv_soft_seat *seat; /* for each namespace */
	struct gnv_soft_cmd *cmds;
	struct gnv_soft_dma dma;
};

/* ---- The controller; touched by thread 0 only unless a comment says otherwise ---- */

enum gnv_soft_state {
	GNV_SOFT_OFF,
	GNV_SOFT_READY,
	GNV_SOFT_FATAL,
	GNV_SOFT_RESETTING, /* waiting for I/O in flight, then off */
	GNV_SOFT_STOPPING,  /* shutdown: waiting for I/O in flight, then flush */
	GNV_SOFT_STOPPED
};

/* Who asks takes it back when it lasts too long, but not while it is done. */
enum gnv_soft_asked { GNV_SOFT_UNASKED, GNV_SOFT_ASKED, GNV_SOFT_BEING_DONE };

struct gnv_soft_features {
	uint32_t arbitration, power, temp_over, temp_under, error_recovery, write_atomicity, async_event;
	uint32_t apst;
	uint64_t apst_table[32];
	uint32_t queues; /* granted, both numbers zero-based as in the feature */
	uint32_t coalescing;		       /* atomic, as the next */
	uint32_t at_once[GNV_SOFT_VECTORS / 32]; /* vectors that have none */
};

/* Memory of the host that the played drive works in; thread 0's. */
struct gnv_soft_hmb {
	bool on;
	bool known; /* what follows was given before, and not forgotten since */
	uint64_t list;
	uint32_t pages, count, next;
	struct gnv_soft_hmb_piece {
		uint64_t iova, pages;
	} piece[GNV_SOFT_HMB_PIECES];
};

struct gnv_soft {
	struct gnv_soft_config config;
	struct gnv_space *space;
	const struct gnv_log *log;
	struct gnv_soft_part part[GNV_SOFT_NAMESPACES]; /* namespace 1 first */
	unsigned parts;
	const struct gnv_soft_store_ops *refused; /* the kind of store that a thread could not begin with */
	uint32_t max_transfer; /* as MDTS, in bytes; 0: none; constant */
	struct gnv_soft_timing timing;
	uint32_t version;      /* of the specification; constant */
	uint32_t page;	       /* CC.MPS in bytes; written before queues exist */
	bool write_back;       /* volatile write cache enabled (atomic) */
	char *bar;
	size_t bar_len;
	int bar_fd; /* -1: memory of this process alone */
	uint64_t cap;
	uint32_t csts;
	uint32_t shn_seen;
	uint32_t scan; /* next doorbell to check for writes to queues that do not exist */
	enum gnv_soft_state state;
	struct gnv_soft_features features;
	struct gnv_soft_hmb hmb;
	struct gnv_soft_sq **sqs; /* by queue identifier, [0] is the admin queue */
	struct gnv_soft_cq **cqs;
	unsigned deleting;  /* submission queues with a deleter */
	unsigned io_queues; /* I/O queues that exist, both kinds */
	struct gnv_soft_cmd *aer[GNV_SOFT_AERS];
	unsigned aers;
	uint32_t events;	/* raised and not reported, 1 << GNV_SOFT_EVENT_* (atomic) */
	uint32_t events_masked; /* event types reported and not cleared by reading their log page */
	uint64_t born_ns;
	uint64_t off_ns; /* when it was reset last; 0: never */
	struct {
		pthread_mutex_t lock; /* any thread */
		uint64_t count;
		struct gpunvme_error_log entry[GNV_SOFT_ERRORS];
	} errors;
	uint32_t asleep;     /* told to go to its last power state, where it is slow to wake (atomic) */
	uint32_t flying;     /* limit.c: I/O commands in flight, and the identifiers of all that are (atomic) */
	uint32_t tags[65536 / 32];
	struct gnv_soft_sq own;	/* of its own commands, which flush at a shutdown; no host sees it; no ring (under the lock of server 0) */
	bool flushed;		/* they were given to the stores */
	uint16_t flush_failed;	/* what the last of them that failed ended with; 0: none did */
	bool faulty;	    /* there are rules; constant */
	struct gnv_soft_admin_fault admin_fault; /* under the lock of server 0, as the next two */
	enum gnv_soft_stubborn stubborn;
	bool for_ever;	    /* no reset makes it willing */
	bool was_enabled;   /* CC.EN at the last look, for the rules */
	uint32_t doom;	    /* GNV_SOFT_CFS or _ONES: what thread 0 has to see to (atomic) */
	uint32_t function_reset; /* enum gnv_soft_asked (atomic) */
	uint32_t patience_ms;	 /* with I/O that is stuck in the kernel */
	unsigned servers;
	struct gnv_soft_server *server[64];
};

/* ---- server.c: threads and their loop ---- */

/* Return: 0; -errno, and gnv_fail() has the sentence. */
int gnv_soft_server_start(struct gnv_soft *soft, unsigned index);
void gnv_soft_server_ask_stop(struct gnv_soft_server *server);
/* Wait for the thread. Return: false when I/O is stuck in the kernel: then all must stay, and it may be called again. */
bool gnv_soft_server_join(struct gnv_soft_server *server, struct gnv_deadline *deadline);
void gnv_soft_server_free(struct gnv_soft_server *server);
void gnv_soft_server_lock(struct gnv_soft_server *server);
/* Return: false it was not free within that time. */
bool gnv_soft_server_lock_within(struct gnv_soft_server *server, uint32_t ms);
void gnv_soft_server_unlock(struct gnv_soft_server *server);
uint64_t gnv_soft_now(void);

/* ---- rest.c: threads without work ---- */

struct gnv_soft_pace {
	uint64_t idle_since; /* 0: busy */
	uint64_t deadline;   /* of the next parked command */
	bool spins;	     /* as long as it has nothing else to do */
	unsigned looks;	     /* while it does */
	unsigned sleep_us;
	unsigned sleeps;
	unsigned max_us;     /* longest sleep */
	unsigned io_us;	     /* the next one while I/O is outstanding; 0: the shortest */
	unsigned calm;	     /* such sleeps since a command came while another was outstanding; it counts no further than it matters */
	uint64_t wall, cpu;  /* at the last look at what sleeping costs */
};

/* A pass found nothing to do. */
void gnv_soft_rest(struct gnv_soft_server *server, struct gnv_soft_pace *pace);

/* ---- regs.c: registers (Base Specification 3.1.3, 3.5, 3.6) ---- */

void gnv_soft_regs_init(struct gnv_soft *soft);
/* CSTS.CFS: nothing but a reset helps. */
void gnv_soft_fatal(struct gnv_soft *soft);
/* Act on what the host wrote. Return: true when something happened. */
bool gnv_soft_regs_poll(struct gnv_soft *soft);
uint32_t GNV_MMIO *gnv_soft_doorbell(struct gnv_soft *soft, unsigned qid, bool cq);

/* ---- queue.c: queues as objects (Base Specification 3.3) ---- */

struct gnv_soft_ring {
	uint64_t iova;
	uint32_t entries;
	uint16_t qid;
	bool interrupts; /* of a completion queue, by this vector */
	uint16_t vector;
};
/* Return: 0 or a status. */
uint16_t gnv_soft_cq_new(struct gnv_soft *soft, const struct gnv_soft_ring *at);
uint16_t gnv_soft_sq_new(struct gnv_soft *soft, const struct gnv_soft_ring *at, uint16_t cqid);
void gnv_soft_cq_free(struct gnv_soft *soft, uint16_t qid);
void gnv_soft_sq_free(struct gnv_soft *soft, uint16_t qid);
/* Stop fetching everywhere, drop what is parked or held; with @dead what is in flight completes silently. */
void gnv_soft_quiesce(struct gnv_soft *soft, bool dead);
void gnv_soft_quiesce_server(struct gnv_soft_server *server, bool dead);
bool gnv_soft_is_quiet(struct gnv_soft *soft);
/* Stop fetching from one queue, complete what is parked; true when nothing is in flight. */
void gnv_soft_sq_close(struct gnv_soft_sq *sq);

/* ---- complete.c: fetching and completing commands ---- */

/* Commands taken from a queue, at most @max; each is executed. */
unsigned gnv_soft_fetch(struct gnv_soft_sq *sq, unsigned max);
/* A command of the queue, where its server has a free one. */
struct gnv_soft_cmd *gnv_soft_take_cmd(struct gnv_soft_sq *sq);
/* The command is over, with cmd->status and cmd->dw0: park it (delay), post it, hold it (queue full) or let it vanish. */
void gnv_soft_finish(struct gnv_soft_cmd *cmd, uint16_t status);
void gnv_soft_discard(struct gnv_soft_cmd *cmd);
/* Read the head doorbell and post what was held. Return: completions posted. */
unsigned gnv_soft_cq_poll(struct gnv_soft_cq *cq);
/* Post it, hold it (queue full) or let it vanish. */
void gnv_soft_post(struct gnv_soft_cmd *cmd);

/* Post what a success of this command would be, and keep it. Return: false when there is no room. */
bool gnv_soft_post_copy(struct gnv_soft_cmd *cmd);

/* ---- interrupt.c: when the host is told of completions; under the lock of the server ---- */

/* One interrupt for all that was posted to a queue since its last one, unless it waits for more, or the host has that one yet. */
void gnv_soft_interrupt(struct gnv_soft_server *server);
/* The host has moved the head of that queue. */
void gnv_soft_acknowledged(struct gnv_soft_cq *cq);
/* Bring *deadline forward to when an interrupt that waits is due. */
void gnv_soft_interrupt_by(const struct gnv_soft_server *server, uint64_t *deadline);
uint16_t gnv_soft_set_vector(struct gnv_soft *soft, uint32_t value);
/* Return: false when no queue has that vector. */
bool gnv_soft_get_vector(const struct gnv_soft *soft, uint32_t cdw11, bool current, uint32_t *value);

/* ---- park.c: commands that wait for a time ---- */

/* By the timing model: set when an I/O command that is about to begin may end. */
void gnv_soft_time(struct gnv_soft_cmd *cmd);
/* It is over. Return: true it is to be parked, until post_at. */
bool gnv_soft_is_early(struct gnv_soft_cmd *cmd);
void gnv_soft_park(struct gnv_soft_cmd *cmd);
/* Post those whose time has come, begin those that stalled; *next is the earliest time still to come. */
unsigned gnv_soft_unpark(struct gnv_soft_server *server, uint64_t *next);
/* Take those of one queue (of all, when NULL), and let each be handled. */
void gnv_soft_sweep_parked(struct gnv_soft_server *server, const struct gnv_soft_sq *sq, void (*handle)(struct gnv_soft_cmd *));
/* Abort a parked command. Return: true when it was found. */
bool gnv_soft_abort_parked(struct gnv_soft_server *server, uint16_t sqid, uint16_t cid);
/* Commands were fetched; with @full no more can be in flight. Is this machine the one that is slow? */
void gnv_soft_look(struct gnv_soft_sq *sq, bool full);

/* ---- mishap.c: commands that meet with a fault ---- */

/* Return: true when the command is executed now; else it was seen to. */
bool gnv_soft_meet(struct gnv_soft_cmd *cmd);
/* What the store is made to have answered, what the data in cmd->bounce is made to be, and dwords of the completion. */
int gnv_soft_mishap_io(struct gnv_soft_cmd *cmd, int res);
void gnv_soft_mishap_data(const struct gnv_soft_cmd *cmd);
void gnv_soft_mishap_entry(const struct gnv_soft_cmd *cmd, uint32_t *dw2, uint32_t *dw3);

/* ---- limit.c: commands that are too much for the drive ---- */

/* A command was fetched. Return: false it was too much: the controller dies of it. */
bool gnv_soft_enter(struct gnv_soft_cmd *cmd);
/* The host is about to hear of its end, or never will; once more does nothing. */
void gnv_soft_leave(struct gnv_soft_cmd *cmd);

/* ---- data.c: data of I/O commands through memory of the controller's own (cmd->bounce) ---- */

/* Must it go that way? */
bool gnv_soft_data_apart(const struct gnv_soft_cmd *cmd);
/* That memory. Return: 0 or a status, as the next three. */
uint16_t gnv_soft_data_room(struct gnv_soft_cmd *cmd, uint64_t len);
/* That memory, and in it the data that the store is to have. */
uint16_t gnv_soft_data_fill(struct gnv_soft_cmd *cmd);
/* From the host, and to it. */
uint16_t gnv_soft_data_take(const struct gnv_soft_cmd *cmd, void *to, uint64_t len);
uint16_t gnv_soft_data_give(const struct gnv_soft_cmd *cmd, const void *from, uint64_t len);
/* Said once: data does not reach its buffer. */
void gnv_soft_data_lost(const struct gnv_soft_cmd *cmd, const char *why);

/* ---- io.c: execution of I/O commands ---- */

void gnv_soft_io_start(struct gnv_soft_cmd *cmd);
/* Flush what is behind a namespace, by a command of that queue. */
void gnv_soft_flush(struct gnv_soft_sq *own, struct gnv_soft_part *part);
/* A step has ended so. Return: true there is another, for gnv_soft_issue(); else the command is finished. */
bool gnv_soft_io_step(struct gnv_soft_cmd *cmd, int res);
/* The same of a step that the store had taken; the next one is issued. */
void gnv_soft_io_done(struct gnv_soft_cmd *cmd, int res);
/* The store had taken a step, and gave it back undone. */
void gnv_soft_io_unsent(struct gnv_soft_cmd *cmd);

/* ---- store.c: what keeps the blocks ---- */

static inline struct gnv_soft_seat *gnv_soft_seat_of(const struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_server *server = cmd->sq->server;

	return &server->seat[cmd->part - server->soft->part];
}

/* A thread takes its seats, and leaves them. Return: 0 or -errno; then it has none. */
int gnv_soft_attach(struct gnv_soft_server *server);
void gnv_soft_detach(struct gnv_soft_server *server);
/* Sleep until a step has ended, but not longer. */
void gnv_soft_wait(struct gnv_soft_server *server, unsigned usec);
/* Results of steps, at most @max. */
unsigned gnv_soft_reap(struct gnv_soft_server *server, struct gnv_uring_done *done, unsigned max);
/* Let go of memory whose mapping is gone. */
void gnv_soft_tidy(struct gnv_soft_server *server);

/* Have the store do the next step of a command (cmd->stage, cmd->done), and those after it that it does at once. */
void gnv_soft_issue(struct gnv_soft_cmd *cmd);
/* True when writes of this command must reach the medium before it completes. */
bool gnv_soft_is_durable(const struct gnv_soft_cmd *cmd);

/* ---- admin.c, identify.c, features.c, log_page.c, event.c: thread 0 ---- */

void gnv_soft_admin(struct gnv_soft *soft, struct gnv_soft_cmd *cmd);
/* Finish Delete I/O Submission Queue commands whose queue has run dry. Return: commands finished. */
unsigned gnv_soft_admin_poll(struct gnv_soft *soft);
uint16_t gnv_soft_identify(struct gnv_soft *soft, struct gnv_soft_cmd *cmd);
/* Optional commands: ONCS of the controller. */
uint16_t gnv_soft_oncs(const struct gnv_soft *soft);
/* Is there such a feature? */
bool gnv_soft_has_feature(const struct gnv_soft *soft, uint8_t fid);
void gnv_soft_features_reset(struct gnv_soft *soft);
uint16_t gnv_soft_set_features(struct gnv_soft *soft, struct gnv_soft_cmd *cmd);
uint16_t gnv_soft_get_features(struct gnv_soft *soft, struct gnv_soft_cmd *cmd);
uint16_t gnv_soft_get_log_page(struct gnv_soft *soft, struct gnv_soft_cmd *cmd);
void gnv_soft_log_error(struct gnv_soft *soft, const struct gnv_soft_cmd *cmd, uint16_t status);
uint8_t gnv_soft_critical_warning(const struct gnv_soft *soft);
/* Send @len bytes of @data to the host, zero-padded to @want. Return: 0 or a status. */
uint16_t gnv_soft_reply(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, const void *data, size_t len, uint64_t want);

/* ---- hmb.c: memory of the host that a drive works in (Base Specification 8.9), thread 0 ---- */

void gnv_soft_hmb_describe(const struct gnv_soft *soft, struct gpunvme_id_ctrl *id);
uint16_t gnv_soft_hmb_set(struct gnv_soft *soft, const struct gpunvme_sqe *sqe);
uint16_t gnv_soft_hmb_get(struct gnv_soft *soft, struct gnv_soft_cmd *cmd);
/* Look at one page of it, and die when it is not as it was left; of a wild drive also write where it must not. */
void gnv_soft_hmb_work(struct gnv_soft *soft);

enum gnv_soft_event {					/* values: position in soft->events */
		      GNV_SOFT_EVENT_DOORBELL_REGISTER, /* write to the doorbell of a queue that does not exist */
		      GNV_SOFT_EVENT_DOORBELL_VALUE,
		      GNV_SOFT_EVENT_TEMPERATURE,
		      GNV_SOFT_EVENT_NAMESPACE, /* nothing here raises it but tests, nor the next */
		      GNV_SOFT_EVENT_FIRMWARE,
		      GNV_SOFT_EVENTS
};
void gnv_soft_raise(struct gnv_soft *soft, enum gnv_soft_event event); /* any thread */
uint16_t gnv_soft_async_request(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, bool *kept);
unsigned gnv_soft_events_poll(struct gnv_soft *soft);
void gnv_soft_events_read(struct gnv_soft *soft, uint8_t lid); /* the log page was read: its events may come again */
bool gnv_soft_abort_aer(struct gnv_soft *soft, uint16_t cid);
void gnv_soft_events_reset(struct gnv_soft *soft);

#endif
