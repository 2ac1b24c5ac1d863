/* SPDX-License-Identifier: MIT */
/* Kernels of the library in streams of HIP, for programs that have such streams. */
#ifndef GNV_OS_AMD_HIP_MODULE_H
#define GNV_OS_AMD_HIP_MODULE_H

#include <stdint.h>

struct gnv_hip_module;

#define GNV_HIP_KERNELS_MAX 4u

/*
 * gnv_hip_module_open() - load a code object into HIP
 * @bdf:   of the GPU
 * @elf:   the code object for it, constant memory
 * @name:  of its kernels that will be launched, at most GNV_HIP_KERNELS_MAX
 * Return: 0; -ENODEV, as gnv_hip_device(); -EOPNOTSUPP HIP is older than 6, lacks a function or cannot use the code; -ENOMEM; -EIO.
 * gnv_fail() has the message.
 */
int gnv_hip_module_open(const char *bdf, const void *elf, const char *const *name, unsigned count, struct gnv_hip_module **module);

/* No kernel of it runs any more. */
void gnv_hip_module_close(struct gnv_hip_module *module);

/*
 * gnv_hip_module_enqueue() - enqueue a kernel on a stream, and return
 * @stream: a hipStream_t of this GPU. NULL and hipStreamLegacy: its default stream. hipStreamPerThread: this thread's
 * @kernel: index of its name
 * @args:   copied
 * The GPU that the thread has chosen (hipSetDevice()) stays chosen. Any thread may call it.
 * Return: 0; -EXDEV the stream belongs to another GPU; -ENOMEM; -EIO. gnv_fail() has the message.
 */
int gnv_hip_module_enqueue(const struct gnv_hip_module *module, void *stream, unsigned kernel, uint32_t groups,
			   uint32_t group_lanes, const void *args);

#endif
