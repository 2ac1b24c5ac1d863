/* SPDX-License-Identifier: MIT */
/*
 * many_queues: threads spread over many queue pairs, each checking every byte that comes back.
 *
 * Thread i owns blocks [i * n, (i + 1) * n) and two parts of the buffer. In each round it fills one part with a pattern made of
 * its number, the round and the position, writes it, reads it back into the other part and compares. It uses the queue
 * i mod queues. At the end the host prints what each queue carried.
 */
#include "common/permission.h"
#include "common/progress.h"
#include "common/session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <gpunvme/device.h>

struct check_args {
	const struct gpunvme_dq *dq;
	struct gpunvme_dbuf dbuf;
	struct thread_result *result; /* one for each thread */
	uint32_t *mismatches;	    /* one for each thread: words that came back wrong */
	uint64_t area;		    /* bytes of one thread's blocks */
	uint32_t nblocks;	    /* of one thread */
	uint32_t queues;
	uint32_t rounds;
};

/* A word that says where it belongs: no two of a run are equal. */
static GPUNVME_DEVICE uint64_t pattern(uint32_t thread, uint32_t round, uint64_t word)
{
	return ((uint64_t)thread << 48 ^ (uint64_t)round << 32 ^ word) * 0x9e3779b97f4a7c15ull;
}

/* The kernel: all rounds of one thread. The same text compiles for CPU threads and for GPUs. */
static GPUNVME_DEVICE void check_rounds(void *arg)
{
	const struct check_args *a = (const struct check_args *)arg;
	uint32_t thread = gpunvme_thread_id();
	const struct gpunvme_dq *dq = &a->dq[thread % a->queues];
	uint64_t out = 2 * thread * a->area; /* offsets of its two parts in the buffer */
	uint64_t in = out + a->area;
	uint64_t *wrote = (uint64_t *)(uintptr_t)(a->dbuf.base + out);
	const uint64_t *got = (const uint64_t *)(uintptr_t)(a->dbuf.base + in);
	uint64_t lba = (uint64_t)thread * a->nblocks;
	int status = 0;

	for (uint32_t round = 0; round < a->rounds && !status; round++) {
		for (uint64_t i = 0; i < a->area / 8; i++)
			wrote[i] = pattern(thread, round, i);
		status = gpunvme_write(dq, &a->dbuf, out, lba << dq->lba_shift, a->area, 0);
		if (!status)
			status = gpunvme_read(dq, &a->dbuf, in, lba << dq->lba_shift, a->area);
		for (uint64_t i = 0; i < a->area / 8 && !status; i++)
			a->mismatches[thread] += got[i] != pattern(thread, round, i);
	}
	a->result[thread].status = status;
	a->result[thread].lba = lba;
	a->result[thread].nblocks = a->nblocks;
}

static void show_queue(const struct gpunvme_queue_info *q, uint32_t threads, struct json_object *list)
{
	struct json_object *json;

	if (!list) {
		printf("queue %3u  depth %4u  threads %3u  commands %8" PRIu64 "  doorbells %8" PRIu64 "\n", q->qid, q->depth, threads,
		       q->submitted, q->doorbells);
		return;
	}
	json = append_object(list);
	put_count(json, "qid", q->qid);
	put_count(json, "depth", q->depth);
	put_count(json, "threads", threads);
	put_count(json, "commands", q->submitted);
	put_count(json, "doorbells", q->doorbells);
}

/* One line, or one JSON object, for each queue. */
static int show_queues(const struct session *s, struct json_object *list)
{
	for (uint32_t i = 0; i < s->queues; i++) {
		struct gpunvme_queue_info q = { .size = sizeof(q) };
		int ret = gpunvme_queue_get_info(s->queue[i], &q);

		if (ret)
			return failed("%s", why(ret));
		show_queue(&q, s->threads / s->queues + (i < s->threads % s->queues), list);
	}
	return GO_ON;
}

