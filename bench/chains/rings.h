/* SPDX-License-Identifier: MIT */
/*
 * The baseline of bench/chains and bench/search_drive: CPU threads on bare rings, without time-outs and recovery. They ring both
 * doorbells once for a batch. CPU and waves exchange words in memory of the host: what has arrived, and which nodes come next. There
 * are no launches, unless batches are asked for (batches.h).
 */
#ifndef BENCH_CHAINS_RINGS_H
#define BENCH_CHAINS_RINGS_H

#include <ctime>
#include <thread>
#include <vector>

#include <sched.h>

#include <gpunvme/device.h>

#include "batches.h"

#define BEAM 4u /* nodes of a step, at most */

/* What a wave wants next, in memory of the host: a line. Each word has its step in the upper bits, so it needs no fence. */
struct mail {
	uint64_t want[BEAM];
	uint64_t pad[8 - BEAM];
};

#define STEP_SHIFT 40
#define NO_NODE ((1ull << STEP_SHIFT) - 1) /* in place of a node */

/* What both ways have in common. Node i lies at skip + i * node. Chain c has room for BEAM nodes at buf. */
struct trip {
	const struct gpunvme_dq *dq;
	struct gpunvme_dbuf buf;
	uint64_t skip;
	int *failed;
	uint64_t ns; /* so long the waves begin new chains */
	uint32_t queues, node, chains;
};

static inline double now()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A queue as the CPU's threads use it: no time-outs, no recovery, no checks. */
struct ring {
	const struct gpunvme_dq *dq;
	uint32_t tail, head, phase;
	bool rung = true;

	/* Goes on where the library's own test of the queue ended. */
	explicit ring(const struct gpunvme_dq *d) : dq(d)
	{
		const struct gpunvme_dq_state *state = (const struct gpunvme_dq_state *)dq->state;

		tail = state->pub & ((1u << dq->sq_shift) - 1);
		head = state->drain >> 1 & ((1u << dq->cq_shift) - 1);
		phase = !(state->drain >> 1 >> dq->cq_shift & 1);
	}

	void put(uint32_t cid, uint64_t iova, uint64_t lba, uint32_t blocks)
	{
		uint32_t *e = (uint32_t *)dq->sq + 16 * tail;

		e[0] = GPUNVME_IO_READ | cid << 16;
		e[1] = dq->nsid;
		e[6] = (uint32_t)iova;
		e[7] = iova >> 32;
		e[10] = (uint32_t)lba;
		e[11] = lba >> 32;
		e[12] = blocks - 1;
		tail = (tail + 1) & ((1u << dq->sq_shift) - 1);
		rung = false;
	}

	void ring_doorbell()
	{
		if (!rung)
			__atomic_store_n((uint32_t *)dq->sq_db, tail, __ATOMIC_RELEASE);
		rung = true;
	}

	/* @return the identifier of the next completion, or -1; @failed is set to a status that is not success */
	int take(int *failed)
	{
		uint32_t dw3 = __atomic_load_n((uint32_t *)dq->cq + 4 * head + 3, __ATOMIC_ACQUIRE);

		if ((dw3 >> 16 & 1) != phase)
			return -1;
		if (dw3 >> 17)
			*failed = dw3 >> 17;
		head = (head + 1) & ((1u << dq->cq_shift) - 1);
		phase ^= head == 0;
		return dw3 & 0xffff;
	}
};

/* A CPU thread, its chains and its queues. */
struct rings {
	const struct trip *j;
	struct mail *mail;
	uint64_t *arrived;
	struct kernels *kernels; /* or null */
	uint32_t first, count, queue, queues;
	struct pending pending = {};
	uint64_t reads = 0;
	int failed = 0;
	std::vector<ring> ring_of = {};
	std::vector<uint32_t> missing = {}; /* nodes of a chain's step that are on their way */
	std::vector<uint64_t> steps = {};   /* that a chain has begun */
	uint64_t want[BEAM] = {};
	uint32_t live = 0; /* chains whose waves have not ended */

