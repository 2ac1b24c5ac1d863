/* SPDX-License-Identifier: MIT */
/*
 * What the mock's memory is to the caches of a GPU: a property of pages. Of pages that the runtime allocated the pool decides, and
 * the uncached flag (Linux gmc_v10_0.c, gmc_v10_0_get_vm_pte, and gmc_v11_0.c: MTYPE_UC for COHERENT, EXT_COHERENT and UNCACHED, else
 * MTYPE_NC). Of pages of the host the last lock does: of the coarse pool it clears COHERENT for good, of the fine one it sets it
 * (libhsakmt fmm.c, fmm_register_mem_svm_api; Linux kfd_svm.c, svm_range_apply_attrs and svm_range_get_pte_flags), and unlocking
 * changes nothing (fmm.c, hsakmt_fmm_deregister_memory: success where SVM is supported and there is no object).
 */
#include "runtime.h"

#include "gfx/gfx.h"

#include <stdlib.h>
#include <string.h>

struct pages {
	struct pages *next; /* an older one; the newest that holds a page counts */
	uintptr_t from, to;
	bool coarse;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects the rest */
static struct pages *newest;
static struct gfx_cache *near[MOCK_GPUS_MAX]; /* L2 */

static void forget_covered(uintptr_t from, uintptr_t to)
{
	struct pages **link = &newest, *p;

	while ((p = *link)) {
		if (p->from < from || p->to > to) {
			link = &p->next;
			continue;
		}
		*link = p->next;
		free(p);
	}
}

void mock_pages_locked(const void *ptr, size_t len, bool coarse)
{
	const uintptr_t from = (uintptr_t)ptr, to = from + len;
	struct pages *p = malloc(sizeof(*p));

	if (!p)
		abort();
	pthread_mutex_lock(&lock);
	forget_covered(from, to);
	*p = (struct pages){ newest, from, to, coarse };
	newest = p;
	pthread_mutex_unlock(&lock);
}

/* Where the result for `at` ends, within [at, to). With the lock. */
static uintptr_t run_of(uintptr_t at, uintptr_t to, bool *coarse)
{
	const struct pages *p;

	for (p = newest; p; p = p->next) {
		if (p->from <= at && at < p->to) {
			*coarse = p->coarse;
			return p->to < to ? p->to : to;
		}
		if (p->from > at && p->from < to) /* a newer one begins there */
			to = p->from;
	}
	*coarse = false;
	return to;
}

/* GPUs whose waves keep lines of such pages in an L2 that no instruction of theirs empties. */
static bool keeps(void)
{
	const char *gfx = getenv("MOCK_GFX");

	return !gfx || !*gfx || !strncmp(gfx, "gfx11", 5) || !strncmp(gfx, "gfx10", 5) || !strcmp(gfx, "gfx906") || !strcmp(gfx, "gfx908");
}

static bool is_cached(const struct mock_alloc *a)
{
	return mock_pool_flags(a->pool) & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED && !a->uncached;
}

void mock_pages_see(const void *ptr, size_t len, void (*see)(void *ctx, size_t offset, size_t len, bool cached), void *ctx)
{
	const struct mock_alloc *a = mock_find(ptr);
	uintptr_t from = (uintptr_t)ptr, at = from, to = from + len, end;
	bool coarse;

	if (a || !keeps()) {
		see(ctx, 0, len, a && keeps() && is_cached(a));
		return;
	}
	for (; at < to; at = end) {
		pthread_mutex_lock(&lock);
		end = run_of(at, to, &coarse);
		pthread_mutex_unlock(&lock);
		see(ctx, at - from, end - at, coarse);
	}
}

struct gfx_cache *mock_near(unsigned gpu)
{
	struct gfx_cache *c;

	pthread_mutex_lock(&lock);
	if (!near[gpu])
		near[gpu] = gfx_cache_new();
	c = near[gpu];
	pthread_mutex_unlock(&lock);
	return c;
}

/* Another party than waves is about to use the bytes through the GPU, or they end: a copy is a kernel of the GPU (GpuAgent::DmaCopy). */
void mock_near_flush(const void *ptr, size_t len)
{
	struct gfx_cache *c;
	unsigned i;

	for (i = 0; i < MOCK_GPUS_MAX; i++) {
		pthread_mutex_lock(&lock);
		c = near[i];
		pthread_mutex_unlock(&lock);
		if (c)
			gfx_near_flush(c, ptr, len);
	}
}
