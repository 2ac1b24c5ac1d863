/* SPDX-License-Identifier: MIT */
/* Memory that a lane touches and its GPU does not have. */
#ifndef TESTS_MOCKS_HSA_FAULT_H
#define TESTS_MOCKS_HSA_FAULT_H

#include <semaphore.h>

#include "runtime.h"

/* A launch, for those of its threads that are lanes. */
struct mock_guard {
	sem_t *news;
	int *stop;	  /* set at a fault */
	uint64_t address; /* atomic; of the page of the first fault */
};

/*
 * This thread is a lane of that launch from now on; NULL: not any more. Where it touches what is not mapped there is a page of zeros
 * after it, so that it goes on to its end: threads that wait for each other cannot be taken away one by one.
 */
void mock_guard(struct mock_guard *guard);
void mock_guard_note(struct mock_guard *guard, uint64_t address); /* by any thread that notices; a signal handler may */

/*
 * The GPU reports a fault: to the handlers of the process, which ends if none takes it, as with ROCm. All queues of that GPU are dead.
 * Until the runtime is shut down; a real one stays so until the process ends.
 */
MOCK_API void mock_fault(unsigned gpu, uint64_t address);
MOCK_API void mock_gpu_reset(unsigned gpu); /* in the same way */
void mock_not_freed(unsigned gpu, uint64_t address); /* to the handlers, too; the GPU lives */
bool mock_is_dead(unsigned gpu);
void mock_revive(void); /* and forget the handlers */

#endif
