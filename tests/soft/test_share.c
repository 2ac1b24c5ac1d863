/* SPDX-License-Identifier: MIT */
/*
 * Two controllers that share an address space: those that GPUNVME_TEST_URI and GPUNVME_TEST_URI2 name, or two in software over images
 * of their own. Overwrites the first megabyte of both. GPUNVME_TEST_UNBIND, a shell command, takes the first away during I/O.
 * GPUNVME_TEST_HUGE: buffers are of huge pages, which must be there.
 */
#include <errno.h>
#include <pthread.h>
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
#include "mem/mem.h"

#define BYTES (1u << 20)

struct side {
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
};

static char image[2][40] = { "/tmp/gpunvme-share-XXXXXX", "/tmp/gpunvme-share-XXXXXX" };
static char uri[2][256];
static struct gpunvme_gpu *gpu;

static int setup(void **state)
{
	const char *given[2] = { getenv("GPUNVME_TEST_URI"), getenv("GPUNVME_TEST_URI2") };

	(void)state;
	for (int i = 0; i < 2; i++) {
		int fd = given[i] ? -1 : mkstemp(image[i]);

		if (given[i]) {
			snprintf(uri[i], sizeof(uri[i]), "%s", given[i]);
			continue;
		}
		assert_true(fd >= 0 && !ftruncate(fd, 16 << 20));
		close(fd);
		snprintf(uri[i], sizeof(uri[i]), "soft:%s", image[i]);
	}
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	gpunvme_gpu_close(gpu);
	for (int i = 0; i < 2; i++)
		if (!strncmp(uri[i], "soft:", 5))
			unlink(image[i]);
	return 0;
}

static void open_side(struct side *side, int which, struct gpunvme_dev *share)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	opts.share = share;
	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_dev_open(uri[which], &opts, &side->dev));
	good(gpunvme_queue_create(side->dev, gpu, NULL, &side->qp));
	good(gpunvme_queue_view(side->qp, &view, &side->dq));
}

static void close_side(struct side *side)
{
	gpunvme_queue_destroy(side->qp);
	gpunvme_dev_close(side->dev);
}

static void fill(unsigned char *p, size_t n, unsigned seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(rand_r(&seed) >> 7);
}

/* Kilobytes that the kernel has pinned for this process; -1 where it does not say. */
static long pinned(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	long kib = -1;

	assert_non_null(file);
	while (fgets(line, sizeof(line), file))
		if (sscanf(line, "VmPin: %ld", &kib) == 1)
			break;
	fclose(file);
	return kib;
}

static void make(struct gpunvme_mem **mem)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;

	opts.flags = getenv("GPUNVME_TEST_HUGE") ? GPUNVME_MEM_HUGE : 0;
	good(gpunvme_mem_alloc(gpu, NULL, BYTES, &opts, mem));
	if (opts.flags)
		assert_int_equal((*mem)->page, 2 << 20);
}

static struct gpunvme_dbuf on(struct gpunvme_mem *mem, const struct side *side)
{
	struct gpunvme_dbuf dbuf;

	good(gpunvme_mem_map(mem, side->dev));
	good(gpunvme_mem_dbuf(mem, side->dev, &dbuf));
	return dbuf;
}

/* All of the first buffer to the controller and back into the second one. */
static void round_trip(const struct side *side, struct gpunvme_mem *out, struct gpunvme_mem *in, unsigned seed)
{
	struct gpunvme_dbuf dout = on(out, side), din = on(in, side);
	uint32_t blocks = BYTES >> side->dq.lba_shift;

	fill(gpunvme_mem_ptr(out), BYTES, seed);
	memset(gpunvme_mem_ptr(in), 0, BYTES);
	good(gpunvme_write(&side->dq, &dout, 0, 0, (uint64_t)blocks << side->dq.lba_shift, 0));
	good(gpunvme_read(&side->dq, &din, 0, 0, (uint64_t)blocks << side->dq.lba_shift));
	assert_memory_equal(gpunvme_mem_ptr(in), gpunvme_mem_ptr(out), BYTES);
}

static void test_same_addresses(void **state)
{
	struct gpunvme_mem *out, *in;
	struct side a, b;
	long before;

	(void)state;
	open_side(&a, 0, NULL);
	open_side(&b, 1, a.dev);
	make(&out);
	make(&in);
	before = pinned();
	on(out, &a);
	if (before >= 0 && strncmp(uri[0], "soft:", 5) && !strstr(uri[0], "type1")) /* type 1 counts as locked instead */
		assert_true(pinned() - before >= BYTES / 1024);
	on(in, &a);
	before = pinned();
	on(out, &b);
	on(in, &b);
	assert_true(pinned() - before < BYTES / 1024); /* PRP tables at most */
	assert_int_equal(on(out, &a).iova, on(out, &b).iova);
	assert_int_equal(on(in, &a).iova, on(in, &b).iova);
	assert_int_not_equal(on(in, &a).iova, on(out, &a).iova);
	assert_int_not_equal(on(in, &a).prp_a, on(in, &b).prp_a); /* lists are each controller's own */
	for (unsigned i = 0; i < 4; i++) {
		round_trip(&a, out, in, 2 * i);
		round_trip(&b, out, in, 2 * i + 1);
	}
	/* What one gives up, the other keeps. */
	good(gpunvme_mem_unmap(in, a.dev));
	round_trip(&b, out, in, 20);
	round_trip(&a, out, in, 21);
	good(gpunvme_mem_unmap(in, b.dev));
	good(gpunvme_mem_unmap(in, a.dev));
	good(gpunvme_mem_unmap(in, a.dev));
	round_trip(&a, out, in, 22);
	gpunvme_mem_free(in);
	gpunvme_mem_free(out);
	close_side(&a);
	close_side(&b);
}

