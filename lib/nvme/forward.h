/* SPDX-License-Identifier: MIT */
/*
 * The forwarder: a CPU thread that rings the doorbells for threads that cannot reach BAR0, or must not because the interrupt table
 * lies in the same page. Such threads write the two words of struct gnv_bells, in host memory that they can access. The forwarder
 * copies each change.
 *
 * Of each word only the last value counts, so values may be skipped. An older value never follows a newer one, since one thread
 * does all the copying. No change can hide as "the same value again": the controller advances only to values that it got, at most
 * one lap less one entry.
 */
#ifndef GNV_NVME_FORWARD_H
#define GNV_NVME_FORWARD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "nvme/ctrl.h"

/* Written by the threads, zeroed before the first write. On lines of their own, as different waves write them. */
struct gnv_bells {
	_Alignas(128) uint32_t sq; /* tail */
	_Alignas(128) uint32_t cq; /* head */
};

/* A queue that is forwarded. Its owner allocates it, the forwarder uses the fields. */
struct gnv_forward_queue {
	struct gnv_forward_queue *next;
	const struct gnv_bells *bells;
	void GNV_MMIO *sq_reg;
	void GNV_MMIO *cq_reg;
	uint32_t sq; /* written last */
	uint32_t cq;
};

/* Of one controller. Its thread begins with the first queue and sleeps while there is none. */
struct gnv_forward {
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t wake;
	struct gnv_forward_queue *queues;
	bool running;
	bool stop;
	unsigned wanted; /* atomic: callers that wait for the lock, which the thread would take again at once */
	pthread_t thread;
};

void gnv_forward_init(struct gnv_forward *forward);

/* BAR0 is not touched any more, for whatever queue. It may be stopped twice. */
void gnv_forward_stop(struct gnv_forward *forward);
void gnv_forward_fini(struct gnv_forward *forward);

/*
 * gnv_forward_add() - forward a queue that exists on the controller and has not been used
 * @bells: readable by the CPU until the queue is removed
 * Any thread may call. Return: 0; -EAGAIN no thread could be started. gnv_fail() has the error message.
 */
int gnv_forward_add(struct gnv_forward *forward, struct gnv_forward_queue *queue, const struct gnv_ctrl *ctrl, uint32_t qid,
		    const struct gnv_bells *bells);

/* After it BAR0 is not touched for this queue any more. A queue that was never added is ignored. Any thread may call. */
void gnv_forward_remove(struct gnv_forward *forward, struct gnv_forward_queue *queue);

#endif
