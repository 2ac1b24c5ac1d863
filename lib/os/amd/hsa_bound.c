/* SPDX-License-Identifier: MIT */
/*
 * Calls of the runtime that may never return. It copies and fills by kernels, which wait for free compute units without limit
 * (ROCr 6.4, GpuAgent::DmaCopy, DmaFill: BlitKernel), and it waits for a queue whose kernel faulted (AqlQueue's destructor). So a
 * thread makes them, and the caller waits for a limited time.
 * Invariant: host memory that such a call reads and writes is ours, and stays.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "os/amd/hsa_table.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/log.h"
#include "util/thread.h"

#define BOUNCE (64u << 10)
#define LINE 64u

static hsa_status_t run(struct gnv_hsa *gpu, const struct gnv_hsa_call *call)
{
	switch (call->what) {
	case GNV_HSA_COPY:
		return gpu->api.memory_copy(call->to, call->from, call->len);
	case GNV_HSA_FILL:
		return gpu->api.amd_memory_fill(call->to, 0, call->len / 4);
	default:
		return gpu->api.queue_destroy(gpu->queue);
	}
}

static void *bound_main(void *arg)
{
	struct gnv_hsa *gpu = arg;
	struct gnv_hsa_bound *bound = &gpu->bound;

	pthread_mutex_lock(&bound->lock);
	for (;;) {
		hsa_status_t status;

		while (!bound->begun && !bound->quit)
			pthread_cond_wait(&bound->changed, &bound->lock);
		if (bound->quit)
			break;
		pthread_mutex_unlock(&bound->lock);
		status = run(gpu, &bound->call);
		pthread_mutex_lock(&bound->lock);
		bound->status = status;
		bound->begun = false;
		if (bound->left)
			bound->busy = bound->left = false;
		pthread_cond_broadcast(&bound->changed);
	}
	pthread_mutex_unlock(&bound->lock);
	return NULL;
}

int gnv_hsa_bound_start(struct gnv_hsa *gpu)
{
	struct gnv_hsa_bound *bound = &gpu->bound;
	hsa_status_t status = gpu->api.amd_memory_pool_allocate(gpu->host, BOUNCE, 0, &bound->bounce);
	pthread_condattr_t attr;
	int ret;

	if (status == HSA_STATUS_SUCCESS) {
		status = gpu->api.amd_agents_allow_access(1, &gpu->agent, NULL, bound->bounce);
		if (status != HSA_STATUS_SUCCESS)
			gnv_hsa_pool_free(gpu, bound->bounce);
	}
	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, -ENOMEM, "no memory for copies");
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&bound->lock, NULL);
	pthread_cond_init(&bound->changed, &attr);
	pthread_condattr_destroy(&attr);
	bound->ms = GNV_HSA_BOUND_MS;
	ret = gnv_thread_start(&bound->thread, bound_main, gpu);
	if (!ret)
		return 0;
	gnv_hsa_pool_free(gpu, bound->bounce);
	return gnv_fail(ret, "no thread for copies: %s", strerror(-ret));
}

void gnv_hsa_bound_stop(struct gnv_hsa *gpu)
{
	struct gnv_hsa_bound *bound = &gpu->bound;

	pthread_mutex_lock(&bound->lock);
	bound->quit = true;
	pthread_cond_broadcast(&bound->changed);
	pthread_mutex_unlock(&bound->lock);
	pthread_join(bound->thread, NULL);
	gnv_hsa_pool_free(gpu, bound->bounce);
	pthread_cond_destroy(&bound->changed);
	pthread_mutex_destroy(&bound->lock);
}

static struct timespec in_ms(uint32_t ms)
{
	const uint64_t at = gnv_clock_ns() + ms * GNV_NS_PER_MS;

	return (struct timespec){ (time_t)(at / 1000000000u), (long)(at % 1000000000u) };
}

/* With the lock. Until `flag` falls, or the time is over. */
static bool falls(struct gnv_hsa_bound *bound, const bool *flag, const struct timespec *end)
{
	while (*flag && !pthread_cond_timedwait(&bound->changed, &bound->lock, end))
		;
	return !*flag;
}

