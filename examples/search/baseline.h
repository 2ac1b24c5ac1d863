/* SPDX-License-Identifier: MIT */
/*
 * The same search with every step started from the CPU. Queries do not wait for each other: one that has its beam joins the next
 * launch. Each thread has two launches, so that reads, launches and results of others overlap. Kernels load nodes once, from
 * where io_uring has put them.
 */
#ifndef GPUNVME_EXAMPLES_SEARCH_BASELINE_H
#define GPUNVME_EXAMPLES_SEARCH_BASELINE_H

#include <pthread.h>
#include <sched.h>

#include "../front/reader.h"
#include "kernel.h"

#define BASELINE_LAUNCHES 2u

struct baseline {
	struct search_job *job;
	const char *path;
	uint64_t delay;
	uint32_t first, slots; /* of the slots: its own */
	pthread_barrier_t *prepared; /* all threads and the clock begin together */
	uint32_t *next;	       /* the query that nobody has yet, for all threads */
	uint64_t launches;
	int status;
	/* its own */
	struct reader reader;
	uint32_t *missing; /* reads that a slot waits for */
	uint32_t *ready, count, live;
	uint32_t *batch[BASELINE_LAUNCHES], batched[BASELINE_LAUNCHES];
	front_stream stream[BASELINE_LAUNCHES];
};

static inline void baseline_read(struct baseline *t, uint32_t s)
{
	struct search_slot *slot = &t->job->slot[s];
	uint32_t b;

	for (b = 0; b < slot->wanted; b++)
		reader_add(&t->reader, 0, t->job->blocks + ((uint64_t)s * t->job->beam + b) * SEARCH_NODE, SEARCH_NODE,
			   ((uint64_t)slot->want[b] + 1) * SEARCH_NODE, s);
	t->missing[s - t->first] = slot->wanted;
}

/* The slot has no query, or its query is done. */
static inline void baseline_next(struct baseline *t, uint32_t s)
{
	struct search_slot *slot = &t->job->slot[s];
	uint32_t query = __atomic_fetch_add(t->next, 1, __ATOMIC_RELAXED);

	t->live -= query >= t->job->count;
	if (query >= t->job->count)
		return;
	slot->query = query;
	slot->hops = 0;
	slot->want[0] = t->job->start;
	slot->wanted = 1;
	t->job->reads[query] = 1;
	baseline_read(t, s);
}

/* A launch is over: what its queries want next is asked for. */
static inline void baseline_over(struct baseline *t, uint32_t l)
{
	uint32_t i;

	for (i = 0; i < t->batched[l]; i++) {
		uint32_t s = t->batch[l][i];

		if (t->job->slot[s].wanted)
			baseline_read(t, s);
		else
			baseline_next(t, s);
	}
	t->batched[l] = 0;
}

static inline void baseline_launch(struct baseline *t, uint32_t l)
{
	struct search_job job = *t->job;

	memcpy(t->batch[l], t->ready, t->count * sizeof(*t->ready));
	t->batched[l] = job.batched = t->count;
	job.batch = t->batch[l];
	front_start_search_hop(&t->stream[l], t->count, &job);
	t->launches++;
	t->count = 0;
}

static inline void baseline_turn(struct baseline *t)
{
	uint64_t tag;
	uint32_t l;

	t->status = reader_go(&t->reader);
	while (reader_take(&t->reader, &tag))
		if (!--t->missing[tag - t->first])
			t->ready[t->count++] = (uint32_t)tag;
	for (l = 0; l < BASELINE_LAUNCHES; l++) {
		if (t->batched[l] && !front_busy(&t->stream[l]))
			baseline_over(t, l);
		if (t->count && !t->batched[l])
			baseline_launch(t, l);
	}
}

/* Return: the file. */
static inline int baseline_prepare(struct baseline *t)
{
	int fd = reader_file(t->path, 0);
	uint32_t l;

	t->status = fd < 0 ? fd : reader_open(&t->reader, fd, t->slots * t->job->beam, t->delay,
					      t->job->blocks + (uint64_t)t->first * t->job->beam * SEARCH_NODE,
					      (uint64_t)t->slots * t->job->beam * SEARCH_NODE);
	t->missing = (uint32_t *)calloc(t->slots, sizeof(*t->missing));
	t->ready = (uint32_t *)calloc(t->slots, sizeof(*t->ready));
	for (l = 0; l < BASELINE_LAUNCHES; l++) {
		t->batch[l] = (uint32_t *)front_shared(t->slots * sizeof(**t->batch));
		front_stream_open(&t->stream[l]);
	}
	return fd;
}

static inline void *baseline_run(void *arg)
{
	struct baseline *t = (struct baseline *)arg;
	int fd = baseline_prepare(t);
	uint32_t s;

	pthread_barrier_wait(t->prepared);
	if (t->status)
		return NULL;
	t->live = t->slots;
	for (s = t->first; s < t->first + t->slots; s++)
		baseline_next(t, s);
	while (t->live && !t->status) {
		baseline_turn(t);
		sched_yield();
	}
	reader_close(&t->reader);
	close(fd);
	free(t->missing);
	free(t->ready);
	return NULL;
}

#endif
