/* SPDX-License-Identifier: MIT */
/*
 * What happens between the issue of an access and the wait for it: when it touches memory, in which order and in which pieces, and
 * when its result reaches the registers. Only accesses of one wave to the same word keep their order.
 */
#include "gfx/memory.h"

#include <string.h>

static void note(struct gfx *m, const struct gfx_wave *w, char kind, uint64_t addr, const void *data, unsigned size)
{
	struct gfx_note *n = &m->note[m->noted++ % (sizeof(m->note) / sizeof(m->note[0]))];

	*n = (struct gfx_note){ addr, 0, m->step, (uint16_t)w->number, kind };
	memcpy(&n->value, data, size < 8 ? size : 8);
}

/* Words of memory are read and written whole, whatever other threads do; the rest as it comes. */
typedef uint32_t four __attribute__((vector_size(16)));

static void read_memory(void *to, uint64_t addr, unsigned size)
{
	const void *from = (const void *)(uintptr_t)addr;
	uint64_t word;
	four words;

	if (size == 4 && !(addr & 3)) {
		word = __atomic_load_n((const uint32_t *)from, __ATOMIC_ACQUIRE);
		memcpy(to, &word, 4);
	} else if (size == 8 && !(addr & 7)) {
		word = __atomic_load_n((const uint64_t *)from, __ATOMIC_ACQUIRE);
		memcpy(to, &word, 8);
	} else if (size == 16 && !(addr & 15)) { /* one instruction */
		words = *(const volatile four *)from;
		memcpy(to, &words, 16);
	} else {
		memcpy(to, from, size);
	}
}

static void write_memory(uint64_t addr, const void *from, unsigned size)
{
	uint64_t word = 0;

	memcpy(&word, from, size < 8 ? size : 8);
	if (size == 4 && !(addr & 3))
		__atomic_store_n((uint32_t *)(uintptr_t)addr, (uint32_t)word, __ATOMIC_SEQ_CST);
	else if (size == 8 && !(addr & 7))
		__atomic_store_n((uint64_t *)(uintptr_t)addr, word, __ATOMIC_SEQ_CST);
	else
		memcpy((void *)(uintptr_t)addr, from, size);
}

