/* SPDX-License-Identifier: MIT */
/* What several queues have done. Needs cmocka.h and what that needs. */
#ifndef TESTS_QUEUES_H
#define TESTS_QUEUES_H

#include <gpunvme/gpunvme.h>

/* Commands that threads gave to them so far. */
static inline uint64_t submitted(struct gpunvme_queue *const *qp, unsigned queues)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < queues; i++) {
		assert_int_equal(gpunvme_queue_get_info(qp[i], &info), 0);
		sum += info.submitted;
	}
	return sum;
}

#endif
