/* SPDX-License-Identifier: MIT */
/*
 * Time for waits on a controller: a monotonic clock, and a deadline that checks once more after it has passed. So a thread that was
 * not scheduled for long does not report a time-out for something that did happen. Once in each wait such a gap does not count: a
 * process that was stopped (SIGSTOP, a debugger, a paused virtual machine) may have had its controller stop with it.
 */
#ifndef GNV_UTIL_CLOCK_H
#define GNV_UTIL_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#define GNV_NS_PER_MS 1000000ull
#define GNV_GAP_NS (1000 * GNV_NS_PER_MS) /* between two looks of a thread that is scheduled */

static inline uint64_t gnv_clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

static inline void gnv_sleep_ms(uint32_t ms)
{
	const struct timespec pause = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&pause, NULL);
}

struct gnv_deadline {
	uint64_t at; /* gnv_clock_ns() */
	uint64_t looked;
	unsigned polls;
	bool over;
	bool excused;
};

static inline struct gnv_deadline gnv_deadline_in(uint64_t ms)
{
	const uint64_t now = gnv_clock_ns();

	return (struct gnv_deadline){ now + ms * GNV_NS_PER_MS, now, 0, false, false };
}

/*
 * Between two polls: pause, the longer the longer it takes. Return: true to poll again, false when the deadline has passed and a
 * poll was made since.
 */
static inline bool gnv_deadline_poll_again(struct gnv_deadline *d)
{
	struct timespec pause = { 0, 10000 };
	uint64_t now;

	if (d->over)
		return false;
	now = gnv_clock_ns();
	if (now - d->looked > GNV_GAP_NS && !d->excused) {
		d->at += now - d->looked;
		d->excused = true;
	}
	d->looked = now;
	d->over = now >= d->at;
	if (d->polls++ < 32)
		return true;
	if (d->polls > 1000)
		pause.tv_nsec = 1000000;
	else if (d->polls > 200)
		pause.tv_nsec = 100000;
	nanosleep(&pause, NULL);
	return true;
}

#endif
