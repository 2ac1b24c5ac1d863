/* SPDX-License-Identifier: MIT */
/* Queue pairs over a scripted controller: sizes, order of commands, failures half way, views. */
#include <errno.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <pthread.h>
#include <sched.h>

#include "fake.h"
#include "queue/queue.h"
#include "util/bits.h"
#include "util/mmio.h"

static struct fake *fake;
static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static const struct gpunvme_queue_opts plain = { sizeof(plain), GPUNVME_QUEUE_NO_SELFTEST, 0, 0, 0, 0, 0 };

static int setup(void **state)
{
	(void)state;
	fake = fake_new();
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gpunvme_gpu_close(gpu);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
	return 0;
}

static void *wait_for_answer(void *arg)
{
	struct gpunvme_dq *dq = arg;
	struct gpunvme_dbuf dbuf = { 0, 4096, 0x10000, 0, 0 };

	return (void *)(intptr_t)gpunvme_read(dq, &dbuf, 0, 0, 1ull << dq->lba_shift);
}

/*
 * A thread that waits for a controller that will never reply again gets an error long before its time-out, and no recovery brings
 * back what is being taken away, though it still replies.
 */
static void lose(uint32_t flags)
{
	struct gpunvme_queue_opts opts = plain;
	struct gpunvme_dq_state *queue;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	unsigned char log[64];
	pthread_t lane;
	void *result;

	opts.flags |= flags;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	queue = (struct gpunvme_dq_state *)(uintptr_t)dq.state;
	assert_int_equal(pthread_create(&lane, NULL, wait_for_answer, &dq), 0);
	while (!__atomic_load_n(&queue->pub, __ATOMIC_ACQUIRE))
		sched_yield();
	fake->lost(fake->lost_ctx, GNV_PORT_LOST, "it was unplugged");
	pthread_join(lane, &result);
	assert_int_equal((intptr_t)result, -GPUNVME_ENODEV);
	assert_int_equal((intptr_t)wait_for_answer(&dq), -GPUNVME_ESHUTDOWN);
	assert_int_equal(gpunvme_queue_recover(qp), -ENODEV);
	assert_int_equal(gpunvme_dev_reset(dev), -ENODEV);
	assert_int_equal(gpunvme_dev_log_page(dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, log, sizeof(log)), -ENODEV);
}

static void test_lost(void **state)
{
	(void)state;
	lose(0);
}

static void test_lost_forwarded(void **state)
{
	(void)state;
	lose(GPUNVME_QUEUE_FORWARD);
}

/* The threads get words of host memory; BAR0 follows them, until the queue is deleted on the controller. */
static void test_forward(void **state)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue_opts opts = plain;
	struct gnv_bells *bells;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	(void)state;
	opts.flags |= GPUNVME_QUEUE_FORWARD;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
	assert_string_equal(info.placement, "fake+fwd");
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	bells = qp->qp[0]->bells.cpu;
	assert_int_equal(dq.sq_db, (uintptr_t)&bells->sq);
	assert_int_equal(dq.cq_db, (uintptr_t)&bells->cq);
	__atomic_store_n(&bells->sq, 7, __ATOMIC_RELEASE);
	__atomic_store_n(&bells->cq, 9, __ATOMIC_RELEASE);
	while (gnv_mmio_read32(fake->bar + 0x1008) != 7 || gnv_mmio_read32(fake->bar + 0x100c) != 9)
		sched_yield();
	gpunvme_queue_destroy(qp);
	assert_int_equal(fake->sqs, 0);
}

static void test_cids(void **state)
{
	static const uint32_t table[][2] = { { 2, 1 },	   { 4, 2 },	   { 8, 5 },	     { 64, 47 },       { 128, 95 },
					     { 256, 128 }, { 2048, 1472 }, { 65536, 49088 }, { 131072, 65472 } };
	size_t i;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(table); i++)
		assert_int_equal(gnv_qp_cids(table[i][0]), table[i][1]);
}

