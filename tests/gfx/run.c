/* SPDX-License-Identifier: MIT */
/* A launch: registers and arguments as the ABI wants them, the scheduler, barriers, the end, and what is said of a failure. */
#include "gfx/gfx.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXEC 126
#define MAX_LDS 65536
#define MAX_STACK 65536 /* of a lane */

static uint64_t code_base(const struct gfx *m)
{
	return (uintptr_t)m->code->image;
}

void gfx_fail(struct gfx *m, const char *format, ...)
{
	size_t used = 0;
	va_list ap;

	if (m->current)
		used = (size_t)snprintf(m->error, sizeof(m->error), "wave %u at %#llx: ", m->current->number,
					(unsigned long long)(m->current->trace[(m->current->executed - 1) % 16] - code_base(m)));
	va_start(ap, format);
	vsnprintf(m->error + used, sizeof(m->error) - used, format, ap);
	va_end(ap);
	longjmp(m->stop, 1);
}

static void trace_notes(const struct gfx *m)
{
	unsigned size = sizeof(m->note) / sizeof(m->note[0]), i = m->noted > size ? m->noted - size : 0, r;

	printf("last accesses to memory:\n");
	for (; i < m->noted; i++) {
		const struct gfx_note *n = &m->note[i % size];
		const struct gfx_region *in = NULL;

		for (r = 0; r < m->regions; r++)
			if (n->addr - m->region[r].base < m->region[r].size)
				in = &m->region[r];
		printf("  step %llu wave %u %s %s+%#llx %#llx\n", (unsigned long long)n->step, n->wave,
		       n->kind == 'r' ? "reads" : n->kind == 'w' ? "writes" : "atomic", in ? in->name : "?",
		       (unsigned long long)(in ? n->addr - in->base : n->addr), (unsigned long long)n->value);
	}
}

void gfx_trace(const struct gfx *m)
{
	const struct gfx_wave *w = m->current;
	char text[160];
	uint64_t i;

	trace_notes(m);
	if (!w || !m->wave)
		return;
	printf("last instructions of wave %u:\n", w->number);
	for (i = w->executed > 16 ? w->executed - 16 : 0; i < w->executed; i++) {
		uint64_t at = w->trace[i % 16] - code_base(m);

		if (at - m->code->text >= m->code->text_size)
			continue;
		gfx_text(&m->code->inst[(at - m->code->text) / 4], text, sizeof(text));
		printf("  %#llx: %s\n", (unsigned long long)at, text);
	}
}

/* ---- The state a kernel starts with (AMDGPUUsage: initial kernel execution state, kernel arguments, dispatch packet) ---- */

struct launch {
	uint32_t lanes, width;
	uint8_t *kernarg, *packet;
};

static void put32(uint8_t *at, uint32_t v)
{
	memcpy(at, &v, 4);
}

static void put16(uint8_t *at, unsigned v)
{
	at[0] = (uint8_t)v;
	at[1] = (uint8_t)(v >> 8);
}

static void make_arguments(struct gfx *m, struct launch *l, const void *args, uint32_t bytes)
{
	const struct gfx_kernel *k = m->kernel;
	uint32_t size = k->kernarg > bytes ? k->kernarg : bytes;
	uint8_t *hidden;

	l->kernarg = calloc(1, size + 512);
	l->packet = calloc(1, 64);
	if (!l->kernarg || !l->packet)
		abort();
	memcpy(l->kernarg, args, bytes);
	if (k->hidden && k->hidden + 66 <= size + 512) {
		hidden = l->kernarg + k->hidden;
		put32(hidden, l->lanes / l->width);
		put32(hidden + 4, 1);
		put32(hidden + 8, 1);
		put16(hidden + 12, l->width);
		put16(hidden + 14, 1);
		put16(hidden + 16, 1);
		put16(hidden + 18, l->lanes % l->width);
		put16(hidden + 64, 1);
	}
	put16(l->packet + 2, 1);
	put16(l->packet + 4, l->width);
	put16(l->packet + 6, 1);
	put16(l->packet + 8, 1);
	put32(l->packet + 12, l->lanes);
	put32(l->packet + 16, 1);
	put32(l->packet + 20, 1);
	gfx_register(m, "kernel arguments", l->kernarg, size, GFX_READONLY);
	gfx_register(m, "dispatch packet", l->packet, 64, GFX_READONLY);
	gfx_register(m, "code", m->code->image, m->code->size, GFX_READONLY);
}

static void set_pointer(struct gfx_wave *w, unsigned *at, const void *p)
{
	w->s[(*at)++] = (uint32_t)(uintptr_t)p;
	w->s[(*at)++] = (uint32_t)((uintptr_t)p >> 32);
}

