/* SPDX-License-Identifier: MIT */
#include "fault.h"

#include "pause.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096u

static _Thread_local struct mock_guard *guarded;
static struct sigaction before;

static struct {
	hsa_amd_system_event_callback_t call;
	void *data;
} handler[8];
static unsigned handlers, dead, told; /* atomic */

void mock_guard_note(struct mock_guard *guard, uint64_t address)
{
	uint64_t none = 0;

	if (!__atomic_compare_exchange_n(&guard->address, &none, address & ~(uint64_t)(PAGE - 1), false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return;
	__atomic_store_n(guard->stop, 1, __ATOMIC_RELAXED);
	sem_post(guard->news);
}

static bool put_zeros(char *page)
{
	return !mprotect(page, PAGE, PROT_READ | PROT_WRITE) ||
	       mmap(page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page;
}

static void caught(int signal, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	int err = errno;

	(void)context;
	if (guarded && put_zeros((char *)(at & ~(uintptr_t)(PAGE - 1))))
		mock_guard_note(guarded, at);
	else
		sigaction(signal, &before, NULL); /* and it comes again */
	errno = err;
}

/* Again for each launch: frameworks of tests have handlers of their own. */
void mock_guard(struct mock_guard *guard)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	const struct sigaction ours = { .sa_sigaction = caught, .sa_flags = SA_SIGINFO };
	struct sigaction now;

	guarded = guard;
	mock_lane(guard);
	pthread_mutex_lock(&lock);
	sigaction(SIGSEGV, NULL, &now);
	if (guard && now.sa_sigaction != caught) {
		before = now;
		sigaction(SIGSEGV, &ours, NULL);
	}
	pthread_mutex_unlock(&lock);
}

MOCK_API hsa_status_t hsa_amd_register_system_event_handler(hsa_amd_system_event_callback_t callback, void *data)
{
	unsigned n = __atomic_fetch_add(&handlers, 1, __ATOMIC_RELAXED);

	if (n >= sizeof(handler) / sizeof(handler[0]))
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	handler[n].call = callback;
	handler[n].data = data;
	return HSA_STATUS_SUCCESS;
}

static bool tell(const hsa_amd_event_t *event)
{
	bool taken = false;
	unsigned i;

	for (i = 0; i < sizeof(handler) / sizeof(handler[0]) && i < __atomic_load_n(&handlers, __ATOMIC_RELAXED); i++)
		taken |= handler[i].call && handler[i].call(event, handler[i].data) == HSA_STATUS_SUCCESS;
	return taken;
}

/*
 * The first of the process only: after it Runtime::VMFaultHandler (ROCr 6.4, runtime.cpp) returns false, and the thread that waits
 * for events removes it from its list. Where no handler takes the first, the runtime ends the process.
 */
void mock_fault(unsigned gpu, uint64_t address)
{
	const hsa_amd_event_t event = { .event_type = HSA_AMD_GPU_MEMORY_FAULT_EVENT,
					.memory_fault = { { AGENT_GPU + gpu }, address, HSA_AMD_MEMORY_FAULT_PAGE_NOT_PRESENT } };

	__atomic_fetch_or(&dead, 1u << gpu, __ATOMIC_RELAXED);
	if (__atomic_exchange_n(&told, 1, __ATOMIC_RELAXED) || tell(&event))
		return;
	fprintf(stderr, "mock: memory fault of GPU %u at %#llx, and no handler takes it\n", gpu, (unsigned long long)address);
	abort();
}

/* Runtime::HwExceptionHandler (ROCr 6.4): as with a fault. The driver has reset the GPU, and with it all of this process there. */
void mock_gpu_reset(unsigned gpu)
{
	const hsa_amd_event_t event = { .event_type = (hsa_amd_event_type_t)1, .memory_fault = { { AGENT_GPU + gpu }, 0, 0 } };

	__atomic_fetch_or(&dead, 1u << gpu, __ATOMIC_RELAXED);
	if (tell(&event))
		return;
	fprintf(stderr, "mock: GPU %u was reset, and no handler takes it\n", gpu);
	abort();
}

/*
 * The driver refuses to free memory: Runtime::FreeMemory (ROCr 6.4, runtime.cpp) tells of a memory error by the thread that frees, and
 * ends the process where no handler takes it.
 */
void mock_not_freed(unsigned gpu, uint64_t address)
{
	const hsa_amd_event_t event = { .event_type = (hsa_amd_event_type_t)2, .memory_fault = { { AGENT_GPU + gpu }, address, 1 } };

	if (tell(&event))
		return;
	fprintf(stderr, "mock: memory at %#llx is not freed, and no handler takes it\n", (unsigned long long)address);
	abort();
}

bool mock_is_dead(unsigned gpu)
{
	return __atomic_load_n(&dead, __ATOMIC_RELAXED) >> gpu & 1;
}

void mock_revive(void)
{
	__atomic_store_n(&handlers, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&dead, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&told, 0, __ATOMIC_RELAXED);
}
