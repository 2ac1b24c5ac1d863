/* SPDX-License-Identifier: MIT */
/*
 * From the public API to the medium and back, on whatever controller GPUNVME_TEST_URI names: the software controller over an image
 * of its own when it names none. GPUNVME_TEST_FORWARD lets a CPU thread ring the doorbells. Overwrites the first megabytes of every
 * namespace. Success is equal bytes, never a status alone.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"

#define BYTES (2u << 20)
#define MAX_NS 8u

static char image[] = "/tmp/gpunvme-e2e-XXXXXX";
static char uri[256];
static bool own_image;
static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static uint32_t nsids[MAX_NS], ns_count;

static void print_line(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	if (level <= GPUNVME_LOG_WARN)
		fprintf(stderr, "log: %s\n", text);
}

/* A result that should be 0, with the library's words when it is not. */
static void open_dev(void)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;

	opts.log = print_line;
	good(gpunvme_dev_open(uri, &opts, &dev));
}

static int setup(void **state)
{
	const char *given = getenv("GPUNVME_TEST_URI");
	uint32_t all[MAX_NS], count = MAX_NS;
	int fd;

	(void)state;
	if (given) {
		snprintf(uri, sizeof(uri), "%s", given);
	} else {
		fd = mkstemp(image);
		assert_true(fd >= 0 && !ftruncate(fd, 16 << 20));
		close(fd);
		own_image = true;
		snprintf(uri, sizeof(uri), "soft:%s", image);
	}
	open_dev();
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_ns_list(dev, all, &count));
	for (uint32_t i = 0; i < count && i < MAX_NS; i++) {
		struct gpunvme_ns_info ns = { .size = sizeof(ns) };
		int ret = gpunvme_ns_get_info(dev, all[i], &ns);

		if (ret == -EOPNOTSUPP) /* with metadata: a clear refusal is all that is guaranteed */
			assert_non_null(strstr(gpunvme_errmsg(), "metadata"));
		else if (!ret)
			nsids[ns_count++] = all[i];
		else
			good(ret);
	}
	assert_int_not_equal(ns_count, 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	if (own_image)
		unlink(image);
	return 0;
}

struct rig {
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	struct gpunvme_mem *out, *in;
	struct gpunvme_dbuf dout, din;
	unsigned char *pout, *pin;
};

static void rig_open(struct rig *r, uint32_t nsid, uint32_t depth)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, nsid, 0, 0 };
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;

	opts.depth = depth;
	opts.flags = getenv("GPUNVME_TEST_FORWARD") ? GPUNVME_QUEUE_FORWARD : 0;
	good(gpunvme_queue_create(dev, gpu, &opts, &r->qp));
	good(gpunvme_queue_view(r->qp, &view, &r->dq));
	good(gpunvme_mem_alloc(gpu, r->qp, BYTES, NULL, &r->out));
	good(gpunvme_mem_alloc(gpu, r->qp, BYTES, NULL, &r->in));
	good(gpunvme_mem_map(r->out, dev));
	good(gpunvme_mem_map(r->in, dev));
	good(gpunvme_mem_dbuf(r->out, dev, &r->dout));
	good(gpunvme_mem_dbuf(r->in, dev, &r->din));
	r->pout = gpunvme_mem_ptr(r->out);
	r->pin = gpunvme_mem_ptr(r->in);
}

static void rig_close(struct rig *r)
{
	gpunvme_queue_destroy(r->qp);
	assert_int_equal(gpunvme_mem_unmap(r->out, dev), 0);
	gpunvme_mem_free(r->out);
	gpunvme_mem_free(r->in);
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
	uint64_t x = seed + 0x9e3779b97f4a7c15ull;

	for (; n; p += 8, n -= n < 8 ? n : 8) { /* xorshift: emulated machines are slow */
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(p, &x, n < 8 ? n : 8);
	}
}

static void untouched(const unsigned char *p, size_t n)
{
	if (n && (*p != 0xee || memcmp(p, p + 1, n - 1) != 0))
		fail_msg("bytes beside the transfer changed");
}

