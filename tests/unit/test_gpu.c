/* SPDX-License-Identifier: MIT */
/*
 * What the library asks of threads that are not this CPU: their addresses are not pointers, what is shown to them is hidden again,
 * and each request may be refused.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fake.h"
#include "gpu/gpu.h"
#include "queue/queue.h"
#include "util/bits.h"

#pragma GCC diagnostic ignored "-Wunused-function" /* the rig brings kernels */
#include "gpu/rig.h"

#define LANE 0x0000700000000000ull /* what the threads of this test call host address 0 */
#define LOCAL 0x0000600000000000ull

static const struct gpunvme_queue_opts plain = { sizeof(plain), GPUNVME_QUEUE_NO_SELFTEST, 0, 0, 0, 0, 0 };

/* What is attached now, what was asked ever, and which request fails (0: none). */
static struct {
	unsigned hosts, mmios, locals, asked, fails_at, maps_at_attach;
	uint32_t timeout_ms; /* of the last launch */
	int mmio_error;
	bool keeps;
	struct fake *fake;
} seen;

static bool refused(void)
{
	return ++seen.asked == seen.fails_at;
}

static int host_attach(struct gpunvme_gpu *gpu, void *cpu, size_t len, struct gnv_gpu_range *range)
{
	(void)gpu;
	assert_int_equal(((uintptr_t)cpu | len) & 4095, 0);
	if (refused())
		return gnv_fail(-ENOMEM, "refused by the test");
	seen.hosts++;
	seen.maps_at_attach = seen.fake->maps;
	range->lane = LANE + (uintptr_t)cpu;
	range->cookie = &seen;
	return 0;
}

static int host_detach(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)gpu;
	assert_ptr_equal(range->cookie, &seen);
	seen.hosts--;
	return 0;
}

static int mmio_attach(struct gpunvme_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_gpu_range *range)
{
	uint64_t offset;
	int fd;

	(void)gpu;
	assert_int_equal(foreign->export_fd(foreign->ctx, &fd, &offset), -EOPNOTSUPP);
	assert_int_equal((uintptr_t)foreign->cpu & 4095, 0);
	if (seen.mmio_error)
		return gnv_fail(seen.mmio_error, "no way to BAR0");
	seen.mmios++;
	range->lane = LANE + (uintptr_t)foreign->cpu;
	return 0;
}

static int mmio_detach(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)gpu;
	(void)range;
	seen.mmios--;
	return seen.keeps ? gnv_fail(-EBUSY, "the GPU keeps BAR0") : 0;
}

static int lanes_alloc(struct gpunvme_gpu *gpu, size_t len, struct gnv_gpu_range *range)
{
	(void)gpu;
	if (refused())
		return gnv_fail(-ENOMEM, "refused by the test");
	range->cookie = calloc(1, len);
	range->lane = LOCAL + (uintptr_t)range->cookie;
	seen.locals++;
	return 0;
}

static void lanes_free(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, size_t len)
{
	(void)gpu;
	(void)len;
	free(range->cookie);
	seen.locals--;
}

static int peek(struct gpunvme_gpu *gpu, void *to, uint64_t lane, size_t len)
{
	(void)gpu;
	if (refused())
		return gnv_fail(-EIO, "refused by the test");
	memcpy(to, (void *)(uintptr_t)(lane - LOCAL), len);
	return 0;
}

static int poke(struct gpunvme_gpu *gpu, uint64_t lane, const void *from, size_t len)
{
	(void)gpu;
	if (refused())
		return gnv_fail(-EIO, "refused by the test");
	memcpy((void *)(uintptr_t)(lane - LOCAL), from, len);
	return 0;
}

/* Threads that do nothing. */
static int launch(struct gpunvme_gpu *gpu, const struct gnv_launch *launch)
{
	(void)gpu;
	seen.timeout_ms = launch->timeout_ms;
	return 0;
}

