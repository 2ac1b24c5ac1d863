/* SPDX-License-Identifier: MIT */
/* GNV_PTX_FILE is the file, or not defined where the build has no compiler for it. */
#include "gpu/kernels/ptx.h"

#include <stddef.h>

#if defined(GNV_PTX_FILE)
extern const char gnv_ptx_text[];
__asm__(".pushsection .rodata\n\t.globl gnv_ptx_text\n\t.hidden gnv_ptx_text\ngnv_ptx_text:\n\t.incbin \"" GNV_PTX_FILE
	"\"\n\t.byte 0\n\t.popsection\n");

const char *gnv_ptx(void)
{
	return gnv_ptx_text;
}
#else
const char *gnv_ptx(void)
{
	return NULL;
}
#endif