/* One transfer out and back between different places of the buffers, and nothing next to it. */
static void round_trip(struct rig *r, uint64_t offset_out, uint64_t offset_in, uint64_t lba, uint32_t nblocks)
{
	size_t len = (size_t)nblocks << r->dq.lba_shift;

	fill(r->pout + offset_out, len, (unsigned)(lba * 31 + nblocks + offset_out));
	memset(r->pin, 0xee, BYTES);
	good(gpunvme_write(&r->dq, &r->dout, offset_out, (uint64_t)lba << r->dq.lba_shift, (uint64_t)nblocks << r->dq.lba_shift,
			   0));
	good(gpunvme_read(&r->dq, &r->din, offset_in, (uint64_t)lba << r->dq.lba_shift, (uint64_t)nblocks << r->dq.lba_shift));
	assert_memory_equal(r->pout + offset_out, r->pin + offset_in, len);
	untouched(r->pin, (size_t)offset_in);
	untouched(r->pin + offset_in + len, BYTES - (size_t)offset_in - len);
}

static void test_sizes(void **state)
{
	struct rig r;

	(void)state;
	for (uint32_t i = 0; i < ns_count; i++) {
		uint32_t block, all;

		rig_open(&r, nsids[i], 0);
		block = 1u << r.dq.lba_shift;
		all = BYTES >> r.dq.lba_shift;
		round_trip(&r, 0, 0, 0, 1);
		round_trip(&r, 0, 4096, 7, 4096 / block + 1);
		round_trip(&r, 4, 4096 - 4, 3, 3);
		round_trip(&r, 4096, 0, 64, 65536 / block);
		round_trip(&r, 512, 1024, 11, (1u << 20) / block - 1);
		round_trip(&r, 0, 0, 1, all);
		good(gpunvme_flush(&r.dq));
		rig_close(&r);
	}
}

/* All that was there, or all as the drive says that deallocated blocks read: it is a hint. The software controller follows it. */
static void is_deallocated(const struct rig *r, uint32_t nsid, const unsigned char *was, const unsigned char *is, size_t len)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	unsigned char gone;
	size_t i;

	good(gpunvme_ns_get_info(dev, nsid, &ns));
	gone = ns.deallocated == GPUNVME_DEALLOCATED_ONES ? 0xff : 0;
	if (!own_image && memcmp(was, is, len) == 0)
		return;
	if (!own_image && ns.deallocated == GPUNVME_DEALLOCATED_UNKNOWN)
		return;
	for (i = 0; i < len; i++)
		if (is[i] != gone)
			fail_msg("byte %zu of deallocated blocks of %u bytes is %02x", i, 1u << r->dq.lba_shift, is[i]);
}

/* What is written by force comes back, and what is deallocated goes, with nothing next to it. */
static void test_forced_and_deallocated(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct rig r;

	(void)state;
	good(gpunvme_dev_get_info(dev, &info));
	for (uint32_t i = 0; i < ns_count; i++) {
		const uint32_t all = 256, from = 24, n = 130;
		size_t len;

		rig_open(&r, nsids[i], 0);
		len = (size_t)all << r.dq.lba_shift;
		fill(r.pout, len, nsids[i] + 77);
		good(gpunvme_write(&r.dq, &r.dout, 0, 5ull << r.dq.lba_shift, (uint64_t)all << r.dq.lba_shift, GPUNVME_FUA));
		memset(r.pin, 0xee, BYTES);
		good(gpunvme_read(&r.dq, &r.din, 0, 5ull << r.dq.lba_shift, (uint64_t)all << r.dq.lba_shift));
		assert_memory_equal(r.pin, r.pout, len);
		if (info.oncs & GPUNVME_ONCS_DSM) {
			good(gpunvme_discard(&r.dq, &r.din, BYTES - 4096 - 8, (uint64_t)(5 + from) << r.dq.lba_shift,
					     (uint64_t)n << r.dq.lba_shift)); /* across two pages */
			good(gpunvme_read(&r.dq, &r.din, 0, 5ull << r.dq.lba_shift, (uint64_t)all << r.dq.lba_shift));
			assert_memory_equal(r.pin, r.pout, (size_t)from << r.dq.lba_shift);
			is_deallocated(&r, nsids[i], r.pout + ((size_t)from << r.dq.lba_shift), r.pin + ((size_t)from << r.dq.lba_shift),
				       (size_t)n << r.dq.lba_shift);
			assert_memory_equal(r.pin + ((size_t)(from + n) << r.dq.lba_shift), r.pout + ((size_t)(from + n) << r.dq.lba_shift),
					    (size_t)(all - from - n) << r.dq.lba_shift);
		} else {
			assert_int_equal(gpunvme_discard(&r.dq, &r.din, 0, 5ull << r.dq.lba_shift, 1ull << r.dq.lba_shift),
					 -GPUNVME_EOPNOTSUPP);
		}
		rig_close(&r);
	}
}