static void init_wave(struct gfx *m, struct gfx_wave *w, const struct launch *l, unsigned number)
{
	const struct gfx_kernel *k = m->kernel;
	unsigned i, lane, at = 0, first = number % m->wave_of_group * GFX_LANES, group = number / m->wave_of_group;
	uint32_t width = l->lanes - group * l->width < l->width ? l->lanes - group * l->width : l->width;

	w->number = number;
	w->group = group;
	w->state = first < width ? W_RUN : W_DONE;
	w->l0 = gfx_cache_new();
	for (i = 0; i < 106; i++)
		w->s[i] = gfx_draw(m, 1u << 31);
	for (i = 0; i < 256; i++)
		for (lane = 0; lane < GFX_LANES; lane++)
			w->v[i][lane] = gfx_draw(m, 1u << 31);
	at += k->properties & 1 ? 4 : 0;
	if (k->properties & 2)
		set_pointer(w, &at, l->packet);
	at += k->properties & 4 ? 2 : 0;
	if (k->properties & 8)
		set_pointer(w, &at, l->kernarg);
	at = k->user_sgprs;
	if (k->rsrc2 >> 7 & 1)
		w->s[at++] = w->group;
	if (k->rsrc2 >> 8 & 1)
		w->s[at++] = 0;
	if (k->rsrc2 >> 9 & 1)
		w->s[at++] = 0;
	for (lane = 0; lane < GFX_LANES; lane++)
		w->v[0][lane] = first + lane;
	w->s[EXEC] = width >= first + GFX_LANES ? ~0u : (1u << (width - first) % GFX_LANES) - 1;
	w->pc = code_base(m) + k->entry;
}

static int check_launch(struct gfx *m, const char *name, const struct launch *l, uint32_t bytes)
{
	const struct gfx_kernel *k = m->kernel;

	if (!k)
		snprintf(m->error, sizeof(m->error), "the code object has no kernel '%s'", name);
	else if (!(k->properties >> 10 & 1))
		snprintf(m->error, sizeof(m->error), "%s is compiled for waves of 64 lanes", name);
	else if (k->lds > MAX_LDS)
		snprintf(m->error, sizeof(m->error), "%s wants %u bytes of local memory, there are %u", name, k->lds, MAX_LDS);
	else if (k->scratch > MAX_STACK)
		snprintf(m->error, sizeof(m->error), "%s wants %u bytes of stack, there are %u", name, k->scratch, MAX_STACK);
	else if (k->explicit_size != bytes)
		snprintf(m->error, sizeof(m->error), "%s takes %u bytes of arguments, not %u", name, k->explicit_size, bytes);
	else if (!l->lanes || !l->width || l->width > 1024 || l->lanes / l->width > 1024)
		snprintf(m->error, sizeof(m->error), "a grid of %u lanes in groups of %u", l->lanes, l->width);
	else
		return 0;
	return -1;
}

/* ---- Execution ---- */

static const struct gfx_inst *fetch(struct gfx *m, struct gfx_wave *w)
{
	uint64_t at = w->pc - code_base(m) - m->code->text;
	struct gfx_inst *in;

	w->trace[w->executed++ % 16] = w->pc;
	if (at >= m->code->text_size || at & 3)
		gfx_fail(m, "jumps to %#llx, where no code is", (unsigned long long)at);
	in = &m->code->inst[at / 4];
	if (!in->len)
		gfx_decode(in, m->code->image + m->code->text + at, m->code->text_size - at, m->code->text + at);
	if (!in->len)
		gfx_fail(m, "unknown instruction %08x %08x %08x", in->word[0], in->word[1], in->word[2]);
	w->pc += in->len;
	return in;
}

static void step(struct gfx *m, struct gfx_wave *w)
{
	const struct gfx_inst *in = fetch(m, w);

	m->step++;
	m->clock += m->tick;
	if (in->format <= F_SMEM)
		gfx_scalar(m, w, in);
	else if (in->format <= F_VOPD)
		gfx_vector(m, w, in);
	else
		gfx_memory(m, w, in);
	if (m->rules & (GFX_LATE | GFX_STORES) && w->count && gfx_draw(m, 100) < m->stir)
		gfx_stir(m, w);
}

/* A barrier opens when all waves of the group that still run have come. */
static void open_barrier(struct gfx *m, struct gfx_wave *w)
{
	unsigned i;

	w -= w->number % m->wave_of_group;
	for (i = 0; i < m->wave_of_group; i++)
		if (w[i].state == W_RUN)
			return;
	for (i = 0; i < m->wave_of_group; i++)
		if (w[i].state == W_BARRIER)
			w[i].state = W_RUN;
}

static struct gfx_wave *choose(struct gfx *m, unsigned *turn)
{
	unsigned i, start = m->rules & GFX_SCHEDULE ? gfx_draw(m, m->waves) : (*turn)++ % m->waves;
	struct gfx_wave *w, *any = NULL;

	for (i = 0; i < m->waves; i++) {
		w = &m->wave[(start + i) % m->waves];
		if (w->state != W_RUN)
			continue;
		if (w->asleep <= m->step)
			return w;
		any = w;
	}
	return any;
}

