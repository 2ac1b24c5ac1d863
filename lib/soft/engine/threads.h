/* SPDX-License-Identifier: MIT */
/*
 * The engine with threads, and the contents of its files.
 *
 * Thread 0 polls the registers and the admin queue, so it alone calls the controller (core/controller.h). Every thread polls the
 * submission queues whose completion queue has number i with i % threads == its index, so a completion queue has one writer. A
 * thread holds its `lock` for one pass over its queues. Another thread (mostly thread 0) that needs its queues, commands or
 * counters takes that lock. Only that thread uses its part of the store. Lock order: thread 0's, another thread's, errors.lock.
 */
#ifndef GNV_SOFT_THREADS_H
#define GNV_SOFT_THREADS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include <gpunvme/spec.h>

#include "soft/core/controller.h"
#include "soft/store/data.h"
#include "soft/store/dma.h"
#include "soft/store/store.h"
#include "util/clock.h"

#define GNV_SOFT_CMDS_ADMIN 16u /* commands kept for the admin queue, so that stuck I/O can always be aborted */

struct gnv_soft_server;

/* ---- Queues, guarded by the lock of their worker ---- */

struct gnv_soft_cq {
	struct gnv_soft_server *server;
	struct gnv_soft_cq *next; /* of the server */
	const struct gnv_soft_map *map;
	uint32_t *ring;
	uint32_t GNV_MMIO *doorbell;
	uint32_t size, head, tail;
	uint32_t phase; /* of the next entry: 0 or 1 */
	uint64_t bad;	/* doorbell value that was refused last, or UINT64_MAX */
	uint16_t qid;
	bool interrupts; /* the host wants them, by this vector */
	uint16_t vector;
	bool urgent;	 /* an error is among those */
	uint32_t unsaid; /* completions since the last one */
	uint64_t due;	 /* its latest time to get an interrupt for them, in ns, or 0: not yet known */
	bool told;	 /* it had an interrupt, and has not moved the head since */
	uint64_t comes;	 /* until when no other interrupt is sent, in ns, or 0: not yet known */
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
};

/* A command, and its data. */
struct gnv_soft_slot {
	struct gnv_soft_cmd cmd;
	struct gnv_soft_data data;
};

struct gnv_soft_server {
	struct gnv_soft *soft;
	unsigned index;
	pthread_t thread;
	pthread_mutex_t lock; /* recursive */
	pthread_cond_t wake;  /* a server without queues sleeps here */
	uint32_t wanted;      /* others that want the lock (atomic) */
	bool stop;
	int started; /* 0: not yet, 1: running, negative: errno of its start */
	struct gnv_soft_sq *sqs;
	struct gnv_soft_cq *cqs;
	struct gnv_soft_cmd *free;
	unsigned free_count;
	struct gnv_soft_cmd **parked; /* a heap by post_at, as large as slots: commands that wait for it, and dropped ones */
	unsigned parked_count;
	uint64_t now, looked; /* with a timing model: when this pass began, and the one before */
	struct gnv_soft_pace_kept kept;
	bool posted;		     /* to one of its queues with interrupts, since the last check */
	unsigned in_store;	     /* commands whose step a store has taken */
	uint64_t busy_since;	     /* when in_store left 0 */
	bool refusal_said;	     /* once */
	bool ended;		     /* its thread has nothing in flight any more, and returns (atomic) */
	bool joined;
	struct gnv_soft_fault fault;
	struct gnv_soft_counters counters;
	struct gnv_soft_seat *seat; /* for each namespace */
	struct gnv_soft_slot *slots;
	struct gnv_soft_dma dma;
};

/* ---- All of them. Only thread 0 accesses it, unless a comment allows more ---- */

struct gnv_soft_threads {
	struct gnv_soft soft;
	struct gnv_space *space;
	const struct gnv_soft_store_ops *refused; /* the kind of store that a thread could not begin with */
	struct gnv_soft_sq **sqs;		  /* by queue identifier, [0] is the admin queue */
	struct gnv_soft_cq **cqs;
	struct gnv_soft_sq own; /* for flushes at a shutdown. No host sees it, and it has no ring (lock of worker 0) */
	struct {
		pthread_mutex_t lock; /* any thread */
		struct gnv_soft_errors log;
	} errors;
	unsigned servers;
	struct gnv_soft_server *server[64];
};

static inline struct gnv_soft_threads *gnv_soft_threads(const struct gnv_soft *soft)
{
	return (struct gnv_soft_threads *)(uintptr_t)soft; /* its first member */
}

/* ---- queue.c: slots of the table ---- */

/* A reference to the mapping that holds a ring of entries of @entry bytes, and where it is. Return: 0 or a status. */
uint16_t gnv_soft_ring_get(struct gnv_soft *soft, const struct gnv_soft_ring *at, size_t entry, const struct gnv_soft_map **map,
			   void **ring);
uint16_t gnv_soft_cq_create(struct gnv_soft *soft, const struct gnv_soft_ring *at);
uint16_t gnv_soft_sq_create(struct gnv_soft *soft, const struct gnv_soft_ring *at, uint16_t cqid);
void gnv_soft_cq_delete(struct gnv_soft *soft, uint16_t qid);
void gnv_soft_sq_delete(struct gnv_soft *soft, uint16_t qid);
void gnv_soft_sq_close(struct gnv_soft *soft, uint16_t qid);
bool gnv_soft_sq_is_dry(struct gnv_soft *soft, uint16_t qid);
bool gnv_soft_abort(struct gnv_soft *soft, uint16_t sqid, uint16_t cid);
void gnv_soft_quiesce_servers(struct gnv_soft *soft, bool dead);
void gnv_soft_quiesce_server(struct gnv_soft_server *server, bool dead);
bool gnv_soft_is_quiet(struct gnv_soft *soft);
bool gnv_soft_lies_in_queue(struct gnv_soft *soft, uint64_t iova, uint64_t len);
bool gnv_soft_is_still(struct gnv_soft *soft);

