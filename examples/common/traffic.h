/* SPDX-License-Identifier: MIT */
/*
 * A load to measure with, on CPU lanes: each keeps so many commands in flight. It holds that many handles and as many parts of the
 * buffer, submits where a handle is free and polls the others in turn. (Lanes of a GPU: gpunvme_workload_run().)
 */
#ifndef GPUNVME_EXAMPLES_TRAFFIC_H
#define GPUNVME_EXAMPLES_TRAFFIC_H

#include <stdint.h>

#include <gpunvme/dq.h>

struct traffic_lane {
	uint64_t ios;	   /* read it atomically while lanes run */
	uint64_t sequence; /* next transfer when sequential */
	uint64_t seed;
	int status; /* the first failure, after which no lane begins another command */
};

struct traffic {
	const struct gpunvme_dq *dq; /* a lane takes that of its number, modulo @queues */
	uint32_t queues;
	const struct gpunvme_dbuf *dbuf; /* of lanes * qd * bs bytes */
	uint64_t bs;			 /* bytes of one command */
	uint32_t nblocks;		 /* and blocks */
	uint32_t qd;			 /* commands that each lane keeps in flight */
	uint32_t lanes;
	uint32_t reads;			 /* per cent of the commands; the others write */
	int random;
	uint64_t slots;	 /* places of that size in the views */
	uint64_t end_ns; /* until then lanes begin commands; or until Ctrl-C, or a failure */
	int failed;	 /* a lane has failed (atomic) */
	struct traffic_lane *lane;
};

/* The clock of @end_ns. */
uint64_t traffic_ns(void);

/* Makes t->lane for t->lanes, each with places of its own to begin with. Return: 0, -ENOMEM. */
int traffic_init(struct traffic *t);

/* The kernel; @arg is the struct traffic. */
void traffic_kernel(void *arg);

/* Commands that have ended so far. */
uint64_t traffic_ios(const struct traffic *t);

#endif
