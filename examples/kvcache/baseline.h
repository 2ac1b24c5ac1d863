/* SPDX-License-Identifier: MIT */
/*
 * The same, with every layer started from the CPU. io_uring reads the next layer while a kernel works on this one. A layer that
 * has arrived is launched after it in the request's stream, so that no request waits for a launch. The kernel reports its end
 * by a word that the CPU polls.
 */
#ifndef GPUNVME_EXAMPLES_KVCACHE_BASELINE_H
#define GPUNVME_EXAMPLES_KVCACHE_BASELINE_H

#include <pthread.h>
#include <sched.h>

#include "../front/reader.h"
#include "kernel.h"

struct baseline_request {
	uint32_t asked, launched, over; /* layers */
	uint32_t reads[2], writes[2];	/* under way, of even and odd layers */
	front_stream stream;
};

struct baseline {
	struct kv_job *job;
	const uint32_t *place; /* that of the job for the CPU, which does not reach the threads' memory */
	const char *path;
	uint64_t delay;
	uint32_t first, requests; /* its own */
	uint64_t launches;
	int status;
	struct reader reader;
	struct baseline_request *request;
};

static inline void baseline_move(struct baseline *t, uint32_t r, uint32_t layer, uint32_t first, uint32_t count, int write)
{
	uint32_t request = t->first + r, i;
	struct kv_job job = *t->job;

	job.place = t->place;
	for (i = first; i < first + count; i++)
		reader_add(&t->reader, write, job.landing + kv_landing(&job, request, layer, i), job.bytes,
			   kv_place(&job, request, layer, i), (uint64_t)r * 4 + layer % 2 * 2 + (uint64_t)write);
}

/* What a request can do next, it does. Return: whether it is over. */
static inline int baseline_step(struct baseline *t, uint32_t r)
{
	struct baseline_request *q = &t->request[r];
	struct kv_job job = *t->job;
	uint32_t half;

	job.request = t->first + r;
	if (q->over < q->launched && __atomic_load_n(&job.stamp[job.request * job.layers + q->over].end, __ATOMIC_ACQUIRE)) {
		baseline_move(t, r, q->over, job.fragments, job.added, 1);
		q->writes[q->over++ % 2] = job.added;
	}
	if (q->asked < job.layers && q->asked < q->over + 2) {
		baseline_move(t, r, q->asked, 0, job.fragments, 0);
		q->reads[q->asked++ % 2] = job.fragments;
	}
	half = q->launched % 2;
	if (q->launched < q->asked && !q->reads[half] && !q->writes[half]) {
		job.layer = q->launched++;
		front_start_kv_layer(&q->stream, job.waves, &job);
		t->launches++;
	}
	return q->over == job.layers && !q->writes[0] && !q->writes[1];
}

static inline void baseline_loop(struct baseline *t)
{
	uint32_t over = 0, r;
	uint64_t tag;

	while (over < t->requests && !t->status) {
		t->status = reader_go(&t->reader);
		while (reader_take(&t->reader, &tag)) {
			struct baseline_request *q = &t->request[tag / 4];

			if (tag & 1)
				q->writes[tag / 2 % 2]--;
			else
				q->reads[tag / 2 % 2]--;
		}
		for (over = r = 0; r < t->requests; r++)
			over += (uint32_t)baseline_step(t, r);
		sched_yield();
	}
}

static inline void *baseline_run(void *arg)
{
	struct baseline *t = (struct baseline *)arg;
	uint64_t each = kv_landing(t->job, 1, 0, 0);
	int fd = reader_file(t->path, 1);

	t->status = fd < 0 ? fd : reader_open(&t->reader, fd, t->requests * 2 * (t->job->fragments + t->job->added), t->delay,
					      t->job->landing + t->first * each, t->requests * each);
	if (t->status)
		return NULL;
	baseline_loop(t);
	reader_close(&t->reader);
	close(fd);
	return NULL;
}

#endif
