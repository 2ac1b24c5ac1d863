/* SPDX-License-Identifier: MIT */
/*
 * What the parts of test_schedule share: the shape of a run that a seed gives, the controller's coroutine, and what ends a run.
 * Included after schedule.h; SCHEDULE_PART is the name of the part.
 */
#ifndef TESTS_DEVICE_SCHEDULE_CASE_H
#define TESTS_DEVICE_SCHEDULE_CASE_H

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/rig.h"
#include "schedule_lanes.h"

#define STEPS 30000000u

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* each takes ten times as long, and a quarter reaches every line */
#define SEEDS(usual) ((usual) / 4u)
#else
#define SEEDS(usual) (usual)
#endif

enum trouble { NONE, SILENT, STOPPED }; /* the controller falls silent; the host says stop */

static struct {
	uint64_t seed, random;
	struct rig *rig;
	struct schedule_lanes lanes;
	uint32_t ops;
	enum trouble trouble;
	uint64_t trouble_at; /* steps */
} c;

static void describe(void); /* the part's: prints what this run has */

static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("[  FAILED  ] ");
	vprintf(format, args);
	va_end(args);
	printf("\n");
	describe();
	printf(", %u lanes in waves of %u, trouble %d, after %llu steps; replay: test_schedule " SCHEDULE_PART " %llu\n", c.lanes.count,
	       c.lanes.width, c.trouble, (unsigned long long)schedule.steps, (unsigned long long)c.seed);
	fflush(stdout);
	_Exit(1);
}

static uint32_t draw(uint32_t below)
{
	return schedule_draw(&c.random, below);
}

NO_TSAN static void trouble_comes(void)
{
	if (schedule.steps != c.trouble_at)
		return;
	if (c.trouble == STOPPED)
		__atomic_store_n(&c.rig->stop, 1, __ATOMIC_RELEASE);
	if (c.trouble == SILENT)
		mini_freeze(&c.rig->ctrl, true);
}

static void stuck(void)
{
	fail("no end in sight: %u of %u lanes have returned", __atomic_load_n(&c.lanes.over, __ATOMIC_RELAXED), c.lanes.count);
}

static void control(unsigned number)
{
	(void)number;
	while (schedule_goes_on(&c.lanes)) {
		schedule_step();
		mini_turn(&c.rig->ctrl);
	}
}

/* May a call end with this error today? */
static bool excused(int ret)
{
	return (c.trouble == SILENT && (ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ESHUTDOWN)) ||
	       (c.trouble == STOPPED && ret == -GPUNVME_ECANCELED);
}

static void choose_seed(uint64_t seed)
{
	memset(&c, 0, sizeof(c));
	c.seed = seed;
	c.random = seed * 0x9e3779b97f4a7c15u;
	draw(1);
}

static void choose_lanes(uint32_t few, uint32_t ops)
{
	static const uint32_t widths[] = { 1, 1, 4, 32, 64 };

	c.lanes.width = widths[draw(5)];
	c.lanes.count = c.lanes.width > 4 ? 1 + draw(SCHEDULE_LANES) : 2 + draw(few);
	c.ops = c.lanes.count > 16 ? 4 : ops;
}

static void choose_trouble(uint32_t one_in)
{
	c.trouble = draw(one_in) ? NONE : SILENT + draw(2);
	c.trouble_at = 1 + draw(c.lanes.count * 1000);
}

static void choose_controller(uint32_t window, uint16_t (*status)(uint64_t lba), void (*seen)(void *ctx, const struct gpunvme_sqe *cmd))
{
	c.rig->ctrl.opts = (struct mini_opts){ .seed = draw(1u << 30), .window = draw(2) ? 1 : 1 + draw(window),
					       .idle = draw(3) ? draw(60) : 0, .status = status };
	c.rig->ctrl.seen = seen;
	mini_begin(&c.rig->ctrl);
}

static void run_case(void (*check)(void), void (*work)(unsigned number))
{
	static const uint32_t stays[] = { 1, 2, 4, 16, 100 };

	schedule_start(c.seed, stays[draw(5)], STEPS, check, stuck);
	schedule_begin(&c.lanes, work, control);
	schedule_run();
	mini_freeze(&c.rig->ctrl, false); /* what no thread waits for comes in, too */
}

/* A turn of the controller and of the queue after the threads; after too many of them the identifiers are lost. */
static void drain_once(unsigned turns, uint32_t expected)
{
	if (turns == 100000)
		fail("%u of %u identifiers are free at the end, not %u", rig_free_cids(c.rig), c.rig->dq.cids, expected);
	schedule_drain(c.rig);
}

static inline void drain_rest(void)
{
	unsigned turns;

	for (turns = 0; rig_free_cids(c.rig) < c.rig->dq.cids; turns++)
		drain_once(turns, c.rig->dq.cids);
}

static void end_case(void)
{
	schedule_end(&c.lanes);
	rig_free(c.rig);
}

#endif
