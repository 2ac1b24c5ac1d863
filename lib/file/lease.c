/* SPDX-License-Identifier: MIT */
/* Leases that their holder did not end. */
#include <errno.h>
#include <gpunvme/file.h>

#include "os/linux/lease.h"
#include "util/log.h"

GPUNVME_API int gpunvme_lease_remove(const char *path)
{
	return path ? gnv_os_unlease_left(path) : gnv_fail(-EINVAL, "gpunvme_lease_remove: path must not be NULL");
}
