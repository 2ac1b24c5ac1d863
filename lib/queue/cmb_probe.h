/* SPDX-License-Identifier: MIT */
/* The placement of queues in the drive: before or after the same in other memory, as reads take less or more time. */
#ifndef GNV_QUEUE_CMB_PROBE_H
#define GNV_QUEUE_CMB_PROBE_H

#include "queue/qp.h"

/*
 * gnv_cmb_probe_compare() - time reads of one block by two new queues of the same threads, in turn
 * @slower: set to true where reads of @other take clearly less time
 * Never writes media. Return: 0. Negative, with an error message: they were not compared, and either may have ended.
 */
int gnv_cmb_probe_compare(struct gnv_qp *qp, struct gnv_qp *other, bool *slower);

#endif