static void test_depths(void **state)
{
	static const uint32_t depths[] = { 2, 4, 64 };
	struct rig r;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		rig_open(&r, nsids[0], depths[i]);
		for (uint32_t k = 0; k < 200; k++) { /* the rings wrap many times */
			memset(r.pout, (int)k, 1u << r.dq.lba_shift);
			good(gpunvme_write(&r.dq, &r.dout, 0, (uint64_t)k << r.dq.lba_shift, 1ull << r.dq.lba_shift, 0));
			good(gpunvme_read(&r.dq, &r.din, 0, (uint64_t)k << r.dq.lba_shift, 1ull << r.dq.lba_shift));
			assert_memory_equal(r.pin, r.pout, 1u << r.dq.lba_shift);
		}
		rig_close(&r);
	}
}

enum { QUEUES = 4, LANES = 32 };

struct work {
	struct gpunvme_dq dq[QUEUES];
	struct gpunvme_dbuf out, in;
	uint32_t step;
	int status[LANES];
};

/* Every thread copies its own blocks out and back, with two commands in flight. */
static void exchange(void *arg)
{
	struct work *w = arg;
	uint32_t lane = gpunvme_thread_id(), step = w->step, block = 1u << w->dq[0].lba_shift;
	const struct gpunvme_dq *dq = &w->dq[lane % QUEUES];
	struct gpunvme_req a, b;
	int ret = 0, other;

	for (uint32_t turn = 0; turn < 8 && !ret; turn++) {
		uint32_t lba = (turn * LANES + lane) * 2 * step;
		uint64_t offset = (uint64_t)lba * block;

		while ((ret = gpunvme_submit_write(dq, &w->out, offset, (uint64_t)lba << dq->lba_shift,
						   (uint64_t)step << dq->lba_shift, 0, &a)) == -GPUNVME_EAGAIN)
			;
		if (ret)
			break;
		while ((ret = gpunvme_submit_write(dq, &w->out, offset + (uint64_t)step * block,
						   (uint64_t)(lba + step) << dq->lba_shift, (uint64_t)step << dq->lba_shift, 0,
						   &b)) == -GPUNVME_EAGAIN)
			;
		if (!ret)
			ret = gpunvme_wait(dq, &b, 0);
		other = gpunvme_wait(dq, &a, 0);
		ret = ret ? ret : other;
		if (!ret)
			ret = gpunvme_read(dq, &w->in, offset, (uint64_t)lba << dq->lba_shift,
					   (uint64_t)(2 * step) << dq->lba_shift);
	}
	w->status[lane] = ret;
}