static struct gpunvme_gpu *foreign_gpu(struct fake *fake)
{
	static struct gnv_gpu_ops ops;
	struct gpunvme_gpu *gpu;

	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	ops = *gpu->ops;
	ops.host_attach = host_attach;
	ops.host_detach = host_detach;
	ops.mmio_attach = mmio_attach;
	ops.mmio_detach = mmio_detach;
	ops.local_alloc = lanes_alloc;
	ops.local_free = lanes_free;
	ops.peek = peek;
	ops.poke = poke;
	gpu->ops = &ops;
	memset(&seen, 0, sizeof(seen));
	seen.fake = fake;
	return gpu;
}

static void test_addresses(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_gpu *gpu = foreign_gpu(fake);
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_dbuf dbuf;
	struct gpunvme_mem *mem;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp, *other;
	struct gpunvme_dq dq;
	unsigned maps;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(seen.asked, 0); /* the admin queue is the host's */
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(seen.hosts, 2); /* the chunk and BAR0, once each */
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &other), 0);
	assert_int_equal(seen.hosts, 2);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(dq.sq, LANE + (uintptr_t)qp->qp[0]->sq.cpu);
	assert_int_equal(dq.cq, LANE + (uintptr_t)qp->qp[0]->cq.cpu);
	assert_int_equal(dq.stop, LANE + (uintptr_t)qp->qp[0]->control.cpu);
	assert_int_equal(dq.sq_db, LANE + (uintptr_t)fake->bar + 0x1008);
	assert_int_equal(dq.cq_db, LANE + (uintptr_t)fake->bar + 0x100c);
	assert_int_equal(dq.state, LOCAL + (uintptr_t)qp->qp[0]->state.cookie);
	assert_int_equal(dq.result, dq.state + qp->qp[0]->layout.result);
	assert_int_equal(((uint64_t *)qp->qp[0]->state.cookie)[qp->qp[0]->layout.cid_map / 8], ~0ull);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 20000, NULL, &mem), 0);
	maps = fake->maps;
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(seen.maps_at_attach, maps + 1); /* the device first, then the threads */
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	assert_int_equal(dbuf.base, LANE + (uintptr_t)gpunvme_mem_ptr(mem));
	assert_int_equal(seen.hosts, 3);
	assert_int_equal(gpunvme_mem_unmap(mem, dev), 0);
	assert_int_equal(seen.hosts, 2);
	gpunvme_queue_destroy(other);
	assert_int_equal(seen.hosts, 2);
	assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
	assert_int_equal(info.poison, 0);
	gpunvme_gpu_close(gpu); /* before the rest */
	gpunvme_mem_free(mem);
	gpunvme_queue_destroy(qp);
	assert_int_equal(seen.hosts + seen.mmios + seen.locals, 0);
	gpunvme_dev_close(dev);
	fake_delete(fake, false);
}

/* Each request of creating and mapping is refused once. */
static void test_refusals(void **state)
{
	unsigned n;
	int ret = 1;

	(void)state;
	for (n = 1; ret; n++) {
		struct fake *fake = fake_new();
		struct gpunvme_gpu *gpu = foreign_gpu(fake);
		struct gpunvme_mem *mem = NULL;
		struct gpunvme_dev *dev;
		struct gpunvme_queue *qp = NULL;

		assert_int_equal(fake_open(fake, &dev), 0);
		seen.fails_at = n;
		ret = gpunvme_queue_create(dev, gpu, &plain, &qp);
		assert_true(!ret || !qp);
		if (!ret)
			ret = gpunvme_mem_alloc(gpu, NULL, 20000, NULL, &mem);
		if (!ret)
			ret = gpunvme_mem_map(mem, dev);
		if (ret)
			assert_non_null(strstr(gpunvme_errmsg(), "refused by the test"));
		gpunvme_mem_free(mem);
		gpunvme_queue_destroy(qp);
		gpunvme_dev_close(dev);
		gpunvme_gpu_close(gpu);
		assert_int_equal(seen.hosts + seen.mmios + seen.locals, 0);
		fake_delete(fake, false);
		assert_true(n < 50);
	}
	assert_true(n > 5);
}

