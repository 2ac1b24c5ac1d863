/* SPDX-License-Identifier: MIT */
/*
 * The watchdog: a thread that recovers queues which ended for their threads, or which are silent: they have commands in flight, no
 * completion waits to be taken, and nothing has changed for longer than a command may take. Threads notice that themselves while
 * they wait, but commands that no thread waits for have only the watchdog.
 */
#ifndef GNV_DEV_WATCHDOG_H
#define GNV_DEV_WATCHDOG_H

#include <stdint.h>

struct gpunvme_dev;

/* Return: 0, or a negative errno when there is no thread. */
int gnv_watchdog_start(struct gpunvme_dev *dev, uint32_t period_ms);

/* When it returns the watchdog touches nothing any more. One that was never started is ignored. */
void gnv_watchdog_stop(struct gpunvme_dev *dev);

#endif