	/* Has the wave said what it wants in its next step? */
	bool is_wanted(uint32_t s)
	{
		for (uint32_t b = 0; b < BEAM; b++) {
			uint64_t word = __atomic_load_n(&mail[first + s].want[b], __ATOMIC_ACQUIRE);

			if ((word ^ (steps[s] + 1) << STEP_SHIFT) >> STEP_SHIFT)
				return false;
			want[b] = word & NO_NODE;
		}
		return true;
	}

	void submit(uint32_t s)
	{
		for (uint32_t b = 0; b < BEAM; b++) {
			if (want[b] == NO_NODE)
				continue;
			ring_of[s % queues].put(s * BEAM + b, j->buf.iova + ((first + s) * (uint64_t)BEAM + b) * j->node,
						(j->skip + want[b] * j->node) / 512, j->node / 512);
			missing[s]++;
		}
		steps[s]++;
		reads += missing[s];
		if (missing[s])
			return;
		live--;
		go_on(s, true);
	}

	/* A chain has its nodes, or has ended. */
	void go_on(uint32_t s, bool ended)
	{
		if (kernels && pending.arrived(s, ended))
			kernels->start((first + s) / kernels->size);
	}

	void take(ring *r)
	{
		uint32_t before = r->head;
		int cid;

		r->ring_doorbell();
		while ((cid = r->take(&failed)) >= 0) {
			uint32_t s = (uint32_t)cid / BEAM;

			if (--missing[s])
				continue;
			__atomic_store_n(&arrived[first + s], steps[s], __ATOMIC_RELEASE);
			go_on(s, false);
		}
		if (r->head != before)
			__atomic_store_n((uint32_t *)r->dq->cq_db, r->head, __ATOMIC_RELEASE);
	}

	/* A drive that dies ends its queues: GPU threads see the same word. */
	void look_for_end(const ring *r)
	{
		uint32_t why = __atomic_load_n((const uint32_t *)(uintptr_t)r->dq->stop, __ATOMIC_RELAXED);

		if (why)
			failed = -(int)(why == 1 ? GPUNVME_ECANCELED : why);
	}

	/* Completions, then what the waves want next, then the doorbells, until no wave wants anything. */
	void run()
	{
		for (uint32_t q = 0; q < queues; q++)
			ring_of.emplace_back(&j->dq[queue + q]);
		missing.assign(count, 0);
		steps.assign(count, 0);
		if (kernels)
			pending.begin(count, kernels->size);
		for (uint32_t s = 0; kernels && s < count; s += kernels->size)
			kernels->start((first + s) / kernels->size);
		for (live = count; live && !failed;) {
			for (ring &r : ring_of) {
				take(&r);
				look_for_end(&r);
			}
			for (uint32_t s = 0; s < count; s++)
				if (!missing[s] && is_wanted(s))
					submit(s);
#ifndef __CUDACC__
			sched_yield(); /* the waves are threads of this CPU, too */
#endif
		}
	}
};

/* Return: reads of @threads CPU threads. They end when the waves have ended, or a read failed. @k: null where a kernel stays. */
static inline uint64_t run_rings(struct trip *j, struct mail *mail, uint64_t *arrived, uint32_t threads, struct kernels *k = nullptr)
{
	uint32_t each = j->chains / threads, queues = j->queues / threads;
	std::vector<struct rings> all;
	std::vector<std::thread> thread;
	uint64_t reads = 0;

	for (uint32_t i = 0; i < threads; i++)
		all.push_back({ j, mail, arrived, k, i * each, each, i * queues, queues });
	for (auto &r : all)
		thread.emplace_back(&rings::run, &r);
	for (auto &t : thread)
		t.join();
	for (auto &r : all) {
		reads += r.reads;
		if (r.failed)
			*j->failed = r.failed;
	}
	return reads;
}

#endif
