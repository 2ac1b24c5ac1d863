/* SPDX-License-Identifier: MIT */
/*
 * The controller: registers, admin commands, features, logs, events. Functions without a thread, a lock, a clock or a system call.
 * Its engine calls them, one at a time, and provides the rest (core/engine.h). Other threads may access only the atomic fields.
 */
#ifndef GNV_SOFT_CONTROLLER_H
#define GNV_SOFT_CONTROLLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpunvme/spec.h>

#include "soft/core/config.h"
#include "soft/core/engine.h"
#include "soft/core/io.h"
#include "soft/core/timing.h"
#include "util/mmio.h"

#define GNV_SOFT_OAES 0x00000300u /* notices: namespace attributes, firmware activation */
#define GNV_SOFT_AERS 4u	/* Asynchronous Event Requests outstanding */
#define GNV_SOFT_ERRORS 64u	/* entries of the error log */
#define GNV_SOFT_ABORTS 4u
#define GNV_SOFT_VECTORS 2048u /* of interrupts: as many as MSI-X has */
#define GNV_SOFT_MAX_MPS 4u	  /* CAP.MPSMAX: 64 KiB */
#define GNV_SOFT_DEEPEST 2u	  /* power state of one that sleeps */
#define GNV_SOFT_HMB_PIECES 32u	  /* HMMAXD */
#define GNV_SOFT_RANGE 1024u	  /* blocks that a drive with hints deallocates by a range */
#define GNV_SOFT_WZSL 5u	  /* and its limit for Write Zeroes: 128 KiB */
#define GNV_SOFT_1_4 0x00010400u  /* of the specification */
#define GNV_SOFT_2_0 0x00020000u  /* since which drives report limits of Dataset Management and Write Zeroes */
#define GNV_SOFT_TEMPERATURE 310u /* kelvin, constant */

struct gnv_log;

enum gnv_soft_state {
	GNV_SOFT_OFF,
	GNV_SOFT_READY,
	GNV_SOFT_FATAL,
	GNV_SOFT_RESETTING, /* waiting for I/O in flight, then off */
	GNV_SOFT_STOPPING,  /* shutdown: waiting for I/O in flight, then flush */
	GNV_SOFT_STOPPED
};

/* The caller withdraws the request when it lasts too long, but not while it is done. */
enum gnv_soft_asked { GNV_SOFT_UNASKED, GNV_SOFT_ASKED, GNV_SOFT_BEING_DONE };

struct gnv_soft_features {
	uint32_t arbitration, power, temp_over, temp_under, error_recovery, write_atomicity, async_event;
	uint64_t apst_table[32];
	uint32_t queues; /* granted, both numbers zero-based as in the feature */
	uint32_t coalescing;		       /* atomic, as the next */
	uint32_t at_once[GNV_SOFT_VECTORS / 32]; /* vectors that have none */
};

/* Memory of the host that the emulated drive works in. */
struct gnv_soft_hmb {
	bool on;
	bool known; /* the next fields are from an earlier command and still valid */
	uint64_t list;
	uint32_t pages, count, next;
	struct gnv_soft_hmb_piece {
		uint64_t iova, pages;
	} piece[GNV_SOFT_HMB_PIECES];
};

/* The two queues with one identifier, as the host made them. The engine has their rings and commands. */
struct gnv_soft_queue {
	bool sq, cq; /* they exist */
	uint16_t cqid; /* of the submission queue */
	uint16_t vector; /* of the completion queue, as the next two */
	bool interrupts;
	unsigned sqs;		      /* submission queues that complete there */
	struct gnv_soft_cmd *deleter; /* the Delete I/O Submission Queue that waits until it is dry */
};

struct gnv_soft {
	const struct gnv_soft_engine_ops *engine;
	struct gnv_soft_mappings *mappings; /* soft.c's */
	struct gnv_soft_config config;
	const struct gnv_log *log;
	struct gnv_soft_io io;
	struct gnv_soft_dma *dma; /* the engine's, for admin commands */
	struct gnv_soft_part part[GNV_SOFT_NAMESPACES]; /* namespace 1 first */
	unsigned parts;
	uint32_t max_transfer; /* as MDTS, in bytes, or 0: none. Constant */
	struct gnv_soft_timing timing;
	uint32_t said_late; /* that the machine is too slow (atomic). Not in `timing`, which engines copy */
	uint64_t link;	       /* bytes a second in each direction: configured, or measured if that is slower. 0: unknown. Constant */
	uint32_t blocks;       /* that an engine on a GPU needs at the same time, or 0. Constant */
	uint32_t version;      /* of the specification. Constant */
	char *bar;
	size_t bar_len;
	int bar_fd; /* -1: memory of this process alone */
	bool bar_stays; /* a GPU did not let go of it: it stays mapped until the process ends */
	bool stays; /* a part of the engine did not end, so the BAR and this structure stay until the process ends */
	uint64_t cap;
	uint32_t csts;
	uint32_t shn_seen;
	uint32_t scan; /* next doorbell to check for writes to queues that do not exist */
	enum gnv_soft_state state;
	struct gnv_soft_features features;
	struct gnv_soft_hmb hmb;
	struct gnv_soft_queue *queue; /* by identifier, 0 is the admin queue */
	unsigned deleting;  /* submission queues with a deleter */
	unsigned io_queues; /* I/O queues that exist, both kinds */
	struct gnv_soft_cmd *aer[GNV_SOFT_AERS];
	unsigned aers;
	uint32_t events_masked; /* event types reported and not cleared by reading their log page */
	uint64_t born_ns;
	uint64_t off_ns; /* time of the last reset, or 0 */
	bool flushed;		/* the stores had the order, at a shutdown */
	uint16_t flush_failed;	/* engine.h, flush() */
	bool faulty;	    /* there are rules. Constant */
	struct gnv_soft_admin_fault admin_fault;
	enum gnv_soft_stubborn stubborn;
	bool for_ever;	    /* no reset makes it willing */
	bool was_enabled;   /* CC.EN at the last look, for the rules */
	uint32_t silent; /* it may make no DMA: engines fetch, begin and post nothing (atomic) */
	uint32_t function_reset; /* enum gnv_soft_asked (atomic) */
	uint32_t patience_ms;	 /* with I/O that is stuck in the kernel */
};

