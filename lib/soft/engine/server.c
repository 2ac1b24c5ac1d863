/* SPDX-License-Identifier: MIT */
/* Server threads: the loop, its start and its end. */
#include "soft/engine/threads.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/thread.h"

#define BATCH 64u
#define BATCH_TIMED 16u /* with a timing model: completions are due meanwhile */
#define DRAIN_WAIT_US 100u
#define WAKE_NS 5000u /* a doorbell may be written meanwhile */

uint64_t gnv_soft_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- The lock ---- */

void gnv_soft_server_lock(struct gnv_soft_server *server)
{
	__atomic_fetch_add(&server->wanted, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&server->lock);
	__atomic_fetch_sub(&server->wanted, 1, __ATOMIC_RELAXED);
}

bool gnv_soft_server_lock_within(struct gnv_soft_server *server, uint32_t ms)
{
	struct gnv_deadline deadline = gnv_deadline_in(ms);
	bool locked;

	__atomic_fetch_add(&server->wanted, 1, __ATOMIC_RELAXED);
	do {
		locked = !pthread_mutex_trylock(&server->lock);
	} while (!locked && gnv_deadline_poll_again(&deadline));
	__atomic_fetch_sub(&server->wanted, 1, __ATOMIC_RELAXED);
	return locked;
}

void gnv_soft_server_unlock(struct gnv_soft_server *server)
{
	if (server->posted)
		gnv_soft_interrupt(server);
	pthread_mutex_unlock(&server->lock);
}

/* A mutex is not fair and the loop takes it again at once, so the loop lets others go first. */
static void lock_own(struct gnv_soft_server *server)
{
	while (__atomic_load_n(&server->wanted, __ATOMIC_RELAXED))
		sched_yield();
	pthread_mutex_lock(&server->lock);
}

/* ---- One pass ---- */

static unsigned complete(const struct gnv_uring_done *done, unsigned n)
{
	unsigned i;

	for (i = 0; i < n; i++)
		gnv_soft_io_done(done[i].tag, done[i].res);
	return n;
}

static unsigned serve_controller(struct gnv_soft *soft)
{
	unsigned work = gnv_soft_regs_poll(soft);

	work += gnv_soft_admin_poll(soft);
	work += gnv_soft_events_poll(soft);
	return work;
}

static unsigned serve_queues(struct gnv_soft_server *server, struct gnv_soft_pace *pace)
{
	const unsigned batch = server->soft->timing.on ? BATCH_TIMED : BATCH, outstanding = server->in_store;
	struct gnv_soft_cq *cq;
	struct gnv_soft_sq *sq;
	unsigned work = 0, fetched = 0;

	for (cq = server->cqs; cq; cq = cq->next)
		work += gnv_soft_cq_poll(cq);
	if (!gnv_soft_is_silent(server->soft))
		work += gnv_soft_unpark(server, &pace->deadline);
	gnv_soft_interrupt_by(server, &pace->deadline);
	for (sq = server->sqs; sq; sq = sq->next)
		fetched += gnv_soft_fetch(sq, batch);
	if (fetched && outstanding)
		pace->calm = 0;
	return work + fetched;
}

/* Commands that the kernel does not have end here, or they would never end. */
static void end_unsent(struct gnv_soft_server *server, struct gnv_soft_seat *seat, int err)
{
	void *tag[BATCH];
	unsigned i, n;

	if (!server->refusal_said)
		gnv_log(server->soft->log, GPUNVME_LOG_ERROR,
			"io_uring takes no requests (%s, said once): commands end with Internal Error. Check for a seccomp filter or for "
			"closed descriptors of the library, and open the device again",
			strerror(-err));
	server->refusal_said = true;
	lock_own(server);
	while ((n = seat->store->ops->take_back(seat, tag, BATCH)))
		for (i = 0; i < n; i++)
			gnv_soft_io_unsent(tag[i]);
	gnv_soft_server_unlock(server);
}

/* Requests that the kernel has no room for are handed over again at the next pass, for a limited time. */
static void submit_to(struct gnv_soft_server *server, struct gnv_soft_seat *seat)
{
	int ret = seat->store->ops->submit(seat);
	uint64_t now;

	if (!ret) {
		seat->refused_since = 0;
		return;
	}
	now = gnv_soft_now();
	if (!seat->refused_since)
		seat->refused_since = now;
	if (ret != -EAGAIN || now - seat->refused_since > seat->soft->patience_ms * 1000000ull)
		end_unsent(server, seat, ret);
}

static void submit(struct gnv_soft_server *server)
{
	unsigned i;

	for (i = 0; i < server->soft->parts; i++)
		submit_to(server, &server->seat[i]);
}

static void tell_time(struct gnv_soft_server *server)
{
	server->looked = server->now;
	server->now = gnv_soft_now();
}

static unsigned pass(struct gnv_soft_server *server, struct gnv_soft_pace *pace)
{
	struct gnv_uring_done done[BATCH];
	unsigned n = gnv_soft_reap(server, done, BATCH);
	unsigned work;

	lock_own(server);
	gnv_soft_dma_begin_pass(&server->dma);
	if (server->soft->timing.on)
		tell_time(server);
	work = complete(done, n);
	work += serve_queues(server, pace);
	if (server->index == 0)
		work += serve_controller(server->soft);
	gnv_soft_dma_end_pass(&server->dma);
	gnv_soft_server_unlock(server);
	submit(server);
	return work;
}

static bool should_stop(const struct gnv_soft_server *server)
{
	return __atomic_load_n(&server->stop, __ATOMIC_RELAXED);
}

