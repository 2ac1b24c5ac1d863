/* SPDX-License-Identifier: MIT */
/* An allocation that the user of a GPU's runtime made, and that the library wants to know the end of. */
#ifndef GNV_UTIL_ALLOC_H
#define GNV_UTIL_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gnv_alloc {
	struct gnv_alloc *next; /* of those that are watched */
	bool watched;
	uintptr_t base;
	size_t len;
	bool exact; /* its first and last page may have bytes of other allocations: only whole pages of it can be mapped */
	uint64_t tag; /* not 0: its end is not reported, and no other allocation of this process has, or will have, the same */
	size_t tagged; /* not 0: the tag is one of all parts of so many bytes, which may end by themselves */
	/* Called once when it is freed, on that thread and before it can be given out again. It may end the struct itself. */
	void (*freed)(struct gnv_alloc *alloc);
};

#endif
