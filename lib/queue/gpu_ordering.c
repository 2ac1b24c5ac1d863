/* SPDX-License-Identifier: MIT */
/*
 * The host side of the ordering tests. The threads' side is gpu/kernels/ordering.h. Each test has a queue pair of its own. Launches
 * go in pieces so that no kernel runs long. If a completion is missing, a search finds the broken link of the chain.
 * Invariant: the queue is deleted before its buffer goes, as a failed test leaves commands in flight.
 */
#include <gpunvme/gpu.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gpu/kernels/kernels.h"
#include "dma/mem_map.h"
#include "queue/qp.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/entry.h"
#include "util/mmio.h"
#include "util/opts.h"

#define COMMANDS 100000u
#define TIMEOUT_MS 2000u
#define PIECE 2048u /* commands of one launch */
#define COPIED_PIECE 128u
#define COPIED_BYTES (2u << 20) /* HIP pins for copies of more than 1 MiB (clr rocblit.cpp, DmaBlitManager) */
#define DEPTH 64u
#define BATCH 32u
#define MEMORY (uint32_t)(GPUNVME_MEM_HOST | GPUNVME_MEM_HUGE | GPUNVME_MEM_SHARED | GPUNVME_MEM_VRAM | GNV_MEM_VENDOR)

/* Of the block that is read. */
struct words {
	uint32_t fill, first, last;
};

struct ordering_run {
	struct gnv_qp *qp;
	struct gpunvme_mem *mem;
	struct gnv_gpu_range out; /* struct gnv_ordering_result */
	struct gnv_ordering_args args;
	struct gnv_ordering_result result;
	const struct gpunvme_ordering_opts *opts;
	uint64_t before; /* commands of the tests before this one */
};

static const struct {
	const char *name;
	uint32_t mode;
} kinds[GPUNVME_ORDERING_TESTS] = {
	[GPUNVME_ORDERING_ORDER] = { "order", 0 },
	[GPUNVME_ORDERING_CQE] = { "cqe", GNV_ORDERING_WARM_CQ },
	[GPUNVME_ORDERING_DATA] = { "data", GNV_ORDERING_WARM_DATA },
	[GPUNVME_ORDERING_DOORBELL] = { "doorbell", GNV_ORDERING_RING_EACH },
	[GPUNVME_ORDERING_CQE16] = { "cqe16", GNV_ORDERING_CQE16 },
	[GPUNVME_ORDERING_STORE] = { "store", GNV_ORDERING_COMPARE },
};

/* Where the data lies. */
static uint32_t place(const struct gpunvme_ordering_opts *opts, const struct gnv_space *space)
{
	if (!opts->mem_flags && opts->queue_flags & GPUNVME_QUEUE_VRAM)
		return GPUNVME_MEM_VRAM; /* with the rings */
	return opts->mem_flags & ~(uint32_t)GPUNVME_MEM_HOST ? opts->mem_flags : gnv_mem_shared_for(space);
}

/* A queue, and two pages of data for each of its entries. */
static int open_run(struct ordering_run *run, struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_ns_info *ns)
{
	const struct gpunvme_mem_opts mem = { sizeof(mem), place(run->opts, dev->nvme.port->space), 0 };
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	size_t len;
	int ret;

	opts.flags = GPUNVME_QUEUE_NO_SELFTEST | run->opts->queue_flags;
	opts.depth = 1u << gnv_log2(gnv_min(DEPTH, dev->nvme.info.max_depth));
	ret = gnv_qp_create(dev, gpu, &opts, &run->qp);
	if (ret)
		return ret;
	len = 2 * opts.depth * (size_t)dev->nvme.ctrl.page_size;
	if (run->opts->flags & GPUNVME_ORDERING_COPIES && len < COPIED_BYTES)
		len = COPIED_BYTES;
	ret = gpunvme_mem_alloc(gpu, NULL, len, &mem, &run->mem);
	if (ret)
		return ret;
	ret = gpunvme_mem_map(run->mem, dev);
	if (ret)
		return ret;
	ret = gpunvme_mem_dbuf(run->mem, dev, &run->args.dbuf);
	if (ret)
		return ret;
	ret = gpu->ops->local_alloc(gpu, sizeof(run->result), &run->out);
	if (ret)
		return ret;
	gnv_qp_describe(run->qp, ns, &run->args.dq);
	run->args.result = run->out.lane;
	run->args.batch = (uint32_t)gnv_min(BATCH, opts.depth / 2); /* as many pages as comparisons have */
	return 0;
}

