/* SPDX-License-Identifier: MIT */
/* States of a drive that prevent its use. */
#ifndef GNV_NVME_CONDITION_H
#define GNV_NVME_CONDITION_H

/* The state of the drive by the status of a read or write, as "reason. Remedy". NULL: the status says nothing. */
const char *gnv_condition_of(int status);

#endif
