/* SPDX-License-Identifier: MIT */
/* The wait detector, GFX_WAITS: what must be over before a wave says that it is. It needs no luck. */
#include "gfx/memory.h"

/* What is under way, but for constants, the stack, local memory and replies of messages, which no release is about. */
static bool unfinished(const struct gfx_access *a)
{
	return (a->vm || a->vs) && a->kind != K_READY && !(a->flags & GFX_STACK) && !(a->kind == K_LOAD && a->flags & GFX_READONLY);
}

_Noreturn static void fail_release(struct gfx *m, const char *what, const struct gfx_inst *in)
{
	char text[160];

	gfx_text(in, text, sizeof(text));
	gfx_fail(m, "%s '%s' at %#llx", what, text, (unsigned long long)in->addr);
}

/* What is to be written back before the next release: what was stored, and what others have said that they stored. */
static void remember(struct gfx *m, struct gfx_wave *w, const struct gfx_access *a)
{
	unsigned scope = gfx_scope(a->in);

	if (!m->code->family->l2s || a->flags & (GFX_STACK | GFX_BELL))
		return;
	if ((a->kind == K_STORE && a->flags & GFX_DEVICE && scope != 3) || (a->kind == K_LOAD && a->flags & GFX_RELEASED))
		w->kept = a->in;
	if (a->kind == K_STORE && scope < 2 && m->code->family->l2s > 1)
		w->kept_near = a->in;
}

void gfx_check_waits(struct gfx *m, struct gfx_wave *w, const struct gfx_access *a)
{
	bool release = a->kind == K_STORE && a->flags & GFX_RELEASED;
	const struct gfx_inst *kept = a->flags & GFX_BELL ? w->kept : w->kept_near; /* before this one */
	unsigned i;

	remember(m, w, a);
	if (!(m->rules & GFX_WAITS) || (a->kind != K_STORE && a->kind != K_ATOMIC))
		return;
	if (release && kept)
		fail_release(m, "releases without a write-back behind", kept);

	for (i = 0; i < w->count && gfx_pending(w, i) != a; i++) {
		const struct gfx_access *o = gfx_pending(w, i);

		if (!unfinished(o) || !(release || o->flags & GFX_BELL))
			continue;
		fail_release(m, release ? "releases before the wait for" : "goes on behind a doorbell before the wait for", o->in);
	}
}
