/* SPDX-License-Identifier: MIT */
/*
 * Memory faults. The runtime reports one to the whole process, by handlers that cannot be removed, and ends the process if no
 * handler takes it. So there is one handler for all open GPUs. It takes a fault only while a kernel of the library runs on that
 * GPU. With another kernel the runtime's action is right. The same goes for a reset of the GPU, which is reported alike.
 *
 * The driver stops every queue of this process on that GPU, also later ones. Copies by the GPU would never end either. A GPU that
 * has faulted stays in the list when it is closed, so that a later open of it fails.
 *
 * The runtime also reports memory that the driver does not free, in the thread that frees it (Runtime::FreeMemory), and ends the
 * process unless a handler takes that. The handler takes it for the library's own memory: the memory is lost, and nothing else.
 *
 * Only the first fault of a process is reported (ROCr, Runtime::VMFaultHandler): it ends the watch for all GPUs.
 */
#include <errno.h>
#include <stdio.h>

#include "os/amd/hsa_table.h"
#include "util/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects gpus */
static struct gnv_hsa *gpus;
static _Thread_local bool freeing; /* memory of the library's */

static hsa_status_t handle(const hsa_amd_event_t *event, void *ctx)
{
	const bool reset = event->event_type == GNV_HSA_EVENT_RESET;
	bool ours = false;
	struct gnv_hsa *gpu;

	(void)ctx;
	if (event->event_type == GNV_HSA_EVENT_NOT_FREED)
		return freeing ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR;
	if (event->event_type != HSA_AMD_GPU_MEMORY_FAULT_EVENT && !reset)
		return HSA_STATUS_ERROR;
	pthread_mutex_lock(&lock);
	for (gpu = gpus; gpu; gpu = gpu->next) {
		if (gpu->agent.handle != event->memory_fault.agent.handle)
			continue;
		ours |= __atomic_load_n(&gpu->runs, __ATOMIC_ACQUIRE);
		if (!reset)
			__atomic_store_n(&gpu->fault_at, event->memory_fault.virtual_address, __ATOMIC_RELAXED);
		__atomic_store_n(&gpu->broken, reset ? GNV_HSA_WAS_RESET : (int)HSA_STATUS_ERROR_MEMORY_FAULT, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&lock);
	return ours ? HSA_STATUS_SUCCESS : HSA_STATUS_ERROR;
}

void gnv_hsa_pool_free(struct gnv_hsa *gpu, void *ptr)
{
	freeing = true;
	gpu->api.amd_memory_pool_free(ptr);
	freeing = false;
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
		gpu->broken = gnv_hsa_faulted(same, "") ? __atomic_load_n(&same->broken, __ATOMIC_RELAXED) : 0;
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
	int broken = __atomic_load_n(&gpu->broken, __ATOMIC_ACQUIRE);
	char where[40] = "memory";

	if (broken == GNV_HSA_WAS_RESET)
		return gnv_fail(-EIO,
				"GPU %s: its driver has reset it (dmesg says why), and %s with it. Restart the program, because nothing more "
				"of it runs on this GPU",
				gpu->info.bdf, kernel);
	if (broken != (int)HSA_STATUS_ERROR_MEMORY_FAULT)
		return 0;
	if (at)
		snprintf(where, sizeof(where), "memory at 0x%llx", (unsigned long long)at);
	return gnv_fail(-EIO,
			"GPU %s: %s accessed %s that is not mapped to the GPU (status 0x2b): it was freed or unmapped while in "
			"use, or it was never mapped to this GPU (memory of another GPU or process). Free memory after the kernels "
			"that use it, and restart the program, because the driver runs nothing more of it on this GPU",
			gpu->info.bdf, kernel, where);
}

int gnv_hsa_usable(const struct gnv_hsa *gpu)
{
	const int broken = __atomic_load_n(&gpu->broken, __ATOMIC_ACQUIRE);

	if (gnv_hsa_faulted(gpu, "an earlier kernel"))
		return -EIO;
	if (broken)
		return gnv_hsa_refused(gpu, (hsa_status_t)broken, -EIO, "an earlier kernel");
	if (!__atomic_load_n(&gpu->stuck, __ATOMIC_ACQUIRE))
		return 0;
	return gnv_fail(-EIO, "GPU %s: an earlier kernel or fence failed or never ended. Close the GPU and open it again", gpu->info.bdf);
}