static void close_run(struct ordering_run *run, struct gpunvme_gpu *gpu)
{
	gnv_qp_discard(run->qp);
	gnv_map_free(run->mem);
	if (run->out.lane)
		gpu->ops->local_free(gpu, &run->out, sizeof(run->result));
}

/* A word of the data. Memory of the host is read as such: the threads' address of it may be invalid for the CPU. */
static int look(const struct ordering_run *run, struct gpunvme_gpu *gpu, size_t offset, uint32_t *word)
{
	if (run->mem->local)
		return gpu->ops->peek(gpu, word, run->args.dbuf.base + offset, sizeof(*word));
	memcpy(word, (const char *)run->mem->cpu + offset, sizeof(*word));
	return 0;
}

/* A word that the block has neither at its start nor at its end: the block is read the ordinary way, by a queue of its own. */
static int choose_words(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_ns_info *ns,
			const struct gpunvme_ordering_opts *opts, struct words *words)
{
	struct ordering_run run = { .opts = opts };
	int answer = 0, ret = open_run(&run, dev, gpu, ns);

	if (ret)
		goto close_run;
	ret = gnv_gpu_read(gpu, &run.args.dq, &run.args.dbuf, 0, 1, &answer);
	if (ret)
		goto close_run;
	if (answer) {
		ret = gnv_fail(answer, "ordering test: the first block cannot be read: %s", gpunvme_strerror(answer));
		goto close_run;
	}
	ret = look(&run, gpu, 0, &words->first);
	if (ret)
		goto close_run;
	ret = look(&run, gpu, ns->lba_size - 4, &words->last);
close_run:
	close_run(&run, gpu);
	for (words->fill = 0xa5c35a3cu; words->fill == words->first || words->fill == words->last; words->fill++)
		;
	return ret;
}

/* Has the controller completed the command at queue position `pos`, even if no thread sees it? */
static bool completed(const struct ordering_run *run, uint64_t pos)
{
	const struct gpunvme_dq *dq = &run->args.dq;
	uint32_t slot = (uint32_t)(pos & ((1ull << dq->cq_shift) - 1));
	const uint32_t *cq = run->qp->cq.cpu;

	if (!cq)
		return false; /* out of the CPU's sight */
	return (gnv_word_read32(cq + 4 * slot + 3) >> 16 & 1) == (~(uint32_t)(pos >> dq->cq_shift) & 1);
}

/* No completion was seen: is it there, does the controller want another doorbell, or nothing? */
static const char *broken_link(const struct ordering_run *run)
{
	const struct gnv_ctrl *ctrl = &run->qp->dev->nvme.ctrl;
	uint32_t mask = run->qp->depth - 1;
	struct gnv_deadline d;

	if (completed(run, run->result.at))
		return "the completion is in memory, but the threads do not see it";
	gnv_mmio_write32(ctrl->bar + gnv_ctrl_sq_doorbell(ctrl, run->qp->qid), (uint32_t)run->result.pos & mask);
	d = gnv_deadline_in(run->opts->timeout_ms);
	do {
		if (completed(run, run->result.at))
			return "the controller completed it when the CPU rang: the threads' doorbell did not arrive";
	} while (gnv_deadline_poll_again(&d));
	return "the controller completes no command, not even when the CPU rings";
}

static const char *explain(const struct ordering_run *run)
{
	static const char *const texts[GNV_ORDERING_FAULTS] = {
		[GNV_ORDERING_STALE] = "the controller executed an old entry of the submission queue",
		[GNV_ORDERING_STATUS] = "a command failed: its entry was fetched in pieces, or the block became unreadable",
		[GNV_ORDERING_UNSEEN] = "the controller reads memory as it was before the thread's last store",
		[GNV_ORDERING_MISSING] = "a command succeeded, but its data is not where it belongs",
		[GNV_ORDERING_LATE] = "data came after its completion",
		[GNV_ORDERING_TORN] = "parts of a completion came after its phase bit",
	};
	uint32_t i;

	if (run->result.fault == GNV_ORDERING_SILENT)
		return broken_link(run);
	if (run->result.fault)
		return texts[run->result.fault];
	for (i = GNV_ORDERING_FAULTS; i-- > 0;)
		if (run->result.count[i])
			return texts[i];
	return NULL;
}

