/* SPDX-License-Identifier: MIT */
/*
 * A service for queues whose lanes submit and go away: it takes completions, so that nobody has to wait for them. For CPU lanes
 * it is a thread of the library; on a GPU it is one wave that calls gpunvme_poll_queue(), in a kernel of the program's own.
 */
#ifndef GPUNVME_SERVICE_H
#define GPUNVME_SERVICE_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_service;

/**
 * gpunvme_service_start() - take the completions of some queues
 * @gpu:     the lanes that the queues were created for
 * @dq:      a view of each queue; copied
 * @count:   how many, 1 to 1024
 * @service: set on success; the caller owns it and stops it before it destroys a queue
 *
 * Queues made with GPUNVME_QP_SERVED have lanes that leave completions to it; others may be served too. The thread rests longer the
 * less there is to do. It ends by itself when every queue has ended. Any thread may call it.
 * Return: 0; -EINVAL no queue, too many, a view that is none; -EPROTONOSUPPORT a view is of another version; -EOPNOTSUPP lanes of a
 * GPU: see above; -ENOMEM, -EAGAIN.
 */
GPUNVME_API int gpunvme_service_start(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t count,
				      struct gpunvme_service **service);

/**
 * gpunvme_service_stop() - end it and wait until it has
 * @service: or NULL
 */
GPUNVME_API void gpunvme_service_stop(struct gpunvme_service *service);

#ifdef __cplusplus
}
#endif
#endif
