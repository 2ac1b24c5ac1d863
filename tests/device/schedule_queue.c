/* SPDX-License-Identifier: MIT */
/*
 * The queue under test_schedule: rings, waves, what threads do, how the controller behaves and where counters begin come from the
 * seed.
 *
 * Every command has a stamp of its own, from which the controller derives its status. At the end each stamp that was issued was
 * fetched once and its thread got that status once, all identifiers are free, no failed command that no thread waited for is
 * missing, and every completion was counted, of runs with an odd seed its time, too.
 */
#define SCHEDULE_PART "queue"
#include "schedule.h"

#include "schedule_case.h"
#include "schedule_parts.h"

#define LANES SCHEDULE_LANES
#define OPS 12u
#define HELD 3u
#define STAMPS (LANES * OPS * 4)
#define FIRST_STAMP 8u
static struct {
	uint32_t errors; /* one status in so many is one; 0: none */
	uint64_t rung;       /* position the doorbell stands for */
	uint64_t taken;      /* the same of the CQ's */
	uint8_t seen[STAMPS], want[STAMPS]; /* fetched by the controller; issued by a thread */
	uint64_t unheard;    /* failed commands nobody waits for (atomic) */
} t;

static uint64_t commands; /* of all runs */

static void describe(void)
{
	printf("ring 2^%u from %llu", c.rig->dq.sq_shift, (unsigned long long)c.rig->ctrl.q.start);
}

/* ---- What always holds ---- */

NO_TSAN static void check(void)
{
	const struct gpunvme_dq_state *s = c.rig->state;

	if (s->fetched > s->pub || s->pub > s->resv || s->resv - s->fetched >= 1ull << c.rig->dq.sq_shift)
		fail("positions out of order: fetched %llu, pub %llu, resv %llu", (unsigned long long)s->fetched,
		     (unsigned long long)s->pub, (unsigned long long)s->resv);
	trouble_comes();
}

/*
 * What a drive reports, and a controller that polls does not notice: the value of before, a step back, and beyond what was posted (Base
 * Specification 3.1.2.2 and the events of Invalid Doorbell Write Value).
 */
NO_TSAN static void taken(uint32_t value)
{
	uint32_t step = (value - (uint32_t)t.taken) & ((1u << c.rig->dq.cq_shift) - 1);

	if (!step || step > c.rig->ctrl.completed - t.taken)
		fail("the CQ doorbell goes from %llu to slot %u while %llu were posted", (unsigned long long)t.taken, value,
		     (unsigned long long)c.rig->ctrl.completed);
	t.taken += step;
}

NO_TSAN static void schedule_doorbell(uint64_t at, uint32_t value)
{
	const struct gpunvme_sqe *sq = (const struct gpunvme_sqe *)(uintptr_t)c.rig->dq.sq;
	uint64_t mask = (1ull << c.rig->dq.sq_shift) - 1, stamp, pos;

	if (at != c.rig->dq.sq_db) {
		taken(value);
		return;
	}
	if (c.rig->state->pub <= t.rung || (c.rig->state->pub & mask) != value)
		fail("the doorbell goes from %llu to slot %u while pub is %llu", (unsigned long long)t.rung, value,
		     (unsigned long long)c.rig->state->pub);
	for (pos = t.rung; pos < c.rig->state->pub; pos++) {
		stamp = (sq[pos & mask].cdw10 | (uint64_t)sq[pos & mask].cdw11 << 32) - FIRST_STAMP;
		if (stamp >= STAMPS || t.seen[stamp])
			fail("the doorbell covers position %llu, which is not written", (unsigned long long)pos);
	}
	t.rung = c.rig->state->pub;
}

/* ---- The controller ---- */

