/* SPDX-License-Identifier: MIT */
/*
 * A controller that fetches, counts and completes every command and does no I/O: threads of the CPU, each for some of the queues,
 * or, with nvcc, warps of the same GPU, one for each queue. It is the same for every queue that is compared.
 */
#ifndef GPUNVME_BENCH_CONTROLLER_H
#define GPUNVME_BENCH_CONTROLLER_H

#include <pthread.h>
#include <sched.h>

#include "machine.h"

enum serve_mode {
	SERVE_COUNT, /* complete in order, with success */
	SERVE_CHECK, /* out of order; every command has a stamp, its status follows from it, a fetched entry is overwritten */
	SERVE_ORDERED, /* as SERVE_CHECK, in order */
	SERVE_LATE, /* in order, but one command in a hundred after 10 ms */
	SERVE_HOSTILE /* as SERVE_CHECK, but with a trick */
};

#define LATE_SECONDS 0.010
#define LATE_MOST 4096u /* commands of one queue that are late at once */
#define HELD_MOST 64u

struct late {
	uint32_t cid;
	double due;
};

/* The controller's side of one queue. */
struct ring {
	volatile uint32_t *sq, *cq;
	uint32_t *sq_db, *cq_db;
	uint32_t depth, cq_depth, qid;
	uint32_t head, cq_tail, phase;
	uint64_t done;
	uint64_t random;
	uint32_t held_count;
	uint32_t held[HELD_MOST][2]; /* CID and stamp of commands not yet completed */
	struct late *late; /* LATE_MOST of them, in the order in which they are due */
	uint64_t late_in, late_out;
	uint64_t expect; /* commands; SERVE_LATE keeps when a quarter and a half of them were over: later some threads have ended */
	uint64_t mark_done[2];
	double mark_time[2];
	double quiet_until; /* SERVE_HOSTILE */
	bool tricked;
	uint64_t again_at; /* done: then what is in `again`, CID and status, is posted once more; 0: nothing is */
	uint32_t again[2];
};

/* What SERVE_CHECK knows of all commands. */
struct stamps {
	uint8_t *seen; /* by stamp: how often it was fetched */
	uint64_t count;
	uint64_t strange; /* commands that no thread sent */
};

struct controller {
	struct ring *rings;
	uint32_t queues, threads;
	enum serve_mode mode;
	struct stamps stamps;
	uint32_t trick; /* of hostile.h */
	uint32_t stop;
};

/* One of three commands fails, each with a status of its own. */
GNVD_FN uint32_t status_of(uint64_t stamp)
{
	uint64_t h = stamp * 0x9e3779b97f4a7c15ull;

	return h % 3 ? 0 : 0x4000u | (uint32_t)(1 + (h >> 40) % 0x7ff);
}

typedef uint32_t quad __attribute__((vector_size(16)));

static inline quad completion(const struct ring *q, uint32_t cid, uint32_t status)
{
	quad cqe = { 0, 0, q->qid << 16 | q->head, cid | q->phase << 16 | status << 17 };

	return cqe;
}

/* One store, where threads read an entry with one load; else dword 3 last. */
static inline void post_entry(struct ring *q, quad cqe)
{
	volatile uint32_t *at = q->cq + 4 * q->cq_tail;

#if ON_GPU
	*(volatile quad *)at = cqe;
#else
	__atomic_store_n(&at[2], cqe[2], __ATOMIC_RELAXED);
	__atomic_store_n(&at[3], cqe[3], __ATOMIC_RELEASE);
#endif
	if (++q->cq_tail == q->cq_depth) {
		q->cq_tail = 0;
		q->phase ^= 1;
	}
}

static inline void post(struct ring *q, uint32_t cid, uint32_t status)
{
	post_entry(q, completion(q, cid, status));
	q->done++;
}

static inline bool cq_full(const struct ring *q)
{
	return (q->cq_tail + 1) % q->cq_depth == __atomic_load_n(q->cq_db, __ATOMIC_ACQUIRE);
}

static inline uint32_t next_random(struct ring *q)
{
	q->random = q->random * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(q->random >> 33);
}

/* Each of these returns whether there was something to do. */

static inline bool serve_counting(struct ring *q)
{
	uint32_t tail = __atomic_load_n(q->sq_db, __ATOMIC_ACQUIRE), limit = 256;

	while (q->head != tail && limit && !cq_full(q)) {
		uint32_t dw0 = q->sq[16 * q->head];

		q->head = q->head + 1 == q->depth ? 0 : q->head + 1;
		post(q, dw0 >> 16, 0);
		limit--;
	}
	return limit < 256;
}

