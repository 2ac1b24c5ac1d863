/* SPDX-License-Identifier: MIT */
/*
 * Invariant: free ranges are ascending and have used addresses between them.
 */
#include "mem/iova.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"

void gnv_iova_init(struct gnv_iova *iova)
{
	memset(iova, 0, sizeof(*iova));
}

void gnv_iova_fini(struct gnv_iova *iova)
{
	free(iova->free);
	gnv_iova_init(iova);
}

/* Make room for `more` ranges, in addition to those that exist and those that live allocations may become. */
static int grow(struct gnv_iova *iova, unsigned more)
{
	unsigned want = iova->count + iova->live + more;
	struct gnv_range *bigger;

	if (want <= iova->room)
		return 0;
	want += 32;
	bigger = realloc(iova->free, want * sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	iova->free = bigger;
	iova->room = want;
	return 0;
}

static void insert(struct gnv_iova *iova, unsigned at, uint64_t start, uint64_t last)
{
	memmove(&iova->free[at + 1], &iova->free[at], (iova->count - at) * sizeof(*iova->free));
	iova->free[at] = (struct gnv_range){ start, last };
	iova->count++;
}

static void drop(struct gnv_iova *iova, unsigned at)
{
	iova->count--;
	memmove(&iova->free[at], &iova->free[at + 1], (iova->count - at) * sizeof(*iova->free));
}

/* Take [start, last], which lies in free[at], out. There is room for one more range. */
static void cut(struct gnv_iova *iova, unsigned at, uint64_t start, uint64_t last)
{
	struct gnv_range old = iova->free[at];

	if (old.start == start && old.last == last) {
		drop(iova, at);
	} else if (old.start == start) {
		iova->free[at].start = last + 1;
	} else {
		iova->free[at].last = start - 1;
		if (old.last != last)
			insert(iova, at + 1, last + 1, old.last);
	}
}

/* Give [start, last] back, joined with its neighbours. There is room. */
static void put(struct gnv_iova *iova, uint64_t start, uint64_t last)
{
	unsigned at = 0;

	while (at < iova->count && iova->free[at].start < start)
		at++;
	insert(iova, at, start, last);
	if (at + 1 < iova->count && iova->free[at].last + 1 == iova->free[at + 1].start) {
		iova->free[at].last = iova->free[at + 1].last;
		drop(iova, at + 1);
	}
	if (at && iova->free[at - 1].last + 1 == iova->free[at].start) {
		iova->free[at - 1].last = iova->free[at].last;
		drop(iova, at);
	}
}

int gnv_iova_add(struct gnv_iova *iova, uint64_t start, uint64_t last)
{
	int ret = grow(iova, 1);

	if (!ret && start <= last)
		put(iova, start, last);
	return ret;
}

int gnv_iova_exclude(struct gnv_iova *iova, uint64_t start, uint64_t last)
{
	unsigned at;

	for (at = 0; at < iova->count;) {
		struct gnv_range *range;
		unsigned count = iova->count;
		int ret = grow(iova, 1);

		if (ret)
			return ret;
		range = &iova->free[at];
		if (range->last >= start && range->start <= last)
			cut(iova, at, range->start > start ? range->start : start, gnv_min(range->last, last));
		at += iova->count >= count; /* a range that went whole leaves its place to the next */
	}
	return 0;
}

/* An aligned place for `len` bytes in the part of the range that begins at `from` or later. */
static bool fits(const struct gnv_range *range, uint64_t from, uint64_t len, uint64_t align, uint64_t *start)
{
	uint64_t at = range->start > from ? range->start : from;

	if (at > UINT64_MAX - (align - 1))
		return false;
	*start = gnv_align_up(at, align);
	return *start <= range->last && range->last - *start >= len - 1;
}

static int find(const struct gnv_iova *iova, uint64_t from, uint64_t len, uint64_t align, unsigned *at, uint64_t *start)
{
	for (*at = 0; *at < iova->count; ++*at)
		if (fits(&iova->free[*at], from, len, align, start))
			return 0;
	return -ENOSPC;
}

int gnv_iova_alloc(struct gnv_iova *iova, uint64_t len, uint64_t align, uint64_t *start)
{
	unsigned at;
	int ret = len ? grow(iova, 2) : -ENOSPC;

	if (!ret && find(iova, iova->next, len, align, &at, start))
		ret = find(iova, 0, len, align, &at, start);
	if (ret)
		return ret;
	cut(iova, at, *start, *start + len - 1);
	iova->live++;
	iova->next = *start + len;
	return 0;
}

void gnv_iova_free(struct gnv_iova *iova, uint64_t start, uint64_t len)
{
	put(iova, start, start + len - 1);
	iova->live--;
}
