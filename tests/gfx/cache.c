/* SPDX-License-Identifier: MIT */
/* Registered memories, and the caches in front of them, which forget nothing of their own accord (or little, by the seed). */
#include "gfx/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LINES 512

struct line {
	uint64_t tag, valid, dirty; /* a bit for each byte; dirty: memory has not got it yet */
	uint32_t age;
	uint8_t data[GFX_LINE];
};

struct gfx_cache {
	pthread_mutex_t lock; /* of gfx11's L2, which several launches share */
	uint32_t age; /* lines of another age are gone */
	struct line line[LINES];
};

struct gfx_cache *gfx_cache_new(void)
{
	struct gfx_cache *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->age = 1;
	pthread_mutex_init(&c->lock, NULL);
	return c;
}

void gfx_cache_free(struct gfx_cache *c)
{
	if (c)
		pthread_mutex_destroy(&c->lock);
	free(c);
}

void gfx_invalidate(struct gfx *m, struct gfx_wave *w, bool l1)
{
	(l1 ? m->l1 : w->l0)->age++;
}

void gfx_register(struct gfx *m, const char *name, const void *base, uint64_t size, uint32_t flags)
{
	/* A region that went on at address 0 would hold any address. */
	if (m->regions == sizeof(m->region) / sizeof(m->region[0]) || size > UINT64_MAX - (uintptr_t)base)
		abort();
	m->region[m->regions++] = (struct gfx_region){ name, (uintptr_t)base, size, flags };
}

static const struct gfx_region *find(const struct gfx *m, uint64_t addr, uint64_t size)
{
	unsigned i;

	for (i = m->regions; i--;)
		if (addr - m->region[i].base < m->region[i].size && size <= m->region[i].size - (addr - m->region[i].base))
			return &m->region[i];
	return NULL;
}

bool gfx_knows(const struct gfx *m, uint64_t addr, uint64_t size)
{
	return find(m, addr, size);
}

const struct gfx_region *gfx_region_of(struct gfx *m, uint64_t addr, unsigned size, bool write)
{
	const struct gfx_region *r = find(m, addr, size);

	if (!r && m->missed) {
		m->missed(m->outside_ctx);
		r = find(m, addr, size);
	}
	m->fault = addr;
	if (!r)
		gfx_fail_as(m, GFX_FAULT, "%s %u bytes at %#llx, which no registered memory holds", write ? "writes" : "reads", size,
			    (unsigned long long)addr);
	if (write && r->flags & GFX_READONLY)
		gfx_fail_as(m, GFX_FAULT, "writes to %s at offset %#llx", r->name, (unsigned long long)(addr - r->base));
	return r;
}

static uint64_t mask_of(uint64_t addr, unsigned size)
{
	return (size >= 64 ? ~0ull : (1ull << size) - 1) << (addr % GFX_LINE);
}

static struct line *slot(struct gfx_cache *c, uint64_t addr)
{
	struct line *l = &c->line[addr / GFX_LINE % LINES];

	return l->tag == addr / GFX_LINE && l->age == c->age ? l : NULL;
}

/* Words whole, whatever other threads do. */
static void clean(struct line *l)
{
	uint64_t base = l->tag * GFX_LINE;
	uint32_t word;
	unsigned i;

	for (i = 0; l->dirty && i < GFX_LINE; i++) {
		if (!(i & 3) && (l->dirty >> i & 15) == 15) {
			memcpy(&word, l->data + i, 4);
			__atomic_store_n((uint32_t *)(uintptr_t)(base + i), word, __ATOMIC_SEQ_CST);
			i += 3;
		} else if (l->dirty >> i & 1) {
			*(uint8_t *)(uintptr_t)(base + i) = l->data[i];
		}
	}
	l->dirty = 0;
}

static struct line *claim(struct gfx_cache *c, uint64_t addr)
{
	struct line *l = &c->line[addr / GFX_LINE % LINES];

	if (l->tag != addr / GFX_LINE)
		clean(l);
	if (l->tag != addr / GFX_LINE || l->age != c->age)
		l->valid = 0;
	l->tag = addr / GFX_LINE;
	l->age = c->age;
	return l;
}

/* Fill the line of addr with what memory holds, as far as the region goes. */
static void fill(struct line *l, uint64_t addr, const struct gfx_region *r)
{
	uint64_t from = addr & ~(uint64_t)(GFX_LINE - 1), to = from + GFX_LINE;

	if (from < r->base)
		from = r->base;
	if (to > r->base + r->size)
		to = r->base + r->size;
	l->valid |= mask_of(from, (unsigned)(to - from));
	if (!l->dirty)
		memcpy(l->data + from % GFX_LINE, (const void *)(uintptr_t)from, to - from);
	for (; l->dirty && from < to; from++)
		if (!(l->dirty >> from % GFX_LINE & 1))
			l->data[from % GFX_LINE] = *(const uint8_t *)(uintptr_t)from;
}