/* BAR0 is shown where the threads can reach it, and else a thread rings. */
static void test_doorbells(void **state)
{
	static const struct gnv_mem_ops foreign = { "bar", NULL, gnv_mem_attach_foreign, gnv_mem_detach_foreign };
	struct fake *fake = fake_new();
	struct gpunvme_gpu *gpu = foreign_gpu(fake);
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_queue_opts threaded = plain;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;

	(void)state;
	fake->bar0.ops = &foreign;
	fake->bar0.dmabuf = -1;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(seen.mmios, 1);
	assert_int_equal(qp->qp[0]->sq_db, LANE + (uintptr_t)fake->bar + 0x1008);
	gpunvme_queue_destroy(qp);
	assert_int_equal(seen.mmios, 0);
	seen.mmio_error = -EOPNOTSUPP;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
	assert_string_equal(info.placement, "fake+fwd");
	assert_int_equal(qp->qp[0]->sq_db, LANE + (uintptr_t)qp->qp[0]->bells.cpu);
	gpunvme_queue_destroy(qp);
	seen.mmio_error = -EIO;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), -EIO);
	threaded.flags |= GPUNVME_QUEUE_COMPLETION_THREAD;
	gpu->info.kind = GPUNVME_GPU_HSA;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &threaded, &qp), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_poll_queue() in a kernel"));
	assert_int_equal(seen.hosts + seen.mmios + seen.locals, 0);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
}

/* A GPU that does not let go of BAR0: its port stays open. */
static void test_kept(void **state)
{
	static const struct gnv_mem_ops foreign = { "bar", NULL, gnv_mem_attach_foreign, gnv_mem_detach_foreign };
	struct fake *fake = fake_new();
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;

	(void)state;
	fake->bar0.ops = &foreign;
	fake->bar0.dmabuf = -1;
	leak_expected(1);
	gpu = foreign_gpu(fake);
	seen.keeps = true;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	leak_expected(0);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	assert_true(fake->port.keep);
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
}

/* State that cannot be read: the queue counts as ended, and as busy. */
static void test_unreadable(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_gpu *gpu = foreign_gpu(fake);
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(gnv_qp_poisoned(qp->qp[0]), 0);
	assert_int_equal(gnv_qp_in_flight(qp->qp[0]), 0);
	seen.fails_at = seen.asked + 1;
	assert_int_equal(gnv_qp_poisoned(qp->qp[0]), GPUNVME_ENODEV);
	seen.fails_at = seen.asked + 1;
	assert_int_equal(gnv_qp_in_flight(qp->qp[0]), qp->qp[0]->cids);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
}

/* Where a thread's address lies. The rig's are pointers, so it is asked which of its lists has them. */
enum where { NOWHERE, HOST_MEMORY, LANE_MEMORY, BAR };

static enum where library_has(const struct fake *fake, const struct gpunvme_queue *qp, uint64_t at)
{
	uint64_t host = at - LANE, bar = (uintptr_t)fake->bar;

	if (host >= bar && host < bar + FAKE_BAR_BYTES)
		return BAR;
	if (host == (uintptr_t)qp->qp[0]->sq.cpu || host == (uintptr_t)qp->qp[0]->cq.cpu || host == (uintptr_t)qp->qp[0]->control.cpu)
		return HOST_MEMORY;
	return at == LOCAL + (uintptr_t)qp->qp[0]->state.cookie ? LANE_MEMORY : NOWHERE;
}

static enum where rig_has(const struct rig *r, uint64_t at)
{
	uint32_t i;

	for (i = 0; i < r->shared_count; i++)
		if (at - (uintptr_t)r->shared[i] < 512)
			return at == (uintptr_t)r->c.rings[0].sq_db || at == (uintptr_t)r->c.rings[0].cq_db ? BAR : HOST_MEMORY;
	for (i = 0; i < r->memory_count; i++)
		if (at - r->memory[i] < 65536)
			return LANE_MEMORY;
	return NOWHERE;
}

