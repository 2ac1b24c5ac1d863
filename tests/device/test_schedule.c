/* SPDX-License-Identifier: MIT */
/*
 * The schedule fuzzer: the device header on coroutines, with one seed for the shape of a run (ring, width, lanes, what they do, how
 * the controller behaves, where counters begin) and for every switch between them.
 *
 *   test_schedule            a fixed list of seeds; GPUNVME_SCHEDULES=N in the environment: that many
 *   test_schedule SEED       that one again
 *
 * Every command has a stamp of its own, from which the controller derives its status. At the end each stamp that was issued was
 * fetched once and its lane got that status once, all identifiers are free, no failed command that nobody waited for is missing, and
 * every completion was counted, of runs with an odd seed its time, too.
 */
#include "schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/rig.h"
#include "schedule_lanes.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* each takes ten times as long, and 250 reach every line that 1000 do */
#define SEEDS 250u
#else
#define SEEDS 1000u
#endif
#define LANES SCHEDULE_LANES
#define OPS 12u
#define HELD 3u
#define STAMPS (LANES * OPS * 4)
#define FIRST_STAMP 8u
#define STEPS 30000000u

enum trouble { NONE, SILENT, STOPPED }; /* the controller falls silent; the host says stop */

static struct {
	uint64_t seed, random;
	struct rig *rig;
	struct schedule_lanes lanes;
	uint32_t ops, errors; /* errors: one status in so many is one; 0: none */
	enum trouble trouble;
	uint64_t trouble_at; /* steps */
	uint64_t rung;       /* position the doorbell stands for */
	uint64_t taken;      /* the same of the CQ's */
	uint8_t seen[STAMPS], want[STAMPS]; /* fetched by the controller; issued by a lane */
	uint64_t unheard;    /* failed commands nobody waits for (atomic) */
} t;

static uint64_t commands; /* of all runs */

static _Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	printf("[  FAILED  ] ");
	vprintf(format, args);
	va_end(args);
	printf("\nring 2^%u from %llu, %u lanes in waves of %u, after %llu steps; replay: test_schedule %llu\n", t.rig->dq.sq_shift,
	       (unsigned long long)t.rig->ctrl.q.start, t.lanes.count, t.lanes.width, (unsigned long long)schedule.steps,
	       (unsigned long long)t.seed);
	fflush(stdout);
	_Exit(1);
}

static uint32_t draw(uint32_t below)
{
	return schedule_draw(&t.random, below);
}

/* ---- What always holds ---- */

NO_TSAN static void check(void)
{
	const struct gpunvme_dq_state *s = t.rig->state;

	if (s->fetched > s->pub || s->pub > s->resv || s->resv - s->fetched >= 1ull << t.rig->dq.sq_shift)
		fail("positions out of order: fetched %llu, pub %llu, resv %llu", (unsigned long long)s->fetched,
		     (unsigned long long)s->pub, (unsigned long long)s->resv);
	if (t.trouble == STOPPED && schedule.steps == t.trouble_at)
		__atomic_store_n(&t.rig->stop, 1, __ATOMIC_RELEASE);
	if (t.trouble == SILENT && schedule.steps == t.trouble_at)
		mini_freeze(&t.rig->ctrl, true);
}

static void stuck(void)
{
	fail("no end in sight: %u of %u lanes have returned", __atomic_load_n(&t.lanes.over, __ATOMIC_RELAXED), t.lanes.count);
}

/*
 * What a drive reports, and a controller that polls does not notice: the value of before, a step back, and beyond what was posted (Base
 * Specification 3.1.2.2 and the events of Invalid Doorbell Write Value).
 */
NO_TSAN static void taken(uint32_t value)
{
	uint32_t step = (value - (uint32_t)t.taken) & ((1u << t.rig->dq.cq_shift) - 1);

	if (!step || step > t.rig->ctrl.completed - t.taken)
		fail("the CQ doorbell goes from %llu to slot %u while %llu were posted", (unsigned long long)t.taken, value,
		     (unsigned long long)t.rig->ctrl.completed);
	t.taken += step;
}

