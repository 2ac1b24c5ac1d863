/* SPDX-License-Identifier: MIT */
/*
 * The verbs of the gpunvme command: `gpunvme VERB URI [options]`. A verb is one file and one line in main.c.
 * Each takes the arguments after its name and answers an exit code. Options, sessions and error lines are those of the
 * examples (common.h).
 */
#ifndef GPUNVME_VERBS_H
#define GPUNVME_VERBS_H

#include "common.h"

int verb_list(int argc, char **argv);
int verb_bind(int argc, char **argv);
int verb_unbind(int argc, char **argv);
int verb_doctor(int argc, char **argv);
int verb_identify(int argc, char **argv);
int verb_read(int argc, char **argv);
int verb_write(int argc, char **argv);
int verb_litmus(int argc, char **argv);
int verb_coherence(int argc, char **argv);
int verb_bench(int argc, char **argv);

/* One more field of a JSON object. */
static inline void json_field(const char *name, const char *text)
{
	printf(", \"%s\": ", name);
	json_string(text);
}

/* Parses the options of a verb and its URI; *file, when @file is not NULL, is the operand after the URI or NULL. */
static inline int parse_verb(int argc, char **argv, const char *usage, const struct option_def *defs, struct session_opts *o,
			     const char **file)
{
	const char *operand[2] = { NULL, NULL };
	int ret = parse_options(argc, argv, usage, defs, operand, file ? 2 : 1);

	if (ret != GO_ON)
		return ret;
	if (!operand[0])
		return misused("which controller? Give a URI, for example soft:disk.img");
	o->dev = operand[0];
	if (file)
		*file = operand[1];
	return GO_ON;
}

/* The lanes of read and write: each moves every gpunvme_lanes()-th transfer of a chunk through the queue its number selects. */
struct copy_args {
	const struct gpunvme_dq *dq;
	struct gpunvme_dbuf dbuf;
	struct lane_result *result;
	uint64_t lba;
	uint64_t nblocks;
	uint32_t step;
	uint32_t queues;
	uint32_t lba_size;
	int write;
};

static inline void copy_chunk(void *arg)
{
	const struct copy_args *a = arg;
	uint32_t lane = gpunvme_lane();
	const struct gpunvme_dq *dq = &a->dq[lane % a->queues];

	for (uint64_t at = (uint64_t)lane * a->step; at < a->nblocks; at += (uint64_t)gpunvme_lanes() * a->step) {
		uint32_t n = a->nblocks - at < a->step ? (uint32_t)(a->nblocks - at) : a->step;
		uint64_t offset = at * a->lba_size;
		int status = a->write ? gpunvme_write(dq, &a->dbuf, offset, a->lba + at, n)
				      : gpunvme_read(dq, &a->dbuf, offset, a->lba + at, n);

		if (status) {
			a->result[lane] = (struct lane_result){ a->lba + at, n, status };
			break;
		}
	}
}

/* One chunk, on whatever lanes the session has. */
static inline int copy_launch(struct session *s, struct copy_args *a)
{
	if (!session_on_gpu(s))
		return session_launch(s, s->lanes, copy_chunk, a);
	return session_copy(s, a->write ? GPUNVME_COPY_WRITE : 0, a->lba, a->nblocks, a->step, a->result);
}

static inline void copy_flush(void *arg)
{
	const struct copy_args *a = arg;

	if (gpunvme_lane() == 0)
		a->result[0].status = gpunvme_flush(a->dq);
}

/* Buffer, queues and results for a copy of @nblocks from --lba on (0: up to the end); the caller frees a->result. */
static inline int copy_prepare(struct session *s, const struct session_opts *o, struct copy_args *a, uint64_t nblocks)
{
	uint64_t bytes = nblocks && nblocks <= CHUNK / s->ns.lba_size ? nblocks * s->ns.lba_size : CHUNK;
	int ret = session_step(s, o, &a->step);

	if (ret == GO_ON)
		ret = session_fits(s, a->write ? "the write" : "the read", o->lba, nblocks ? nblocks : 1);
	if (ret == GO_ON)
		ret = session_open_queues(s, o, a->write ? GPUNVME_VIEW_WRITE : 0, o->lba, nblocks);
	if (ret == GO_ON)
		ret = session_buffer(s, bytes);
	if (ret != GO_ON)
		return ret;
	a->lba_size = s->ns.lba_size;
	a->dq = s->dq;
	a->dbuf = s->dbuf;
	a->queues = s->queues;
	a->result = calloc(s->lanes, sizeof(*a->result));
	return a->result ? GO_ON : failed("no memory for %u lanes", s->lanes);
}

#endif
