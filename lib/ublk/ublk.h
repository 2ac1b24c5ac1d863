/* SPDX-License-Identifier: MIT */
/*
 * A block device, and its parts. Each queue of the driver has a thread (worker.c), the CPU thread of its own queue pair. It
 * takes requests from the driver, sends each as one command (request.c), and returns the result to the driver.
 */
#ifndef GNV_UBLK_UBLK_H
#define GNV_UBLK_UBLK_H

#include <gpunvme/mem.h>
#include <gpunvme/queue.h>
#include <gpunvme/ns.h>
#include <gpunvme/serve.h>
#include <pthread.h>
#include <stdbool.h>

#include "os/linux/ublk.h"
#include "os/linux/uring.h"

/* A request that this process has, or may get, from the driver. */
enum gnv_ublk_where {
	GNV_UBLK_GONE,	 /* the driver will send none any more */
	GNV_UBLK_AWAITED, /* the driver's */
	GNV_UBLK_READY,	 /* to be sent */
	GNV_UBLK_SENT,	 /* the controller has it */
};

struct gnv_ublk_tag {
	enum gnv_ublk_where where;
	unsigned tries;
	struct gnv_ublk_desc desc; /* the driver's, read once */
	struct gpunvme_mem *mem;   /* the buffer between driver and controller */
	struct gpunvme_dbuf dbuf;
	struct gpunvme_req req;
};

struct gnv_ublk_worker {
	struct gpunvme_ublk *ublk;
	uint32_t number;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	struct gnv_ublk_tag *tag; /* of ublk->depth */
	const struct gnv_ublk_desc *desc;
	/* Of the thread alone. */
	struct gnv_uring *ring;
	struct gnv_ublk_tag **own;     /* those that are ready or sent, the oldest first */
	uint32_t awaited, ready, sent; /* tags in each state */
	uint32_t next;		       /* of them, to look at out of order */
	uint32_t looks;		       /* in vain, for a request or the only command */
	uint64_t awake_ns;	       /* after a completion, to look for it */
	bool slept;		       /* since the last one */
	bool broken;		       /* the queue is poisoned: recover it */
	bool dead;		       /* and could not be recovered */
	bool uncommitted;	       /* the ring has not taken a result: only another server can deliver it */
	uint64_t next_try;	       /* of a dead one (gnv_clock_ns()) */
	uint64_t moved;		       /* when anything last came or completed */
	/* Atomic. */
	uint64_t requests, failed;
	uint32_t recoveries;
	int32_t state; /* GNV_UBLK_STARTING, 0: it waits for requests, or a negative errno */
	pthread_t thread;
	bool started;
};
#define GNV_UBLK_STARTING 1

struct gpunvme_ublk {
	uint64_t process; /* whose threads these are (util/process.h) */
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_ns_info ns;
	struct gnv_ublk_info info; /* as the driver has it */
	bool read_only;
	bool added;  /* the driver has the device, and it is ours to remove */
	int fd;	     /* its node, or -1 */
	uint32_t leave; /* atomic: threads end, whatever the driver waits for */
	uint32_t ended; /* atomic: threads that ended because their io_uring failed */
	int32_t error;	/* of the first of them */
	uint32_t workers;
	struct gnv_ublk_worker *worker;
};

/* Queue pairs: @wanted, or, with 0, a few, or as many as there are. */
int gnv_ublk_make_queues(struct gpunvme_ublk *ublk, uint32_t wanted, uint32_t timeout_ms);

/* With their buffers. Return: 0; errors of gpunvme_queue_destroy() for one that stays, which the next call tries again. */
int gnv_ublk_end_queues(struct gpunvme_ublk *ublk);

/* Prepare a queue before its thread starts: buffers, and the driver's requests. */
int gnv_ublk_open_worker(struct gpunvme_ublk *ublk, struct gnv_ublk_worker *worker);

/* Return: 0, every thread waits for requests. */
int gnv_ublk_start_workers(struct gpunvme_ublk *ublk);

/* The threads end, and nothing of theirs keeps the driver's device. */
void gnv_ublk_join_workers(struct gpunvme_ublk *ublk);

/* Thread of a queue. @arg: struct gnv_ublk_worker. */
void *gnv_ublk_worker_run(void *arg);

/*
 * gnv_ublk_rest() - how long the thread may sleep now, after a turn in which requests @came, and commands @ended
 * Return: microseconds, as gnv_uring_turn() takes them; 0: not at all.
 */
unsigned gnv_ublk_rest(struct gnv_ublk_worker *worker, bool came, bool ended);

/*
 * gnv_ublk_send() - a request of the driver's as one command
 * Return: as gpunvme_submit_read(); -EINVAL, -EOPNOTSUPP of the request.
 */
int gnv_ublk_send(struct gnv_ublk_worker *worker, struct gnv_ublk_tag *tag);

/* The result that the driver gets for a command that ended with @ret: bytes, or a negative errno. */
int gnv_ublk_result(const struct gnv_ublk_tag *tag, int ret);

/* Describe the block device, from namespace and queue. @max_bytes of a request. */
void gnv_ublk_describe(const struct gpunvme_ublk *ublk, const struct gpunvme_dq *dq, bool cache, struct gnv_ublk_params *params);

#endif
