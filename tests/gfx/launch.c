/* SPDX-License-Identifier: MIT */
/*
 * From a dispatch packet to waves that can run: registers, local memory and stack as the ABI wants them (AMDGPUUsage: initial
 * kernel execution state, kernel arguments, dispatch packet). And the packet and arguments themselves, for callers without them.
 */
#include "gfx/gfx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_LDS 65536
#define MAX_STACK 65536 /* of a lane */
#define PACKET 64
#define TTMP 108

void gfx_season(struct gfx *m)
{
	static const uint32_t forget[] = { 0, 0, 3, 30 }, stir[] = { 1, 5, 30, 100 }, stall[] = { 0, 30, 90, 99 };

	m->forget = forget[gfx_draw(m, 4)];
	m->stir = stir[gfx_draw(m, 4)];
	m->stall = stall[gfx_draw(m, 4)];
	m->ahead = 1u << gfx_draw(m, 6);
	m->season = gfx_draw(m, 1u << 16);
}

/* ---- Waves ---- */

static void set_pointer(struct gfx_wave *w, unsigned *at, const void *p)
{
	w->s[(*at)++] = (uint32_t)(uintptr_t)p;
	w->s[(*at)++] = (uint32_t)((uintptr_t)p >> 32);
}

/* Where a group lies in the grid, and how many lanes it has in each dimension. */
struct place {
	uint32_t group[3], size[3];
};

static uint32_t groups_in(const struct gfx_dispatch *d, unsigned dim)
{
	return (d->grid[dim] + d->width[dim] - 1) / d->width[dim];
}

static struct place place_of(const struct gfx_dispatch *d, unsigned group)
{
	struct place p;
	unsigned i;

	for (i = 0; i < 3; i++) {
		uint32_t rest;

		p.group[i] = group % groups_in(d, i);
		group /= groups_in(d, i);
		rest = d->grid[i] - p.group[i] * d->width[i];
		p.size[i] = rest < d->width[i] ? rest : d->width[i];
	}
	return p;
}

/* What VGPR 0 holds: x, and above it y and z if the kernel asks for so many dimensions. */
static uint32_t place_in_group(const struct place *p, uint32_t lane, uint32_t more)
{
	uint32_t x = lane % p->size[0], y = lane / p->size[0] % p->size[1], z = lane / p->size[0] / p->size[1];

	return x | (more >= 1 ? y << 10 : 0) | (more >= 2 ? z << 20 : 0);
}

static void init_wave(struct gfx *m, struct gfx_wave *w, const struct gfx_dispatch *d, unsigned number)
{
	const struct gfx_kernel *k = m->kernel;
	unsigned i, lane, at = 0, first = number % m->wave_of_group * m->lanes;
	struct place p = place_of(d, number / m->wave_of_group);
	uint32_t width = p.size[0] * p.size[1] * p.size[2];

	w->number = number;
	w->group = number / m->wave_of_group;
	w->state = first < width ? W_RUN : W_DONE;
	w->l0 = gfx_cache_new();
	for (i = 0; i < 106; i++)
		w->s[i] = gfx_draw(m, 1u << 31);
	for (i = 0; i < 256; i++)
		for (lane = 0; lane < m->lanes; lane++)
			w->v[i][lane] = gfx_draw(m, 1u << 31);
	at += k->properties & 1 ? 4 : 0;
	if (k->properties & 2)
		set_pointer(w, &at, d->packet);
	at += k->properties & 4 ? 2 : 0;
	if (k->properties & 8)
		set_pointer(w, &at, d->kernarg);
	at = k->user_sgprs;
	for (i = 0; i < 3 && m->code->family->isa != ISA_12; i++)
		if (k->rsrc2 >> (7 + i) & 1)
			w->s[at++] = p.group[i];
	w->s[TTMP + 9] = p.group[0]; /* where gfx12 looks for it */
	w->s[TTMP + 7] = p.group[1] | p.group[2] << 16;
	for (lane = 0; lane < m->lanes; lane++)
		w->v[0][lane] = place_in_group(&p, first + lane, k->rsrc2 >> 11 & 3);
	gfx_set_exec(m, w, width >= first + m->lanes ? ~0ull : (1ull << (width - first) % m->lanes) - 1);
	w->pc = (uintptr_t)m->code->image + k->entry;
}