/* Nothing to poll: wait for a queue. Thread 0 always has the registers. */
static void wait_for_queue(struct gnv_soft_server *server)
{
	if (server->index == 0)
		return;
	lock_own(server);
	if (!server->sqs)
		gnv_soft_tidy(server);
	while (!server->sqs && !server->in_store && !server->posted && !should_stop(server))
		pthread_cond_wait(&server->wake, &server->lock);
	gnv_soft_server_unlock(server);
}

static void serve(struct gnv_soft_server *server)
{
	struct gnv_soft_pace pace = { 0 };

	while (!should_stop(server)) {
		if (pass(server, &pace)) {
			pace.idle_since = 0;
			pace.spins = true;
			continue;
		}
		wait_for_queue(server);
		gnv_soft_rest(server, &pace);
	}
}

/* The kernel still accesses host memory for steps in the store. A stop of the worker waits for them, for a limited time. */
static void drain(struct gnv_soft_server *server)
{
	struct gnv_uring_done done[BATCH];
	unsigned n;

	gnv_soft_quiesce_server(server, true);
	while (server->in_store) {
		submit(server);
		gnv_soft_wait(server, DRAIN_WAIT_US);
		n = gnv_soft_reap(server, done, BATCH);
		lock_own(server);
		complete(done, n);
		gnv_soft_server_unlock(server);
	}
}

/* ---- Start and stop ---- */

static void report_start(struct gnv_soft_server *server, int started)
{
	gnv_soft_server_lock(server);
	server->started = started;
	pthread_cond_broadcast(&server->wake);
	gnv_soft_server_unlock(server);
}

static void *run(void *arg)
{
	struct gnv_soft_server *server = arg;
	int ret = gnv_soft_attach(server);

	gnv_sys_wake_within(WAKE_NS);
	gnv_sys_short_slices();
	gnv_sys_serves_io(); /* its controller may have a block device of the kernel above it */
	report_start(server, ret ? ret : 1);
	if (ret)
		return NULL;
	serve(server);
	drain(server);
	gnv_soft_detach(server);
	__atomic_store_n(&server->ended, true, __ATOMIC_RELEASE);
	return NULL;
}

static void free_memory(struct gnv_soft_server *server)
{
	free(server->seat);
	free(server->parked);
	free(server->slots);
	free(server);
}

static void fill_slot(struct gnv_soft_server *server, struct gnv_soft_slot *slot, struct gnv_soft *soft)
{
	slot->cmd.data = &slot->data;
	slot->cmd.io = &soft->io;
	slot->data.dma = &server->dma;
	gnv_soft_segs_init(&slot->data.segs);
	slot->cmd.next = server->free;
	server->free = &slot->cmd;
}

static struct gnv_soft_server *new_server(struct gnv_soft *soft, unsigned index)
{
	struct gnv_soft_server *server = calloc(1, sizeof(*server));
	pthread_mutexattr_t recursive;
	unsigned i;

	if (!server)
		return NULL;
	server->slots = calloc(GNV_SOFT_CMDS, sizeof(*server->slots));
	server->parked = calloc(GNV_SOFT_CMDS, sizeof(*server->parked));
	server->seat = calloc(soft->parts, sizeof(*server->seat));
	if (!server->slots || !server->parked || !server->seat) {
		free_memory(server);
		return NULL;
	}
	for (i = 0; i < GNV_SOFT_CMDS; i++)
		fill_slot(server, &server->slots[i], soft);
	server->free_count = GNV_SOFT_CMDS;
	server->soft = soft;
	server->index = index;
	if (index == 0)
		soft->dma = &server->dma;
	server->dma.space = gnv_soft_threads(soft)->space;
	server->dma.io = &soft->io;
	server->dma.log = soft->log;
	pthread_mutexattr_init(&recursive);
	pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
	pthread_mutex_init(&server->lock, &recursive);
	pthread_mutexattr_destroy(&recursive);
	pthread_cond_init(&server->wake, NULL);
	return server;
}

void gnv_soft_server_free(struct gnv_soft_server *server)
{
	pthread_cond_destroy(&server->wake);
	pthread_mutex_destroy(&server->lock);
	free_memory(server);
}

int gnv_soft_server_start(struct gnv_soft *soft, unsigned index)
{
	struct gnv_soft_server *server = new_server(soft, index);
	int ret;

	if (!server)
		return -ENOMEM;
	ret = gnv_thread_start(&server->thread, run, server);
	if (!ret) {
		gnv_soft_server_lock(server);
		while (!server->started)
			pthread_cond_wait(&server->wake, &server->lock);
		ret = server->started < 0 ? server->started : 0;
		gnv_soft_server_unlock(server);
		if (ret)
			pthread_join(server->thread, NULL);
	}
	if (ret)
		gnv_soft_server_free(server);
	else
		gnv_soft_threads(soft)->server[index] = server;
	return ret;
}

void gnv_soft_server_ask_stop(struct gnv_soft_server *server)
{
	__atomic_store_n(&server->stop, true, __ATOMIC_RELAXED);
	if (server->index == 0) /* it sleeps for times only */
		return;
	gnv_soft_server_lock(server);
	pthread_cond_broadcast(&server->wake);
	gnv_soft_server_unlock(server);
}

bool gnv_soft_server_join(struct gnv_soft_server *server, struct gnv_deadline *deadline)
{
	if (server->joined)
		return true;
	while (!__atomic_load_n(&server->ended, __ATOMIC_ACQUIRE))
		if (!gnv_deadline_poll_again(deadline))
			return false;
	pthread_join(server->thread, NULL);
	server->joined = true;
	return true;
}
