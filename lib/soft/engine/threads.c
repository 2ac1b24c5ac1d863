/* SPDX-License-Identifier: MIT */
/* The table of the engine with threads: its life and its state. */
#include "soft/engine/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

/* ---- Life ---- */

static int explain_start(const struct gnv_soft_threads *t, int ret)
{
	const int explained = t->refused ? t->refused->explain(ret) : 0;

	if (explained)
		return explained;
	if (ret == -EAGAIN)
		return gnv_fail(ret, "cannot start a thread of the soft controller. Raise RLIMIT_NPROC (ulimit -u)");
	return gnv_fail(ret, "cannot start a thread of the soft controller: %s", strerror(-ret));
}

static bool stop(struct gnv_soft *soft)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	struct gnv_deadline deadline = gnv_deadline_in(soft->patience_ms);
	bool clean = true;
	unsigned i;

	for (i = 0; i < t->servers; i++)
		gnv_soft_server_ask_stop(t->server[i]);
	for (i = 0; i < t->servers; i++)
		clean = gnv_soft_server_join(t->server[i], &deadline) && clean;
	return clean;
}

static void free_threads(struct gnv_soft *soft)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	unsigned i;

	for (i = 0; i < t->servers; i++)
		gnv_soft_server_free(t->server[i]);
	pthread_mutex_destroy(&t->errors.lock);
	free(t->sqs);
	free(t->cqs);
}

/* Those from @from on had nothing to do yet. */
static void end_servers(struct gnv_soft_threads *t, unsigned from)
{
	for (; from < t->soft.config.threads; from++) {
		struct gnv_deadline deadline = gnv_deadline_in(t->soft.patience_ms);

		gnv_soft_server_ask_stop(t->server[from]);
		gnv_soft_server_join(t->server[from], &deadline);
		gnv_soft_server_free(t->server[from]);
	}
}

/* Thread 0 goes last: it hands out work to the others, which must be there. */
static int start_servers(struct gnv_soft_threads *t)
{
	unsigned i = t->soft.config.threads;
	int ret;

	while (i > 0) {
		ret = gnv_soft_server_start(&t->soft, i - 1);
		if (ret) {
			end_servers(t, i);
			return explain_start(t, ret);
		}
		i--;
	}
	gnv_soft_server_lock(t->server[0]); /* which reads it. The registers order that only for hosts of this process */
	t->servers = t->soft.config.threads;
	gnv_soft_server_unlock(t->server[0]);
	return 0;
}

static int start(struct gnv_soft *soft, struct gnv_space *space)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);

	t->space = space;
	pthread_mutex_init(&t->errors.lock, NULL);
	t->sqs = calloc(soft->config.queues + 1, sizeof(*t->sqs));
	t->cqs = calloc(soft->config.queues + 1, sizeof(*t->cqs));
	if (!t->sqs || !t->cqs)
		return gnv_fail(-ENOMEM, "no memory for a soft controller with %u queues", soft->config.queues);
	return start_servers(t);
}

/* ---- Commands ---- */

static void complete(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, uint16_t status)
{
	(void)soft;
	gnv_soft_finish(cmd, status);
}

static void discard(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	(void)soft;
	gnv_soft_discard(cmd);
}

static void flush(struct gnv_soft *soft)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	unsigned i;

	t->own = (struct gnv_soft_sq){ .server = t->server[0], .qid = UINT16_MAX, .closed = true, .dead = true };
	for (i = 0; i < soft->parts; i++)
		if (!soft->part[i].store->read_only)
			gnv_soft_flush(&t->own, &soft->part[i]);
}

/* ---- Memory: threads find mappings in the space, which counts their references ---- */

static int map_memory(struct gnv_soft *soft, const struct gnv_soft_map *map)
{
	(void)soft;
	(void)map;
	return 0;
}

/* ---- Its state ---- */

static void counters(struct gnv_soft *soft, struct gnv_soft_counters *sum)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	const struct gnv_soft_counters *c;
	unsigned i;

	*sum = (struct gnv_soft_counters){ 0 };
	for (i = 0; i < t->servers; i++) {
		gnv_soft_server_lock(t->server[i]);
		c = &t->server[i]->counters;
		sum->reads += c->reads;
		sum->writes += c->writes;
		sum->sectors_read += c->sectors_read;
		sum->sectors_written += c->sectors_written;
		sum->media_errors += c->media_errors;
		sum->busy_ns += c->busy_ns;
		gnv_soft_server_unlock(t->server[i]);
	}
}

static uint64_t errors(struct gnv_soft *soft, struct gpunvme_error_log *log)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	uint64_t count;

	pthread_mutex_lock(&t->errors.lock);
	if (log)
		gnv_soft_errors_copy(&t->errors.log, log);
	count = t->errors.log.count;
	pthread_mutex_unlock(&t->errors.lock);
	return count;
}

static uint64_t clock_of(const struct gnv_soft *soft)
{
	(void)soft;
	return gnv_soft_now();
}

/* ---- For tests ---- */

static void hold(struct gnv_soft *soft)
{
	gnv_soft_server_lock(gnv_soft_threads(soft)->server[0]);
}

static void release(struct gnv_soft *soft)
{
	gnv_soft_server_unlock(gnv_soft_threads(soft)->server[0]);
}

static void set_fault(struct gnv_soft *soft, const struct gnv_soft_fault *fault)
{
	struct gnv_soft_threads *t = gnv_soft_threads(soft);
	unsigned i;

	for (i = 0; i < t->servers; i++) {
		gnv_soft_server_lock(t->server[i]);
		t->server[i]->fault = fault ? *fault : (struct gnv_soft_fault){ 0 };
		gnv_soft_server_unlock(t->server[i]);
	}
}

const struct gnv_soft_engine_ops gnv_soft_engine_threads = {
	.name = "threads",
	.size = sizeof(struct gnv_soft_threads),
	.start = start,
	.stop = stop,
	.free = free_threads,
	.cq_create = gnv_soft_cq_create,
	.sq_create = gnv_soft_sq_create,
	.sq_close = gnv_soft_sq_close,
	.sq_is_dry = gnv_soft_sq_is_dry,
	.sq_delete = gnv_soft_sq_delete,
	.cq_delete = gnv_soft_cq_delete,
	.abort = gnv_soft_abort,
	.quiesce = gnv_soft_quiesce_servers,
	.is_quiet = gnv_soft_is_quiet,
	.flush = flush,
	.complete = complete,
	.discard = discard,
	.map = map_memory,
	.unmap = map_memory,
	.has_ring = gnv_soft_lies_in_queue,
	.is_still = gnv_soft_is_still,
	.counters = counters,
	.errors = errors,
	.now = clock_of,
	.hold = hold,
	.release = release,
	.set_fault = set_fault,
};
