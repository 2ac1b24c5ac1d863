/* SPDX-License-Identifier: MIT */
/*
 * What the tests with the mock of an AMD GPU share, in a guest: its VRAM is the BAR of a real device (MOCK_BAR), the
 * controller is at GPUNVME_TEST_URI, and between the library and the kernel is the seam.
 */
#ifndef TESTS_VM_GPU_RIG_H
#define TESTS_VM_GPU_RIG_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/mock.h"
#include "gpu/gpu.h"
#include "mocks/hsa/runtime.h"
#include "mocks/kernel/seam.h"
#include "queue/queue.h"
#include "util/clock.h"

#define DATA (1u << 20)
#define PATIENT_NS (2000 * GNV_NS_PER_MS) /* an emulated processor is away for longer than a real one */

static const char *uri;
static bool type1;
static struct mock_counts *counts;
static struct mock_moves *moves;
static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static char journal[16384];

static inline void good(int ret)
{
	if (ret)
		fail_msg("%d %s: %s", ret, gpunvme_strerror(ret), gpunvme_errmsg());
}

static inline void keep_line(void *ctx, enum gpunvme_log_level level, const char *text)
{
	size_t len = strlen(journal);

	(void)ctx;
	(void)level;
	snprintf(journal + len, sizeof(journal) - len, "%s\n", text);
}

static inline void said(const char *words)
{
	if (!strstr(journal, words))
		fail_msg("the log does not say '%s':\n%s", words, journal);
}

static inline int find_mock(void **state)
{
	(void)state;
	uri = getenv("GPUNVME_TEST_URI");
	assert_true(uri && getenv("MOCK_BAR"));
	type1 = strstr(uri, "type1");
	counts = mock_symbol("mock_counts");
	moves = mock_symbol("mock_moves");
	assert_true(counts && moves);
	return 0;
}

static inline void open_both(const char *keys)
{
	struct gpunvme_dev_opts dev_opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_gpu_opts gpu_opts = GPUNVME_GPU_OPTS_INIT;
	char full[200];

	dev_opts.log = gpu_opts.log = keep_line;
	snprintf(full, sizeof(full), "%s%s", uri, keys);
	good(gpunvme_gpu_open("hsa:0", &gpu_opts, &gpu));
	good(gpunvme_dev_open(full, &dev_opts, &dev));
	dev->ringtest.late_ns = dev->ringtest.lost_ns = PATIENT_NS;
}

/* A few doorbells tell as much where the time of one does not matter. */
static inline void open_quick(void)
{
	open_both("");
	dev->ringtest.rings = 50;
}

static inline void close_both(void)
{
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	dev = NULL;
	gpu = NULL;
}

static inline int begin(void **state)
{
	(void)state;
	journal[0] = 0;
	seam_reset();
	return 0;
}

/* Nothing is left, and the kernel was used in the order that it asks for. */
static inline int end(void **state)
{
	const struct mock_counts none = { 0 };

	(void)state;
	unsetenv("MOCK_MIGRATES");
	unsetenv("MOCK_FAIL");
	seam.gpu_nodes = false;
	close_both();
	if (seam.broke)
		fail_msg("a rule was broken: %s\n%s", seam.broke, journal);
	assert_memory_equal(counts, &none, sizeof(none));
	return 0;
}

static inline struct gpunvme_queue_info about(struct gpunvme_queue *qp)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };

	good(gpunvme_queue_get_info(qp, &info));
	return info;
}

static inline void is_placement(struct gpunvme_queue *qp, const char *placement)
{
	if (strcmp(about(qp).placement, placement))
		fail_msg("the queue is on placement %s, not %s:\n%s", about(qp).placement, placement, journal);
}

static inline bool in_vram(const void *ptr)
{
	return (const char *)ptr >= seam.vram && (const char *)ptr < seam.vram + seam.vram_len;
}

/* Where the rings of the queue lie. */
static inline void buffer(struct gpunvme_queue *qp, struct gpunvme_mem **mem, struct gpunvme_dbuf *dbuf)
{
	good(gpunvme_mem_alloc(gpu, qp, DATA, NULL, mem));
	good(gpunvme_mem_map(*mem, dev));
	good(gpunvme_mem_dbuf(*mem, dev, dbuf));
}

static inline void move(struct gpunvme_queue *qp, const struct gpunvme_dbuf *dbuf, bool write, uint64_t lba, uint64_t nblocks)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 1, 0, 0 };
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct gpunvme_dq dq;

	good(gpunvme_queue_view(qp, &view, &dq));
	copy.flags = write ? GPUNVME_COPY_WRITE : 0;
	copy.threads = 16;
	copy.step = 8;
	copy.lba = lba;
	copy.nblocks = nblocks;
	good(gpunvme_run_copy(gpu, &dq, 1, dbuf, &copy));
}

static inline void scribble(void *ptr, size_t len, unsigned seed)
{
	unsigned char *p = ptr;

	for (size_t i = 0; i < len; i++)
		p[i] = (unsigned char)(rand_r(&seed) >> 7);
}

/* Threads write a buffer out and read it back, with buffers that lie where the queue's placement wants them. */
static inline void use(struct gpunvme_queue *qp, bool local)
{
	struct gpunvme_mem *out, *in;
	struct gpunvme_dbuf dout, din;
	const uint64_t blocks = 128;

	buffer(qp, &out, &dout);
	buffer(qp, &in, &din);
	assert_int_equal(out->local, local);
	assert_int_equal(in_vram(gpunvme_mem_ptr(in)), local);
	scribble(gpunvme_mem_ptr(out), blocks * 512, (unsigned)about(qp).qid + 7);
	memset(gpunvme_mem_ptr(in), 0, blocks * 512);
	move(qp, &dout, true, 64, blocks);
	move(qp, &din, false, 64, blocks);
	assert_memory_equal(gpunvme_mem_ptr(in), gpunvme_mem_ptr(out), blocks * 512);
	gpunvme_mem_free(out);
	gpunvme_mem_free(in);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

#endif
