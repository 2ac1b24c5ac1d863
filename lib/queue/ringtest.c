/* SPDX-License-Identifier: MIT */
#include "queue/ringtest.h"

#include <errno.h>
#include <stdlib.h>

#include "util/bits.h"
#include "util/clock.h"
#include "util/mmio.h"
#include "util/thread.h"

#define FIRST_NS (2000 * GNV_NS_PER_MS) /* the kernel has to begin */
#define LAUNCH_MS 20000u		/* repeated while something was rung meanwhile */
#define SPIN_NS (10 * GNV_NS_PER_MS) /* a later completion is late or lost: a look in each millisecond is enough */
#define STOP (~0u) /* as gnv_ring_args.go: end */

struct run {
	struct gnv_ringtest *test;
	struct gnv_qp *qp;
	uint32_t nsid;
	uint64_t prp2;
	uint32_t sent;	/* atomic while threads ring. Commands, and with each completion seen the CQ's position too */
	uint32_t asked; /* its value when the launch asked last */
	uint64_t last;	/* nanoseconds from the doorbell of the last command to its completion */
	uint64_t *took; /* the same of each that counts, of dev->ringtest.rings */
	uint32_t taken; /* how many these are */
	int launched;	/* result of the launch */
	struct gnv_message why;
};

/* For a ring that is not under test: of the CPU, or the first one. */
static uint64_t patience(const struct run *run)
{
	return gnv_max(FIRST_NS, run->qp->dev->ringtest.lost_ns);
}

static bool gets_on(void *ctx)
{
	struct run *run = ctx;
	uint32_t before = run->asked;

	run->asked = __atomic_load_n(&run->sent, __ATOMIC_RELAXED);
	return run->asked != before;
}

/* A thread that gets no command ends by itself, after the host has given up. */
static void *lane_main(void *arg)
{
	struct run *run = arg;
	struct gnv_qp *qp = run->qp;
	const struct gnv_ring_args args = { .doorbell = qp->sq_db,
					    .go = run->test->go.lane,
					    .rung = run->test->go.lane + 64,
					    .timeout = 2 * patience(run) / GNV_NS_PER_MS * gnv_gpu_ticks_per_ms(qp->gpu),
					    .rings = qp->dev->ringtest.rings,
					    .mask = qp->depth - 1 };
	const struct gnv_launch launch = { GNV_KERNEL_RING, &args, sizeof(args), 1, LAUNCH_MS, gets_on, run };

	run->launched = qp->gpu->ops->launch(qp->gpu, &launch);
	if (run->launched)
		run->why = gnv_message();
	return NULL;
}

