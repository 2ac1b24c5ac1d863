/* SPDX-License-Identifier: MIT */
/* GNV_PTX_FILE and GNV_STREAM_PTX_FILE are the files, or not defined where the build has no compiler for them. */
#include "gpu/kernels/ptx.h"

#include <stddef.h>

#if defined(GNV_PTX_FILE)
#define EMBED(name, file)                                                                                                          \
	extern const char name[];                                                                                                  \
	__asm__(".pushsection .rodata\n\t.globl " #name "\n\t.hidden " #name "\n" #name ":\n\t.incbin \"" file                  \
		"\"\n\t.byte 0\n\t.popsection\n")
EMBED(gnv_ptx_text, GNV_PTX_FILE);
EMBED(gnv_stream_ptx_text, GNV_STREAM_PTX_FILE);

const char *gnv_ptx(void)
{
	return gnv_ptx_text;
}

const char *gnv_stream_ptx(void)
{
	return gnv_stream_ptx_text;
}
#else
const char *gnv_ptx(void)
{
	return NULL;
}

const char *gnv_stream_ptx(void)
{
	return NULL;
}
#endif