static void test_create(void **state)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	uint32_t cid;

	(void)state;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(fake->cqs, 1);
	assert_int_equal(fake->sqs, 1);
	assert_int_equal(fake->order[0], GPUNVME_ADMIN_CREATE_CQ);
	assert_int_equal(fake->order[1], GPUNVME_ADMIN_CREATE_SQ);
	assert_int_equal(fake->last.cdw10, 1 | 1023u << 16);
	assert_int_equal(fake->last.cdw11, 1 | 1u << 16);
	assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
	assert_int_equal(info.qid, 1);
	assert_int_equal(info.depth, 1024);
	assert_int_equal(info.cq_depth, 1024); /* MQES has no more */
	assert_string_equal(info.placement, "fake");
	assert_int_equal(info.in_flight, 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(dq.head.version, GPUNVME_HEAD_VERSION);
	assert_int_equal(dq.head.kind, GPUNVME_KIND_QUEUE);
	assert_int_equal(dq.head.size, sizeof(dq));
	assert_int_equal(dq.sq_db, (uintptr_t)fake->bar + 0x1008);
	assert_int_equal(dq.cq_db, (uintptr_t)fake->bar + 0x100c);
	assert_int_equal(dq.lba_count, 1000);
	assert_int_equal(dq.max_blocks, 256);
	assert_int_equal(dq.flags, 0);
	assert_int_equal(dq.cmd_timeout, 30000000000ull);
	assert_int_not_equal(dq.tag, 0);
	assert_int_equal(dq.stop % 128, 0);
	for (cid = 0; cid < dq.cids; cid++)
		assert_true(((uint64_t *)(uintptr_t)dq.cid_map)[cid / 64] >> (cid % 64) & 1);
	assert_int_equal(gpunvme_queue_stop(qp, 5), 0);
	assert_int_equal(*(uint32_t *)(uintptr_t)dq.stop, 1);
	assert_int_equal(gpunvme_queue_stop(qp, 0), 0);
	assert_int_equal(*(uint32_t *)(uintptr_t)dq.stop, 0);
	gpunvme_queue_destroy(qp);
	gpunvme_queue_destroy(NULL);
	assert_int_equal(fake->order[2], GPUNVME_ADMIN_DELETE_SQ);
	assert_int_equal(fake->order[3], GPUNVME_ADMIN_DELETE_CQ);
	assert_int_equal(fake->cqs + fake->sqs, 0);
}

static void test_reuse(void **state)
{
	struct gpunvme_queue *qp[17];
	struct gpunvme_dq before, after;
	unsigned i;

	(void)state;
	for (i = 0; i < 16; i++)
		assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp[i]), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp[16]), -ENOSPC);
	assert_int_equal(gpunvme_queue_view(qp[4], NULL, &before), 0);
	gpunvme_queue_destroy(qp[4]);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp[4]), 0);
	assert_int_equal(gpunvme_queue_view(qp[4], NULL, &after), 0);
	assert_int_equal(before.qid, 5);
	assert_int_equal(after.qid, 5);
	assert_int_not_equal(before.tag, after.tag);
	for (i = 0; i < 8; i++)
		gpunvme_queue_destroy(qp[i]); /* the rest falls to gpunvme_dev_close() */
	assert_true(fake->mapped <= 2);	   /* all of it in two chunks of 2 MiB */
}

/* Eight queues of depth 1024, with their completion rings and state, need no more than the first 2 MiB. */
static void test_memory_cost(void **state)
{
	struct fake *deep = fake_new();
	struct gpunvme_dev *other;
	struct gpunvme_queue *qp;
	unsigned i;

	(void)state;
	fake_set_cap(deep, (FAKE_CAP & ~GPUNVME_CAP_MQES_0B) | 4095);
	assert_int_equal(fake_open(deep, &other), 0);
	for (i = 0; i < 8; i++)
		assert_int_equal(gpunvme_queue_create(other, gpu, &plain, &qp), 0);
	assert_int_equal(qp->qp[0]->cq_depth, 2048);
	assert_int_equal(deep->mapped, 1);
	gpunvme_dev_close(other);
	fake_delete(deep, false);
}

static void test_bad_options(void **state)
{
	static const uint32_t depths[] = { 1, 3, 1000, 2048, 0x80000000u };
	struct gpunvme_queue_opts opts = plain;
	struct gpunvme_queue *qp = NULL;
	struct gpunvme_queue_info info = { .size = 4 };
	size_t i;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(depths); i++) {
		opts.depth = depths[i];
		assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EINVAL);
	}
	opts.depth = 2;
	opts.flags = 1u << 31;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EINVAL);
	opts.flags = GPUNVME_QUEUE_SGL | GPUNVME_QUEUE_NO_SELFTEST;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EOPNOTSUPP);
	opts.size = 4;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EINVAL);
	assert_int_equal(gpunvme_queue_create(NULL, gpu, &plain, &qp), -EINVAL);
	assert_int_equal(gpunvme_queue_create(dev, NULL, &plain, &qp), -EINVAL);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, NULL), -EINVAL);
	assert_null(qp);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(gpunvme_queue_get_info(qp, &info), -EINVAL);
	assert_int_equal(gpunvme_queue_get_info(NULL, &info), -EINVAL);
	assert_int_equal(gpunvme_queue_stop(NULL, 1), -EINVAL);
}

