/* SPDX-License-Identifier: MIT */
/*
 * The library's kernels as machine code for AMD GPUs, embedded when the library was built (kernels/CMakeLists.txt). Code objects of
 * version 4, which every ROCm from 4.1 on loads, come first. Generic ones of version 6 follow, for the rest of each family,
 * which need a ROCm that loads those (hsa-runtime's registry of ISAs names them).
 */
#ifndef GNV_GPU_KERNELS_CODE_OBJECT_H
#define GNV_GPU_KERNELS_CODE_OBJECT_H

#include <stddef.h>

struct gnv_code_object {
	const char *gfx; /* as in "gfx1100" or "gfx11-generic", without features */
	const void *elf;
	size_t len;
};

/* Name of each kernel's symbol, by enum gnv_kernel. That of its descriptor ends in ".kd". */
extern const char *const gnv_kernel_names[];

/* gnv_code_object_at() - get a code object by its index. Return: 0; -ENOENT after the last. */
int gnv_code_object_at(unsigned index, struct gnv_code_object *object);

/*
 * gnv_code_object_find() - the code for one GPU: its own, else that of its family
 * @gfx:    name of the GPU, as in "gfx90a" or "amdgcn-amd-amdhsa--gfx90a:sramecc+:xnack-". Only the middle matters
 * @object: set on success. Constant memory of the library
 * Return: 0; -EOPNOTSUPP with a sentence that says which GPUs this build has code for and how to get others.
 */
int gnv_code_object_find(const char *gfx, struct gnv_code_object *object);

#endif
