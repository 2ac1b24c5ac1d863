/* SPDX-License-Identifier: MIT */
/* The library's kernels as PTX, the text that the driver of an NVIDIA GPU compiles; embedded when the library was built. */
#ifndef GNV_GPU_KERNELS_PTX_H
#define GNV_GPU_KERNELS_PTX_H

/* Text that ends with NUL; NULL in a build without (embed.cmake says when). */
const char *gnv_ptx(void);

#endif
