/* SPDX-License-Identifier: MIT */
/*
 * Parking: commands that wait for a time of the emulated drive (timing.h) or of a fault, or without limit. Each worker has a heap,
 * the earliest first, which its lock guards.
 */
#include "soft/engine/threads.h"

#include <string.h>

#include "util/bits.h"

#define KEPT_NS 1000000000u /* interval of checks whether this machine is as fast as the drive, */
#define KEPT_COMMANDS 64u   /* by so many commands at least */
#define TOLERANCE 20u	    /* late by 1/20 */

/* ---- The heap ---- */

static bool before(const struct gnv_soft_cmd *a, const struct gnv_soft_cmd *b)
{
	return a->post_at < b->post_at;
}

static void rise(struct gnv_soft_cmd **heap, unsigned at, struct gnv_soft_cmd *cmd)
{
	for (; at && before(cmd, heap[(at - 1) / 2]); at = (at - 1) / 2)
		heap[at] = heap[(at - 1) / 2];
	heap[at] = cmd;
}

static void sink(struct gnv_soft_cmd **heap, unsigned count, unsigned at, struct gnv_soft_cmd *cmd)
{
	unsigned child;

	for (; (child = 2 * at + 1) < count; at = child) {
		child += child + 1 < count && before(heap[child + 1], heap[child]);
		if (!before(heap[child], cmd))
			break;
		heap[at] = heap[child];
	}
	heap[at] = cmd;
}

void gnv_soft_park(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_server *server = cmd->sq->server;

	cmd->next = NULL;
	rise(server->parked, server->parked_count++, cmd);
}

static struct gnv_soft_cmd *earliest(struct gnv_soft_server *server)
{
	struct gnv_soft_cmd *cmd = server->parked[0];

	server->parked_count--;
	sink(server->parked, server->parked_count, 0, server->parked[server->parked_count]);
	return cmd;
}

/* ---- Is this machine as fast as the drive? ---- */

static void judge(struct gnv_soft_server *server, uint64_t now)
{
	struct gnv_soft_pace_kept *kept = &server->kept;
	const bool late = kept->late * TOLERANCE > kept->asked, starved = kept->starved * 2 > kept->looks;

	if ((late || starved) && gnv_soft_becomes_late(server->soft))
		gnv_log(server->soft->log, GPUNVME_LOG_WARN,
			"this machine is too slow for the configured times (said once): %s. Use more threads=, fewer CPU threads for I/O, or "
			"a slower drive",
			late ? "commands end more than 5 % late" : "commands wait in the queue that the drive would have begun");
	*kept = (struct gnv_soft_pace_kept){ .since = now };
}

/* A command that the model gave a time ends now. */
static void note(struct gnv_soft_cmd *cmd, uint64_t now)
{
	struct gnv_soft_server *server = cmd->sq->server;
	struct gnv_soft_pace_kept *kept = &server->kept;

	if (!kept->since)
		kept->since = now;
	kept->asked += cmd->post_at - cmd->began;
	kept->late += now - cmd->post_at;
	cmd->began = 0;
	kept->commands++;
	if (kept->commands >= KEPT_COMMANDS && now - kept->since > KEPT_NS)
		judge(server, now);
}

void gnv_soft_look(struct gnv_soft_sq *sq, bool full)
{
	struct gnv_soft_server *server = sq->server;
	struct gnv_soft_timing *timing = &server->soft->timing;

	server->kept.looks++;
	if (sq->head != sq->tail && (full || timing->per_command > 0 || timing->per_byte > 0 || timing->per_link > 0))
		server->kept.starved += gnv_soft_timing_is_idle(timing, server->now);
}

/* ---- Times ---- */

/* The draws are the same for each queue in each run. */
void gnv_soft_time(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_server *server = cmd->sq->server;
	struct gnv_soft_timing *timing = &server->soft->timing;
	const uint64_t drawn = gnv_soft_timing_draw(timing, cmd->qid, ++cmd->sq->drawn);
	const uint64_t due = gnv_soft_timing_due(timing, server->now, server->looked, &cmd->op, drawn);

	if (due < cmd->post_at) /* a fault's delay is longer */
		return;
	cmd->post_at = due;
	cmd->began = server->now;
}

bool gnv_soft_is_early(struct gnv_soft_cmd *cmd)
{
	const uint64_t now = cmd->post_at ? gnv_soft_now() : 0;

	if (now < cmd->post_at)
		return true;
	if (cmd->began)
		note(cmd, now);
	return false;
}

unsigned gnv_soft_unpark(struct gnv_soft_server *server, uint64_t *next)
{
	const uint64_t now = server->parked_count ? gnv_soft_now() : 0;
	struct gnv_soft_cmd *cmd;
	unsigned n;

	for (n = 0; server->parked_count && server->parked[0]->post_at <= now; n++) {
		cmd = earliest(server);
		if (cmd->began)
			note(cmd, now);
		if (cmd->stalled)
			gnv_soft_io_start(cmd);
		else
			gnv_soft_post(cmd);
	}
	*next = server->parked_count ? server->parked[0]->post_at : UINT64_MAX;
	return n;
}

/* ---- Before their time ---- */

void gnv_soft_sweep_parked(struct gnv_soft_server *server, const struct gnv_soft_sq *sq, void (*handle)(struct gnv_soft_cmd *))
{
	struct gnv_soft_cmd *taken = NULL, *cmd;
	unsigned i, kept = 0;

	for (i = 0; i < server->parked_count; i++) {
		cmd = server->parked[i];
		if (!sq || cmd->sq == sq) {
			cmd->next = taken;
			taken = cmd;
		} else {
			rise(server->parked, kept++, cmd); /* entries before i are no longer needed */
		}
	}
	server->parked_count = kept;
	while ((cmd = taken)) {
		taken = cmd->next;
		cmd->next = NULL;
		cmd->began = 0;
		handle(cmd);
	}
}

bool gnv_soft_abort_parked(struct gnv_soft_server *server, uint16_t sqid, uint16_t cid)
{
	struct gnv_soft_cmd **heap = server->parked, *cmd, *last;
	unsigned i;

	for (i = 0; i < server->parked_count && (heap[i]->sq->qid != sqid || heap[i]->sqe.cid != cid); i++)
		;
	if (i == server->parked_count)
		return false;
	cmd = heap[i];
	last = heap[--server->parked_count];
	if (cmd != last && i && before(last, heap[(i - 1) / 2]))
		rise(heap, i, last);
	else if (cmd != last)
		sink(heap, server->parked_count, i, last);
	cmd->post_at = 0;
	cmd->began = 0;
	cmd->dw0 = 0;
	gnv_soft_finish(cmd, GPUNVME_SC_ABORT_REQUESTED);
	return true;
}