NO_TSAN static void schedule_doorbell(uint64_t at, uint32_t value)
{
	const struct gpunvme_sqe *sq = (const struct gpunvme_sqe *)(uintptr_t)t.rig->dq.sq;
	uint64_t mask = (1ull << t.rig->dq.sq_shift) - 1, stamp, pos;

	if (at != t.rig->dq.sq_db) {
		taken(value);
		return;
	}
	if (t.rig->state->pub <= t.rung || (t.rig->state->pub & mask) != value)
		fail("the doorbell goes from %llu to slot %u while pub is %llu", (unsigned long long)t.rung, value,
		     (unsigned long long)t.rig->state->pub);
	for (pos = t.rung; pos < t.rig->state->pub; pos++) {
		stamp = (sq[pos & mask].cdw10 | (uint64_t)sq[pos & mask].cdw11 << 32) - FIRST_STAMP;
		if (stamp >= STAMPS || t.seen[stamp])
			fail("the doorbell covers position %llu, which is not written", (unsigned long long)pos);
	}
	t.rung = t.rig->state->pub;
}

/* ---- The controller ---- */

static uint16_t status_of(uint64_t stamp)
{
	uint64_t random = stamp ^ t.seed;

	schedule_draw(&random, 1);
	return t.errors && !schedule_draw(&random, t.errors) ? (uint16_t)(1 + schedule_draw(&random, GPUNVME_ST_CODE)) : 0;
}

static void on_fetch(void *ctx, const struct gpunvme_sqe *cmd)
{
	uint64_t stamp = (cmd->cdw10 | (uint64_t)cmd->cdw11 << 32) - FIRST_STAMP;

	(void)ctx;
	if (stamp >= STAMPS || t.seen[stamp]++)
		fail("the controller fetched stamp %llu, which is not a command, or for the second time", (unsigned long long)stamp);
}

static void control(unsigned number)
{
	(void)number;
	while (schedule_goes_on(&t.lanes)) {
		schedule_step();
		mini_turn(&t.rig->ctrl);
	}
}

/* ---- The lanes ---- */

/* May a call end with this error today? */
static bool excused(int ret)
{
	return (t.trouble == SILENT && (ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ESHUTDOWN)) ||
	       (t.trouble == STOPPED && ret == -GPUNVME_ECANCELED);
}

/* Returns true to go on. */
static bool judge(const char *what, uint64_t stamp, int ret)
{
	if (ret == status_of(stamp))
		return true;
	if (!excused(ret))
		fail("%s of stamp %llu: %d instead of %d", what, (unsigned long long)(stamp - FIRST_STAMP), ret, status_of(stamp));
	return false;
}

static void issued(uint64_t stamp)
{
	t.want[stamp - FIRST_STAMP]++;
}

static void nobody_asks(uint64_t stamp)
{
	if (status_of(stamp))
		__atomic_fetch_add(&t.unheard, 1, __ATOMIC_RELAXED);
}

struct held {
	struct gpunvme_req req[HELD];
	uint64_t stamp[HELD];
	uint32_t count;
};

static void give_up(struct held *h, uint32_t i)
{
	if (gpunvme_abandon(&t.rig->dq, &h->req[i]))
		fail("the handle of stamp %llu is not valid", (unsigned long long)(h->stamp[i] - FIRST_STAMP));
	nobody_asks(h->stamp[i]);
}

/* Until it is over, one way or another. */
static bool collect(struct held *h, uint32_t i)
{
	struct gpunvme_req copy = h->req[i];
	uint32_t way = draw(4);
	int ret = -GPUNVME_EAGAIN;

	if (way == 0) {
		give_up(h, i);
		return true;
	}
	while (way == 1 && ret == -GPUNVME_EAGAIN) {
		ret = gpunvme_poll(&t.rig->dq, &h->req[i]);
		schedule_yield();
	}
	if (way == 2) {
		ret = gpunvme_wait(&t.rig->dq, &h->req[i], 1 + draw(20000));
		if (ret == -GPUNVME_ETIMEDOUT && h->req[i].tag && draw(2)) {
			give_up(h, i);
			return true;
		}
	}
	if ((way == 2 && ret == -GPUNVME_ETIMEDOUT && h->req[i].tag) || way == 3)
		ret = gpunvme_wait(&t.rig->dq, &h->req[i], 0);
	if (judge("wait", h->stamp[i], ret)) {
		ret = gpunvme_poll(&t.rig->dq, &copy);
		if (ret != -GPUNVME_ESTALE)
			fail("a consumed handle of stamp %llu answers %d", (unsigned long long)(h->stamp[i] - FIRST_STAMP), ret);
		return true;
	}
	give_up(h, i);
	return false;
}