/* Puts `new` where `old` is, else returns what is there. Atomics are aligned. */
static bool exchange(uint64_t addr, uint64_t *old, uint64_t new, unsigned size)
{
	uint32_t low = (uint32_t)*old;
	bool done;

	if (size == 8)
		return __atomic_compare_exchange_n((uint64_t *)(uintptr_t)addr, old, new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	done = __atomic_compare_exchange_n((uint32_t *)(uintptr_t)addr, &low, (uint32_t)new, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	*old = low;
	return done;
}

static bool keeps(const struct gfx *m)
{
	return m->l2s && m->rules & GFX_CACHES;
}

/* Does this scope pass by the L2 that keeps things? */
static bool passes(const struct gfx *m, const struct gfx_access *a)
{
	unsigned scope = gfx_scope(a->in);

	return scope == 3 || (scope == 2 && m->several);
}

static void read_kept(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, const struct gfx_region *r, uint64_t addr, void *got)
{
	struct gfx_cache *l2 = gfx_second_cache(m, w);

	if (r->flags & GFX_UNCACHED || passes(m, a)) {
		read_memory(got, addr, a->piece);
		gfx_cache_overlay(l2, addr, a->piece, got);
	} else if (gfx_scope(a->in)) {
		gfx_cached_read(m, l2, NULL, r, addr, a->piece, got);
	} else {
		gfx_cached_read(m, w->l0, l2, r, addr, a->piece, got);
	}
}

static void write_kept(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, const struct gfx_region *r, uint64_t addr,
		       const void *data)
{
	struct gfx_cache *l2 = gfx_second_cache(m, w);

	gfx_cache_keep(l2, addr, a->piece, data);
	if (r->flags & (GFX_UNCACHED | GFX_BELL) || passes(m, a))
		gfx_cache_clean(l2, addr, a->piece);
}

static void read_piece(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, const struct gfx_region *r, uint64_t addr,
		       void *got)
{
	uint32_t have = (a->in->glc ? GFX_GLC : 0) | (a->in->slc ? GFX_SLC : 0) | (a->in->dlc ? GFX_DLC : 0);
	uint32_t need = m->rules & GFX_RINGBITS ? r->flags & (GFX_GLC | GFX_SLC | GFX_DLC) : 0;

	if (r->flags & GFX_LOCAL)
		memcpy(got, (const void *)(uintptr_t)addr, a->piece);
	else if ((have & need) != need)
		gfx_cached_read(m, m->far, NULL, r, addr, a->piece, got);
	else if (keeps(m))
		read_kept(m, w, a, r, addr, got);
	else if (m->rules & GFX_CACHES && !(r->flags & GFX_UNCACHED) && !a->in->glc)
		gfx_cached_read(m, w->l0, m->l1, r, addr, a->piece, got);
	else if (gfx_is_near(m, r))
		gfx_near_read(m, r, addr, a->piece, got);
	else
		read_memory(got, addr, a->piece);
}

static void touch_atomic(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, const struct gfx_region *r, uint64_t addr,
			 const uint8_t *data, uint8_t *got)
{
	uint64_t value = 0, compare = 0, old = 0, new;

	memcpy(&value, data, a->piece);
	memcpy(&compare, data + a->piece, a->piece);
	if (r->flags & GFX_LOCAL) {
		memcpy(&old, (const void *)(uintptr_t)addr, a->piece);
		new = gfx_atomic(m, a->in->x.op, old, value, compare, a->piece);
		memcpy((void *)(uintptr_t)addr, &new, a->piece);
	} else if (gfx_is_near(m, r)) {
		old = gfx_near_atomic(m, r, a, addr, value, compare);
	} else {
		if (keeps(m))
			gfx_cache_clean(gfx_second_cache(m, w), addr, a->piece);
		read_memory(&old, addr, a->piece);
		do
			new = gfx_atomic(m, a->in->x.op, old, value, compare, a->piece);
		while (!exchange(addr, &old, new, a->piece));
	}
	memcpy(got, &old, a->piece);
	gfx_cache_store(w->l0, addr, a->piece, NULL);
	gfx_cache_store(gfx_second_cache(m, w), addr, a->piece, NULL);
	new = gfx_atomic(m, a->in->x.op, old, value, compare, a->piece);
	note(m, w, 'a', addr, &new, a->piece);
}

static void touch(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, unsigned lane, unsigned piece)
{
	uint64_t addr = a->addr[lane] + piece * a->piece;
	const struct gfx_region *r = gfx_region_of(m, addr, a->piece, a->kind != K_LOAD);
	uint8_t *data = (uint8_t *)a->data[lane] + piece * a->piece, *got = (uint8_t *)a->got[lane] + piece * a->piece;
	unsigned id = a->in->x.op->id;

	if (a->kind == K_LOAD) {
		read_piece(m, w, a, r, addr, got);
		if (id == OP_load_i8 || id == OP_load_d16_i8 || id == OP_load_d16_hi_i8)
			a->got[lane][0] = (uint32_t)(int8_t)got[0];
		else if (id == OP_load_i16)
			a->got[lane][0] = (uint32_t)(int16_t)(got[0] | got[1] << 8);
		note(m, w, 'r', addr, got, a->piece);
	} else if (r->flags & GFX_LOCAL && a->kind == K_STORE) {
		memcpy((void *)(uintptr_t)addr, data, a->piece);
	} else if (a->kind == K_STORE) {
		if (keeps(m))
			write_kept(m, w, a, r, addr, data);
		else if (gfx_is_near(m, r))
			gfx_near_write(m, addr, a->piece, data);
		else
			write_memory(addr, data, a->piece);
		gfx_cache_store(w->l0, addr, a->piece, data);
		gfx_cache_store(m->l1, addr, a->piece, data);
		note(m, w, 'w', addr, data, a->piece);
	} else {
		touch_atomic(m, w, a, r, addr, data, got);
	}
}

/* Scalar loads of less than a dword. */
static void choose_part(struct gfx_access *a)
{
	unsigned id = a->in->x.op->id;
	uint32_t value = a->scalar[0] >> 8 * (a->addr[0] & 3);

	switch (id) {
	case OP_s_load_u8: a->scalar[0] = (uint8_t)value; break;
	case OP_s_load_i8: a->scalar[0] = (uint32_t)(int8_t)value; break;
	case OP_s_load_u16: a->scalar[0] = (uint16_t)value; break;
	case OP_s_load_i16: a->scalar[0] = (uint32_t)(int16_t)value; break;
	}
}

static void touch_scalar(struct gfx *m, struct gfx_wave *w, struct gfx_access *a)
{
	unsigned i;

	for (i = 0; i < a->regs; i++) {
		const struct gfx_region *r = gfx_region_of(m, a->low + 4 * i, 4, false);

		if (m->rules & GFX_CACHES && !(r->flags & GFX_UNCACHED))
			gfx_cached_read(m, m->group[w->group].scalar, NULL, r, a->low + 4 * i, 4, &a->scalar[i]);
		else
			read_memory(&a->scalar[i], a->low + 4 * i, 4);
	}
	choose_part(a);
	a->left = 0;
}

static void perform_lane(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, unsigned lane, unsigned pieces);

/* Older accesses of the wave to the same bytes come first. */
void gfx_perform_older(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, uint64_t from, uint64_t to)
{
	unsigned i, lane;

	for (i = 0; i < w->count && gfx_pending(w, i) != a; i++) {
		struct gfx_access *o = gfx_pending(w, i);

		if (!o->left || o->kind == K_SCALAR || o->high <= from || to <= o->low)
			continue;
		for (lane = 0; lane < m->lanes; lane++)
			if (o->left >> lane & 1 && o->addr[lane] < to && from < o->addr[lane] + o->size)
				perform_lane(m, w, o, lane, 0xff);
	}
}

static void perform_all(struct gfx *m, struct gfx_wave *w, struct gfx_access *a);

/* A write-back is for all that the wave stored before. */
static void perform_back(struct gfx *m, struct gfx_wave *w, struct gfx_access *a)
{
	unsigned i;

	a->left = 0;
	for (i = 0; i < w->count && gfx_pending(w, i) != a; i++)
		perform_all(m, w, gfx_pending(w, i));
	if (keeps(m))
		gfx_write_back(m, w, gfx_scope(a->in));
}

static void perform_lane(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, unsigned lane, unsigned pieces)
{
	unsigned p, i, start = a->pieces > 1 ? gfx_draw(m, a->pieces) : 0;

	if (a->kind == K_SCALAR) {
		touch_scalar(m, w, a);
		return;
	}
	if (a->kind == K_BACK) {
		perform_back(m, w, a);
		return;
	}
	for (i = 0; i < a->pieces; i++) {
		p = (start + i) % a->pieces;
		if (!(a->todo[lane] & pieces & 1u << p))
			continue;
		gfx_perform_older(m, w, a, a->addr[lane] + p * a->piece, a->addr[lane] + (p + 1u) * a->piece);
		if (!(a->todo[lane] >> p & 1))
			continue;
		a->todo[lane] &= (uint8_t)~(1u << p);
		touch(m, w, a, lane, p);
	}
	if (!a->todo[lane])
		a->left &= ~(1ull << lane);
}

static void perform_all(struct gfx *m, struct gfx_wave *w, struct gfx_access *a)
{
	unsigned i, start = gfx_draw(m, m->lanes), lane;

	for (i = 0; i < m->lanes && a->left; i++) {
		lane = (start + i) % m->lanes;
		if (a->left >> lane & 1)
			perform_lane(m, w, a, lane, 0xff);
	}
}

/* May `a` load to a register that an older load has not reached? Only loads that return in order, so the younger one wins. */
static void check_overwrite(struct gfx *m, struct gfx_wave *w, const struct gfx_access *a)
{
	unsigned i;

	for (i = 0; i < w->count; i++) {
		const struct gfx_access *o = gfx_pending(w, i);

		if (o == a || o->reg == 0xffff || o->reg >= a->reg + a->regs || a->reg >= o->reg + o->regs || !(o->lanes & a->lanes))
			continue;
		if (a->reg < 256 || o->vm != a->vm || o->lgkm != a->lgkm || (a->vm && a->lgkm))
			gfx_fail(m, "loads to a register to which an older load may still return");
	}
}

/* Registers of loads that have not been waited for. */
static void poison(struct gfx *m, struct gfx_wave *w, const struct gfx_access *a)
{
	unsigned i;

	if (a->reg >= 256 && a->reg + a->regs > 512)
		gfx_fail(m, "loads beyond v255");
	for (i = 0; i < a->regs; i++) {
		if (a->reg >= 256)
			w->vpoison[a->reg - 256 + i] |= a->lanes;
		else
			w->spoison[(a->reg + i) & 127] = 1;
	}
}

/* The other half of a register stays what it is. */
static void put_part(uint32_t *to, uint32_t value, unsigned part)
{
	if (part == P_HIGH)
		*to = (*to & 0xffff) | value << 16;
	else
		*to = part == P_LOW ? (*to & ~0xffffu) | (value & 0xffff) : value;
}

/* The result reaches the registers. */
static void deliver(struct gfx *m, struct gfx_wave *w, struct gfx_access *a)
{
	unsigned i, lane;

	perform_all(m, w, a);
	if (a->reg == 0xffff)
		return;
	for (i = 0; i < a->regs; i++) {
		if (a->reg < 256) {
			w->s[(a->reg + i) & 127] = a->scalar[i];
			w->spoison[(a->reg + i) & 127] = 0;
			continue;
		}
		w->vpoison[a->reg - 256 + i] &= ~a->lanes;
		for (lane = 0; lane < m->lanes; lane++)
			if (a->lanes >> lane & 1)
				put_part(&w->v[a->reg - 256 + i][lane], a->got[lane][i], a->part);
	}
	a->reg = 0xffff;
	for (i = 0; i < w->count; i++)
		if (gfx_pending(w, i)->reg != 0xffff)
			poison(m, w, gfx_pending(w, i));
}

static bool over(const struct gfx_access *a)
{
	return !a->vm && !a->vs && !a->lgkm && !a->km;
}

static void retire(struct gfx_wave *w)
{
	while (w->count && over(gfx_pending(w, 0))) {
		w->first = (w->first + 1) % GFX_PENDING;
		w->count--;
	}
}

static bool *flag_of(struct gfx_access *a, enum gfx_counter counter)
{
	return counter == C_VM ? &a->vm : counter == C_VS ? &a->vs : counter == C_KM ? &a->km : &a->lgkm;
}

/* Wait until at most `most` accesses of a counter are outstanding; they count down in order, but for scalar loads. */
void gfx_wait(struct gfx *m, struct gfx_wave *w, enum gfx_counter counter, unsigned most)
{
	unsigned i, outstanding = 0;
	bool scalar = false;

	for (i = 0; i < w->count; i++) {
		outstanding += *flag_of(gfx_pending(w, i), counter);
		scalar |= *flag_of(gfx_pending(w, i), counter) && gfx_pending(w, i)->kind == K_SCALAR;
	}
	if (most && scalar)
		return;
	for (i = 0; i < w->count && outstanding > most; i++) {
		struct gfx_access *a = gfx_pending(w, i);

		if (!*flag_of(a, counter))
			continue;
		*flag_of(a, counter) = false;
		outstanding--;
		if (over(a))
			deliver(m, w, a);
	}
	retire(w);
}

struct gfx_access *gfx_access_new(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, enum gfx_kind kind)
{
	struct gfx_access *a;

	if (w->count == GFX_PENDING) { /* a full counter stalls the wave */
		gfx_wait(m, w, C_VM, 0);
		gfx_wait(m, w, C_VS, 0);
		gfx_wait(m, w, C_LGKM, 0);
		gfx_wait(m, w, C_KM, 0);
	}
	a = gfx_pending(w, w->count++);
	a->in = in;
	a->kind = (uint8_t)kind;
	a->vm = a->vs = a->lgkm = a->km = false;
	a->lanes = a->left = 0;
	a->reg = 0xffff;
	a->regs = a->part = 0;
	a->flags = 0;
	a->pieces = 1;
	a->low = ~0ull;
	a->high = 0;
	return a;
}

void gfx_access_start(struct gfx *m, struct gfx_wave *w, struct gfx_access *a)
{
	bool store = a->kind == K_STORE || a->kind == K_BACK || (a->kind == K_ATOMIC && a->reg == 0xffff);

	if (a->reg != 0xffff) {
		check_overwrite(m, w, a);
		poison(m, w, a);
	}
	gfx_check_waits(m, w, a);
	if (!(m->rules & (store ? GFX_STORES : GFX_LATE)))
		perform_all(m, w, a);
	if (store ? a->left || m->rules & GFX_WAITS : m->rules & (GFX_POISON | GFX_WAITS))
		return;
	a->vm = a->vs = a->lgkm = a->km = false;
	deliver(m, w, a);
	retire(w);
}

bool gfx_stalls(struct gfx *m, struct gfx_wave *w)
{
	if (!w->count || !(m->rules & (GFX_LATE | GFX_STORES)) || gfx_draw(m, 100) >= m->stall)
		return false;
	if (gfx_draw(m, 100) < m->stir + 3)
		gfx_stir(m, w);
	return true;
}

void gfx_stir(struct gfx *m, struct gfx_wave *w)
{
	struct gfx_access *a;
	unsigned lane;
	uint64_t which;

	if (!w->count)
		return;
	a = gfx_pending(w, gfx_draw(m, w->count));
	which = a->left;
	if (gfx_draw(m, 2))
		which &= gfx_draw(m, 1u << 31) ^ (uint64_t)gfx_draw(m, 1u << 31) << 1 ^ (uint64_t)gfx_draw(m, m->lanes > 32 ? 1u << 31 : 1) << 33;
	for (lane = 0; which && lane < m->lanes; lane++)
		if (which >> lane & a->left >> lane & 1)
			perform_lane(m, w, a, lane, gfx_draw(m, 4) ? 1u << gfx_draw(m, a->pieces) : 0xff);
}
