/* SPDX-License-Identifier: MIT */
/* Lane functions and kernels of a program, each a launch on the executor: see lanes.h. */
#define DEFINES_CALLS
#include "gfx/lanes.h"

#include "gfx/calls.h"
#include "gfx/rings.h"

#include <gpunvme/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 128 /* struct gfx has room for some more */

static struct {
	struct gfx_code *code, *calls; /* kernels, and that of calls.hip, where the program launches it */
	struct gfx machine; /* rules, random numbers, the clock: what lasts from launch to launch */
	struct gfx_region region[MOST];
	unsigned regions;
} all;

void (*lanes_outside)(void);
uint64_t lanes_tick = 1;

static uint64_t setting(const char *name, uint64_t otherwise)
{
	const char *text = getenv(name);

	return text ? strtoull(text, NULL, 0) : otherwise;
}

static struct gfx_code *code_of(const char *name)
{
	const char *file = getenv(name);
	struct gfx_code *code;
	char why[300];

	snprintf(why, sizeof(why), "%s names no code object", name);
	code = file ? gfx_load(file, why, sizeof(why)) : NULL;
	if (!code) {
		printf("%s\n", why);
		exit(2);
	}
	return code;
}

static void load(void)
{
	all.code = code_of("GFX_CODE");
	all.machine.rules = (uint32_t)setting("GFX_RULES", GFX_NASTY);
	all.machine.random = setting("GFX_SEED", 1) * 0x9e3779b97f4a7c15ull + 77;
	all.machine.max_steps = setting("GFX_STEPS", 1000000000); /* in a season of slow memory kernels take thirty times their usual steps */
}

static void begin(void)
{
	if (!all.code)
		load();
}

uint32_t lanes_draw(uint32_t below)
{
	begin();
	return gfx_draw(&all.machine, below);
}

void lanes_forget(const void *base)
{
	unsigned i;

	for (i = 0; i < all.regions; i++)
		if (all.region[i].base == (uintptr_t)base)
			all.region[i--] = all.region[--all.regions];
}

static void add(const char *name, const void *base, uint64_t bytes, uint32_t flags)
{
	if (all.regions == MOST)
		abort();
	all.region[all.regions++] = (struct gfx_region){ name, (uintptr_t)base, bytes, flags };
}

void lanes_memory(const char *name, const void *base, uint64_t bytes, uint32_t flags)
{
	lanes_forget(base);
	add(name, base, bytes, flags);
}

void lanes_queue(const struct gpunvme_dq *dq, bool known)
{
	struct gfx_region part[GFX_QUEUE_PARTS];
	unsigned i, count = gfx_queue_parts(dq, part);

	for (i = 0; i < count; i++)
		if (known)
			lanes_memory(part[i].name, (void *)(uintptr_t)part[i].base, part[i].size, part[i].flags);
		else
			lanes_forget((void *)(uintptr_t)part[i].base);
}

static void turn(void *unused)
{
	(void)unused;
	if (lanes_outside)
		lanes_outside();
}

void lanes_idle(void)
{
	begin();
	all.machine.clock += 1000 * lanes_tick;
	turn(NULL);
}

uint64_t gnvd_clock(void)
{
	lanes_idle();
	return all.machine.clock;
}

static void launch(struct gfx_code *code, const char *kernel, uint32_t lanes, uint32_t width, const void *args, uint32_t bytes)
{
	struct gfx *m = &all.machine;
	unsigned i;

	m->code = code;
	m->step = 0;
	m->tick = lanes_tick;
	gfx_season(m);
	m->outside = turn;
	m->regions = 0;
	for (i = 0; i < all.regions; i++)
		gfx_register(m, all.region[i].name, (void *)(uintptr_t)all.region[i].base, all.region[i].size, all.region[i].flags);
	if (!gfx_launch(m, kernel, lanes, width, args, bytes))
		return;
	printf("%s: %s\n", kernel, m->error);
	exit(1);
}

void lanes_launch(const char *kernel, uint32_t lanes, uint32_t width, const void *args, uint32_t bytes)
{
	begin();
	launch(all.code, kernel, lanes, width, args, bytes);
}

static int call(struct call *c)
{
	unsigned before = all.regions;

	begin();
	if (!all.calls)
		all.calls = code_of("GFX_CALLS");
	add("call", c, sizeof(*c), 0);
	add("descriptor", c->dq, (c->what == CALL_POLL_QUEUE ? c->count : 1) * sizeof(*c->dq), GFX_READONLY);
	if (c->what == CALL_POLL_QUEUE)
		add("stop", (void *)(uintptr_t)c->pos, 4, 0);
	if (c->dbuf)
		add("buffer descriptor", c->dbuf, sizeof(*c->dbuf), GFX_READONLY);
	if (c->what == CALL_DISCARD || c->what == CALL_SUBMIT_DISCARD)
		add("range", (void *)(uintptr_t)(c->dbuf->base + c->offset), sizeof(struct gpunvme_dsm_range), GFX_DEVICE);
	if (c->req)
		add("handles", c->req, (c->what == CALL_WAIT_ANY ? c->count : 1) * sizeof(*c->req), 0);
	launch(all.calls, "call", 1, 1, &c, sizeof(c));
	all.regions = before;
	return c->ret;
}

