/* SPDX-License-Identifier: MIT */
/* The instructions that access memory: addresses and operands of FLAT, GLOBAL, DS and SMEM, and what atomics compute. */
#include "gfx/memory.h"

#include <string.h>

static bool is(const char *name, const char *what)
{
	return !strncmp(name, what, strlen(what));
}

uint64_t gfx_atomic(struct gfx *m, const struct gfx_op *op, uint64_t old, uint64_t value, uint64_t compare, unsigned size)
{
	const char *name = strchr(op->name, '_') + 1; /* after atomic_ or ds_ */
	bool is_signed = name[strlen(name) - 3] == 'i', less;

	if (is(name, "swap") || is(name, "storexchg"))
		return value;
	if (is(name, "cmp"))
		return old == compare ? value : old;
	if (is(name, "add"))
		return old + value;
	if (is(name, "sub"))
		return old - value;
	if (is(name, "and"))
		return old & value;
	if (is(name, "or"))
		return old | value;
	if (is(name, "xor"))
		return old ^ value;
	if (!is_signed)
		less = old < value;
	else
		less = size == 4 ? (int32_t)old < (int32_t)value : (int64_t)old < (int64_t)value;
	if (is(name, "min"))
		return less ? old : value;
	if (is(name, "max"))
		return less ? value : old;
	gfx_fail(m, "%s is not supported", op->name);
}

static const struct gfx_arg *find(const struct gfx_inst *in, char role)
{
	unsigned i;

	for (i = 0; i < in->x.count; i++)
		if (in->x.arg[i].role == role)
			return &in->x.arg[i];
	return NULL;
}

/* Bytes of one lane's access: the width the name says, since registers are never smaller than a dword. */
static unsigned size_of(const struct gfx_inst *in, const struct gfx_arg *data)
{
	const char *name = in->x.op->name;
	size_t len = strlen(name);

	if (!strcmp(name + len - 2, "b8") || !strcmp(name + len - 2, "u8") || !strcmp(name + len - 2, "i8"))
		return 1;
	if (!strcmp(name + len - 2, "16"))
		return 2;
	return 4u * data->width;
}

static void copy_data(struct gfx *m, struct gfx_wave *w, const struct gfx_arg *from, struct gfx_access *a, unsigned place)
{
	uint32_t (*const reg)[GFX_LANES] = a->in->acc ? w->acc : w->v;
	unsigned i, lane;

	if (!a->in->acc)
		gfx_check_vector(m, w, from->code - 256u, from->width, a->lanes);
	for (i = 0; i < from->width; i++)
		for (lane = 0; lane < m->lanes; lane++)
			a->data[lane][place + i] = reg[from->code - 256 + i][lane] >> (from->part == P_HIGH ? 16 : 0);
}

static uint8_t *lds_at(struct gfx *m, const struct gfx_wave *w, uint32_t addr, unsigned size)
{
	struct gfx_group *g = &m->group[w->group];

	if (addr > g->lds_size || size > g->lds_size - addr)
		gfx_fail(m, "accesses local memory at %u, beyond its %u bytes", addr, g->lds_size);
	return g->lds + addr;
}

/* Private memory: an offset into the lane's slice of the stack. */
static uint64_t private_address(struct gfx *m, const struct gfx_wave *w, const struct gfx_inst *in, unsigned lane, uint64_t offset,
				unsigned size)
{
	uint32_t slice = m->slice;

	if (in->segment == 0 && offset >> 32 == GFX_SHARED >> 32)
		return (uintptr_t)lds_at(m, w, (uint32_t)offset, size);
	if (in->segment == 0 && offset >> 32 == GFX_PRIVATE >> 32)
		offset &= 0xffffffff;
	else if (in->segment != 1)
		return offset;
	if (offset > slice || size > slice - offset)
		gfx_fail(m, "accesses its stack at %lld, beyond its %u bytes", (long long)offset, slice);
	return (uintptr_t)m->stack + (w->number * m->lanes + lane) * (uint64_t)slice + offset;
}

