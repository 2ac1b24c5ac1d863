/* SPDX-License-Identifier: MIT */
/*
 * Memory of the runtime whose end is awaited. The runtime calls on the thread that frees, after it has removed the memory from its
 * map and before it frees it (ROCr, Runtime::FreeMemory). So no other memory can have this address until all callbacks have
 * returned.
 *
 * To take a call back the runtime looks at address and function only, and takes back all that are alike
 * (Runtime::DeregisterReleaseNotifier). So each allocation is registered once, for all that wait for it.
 */
#include <errno.h>

#include "os/amd/hsa_table.h"
#include "util/bits.h"
#include "util/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects watched. Held while they are called */
static struct gnv_alloc *watched;

static bool is_watched(uintptr_t base)
{
	const struct gnv_alloc *alloc;

	for (alloc = watched; alloc && alloc->base != base; alloc = alloc->next)
		;
	return alloc;
}

static void tell(void *base, void *ctx)
{
	struct gnv_alloc **link = &watched, *alloc;

	(void)ctx;
	pthread_mutex_lock(&lock);
	while ((alloc = *link)) {
		if (alloc->base != (uintptr_t)base) {
			link = &alloc->next;
			continue;
		}
		*link = alloc->next;
		alloc->watched = false;
		alloc->freed(alloc);
	}
	pthread_mutex_unlock(&lock);
}

int gnv_hsa_watch(struct gnv_hsa *gpu, const void *ptr, struct gnv_alloc *alloc)
{
	hsa_amd_pointer_info_t info = { .size = sizeof(info) };
	hsa_status_t status = gpu->api.amd_pointer_info(ptr, &info, NULL, NULL, NULL);

	if (status != HSA_STATUS_SUCCESS || info.type != HSA_EXT_POINTER_TYPE_HSA)
		return -ENOENT;
	alloc->base = (uintptr_t)info.agentBaseAddress;
	alloc->len = gnv_align_up(info.sizeInBytes, GNV_HSA_PAGE);
	pthread_mutex_lock(&lock);
	if (!is_watched(alloc->base))
		status = gpu->api.amd_register_deallocation_callback(info.agentBaseAddress, tell, NULL);
	alloc->watched = status == HSA_STATUS_SUCCESS;
	if (alloc->watched) {
		alloc->next = watched;
		watched = alloc;
	}
	pthread_mutex_unlock(&lock);
	return alloc->watched ? 0 : -ENOENT;
}

void gnv_hsa_unwatch(struct gnv_hsa *gpu, struct gnv_alloc *alloc)
{
	struct gnv_alloc **link;

	pthread_mutex_lock(&lock);
	if (alloc->watched) {
		for (link = &watched; *link != alloc; link = &(*link)->next)
			;
		*link = alloc->next;
		alloc->watched = false;
		if (!is_watched(alloc->base)) /* refused while it is freed: then tell() finds no entry */
			gpu->api.amd_deregister_deallocation_callback((void *)alloc->base, tell);
	}
	pthread_mutex_unlock(&lock);
}