static bool collect_all(struct held *h)
{
	bool good = true;

	while (h->count) {
		uint32_t i = draw(h->count);

		good = collect(h, i) && good;
		h->count--;
		h->req[i] = h->req[h->count];
		h->stamp[i] = h->stamp[h->count];
	}
	return good;
}

/* Start a command; with `req` NULL nobody will ask. What is held goes first when there is no room. */
static bool start(struct held *h, uint64_t stamp, struct gpunvme_req *req)
{
	uint32_t tries;
	int ret;

	for (tries = 0;; tries++) {
		ret = draw(2) ? gpunvme_submit_read(&t.rig->dq, &t.rig->dbuf, 0, stamp, 1, req) :
				gpunvme_submit_write(&t.rig->dq, &t.rig->dbuf, 512, stamp, 2, req);
		if (ret != -GPUNVME_EAGAIN)
			break;
		if (h->count && !collect_all(h))
			return false;
		req = req ? &h->req[0] : NULL;
		schedule_yield();
		if (t.trouble == SILENT && tries > 100)
			return false; /* when nobody waits for what fills the queue, only the host's watchdog ends this */
	}
	if (ret) {
		if (!excused(ret))
			fail("submit of stamp %llu: %d", (unsigned long long)(stamp - FIRST_STAMP), ret);
		return false;
	}
	issued(stamp);
	if (req)
		h->stamp[h->count++] = stamp;
	else
		nobody_asks(stamp);
	return true;
}

/* A transfer of one or two commands; the second is issued when the first succeeded. */
static bool transfer(uint64_t stamp)
{
	uint32_t blocks = 1 + draw(4);
	int ret = draw(2) ? gpunvme_read(&t.rig->dq, &t.rig->dbuf, 1024, stamp, blocks) :
			    gpunvme_write(&t.rig->dq, &t.rig->dbuf, 0, stamp, blocks);
	bool two = blocks > 2 && !status_of(stamp);

	if (t.trouble && excused(ret))
		return false; /* how far it came only the controller knows */
	issued(stamp);
	if (two)
		issued(stamp + 2);
	return judge("transfer", two ? stamp + 2 : stamp, ret);
}

static void work(unsigned number)
{
	uint64_t stamp = FIRST_STAMP + (uint64_t)number * OPS * 4;
	struct held h = { .count = 0 };
	uint32_t i, ops = draw(8) ? t.ops : draw(t.ops + 1);
	bool good = true;

	for (i = 0; i < ops && good; i++, stamp += 4) {
		uint32_t what = draw(8);

		if (what < 3)
			good = collect_all(&h) && transfer(stamp);
		else if (what == 3)
			good = start(&h, stamp, NULL);
		else
			good = start(&h, stamp, &h.req[h.count]);
		if (good && (h.count == HELD || !draw(2)))
			good = collect_all(&h);
	}
	collect_all(&h);
	schedule_leave(&t.lanes, number);
}

/* ---- A run ---- */

static uint64_t first_position(unsigned shift)
{
	static const uint8_t wraps[] = { 16, 24, 31, 32, 44, 46, 48 };
	uint32_t way = draw(3);

	if (way == 0)
		return 0;
	if (way == 1)
		return draw(8u << shift);
	return (1ull << wraps[draw(sizeof(wraps))]) - draw(3u << shift) - 1;
}

