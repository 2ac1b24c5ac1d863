/* SPDX-License-Identifier: MIT */
/* The kernel of a drive as PTX, which the driver of an NVIDIA GPU compiles when such a drive is opened. */
#ifndef GNV_VDRIVE_PTX_H
#define GNV_VDRIVE_PTX_H

/* Return: the PTX as a string; NULL: the build has none. */
const char *gnv_vd_ptx(void);

#endif