/* The device that opened the space may go first; the one that stays may be joined again. */
static void test_any_order(void **state)
{
	struct gpunvme_mem *out, *in;
	struct side a, b;

	(void)state;
	for (int first = 0; first < 2; first++) {
		make(&out);
		make(&in);
		open_side(&a, 0, NULL);
		open_side(&b, 1, a.dev);
		round_trip(&a, out, in, 30);
		round_trip(&b, out, in, 31);
		close_side(first ? &b : &a);
		round_trip(first ? &a : &b, out, in, 32);
		if (first)
			open_side(&b, 1, a.dev);
		else
			open_side(&a, 0, b.dev);
		assert_int_equal(on(out, &a).iova, on(out, &b).iova);
		round_trip(&a, out, in, 33);
		round_trip(&b, out, in, 34);
		close_side(first ? &a : &b);
		gpunvme_mem_free(in);
		close_side(first ? &b : &a);
		gpunvme_mem_free(out);
	}
}

/* Without sharing addresses are chosen apart, and a way that differs cannot share. */
static void test_refusals(void **state)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *other;
	char soft[64] = "/tmp/gpunvme-share-XXXXXX", wrong[300];
	struct side a;
	int fd = mkstemp(soft);

	(void)state;
	assert_true(fd >= 0 && !ftruncate(fd, 16 << 20));
	close(fd);
	open_side(&a, 0, NULL);
	opts.share = a.dev;
	if (strncmp(uri[0], "soft:", 5)) {
		snprintf(wrong, sizeof(wrong), "soft:%s", soft);
		assert_int_equal(gpunvme_dev_open(wrong, &opts, &other), -EINVAL);
		assert_non_null(strstr(gpunvme_errmsg(), "share"));
		snprintf(wrong, sizeof(wrong), "%.*s?port=%s", (int)strcspn(uri[1], "?"), uri[1],
			 strstr(uri[0], "type1") ? "iommufd" : "type1");
		assert_int_equal(gpunvme_dev_open(wrong, &opts, &other), -EINVAL);
		assert_non_null(strstr(gpunvme_errmsg(), "share"));
	}
	snprintf(wrong, sizeof(wrong), "soft:%s/none", soft);
	assert_true(gpunvme_dev_open(wrong, &opts, &other) < 0);
	close_side(&a);
	unlink(soft);
}

struct load {
	struct side *side;
	struct gpunvme_dbuf dbuf;
	unsigned rounds; /* atomic */
	bool stop;       /* atomic */
	int ret;
};

static void *load_main(void *arg)
{
	struct load *load = arg;
	uint32_t blocks = 4096u >> load->side->dq.lba_shift;

	while (!load->ret && !__atomic_load_n(&load->stop, __ATOMIC_RELAXED)) {
		load->ret = gpunvme_read(&load->side->dq, &load->dbuf, 0, 0, (uint64_t)blocks << load->side->dq.lba_shift);
		__atomic_fetch_add(&load->rounds, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* The kernel takes one away: its threads get an error, the other goes on in the same space with the same memory. */
static void test_one_is_taken_away(void **state)
{
	const char *unbind = getenv("GPUNVME_TEST_UNBIND");
	struct gpunvme_mem *mem, *out, *in;
	struct load load[2] = { { .side = NULL } };
	pthread_t thread[2];
	struct side a, b;
	unsigned rounds;

	(void)state;
	if (!unbind)
		skip();
	open_side(&a, 0, NULL);
	open_side(&b, 1, a.dev);
	make(&mem);
	make(&out);
	make(&in);
	load[0] = (struct load){ .side = &a, .dbuf = on(mem, &a) };
	load[1] = (struct load){ .side = &b, .dbuf = on(mem, &b) };
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, load_main, &load[i]), 0);
	while (!__atomic_load_n(&load[0].rounds, __ATOMIC_RELAXED) || !__atomic_load_n(&load[1].rounds, __ATOMIC_RELAXED))
		usleep(1000);
	assert_int_equal(system(unbind), 0);
	pthread_join(thread[0], NULL);
	assert_true(load[0].ret == -GPUNVME_ENODEV || load[0].ret == -GPUNVME_ESHUTDOWN);
	rounds = __atomic_load_n(&load[1].rounds, __ATOMIC_RELAXED);
	while (__atomic_load_n(&load[1].rounds, __ATOMIC_RELAXED) < rounds + 100)
		usleep(1000);
	__atomic_store_n(&load[1].stop, true, __ATOMIC_RELAXED);
	pthread_join(thread[1], NULL);
	good(load[1].ret);
	round_trip(&b, out, in, 40);
	close_side(&a);
	round_trip(&b, out, in, 41);
	gpunvme_mem_free(mem);
	gpunvme_mem_free(out);
	gpunvme_mem_free(in);
	close_side(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_addresses),
		cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_one_is_taken_away),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