/* Any thread. */
static inline bool gnv_soft_is_silent(const struct gnv_soft *soft)
{
	return __atomic_load_n(&soft->silent, __ATOMIC_ACQUIRE);
}

/* Any thread: this machine does not keep the times of the model. Return: report it; once. */
static inline bool gnv_soft_becomes_late(struct gnv_soft *soft)
{
	if (soft->config.late)
		__atomic_store_n(soft->config.late, 1, __ATOMIC_RELAXED);
	return !__atomic_exchange_n(&soft->said_late, 1, __ATOMIC_RELAXED);
}

/* ---- describe.c: its description by configuration and stores, before its engine starts ---- */

/* Return: 0; -EINVAL, and gnv_fail() has the message. */
int gnv_soft_check_config(const struct gnv_soft_config *config);
void gnv_soft_describe(struct gnv_soft *soft);

/* ---- regs.c: registers (Base Specification 3.1.3, 3.5, 3.6) ---- */

void gnv_soft_regs_init(struct gnv_soft *soft);
/* CSTS.CFS: nothing but a reset helps. */
void gnv_soft_fatal(struct gnv_soft *soft);
/* Act on register writes of the host. Return: true if there were any. */
bool gnv_soft_regs_poll(struct gnv_soft *soft);
uint32_t GNV_MMIO *gnv_soft_doorbell(struct gnv_soft *soft, unsigned qid, bool cq);

/* ---- queues.c: which queues there are (Base Specification 3.3) ---- */

/* Return: 0 or a status. */
uint16_t gnv_soft_cq_new(struct gnv_soft *soft, const struct gnv_soft_ring *ring);
uint16_t gnv_soft_sq_new(struct gnv_soft *soft, const struct gnv_soft_ring *ring, uint16_t cqid);
void gnv_soft_cq_free(struct gnv_soft *soft, uint16_t qid);
void gnv_soft_sq_free(struct gnv_soft *soft, uint16_t qid);
/* Submission queues first. */
void gnv_soft_free_queues(struct gnv_soft *soft);
/* As the engine's, and discard the commands that the controller has kept. */
void gnv_soft_quiesce(struct gnv_soft *soft, bool dead);

/* ---- admin.c, identify.c, features.c, log_page.c, event.c ---- */

/* Return: true it is over, with the status in *status; false it was kept, and the engine's complete() will be called for it. */
bool gnv_soft_admin(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, uint16_t *status);
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
/* Has that vector no coalescing (feature 09h)? Any thread. */
bool gnv_soft_is_at_once(const struct gnv_soft *soft, unsigned vector);
uint16_t gnv_soft_get_log_page(struct gnv_soft *soft, struct gnv_soft_cmd *cmd);
uint8_t gnv_soft_critical_warning(const struct gnv_soft *soft);

/* The error log, which the engine has and guards. */
struct gnv_soft_errors {
	uint64_t count;
	struct gpunvme_error_log entry[GNV_SOFT_ERRORS];
};
/* A command ended with an error. */
void gnv_soft_errors_add(struct gnv_soft_errors *errors, const struct gnv_soft_cmd *cmd, uint16_t status);
/* Newest first. */
void gnv_soft_errors_copy(const struct gnv_soft_errors *errors, struct gpunvme_error_log log[GNV_SOFT_ERRORS]);

void gnv_soft_raise(struct gnv_soft *soft, enum gnv_soft_event event); /* any thread */
uint16_t gnv_soft_async_request(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, bool *kept);
unsigned gnv_soft_events_poll(struct gnv_soft *soft);
void gnv_soft_events_read(struct gnv_soft *soft, uint8_t lid); /* the log page was read: its events may come again */
bool gnv_soft_abort_aer(struct gnv_soft *soft, uint16_t cid);
void gnv_soft_events_reset(struct gnv_soft *soft);

/* ---- hmb.c: memory of the host that a drive works in (Base Specification 8.9) ---- */

void gnv_soft_hmb_describe(const struct gnv_soft *soft, struct gpunvme_id_ctrl *id);
uint16_t gnv_soft_hmb_set(struct gnv_soft *soft, const struct gpunvme_sqe *sqe);
uint16_t gnv_soft_hmb_get(struct gnv_soft *soft, struct gnv_soft_cmd *cmd);
/* Check one page of it, and die if another party has changed it. A wild drive also writes outside of it. */
void gnv_soft_hmb_work(struct gnv_soft *soft);

#endif
