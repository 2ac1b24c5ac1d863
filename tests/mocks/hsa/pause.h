/* SPDX-License-Identifier: MIT */
/* Lanes that stand still. */
#ifndef TESTS_MOCKS_HSA_PAUSE_H
#define TESTS_MOCKS_HSA_PAUSE_H

#include "runtime.h"

/*
 * All lanes stand still for so long, and those that begin meanwhile with them; their clock goes on. So the kernel stops all queues of a
 * process while it moves pages that a GPU maps, for 1 ms at least after an MMU notifier (Linux kfd_svm.c, svm_range_evict;
 * amdgpu_amdkfd_gpuvm.c, amdgpu_amdkfd_evict_userptr), for 100 ms at least after TTM has (PROCESS_RESTORE_TIME_MS), and as long as
 * restoring fails. Return: how many were stopped.
 */
MOCK_API unsigned mock_evict(unsigned ms);
void mock_pauses(bool begin); /* MOCK_PAUSES */

/* This thread is a lane from now on, or not any more. */
void mock_lane(bool begins);

#endif
