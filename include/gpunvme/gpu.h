/* SPDX-License-Identifier: MIT */
/*
 * Where the lanes run: the processor whose threads will submit and poll.
 *
 *   cpu[:WIDTH]  threads of this process, WIDTH (1, 4 or 32; default 1) to a wave
 *   hsa:N, hsa:BDF   an AMD GPU through ROCr
 *   cuda:N           an NVIDIA GPU
 *   auto             the first GPU that can be used, those of AMD before others; `cpu` where there is none, and the log says why.
 *                    The one nearest to a controller is found by gpunvme_gpu_nth() and gpunvme_pci_get_path().
 */
#ifndef GPUNVME_GPU_H
#define GPUNVME_GPU_H

#include <gpunvme/dev.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_gpu;

enum gpunvme_gpu_kind { GPUNVME_GPU_CPU = 1, GPUNVME_GPU_HSA = 2, GPUNVME_GPU_CUDA = 3 };

struct gpunvme_gpu_opts {
	size_t size;         /* sizeof(struct gpunvme_gpu_opts) */
	gpunvme_log_fn *log; /* NULL: silent */
	void *log_ctx;
};
#define GPUNVME_GPU_OPTS_INIT { sizeof(struct gpunvme_gpu_opts), NULL, NULL }

struct gpunvme_gpu_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_gpu_info) */
	uint32_t kind;         /* enum gpunvme_gpu_kind */
	uint32_t width;        /* lanes of one wave */
	uint32_t ticks_per_ms; /* of the clock that device code reads */
	char name[64];
	uint32_t reserved;
};

/**
 * gpunvme_gpu_open() - take the processor that runs the lanes
 * @spec: see above
 * @opts: NULL for the defaults; not kept
 * @gpu:  set on success; the caller owns it
 *
 * Any thread may call it.
 * Return: 0; -EINVAL bad spec; -ENODEV no such GPU, or no runtime; -EOPNOTSUPP this build or machine cannot use that kind; -EIO its
 * runtime refuses; -ENOMEM.
 */
GPUNVME_API int gpunvme_gpu_open(const char *spec, const struct gpunvme_gpu_opts *opts, struct gpunvme_gpu **gpu);

/**
 * gpunvme_gpu_close() - release it
 * @gpu: or NULL. Memory and queue pairs made for it must be gone; while they exist the object lives on internally.
 * Return: 0; -ECHILD.
 */
GPUNVME_API int gpunvme_gpu_close(struct gpunvme_gpu *gpu);

/**
 * gpunvme_gpu_get_info() - what it is
 * @gpu:  an open GPU
 * @info: filled; info->size must be set
 *
 * Any thread may call it. Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_gpu_get_info(const struct gpunvme_gpu *gpu, struct gpunvme_gpu_info *info);

struct gpunvme_gpu_entry {
	size_t size;                /* set by the caller to sizeof(struct gpunvme_gpu_entry) */
	uint32_t kind;              /* enum gpunvme_gpu_kind, not GPUNVME_GPU_CPU */
	uint32_t node;              /* of the kernel's compute driver (KFD); AMD only */
	char spec[24];              /* for gpunvme_gpu_open(); "" where the kernel does not list it, or only its runtime knows how */
	char address[16];           /* on the PCI bus, DDDD:BB:DD.F */
	char gfx[16];               /* "gfx1100"; "" unknown, or not AMD */
	char driver[32];            /* "amdgpu"; "" none */
	uint64_t vram;              /* bytes; 0 unknown */
	uint64_t visible;           /* of them, to other devices and the CPU; less than vram without a large BAR */
	uint32_t xgmi;              /* links to other GPUs in addition to PCIe */
	int32_t numa;               /* -1 unknown */
	uint16_t vendor;
	uint16_t device;
	uint8_t asleep;             /* runtime power management has suspended it; opening it wakes it */
	uint8_t has_code;           /* this build of the library has kernels for it */
	uint16_t reserved;
};

/**
 * gpunvme_gpu_nth() - the n-th GPU of this machine
 * @n:   0 for the first
 * @gpu: filled; gpu->size must be set
 *
 * First those that the kernel's compute driver lists, in its order, which is that of ROCm; then other AMD GPUs, then NVIDIA's. No
 * runtime is loaded and no GPU is opened or woken. gpunvme_pci_get_path() tells how far it is from a controller.
 * Any thread may call it. Return: 0; -ENOENT there are not so many; -EINVAL when gpu->size is too small.
 */
GPUNVME_API int gpunvme_gpu_nth(unsigned n, struct gpunvme_gpu_entry *gpu);

/**
 * gpunvme_gpu_fence() - write back and empty the caches of a GPU
 * @gpu: the lanes
 *
 * For memory that the GPU caches, as that of hipMalloc(), and for memory of the host that HIP has copied. Stores of kernels
 * that ended before the call are in memory after it, where a controller finds them. Kernels that begin after it load from
 * memory. A launch of HIP alone does neither. Call this between a kernel that stores and one that writes, and between a read
 * and a kernel that looks where another one looked before, unless hipStreamSynchronize() comes between. Memory of the host
 * that was registered, or is of GPUNVME_MEM_SHARED or _HUGE, becomes uncached again: a copy of HIP's from or to it may have
 * changed that.
 *
 * It does not wait for kernels of the program. It waits while the library runs a kernel of its own on @gpu. For `cpu` it orders the
 * accesses of this thread. For `cuda:N` there is nothing to do: devices and lanes meet in the GPU's L2. Any thread may call it.
 * Return: 0; -EINVAL; -ETIMEDOUT the GPU did not get to it within 10 s, and everything that needs @gpu fails with -EIO until it is
 * closed and opened again; -EIO it has failed; -ENOMEM.
 */
GPUNVME_API int gpunvme_gpu_fence(struct gpunvme_gpu *gpu);

#ifdef __cplusplus
}
#endif
#endif
