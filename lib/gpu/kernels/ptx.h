/* SPDX-License-Identifier: MIT */
/* The library's kernels as PTX, the text that the driver of an NVIDIA GPU compiles. Embedded when the library was built. */
#ifndef GNV_GPU_KERNELS_PTX_H
#define GNV_GPU_KERNELS_PTX_H

/*
 * gnv_ptx() - the first GNV_KERNELS_AT_OPEN of enum gnv_kernel
 * gnv_stream_ptx() - the rest, which moves transfers on streams
 * Return: text that ends with NUL; NULL in a build without (embed.cmake says when).
 */
const char *gnv_ptx(void);
const char *gnv_stream_ptx(void);

#endif
