/* SPDX-License-Identifier: MIT */
/* GNV_VD_PTX_FILE is the file of the PTX. It is not defined if the build has no compiler for it. */
#include "vdrive/kernel/ptx.h"

#include <stddef.h>

#if defined(GNV_VD_PTX_FILE)
extern const char gnv_vd_ptx_text[];
__asm__(".pushsection .rodata\n\t.globl gnv_vd_ptx_text\n\t.hidden gnv_vd_ptx_text\ngnv_vd_ptx_text:\n\t.incbin \"" GNV_VD_PTX_FILE
	"\"\n\t.byte 0\n\t.popsection\n");

const char *gnv_vd_ptx(void)
{
	return gnv_vd_ptx_text;
}
#else
const char *gnv_vd_ptx(void)
{
	return NULL;
}
#endif
