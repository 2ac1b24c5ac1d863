/* SPDX-License-Identifier: MIT */
/*
 * Memory faults. The runtime tells of one to the whole process, by handlers that cannot be taken back, and ends the process where
 * none takes it. So there is one handler for all GPUs that are open. It takes a fault only while a kernel of the library runs on
 * that GPU; with one of somebody else's what the runtime does is right.
 *
 * The driver stops every queue of this process on that GPU, and those that come later. Copies by the GPU would never end either.
 */
#include <errno.h>
#include <stdio.h>

#include "os/hsa_table.h"
#include "util/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects gpus */
static struct gnv_hsa *gpus;

static hsa_status_t handle(const hsa_amd_event_t *event, void *ctx)
{
	bool ours = false;
	struct gnv_hsa *gpu;

	(void)ctx;
	if (event->event_type != HSA_AMD_GPU_MEMORY_FAULT_EVENT)
		return HSA_STATUS_ERROR;
	pthread_mutex_lock(&lock);
	for (gpu = gpus; gpu; gpu = gpu->next) {
		if (gpu->agent.handle != event->memory_fault.agent.handle)
			continue;
		ours |= __atomic_load_n(&gpu->runs, __ATOMIC_ACQUIRE);
		__atomic_store_n(&gpu->fault_at, event->memory_fault.virtual_address, __ATOMIC_RELAXED);
		__atomic_store_n(&gpu->broken, (int)HSA_STATUS_ERROR_MEMORY_FAULT, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return ours ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR;
}

void gnv_hsa_fault_watch(struct gnv_hsa *gpu)
{
	struct gnv_hsa *same;

	pthread_mutex_lock(&lock);
	if (!gpus) /* a runtime that lived on has the handler twice, which does no harm */
		gpu->api.amd_register_system_event_handler(handle, NULL);
	for (same = gpus; same && same->agent.handle != gpu->agent.handle; same = same->next)
		;
	if (same) {
		gpu->fault_at = __atomic_load_n(&same->fault_at, __ATOMIC_RELAXED);
		gpu->broken = gnv_hsa_faulted(same, "") ? (int)HSA_STATUS_ERROR_MEMORY_FAULT : 0;
	}
	gpu->next = gpus;
	gpus = gpu;
	pthread_mutex_unlock(&lock);
}

void gnv_hsa_fault_unwatch(struct gnv_hsa *gpu)
{
	struct gnv_hsa **link;

	pthread_mutex_lock(&lock);
	for (link = &gpus; *link != gpu; link = &(*link)->next)
		;
	*link = gpu->next;
	pthread_mutex_unlock(&lock);
}

int gnv_hsa_faulted(const struct gnv_hsa *gpu, const char *kernel)
{
	uint64_t at = __atomic_load_n(&gpu->fault_at, __ATOMIC_RELAXED);
	char where[40] = "memory";

	if (__atomic_load_n(&gpu->broken, __ATOMIC_ACQUIRE) != (int)HSA_STATUS_ERROR_MEMORY_FAULT)
		return 0;
	if (at)
		snprintf(where, sizeof(where), "memory at 0x%llx", (unsigned long long)at);
	return gnv_fail(-EIO,
			"GPU %s: %s touched %s that the GPU does not have (status 0x2b): it was freed or unmapped while in use, "
			"or is another's; free memory after the kernels that use it, and start the program anew, for the driver "
			"runs nothing more of it on this GPU",
			gpu->info.bdf, kernel, where);
}