/* Takes out of a descriptor what drives and options decide, and the addresses, which are compared by what they are of. */
static void keep_the_same(struct gpunvme_dq *dq)
{
	dq->flags &= ~(uint32_t)(GPUNVME_DQ_WRITE_ZEROES | GPUNVME_DQ_READBACK_SQE);
	dq->tag = dq->max_blocks = dq->boundary = dq->atomic = dq->deallocate = dq->device = 0;
	dq->lba_shift = 0;
	dq->lba_count = dq->cmd_timeout = 0;
	dq->sq = dq->cq = dq->sq_db = dq->cq_db = dq->stop = 0;
	dq->state = dq->ready = dq->result = dq->cid_map = 0;
}

/* The benchmarks' queues, made by hand, are what programs get from the library: else they measure something else. */
static void test_rig(void **state)
{
	static const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_NO_SELFTEST, 256, 0, 0, 0, 0 };
	struct rig *r = rig_new(1, 256, SERVE_COUNT, false, false, 0);
	const struct gpunvme_dq *b = &r->dqs[0];
	struct gpunvme_dq a, by_hand = r->dqs[0];
	struct gpunvme_dq_state fresh = { 0 };
	struct fake *fake = fake_new();
	struct gpunvme_gpu *gpu = foreign_gpu(fake);
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &a), 0);
	assert_int_equal(library_has(fake, qp, a.sq), rig_has(r, b->sq));
	assert_int_equal(library_has(fake, qp, a.cq), rig_has(r, b->cq));
	assert_int_equal(library_has(fake, qp, a.sq_db), rig_has(r, b->sq_db));
	assert_int_equal(library_has(fake, qp, a.cq_db), rig_has(r, b->cq_db));
	assert_int_equal(library_has(fake, qp, a.stop), rig_has(r, b->stop));
	assert_int_equal(library_has(fake, qp, a.state), rig_has(r, b->state));
	assert_int_not_equal(rig_has(r, b->stop), NOWHERE);
	assert_int_equal(a.ready - a.state, b->ready - b->state);
	assert_int_equal(a.result - a.state, b->result - b->state);
	assert_int_equal(a.cid_map - a.state, b->cid_map - b->state);
	assert_int_equal(a.sq % 4096, b->sq % 4096);
	assert_int_equal(a.cq % 4096, b->cq % 4096);
	assert_memory_equal((void *)(uintptr_t)(a.state - LOCAL), &fresh, sizeof(fresh));
	assert_memory_equal((void *)(uintptr_t)b->state, &fresh, sizeof(fresh));
	assert_memory_equal((void *)(uintptr_t)(a.cid_map - LOCAL), (void *)(uintptr_t)b->cid_map, b->cids / 8);
	keep_the_same(&a);
	keep_the_same(&by_hand);
	assert_memory_equal(&a, &by_hand, sizeof(a));
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
	rig_free(r);
}

/* What the host says to threads: a cause stays, whatever comes after it. */
static void test_control(void **state)
{
	struct fake *fake = fake_new();
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu:4", NULL, &gpu), 0);
	assert_int_equal(fake_open(fake, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &plain, &qp), 0);
	assert_int_equal(gpunvme_queue_stop(qp, 1), 0);
	assert_int_equal(*(uint32_t *)qp->qp[0]->control.cpu, 1);
	assert_int_equal(gnv_qp_poisoned(qp->qp[0]), 0);
	fake->lost(fake->lost_ctx, GNV_PORT_LOST, "it was unplugged");
	assert_int_equal(gpunvme_queue_stop(qp, 0), 0);
	assert_int_equal(*(uint32_t *)qp->qp[0]->control.cpu, GPUNVME_ENODEV);
	assert_int_equal(gnv_qp_poisoned(qp->qp[0]), GPUNVME_ENODEV);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), -ENODEV);
	assert_string_equal(gpunvme_errmsg(), "the controller is gone: it was unplugged. Close it, check power, slot and link, and open it "
					      "again");
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
}

