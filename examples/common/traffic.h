/* SPDX-License-Identifier: MIT */
/*
 * A workload to measure with, on CPU threads. Each keeps so many commands in flight, and holds that many handles and parts of the
 * buffer. It submits where a handle is free and polls the others in turn. (Threads of a GPU: gpunvme_workload_run().)
 */
#ifndef GPUNVME_EXAMPLES_TRAFFIC_H
#define GPUNVME_EXAMPLES_TRAFFIC_H

#include <stdint.h>

#include <gpunvme/dq.h>

struct traffic_thread {
	uint64_t ios;	   /* read it atomically while threads run */
	uint64_t sequence; /* next transfer when sequential */
	uint64_t seed;
	int status; /* the first failure, after which no thread begins another command */
};

struct traffic {
	const struct gpunvme_dq *dq; /* a thread takes that of its number, modulo @queues */
	uint32_t queues;
	const struct gpunvme_dbuf *dbuf; /* of threads * qd * bs bytes */
	uint64_t bs;			 /* bytes of one command */
	uint32_t nblocks;		 /* and blocks */
	uint32_t qd;			 /* commands that each thread keeps in flight */
	uint32_t threads;
	uint32_t reads;			 /* per cent of the commands. The others write */
	int random;
	uint64_t slots;	 /* places of that size in the views */
	uint64_t end_ns; /* threads begin commands until then, Ctrl-C or a failure */
	int failed;	 /* a thread has failed (atomic) */
	struct traffic_thread *thread;
};

/* The clock of @end_ns. */
uint64_t traffic_ns(void);

/* Makes t->thread for t->threads, each with places of its own to begin with. Return: 0, -ENOMEM. */
int traffic_init(struct traffic *t);

/* The kernel. @arg is the struct traffic. */
void traffic_kernel(void *arg);

/* Commands that have ended so far. */
uint64_t traffic_ios(const struct traffic *t);

#endif
