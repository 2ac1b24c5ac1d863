/* SPDX-License-Identifier: MIT */
/*
 * The attendant's watch over the processor of the drive, by sums and counters that the workers keep: is it fast enough for the
 * model, and does it run the kernel? Each failure is reported once.
 */
#include <stdio.h>
#include <string.h>

#include "util/bits.h"
#include "vdrive/drive.h"

#define PACE_NS 1000000000u /* time between two judgements, */
#define SUM_NS 100000000u
#define PACE_COMMANDS 64u   /* of so many commands at least */
#define TOLERANCE 20u	    /* late by 1/20 */
#define LOOK_NS 10000000u
#define STARVED_NS 100000000u

static int peek(struct gnv_vdrive *d, void *to, uint64_t at, size_t len)
{
	return d->exec->ops->peek(d->exec, to, at, len);
}

/* ---- Times of the model ---- */

static void judge(struct gnv_vdrive *d, const struct gnv_vd_pace *p)
{
	const bool late = p->late * TOLERANCE > p->asked, starved = p->starved * 2 > p->turns;

	if ((late || starved) && gnv_soft_becomes_late(&d->t.soft))
		gnv_log(d->t.soft.log, GPUNVME_LOG_WARN,
			"this machine is too slow for the configured times (said once): %s. Use more queues, fewer threads, or a slower "
			"drive",
			late ? "commands end more than 5 % late" : "commands wait in the queue that the drive would have begun");
}

static bool sum_up(struct gnv_vdrive *d, struct gnv_vd_pace *sum)
{
	uint64_t at = GNV_VD_AT(d, worker) + offsetof(struct gnv_vd_worker, pace);
	struct gnv_vd_pace own;
	uint32_t i;

	*sum = (struct gnv_vd_pace){ 0 };
	for (i = 0; i < d->workers; i++, at += sizeof(struct gnv_vd_worker)) {
		if (peek(d, &own, at, sizeof(own)))
			return false;
		sum->asked += own.asked;
		sum->late += own.late;
		sum->commands += own.commands;
		sum->turns += own.turns;
		sum->starved += own.starved;
	}
	return true;
}

static void look_at_pace(struct gnv_vdrive *d, uint64_t now)
{
	struct gnv_vd_pace sum, *before = &d->watch.pace;

	if (!d->t.soft.timing.on || now - d->watch.summed < SUM_NS || !sum_up(d, &sum))
		return;
	d->watch.summed = now;
	if (sum.commands == before->commands) /* the time counts from the first new command on */
		d->watch.judged = now;
	if (now - d->watch.judged < PACE_NS || sum.commands - before->commands < PACE_COMMANDS)
		return;
	judge(d, &(struct gnv_vd_pace){ .asked = sum.asked - before->asked,
					.late = sum.late - before->late,
					.turns = sum.turns - before->turns,
					.starved = sum.starved - before->starved });
	*before = sum;
	d->watch.judged = now;
}

/* ---- Workers that do not run ---- */

/* Return: a worker that does not run has a queue with commands that it has not fetched. */
static bool has_commands(struct gnv_vdrive *d, uint32_t worker)
{
	uint32_t head, tail, qid;
	bool waits = false;

	pthread_mutex_lock(&d->lock);
	for (qid = d->first[worker]; qid && !waits; qid = d->sq[qid].next) {
		const uint64_t at = GNV_VD_AT(d, sq) + qid * sizeof(struct gnv_vd_sq) + offsetof(struct gnv_vd_sq, state.head);

		tail = gnv_mmio_read32(gnv_soft_doorbell(&d->t.soft, qid, false));
		waits = !__atomic_load_n(&d->sq[qid].flags, __ATOMIC_RELAXED) && !peek(d, &head, at, sizeof(head)) && head != tail;
	}
	pthread_mutex_unlock(&d->lock);
	return waits;
}

/* Return: the count of the slowest worker that runs (gnv_vd.runs); UINT64_MAX: none runs. */
static uint64_t oldest_run(const uint64_t *runs, uint32_t workers)
{
	uint64_t oldest = UINT64_MAX;
	uint32_t i;

	for (i = 0; i < workers; i++)
		if (runs[i] & 1)
			oldest = gnv_min(oldest, runs[i]);
	return oldest;
}

/*
 * A worker is starved if a launch waits for the processor, the worker has not begun it, and the worker has commands. A launch that
 * the host has not made yet, because the host is busy, does not count. Nor does a launch that waits for workers of the launch
 * before it. Return: a worker is starved.
 */
static bool is_starved(struct gnv_vdrive *d, uint64_t now)
{
	struct gnv_vdrive_watch *w = &d->watch;
	uint64_t runs[GNV_VD_WORKERS], oldest;
	bool starved = false;
	uint32_t i;

	if (peek(d, runs, GNV_VD_AT(d, runs), d->workers * sizeof(runs[0])))
		return false;
	if (!d->exec->ops->is_queued(d->exec))
		memset(w->since, 0, sizeof(w->since));
	oldest = oldest_run(runs, d->workers);
	for (i = 0; i < d->workers && !starved; i++) {
		if (runs[i] & 1 || runs[i] > oldest || runs[i] != w->runs[i] || !w->since[i] || !has_commands(d, i))
			w->since[i] = now;
		starved = now - w->since[i] >= STARVED_NS;
		w->runs[i] = runs[i];
	}
	return starved;
}

static void look_at_workers(struct gnv_vdrive *d, uint64_t now)
{
	const struct gnv_soft_config *config = &d->t.soft.config;
	char why[160];

	if (!is_starved(d, now) || !gnv_vdrive_fail(d))
		return;
	snprintf(why, sizeof(why), "its kernel got no multiprocessor for %u ms: leave room for its %u blocks, or use another GPU",
		 STARVED_NS / 1000000u, d->workers);
	gnv_log(d->t.soft.log, GPUNVME_LOG_ERROR, "the drive soft:vram: has ended its queues: %s", why);
	if (config->failed)
		config->failed(config->failed_ctx, why);
}

void gnv_vdrive_watch(struct gnv_vdrive *d)
{
	const uint64_t now = gnv_soft_now();

	if (now - d->watch.looked < LOOK_NS || !__atomic_load_n(&d->served, __ATOMIC_ACQUIRE))
		return;
	if (now - d->watch.looked > STARVED_NS / 2) /* this thread did not run in time, and perhaps neither did the launcher */
		memset(d->watch.since, 0, sizeof(d->watch.since));
	d->watch.looked = now;
	look_at_pace(d, now);
	look_at_workers(d, now);
}
