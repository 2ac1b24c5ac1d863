/* SPDX-License-Identifier: MIT */
/*
 * Waits for what another thread brings, without an upper bound of real time, which a busy machine would exceed: what never comes ends
 * with the TIMEOUT of the test (ctest).
 */
#ifndef TESTS_COMMON_WAIT_H
#define TESTS_COMMON_WAIT_H

#include <time.h>

#define wait_until(condition) \
	do { \
		while (!(condition)) \
			nanosleep(&(const struct timespec){ 0, 20000 }, NULL); \
	} while (0)

#endif
