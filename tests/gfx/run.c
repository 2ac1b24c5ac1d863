/* SPDX-License-Identifier: MIT */
/* Waves run: the scheduler, barriers, the end, and what is said of a failure. launch.c makes them. */
#include "gfx/gfx.h"

#include <stdarg.h>
#include <stdio.h>

static uint64_t code_base(const struct gfx *m)
{
	return (uintptr_t)m->code->image;
}

void gfx_fail_as(struct gfx *m, enum gfx_cause cause, const char *format, ...)
{
	size_t used = 0;
	va_list ap;

	m->cause = cause;
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

/* ---- Execution ---- */

static const struct gfx_inst *fetch(struct gfx *m, struct gfx_wave *w)
{
	uint64_t at = w->pc - code_base(m) - m->code->text;
	struct gfx_inst *in;

	w->trace[w->executed++ % 16] = w->pc;
	m->fault = w->pc;
	if (at >= m->code->text_size || at & 3)
		gfx_fail_as(m, GFX_FAULT, "jumps to %#llx, where no code is", (unsigned long long)at);
	in = &m->code->inst[at / 4];
	if (!in->len)
		gfx_decode(m->code, at, in);
	if (!in->len)
		gfx_fail_as(m, GFX_ILLEGAL, "unknown instruction %08x %08x %08x", in->word[0], in->word[1], in->word[2]);
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

/* A barrier opens when all waves of the group that have not ended have said that they have come. */
static void open_barrier(struct gfx *m, struct gfx_wave *w)
{
	unsigned i, least = ~0u;

	w -= w->number % m->wave_of_group;
	for (i = 0; i < m->wave_of_group; i++)
		if (w[i].state != W_DONE && w[i].signals < least)
			least = w[i].signals;
	for (i = 0; i < m->wave_of_group; i++)
		if (w[i].state == W_BARRIER && w[i].signals <= least)
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
		open_barrier(m, w);
		if (m->rules & GFX_SCHEDULE && !gfx_draw(m, 60))
			w->asleep = m->step + gfx_draw(m, 1u << gfx_draw(m, 15));
		if (m->step > m->max_steps)
			gfx_fail_as(m, GFX_ENDLESS, "does not end within %llu instructions", (unsigned long long)m->max_steps);
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
		gfx_wait(m, &m->wave[i], C_KM, 0);
	}
	gfx_write_back_all(m);
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
