/* SPDX-License-Identifier: MIT */
/* The top placement: rings, data and state in VRAM, doorbells that threads ring. */
#include "gpu_rig.h"

/* With KFD, and without libdrm. */
static int begin_nodes(void **state)
{
	seam.gpu_nodes = true;
	return begin(state);
}

/* What threads wrote from VRAM is what a queue of CPU threads, with everything in host memory, reads; and the other way round. */
static void test_end_to_end(void **state)
{
	struct gpunvme_mem *vram, *host;
	struct gpunvme_dbuf dvram, dhost;
	struct gpunvme_gpu *cpu;
	struct gpunvme_queue *qp, *plain;
	struct gpunvme_dq dq;
	int answer = -1;

	(void)state;
	open_both("");
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	is_placement(qp, "vram");
	said("the GPU reaches the doorbells, by kfd"); /* no runtime that was released imports them */
	assert_true(in_vram(qp->qp[0]->sq.cpu) && in_vram(qp->qp[0]->cq.cpu) && in_vram((void *)(uintptr_t)qp->qp[0]->state.lane));
	assert_false(in_vram(qp->qp[0]->control.cpu));
	good(gpunvme_gpu_open("cpu", NULL, &cpu));
	good(gpunvme_queue_create(dev, cpu, NULL, &plain));
	good(gpunvme_mem_alloc(cpu, NULL, DATA, NULL, &host));
	good(gpunvme_mem_map(host, dev));
	good(gpunvme_mem_dbuf(host, dev, &dhost));
	buffer(qp, &vram, &dvram);
	assert_true(in_vram(gpunvme_mem_ptr(vram)));
	good(gpunvme_queue_view(plain, NULL, &dq));
	for (uint32_t blocks = 1; blocks <= 256; blocks *= 4) { /* the last one needs PRP lists, which the host has written */
		size_t len = blocks * 512ull;

		scribble(gpunvme_mem_ptr(vram), len, blocks);
		move(qp, &dvram, true, 512, blocks);
		good(gnv_gpu_read(cpu, &dq, &dhost, 512, blocks, &answer));
		assert_int_equal(answer, 0);
		assert_memory_equal(gpunvme_mem_ptr(host), gpunvme_mem_ptr(vram), len);
		memset(gpunvme_mem_ptr(vram), 0, len);
		move(qp, &dvram, false, 512, blocks);
		assert_memory_equal(gpunvme_mem_ptr(vram), gpunvme_mem_ptr(host), len);
	}
	assert_int_equal(gpunvme_mem_map(host, dev), 0);
	gpunvme_mem_free(vram);
	gpunvme_mem_free(host);
	gpunvme_queue_destroy(plain);
	gpunvme_gpu_close(cpu);
	gpunvme_queue_destroy(qp);
}

static void test_many(void **state)
{
	struct gpunvme_queue *qp[3];
	unsigned i;

	(void)state;
	open_quick();
	for (i = 0; i < 3; i++) {
		good(gpunvme_queue_create(dev, gpu, NULL, &qp[i]));
		is_placement(qp[i], "vram");
	}
	assert_int_equal(seam.seen[SEAM_KFD_IMPORT], 1); /* the doorbells are shown once for each GPU */
	for (i = 0; i < 3; i++)
		use(qp[i], true);
	good(gpunvme_queue_recover(qp[1]));
	is_placement(qp[1], "vram");
	for (i = 0; i < 3; i++)
		use(qp[i], true);
	for (i = 0; i < 3; i++)
		gpunvme_queue_destroy(qp[i]);
	assert_int_equal(counts->imports, 0);
}

/* Whatever is closed first, the rules of the seam are kept. */
static void test_order(void **state)
{
	struct gpunvme_mem *mem;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_queue *qp;
	unsigned turn;

	(void)state;
	for (turn = 0; turn < 3; turn++) {
		open_quick();
		good(gpunvme_queue_create(dev, gpu, NULL, &qp));
		buffer(qp, &mem, &dbuf);
		use(qp, true);
		if (turn == 0) { /* the GPU first: it lives as long as it is used */
			gpunvme_gpu_close(gpu);
			gpu = NULL;
		}
		if (turn == 1) /* the memory last */
			gpunvme_queue_destroy(qp);
		if (turn == 2) { /* while the queue is in use by nobody, its buffer */
			gpunvme_mem_free(mem);
			mem = NULL;
		}
		if (turn != 1)
			gpunvme_queue_destroy(qp);
		gpunvme_dev_close(dev);
		dev = NULL;
		gpunvme_mem_free(mem);
		close_both();
		assert_null(seam.broke);
	}
}

static void measure(const char *what, uint32_t flags)
{
	double ms[3], swap;
	unsigned i, j;

	for (i = 0; i < 3; i++) {
		const struct gpunvme_queue_opts opts = { sizeof(opts), flags, 64, 0, 0, 0, 0 };
		uint64_t start = gnv_clock_ns();
		struct gpunvme_queue *qp;

		good(gpunvme_queue_create(dev, gpu, &opts, &qp));
		ms[i] = (double)(gnv_clock_ns() - start) / 1e6;
		gpunvme_queue_destroy(qp);
		for (j = i; j && ms[j] < ms[j - 1]; j--) {
			swap = ms[j];
			ms[j] = ms[j - 1];
			ms[j - 1] = swap;
		}
	}
	printf("figure: gpunvme_queue_create, %s: %.1f ms (%.1f to %.1f)\n", what, ms[1], ms[0], ms[2]);
}

static void test_time(void **state)
{
	(void)state;
	open_both("");
	measure("rings in VRAM, 1,000 doorbells and self-test", 0);
	measure("rings in VRAM, neither", GPUNVME_QUEUE_VRAM | GPUNVME_QUEUE_NO_SELFTEST);
	measure("rings in VRAM, a CPU thread rings, self-test", GPUNVME_QUEUE_VRAM | GPUNVME_QUEUE_FORWARD);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_end_to_end, begin_nodes, end),
		cmocka_unit_test_setup_teardown(test_many, begin_nodes, end),
		cmocka_unit_test_setup_teardown(test_order, begin_nodes, end),
		cmocka_unit_test_setup_teardown(test_time, begin_nodes, end),
	};

	return cmocka_run_group_tests(tests, find_mock, NULL);
}
