/* SPDX-License-Identifier: MIT */
/* How deep a drive may sleep: `power` of the URI. */
#ifndef GNV_NVME_POWER_H
#define GNV_NVME_POWER_H

#include "nvme/nvme.h"

enum gnv_power {
	GNV_POWER_LEAVE,       /* as it is, but a drive that does not wake up from its deepest state is kept from it */
	GNV_POWER_PERFORMANCE, /* the first power state, and no other by itself */
};

/* NULL: leave. Return: 0; -EINVAL no such word. gnv_fail() has the error message. */
int gnv_power_parse(const char *word, enum gnv_power *power);

/*
 * gnv_power_apply() - set it, also for later resets
 * The log has the refusals of the drive. Return: 0; negative: errors of gnv_admin_run().
 */
int gnv_power_apply(struct gnv_nvme *nvme, enum gnv_power power);

/* Restore the settings that were found. A drive that does not respond loses them with its reset anyway. */
void gnv_power_restore(struct gnv_nvme *nvme);

#endif