/* Copy the data, as a program does between kernels. The next launch makes up for the effect on the pages. */
static int copy_data(struct ordering_run *run)
{
	struct gpunvme_gpu *gpu = run->qp->gpu;
	void *ptr = run->opts->mem_flags == GPUNVME_MEM_HIP ? (void *)(uintptr_t)run->args.dbuf.base : run->mem->cpu;

	if (!(run->opts->flags & GPUNVME_ORDERING_COPIES))
		return 0;
	if (!gpu->ops->user_copy || !ptr)
		return gnv_fail(-EOPNOTSUPP, "ordering test: HIP cannot copy the data: %s",
				ptr ? "only AMD GPUs have HIP" : "the CPU does not reach it. Turn on resizable BAR (firmware)");
	return gpu->ops->user_copy(gpu, ptr, run->mem->len);
}

/* Runs the kernel until all commands are done or a fault ends it. */
static int run_pieces(struct ordering_run *run)
{
	const struct gpunvme_ordering_opts *opts = run->opts;
	struct gpunvme_gpu *gpu = run->qp->gpu;
	struct gnv_launch launch = { GNV_KERNEL_ORDERING, &run->args, sizeof(run->args), 1, 0, NULL, NULL };
	uint32_t left;
	int ret = 0;

	launch.timeout_ms = 60000 + 4 * opts->timeout_ms;
	for (left = opts->commands; left && !ret && !run->result.fault; left -= run->args.commands) {
		run->args.commands = (uint32_t)gnv_min(left, opts->flags & GPUNVME_ORDERING_COPIES ? COPIED_PIECE : PIECE);
		ret = copy_data(run);
		if (ret)
			return ret;
		ret = gpu->ops->launch(gpu, &launch);
		if (ret == -ETIMEDOUT)
			run->out.lane = 0; /* a thread that still runs writes there: it is leaked */
		if (!ret)
			ret = gpu->ops->peek(gpu, &run->result, run->out.lane, sizeof(run->result));
		if (opts->progress)
			opts->progress(opts->progress_ctx, run->before + opts->commands - left + run->args.commands,
				       (uint64_t)opts->commands * GPUNVME_ORDERING_TESTS);
	}
	return ret;
}

/* Why a test cannot run, or NULL. Comparisons begin after the pages were read once (gpu/kernels/ordering.h). */
static const char *cannot_run(const struct ordering_run *run, unsigned kind)
{
	if (kind != GPUNVME_ORDERING_STORE)
		return NULL;
	if (!(run->qp->dev->nvme.info.oncs & GPUNVME_ONCS_COMPARE))
		return "the controller has no Compare command";
	return run->opts->commands > run->qp->depth ? NULL : "it takes more commands than the queue has entries";
}

static void put_result(const struct ordering_run *run, double ticks_per_us, struct gpunvme_ordering_result *r)
{
	const char *why = explain(run);
	unsigned i;

	r->result = why ? GPUNVME_ORDERING_FAILED : GPUNVME_ORDERING_PASSED;
	snprintf(r->why, sizeof(r->why), "%s", why ? why : "");
	r->commands = run->result.pos;
	r->mean_us = run->result.pos ? (double)run->result.total / (double)run->result.pos / ticks_per_us : 0;
	r->worst_us = (double)run->result.worst / ticks_per_us;
	for (i = 0; i < GNV_ORDERING_FAULTS; i++)
		r->faults += run->result.count[i];
}

static int run_test(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_ns_info *ns, unsigned kind,
		    const struct gpunvme_ordering_opts *opts, const struct words *words, struct gpunvme_ordering_result *r)
{
	struct ordering_run run = { .opts = opts, .before = (uint64_t)kind * opts->commands };
	const char *why;
	int ret = open_run(&run, dev, gpu, ns);

	if (ret)
		goto close_run;
	why = cannot_run(&run, kind);
	if (why) {
		snprintf(r->why, sizeof(r->why), "%s", why);
		goto close_run;
	}
	run.args.mode = kinds[kind].mode;
	run.args.fill = words->fill;
	run.args.first = words->first;
	run.args.last = words->last;
	run.args.timeout = (uint64_t)opts->timeout_ms * gnv_gpu_ticks_per_ms(gpu);
	ret = run_pieces(&run);
	if (!ret)
		put_result(&run, (double)gnv_gpu_ticks_per_ms(gpu) / 1000, r);
close_run:
	close_run(&run, gpu);
	return ret;
}

