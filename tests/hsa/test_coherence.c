/* SPDX-License-Identifier: MIT */
/* gpunvme_gpu_coherence() with the mock of ROCm's runtime. What it does to registers is in unit/test_invalidate.c. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>

#include "common/mock.h"
#include "mocks/hsa/runtime.h"

static void test_hdp(void **state)
{
	uint32_t *hdp = mock_symbol("mock_hdp");
	struct gpunvme_gpu *gpu = NULL;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	*hdp = 0;
	assert_int_equal(gpunvme_gpu_coherence(gpu, GPUNVME_COHERENCE_HDP), 0);
	assert_int_equal(*hdp, 1);
	assert_int_equal(gpunvme_gpu_coherence(gpu, GPUNVME_COHERENCE_INVALIDATE), -ENOENT); /* no such GPU in this machine */
	assert_non_null(strstr(gpunvme_errmsg(), "0000:40:00.0"));
	assert_int_equal(gpunvme_gpu_coherence(gpu, (enum gpunvme_coherence)3), -EINVAL);
	assert_int_equal(gpunvme_gpu_coherence(NULL, GPUNVME_COHERENCE_HDP), -EINVAL);
	gpunvme_gpu_close(gpu);
	setenv("MOCK_LACKS", "hdp", 1);
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_gpu_coherence(gpu, GPUNVME_COHERENCE_HDP), -EOPNOTSUPP);
	assert_int_equal(*hdp, 1);
	unsetenv("MOCK_LACKS");
	gpunvme_gpu_close(gpu);
}

static void test_other_lanes(void **state)
{
	struct gpunvme_gpu *gpu = NULL;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_gpu_coherence(gpu, GPUNVME_COHERENCE_HDP), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "hsa:0"));
	gpunvme_gpu_close(gpu);
}

/* What it does to caches is in test_page_types.c. */
static void test_fence(void **state)
{
	struct gpunvme_gpu *gpu = NULL;

	(void)state;
	assert_int_equal(gpunvme_gpu_fence(NULL), -EINVAL);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_gpu_fence(gpu), 0);
	gpunvme_gpu_close(gpu);
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_gpu_fence(gpu), 0);
	assert_int_equal(gpunvme_gpu_fence(gpu), 0);
	setenv("MOCK_FAIL", "barrier:1:1009", 1);
	assert_int_equal(gpunvme_gpu_fence(gpu), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "fence"));
	unsetenv("MOCK_FAIL");
	assert_int_equal(gpunvme_gpu_fence(gpu), -EIO); /* its queue has ended */
	gpunvme_gpu_close(gpu);
}

/* "uncached" in the log is what the runtime says of the memory that it gave, not of what it could. */
static char text[8192];

static void keep(void *ctx, enum gpunvme_log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	snprintf(text + strlen(text), sizeof(text) - strlen(text), "%s\n", line);
}

static void test_kind(void **state)
{
	static const struct {
		const char *minor, *fails, *kind;
	} table[] = { { "15", "none:1:0", "for data: uncached" },
		      { "15", "amd_memory_pool_allocate:1:1001", "for data: extended fine-grained" }, /* known, and refused for this GPU */
		      { "7", "none:1:0", "for data: extended fine-grained" } };
	const struct gpunvme_gpu_opts opts = { sizeof(opts), keep, NULL };
	const struct gpunvme_mem_opts vram = { sizeof(vram), GPUNVME_MEM_VRAM, 0 };
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		text[0] = '\0';
		setenv("MOCK_MINOR", table[i].minor, 1);
		assert_int_equal(gpunvme_gpu_open("hsa:0", &opts, &gpu), 0);
		setenv("MOCK_FAIL", table[i].fails, 1);
		assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 8192, &vram, &mem), 0);
		unsetenv("MOCK_FAIL");
		if (!strstr(text, table[i].kind))
			fail_msg("%s, %s: %s", table[i].minor, table[i].fails, text);
		gpunvme_mem_free(mem);
		gpunvme_gpu_close(gpu);
	}
	unsetenv("MOCK_MINOR");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_hdp), cmocka_unit_test(test_other_lanes), cmocka_unit_test(test_fence),
					    cmocka_unit_test(test_kind) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
