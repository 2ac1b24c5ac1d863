/* SPDX-License-Identifier: MIT */
/* The arrays of C++, for kernels in C: what is at an index, and `n` from there on; or a change there, and of `n` after it. Each
   returns what error() of a new array returns. */
#ifndef TESTS_SOFT_ARRAYS_H
#define TESTS_SOFT_ARRAYS_H

#include <gpunvme/dq.h>

#ifdef __cplusplus
extern "C" {
#endif

int arrays_of_namespace(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
			uint64_t *to, uint64_t *size);
int arrays_of_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint32_t *value,
		   uint32_t *to, uint64_t *size);
int arrays_of_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
		     uint64_t *to, uint64_t *size);
int arrays_prefetched(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
		 uint64_t *to, uint64_t *size);
int arrays_prefetched_of_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t *value,
			 uint64_t *to, uint64_t *size);
int arrays_prefetched_of_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n,
			   uint64_t *value, uint64_t *to, uint64_t *size);
int arrays_change(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t value,
		  const uint64_t *from);
int arrays_change_file(const struct gpunvme_dq *dq, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t value,
		       const uint64_t *from);
int arrays_change_volume(const struct gpunvme_dvol *v, const struct gpunvme_dpages *pages, uint64_t index, uint64_t n, uint64_t value,
			 const uint64_t *from);

#ifdef __cplusplus
}
#endif

#endif
