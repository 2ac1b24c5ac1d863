/* SPDX-License-Identifier: MIT */
/* What tools that look at one file cannot know: gnv_fail() and gnv_fail_again() return their first argument, which is never 0. */
#include "util/log.h"

#define gnv_fail(err, ...)                                                                                                         \
	({                                                                                                                         \
		int said = (err);                                                                                                  \
		if (!said)                                                                                                         \
			__builtin_unreachable();                                                                                   \
		(void)(gnv_fail)(said, __VA_ARGS__);                                                                               \
		said;                                                                                                              \
	})
#define gnv_fail_again(err, kept)                                                                                                  \
	({                                                                                                                         \
		int said = (err);                                                                                                  \
		if (!said)                                                                                                         \
			__builtin_unreachable();                                                                                   \
		(void)(gnv_fail_again)(said, kept);                                                                                \
		said;                                                                                                              \
	})