static void choose(uint64_t seed)
{
	static const uint8_t shifts[] = { 1, 1, 2, 5, 6 };
	static const uint32_t widths[] = { 1, 1, 4, 32, 64 }, stays[] = { 1, 2, 4, 16, 100 };
	unsigned shift, i;

	memset(&t, 0, sizeof(t));
	t.seed = seed;
	t.random = seed * 0x9e3779b97f4a7c15u;
	draw(1);
	shift = shifts[draw(sizeof(shifts))];
	t.rig = rig_new(shift, first_position(shift));
	t.lanes.width = widths[draw(5)];
	t.lanes.count = t.lanes.width > 4 ? 1 + draw(LANES) : 2 + draw(9);
	t.ops = t.lanes.count > 16 ? 4 : OPS;
	t.errors = draw(3) ? 1 + draw(8) : 0;
	t.trouble = draw(8) ? NONE : SILENT + draw(2);
	t.trouble_at = 1 + draw(t.lanes.count * 1000);
	t.rung = t.taken = t.rig->state->pub;
	t.rig->dq.max_blocks = 2;
	if (seed & 1)
		t.rig->dq.flags |= GPUNVME_DQ_LATENCY;
	if (t.trouble == SILENT)
		t.rig->dq.cmd_timeout = 2000000;
	for (i = 0; i < t.rig->dq.cids; i++) /* the generations of identifiers wrap too */
		t.rig->result[i] = draw(2) ? 0 : ~(uint64_t)draw(3) << GPUNVME_RES_GEN_SHIFT;
	t.rig->ctrl.opts = (struct mini_opts){ .seed = draw(1u << 30), .window = draw(2) ? 1 : 1 + draw(64), .idle = draw(3) ? draw(60) : 0,
					       .status = status_of };
	t.rig->ctrl.seen = on_fetch;
	mini_begin(&t.rig->ctrl);
	schedule_start(seed, stays[draw(5)], STEPS, check, stuck);
}

/* What nobody asked for comes in, too. */
static void drain_rest(void)
{
	unsigned turns;

	mini_freeze(&t.rig->ctrl, false);
	for (turns = 0; rig_free_cids(t.rig) < t.rig->dq.cids; turns++) {
		if (turns == 100000)
			fail("%u of %u identifiers are free at the end", rig_free_cids(t.rig), t.rig->dq.cids);
		schedule_drain(t.rig);
	}
}

static void check_counters(void)
{
	uint64_t completed = t.rig->ctrl.completed - t.rig->ctrl.q.start, timed = 0;
	uint32_t i;

	for (i = 0; i < GPUNVME_LATENCY_BUCKETS; i++)
		timed += t.rig->buckets[i];
	if (t.rig->state->completions != completed || timed != (t.seed & 1 ? completed : 0))
		fail("%llu commands completed, %llu were counted, %llu timed", (unsigned long long)completed,
		     (unsigned long long)t.rig->state->completions, (unsigned long long)timed);
}

static void check_end(void)
{
	uint32_t i;

	if (t.rig->ctrl.garbage || t.rig->ctrl.fetched != t.rig->ctrl.completed || t.rig->state->pub != t.rig->state->resv)
		fail("fetched %llu, completed %llu, of which %llu not commands; pub %llu, resv %llu",
		     (unsigned long long)t.rig->ctrl.fetched, (unsigned long long)t.rig->ctrl.completed,
		     (unsigned long long)t.rig->ctrl.garbage, (unsigned long long)t.rig->state->pub,
		     (unsigned long long)t.rig->state->resv);
	check_counters();
	if (t.trouble)
		return; /* which commands a cut off transfer had issued, and who still heard of what, is open */
	for (i = 0; i < STAMPS; i++)
		if (t.seen[i] != t.want[i])
			fail("stamp %u was issued %u times and fetched %u times", i, t.want[i], t.seen[i]);
	if (t.rig->state->detached_errors != t.unheard)
		fail("%llu failed commands that nobody waited for were counted, there were %llu",
		     (unsigned long long)t.rig->state->detached_errors, (unsigned long long)t.unheard);
	if (t.rig->state->poison)
		fail("the queue is poisoned: %u", t.rig->state->poison);
}

static void run(uint64_t seed)
{
	uint32_t i;

	choose(seed);
	schedule_begin(&t.lanes, work, control);
	schedule_run();
	drain_rest();
	check_end();
	for (i = 0; i < STAMPS; i++)
		commands += t.seen[i];
	schedule_end(&t.lanes);
	rig_free(t.rig);
}

int main(int argc, char **argv)
{
	uint64_t count = SEEDS, steps = schedule_all(argc, argv, &count, run);

	if (count)
		printf("%llu schedules, %llu commands, %llu steps: all good\n", (unsigned long long)count, (unsigned long long)commands,
		       (unsigned long long)steps);
	return 0;
}
