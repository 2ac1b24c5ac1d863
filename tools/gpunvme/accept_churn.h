/* SPDX-License-Identifier: MIT */
/*
 * Lanes that write and read at random places, each in blocks of its own, and know what every block must hold: through resets, too,
 * where a write that was cut off leaves the old or the new.
 */
#ifndef GPUNVME_ACCEPT_CHURN_H
#define GPUNVME_ACCEPT_CHURN_H

#include "accept.h"

struct churn;

/* @lanes at most, and at least one; writes all of their blocks once. NULL: a->text says why. */
struct churn *churn_open(struct accept *a, uint32_t lanes);
uint32_t churn_lanes(const struct churn *c);
void churn_close(struct churn *c);

/* The queue that lane @i uses from now on; before that it is the standing one. */
void churn_use(struct churn *c, uint32_t i, const struct gpunvme_dq *dq);

/*
 * Runs the lanes: until each has done @commands, or for @seconds if that is 0; with @act, until that has returned, which a thread
 * calls when each lane has done some. Return: ACCEPT_PASSED or ACCEPT_FAILED; a status of queues that end is no failure when @act
 * was there.
 */
int churn_run(struct churn *c, uint32_t commands, double seconds, int (*act)(struct accept *a));

/* Does every block hold what it must? What was being written when its lane ended is settled. Return: as above. */
int churn_verify(struct churn *c);

/* Commands so far. */
uint64_t churn_done(const struct churn *c);

#endif
