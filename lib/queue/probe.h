/* SPDX-License-Identifier: MIT */
/*
 * Before a kernel of this process stores to a doorbell that is mapped in a way that may fault, a helper process does
 * (gpu/probe.h). Its kernel loads CAP and VS, which are compared with what the CPU reads, and rings one doorbell of a queue that
 * has no other user. So these are told apart: no route from the GPU to the registers, a store that is lost, a fault, a program
 * that hangs.
 *
 * The mapping of the program begins at the first register, so a DMA-BUF is made for it alone; kernels of this process get doorbells
 * only. It is gone before gnv_probe_run() returns, so before any reset that this library makes: queues_lock is held over both.
 */
#ifndef GNV_QUEUE_PROBE_H
#define GNV_QUEUE_PROBE_H

#include "queue/ringtest.h"
#include "gpu/probe.h"

/*
 * gnv_probe_run() - on a queue with doubtful doorbells that exists on the controller and that nobody has used; under queues_lock
 * What was found out is kept for as long as the device is open, for each GPU and way.
 * @test: zeroed; afterwards as after gnv_ringtest_run()
 * @used: set to whether the queue has moved on
 * Return: 0 it works, or nothing was found out, which the log says; -ENXIO doorbells of this way are not to be rung, which the log
 * says, too; another negative errno ends the queue, gnv_fail() has the sentence.
 */
int gnv_probe_run(struct gnv_ringtest *test, struct gpunvme_qp *qp, bool *used);

#endif