static void test_small_depths(void **state)
{
	struct gpunvme_queue_opts opts = plain;
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue *qp;

	(void)state;
	for (opts.depth = 2; opts.depth <= 512; opts.depth *= 2) {
		assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
		assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
		assert_int_equal(info.cq_depth, 2 * opts.depth);
		assert_int_equal(info.cids, gnv_qp_cids(2 * opts.depth));
		gpunvme_queue_destroy(qp);
	}
}

/* The controller refuses one of the commands: the other is undone, and the id is free again. */
static void test_refused_creation(void **state)
{
	struct gpunvme_queue *qp = NULL;

	(void)state;
	fake->fault = FAKE_STATUS;
	fake->status = GPUNVME_SC_INVALID_QUEUE_SIZE;
	fake->fault_opc = GPUNVME_ADMIN_CREATE_CQ;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), GPUNVME_SC_INVALID_QUEUE_SIZE);
	assert_non_null(strstr(gpunvme_errmsg(), "Invalid Queue Size"));
	fake->fault_opc = GPUNVME_ADMIN_CREATE_SQ;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), GPUNVME_SC_INVALID_QUEUE_SIZE);
	assert_non_null(strstr(gpunvme_errmsg(), "Invalid Queue Size"));
	assert_int_equal(fake->cqs, 0);
	assert_null(qp);
	fake->fault = FAKE_WELL;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(qp->qp[0]->qid, 1);
	gpunvme_queue_destroy(qp);
}

static void test_dead_while_creating(void **state)
{
	struct gpunvme_queue *qp = NULL;

	(void)state;
	fake_hurry(fake, dev);
	fake->fault = FAKE_SILENT;
	fake->fault_opc = GPUNVME_ADMIN_CREATE_SQ;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), -ETIMEDOUT);
	assert_non_null(strstr(gpunvme_errmsg(), "0x01"));
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), -ESHUTDOWN);
	assert_null(qp);
}

static void test_refused_deletion(void **state)
{
	struct gpunvme_queue *qp, *other;

	(void)state;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	fake->fault = FAKE_STATUS;
	fake->status = GPUNVME_SC_INTERNAL;
	fake->fault_opc = GPUNVME_ADMIN_DELETE_SQ;
	gpunvme_queue_destroy(qp);
	fake->fault = FAKE_WELL;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &other), 0);
	assert_int_equal(other->qp[0]->qid, 2); /* 1 is still the controller's */
}

/* Neither creation nor deletion succeeds: the queue stays the controller's, and no program has it. */
static void fail_to_create(void)
{
	const struct gpunvme_queue_opts tested = { sizeof(tested), 0, 4, 50, 0, 0, 0 };
	struct gpunvme_queue *failed = NULL;

	fake->fault = FAKE_STATUS;
	fake->status = GPUNVME_SC_INTERNAL;
	fake->fault_opc = GPUNVME_ADMIN_DELETE_SQ;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &tested, &failed), -ETIMEDOUT);
	assert_null(failed);
}

/* Closing goes from queue to queue; one that was never made and could not be deleted, either, must not go meanwhile. */
static void test_close_beside_refused_deletion(void **state)
{
	struct gpunvme_queue *first, *last;

	(void)state;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &first), 0);
	fail_to_create();
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &last), 0);
	assert_ptr_equal(gnv_qp_first(dev), last->qp[0]);
	assert_true(gnv_qp_next(last->qp[0])->zombie && !gnv_qp_next(last->qp[0])->kept);
	assert_ptr_equal(gnv_qp_next(gnv_qp_next(last->qp[0])), first->qp[0]);
	fake->fault = FAKE_WELL;
	mallopt(M_PERTURB, 0x5a); /* what is freed cannot be mistaken for what it was */
	assert_int_equal(gpunvme_dev_close(dev), 0);
	mallopt(M_PERTURB, 0);
	dev = NULL;
	assert_int_equal(fake->last.opc, GPUNVME_ADMIN_DELETE_CQ);
	assert_int_equal(fake->last.cdw10, 1); /* the first, which comes last */
}

static void is_only_queue(const struct gpunvme_queue *qp)
{
	assert_int_equal(fake->sqs, 1);
	assert_int_equal(fake->cqs, 1);
	assert_ptr_equal(gnv_qp_first(dev), qp->qp[0]);
	assert_null(gnv_qp_next(qp->qp[0]));
}

