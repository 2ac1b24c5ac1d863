/* SPDX-License-Identifier: MIT */
/*
 * A namespace that two controllers share is one medium: the kernel may have it mounted by the other one. Binding asks sysfs about
 * that (os/linux/drive.h). A drive that is bound already is asked itself when it is opened, and the disk is held until the drive is
 * closed.
 */
#ifndef GNV_NVME_MULTIPATH_H
#define GNV_NVME_MULTIPATH_H

#include "nvme/nvme.h"

/* Return: 0; -EBUSY a namespace is in use elsewhere; errors of the controller. gnv_fail() has the error message. */
int gnv_multipath_hold(struct gnv_nvme *nvme);

#endif
