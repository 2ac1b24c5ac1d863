/* SPDX-License-Identifier: MIT */
/* The place of queues in the drive on the ladder: above or below the same in other memory, as reads take less or more. */
#ifndef GNV_QUEUE_CMB_PROBE_H
#define GNV_QUEUE_CMB_PROBE_H

#include "queue/qp.h"

/*
 * gnv_weigh() - time reads of one block, one by one, of two new queues with the same lanes, in turn
 * @slower: those of @other take clearly less
 * Never writes media. Return: 0; negative, with its sentence: they were not compared, and either may have ended.
 */
int gnv_weigh(struct gpunvme_qp *qp, struct gpunvme_qp *other, bool *slower);

#endif
