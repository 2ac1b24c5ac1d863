/* SPDX-License-Identifier: MIT */
/*
 * Callbacks of freed memory, as in ROCr (runtime.cpp, Runtime::RegisterReleaseNotifier, DeregisterReleaseNotifier, FreeMemory): any
 * address of an allocation will do, a second request gives a second call, and the removal covers all with that address and
 * function. They are called without a lock, after the allocation has left the map and before its memory is another's.
 */
#include <stdlib.h>

#include "freed.h"

struct notifier {
	struct notifier *next;
	void *ptr, *ctx;
	hsa_amd_deallocation_callback_t call;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects notifiers */
static struct notifier *notifiers;

MOCK_API hsa_status_t hsa_amd_register_deallocation_callback(void *ptr, hsa_amd_deallocation_callback_t call, void *ctx)
{
	struct notifier *n;

	MOCK_FAILS("amd_register_deallocation_callback");
	if (!ptr || !call)
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	if (!mock_find(ptr))
		return HSA_STATUS_ERROR_INVALID_ALLOCATION;
	n = malloc(sizeof(*n));
	if (!n)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	pthread_mutex_lock(&lock);
	*n = (struct notifier){ notifiers, ptr, ctx, call };
	notifiers = n;
	pthread_mutex_unlock(&lock);
	__atomic_fetch_add(&mock_counts.notifiers, 1, __ATOMIC_RELAXED);
	return HSA_STATUS_SUCCESS;
}

/* The first one in [from, from + len), out of the list; with @call only of that function. */
static struct notifier *take(const char *from, size_t len, hsa_amd_deallocation_callback_t call)
{
	struct notifier **link, *n;

	pthread_mutex_lock(&lock);
	for (link = &notifiers; (n = *link); link = &n->next)
		if ((const char *)n->ptr >= from && (const char *)n->ptr < from + len && (!call || n->call == call))
			break;
	if (n)
		*link = n->next;
	pthread_mutex_unlock(&lock);
	if (n)
		__atomic_fetch_sub(&mock_counts.notifiers, 1, __ATOMIC_RELAXED);
	return n;
}

MOCK_API hsa_status_t hsa_amd_deregister_deallocation_callback(void *ptr, hsa_amd_deallocation_callback_t call)
{
	hsa_status_t status = HSA_STATUS_ERROR_INVALID_ARGUMENT;
	struct notifier *n;

	if (!mock_find(ptr)) /* also where it is being freed */
		return status;
	while ((n = take(ptr, 1, call))) {
		free(n);
		status = HSA_STATUS_SUCCESS;
	}
	return status;
}

void mock_tell_freed(void *ptr, size_t len)
{
	struct notifier *n;

	while ((n = take(ptr, len, NULL))) {
		n->call(n->ptr, n->ctx);
		free(n);
	}
}
