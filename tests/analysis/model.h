/* SPDX-License-Identifier: MIT */
/* What tools that look at one file cannot know: gnv_fail() returns its first argument, and that is never 0. */
#include "util/log.h"

#define gnv_fail(err, ...)                                                                                                         \
	({                                                                                                                         \
		int said = (err);                                                                                                  \
		if (!said)                                                                                                         \
			__builtin_unreachable();                                                                                   \
		(void)(gnv_fail)(said, __VA_ARGS__);                                                                               \
		said;                                                                                                              \
	})