/* A cache gets what the one after it has. */
static void take_over(struct line *to, const struct line *from)
{
	memcpy(to->data, from->data, GFX_LINE);
	to->valid = from->valid;
}

/* ---- gfx11's L2 ---- */

bool gfx_is_near(const struct gfx *m, const struct gfx_region *r)
{
	const uint32_t others = GFX_DEVICE | GFX_UNCACHED | GFX_BELL | GFX_GLC | GFX_SLC | GFX_DLC | GFX_READONLY | GFX_STACK;

	return m->near && (r->flags & GFX_NC || !(r->flags & others));
}

/* With the lock. The line of addr, whole as far as the region goes; now and then it was evicted before. */
static struct line *near_line(struct gfx *m, const struct gfx_region *r, uint64_t addr, unsigned size)
{
	struct line *l = slot(m->near, addr);
	const uint64_t need = mask_of(addr, size);

	if (l && gfx_draw(m, 100) < m->forget) {
		clean(l);
		l->valid = 0;
	}
	if (!l || (l->valid & need) != need) {
		l = claim(m->near, addr);
		fill(l, addr, r);
	}
	return l;
}

static void fill_from(struct gfx *m, struct line *l, uint64_t addr, unsigned size, const struct gfx_region *r)
{
	if (!gfx_is_near(m, r)) {
		fill(l, addr, r);
		return;
	}
	pthread_mutex_lock(&m->near->lock);
	take_over(l, near_line(m, r, addr, size));
	pthread_mutex_unlock(&m->near->lock);
}

/* Bytes of one line that begin at addr, of so many. */
static unsigned in_line(uint64_t addr, unsigned size)
{
	return addr % GFX_LINE + size > GFX_LINE ? GFX_LINE - addr % GFX_LINE : size;
}

void gfx_near_read(struct gfx *m, const struct gfx_region *r, uint64_t addr, unsigned size, void *out)
{
	unsigned first = in_line(addr, size);

	pthread_mutex_lock(&m->near->lock);
	memcpy(out, near_line(m, r, addr, first)->data + addr % GFX_LINE, first);
	pthread_mutex_unlock(&m->near->lock);
	if (first < size)
		gfx_near_read(m, r, addr + first, size - first, (uint8_t *)out + first);
}

void gfx_near_write(struct gfx *m, uint64_t addr, unsigned size, const void *data)
{
	pthread_mutex_lock(&m->near->lock);
	gfx_cache_keep(m->near, addr, size, data);
	pthread_mutex_unlock(&m->near->lock);
}

uint64_t gfx_near_atomic(struct gfx *m, const struct gfx_region *r, const struct gfx_access *a, uint64_t addr, uint64_t value,
			 uint64_t compare)
{
	uint64_t old = 0, new;

	gfx_atomic(m, a->in->x.op, 0, value, compare, a->piece); /* fails here if it does, without the lock */
	pthread_mutex_lock(&m->near->lock);
	memcpy(&old, near_line(m, r, addr, a->piece)->data + addr % GFX_LINE, a->piece);
	new = gfx_atomic(m, a->in->x.op, old, value, compare, a->piece);
	gfx_cache_keep(m->near, addr, a->piece, &new);
	pthread_mutex_unlock(&m->near->lock);
	return old;
}

void gfx_near_write_back(struct gfx_cache *c)
{
	unsigned i;

	pthread_mutex_lock(&c->lock);
	for (i = 0; i < LINES; i++)
		clean(&c->line[i]);
	pthread_mutex_unlock(&c->lock);
}

void gfx_near_invalidate(struct gfx_cache *c)
{
	unsigned i;

	pthread_mutex_lock(&c->lock);
	for (i = 0; i < LINES; i++)
		c->line[i].valid = c->line[i].dirty;
	pthread_mutex_unlock(&c->lock);
}

void gfx_near_flush(struct gfx_cache *c, const void *at, uint64_t size)
{
	uint64_t from = (uintptr_t)at / GFX_LINE, to = ((uintptr_t)at + size + GFX_LINE - 1) / GFX_LINE;
	unsigned i;

	pthread_mutex_lock(&c->lock);
	for (i = 0; i < LINES; i++) {
		if (c->line[i].tag < from || c->line[i].tag >= to)
			continue;
		clean(&c->line[i]);
		c->line[i].valid = 0;
	}
	pthread_mutex_unlock(&c->lock);
}

static bool hit(struct gfx *m, struct gfx_cache *c, uint64_t addr, unsigned size, void *out)
{
	struct line *l = slot(c, addr);
	uint64_t need = mask_of(addr, size);

	if (!l || (l->valid & need) != need || gfx_draw(m, 100) < m->forget)
		return false;
	memcpy(out, l->data + addr % GFX_LINE, size);
	return true;
}