/* Addresses of all lanes; the pieces in which the access may fall apart. */
static void set_addresses(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, struct gfx_access *a)
{
	const struct gfx_arg *base = find(in, 'a'), *scalar = find(in, 'S');
	uint64_t offset = (uint64_t)(int64_t)in->imm;
	unsigned lane, reg = base->code - 256u;
	uint32_t flags;
	bool split = a->size > 8 && (m->rules & GFX_TEAR), whole = true;

	if (!in->off)
		gfx_check_vector(m, w, reg, base->width, a->lanes);
	if (scalar)
		offset += gfx_read_scalar(m, w, in, scalar);
	for (lane = 0; lane < m->lanes; lane++) {
		if (!(a->lanes >> lane & 1))
			continue;
		a->addr[lane] = offset + (in->off ? 0 : w->v[reg][lane]);
		if (base->width == 2)
			a->addr[lane] += (uint64_t)w->v[reg + 1][lane] << 32;
		a->addr[lane] = private_address(m, w, in, lane, a->addr[lane], a->size);
		flags = gfx_region_of(m, a->addr[lane], a->size, a->kind != K_LOAD)->flags;
		whole &= flags & GFX_WHOLE && a->addr[lane] % 16 == 0;
		a->flags |= flags;
		if (a->kind == K_ATOMIC && a->addr[lane] % a->size)
			gfx_fail(m, "an atomic at %#llx is not aligned", (unsigned long long)a->addr[lane]);
		if (a->addr[lane] < a->low)
			a->low = a->addr[lane];
		if (a->addr[lane] + a->size > a->high)
			a->high = a->addr[lane] + a->size;
	}
	a->pieces = (uint8_t)(split && !whole ? a->size / 4 : 1);
	a->piece = (uint8_t)(a->size / a->pieces);
	memset(a->todo, (1 << a->pieces) - 1, sizeof(a->todo));
	a->left = a->lanes;
}

/* Accumulation registers have no record of what was waited for, so a load to them is over at once, with all before it. */
static void load_acc(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, const struct gfx_arg *to)
{
	unsigned i, lane;

	gfx_access_start(m, w, a);
	gfx_wait(m, w, C_LGKM, 0);
	gfx_wait(m, w, C_VM, 0);
	for (i = 0; i < to->width; i++)
		for (lane = 0; lane < m->lanes; lane++)
			if (a->lanes >> lane & 1)
				w->acc[(to->code - 256 + i) & 255][lane] = a->got[lane][i];
}

static void flat(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	const struct gfx_arg *to = find(in, 'd'), *from = find(in, 'b');
	unsigned code = in->x.op->code, i, lane;
	struct gfx_access *a;

	a = gfx_access_new(m, w, in, code >= 0x33 ? K_ATOMIC : to ? K_LOAD : K_STORE);
	a->lanes = gfx_mask(m, w, GFX_EXEC);
	if (a->kind == K_ATOMIC)
		a->size = (uint8_t)(code >= 0x41 ? 8 : 4);
	else
		a->size = (uint8_t)size_of(in, a->kind == K_LOAD ? to : from);
	if (from)
		copy_data(m, w, from, a, 0);
	set_addresses(m, w, in, a);
	for (lane = 0; lane < m->lanes && a->kind == K_LOAD; lane++)
		for (i = 0; i < 4; i++)
			a->got[lane][i] = 0;
	if (to && !in->acc) {
		a->reg = to->code;
		a->regs = to->width;
		a->part = to->part;
	}
	a->vm = to || m->code->family->one_counter;
	a->vs = !a->vm;
	a->lgkm = in->segment == 0; /* FLAT counts twice: it might have been local memory */
	if (to && in->acc)
		load_acc(m, w, a, to);
	else
		gfx_access_start(m, w, a);
}

/* Accesses by generic pointers that the wave has made before come first. */
static uint8_t *lds_in_order(struct gfx *m, struct gfx_wave *w, struct gfx_access *a, uint32_t addr, unsigned size)
{
	uint8_t *p = lds_at(m, w, addr, size);

	gfx_perform_older(m, w, a, (uintptr_t)p, (uintptr_t)p + size);
	return p;
}

/* One lane's part of a DS access of two addresses or one. */
static void lds_lane(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, struct gfx_access *a, unsigned lane,
		     uint32_t addr)
{
	bool two = strstr(in->x.op->name, "2addr") != NULL, store = strncmp(in->x.op->name, "ds_store_", 9) == 0;
	unsigned i, scale = strstr(in->x.op->name, "stride64") ? 64 : 1, size = two ? a->size / 2u : a->size;
	uint64_t old = 0, value = 0, compare = 0;
	uint8_t *p;

	for (i = 0; two && i < 2; i++) {
		p = lds_in_order(m, w, a, addr + (in->imm >> (8 * i) & 255) * scale * size, size);
		memcpy(store ? (void *)p : (uint8_t *)a->got[lane] + i * size, store ? (uint8_t *)a->data[lane] + i * size : (void *)p, size);
	}
	if (two)
		return;
	p = lds_in_order(m, w, a, addr + (uint32_t)in->imm, size);
	if (store) {
		memcpy(p, a->data[lane], size);
	} else if (strncmp(in->x.op->name, "ds_load_", 8) == 0) {
		memcpy(a->got[lane], p, size);
	} else {
		memcpy(&old, p, size);
		memcpy(&value, a->data[lane], size);
		memcpy(&compare, (uint8_t *)a->data[lane] + size, size);
		value = gfx_atomic(m, in->x.op, old, value, compare, size);
		memcpy(p, &value, size);
		memcpy(a->got[lane], &old, size);
	}
}

