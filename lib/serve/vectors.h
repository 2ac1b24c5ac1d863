/* SPDX-License-Identifier: MIT */
/*
 * Interrupt vectors of a client: eventfds that come, go and come again while the controller works. An interrupt of a vector without
 * an eventfd is pending, as in the pending bit array of MSI-X, and is sent once there is one.
 */
#ifndef GNV_SERVE_VECTORS_H
#define GNV_SERVE_VECTORS_H

#include <pthread.h>
#include <stdint.h>

#include "os/linux/notify.h"

struct gnv_vector {
	int fd; /* -1: none */
	uint32_t pending; /* atomic */
};

struct gnv_vectors {
	struct gnv_notify notify;
	pthread_rwlock_t lock; /* of the descriptors */
	unsigned count;
	struct gnv_vector *vector;
};

/* Return: 0; -ENOMEM; as gnv_notify_open(); gnv_fail() has the message. */
int gnv_vectors_init(struct gnv_vectors *vectors, unsigned count);
void gnv_vectors_fini(struct gnv_vectors *vectors);

/* Any thread. @ctx: the vectors. */
void gnv_vectors_raise(void *ctx, unsigned vector);

/* Give a vector its eventfd, which is the vectors' from now on, or take it away (-1). @vector is one of them. */
void gnv_vectors_set(struct gnv_vectors *vectors, unsigned vector, int fd);

/* Take all of them away. */
void gnv_vectors_clear(struct gnv_vectors *vectors);

/* Nothing is pending any more: the controller has been reset. */
void gnv_vectors_forget(struct gnv_vectors *vectors);

#endif