/* Copies of any alignment; aligned words whole. */
static void test_copies(void **state)
{
	unsigned char from[64], to[64];
	struct gnv_gpu_range range;
	struct gpunvme_gpu *gpu;
	unsigned at, len, i;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpu->ops->local_alloc(gpu, sizeof(from), &range), 0);
	for (at = 0; at < 16; at++) {
		for (len = 0; len < 40; len++) {
			for (i = 0; i < sizeof(from); i++)
				from[i] = (unsigned char)(i * 7 + len);
			memset(to, 0xee, sizeof(to));
			assert_int_equal(gpu->ops->poke(gpu, range.lane + at, from + at % 5, len), 0);
			assert_int_equal(gpu->ops->peek(gpu, to + 3, range.lane + at, len), 0);
			assert_memory_equal(to + 3, from + at % 5, len);
			assert_int_equal(to[2], 0xee);
			assert_int_equal(to[3 + len], 0xee);
		}
	}
	gpu->ops->local_free(gpu, &range, sizeof(from));
	gpunvme_gpu_close(gpu);
}

#define VIEWS 3u

static void view_queues(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const uint32_t ms[VIEWS], struct gpunvme_queue *qp[VIEWS],
			struct gpunvme_dq dq[VIEWS])
{
	struct gpunvme_queue_opts opts = plain;
	unsigned i;

	for (i = 0; i < VIEWS; i++) {
		opts.cmd_timeout_ms = ms[i];
		assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp[i]), 0);
		assert_int_equal(gpunvme_queue_view(qp[i], NULL, &dq[i]), 0);
	}
}

/* The time that a kernel gets for lists of so many commands. */
static uint32_t commands_time(struct gpunvme_gpu *gpu, const struct gpunvme_dq dq[VIEWS], uint32_t each)
{
	static struct gpunvme_command cmd[1u << 17];
	struct gpunvme_commands list = { sizeof(list), 1, each, cmd };
	struct gpunvme_dbuf dbuf = { 0 };
	unsigned i, locals = seen.locals;

	assert_true(each <= GNV_ARRAY_LEN(cmd));
	for (i = 0; i < each; i++)
		cmd[i] = (struct gpunvme_command){ .op = GPUNVME_IO_FLUSH, .queue = i % VIEWS, .status = 99 };
	assert_int_equal(gpunvme_run_commands(gpu, dq, VIEWS, &dbuf, &list), 0);
	for (i = 0; i < each; i++)
		assert_int_equal(cmd[i].status, -EAGAIN);
	assert_int_equal(seen.locals, locals);
	return seen.timeout_ms;
}

/*
 * A kernel is not taken for one that hangs while a thread may yet wait for the queue with the longest time-out, nor while it
 * refuses commands, which no queue gets.
 */
static void test_commands_time(void **state)
{
	static const uint32_t ms[VIEWS] = { 100, 60000, 2000 };
	struct fake *fake = fake_new();
	struct gpunvme_gpu *gpu = foreign_gpu(fake);
	struct gnv_gpu_ops ops = *gpu->ops;
	struct gpunvme_queue *qp[VIEWS];
	struct gpunvme_dq dq[VIEWS];
	struct gpunvme_dev *dev;
	uint32_t took;
	unsigned i;

	(void)state;
	ops.launch = launch;
	gpu->ops = &ops;
	assert_int_equal(fake_open(fake, &dev), 0);
	view_queues(dev, gpu, ms, qp, dq);
	took = commands_time(gpu, dq, 2);
	assert_in_range(took, 60000, 80000);
	assert_in_range(commands_time(gpu, dq, 1u << 17) - took, 1000, 10000);
	for (i = 0; i < VIEWS; i++)
		gpunvme_queue_destroy(qp[i]);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	fake_delete(fake, false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_addresses), cmocka_unit_test(test_refusals), cmocka_unit_test(test_unreadable),
		cmocka_unit_test(test_doorbells), cmocka_unit_test(test_kept),	   cmocka_unit_test(test_rig),
		cmocka_unit_test(test_control),
		cmocka_unit_test(test_copies),	  cmocka_unit_test(test_commands_time),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