static void test_lanes(void **state)
{
	static const uint32_t widths[] = { 1, 4, 32 };
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, nsids[0], 0, 0 };
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue *more[QUEUES];
	static struct work w;
	struct rig r;

	(void)state;
	rig_open(&r, nsids[0], 16);
	opts.flags = getenv("GPUNVME_TEST_FORWARD") ? GPUNVME_QUEUE_FORWARD : 0;
	w = (struct work){ .out = r.dout, .in = r.din, .step = 4096u >> r.dq.lba_shift };
	for (unsigned i = 0; i < QUEUES; i++) {
		good(gpunvme_queue_create(dev, gpu, &opts, &more[i]));
		good(gpunvme_queue_view(more[i], &view, &w.dq[i]));
	}
	for (unsigned i = 0; i < 3; i++) {
		fill(r.pout, BYTES, i);
		memset(r.pin, 0, BYTES);
		good(gpunvme_cpu_launch(LANES, widths[i], exchange, &w));
		for (unsigned k = 0; k < LANES; k++)
			assert_int_equal(w.status[k], 0);
		assert_memory_equal(r.pin, r.pout, 8u * LANES * 2 * 4096);
	}
	for (unsigned i = 0; i < QUEUES; i++)
		gpunvme_queue_destroy(more[i]);
	rig_close(&r);
}

static void test_write_zeroes(void **state)
{
	struct rig r;
	int ret;

	(void)state;
	rig_open(&r, nsids[0], 0);
	round_trip(&r, 0, 0, 20, 40);
	ret = gpunvme_zero(&r.dq, 22ull << r.dq.lba_shift, 3ull << r.dq.lba_shift);
	if (ret != -GPUNVME_EOPNOTSUPP) {
		good(ret);
		good(gpunvme_read(&r.dq, &r.din, 0, 20ull << r.dq.lba_shift, 40ull << r.dq.lba_shift));
		memset(r.pout + (2u << r.dq.lba_shift), 0, 3u << r.dq.lba_shift);
		assert_memory_equal(r.pin, r.pout, 40u << r.dq.lba_shift);
	}
	rig_close(&r);
}

/* What lies on the medium outlives the open. */
static void test_reopen(void **state)
{
	struct rig r;

	(void)state;
	if (!strncmp(uri, "soft:ram:", 9) || !strncmp(uri, "soft:vram:", 10)) { /* but not in memory */
		print_message("skipped: nothing outlives a memory store\n");
		skip();
	}
	rig_open(&r, nsids[0], 0);
	round_trip(&r, 0, 0, 100, 100);
	fill(r.pout, 4096, 77);
	good(gpunvme_write(&r.dq, &r.dout, 0, 100ull << r.dq.lba_shift, 4096u, 0));
	good(gpunvme_flush(&r.dq));
	rig_close(&r);
	gpunvme_dev_close(dev);
	open_dev();
	rig_open(&r, nsids[0], 0);
	fill(r.pout, 4096, 77);
	good(gpunvme_read(&r.dq, &r.din, 0, 100ull << r.dq.lba_shift, 4096u));
	assert_memory_equal(r.pin, r.pout, 4096);
	rig_close(&r);
}

/* Errors of the controller and of the library, and life goes on after each. */
static void test_refusals(void **state)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_sqe bad = { .opc = 0xc0 };
	struct gpunvme_dq wide;
	uint32_t value;
	struct rig r;

	(void)state;
	assert_true(gpunvme_dev_admin(dev, &bad, NULL, 0, 0, NULL) > 0);
	assert_int_equal(gpunvme_ns_get_info(dev, 4000, &ns), -ENOENT);
	good(gpunvme_dev_get_feature(dev, GPUNVME_FID_NUM_QUEUES, &value));
	rig_open(&r, nsids[0], 0);
	wide = r.dq;
	wide.lba_count += 8;
	assert_int_equal(gpunvme_read(&wide, &r.din, 0, (uint64_t)r.dq.lba_count << wide.lba_shift, 1ull << wide.lba_shift) &
				 GPUNVME_ST_CODE,
			 GPUNVME_SC_LBA_RANGE);
	assert_int_equal(gpunvme_read(&r.dq, &r.din, 0, (uint64_t)r.dq.lba_count << r.dq.lba_shift, 1ull << r.dq.lba_shift),
			 -GPUNVME_ERANGE);
	round_trip(&r, 0, 0, r.dq.lba_count - 1, 1);
	rig_close(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),	     cmocka_unit_test(test_depths), cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_write_zeroes), cmocka_unit_test(test_reopen), cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_forced_and_deallocated),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