void gfx_cached_read(struct gfx *m, struct gfx_cache *first, struct gfx_cache *second, const struct gfx_region *r, uint64_t addr,
		     unsigned size, void *out)
{
	struct line *l, *from = NULL;

	if (addr % GFX_LINE + size > GFX_LINE && gfx_is_near(m, r)) {
		gfx_near_read(m, r, addr, size, out);
		return;
	}
	if (addr % GFX_LINE + size > GFX_LINE) {
		gfx_cache_clean(second ? second : first, addr, size);
		memcpy(out, (const void *)(uintptr_t)addr, size);
		return;
	}
	if (second)
		m->cached[m->cached_count++ % 64] = addr;
	if (hit(m, first, addr, size, out))
		return;
	if (second && hit(m, second, addr, size, out)) {
		from = slot(second, addr);
	} else if (second) {
		from = claim(second, addr);
		fill_from(m, from, addr, size, r);
	}
	l = claim(first, addr);
	if (from)
		take_over(l, from);
	else
		fill_from(m, l, addr, size, r);
	memcpy(out, l->data + addr % GFX_LINE, size);
}

/* A wave sees its own stores: what a cache on their way holds is updated (data) or dropped (NULL). */
void gfx_cache_store(struct gfx_cache *c, uint64_t addr, unsigned size, const void *data)
{
	unsigned first = GFX_LINE - addr % GFX_LINE;
	struct line *l = slot(c, addr);

	if (size > first)
		gfx_cache_store(c, addr + first, size - first, data ? (const uint8_t *)data + first : NULL);
	if (!l)
		return;
	size = size < first ? size : first;
	if (!data)
		l->valid = 0;
	else
		memcpy(l->data + addr % GFX_LINE, data, size);
}

/* ---- An L2 that keeps what is written ---- */

struct gfx_cache *gfx_second_cache(struct gfx *m, const struct gfx_wave *w)
{
	return m->l2s ? m->l2[w->group % m->l2s] : m->l1;
}

void gfx_cache_keep(struct gfx_cache *c, uint64_t addr, unsigned size, const void *data)
{
	unsigned first = addr % GFX_LINE + size > GFX_LINE ? GFX_LINE - addr % GFX_LINE : size;
	struct line *l = claim(c, addr);

	memcpy(l->data + addr % GFX_LINE, data, first);
	l->valid |= mask_of(addr, first);
	l->dirty |= mask_of(addr, first);
	if (first < size)
		gfx_cache_keep(c, addr + first, size - first, (const uint8_t *)data + first);
}

void gfx_cache_clean(struct gfx_cache *c, uint64_t addr, unsigned size)
{
	uint64_t at = addr & ~(uint64_t)(GFX_LINE - 1);

	for (; at < addr + size; at += GFX_LINE)
		if (slot(c, at))
			clean(slot(c, at));
}

void gfx_cache_overlay(struct gfx_cache *c, uint64_t addr, unsigned size, void *data)
{
	const struct line *l;
	unsigned i;

	for (i = 0; i < size; i++) {
		l = slot(c, addr + i);
		if (l && l->dirty >> (addr + i) % GFX_LINE & 1)
			((uint8_t *)data)[i] = l->data[(addr + i) % GFX_LINE];
	}
}

void gfx_invalidate_scope(struct gfx *m, struct gfx_wave *w, unsigned scope)
{
	struct gfx_cache *c = gfx_second_cache(m, w);
	unsigned i;

	w->l0->age++;
	for (i = 0; i < LINES && (scope == 3 || (scope == 2 && m->several)); i++)
		c->line[i].valid &= c->line[i].dirty;
}

void gfx_write_back(struct gfx *m, struct gfx_wave *w, unsigned scope)
{
	struct gfx_cache *c = gfx_second_cache(m, w);
	unsigned i;

	for (i = 0; i < LINES && (scope == 3 || (scope == 2 && m->several)); i++)
		clean(&c->line[i]);
}

void gfx_write_back_all(struct gfx *m)
{
	unsigned i, n;

	for (n = 0; n < m->l2s; n++)
		for (i = 0; i < LINES; i++)
			clean(&m->l2[n]->line[i]);
}

void gfx_fetch_ahead(struct gfx *m, struct gfx_wave *w)
{
	struct gfx_cache *second = gfx_second_cache(m, w);
	uint64_t addr = m->cached_count ? m->cached[gfx_draw(m, m->cached_count < 64 ? m->cached_count : 64)] : 0;
	const struct gfx_region *r = find(m, addr, 1);
	struct line *from = slot(second, addr);

	if (!addr || !r || (from && slot(w->l0, addr)))
		return;
	if (!from) {
		from = claim(second, addr);
		fill_from(m, from, addr, 1, r);
	}
	if (!slot(w->l0, addr))
		take_over(claim(w->l0, addr), from);
}