/* The next creation or destruction deletes such a queue, and its identifier is free again. */
static void test_refused_deletion_is_retried(void **state)
{
	struct gpunvme_queue *qp, *other;

	(void)state;
	fail_to_create();
	fake->fault = FAKE_WELL;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(qp->qp[0]->qid, 1);
	is_only_queue(qp);
	fail_to_create();
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &other), 0);
	assert_int_equal(other->qp[0]->qid, 3); /* 2 is still the controller's */
	fake->fault = FAKE_WELL;
	assert_int_equal(gpunvme_queue_destroy(other), 0);
	is_only_queue(qp);
}

static void is_hinted(struct gpunvme_queue *qp, uint32_t boundary, uint32_t atomic, uint32_t torn)
{
	struct gpunvme_dq dq;

	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(dq.boundary, (uint32_t)-boundary);
	assert_int_equal(dq.atomic, atomic);
	assert_int_equal(dq.flags & GPUNVME_DQ_TORN, torn ? GPUNVME_DQ_TORN : 0);
}

/* What a namespace says of boundaries and whole writes, for threads. */
static void test_view_hints(void **state)
{
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	is_hinted(qp, 0, 1, 0);
	fake->ns.nsfeat = GPUNVME_NSFEAT_ATOMICS;
	fake->ns.nawun_0b = 31;
	fake->ns.nawupf_0b = 7;
	is_hinted(qp, 0, 32, 0);
	fake->ns.noiob = 128;
	is_hinted(qp, 128, 32, 0);
	fake->ns.nabspf_0b = 63; /* there it is still seen whole */
	is_hinted(qp, 128, 32, 0);
	fake->ns.nabsn_0b = 127;
	is_hinted(qp, 128, 32, 1);
	fake->ns.nabo = 64; /* 128 is no border of what is seen any more */
	is_hinted(qp, 128, 32, 0);
	fake->ns.nabo = 0;
	fake->ns.noiob = 96; /* no power of two */
	is_hinted(qp, 0, 32, 0);
	fake->ns.noiob = 4; /* less than a page */
	is_hinted(qp, 0, 32, 0);
	fake->ns.nawun_0b = 0xffff;
	is_hinted(qp, 0, 256, 0); /* what one command carries */
	gpunvme_queue_destroy(qp);
}

/* The most that one command takes, from any place of a page. */
static void is_cut_at(struct gpunvme_queue *qp, uint32_t lower, uint32_t upper)
{
	struct gpunvme_dq dq;

	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gnvd_blocks_per_command(&dq, 512, 1000000), lower);
	assert_int_equal(gnvd_blocks_per_command(&dq, 0, 1000000), upper);
}

/* A long write that begins where the drive likes it goes on there after each cut. */
static void test_view_steps(void **state)
{
	const struct gpunvme_queue_opts sgl = { sizeof(sgl), GPUNVME_QUEUE_NO_SELFTEST | GPUNVME_QUEUE_SGL, 16, 0, 0, 0, 0 };
	struct gpunvme_queue *qp;

	(void)state;
	dev->nvme.info.max_transfer = 0;
	dev->nvme.info.sgl = 1;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	is_cut_at(qp, 2055, 2056); /* a page more than 1 MiB */
	fake->ns.nsfeat = GPUNVME_NSFEAT_OPTIMAL;
	fake->ns.npwg_0b = 31;
	is_cut_at(qp, 2048, 2048);
	dev->nvme.info.max_transfer = 128 * 1024;
	is_cut_at(qp, 256, 256);
	gpunvme_queue_destroy(qp);
	dev->nvme.info.max_transfer = 0;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &sgl, &qp), 0);
	is_cut_at(qp, 65536, 65536);
	gpunvme_queue_destroy(qp);
	fake->ns.nsfeat = 0;
}

/* Write Zeroes of a controller that has a limit, in bytes, for threads, in blocks. Of less than a block it is not offered. */
static void test_view_zeroes(void **state)
{
	static const struct {
		uint32_t most;
		uint8_t lbads;
		uint32_t want;
	} cases[] = { { 0, 9, 65536 }, { 8192, 9, 16 }, { 8192, 13, 1 }, { 8192, 16, 0 }, { 1u << 25, 9, 65536 }, { 1u << 31, 9, 65536 } };
	const uint8_t lbads = fake->ns.lbaf[0].lbads;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	size_t i;

	(void)state;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	dev->nvme.info.oncs |= GPUNVME_ONCS_WRITE_ZEROES;
	for (i = 0; i < GNV_ARRAY_LEN(cases); i++) {
		dev->nvme.limits.zeroes = cases[i].most;
		fake->ns.lbaf[0].lbads = cases[i].lbads;
		assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
		assert_int_equal(dq.flags & GPUNVME_DQ_WRITE_ZEROES ? gnvd_most_zeroes(&dq) : 0, cases[i].want);
	}
	fake->ns.lbaf[0].lbads = lbads;
	gpunvme_queue_destroy(qp);
}

