/* SPDX-License-Identifier: MIT */
/* Which memory which GPU may touch. */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects ranges */
static struct mock_range *ranges;
static unsigned taken; /* atomic */

static struct mock_range **find(const void *ptr)
{
	struct mock_range **link;

	for (link = &ranges; *link && (*link)->ptr != ptr; link = &(*link)->next)
		;
	return link;
}

bool mock_range_add(const char *name, const void *ptr, size_t len, unsigned gpus)
{
	struct mock_range *r;
	bool fits = true;

	pthread_mutex_lock(&lock);
	r = *find(ptr);
	if (r && r->lane == r->ptr && !strcmp(name, "locked")) /* attributes of pages, of which there may be more each time */
		r->len = r->len > len ? r->len : len;
	else if (r)
		fits = r->len == len;
	else
		r = malloc(sizeof(*r));
	if (r && r != *find(ptr)) {
		*r = (struct mock_range){ ranges, name, ptr, ptr, len, gpus, gpus, 0 };
		ranges = r;
	}
	if (r && fits)
		r->times++;
	pthread_mutex_unlock(&lock);
	return r && fits;
}

void mock_range_allow(const void *ptr, unsigned gpus)
{
	struct mock_range *r;

	pthread_mutex_lock(&lock);
	r = *find(ptr);
	if (r) /* a GPU that is not named loses it (libhsakmt fmm.c, fmm_map_to_gpu_nodes); the owner does not */
		r->gpus = gpus | r->owners;
	pthread_mutex_unlock(&lock);
}

/*
 * ROCr 6.4, MemoryRegion::Lock: where there is no shared virtual memory locked pages are a userptr, which lies where the driver puts it.
 * Only shared pages can be in two places.
 */
const void *mock_range_alias(const void *ptr)
{
	struct mock_range *r;
	const void *lane;

	pthread_mutex_lock(&lock);
	r = *find(ptr);
	if (r->lane == r->ptr) {
		lane = mremap((void *)(uintptr_t)ptr, 0, r->len, MREMAP_MAYMOVE);
		r->lane = lane == MAP_FAILED ? r->ptr : lane;
	}
	lane = r->lane;
	pthread_mutex_unlock(&lock);
	return lane;
}

/* A lane that comes late must not find something else there. */
static void drop(const struct mock_range *r)
{
	if (r->lane != r->ptr)
		mmap((void *)(uintptr_t)r->lane, r->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

bool mock_range_remove(const void *ptr)
{
	struct mock_range **link, *r;

	pthread_mutex_lock(&lock);
	link = find(ptr);
	r = *link;
	if (r && !--r->times) {
		*link = r->next;
		drop(r);
		free(r);
		__atomic_fetch_add(&taken, 1, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return r;
}

size_t mock_range_len(const void *ptr)
{
	const struct mock_range *r;
	size_t len;

	pthread_mutex_lock(&lock);
	r = *find(ptr);
	len = r ? r->len : 0;
	pthread_mutex_unlock(&lock);
	return len;
}

bool mock_is_hosts(const void *ptr)
{
	const struct mock_range *r;

	pthread_mutex_lock(&lock);
	for (r = ranges; r && ((uintptr_t)ptr - (uintptr_t)r->ptr >= r->len || !strcmp(r->name, "locked")); r = r->next)
		;
	pthread_mutex_unlock(&lock);
	return !r;
}

bool mock_is_unknown(const void *ptr)
{
	const struct mock_range *r;

	pthread_mutex_lock(&lock);
	for (r = ranges; r && ((uintptr_t)ptr - (uintptr_t)r->ptr >= r->len || strcmp(r->name, "bar")); r = r->next)
		;
	pthread_mutex_unlock(&lock);
	return r;
}

bool mock_is_locked(const void *ptr)
{
	const struct mock_range *r;

	pthread_mutex_lock(&lock);
	for (r = ranges; r && ((uintptr_t)ptr - (uintptr_t)r->ptr >= r->len || strcmp(r->name, "locked")); r = r->next)
		;
	pthread_mutex_unlock(&lock);
	return r;
}

unsigned mock_taken(void)
{
	return __atomic_load_n(&taken, __ATOMIC_ACQUIRE);
}

void mock_ranges(unsigned gpu, void (*see)(void *ctx, const struct mock_range *range), void *ctx)
{
	const struct mock_range *r;

	pthread_mutex_lock(&lock);
	for (r = ranges; r; r = r->next)
		if (r->gpus >> gpu & 1)
			see(ctx, r);
	pthread_mutex_unlock(&lock);
}

struct question {
	uint64_t at, len;
	bool yes;
};

static void look(void *ctx, const struct mock_range *r)
{
	struct question *q = ctx;
	uint64_t from = q->at - (uintptr_t)r->lane;

	q->yes |= from < r->len && q->len <= r->len - from;
}

bool mock_has(unsigned gpu, uint64_t at, uint64_t len)
{
	struct question q = { at, len, false };

	mock_ranges(gpu, look, &q);
	return q.yes;
}

bool mock_sees(unsigned gpu, const void *ptr)
{
	return mock_has(gpu, (uintptr_t)ptr, 1);
}