static void put_command(struct run *run)
{
	struct gpunvme_sqe *sqe = (struct gpunvme_sqe *)run->qp->sq.cpu + run->sent % run->qp->depth;

	*sqe = (struct gpunvme_sqe){ .opc = GPUNVME_IO_READ,
				     .cid = (uint16_t)run->sent,
				     .nsid = run->nsid,
				     .prp1 = run->test->data.iova,
				     .prp2 = run->prp2 };
	__atomic_store_n(&run->sent, run->sent + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

/* See the completion of the command sent last. Its status does not matter here. */
static int see(struct run *run, uint64_t start, uint64_t limit)
{
	struct gnv_qp *qp = run->qp;
	uint32_t at = run->sent - 1, phase = ~(at / qp->cq_depth) & 1;
	const struct gpunvme_cqe *cqe = (const struct gpunvme_cqe *)qp->cq.cpu + at % qp->cq_depth;
	const uint32_t *last = &((const uint32_t *)(const void *)cqe)[3];
	uint64_t now = start;
	uint32_t dw3;

	for (;;) {
		dw3 = __atomic_load_n(last, __ATOMIC_ACQUIRE);
		if (!!(dw3 & GPUNVME_CQE_DW3_PHASE) == phase)
			break;
		if (now - start > limit)
			return -ETIMEDOUT;
		if (now - start < SPIN_NS)
			gnv_cpu_pause();
		else
			gnv_sleep_ms(1);
		now = gnv_clock_ns();
	}
	now = gnv_clock_ns();
	if ((dw3 & GPUNVME_CQE_DW3_CID) != (uint16_t)at)
		return -EPROTO;
	gnv_mmio_write32(qp->dev->nvme.ctrl.bar + gnv_ctrl_cq_doorbell(&qp->dev->nvme.ctrl, qp->qid), (at + 1) % qp->cq_depth);
	run->last = now - start;
	return 0;
}

static void count_last(struct run *run)
{
	run->took[run->taken++] = run->last;
}

/* Has the thread rung for the last command? The kernel stores the number after the doorbell. */
static bool has_rung(const struct run *run)
{
	const char *go = run->test->go.cpu;

	return __atomic_load_n((const uint32_t *)(const void *)(go + 64), __ATOMIC_ACQUIRE) == run->sent;
}

/*
 * Threads stop while the kernel moves pages that the GPU maps, for 100 ms and more (Linux kfd_priv.h, PROCESS_RESTORE_TIME_MS).
 * They also stop for a time slice if the GPU has more queues than it runs at once. That says nothing about the mapping, so such a
 * ring is waited for and does not count.
 * Return: 0 its completion is there; -EBUSY the thread stands still; -ETIMEDOUT it has rung, and the controller does not complete.
 */
static int outlast(struct run *run)
{
	uint64_t start = gnv_clock_ns();

	while (!has_rung(run)) {
		if (gnv_clock_ns() - start > patience(run))
			return -EBUSY;
		gnv_sleep_ms(1);
	}
	return see(run, gnv_clock_ns(), run->qp->dev->ringtest.lost_ns);
}

static int ring_once(struct run *run, uint32_t i)
{
	uint64_t start;
	int ret;

	put_command(run);
	start = gnv_clock_ns();
	__atomic_store_n((uint32_t *)run->test->go.cpu, i, __ATOMIC_RELEASE);
	ret = see(run, start, i == 1 ? patience(run) : run->qp->dev->ringtest.lost_ns);
	if (ret == -ETIMEDOUT)
		return outlast(run);
	if (!ret && i > 1) /* the first shows when the kernel began */
		count_last(run);
	return ret;
}

static int ring_by_lane(struct run *run)
{
	uint32_t i;
	int ret = 0;

	for (i = 1; i <= run->qp->dev->ringtest.rings && !ret; i++)
		ret = ring_once(run, i);
	if (ret)
		__atomic_store_n((uint32_t *)run->test->go.cpu, STOP, __ATOMIC_RELEASE);
	return ret;
}

static char GNV_MMIO *cpu_bell(const struct run *run)
{
	return run->qp->dev->nvme.ctrl.bar + gnv_ctrl_sq_doorbell(&run->qp->dev->nvme.ctrl, run->qp->qid);
}

/*
 * The CPU rings for the command whose doorbell write by the thread was lost. If the command still does not complete, doorbells are
 * not the cause. The CPU writes the same value, which a controller may report if the thread's write still comes (Invalid Doorbell
 * Write Value). After a greater value, the thread's write would be a step back: the controller would see commands not written yet.
 */
static int ring_again(struct run *run)
{
	gnv_mmio_write32(cpu_bell(run), run->sent % run->qp->depth);
	return see(run, gnv_clock_ns(), patience(run));
}

/* As many as by the thread: of fewer the slow ones would be fewer, too. */
static int ring_by_cpu(struct run *run)
{
	char GNV_MMIO *bell = cpu_bell(run);
	uint32_t i;
	int ret = 0;

	for (i = 0; i < run->qp->dev->ringtest.rings && !ret; i++) {
		uint64_t start;

		put_command(run);
		start = gnv_clock_ns();
		gnv_mmio_write32(bell, run->sent % run->qp->depth);
		ret = see(run, start, patience(run));
		if (!ret)
			count_last(run);
	}
	return ret;
}

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Nanoseconds within which 99 of 100 were seen. The samples are consumed. */
static uint64_t percentile_99(struct run *run)
{
	uint32_t n = run->taken;

	run->taken = 0;
	if (!n)
		return 0;
	qsort(run->took, n, sizeof(*run->took), compare);
	return run->took[n - 1 - (n + 50) / 100];
}

/* One block of data, and the list of its pages where it has more than two. */
static int place(struct run *run)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_dev *dev = run->qp->dev;
	struct gnv_ringtest *test = run->test;
	size_t page = dev->nvme.ctrl.page_size, at;
	int ret = gpunvme_ns_get_info(dev, 0, &ns);

	if (ret)
		return ret == -EOPNOTSUPP ? -ENOENT : ret;
	run->nsid = ns.nsid;
	ret = gnv_arena_alloc(dev->nvme.arena, ns.lba_size, NULL, &test->data);
	if (ret)
		return ret;
	ret = gnv_arena_alloc(dev->nvme.arena, page, NULL, &test->list);
	if (ret)
		return ret;
	ret = gnv_arena_alloc(dev->nvme.arena, 128, run->qp->gpu, &test->go);
	if (ret || ns.lba_size <= page)
		return ret;
	run->prp2 = ns.lba_size <= 2 * page ? test->data.iova + page : test->list.iova;
	for (at = page; at < ns.lba_size; at += page)
		((uint64_t *)test->list.cpu)[at / page - 1] = test->data.iova + at;
	return 0;
}

static int explain(const struct run *run, int ret, uint64_t by_lane, uint64_t by_cpu)
{
	uint32_t qid = run->qp->qid;

	if (ret == -ETIMEDOUT)
		return gnv_fail(ret, "a doorbell that the GPU rang (%u of queue %u) did not reach the controller", run->sent, qid);
	if (ret == -EPROTO)
		return gnv_fail(ret, "the controller completed another command than the GPU rang for on queue %u", qid);
	if (!ret && by_lane > by_cpu + run->qp->dev->ringtest.late_ns)
		return gnv_fail(-EAGAIN,
				"one in a hundred doorbells of the GPU was seen after %llu us or more, and of the CPU after %llu us",






				(unsigned long long)by_lane / 1000, (unsigned long long)by_cpu / 1000);
	return ret;
}

static int deaf(const struct gnv_qp *qp)
{
	return gnv_fail(-EIO, "the controller does not see the commands, or the CPU not the completions, of queue %u in %s memory",
			qp->qid, qp->local ? "GPU" : "host");
}

static int judge(struct run *run, int ret)
{
	struct gnv_qp *qp = run->qp;
	uint64_t by_lane;

	if (run->launched)
		return gnv_fail(-EIO, "the thread that tests the doorbells did not run: %s", run->why.text);
	if (ret == -EBUSY && has_rung(run) && see(run, gnv_clock_ns(), 0))
		ret = -ETIMEDOUT;
	if (ret == -EBUSY)
		return gnv_fail(ret, "the GPU ran no kernel in time to ring doorbell %u of queue %u: nothing for %llu ms",
				run->sent, qp->qid, (unsigned long long)(patience(run) / GNV_NS_PER_MS));
	if (ret == -ETIMEDOUT && ring_again(run))
		return deaf(qp);
	by_lane = percentile_99(run);
	if (!ret)
		ret = ring_by_cpu(run);
	return explain(run, ret, by_lane, percentile_99(run));
}

static int run_lane(struct run *run)
{
	pthread_t thread;
	int ret = gnv_thread_start(&thread, lane_main, run);

	if (ret)
		return gnv_fail(ret, "no thread for the test of the doorbells");
	ret = ring_by_lane(run);
	pthread_join(thread, NULL); /* bounded: by its time-out, by STOP */
	return judge(run, ret);
}

int gnv_ringtest_run(struct gnv_ringtest *test, struct gnv_qp *qp)
{
	struct run run = { .test = test, .qp = qp };
	int ret = place(&run);

	if (ret)
		return ret;
	run.took = calloc(qp->dev->ringtest.rings, sizeof(*run.took));
	if (!run.took)
		return gnv_fail(-ENOMEM, "no memory for the times of %u doorbells", qp->dev->ringtest.rings);
	ret = run_lane(&run);
	if (run.launched == -ETIMEDOUT) /* the thread may begin later: it reads there that it is to end */
		gnv_arena_keep(qp->dev->nvme.arena, &test->go);
	free(run.took);
	return ret;
}

int gnv_ringtest_one(struct gnv_ringtest *test, struct gnv_qp *qp, int (*ring)(void *ctx), void *ctx)
{
	struct run run = { .test = test, .qp = qp };
	int ret = place(&run);

	if (ret)
		return ret;
	put_command(&run);
	ret = ring(ctx);
	if (!ret)
		ret = see(&run, gnv_clock_ns(), patience(&run));
	if (ret == -ETIMEDOUT && ring_again(&run))
		return deaf(qp);
	return explain(&run, ret, 0, 0);
}

void gnv_ringtest_fini(struct gnv_ringtest *test, struct gnv_qp *qp)
{
	gnv_arena_free(qp->dev->nvme.arena, &test->go);
	gnv_arena_free(qp->dev->nvme.arena, &test->list);
	gnv_arena_free(qp->dev->nvme.arena, &test->data);
}
