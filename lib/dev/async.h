/* SPDX-License-Identifier: MIT */
/*
 * Asynchronous events of the controller (Base Specification 5.2), for programs that ask for events. Every 100 ms a thread checks
 * whether the controller completed a request, reads the log page that the completion names, and sends the next request. It polls
 * because this library uses no interrupts. Without events asked for there is neither thread nor request.
 */
#ifndef GNV_DEV_ASYNC_H
#define GNV_DEV_ASYNC_H

#include <pthread.h>
#include <stdbool.h>

struct gpunvme_dev;

struct gnv_async {
	pthread_mutex_t lock; /* protects the fields below. Admin commands run with it held */
	pthread_cond_t wake;
	pthread_t thread;
	bool running, stop;
	bool set; /* the controller knows which events are wanted */
};

void gnv_async_init(struct gnv_async *async);

/* From the first call on. Return: 0; -EAGAIN there is no thread. gnv_fail() has the error message. */
int gnv_async_start(struct gpunvme_dev *dev);

/* When it returns nothing is touched any more, and nothing begins again. It may be stopped twice. */
void gnv_async_stop(struct gpunvme_dev *dev);
void gnv_async_fini(struct gnv_async *async);

#endif