/* A launch that shares no L2 with others begins and ends with fences of system scope. */
static void make_near(struct gfx *m)
{
	if (!m->code->family->near || !(m->rules & GFX_CACHES)) {
		m->near = NULL;
		return;
	}
	m->near_own = !m->near;
	if (m->near_own)
		m->near = gfx_cache_new();
	else if (!m->near_before)
		gfx_near_invalidate(m->near);
}

static void make_groups(struct gfx *m, const struct gfx_dispatch *d)
{
	uint8_t *lds;
	unsigned i;

	m->groups = groups_in(d, 0) * groups_in(d, 1) * groups_in(d, 2);
	m->wave_of_group = (d->width[0] * d->width[1] * d->width[2] + m->lanes - 1) / m->lanes;
	m->waves = m->groups * m->wave_of_group;
	m->group = calloc(m->groups, sizeof(*m->group));
	m->wave = calloc(m->waves, sizeof(*m->wave));
	m->l1 = gfx_cache_new();
	m->slice = d->stack;
	m->stack = calloc(m->waves * m->lanes + 1u, m->slice + 1u);
	m->far = gfx_cache_new();
	for (m->l2s = 0; m->l2s < (m->code->family->l2s ? 1 + m->season % m->code->family->l2s : 0); m->l2s++)
		m->l2[m->l2s] = gfx_cache_new();
	m->several = m->l2s > 1;
	make_near(m);
	lds = calloc(m->groups, d->lds + 1u);
	if (!m->group || !m->wave || !m->stack || !lds)
		abort();
	gfx_register(m, "kernel arguments", d->kernarg, m->kernel->kernarg, GFX_READONLY);
	gfx_register(m, "dispatch packet", d->packet, PACKET, GFX_READONLY);
	gfx_register(m, "code", m->code->image, m->code->size, GFX_READONLY);
	gfx_register(m, "stack", m->stack, (uint64_t)m->waves * m->lanes * m->slice, GFX_STACK);
	gfx_register(m, "local memory", lds, (uint64_t)m->groups * d->lds, GFX_STACK | GFX_LOCAL);
	for (i = 0; i < m->groups; i++) {
		m->group[i].lds_size = d->lds;
		m->group[i].lds = lds + i * (uint64_t)d->lds;
		m->group[i].scalar = gfx_cache_new();
	}
	for (i = 0; i < m->waves; i++)
		init_wave(m, &m->wave[i], d, i);
}

static void free_groups(struct gfx *m)
{
	unsigned i;

	for (i = 0; i < m->waves; i++)
		gfx_cache_free(m->wave[i].l0);
	free(m->group[0].lds); /* of all */
	for (i = 0; i < m->groups; i++)
		gfx_cache_free(m->group[i].scalar);
	gfx_cache_free(m->l1);
	gfx_cache_free(m->far);
	if (m->near_own)
		gfx_cache_free(m->near);
	m->near = m->near_own ? NULL : m->near;
	for (i = 0; i < m->l2s; i++)
		gfx_cache_free(m->l2[i]);
	free(m->wave);
	free(m->group);
	free(m->stack);
	m->current = NULL;
	m->wave = NULL;
	m->group = NULL;
}

/* A group has at most 1,024 lanes, and the grid so many groups. */
static bool fits(const struct gfx_dispatch *d)
{
	uint64_t lanes = 1, groups = 1;
	unsigned i;

	for (i = 0; i < 3 && lanes <= 1024 && groups <= 1024; i++) {
		if (!d->grid[i] || !d->width[i])
			return false;
		lanes *= d->width[i];
		groups *= groups_in(d, i);
	}
	return lanes <= 1024 && groups <= 1024;
}

