/* SPDX-License-Identifier: MIT */
/* A libamdhip64 without a GPU: it counts what is made, checks what it is asked, and fails where the test wants it. */
#ifndef TESTS_MOCKS_FAKE_HIP_H
#define TESTS_MOCKS_FAKE_HIP_H

#include <stdbool.h>
#include <stddef.h>

#define FAKE_HIP_UNIT (2u << 20)

struct fake_hip {
	int version;
	int devices; /* at 0000:03:00.0 and one bus further each */
	int count_error;
	bool no_uncached;
	unsigned fails_at; /* the how-manieth call fails; 0: none */
	int fails_with;
	void (*granted)(void *ptr, size_t size, bool yes); /* memory is given to a GPU, or taken back; or NULL */
	const char *broke; /* the first rule that was broken, or NULL */

	unsigned count; /* calls that could fail */
	unsigned handles, ranges, maps, files, buffers;
	int current; /* device */
	unsigned copies[2]; /* to the GPU, and from it */
	unsigned modules, launches;
	int capture_mode; /* of the thread */
	int last_error;   /* of a call that failed, until it is asked for */
	int stream_device; /* of all streams but the default ones */
	bool no_stream;    /* there is none */
	int type; /* of the last allocation */
};

/* The one of the loaded library. */
struct fake_hip *fake_hip(void);

#endif