static void around(struct gfx *m)
{
	unsigned i;

	if (m->outside && (!(m->rules & GFX_SCHEDULE) || gfx_draw(m, 3)))
		m->outside(m->outside_ctx);
	for (i = 0; m->rules & (GFX_LATE | GFX_STORES) && i < 2; i++) {
		struct gfx_wave *w = &m->wave[gfx_draw(m, m->waves)];

		if (gfx_draw(m, 100) < m->stir)
			gfx_stir(m, w);
	}
	for (i = 0; m->rules & GFX_CACHES && i < m->ahead; i++)
		gfx_fetch_ahead(m, &m->wave[gfx_draw(m, m->waves)]);
	if (m->rules & GFX_CLOCK && !gfx_draw(m, 1000))
		m->clock += gfx_draw(m, 20000) * m->tick;
}

static void execute(struct gfx *m)
{
	unsigned turn = 0, slice;
	struct gfx_wave *w;

	while ((w = choose(m, &turn))) {
		m->current = w;
		w->yield = false;
		slice = m->rules & GFX_SCHEDULE ? 1 + gfx_draw(m, 1u << gfx_draw(m, 9)) : 64;
		while (slice-- && w->state == W_RUN && !w->yield)
			step(m, w);
		if (w->state != W_RUN)
			open_barrier(m, w);
		if (m->rules & GFX_SCHEDULE && !gfx_draw(m, 60))
			w->asleep = m->step + gfx_draw(m, 1u << gfx_draw(m, 15));
		if (m->step > m->max_steps)
			gfx_fail(m, "does not end within %llu instructions", (unsigned long long)m->max_steps);
		if (m->halt && __atomic_load_n(m->halt, __ATOMIC_RELAXED))
			gfx_fail(m, "is stopped");
		around(m);
	}
}

/* What is still under way when the kernel has ended arrives all the same. */
static void drain(struct gfx *m)
{
	unsigned i;

	for (i = 0; i < m->waves; i++) {
		m->current = &m->wave[i];
		gfx_wait(m, &m->wave[i], C_VS, 0);
		gfx_wait(m, &m->wave[i], C_VM, 0);
		gfx_wait(m, &m->wave[i], C_LGKM, 0);
	}
	m->current = NULL;
}

int gfx_run(struct gfx *m)
{
	if (!setjmp(m->stop)) {
		execute(m);
		drain(m);
		return 0;
	}
	if (!m->halt || !__atomic_exchange_n(m->halt, 1, __ATOMIC_RELAXED))
		gfx_trace(m);
	else
		m->error[0] = 0;
	return -1;
}

static void free_launch(struct gfx *m, struct launch *l)
{
	unsigned i;

	for (i = 0; i < m->waves; i++)
		gfx_cache_free(m->wave[i].l0);
	for (i = 0; i < m->groups; i++) {
		free(m->group[i].lds);
		gfx_cache_free(m->group[i].scalar);
	}
	gfx_cache_free(m->l1);
	gfx_cache_free(m->far);
	free(m->wave);
	free(m->group);
	free(m->stack);
	free(l->kernarg);
	free(l->packet);
	m->current = NULL;
	m->wave = NULL;
	m->group = NULL;
}

static void make_groups(struct gfx *m, const struct launch *l)
{
	unsigned i;

	m->groups = (l->lanes + l->width - 1) / l->width;
	m->wave_of_group = (l->width + GFX_LANES - 1) / GFX_LANES;
	m->waves = m->groups * m->wave_of_group;
	m->group = calloc(m->groups, sizeof(*m->group));
	m->wave = calloc(m->waves, sizeof(*m->wave));
	m->l1 = gfx_cache_new();
	m->stack = calloc(m->waves * GFX_LANES + 1u, m->kernel->scratch + 1u);
	m->far = gfx_cache_new();
	if (!m->group || !m->wave || !m->stack)
		abort();
	gfx_register(m, "stack", m->stack, (uint64_t)m->waves * GFX_LANES * m->kernel->scratch, 0);
	for (i = 0; i < m->groups; i++) {
		m->group[i].lds_size = m->kernel->lds;
		m->group[i].lds = calloc(1, m->kernel->lds + 1u);
		m->group[i].scalar = gfx_cache_new();
		if (!m->group[i].lds)
			abort();
	}
	for (i = 0; i < m->waves; i++)
		init_wave(m, &m->wave[i], l, i);
}

int gfx_launch(struct gfx *m, const char *kernel, uint32_t lanes, uint32_t width, const void *args, uint32_t bytes)
{
	struct launch *l = &(struct launch){ .lanes = lanes, .width = width };
	unsigned regions = m->regions;
	int ret;

	m->kernel = gfx_find(m->code, kernel);
	m->cached_count = 0;
	m->tick = m->tick ? m->tick : 1;
	m->error[0] = 0;
	if (check_launch(m, kernel, l, bytes))
		return -1;
	make_arguments(m, l, args, bytes);
	make_groups(m, l);
	ret = m->threads > 1 && m->groups > 1 ? gfx_run_threads(m) : gfx_run(m);
	m->regions = regions;
	free_launch(m, l);
	return ret;
}