int gpunvme_cpu_launch(uint32_t lanes, uint32_t width, void (*kernel)(void *arg), void *arg)
{
	const struct lanes_kernel *k;

	if (!lanes || !width || width > 32 || !kernel)
		return -GPUNVME_EINVAL;
	begin();
	for (k = lanes_kernels; k->function && k->function != kernel; k++)
		;
	if (!k->function)
		abort();
	if (arg)
		lanes_memory("argument", arg, k->bytes, 0);
	lanes_launch(k->name, lanes, width, &arg, sizeof(arg));
	lanes_forget(arg);
	return 0;
}

/* Kernels are compiled for the host only to have an address. */
uint32_t gpunvme_thread_id(void)
{
	abort();
}

uint32_t gpunvme_thread_count(void)
{
	abort();
}

uint32_t gnvd_wave_lanes(void)
{
	abort();
}

int lanes_no_file(struct gpunvme_cursor *cur, ...)
{
	(void)cur;
	abort();
}

int lanes_no_volume(const struct gpunvme_dvol *v, ...)
{
	(void)v;
	abort();
}

#define DATA .dq = dq, .dbuf = dbuf, .offset = offset, .pos = pos, .len = len

int gpunvme_read(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len)
{
	return call(&(struct call){ .what = CALL_READ, DATA });
}

int gpunvme_write(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
		  uint32_t flags)
{
	return call(&(struct call){ .what = CALL_WRITE, DATA, .flags = flags });
}

int gpunvme_submit_read(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			struct gpunvme_req *req)
{
	return call(&(struct call){ .what = CALL_SUBMIT_READ, DATA, .req = req });
}

int gpunvme_submit_write(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			 uint32_t flags, struct gpunvme_req *req)
{
	return call(&(struct call){ .what = CALL_SUBMIT_WRITE, DATA, .flags = flags, .req = req });
}

int gpunvme_wave_read(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len)
{
	return call(&(struct call){ .what = CALL_WAVE_READ, DATA });
}

int gpunvme_wave_write(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
		       uint32_t flags)
{
	return call(&(struct call){ .what = CALL_WAVE_WRITE, DATA, .flags = flags });
}

int gpunvme_wave_read_one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len)
{
	return call(&(struct call){ .what = CALL_WAVE_READ_ONE, DATA });
}

int gpunvme_wave_write_one(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			   uint32_t flags)
{
	return call(&(struct call){ .what = CALL_WAVE_WRITE_ONE, DATA, .flags = flags });
}

int gpunvme_discard(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len)
{
	return call(&(struct call){ .what = CALL_DISCARD, DATA });
}

int gpunvme_submit_discard(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos, uint64_t len,
			   struct gpunvme_req *req)
{
	return call(&(struct call){ .what = CALL_SUBMIT_DISCARD, DATA, .req = req });
}

int gpunvme_flush(const struct gpunvme_dq *dq)
{
	return call(&(struct call){ .what = CALL_FLUSH, .dq = dq });
}

int gpunvme_zero(const struct gpunvme_dq *dq, uint64_t pos, uint64_t len)
{
	return call(&(struct call){ .what = CALL_ZERO, .dq = dq, .pos = pos, .len = len });
}

int gpunvme_submit_flush(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	return call(&(struct call){ .what = CALL_SUBMIT_FLUSH, .dq = dq, .req = req });
}

int gpunvme_submit_zero(const struct gpunvme_dq *dq, uint64_t pos, uint64_t len, struct gpunvme_req *req)
{
	return call(&(struct call){ .what = CALL_SUBMIT_ZERO, .dq = dq, .pos = pos, .len = len, .req = req });
}

int gpunvme_poll(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	return call(&(struct call){ .what = CALL_POLL, .dq = dq, .req = req });
}

int gpunvme_wait(const struct gpunvme_dq *dq, struct gpunvme_req *req, uint64_t ticks)
{
	return call(&(struct call){ .what = CALL_WAIT, .dq = dq, .req = req, .ticks = ticks });
}

int gpunvme_wait_any(const struct gpunvme_dq *dq, struct gpunvme_req *req, uint32_t count, uint64_t ticks, uint32_t *index)
{
	struct call it = { .what = CALL_WAIT_ANY, .dq = dq, .req = req, .count = count, .ticks = ticks, .index = *index };
	int ret = call(&it);

	*index = it.index;
	return ret;
}

int gpunvme_poll_queue(const struct gpunvme_dq *dq, uint32_t count, uint64_t stop)
{
	return call(&(struct call){ .what = CALL_POLL_QUEUE, .dq = dq, .count = count, .pos = stop });
}

int gpunvme_detach(const struct gpunvme_dq *dq, struct gpunvme_req *req)
{
	return call(&(struct call){ .what = CALL_DETACH, .dq = dq, .req = req });
}

uint32_t gnvd_blocks_per_command(const struct gpunvme_dq *dq, uint64_t addr, uint32_t nblocks)
{
	return (uint32_t)call(&(struct call){ .what = CALL_BLOCKS, .dq = dq, .pos = addr, .count = nblocks });
}

void gnvd_set_data(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t bytes, struct gnvd_cmd *c)
{
	struct call it = { .what = CALL_SET_DATA, .dq = dq, .dbuf = dbuf, .offset = offset, .len = bytes };

	call(&it);
	c->prp1 = it.prp1;
	c->prp2 = it.prp2;
}
