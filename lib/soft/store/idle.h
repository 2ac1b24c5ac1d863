/* SPDX-License-Identifier: MIT */
/* Functions of a store whose steps end at once: it has nothing to wait for, and nothing to take back. */
#ifndef GNV_SOFT_IDLE_H
#define GNV_SOFT_IDLE_H

#include "soft/store/store.h"

/* Also attach(). */
static inline int gnv_soft_idle_submit(struct gnv_soft_seat *seat)
{
	(void)seat;
	return 0;
}

/* Also tidy(). */
static inline void gnv_soft_idle_detach(struct gnv_soft_seat *seat)
{
	(void)seat;
}

static inline unsigned gnv_soft_idle_take_back(struct gnv_soft_seat *seat, void **cmd, unsigned max)
{
	(void)seat;
	(void)cmd;
	(void)max;
	return 0;
}

static inline unsigned gnv_soft_idle_reap(struct gnv_soft_seat *seat, struct gnv_uring_done *done, unsigned max)
{
	(void)seat;
	(void)done;
	(void)max;
	return 0;
}

static inline void gnv_soft_idle_wait(struct gnv_soft_seat *seat, unsigned usec)
{
	(void)seat;
	(void)usec;
}

#endif
