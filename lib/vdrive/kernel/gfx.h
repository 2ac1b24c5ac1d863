/* SPDX-License-Identifier: MIT */
/* The kernel of a drive as machine code for AMD GPUs, embedded when the library was built. Its symbol is gnv_vd_kernel.kd. */
#ifndef GNV_VDRIVE_GFX_H
#define GNV_VDRIVE_GFX_H

#include <stddef.h>

struct gnv_vd_gfx {
	const char *gfx; /* as in "gfx1100" */
	const void *elf;
	size_t len;
};

/*
 * Get the code for a GPU. @isa: its name, as in "gfx90a" or "amdgcn-amd-amdhsa--gfx90a:sramecc+". Return: 0; -EOPNOTSUPP with a
 * message that lists the GPUs of this build.
 */
int gnv_vd_gfx_find(const char *isa, struct gnv_vd_gfx *code);

#endif