/* ---- server.c: threads and their loop ---- */

/* Return: 0; -errno, and gnv_fail() has the message. */
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
	unsigned io_us;	     /* the next one while I/O is outstanding, or 0: the shortest */
	unsigned calm;	     /* such sleeps since a command came while another was outstanding, up to CALM_SLEEPS */
	uint64_t wall, cpu;  /* at the last measurement of the cost of sleeping */
};

/* A pass found nothing to do. */
void gnv_soft_rest(struct gnv_soft_server *server, struct gnv_soft_pace *pace);

/* ---- complete.c: fetching and completing commands ---- */

/* Fetch at most @max commands from a queue, and execute each. Return: their number. */
unsigned gnv_soft_fetch(struct gnv_soft_sq *sq, unsigned max);
/* A command of the queue, where its server has a free one. */
struct gnv_soft_cmd *gnv_soft_take_cmd(struct gnv_soft_sq *sq);
/* The command is over, with cmd->status and cmd->dw0: park it (delay), post it, hold it (queue full) or let it vanish. */
void gnv_soft_finish(struct gnv_soft_cmd *cmd, uint16_t status);
void gnv_soft_discard(struct gnv_soft_cmd *cmd);
/* Read the head doorbell and post held completions. Return: completions posted. */
unsigned gnv_soft_cq_poll(struct gnv_soft_cq *cq);
/* Post it, hold it (queue full) or let it vanish. */
void gnv_soft_post(struct gnv_soft_cmd *cmd);

/* Post a success of this command, and keep the command. Return: false if there is no room. */
bool gnv_soft_post_copy(struct gnv_soft_cmd *cmd);

/* ---- interrupt.c: when completions interrupt the host, under the lock of the worker ---- */

/*
 * One interrupt for all that was posted to a queue since its last one, unless it waits for more, or the host still handles the
 * last one.
 */
void gnv_soft_interrupt(struct gnv_soft_server *server);
/* The host has moved the head of that queue. */
void gnv_soft_acknowledged(struct gnv_soft_cq *cq);
/* Bring *deadline forward to when an interrupt that waits is due. */
void gnv_soft_interrupt_by(const struct gnv_soft_server *server, uint64_t *deadline);

/* ---- park.c: commands that wait for a time ---- */

/* By the timing model: set when an I/O command that is about to begin may end. */
void gnv_soft_time(struct gnv_soft_cmd *cmd);
/* It is over. Return: true it is to be parked, until post_at. */
bool gnv_soft_is_early(struct gnv_soft_cmd *cmd);
void gnv_soft_park(struct gnv_soft_cmd *cmd);
/* Post those whose time has come, and begin those that stalled. *next is the earliest time still to come. */
unsigned gnv_soft_unpark(struct gnv_soft_server *server, uint64_t *next);
/* Take those of one queue (of all, when NULL), and let each be handled. */
void gnv_soft_sweep_parked(struct gnv_soft_server *server, const struct gnv_soft_sq *sq, void (*handle)(struct gnv_soft_cmd *));
/* Abort a parked command. Return: true when it was found. */
bool gnv_soft_abort_parked(struct gnv_soft_server *server, uint16_t sqid, uint16_t cid);
/* Commands were fetched, with @full as many as can be in flight. Check whether this machine is too slow. */
void gnv_soft_look(struct gnv_soft_sq *sq, bool full);

/* ---- steps.c: commands, step by step ---- */

void gnv_soft_admin_start(struct gnv_soft_cmd *cmd);
void gnv_soft_io_start(struct gnv_soft_cmd *cmd);
/* Flush the store of a namespace, by a command of that queue. */
void gnv_soft_flush(struct gnv_soft_sq *own, struct gnv_soft_part *part);
/* Have the store do the next step of a command (cmd->stage, cmd->done), and those after it that it does at once. */
void gnv_soft_issue(struct gnv_soft_cmd *cmd);
/* A step that the store had taken ended with @res. Issue the next one. */
void gnv_soft_io_done(struct gnv_soft_cmd *cmd, int res);
/* The store had taken a step, and gave it back undone. */
void gnv_soft_io_unsent(struct gnv_soft_cmd *cmd);

/* ---- seats.c: state of threads at stores ---- */

static inline struct gnv_soft_seat *gnv_soft_seat_of(const struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_server *server = cmd->sq->server;

	return &server->seat[cmd->part - server->soft->part];
}

/* Take the seats of a thread, and leave them. Return: 0 or -errno; then it has none. */
int gnv_soft_attach(struct gnv_soft_server *server);
void gnv_soft_detach(struct gnv_soft_server *server);
/* Sleep until a step has ended, but not longer. */
void gnv_soft_wait(struct gnv_soft_server *server, unsigned usec);
/* Results of steps, at most @max. */
unsigned gnv_soft_reap(struct gnv_soft_server *server, struct gnv_uring_done *done, unsigned max);
/* Let go of memory whose mapping is gone. */
void gnv_soft_tidy(struct gnv_soft_server *server);

#endif
