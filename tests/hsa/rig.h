/* SPDX-License-Identifier: MIT */
/* What the tests with the mock share: an image of known blocks, and the check that the runtime has nothing left. */
#ifndef TESTS_HSA_RIG_H
#define TESTS_HSA_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "common/mock.h"
#include "mocks/hsa/runtime.h"

#define BLOCKS 2048u
#define FIRST 77u

static char uri[300];
static struct mock_counts *counts;

static inline unsigned pattern(unsigned lba)
{
	return (lba * 13 + 5) & 0xff;
}

static int setup(void **state)
{
	unsigned char block[512];
	FILE *file;
	unsigned i;

	counts = mock_symbol("mock_counts");
	assert_non_null(counts);
	assert_int_equal(image_make_dir(state), 0);
	image_make(image_path("i"), BLOCKS * 512);
	file = fopen(image_path("i"), "r+");
	assert_non_null(file);
	for (i = 0; i < BLOCKS; i++) {
		memset(block, (int)pattern(i), sizeof(block));
		assert_int_equal(fwrite(block, sizeof(block), 1, file), 1);
	}
	fclose(file);
	snprintf(uri, sizeof(uri), "soft:%s", image_path("i"));
	return 0;
}

static int teardown(void **state)
{
	remove(image_path("i"));
	return image_remove_dir(state);
}

/* A queue of hsa:0 on that image, and memory for all of it. */
struct hsa_path {
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
};

static inline void hsa_path_open(struct hsa_path *p, const struct gpunvme_queue_opts *opts)
{
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &p->gpu), 0);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &p->dev), 0);
	assert_int_equal(gpunvme_queue_create(p->dev, p->gpu, opts, &p->qp), 0);
	assert_int_equal(gpunvme_queue_view(p->qp, NULL, &p->dq), 0);
	assert_int_equal(gpunvme_mem_alloc(p->gpu, p->qp, BLOCKS * 512, NULL, &p->mem), 0);
	assert_int_equal(gpunvme_mem_map(p->mem, p->dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(p->mem, p->dev, &p->dbuf), 0);
}

static inline void nothing_left(void)
{
	const struct mock_counts none = { 0 };

	assert_memory_equal(counts, &none, sizeof(none));
}

/* What GPUs keep that were closed after a fault: nothing of them can be undone, and so all of it stays. */
static inline void left_by_faults(int gpus)
{
	const struct mock_counts left = {
		.runtime = gpus, .queues = gpus, .signals = gpus, .executables = gpus, .allocations = 2 * gpus
	};

	assert_memory_equal(counts, &left, sizeof(left));
}

/* In a process of its own, as a fault stays one for as long as the process lives; and bounded, as closing after one may hang. */
static inline void apart(void (*body)(void *arg), void *arg)
{
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (!pid) {
		setenv("CMOCKA_TEST_ABORT", "1", 1);
		alarm(120);
		body(arg);
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("its process ended with status 0x%x", (unsigned)status);
}

static inline void pretend(const char *variable, const char *value)
{
	setenv(variable, value, 1);
}

static int clear(void **state)
{
	(void)state;
	unsetenv("MOCK_GPUS");
	unsetenv("MOCK_GFX");
	unsetenv("MOCK_MINOR");
	unsetenv("MOCK_LACKS");
	unsetenv("MOCK_FAIL");
	unsetenv("MOCK_LATE");
	unsetenv("MOCK_POINTERS");
	unsetenv("MOCK_EXTENDED");
	unsetenv("MOCK_CPUS");
	unsetenv("MOCK_HIVE");
	unsetenv("MOCK_ALSO");
	unsetenv("MOCK_UNITS");
	unsetenv("MOCK_QUEUE_STAYS");
	unsetenv("MOCK_WEDGED");
	unsetenv("MOCK_INTEROP");
	nothing_left();
	return 0;
}

#endif