static inline void fetch_checked(struct ring *q, struct stamps *s)
{
	volatile uint32_t *sqe = q->sq + 16 * q->head;
	uint64_t stamp = sqe[10] | (uint64_t)sqe[11] << 32;
	int i;

	if ((sqe[0] & 0xff) != GPUNVME_IO_READ || stamp >= s->count || sqe[12] != 7 ||
	    __atomic_fetch_add(&s->seen[stamp], 1, __ATOMIC_RELAXED))
		__atomic_fetch_add(&s->strange, 1, __ATOMIC_RELAXED);
	q->held[q->held_count][0] = sqe[0] >> 16;
	q->held[q->held_count++][1] = (uint32_t)stamp;
	for (i = 0; i < 16; i++)
		sqe[i] = 0xffffffff;
	q->head = q->head + 1 == q->depth ? 0 : q->head + 1;
}

static inline void drop_held(struct ring *q, uint32_t at)
{
	q->held_count--;
	q->held[at][0] = q->held[q->held_count][0];
	q->held[at][1] = q->held[q->held_count][1];
}

static inline bool serve_checking(struct ring *q, struct stamps *s, bool ordered)
{
	uint32_t tail = __atomic_load_n(q->sq_db, __ATOMIC_ACQUIRE), most = ordered ? 1 : HELD_MOST, at, n;

	while (q->head != tail && q->held_count < most)
		fetch_checked(q, s);
	for (n = 0; n < 16 && q->held_count && !cq_full(q); n++) {
		at = next_random(q) % q->held_count;
		post(q, q->held[at][0], status_of(q->held[at][1]));
		drop_held(q, at);
	}
	return n > 0;
}

static inline void mark_time(struct ring *q, int mark, uint64_t done, double now)
{
	if (q->done >= done && !q->mark_done[mark]) {
		q->mark_done[mark] = q->done;
		q->mark_time[mark] = now;
	}
}

static inline bool serve_late(struct ring *q)
{
	uint32_t tail = __atomic_load_n(q->sq_db, __ATOMIC_ACQUIRE), limit = 256;
	double now = now_seconds();

	while (q->late_out != q->late_in && q->late[q->late_out % LATE_MOST].due <= now && !cq_full(q))
		post(q, q->late[q->late_out++ % LATE_MOST].cid, 0);
	while (q->head != tail && limit && !cq_full(q)) {
		uint32_t cid = q->sq[16 * q->head] >> 16;
		struct late late = { cid, now + LATE_SECONDS };

		q->head = q->head + 1 == q->depth ? 0 : q->head + 1;
		if (next_random(q) % 100 == 0 && q->late_in - q->late_out < LATE_MOST)
			q->late[q->late_in++ % LATE_MOST] = late;
		else
			post(q, cid, 0);
		limit--;
	}
	mark_time(q, 0, q->expect / 4, now);
	mark_time(q, 1, q->expect / 2, now);
	return limit < 256;
}

#include "hostile.h"

static inline bool serve(struct controller *c, struct ring *q)
{
	switch (c->mode) {
	case SERVE_COUNT:
		return serve_counting(q);
	case SERVE_LATE:
		return serve_late(q);
	case SERVE_HOSTILE:
		return serve_hostile(q, &c->stamps, (enum trick)c->trick);
	default:
		return serve_checking(q, &c->stamps, c->mode == SERVE_ORDERED);
	}
}

struct controller_thread {
	struct controller *c;
	pthread_t thread;
	uint32_t first; /* queue; the others are c->threads apart */
};

/* CPU threads of a kernel may need the core of a controller that finds nothing. Those of a GPU need none. */
static void *controller_main(void *arg)
{
	struct controller_thread *self = (struct controller_thread *)arg;
	struct controller *c = self->c;
	uint32_t i;
	bool busy;

	while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
		busy = false;
		for (i = self->first; i < c->queues; i += c->threads)
			busy |= serve(c, &c->rings[i]);
		if (!busy && !ON_GPU)
			sched_yield();
	}
	return NULL;
}

static inline struct controller_thread *controller_start(struct controller *c)
{
	struct controller_thread *t = (struct controller_thread *)calloc(c->threads, sizeof(*t));
	uint32_t i;

	for (i = 0; i < c->threads; i++) {
		t[i].c = c;
		t[i].first = i;
		if (pthread_create(&t[i].thread, NULL, controller_main, &t[i]))
			die("no thread for the controller");
	}
	return t;
}

static inline void controller_end(struct controller *c, struct controller_thread *t)
{
	uint32_t i;

	__atomic_store_n(&c->stop, 1, __ATOMIC_RELAXED);
	for (i = 0; i < c->threads; i++)
		pthread_join(t[i].thread, NULL);
	free(t);
}

/* ---- The controller as warps of the same GPU ---- */

#if ON_GPU

#define CONTROLLER_LANES 256

