/* SPDX-License-Identifier: MIT */
/* Between memory.c, access.c and cache.c. */
#ifndef TESTS_GFX_MEMORY_H
#define TESTS_GFX_MEMORY_H

#include "gfx/gfx.h"

const struct gfx_region *gfx_region_of(struct gfx *m, uint64_t addr, unsigned size, bool write);
void gfx_cached_read(struct gfx *m, struct gfx_cache *first, struct gfx_cache *second, const struct gfx_region *r, uint64_t addr,
		     unsigned size, void *out);
void gfx_cache_store(struct gfx_cache *c, uint64_t addr, unsigned size, const void *data);
/* Queue an access that gfx_memory or gfx_scalar_load built, or do it at once where the rules say so. */
struct gfx_access *gfx_access_new(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, enum gfx_kind kind);
void gfx_access_start(struct gfx *m, struct gfx_wave *w, struct gfx_access *a);

#endif