static int check(struct gfx *m, const struct gfx_dispatch *d)
{
	const struct gfx_kernel *k = d->kernel;

	if (d->lds > MAX_LDS)
		snprintf(m->error, sizeof(m->error), "%s wants %u bytes of local memory, there are %u", k->name, d->lds, MAX_LDS);
	else if (d->stack > MAX_STACK)
		snprintf(m->error, sizeof(m->error), "%s wants %u bytes of stack, there are %u", k->name, d->stack, MAX_STACK);
	else if (d->lds < k->lds || d->stack < k->scratch)
		snprintf(m->error, sizeof(m->error), "%s wants %u bytes of local memory and %u of stack, the packet gives %u and %u",
			 k->name, k->lds, k->scratch, d->lds, d->stack);
	else if (!fits(d))
		snprintf(m->error, sizeof(m->error), "a grid of %u x %u x %u lanes in groups of %u x %u x %u", d->grid[0], d->grid[1],
			 d->grid[2], d->width[0], d->width[1], d->width[2]);
	else
		return 0;
	return -1;
}

int gfx_dispatch(struct gfx *m, const struct gfx_dispatch *d)
{
	unsigned regions = m->regions;
	int ret;

	m->kernel = d->kernel;
	m->lanes = m->code->lanes;
	m->cached_count = 0;
	m->tick = m->tick ? m->tick : 1;
	m->error[0] = 0;
	m->cause = GFX_REFUSED;
	if (check(m, d))
		return -1;
	make_groups(m, d);
	ret = m->threads > 1 && m->groups > 1 ? gfx_run_threads(m) : gfx_run(m);
	m->regions = regions;
	if (!ret && m->near && !m->near_after)
		gfx_near_write_back(m->near);
	free_groups(m);
	return ret;
}

/* ---- Without a packet ---- */

static void put32(uint8_t *at, uint32_t v)
{
	memcpy(at, &v, 4);
}

static void put16(uint8_t *at, unsigned v)
{
	at[0] = (uint8_t)v;
	at[1] = (uint8_t)(v >> 8);
}

static void make_packet(uint8_t *packet, uint32_t lanes, uint32_t width)
{
	put16(packet + 2, 1);
	put16(packet + 4, width);
	put16(packet + 6, 1);
	put16(packet + 8, 1);
	put32(packet + 12, lanes);
	put32(packet + 16, 1);
	put32(packet + 20, 1);
}

static void make_hidden(uint8_t *hidden, uint32_t lanes, uint32_t width)
{
	put32(hidden, lanes / width);
	put32(hidden + 4, 1);
	put32(hidden + 8, 1);
	put16(hidden + 12, width);
	put16(hidden + 14, 1);
	put16(hidden + 16, 1);
	put16(hidden + 18, lanes % width);
	put16(hidden + 64, 1);
}

int gfx_launch(struct gfx *m, const char *kernel, uint32_t lanes, uint32_t width, const void *args, uint32_t bytes)
{
	const struct gfx_kernel *k = gfx_find(m->code, kernel);
	uint32_t size = k && k->kernarg > bytes ? k->kernarg : bytes;
	uint8_t packet[PACKET] = { 0 }, *kernarg;
	int ret;

	if (!k || k->explicit_size != bytes) {
		if (!k)
			snprintf(m->error, sizeof(m->error), "the code object has no kernel '%s'", kernel);
		else
			snprintf(m->error, sizeof(m->error), "%s takes %u bytes of arguments, not %u", kernel, k->explicit_size, bytes);
		return -1;
	}
	kernarg = calloc(1, size + 512);
	if (!kernarg)
		abort();
	memcpy(kernarg, args, bytes);
	if (width && k->hidden && k->hidden + 66 <= size + 512)
		make_hidden(kernarg + k->hidden, lanes, width);
	make_packet(packet, lanes, width);
	ret = gfx_dispatch(m, &(struct gfx_dispatch){ k, { lanes, 1, 1 }, { width, 1, 1 }, k->lds, k->scratch, kernarg, packet });
	free(kernarg);
	return ret;
}
