/* SPDX-License-Identifier: MIT */
/*
 * AMD GPUs through ROCm's HSA runtime (libhsa-runtime64), loaded when the first GPU is opened.
 *
 * Compiled only where its headers are (GNV_WITH_HSA). One struct gnv_hsa is one GPU with one queue of packets. Any thread may call.
 * Functions return 0 or a negative errno with a message.
 */
#ifndef GNV_OS_AMD_HSA_H
#define GNV_OS_AMD_HSA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/alloc.h"
#include "util/mmio.h"

struct gnv_hsa;
struct gnv_hsa_locked;
struct gnv_hsa_kernel;

struct gnv_hsa_info {
	char isa[64];	     /* "amdgcn-amd-amdhsa--gfx1100" */
	char name[64];	     /* of the product */
	char bdf[16];	     /* PCI address */
	uint32_t node;	     /* KFD's */
	uint32_t width;	     /* threads of a wave */
	uint32_t units;	     /* compute units, or 0: unknown */
	uint64_t clock_hz;   /* of the clock that threads read */
	uint64_t vram;	     /* bytes of its largest pool */
	uint32_t version;    /* the minor one of AMD's extensions of HSA, as the runtime has them, or 0: unknown */
	bool uncached;	     /* the runtime knows uncached memory */
	bool data_pool;	     /* has memory in which running threads see stores of others */
	uint32_t GNV_MMIO *hdp_flush; /* register that makes the CPU's writes to VRAM visible, mapped, or NULL */
};

/*
 * gnv_hsa_open() - take a GPU
 * @which: an ordinal ("0") or a PCI address ("0000:03:00.0")
 * Return: 0; -ENODEV no runtime, no GPU, not this one; -EOPNOTSUPP the runtime is too old; -EINVAL; -ENOMEM, -EIO.
 */
int gnv_hsa_open(const char *which, struct gnv_hsa **gpu);
/* Nothing of it is in use. After a fault, or where its queue does not end, all of it stays until the process ends. */
void gnv_hsa_close(struct gnv_hsa *gpu);
const struct gnv_hsa_info *gnv_hsa_info(const struct gnv_hsa *gpu);
/* Can its waves write back and empty the L2, which cached memory needs? Those of gfx90a, gfx94x, gfx95x and gfx12. */
bool gnv_hsa_writes_back(const struct gnv_hsa *gpu);

/*
 * gnv_hsa_alloc() - allocate zeroed memory of the GPU
 * @data: running threads see stores of others in it (uncached or fine-grained). Otherwise it is cached
 * @cpu:  set to whether the CPU reaches it at the same address
 * Return: 0; -EOPNOTSUPP the GPU has no such memory; -ENOMEM.
 */
int gnv_hsa_alloc(struct gnv_hsa *gpu, size_t len, bool data, void **ptr, bool *cpu);
void gnv_hsa_free(struct gnv_hsa *gpu, void *ptr);
/* The cache behaviour of such memory, or of any memory of the runtime, as it reports it: "uncached", "fine-grained", ... */
const char *gnv_hsa_kind(struct gnv_hsa *gpu, const void *ptr);

/*
 * gnv_hsa_host_alloc() - allocate host memory that copies by HIP do not make cached: the runtime's own, which it never locks again
 * It is zeroed, and visible to the threads once it is locked by gnv_hsa_lock().
 * Return: 0; -ENOMEM; -EIO; -EOPNOTSUPP no device could have its pages.
 */
int gnv_hsa_host_alloc(struct gnv_hsa *gpu, size_t len, void **ptr);
void gnv_hsa_host_free(struct gnv_hsa *gpu, void *ptr);

/*
 * gnv_hsa_export() - a DMA-BUF of part of such memory, as seen over PCIe
 * Return: 0; -EOPNOTSUPP the runtime or the kernel cannot. The descriptor is given back by gnv_hsa_export_close().
 */
int gnv_hsa_export(struct gnv_hsa *gpu, void *ptr, size_t len, int *fd, uint64_t *offset);
void gnv_hsa_export_close(struct gnv_hsa *gpu, int fd);

/*
 * Make host memory, in whole pages, visible to the threads of every GPU of the runtime, uncached. Call it once for each GPU, with
 * the same address and length. @locked: NULL: it is the runtime's own (hipHostMalloc), is not unlocked, and stays visible until its
 * owner frees it. Return: 0; -ENOMEM, -EIO, -ERANGE; -EOPNOTSUPP it is not coherent.
 */
int gnv_hsa_lock(struct gnv_hsa *gpu, void *cpu, size_t len, uint64_t *lane, struct gnv_hsa_locked **locked);
void gnv_hsa_unlock(struct gnv_hsa *gpu, struct gnv_hsa_locked *locked);

/*
 * gnv_hsa_renew() - make locked memory uncached again, as it was when it was locked
 * Locking the same pages as coarse-grained, as HIP's copies do, makes them cached, and unlocking leaves them so.
 * @only: which, or NULL: all of this GPU. Return: 0; -ENOMEM, -EIO.
 */
