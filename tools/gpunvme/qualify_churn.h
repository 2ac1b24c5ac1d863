/* SPDX-License-Identifier: MIT */
/*
 * Threads that write and read at random places, each in its own blocks. Each knows the contents of its blocks, also after resets: a
 * write that was cut off leaves the old or the new data.
 */
#ifndef GPUNVME_QUALIFY_CHURN_H
#define GPUNVME_QUALIFY_CHURN_H

#include "qualify.h"

struct churn;

/* Start with at most @threads threads, and write all of their blocks once. Return: NULL with the reason in a->text. */
struct churn *churn_open(struct qualify *a, uint32_t threads);
uint32_t churn_threads(const struct churn *c);
void churn_close(struct churn *c);

/* Set the queue of thread @i for the next runs. It begins with the standing queue. */
void churn_use(struct churn *c, uint32_t i, const struct gpunvme_dq *dq);

/*
 * Run the threads: until each has done @commands, or for @seconds if that is 0. A thread calls @act after each has done some, and
 * the run ends when @act returns. Return: QUALIFY_PASSED or QUALIFY_FAILED. With @act, a status of queues that end is no failure.
 */
int churn_run(struct churn *c, uint32_t commands, double seconds, int (*act)(struct qualify *a));

/* Verify every block. A write that was cut off may have left old or new data. Return: as above. */
int churn_verify(struct churn *c);

/* Commands so far. */
uint64_t churn_done(const struct churn *c);

#endif