static int print_json(const struct session *s, const struct check_args *a, double bytes, double seconds)
{
	struct json_object *json = json_object_new_object();
	int ret;

	put_text(json, "program", program);
	ret = show_queues(s, put_list(json, "queues"));
	put_count(json, "threads", s->threads);
	put_count(json, "rounds", a->rounds);
	put_real(json, "bytes", bytes, 0);
	put_real(json, "seconds", seconds, 6);
	put_real(json, "bytes_per_second", bytes / seconds, 0);
	put_text(json, "placement", s->placement);
	if (ret == GO_ON)
		print_object(json);
	else
		json_object_put(json);
	return ret == GO_ON ? EXIT_DONE : ret;
}

static int report(const struct session *s, const struct session_opts *o, const struct check_args *a, double seconds)
{
	double bytes = 2.0 * (double)a->area * s->threads * a->rounds;
	uint64_t wrong = 0;
	int ret;

	for (uint32_t i = 0; i < s->threads; i++)
		wrong += a->mismatches[i];
	if (wrong)
		return failed("%" PRIu64 " words came back different from what was written", wrong);
	if (o->json)
		return print_json(s, a, bytes, seconds);
	ret = show_queues(s, NULL);
	if (ret != GO_ON)
		return ret;
	printf("wrote and verified in %.2f s: %s/s, %u queues, %u threads on %s, placement %s\n", seconds, human(bytes / seconds),
	       s->queues, s->threads, s->gpu_info.name, s->placement);
	return EXIT_DONE;
}

/* Limits, queues and the buffer: two parts of --xfer bytes for each thread. */
static int prepare(struct session *s, const struct session_opts *o, struct check_args *a)
{
	int ret = session_step(s, o, &a->nblocks);

	if (ret == GO_ON)
		ret = session_may_write(s, o);
	if (ret == GO_ON)
		ret = session_open_queues(s, o, GPUNVME_VIEW_WRITE, 0, 0);
	if (ret == GO_ON)
		ret = session_fits(s, "one area for each thread", 0, (uint64_t)s->threads * a->nblocks);
	if (ret == GO_ON)
		ret = session_buffer(s, 2 * o->xfer * s->threads);
	if (ret != GO_ON)
		return ret;
	a->area = o->xfer;
	a->dq = s->dq;
	a->dbuf = s->dbuf;
	a->queues = s->queues;
	a->result = calloc(s->threads, sizeof(*a->result));
	a->mismatches = calloc(s->threads, sizeof(*a->mismatches));
	return a->result && a->mismatches ? GO_ON : failed("no memory for %u threads", s->threads);
}

static int run(struct session *s, const struct session_opts *o, uint32_t rounds)
{
	struct check_args a = { .rounds = rounds };
	double start;
	int ret = prepare(s, o, &a);

	start = now_s();
	if (ret == GO_ON)
		ret = session_launch(s, s->threads, check_rounds, &a);
	if (ret == GO_ON)
		ret = report_threads(a.result, s->threads, "write or read", 0);
	if (ret == GO_ON)
		ret = report(s, o, &a, now_s() - start);
	free(a.result);
	free(a.mismatches);
	return ret;
}

int main(int argc, char **argv)
{
	static const char usage[] =
		"usage: many_queues URI [options]\nWrites and verifies blocks from the start of the namespace "
		"through many queues at once.";
	struct session_opts o = SESSION_OPTS_INIT;
	uint32_t rounds = 64;
	const struct option_def defs[] = {
		OPTION_DEV(&o),	 { "rounds", OPTION_U32, &rounds, 1, "N", "writes and reads of each thread (default 64)" },
		OPTION_XFER(&o), OPTIONS_THREADS(&o),
		OPTION_YES(&o),	 OPTION_JSON(&o),
		OPTIONS_END,
	};
	struct session s;
	int ret;

	program = "many_queues";
	o.xfer = 16 * KIB;
	ret = session_options(argc, argv, usage, defs, &o, NULL);
	if (ret != GO_ON)
		return ret;
	ret = session_open(&s, &o);
	if (ret == GO_ON) {
		ret = run(&s, &o, rounds);
		session_close(&s);
	}
	return finish(ret);
}