/* Values pass between lanes through the local memory's crossbar, which knows 32 of them: each half of a wave of 64 is on its own. */
static void permute(const struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, struct gfx_access *a, unsigned reg)
{
	bool pull = in->x.op->id == OP_ds_bpermute_b32;
	unsigned lane, other;

	for (lane = 0; lane < m->lanes; lane++) {
		other = (lane & 32) + (w->v[reg][lane] + (uint32_t)in->imm) / 4 % 32;
		if (pull)
			a->got[lane][0] = a->lanes >> other & 1 ? a->data[other][0] : 0;
		else if (a->lanes >> lane & 1)
			a->got[other][0] = a->data[lane][0];
	}
}

static void extend(const struct gfx *m, const struct gfx_inst *in, struct gfx_access *a)
{
	unsigned lane;

	for (lane = 0; lane < m->lanes; lane++) {
		if (strstr(in->x.op->name, "_i8"))
			a->got[lane][0] = (uint32_t)(int8_t)a->got[lane][0];
		else if (strstr(in->x.op->name, "_i16"))
			a->got[lane][0] = (uint32_t)(int16_t)a->got[lane][0];
	}
}

static void local(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	const struct gfx_arg *to = find(in, 'd'), *addr = find(in, 'a'), *from = find(in, 'b'), *second = find(in, 'c');
	struct gfx_access *a = gfx_access_new(m, w, in, K_READY);
	unsigned lane, reg = addr->code - 256u;

	a->lanes = gfx_mask(m, w, GFX_EXEC);
	gfx_check_vector(m, w, reg, 1, a->lanes);
	if (from)
		copy_data(m, w, from, a, 0);
	if (second)
		copy_data(m, w, second, a, from->width);
	a->size = (uint8_t)size_of(in, to && !from ? to : from);
	if (second && strstr(in->x.op->name, "2addr"))
		a->size = (uint8_t)(a->size * 2);
	memset(a->got, 0, sizeof(a->got));
	if (in->x.op->id == OP_ds_permute_b32 || in->x.op->id == OP_ds_bpermute_b32)
		permute(m, w, in, a, reg);
	else
		for (lane = 0; lane < m->lanes; lane++)
			if (a->lanes >> lane & 1)
				lds_lane(m, w, in, a, lane, w->v[reg][lane]);
	extend(m, in, a);
	if (to) {
		a->reg = to->code;
		a->regs = to->width;
	}
	a->lgkm = true;
	gfx_access_start(m, w, a);
}

/* gfx12 counts what goes to scalar registers by itself. */
static void count_scalar(struct gfx_access *a)
{
	a->km = a->in->isa == ISA_12;
	a->lgkm = !a->km;
}

void gfx_scalar_load(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, uint64_t addr)
{
	struct gfx_access *a;

	gfx_region_of(m, addr & ~3ull, 4u * in->x.arg[0].width, false);
	a = gfx_access_new(m, w, in, K_SCALAR);
	a->addr[0] = addr;
	a->low = addr & ~3ull;
	a->high = a->low + 4u * in->x.arg[0].width;
	a->lanes = a->left = 1;
	a->reg = in->x.arg[0].code;
	a->regs = in->x.arg[0].width;
	count_scalar(a);
	gfx_access_start(m, w, a);
}

/* A message's reply: there at once, but not to be read before the wait. */
void gfx_ready(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in, uint64_t value)
{
	struct gfx_access *a = gfx_access_new(m, w, in, K_READY);

	a->scalar[0] = (uint32_t)value;
	a->scalar[1] = (uint32_t)(value >> 32);
	a->reg = in->x.arg[0].code;
	a->regs = in->x.arg[0].width;
	count_scalar(a);
	gfx_access_start(m, w, a);
}

static void write_back(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	struct gfx_access *a = gfx_access_new(m, w, in, K_BACK);

	a->lanes = a->left = 1;
	a->vm = m->code->family->one_counter;
	a->vs = !a->vm;
	if (gfx_scope(in) == 3)
		w->kept = NULL;
	if (gfx_scope(in) >= 2)
		w->kept_near = NULL;
	gfx_access_start(m, w, a);
}

/* gfx12's is counted like a load, and over at once: it is not reordered with what is pending or to come. */
static void invalidate(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	struct gfx_access *a = gfx_access_new(m, w, in, K_READY);

	if (gfx_scope(in))
		gfx_invalidate_scope(m, w, gfx_scope(in));
	a->vm = true;
	gfx_access_start(m, w, a);
}

void gfx_memory(struct gfx *m, struct gfx_wave *w, const struct gfx_inst *in)
{
	if (in->format == F_DS)
		local(m, w, in);
	else if (in->x.op->id == OP_buffer_wbl2 || in->x.op->id == OP_wb)
		write_back(m, w, in);
	else if (in->x.op->id == OP_inv)
		invalidate(m, w, in);
	else if (in->x.op->id == OP_buffer_inv)
		gfx_invalidate_scope(m, w, gfx_scope(in));
	else if (in->format == F_MUBUF)
		gfx_invalidate(m, w, in->x.op->id == OP_buffer_gl1_inv);
	else
		flat(m, w, in);
}