static int take(struct gnv_hsa_bound *bound)
{
	const struct timespec end = in_ms(bound->ms);

	pthread_mutex_lock(&bound->lock);
	if (!bound->left && falls(bound, &bound->busy, &end)) {
		bound->busy = true;
		return 0;
	}
	pthread_mutex_unlock(&bound->lock);
	return -ETIMEDOUT;
}

static void give(struct gnv_hsa_bound *bound)
{
	bound->busy = false;
	pthread_cond_broadcast(&bound->changed);
	pthread_mutex_unlock(&bound->lock);
}

/* With the lock, which is given back where the call is left to itself. */
static int make(struct gnv_hsa *gpu, const struct gnv_hsa_call *call, uint32_t ms, hsa_status_t *status)
{
	struct gnv_hsa_bound *bound = &gpu->bound;
	const struct timespec end = in_ms(ms);

	bound->call = *call;
	bound->begun = true;
	pthread_cond_broadcast(&bound->changed);
	if (falls(bound, &bound->begun, &end)) {
		*status = bound->status;
		return 0;
	}
	bound->left = true;
	pthread_mutex_unlock(&bound->lock);
	return -ETIMEDOUT;
}

static int late(const struct gnv_hsa *gpu)
{
	return gnv_fail(-EIO,
			"GPU %s: the runtime did not copy within %u ms: other kernels leave no free compute unit for its copy kernel, or "
			"the GPU hangs. Leave some units free while kernels run",
			gpu->info.bdf, gpu->bound.ms);
}

bool gnv_hsa_bound_left(struct gnv_hsa *gpu)
{
	bool left;

	pthread_mutex_lock(&gpu->bound.lock);
	left = gpu->bound.left;
	pthread_mutex_unlock(&gpu->bound.lock);
	return left;
}

int gnv_hsa_bounded(struct gnv_hsa *gpu, const struct gnv_hsa_call *call, uint32_t ms, hsa_status_t *status)
{
	if (take(&gpu->bound)) {
		late(gpu);
		return -EBUSY;
	}
	if (make(gpu, call, ms, status))
		return late(gpu);
	give(&gpu->bound);
	return 0;
}

/* A piece through memory that the runtime knows: it would have to lock any other, for writing, and constants refuse that. */
static int copy_piece(struct gnv_hsa *gpu, char *host, uint64_t lane, size_t len, bool put)
{
	char *bounce = (char *)gpu->bound.bounce + lane % LINE; /* words stay aligned */
	void *at = (void *)(uintptr_t)lane;
	const struct gnv_hsa_call call = { GNV_HSA_COPY, put ? at : bounce, put ? bounce : at, len };
	hsa_status_t status = HSA_STATUS_SUCCESS;
	int ret = take(&gpu->bound);

	if (ret)
		return late(gpu);
	if (put)
		memcpy(bounce, host, len);
	if (make(gpu, &call, gpu->bound.ms, &status))
		return late(gpu);
	if (!put && status == HSA_STATUS_SUCCESS)
		memcpy(host, bounce, len);
	give(&gpu->bound);
	return status == HSA_STATUS_SUCCESS ? 0 : gnv_hsa_refused(gpu, status, -EIO, "its memory cannot be copied");
}

static int copy(struct gnv_hsa *gpu, char *host, uint64_t lane, size_t len, bool put)
{
	size_t n;
	int ret = gnv_hsa_usable(gpu);

	for (; len && !ret; len -= n, host += n, lane += n) {
		n = (size_t)gnv_min(len, BOUNCE - LINE);
		ret = copy_piece(gpu, host, lane, n, put);
	}
	return ret;
}

int gnv_hsa_peek(struct gnv_hsa *gpu, void *to, uint64_t lane, size_t len)
{
	return copy(gpu, to, lane, len, false);
}

int gnv_hsa_poke(struct gnv_hsa *gpu, uint64_t lane, const void *from, size_t len)
{
	return copy(gpu, (char *)(uintptr_t)from, lane, len, true);
}
