/* SPDX-License-Identifier: MIT */
/*
 * A thread that is a lane and does nothing but drain.
 * Invariant: it reads views of its own and the stop word, nothing of the caller's.
 */
#include <gpunvme/device.h>
#include <gpunvme/queue.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "run/run.h"
#include "util/thread.h"
#include "util/process.h"

#define QUEUES_MAX 1024u

struct gpunvme_service {
	uint64_t process; /* whose thread it is (util/process.h) */
	pthread_t thread;
	uint32_t stop; /* atomic */
	uint32_t count;
	struct gpunvme_dq dq[];
};

static void *serve(void *arg)
{
	struct gpunvme_service *service = arg;

	gpunvme_poll_queue(service->dq, service->count, (uintptr_t)&service->stop);
	return NULL;
}

GPUNVME_API int gpunvme_service_start(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t count,
				      struct gpunvme_service **out)
{
	struct gpunvme_service *service;
	int ret;

	if (!gpu || !dq || !out || !count || count > QUEUES_MAX)
		return gnv_fail(-EINVAL, "gpunvme_service_start: gpu, dq and service must not be NULL, and 1 to %u queues served", QUEUES_MAX);
	if (gnv_foreign(gpu->process))
		return -ECHILD;
	if (gpu->info.kind != GPUNVME_GPU_CPU)
		return gnv_fail(-EOPNOTSUPP, "on %s a wave has to serve: call gpunvme_poll_queue() in a kernel", gpu->info.name);
	ret = gnv_run_check_views(dq, count);
	if (ret)
		return ret;
	service = calloc(1, sizeof(*service) + count * sizeof(*dq));
	if (!service)
		return gnv_fail(-ENOMEM, "out of memory");
	service->process = gnv_process();
	service->count = count;
	memcpy(service->dq, dq, count * sizeof(*dq));
	ret = gnv_thread_start(&service->thread, serve, service);
	if (ret) {
		free(service);
		return gnv_fail(ret, "no thread for the service; the limit of threads is reached (ulimit -u)");
	}
	*out = service;
	return 0;
}

GPUNVME_API int gpunvme_service_stop(struct gpunvme_service *service)
{
	if (!service)
		return 0;
	if (gnv_foreign(service->process))
		return -ECHILD;
	__atomic_store_n(&service->stop, 1, __ATOMIC_RELEASE);
	pthread_join(service->thread, NULL);
	free(service);
	return 0;
}
