/* SPDX-License-Identifier: MIT */
/* Between memory.c, access.c and cache.c. */
#ifndef TESTS_GFX_MEMORY_H
#define TESTS_GFX_MEMORY_H

#include "gfx/gfx.h"

const struct gfx_region *gfx_region_of(struct gfx *m, uint64_t addr, unsigned size, bool write);
void gfx_cached_read(struct gfx *m, struct gfx_cache *first, struct gfx_cache *second, const struct gfx_region *r, uint64_t addr,
		     unsigned size, void *out);
void gfx_cache_store(struct gfx_cache *c, uint64_t addr, unsigned size, const void *data);
/* L1 or L2, whichever is after a wave's first cache. */
struct gfx_cache *gfx_second_cache(struct gfx *m, const struct gfx_wave *w);
/* What is stored stays there; what stays there goes to memory; what stays there is laid over what memory said. */
void gfx_cache_keep(struct gfx_cache *c, uint64_t addr, unsigned size, const void *data);
void gfx_cache_clean(struct gfx_cache *c, uint64_t addr, unsigned size);
/* gfx11: does the L2 cache this region? What waves read and write there, and an atomic: L2 makes it. */
bool gfx_is_near(const struct gfx *m, const struct gfx_region *r);
void gfx_near_read(struct gfx *m, const struct gfx_region *r, uint64_t addr, unsigned size, void *out);
void gfx_near_write(struct gfx *m, uint64_t addr, unsigned size, const void *data);
uint64_t gfx_near_atomic(struct gfx *m, const struct gfx_region *r, const struct gfx_access *a, uint64_t addr, uint64_t value,
			 uint64_t compare);
void gfx_cache_overlay(struct gfx_cache *c, uint64_t addr, unsigned size, void *data);
static inline struct gfx_access *gfx_pending(struct gfx_wave *w, unsigned i)
{
	return &w->pend[(w->first + i) % GFX_PENDING];
}

/* `a` is about to be issued: an error if something should have been waited for. */
void gfx_check_waits(struct gfx *m, struct gfx_wave *w, const struct gfx_access *a);
/* Older accesses of the wave to the same bytes as `a` come first. */
void gfx_perform_older(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, uint64_t from, uint64_t to);
/* Queue an access that gfx_memory or gfx_scalar_load built, or do it at once where the rules say so. */
struct gfx_access *gfx_access_new(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, enum gfx_kind kind);
void gfx_access_start(struct gfx *m, struct gfx_wave *w, struct gfx_access *a);

#endif
