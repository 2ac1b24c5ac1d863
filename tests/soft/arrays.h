/* SPDX-License-Identifier: MIT */
/* The arrays of C++ over files and volumes, for kernels in C. Each returns what error() of a new array answers. */
#ifndef TESTS_SOFT_ARRAYS_H
#define TESTS_SOFT_ARRAYS_H

#include <gpunvme/dq.h>

#ifdef __cplusplus
extern "C" {
#endif

int arrays_of_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint32_t *value,
		   uint32_t *to, uint64_t *size);
int arrays_of_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
		     uint64_t *to, uint64_t *size);

#ifdef __cplusplus
}
#endif

#endif