/* Set the flags that the results allow. */
static void conclude(struct gpunvme_ordering *l, uint32_t asked)
{
	unsigned i;

	for (i = 0; i < GPUNVME_ORDERING_TESTS; i++)
		l->failed += i != GPUNVME_ORDERING_CQE16 && l->test[i].result == GPUNVME_ORDERING_FAILED;
	if (l->test[GPUNVME_ORDERING_ORDER].result == GPUNVME_ORDERING_PASSED)
		l->queue_flags |= GPUNVME_QUEUE_NO_READBACK;
	if (l->test[GPUNVME_ORDERING_CQE16].result == GPUNVME_ORDERING_PASSED)
		l->queue_flags |= GPUNVME_QUEUE_CQE16;
	if (asked)
		l->queue_flags = l->failed ? 0 : l->queue_flags | asked; /* queues elsewhere are other queues */
}

/*
 * The tests one by one, because the caller's may be larger or smaller. The array is part of the structure, so the count is that of
 * tests in it: there may be more tests than an older program has room for.
 */
static int give(struct gpunvme_ordering *to, const struct gpunvme_ordering *l)
{
	gnv_array_put(to->test, &to->tests, to->stride, l->test, l->stride, (uint32_t)gnv_min(to->tests, l->tests));
	to->queue_flags = l->queue_flags;
	to->failed = l->failed;
	return 0;
}

static int check_result(const struct gpunvme_ordering *result)
{
	int ret;

	if (!result)
		return gnv_fail(-EINVAL, "gpunvme_gpu_ordering_test: result must not be NULL");
	ret = gnv_size_check(result->size, "gpunvme_ordering");
	if (ret)
		return ret;
	ret = gnv_stride_check(result->stride, gpunvme_ordering_result);
	if (ret)
		return ret;
	if (offsetof(struct gpunvme_ordering, test) + (uint64_t)result->stride * result->tests > result->size)
		return gnv_fail(-EINVAL, "gpunvme_ordering has no room for %u tests. Initialise it with GPUNVME_ORDERING_INIT",
				result->tests);
	return 0;
}

GPUNVME_API int gpunvme_gpu_ordering_test(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu,
					  const struct gpunvme_ordering_opts *user, struct gpunvme_ordering *result)
{
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct words words = { 0, 0, 0 };
	unsigned i;
	int ret = gnv_enter(dev, dev && gpu, "dev and gpu");

	if (ret)
		return ret;
	ret = check_result(result);
	if (ret)
		return ret;
	ret = gnv_opts_copy(&opts, user, gpunvme_ordering_opts);
	if (ret)
		return ret;
	if (opts.queue_flags & ~(uint32_t)GPUNVME_QUEUE_VRAM)
		return gnv_fail(-EINVAL, "gpunvme_ordering_opts: queue_flags may be GPUNVME_QUEUE_VRAM or 0");
	if (opts.flags & ~(uint32_t)GPUNVME_ORDERING_COPIES || opts.reserved)
		return gnv_fail(-EINVAL, "gpunvme_ordering_opts: flags may be GPUNVME_ORDERING_COPIES or 0");
	if (opts.mem_flags & ~MEMORY)
		return gnv_fail(-EINVAL, "gpunvme_ordering_opts: mem_flags may be GPUNVME_MEM_HOST, HUGE, SHARED, VRAM, _HIP, _DRM or 0");
	ret = gpunvme_ns_get_info(dev, 0, &ns);
	if (ret)
		return ret;
	opts.commands = opts.commands ? opts.commands : COMMANDS;
	opts.timeout_ms = opts.timeout_ms ? opts.timeout_ms : TIMEOUT_MS;
	ret = choose_words(dev, gpu, &ns, &opts, &words);
	for (i = 0; i < GPUNVME_ORDERING_TESTS && !ret; i++)
		ret = run_test(dev, gpu, &ns, i, &opts, &words, &l.test[i]);
	for (i = 0; i < GPUNVME_ORDERING_TESTS; i++)
		l.test[i].name = kinds[i].name;
	conclude(&l, opts.queue_flags);
	if (ret)
		return ret;
	return give(result, &l);
}