static void test_views(void **state)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	static const struct {
		uint64_t lba, nblocks;
		int ret;
	} table[] = {
		{ 0, 0, 0 },	     { 0, 1000, 0 },	   { 999, 1, 0 },	  { 999, 0, 0 },	 { 1000, 0, -ERANGE },
		{ 999, 2, -ERANGE }, { 0, 1001, -ERANGE }, { ~0ull, 1, -ERANGE }, { 1, ~0ull, -ERANGE }, { ~0ull, 0, -ERANGE },
	};
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	size_t i;

	(void)state;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	for (i = 0; i < GNV_ARRAY_LEN(table); i++) {
		view.lba = table[i].lba;
		view.nblocks = table[i].nblocks;
		assert_int_equal(gpunvme_queue_view(qp, &view, &dq), table[i].ret);
		if (table[i].ret)
			continue;
		assert_int_equal(dq.lba_first, view.lba);
		assert_int_equal(dq.lba_count, view.nblocks ? view.nblocks : 1000 - view.lba);
	}
	view = (struct gpunvme_view)GPUNVME_VIEW_INIT;
	view.flags = 4;
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), -EINVAL);
	view.flags = GPUNVME_VIEW_WRITE;
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), 0);
	assert_int_equal(dq.flags, GPUNVME_DQ_WRITE);
	fake->ns.nsattr = 1;
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), -EROFS);
	fake->ns.lbaf[0].lbads = 16;
	view.flags = 0;
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), 0);
	assert_int_equal(dq.max_blocks, 2);
	view.nsid = 2;
	assert_int_equal(gpunvme_queue_view(qp, &view, &dq), -ENOENT);
	assert_int_equal(gpunvme_queue_view(qp, NULL, (struct gpunvme_dq *)NULL), -EINVAL);
	assert_int_equal(gpunvme_queue_view(NULL, NULL, &dq), -EINVAL);
	assert_int_equal(gpunvme_queue_view_v(qp, NULL, &dq, GPUNVME_KIND_QUEUE, (GPUNVME_DQ_MAJOR + 1) << 16, sizeof(dq)), -EPROTONOSUPPORT);
	assert_int_equal(gpunvme_queue_view_v(qp, NULL, &dq, GPUNVME_KIND_QUEUE, GPUNVME_DQ_MAJOR << 16, sizeof(dq) + 8), -EPROTONOSUPPORT);
	((struct gpunvme_dq_state *)(uintptr_t)dq.state)->poison = ETIMEDOUT;
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), -ESHUTDOWN);
}

/* The fake never completes I/O: the self-test times out, and its buffers are freed after the queue. */
static void test_selftest_times_out(void **state)
{
	struct gpunvme_queue_opts opts = { sizeof(opts), 0, 4, 50, 0, 0, 0 };
	struct gpunvme_queue *qp = NULL;
	unsigned maps = fake->maps;

	(void)state;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -ETIMEDOUT);
	assert_non_null(strstr(gpunvme_errmsg(), "self-test"));
	assert_null(qp);
	assert_int_equal(fake->sqs + fake->cqs, 0);
	assert_int_equal(fake->maps, maps);
	fake->ns.nsze = 0; /* no namespace, no self-test */
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	gpunvme_gpu_close(gpu); /* the queue holds a reference */
	gpunvme_queue_destroy(qp);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cids),
		TEST(test_create),
		TEST(test_reuse),
		TEST(test_bad_options),
		TEST(test_small_depths),
		TEST(test_memory_cost),
		TEST(test_refused_creation),
		TEST(test_dead_while_creating),
		TEST(test_views),
		TEST(test_view_hints),
		TEST(test_view_steps),
		TEST(test_view_zeroes),
		TEST(test_refused_deletion),
		TEST(test_close_beside_refused_deletion),
		TEST(test_refused_deletion_is_retried),
		TEST(test_lost),
		TEST(test_lost_forwarded),
		TEST(test_forward),
		TEST(test_selftest_times_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