/* Up to 32 commands at once, completed in reverse, or in order. */
__global__ void gpu_controller(struct ring *rings, int count, const uint32_t *stop, int mode, uint32_t *seen, uint64_t stamps,
			       unsigned long long *strange)
{
	uint32_t lane = threadIdx.x & 31, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, idle = 0;

	if (warp >= (uint32_t)count)
		return;
	struct ring &shared = rings[warp];
	struct ring q = shared;
	for (;;) {
		uint32_t tail = __shfl_sync(~0u, gnvd_load_ring32((uint64_t)q.sq_db), 0);
		uint32_t cq_head = __shfl_sync(~0u, gnvd_load_ring32((uint64_t)q.cq_db), 0);
		uint32_t n = (tail - q.head) & (q.depth - 1), room = (cq_head - q.cq_tail - 1) & (q.cq_depth - 1), status = 0;

		n = n < 32 ? n : 32;
		n = n < room ? n : room;
		if (!n) {
			if ((++idle & 255) == 0 && __shfl_sync(~0u, gnvd_load_ring32((uint64_t)stop), 0))
				break;
			continue;
		}
		__threadfence_system(); /* the doorbell was seen, so is what was stored before it */
		volatile uint32_t *sqe = q.sq + 16 * ((q.head + lane) & (q.depth - 1));
		uint32_t dw0 = lane < n ? sqe[0] : 0;

		if (lane < n && mode != SERVE_COUNT) {
			uint64_t stamp = sqe[10] | (uint64_t)sqe[11] << 32;

			if ((dw0 & 0xff) != GPUNVME_IO_READ || stamp >= stamps || sqe[12] != 7 ||
			    atomicAdd(&seen[stamp / 4], 1u << stamp % 4 * 8) >> stamp % 4 * 8 & 0xff)
				atomicAdd(strange, 1ull);
			status = status_of(stamp);
			for (int i = 0; i < 16; i++)
				sqe[i] = 0xffffffff;
		}
		__threadfence(); /* all SQEs were read: a completion gives their places back */
		__syncwarp();
		if (lane < n) {
			uint32_t turn = mode == SERVE_ORDERED ? lane : n - 1 - lane;
			uint32_t at = (q.cq_tail + turn) & (q.cq_depth - 1), phase = q.phase ^ (at < q.cq_tail);

			__asm__ volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %1, %2, %3};" : : "l"(q.cq + 4 * at), "r"(0),
					 "r"(q.qid << 16 | ((q.head + n) & (q.depth - 1))), "r"(dw0 >> 16 | phase << 16 | status << 17)
					 : "memory");
		}
		q.head = (q.head + n) & (q.depth - 1);
		q.phase ^= q.cq_tail + n >= q.cq_depth;
		q.cq_tail = (q.cq_tail + n) & (q.cq_depth - 1);
		q.done += n;
		idle = 0;
		__syncwarp();
	}
	if (lane == 0)
		shared.done = q.done;
}

static int controller_blocks(int queues)
{
	return (queues * 32 + CONTROLLER_LANES - 1) / CONTROLLER_LANES;
}

struct gpu_side {
	cudaStream_t stream;
	uint32_t *stop, *seen;
	struct ring *rings;
	unsigned long long *strange;
};

/* @apart: each block takes all shared memory of a multiprocessor, so no other block runs there. */
static struct gpu_side gpu_controller_start(struct controller *c, bool apart)
{
	struct gpu_side g = {};
	int room = 0;

	CUDA(cudaStreamCreateWithFlags(&g.stream, cudaStreamNonBlocking));
	g.stop = (uint32_t *)shared_alloc(4);
	g.rings = (struct ring *)local_alloc(sizeof(struct ring) * c->queues, c->rings);
	g.strange = (unsigned long long *)local_alloc(8, NULL);
	if (c->mode != SERVE_COUNT)
		g.seen = (uint32_t *)local_alloc(c->stamps.count + 4, NULL);
	if (apart) {
		CUDA(cudaDeviceGetAttribute(&room, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
		CUDA(cudaFuncSetAttribute(gpu_controller, cudaFuncAttributeMaxDynamicSharedMemorySize, room));
	}
	CUDA(cudaDeviceSynchronize());
	gpu_controller<<<controller_blocks(c->queues), CONTROLLER_LANES, (size_t)room, g.stream>>>(g.rings, c->queues, g.stop, c->mode, g.seen,
											c->stamps.count, g.strange);
	CUDA(cudaGetLastError());
	return g;
}

/* Stop, and bring what was counted back to where the host's controller counts. */
static void gpu_controller_end(struct controller *c, struct gpu_side *g)
{
	*(volatile uint32_t *)g->stop = 1;
	CUDA(cudaStreamSynchronize(g->stream));
	local_read(c->rings, (uint64_t)g->rings, sizeof(struct ring) * c->queues);
	local_read(&c->stamps.strange, (uint64_t)g->strange, 8);
	if (g->seen)
		local_read(c->stamps.seen, (uint64_t)g->seen, c->stamps.count);
	CUDA(cudaFree(g->seen));
	local_free((uint64_t)g->rings);
	local_free((uint64_t)g->strange);
	shared_free(g->stop);
	CUDA(cudaStreamDestroy(g->stream));
}

#endif

#endif
