/* SPDX-License-Identifier: MIT */
/*
 * How far the work is, for people: a bar on standard error when that is a terminal. And Ctrl-C, which ends the work at its next
 * step, so that queues are deleted and half-written files removed.
 */
#ifndef GPUNVME_EXAMPLES_PROGRESS_H
#define GPUNVME_EXAMPLES_PROGRESS_H

#include <signal.h>
#include <stdint.h>

/* Seconds of a clock that only goes forward. */
double now_s(void);

struct progress {
	uint64_t total;	  /* 0: not known */
	const char *unit; /* NULL: bytes. "": of nothing that has a rate */
	double start;
	double next; /* time of the next redraw */
	int on;
};

/* A bar as wide as the window, with the rate and the time that is left. */
void progress_start(struct progress *p, uint64_t total, const char *unit);
void progress_show(struct progress *p, uint64_t done);
void progress_end(const struct progress *p);

/* After catch_signals(): the number of the SIGINT, SIGTERM or, unless that is ignored, SIGHUP that came, or 0. */
extern volatile sig_atomic_t interrupted;
void catch_signals(void);

#endif
