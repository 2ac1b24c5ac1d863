/* SPDX-License-Identifier: MIT */
/*
 * Empty the GPU's caches of a virtual memory through its registers, as its driver does when page tables change. If threads then see
 * data that they did not see before, a cache held old lines, and the memory is mapped cached.
 */
#ifndef GNV_GPU_INVALIDATE_H
#define GNV_GPU_INVALIDATE_H

/*
 * gnv_gpu_invalidate_at() - heavy-weight flush of every address space that computes, RDNA3 only
 * @sys, @debug: roots, "/sys" and "/sys/kernel/debug" except in tests
 * Return: 0; -EOPNOTSUPP another GPU; -ENOENT, -EACCES as gnv_amdregs_open(); -ETIMEDOUT the GPU did not confirm; -EIO.
 */
int gnv_gpu_invalidate_at(const char *sys, const char *debug, const char *bdf);

#endif