static uint16_t status_of(uint64_t stamp)
{
	uint64_t random = stamp ^ c.seed;

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

/* ---- The threads ---- */

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
	if (gpunvme_detach(&c.rig->dq, &h->req[i]))
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
		ret = gpunvme_poll(&c.rig->dq, &h->req[i]);
		schedule_yield();
	}
	if (way == 2) {
		ret = gpunvme_wait(&c.rig->dq, &h->req[i], 1 + draw(20000));
		if (ret == -GPUNVME_ETIMEDOUT && h->req[i].tag && draw(2)) {
			give_up(h, i);
			return true;
		}
	}
	if ((way == 2 && ret == -GPUNVME_ETIMEDOUT && h->req[i].tag) || way == 3)
		ret = gpunvme_wait(&c.rig->dq, &h->req[i], 0);
	if (judge("wait", h->stamp[i], ret)) {
		ret = gpunvme_poll(&c.rig->dq, &copy);
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
		ret = draw(2) ? gpunvme_submit_read(&c.rig->dq, &c.rig->dbuf, 0, stamp * 512, 512, req)
			      : gpunvme_submit_write(&c.rig->dq, &c.rig->dbuf, 512, stamp * 512, 2 * 512, 0, req);
		if (ret != -GPUNVME_EAGAIN)
			break;
		if (h->count && !collect_all(h))
			return false;
		req = req ? &h->req[0] : NULL;
		schedule_yield();
		if (c.trouble == SILENT && tries > 100)
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
	int ret = draw(2) ? gpunvme_read(&c.rig->dq, &c.rig->dbuf, 1024, stamp * 512, (uint64_t)blocks * 512)
			  : gpunvme_write(&c.rig->dq, &c.rig->dbuf, 0, stamp * 512, (uint64_t)blocks * 512, 0);
	bool two = blocks > 2 && !status_of(stamp);

	if (c.trouble && excused(ret))
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
	uint32_t i, ops = draw(8) ? c.ops : draw(c.ops + 1);
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
	schedule_leave(&c.lanes, number);
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
	unsigned shift, i;

	memset(&t, 0, sizeof(t));
	choose_seed(seed);
	shift = shifts[draw(sizeof(shifts))];
	c.rig = rig_new(shift, first_position(shift));
	choose_lanes(9, OPS);
	t.errors = draw(3) ? 1 + draw(8) : 0;
	choose_trouble(8);
	t.rung = t.taken = c.rig->state->pub;
	c.rig->dq.max_blocks = 2;
	if (seed & 1)
		c.rig->dq.flags |= GPUNVME_DQ_LATENCY;
	if (c.trouble == SILENT)
		c.rig->dq.cmd_timeout = 2000000;
	for (i = 0; i < c.rig->dq.cids; i++) /* the generations of identifiers wrap too */
		c.rig->result[i] = draw(2) ? 0 : ~(uint64_t)draw(3) << GPUNVME_RES_GEN_SHIFT;
	choose_controller(64, status_of, on_fetch);
}

static void check_counters(void)
{
	uint64_t completed = c.rig->ctrl.completed - c.rig->ctrl.q.start, timed = 0;
	uint32_t i;

	for (i = 0; i < GPUNVME_LATENCY_BUCKETS; i++)
		timed += c.rig->buckets[i];
	if (c.rig->state->completions != completed || timed != (c.seed & 1 ? completed : 0))
		fail("%llu commands completed, %llu were counted, %llu timed", (unsigned long long)completed,
		     (unsigned long long)c.rig->state->completions, (unsigned long long)timed);
}

static void check_end(void)
{
	uint32_t i;

	if (c.rig->ctrl.garbage || c.rig->ctrl.fetched != c.rig->ctrl.completed || c.rig->state->pub != c.rig->state->resv)
		fail("fetched %llu, completed %llu, of which %llu not commands; pub %llu, resv %llu",
		     (unsigned long long)c.rig->ctrl.fetched, (unsigned long long)c.rig->ctrl.completed,
		     (unsigned long long)c.rig->ctrl.garbage, (unsigned long long)c.rig->state->pub,
		     (unsigned long long)c.rig->state->resv);
	check_counters();
	if (c.trouble)
		return; /* which commands a cut off transfer had issued, and which results arrived, is open */
	for (i = 0; i < STAMPS; i++)
		if (t.seen[i] != t.want[i])
			fail("stamp %u was issued %u times and fetched %u times", i, t.want[i], t.seen[i]);
	if (c.rig->state->detached_errors != t.unheard)
		fail("%llu failed commands that nobody waited for were counted, there were %llu",
		     (unsigned long long)c.rig->state->detached_errors, (unsigned long long)t.unheard);
	if (c.rig->state->poison)
		fail("the queue is poisoned: %u", c.rig->state->poison);
}

static void run(uint64_t seed)
{
	uint32_t i;

	choose(seed);
	run_case(check, work);
	drain_rest();
	check_end();
	for (i = 0; i < STAMPS; i++)
		commands += t.seen[i];
	end_case();
}

int schedule_queue(int argc, char **argv)
{
	uint64_t count = SEEDS(1000u), steps = schedule_all(argc, argv, &count, run);

	if (count)
		printf("%llu schedules, %llu commands, %llu steps: all good\n", (unsigned long long)count, (unsigned long long)commands,
		       (unsigned long long)steps);
	return 0;
}