int gnv_hsa_renew(struct gnv_hsa *gpu, const struct gnv_hsa_locked *only);

/* Import memory of another driver by its DMA-BUF. Return: 0; -EOPNOTSUPP the runtime takes only what amdgpu exported; -EIO. */
int gnv_hsa_import(struct gnv_hsa *gpu, int fd, size_t len, uint64_t *lane);
int gnv_hsa_unimport(struct gnv_hsa *gpu, uint64_t lane); /* Return: 0; -EBUSY it is still mapped */

/*
 * gnv_hsa_pointer() - find the owner and the addresses of memory
 * @cpu: the CPU's address, or NULL. @lane: the threads' address. @cached: running threads may see old lines of it
 * Return: 0 this GPU's; -ENOENT the host's; -EXDEV another GPU's; -ERANGE it leaves its allocation; -EOPNOTSUPP of
 * another driver's or process's, or of hipMemMap().
 */
int gnv_hsa_pointer(struct gnv_hsa *gpu, void *ptr, size_t len, void **cpu, uint64_t *lane, bool *cached);

/*
 * gnv_hsa_reach() - whether waves of this GPU can access memory of the runtime, or memory that it has locked
 * @lane: address for the waves. @cached: of a kernel in a stream, as of mem_reach (gpu/gpu.h)
 * Return: 0; -ENOENT the runtime does not know it; -EXDEV another GPU's, or the host's that this GPU was not given; -ERANGE.
 */
int gnv_hsa_reach(struct gnv_hsa *gpu, uint64_t lane, size_t len, bool *cached);

/*
 * gnv_hsa_watch() - call alloc->freed, which is set, when the allocation of an address is freed
 * gnv_hsa_unwatch() - stop that. After it returns, alloc->freed is not running, and will not be called
 * alloc->freed must not wait for either of them.
 * Return: 0; -ENOENT it is not the runtime's.
 */
int gnv_hsa_watch(struct gnv_hsa *gpu, const void *ptr, struct gnv_alloc *alloc);
void gnv_hsa_unwatch(struct gnv_hsa *gpu, struct gnv_alloc *alloc);

/*
 * Copy from and to the GPU's memory. Aligned words of 4 and 8 bytes are copied whole. `from` may be constant.
 * Return: 0; -EIO, also if the copy takes longer than 10 s, for example while kernels fill the GPU.
 */
int gnv_hsa_peek(struct gnv_hsa *gpu, void *to, uint64_t lane, size_t len);
int gnv_hsa_poke(struct gnv_hsa *gpu, uint64_t lane, const void *from, size_t len);

/*
 * gnv_hsa_fence() - run an empty packet with acquire and release of system scope
 * Stores of waves that have ended go to memory, and the GPU's caches are invalidated. It needs no compute unit, and waits for a
 * kernel of gnv_hsa_run(). Return: 0; -ETIMEDOUT, -EIO as gnv_hsa_run().
 */
int gnv_hsa_fence(struct gnv_hsa *gpu);

/* Load a code object for this GPU. Call it once. The object must stay in memory. Return: 0, -EOPNOTSUPP. */
int gnv_hsa_load(struct gnv_hsa *gpu, const void *elf, size_t len);

/* One run of a kernel. */
struct gnv_hsa_job {
	const char *name; /* its symbol, with .kd */
	const void *args;
	size_t args_len;
	uint32_t threads;
	uint32_t group; /* threads of a work-group */
	uint32_t timeout_ms;
	bool (*gets_on)(void *ctx); /* called after that time: may it run as long again? NULL: no */
	void *ctx;
};

/*
 * gnv_hsa_run() - make locked memory uncached again, as gnv_hsa_renew(), run a kernel and wait
 * Return: 0; -ETIMEDOUT it did not end in time: from now on every run returns -EIO; -ENOENT no such kernel; -EINVAL the arguments
 * do not fit; -EIO the GPU reported an error; errors of gnv_hsa_renew(). After a memory fault or a reset nothing of this process
 * runs on the GPU any more, and all calls that need the GPU return -EIO.
 */
int gnv_hsa_run(struct gnv_hsa *gpu, const struct gnv_hsa_job *job);

/*
 * gnv_hsa_begin() - enqueue a kernel after all that is in the queue, and return. Its arguments are those of the first call. Locked
 * memory stays as it is. The rest is as in gnv_hsa_run(), which this handle must not be used for then.
 * @job: its time-out is not used
 * gnv_hsa_drain() - wait until all that is in the queue has ended
 * Return: 0; -ETIMEDOUT not within @ms: it may be called again; -EIO
 */
int gnv_hsa_begin(struct gnv_hsa *gpu, const struct gnv_hsa_job *job);
int gnv_hsa_drain(struct gnv_hsa *gpu, uint32_t ms);

/*
 * Return: 0; -EIO, with its message: the GPU cannot be used, because it has faulted, or because a kernel never ended, which is the
 * only sign of a second fault in a process.
 */
int gnv_hsa_usable(const struct gnv_hsa *gpu);

#endif
