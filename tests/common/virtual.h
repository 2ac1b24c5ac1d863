/* SPDX-License-Identifier: MIT */
/*
 * Virtual time, for logic of one thread: between virtual_begin() and virtual_end() the monotonic clock goes on by a microsecond in
 * each look at it and by what was asked for in each sleep, and by nothing else. So waits of seconds take microseconds and have one
 * outcome, whatever else the machine does. The party that is waited for has a turn at each look and in each sleep, and no thread of
 * its own.
 *
 * In programs that gpunvme_virtual_time() names (tests/CMakeLists.txt): their clock_gettime() and nanosleep() are those of virtual.c.
 * One thread at a time may wait: the others wait for it to end. Waits on condition variables and descriptors are not virtual.
 */
#ifndef TESTS_COMMON_VIRTUAL_H
#define TESTS_COMMON_VIRTUAL_H

#include <stdint.h>

/* @turn: called with @ctx at each look and in each sleep, but not in those that it makes itself, whose time passes; or NULL. */
void virtual_begin(void (*turn)(void *ctx), void *ctx);

/* The virtual time in nanoseconds. This look takes none. */
uint64_t virtual_ns(void);

/* From here on the clock is the machine's again, further by what was slept. */
void virtual_end(void);

#endif
