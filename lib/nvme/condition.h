/* SPDX-License-Identifier: MIT */
/* What state a drive is in, where that stands in the way of using it. */
#ifndef GNV_NVME_CONDITION_H
#define GNV_NVME_CONDITION_H

/* What a status of a read or write says about the drive, "reason; remedy"; NULL: nothing. */
const char *gnv_condition_of(int status);

#endif
