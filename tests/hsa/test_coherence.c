/* SPDX-License-Identifier: MIT */
/* gpunvme_gpu_coherence() with the stand-in for ROCm's runtime. What it does to registers is in unit/test_invalidate.c. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <gpunvme/gpunvme.h>

#include "common/played.h"
#include "mocks/hsa/runtime.h"

static void test_hdp(void **state)
{
	uint32_t *hdp = played_symbol("standin_hdp");
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
	setenv("STANDIN_LACKS", "hdp", 1);
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_gpu_coherence(gpu, GPUNVME_COHERENCE_HDP), -EOPNOTSUPP);
	assert_int_equal(*hdp, 1);
	unsetenv("STANDIN_LACKS");
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

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_hdp), cmocka_unit_test(test_other_lanes) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
