/* SPDX-License-Identifier: MIT */
/* A call of the library that must succeed: else the test fails at the call's own line, with the library's sentence. */
#ifndef TESTS_GOOD_H
#define TESTS_GOOD_H

#include <gpunvme/gpunvme.h>

#define good(call)                                                                                                                 \
	do {                                                                                                                       \
		int good_ret = (call);                                                                                             \
		if (good_ret)                                                                                                      \
			fail_msg("%s: %d %s: %s", #call, good_ret, gpunvme_strerror(good_ret), gpunvme_errmsg());                  \
	} while (0)

#endif
