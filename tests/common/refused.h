/* SPDX-License-Identifier: MIT */
/* Opening threads must fail so, and say why. */
#ifndef TESTS_COMMON_REFUSED_H
#define TESTS_COMMON_REFUSED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

static inline void gpu_refused(const char *spec, int ret, const char *message)
{
	struct gpunvme_gpu *gpu = NULL;

	assert_int_equal(gpunvme_gpu_open(spec, NULL, &gpu), ret);
	assert_null(gpu);
	if (!strstr(gpunvme_errmsg(), message))
		fail_msg("'%s' does not say '%s'", gpunvme_errmsg(), message);
}

#endif
