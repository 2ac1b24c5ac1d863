/* SPDX-License-Identifier: MIT */
/*
 * A doorbell may be mapped in a way that can fault. A helper process stores to it before a kernel of this process does
 * (gpu/probe.h). The helper's kernel loads CAP and VS and rings one doorbell of a queue that has no other user. The library
 * compares CAP and VS with what the CPU reads. The result is one of: no route from the GPU to the registers, a lost store, a
 * fault, a hang.
 *
 * The helper's mapping begins at the first register, so it gets a DMA-BUF of its own. Kernels of this process get doorbells only.
 * The mapping ends before gnv_probe_run() returns, and so before any reset by this library: queues_lock is held during both.
 */
#ifndef GNV_QUEUE_PROBE_H
#define GNV_QUEUE_PROBE_H

#include "queue/ringtest.h"
#include "gpu/probe.h"

/*
 * gnv_probe_run() - let a helper process ring the doorbell of a queue
 * The queue has doubtful doorbells, exists on the controller, and is unused. Call it with queues_lock held.
 * The result is kept for each GPU and way while the device is open.
 * @test: zeroed. Afterwards as after gnv_ringtest_run()
 * @used: set to true if the queue has taken a command
 * Return: 0: the doorbell works, or there is no result, which is logged; -ENXIO: GPUs must not ring doorbells in this way, which is
 * logged; another negative errno: the queue must end, gnv_fail() has the error message.
 */
int gnv_probe_run(struct gnv_ringtest *test, struct gnv_qp *qp, bool *used);

#endif
