/* SPDX-License-Identifier: MIT */
/*
 * NVIDIA GPUs. Rings and data are host memory that is pinned and mapped to the GPU, the state of queues is the GPU's own.
 * Memory of the GPU has no address for controllers on the bus: that takes a driver that exports it and an IOMMU that takes it. A
 * controller in software copies data to and from it, and a drive that runs on such a GPU accesses it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "gpu/kernels/code_object.h"
#include "gpu/kernels/kernels.h"
#include "gpu/kernels/ptx.h"
#include "os/linux/sys.h"
#include "os/nvidia/cuda.h"
#include "util/bits.h"

#define TICKS_PER_MS 1000000u /* the threads read %globaltimer, in nanoseconds */
#define WARP 32u

static struct gnv_cuda *cuda_of(struct gpunvme_gpu *gpu)
{
	return gpu->priv;
}

static int parse_index(const char *rest, unsigned *index)
{
	unsigned long value;
	char *end;

	if (!rest || *rest < '0' || *rest > '9')
		return gnv_fail(-EINVAL, "gpu 'cuda:%s': a number must follow, as in 'cuda:0'", rest ? rest : "");
	errno = 0;
	value = strtoul(rest, &end, 10);
	if (*end || errno || value > 1023)
		return gnv_fail(-EINVAL, "gpu 'cuda:%s': '%s' is not the number of a GPU", rest, rest);
	*index = (unsigned)value;
	return 0;
}

static int load(struct gnv_cuda *cuda, const char *ptx, unsigned first, unsigned count)
{
	const struct gnv_cuda_code code = { ptx, gnv_kernel_names, first, count };

	return gnv_cuda_load(cuda, &code);
}

static int cuda_open(struct gpunvme_gpu *gpu, const char *rest)
{
	struct gnv_cuda *cuda = NULL;
	unsigned index = 0;
	int ret = parse_index(rest, &index);

	if (!ret && !gnv_ptx())
		ret = gnv_fail(-EOPNOTSUPP, "this build of the library has no code for NVIDIA GPUs: it was built without clang 19. "
					    "Install it and build again");
	if (!ret)
		ret = gnv_cuda_open(index, &cuda);
	if (ret)
		return ret;
	ret = load(cuda, gnv_ptx(), 0, GNV_KERNELS_AT_OPEN);
	if (ret) {
		gnv_cuda_close(cuda);
		return ret;
	}
	gpu->priv = cuda;
	gpu->own_memory = true;
	gpu->info.kind = GPUNVME_GPU_CUDA;
	gpu->info.width = WARP;
	gpu->info.ticks_per_ms = TICKS_PER_MS;
	snprintf(gpu->info.name, sizeof(gpu->info.name), "%s", gnv_cuda_name(cuda));
	return 0;
}

static void cuda_close(struct gpunvme_gpu *gpu)
{
	if (gnv_cuda_close(cuda_of(gpu)))
		gnv_log(gnv_gpu_log(gpu), GPUNVME_LOG_ERROR, "%s: the library's code stays loaded until the process ends: %s", gpu->info.name,
			gpunvme_errmsg());
}

static int cuda_mem_alloc(struct gpunvme_gpu *gpu, uint32_t how, size_t len, struct gnv_gpu_bytes *bytes)
{
	int ret;

	if (how)
		return gnv_fail(-EOPNOTSUPP, "an NVIDIA GPU has one kind of memory. Use GPUNVME_MEM_VRAM in place of "
					     "GPUNVME_MEM_HIP and GPUNVME_MEM_DRM");
	len = gnv_align_up(len, gnv_sys_page_size());
	*bytes = (struct gnv_gpu_bytes){ .len = len, .page = gnv_sys_page_size(), .dmabuf = -1 };
	ret = gnv_cuda_alloc(cuda_of(gpu), len, &bytes->lane);
	return ret == -ENOMEM ? gnv_fail(ret, "%s has no %zu bytes of memory left", gpu->info.name, len) : ret;
}

static int cuda_mem_register(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gnv_gpu_bytes *bytes)
{
	uint64_t tag;
	bool mapped;
	const int ret = gnv_cuda_user_memory(cuda_of(gpu), ptr, len, &tag, &mapped);

	if (ret)
		return ret;
	*bytes = (struct gnv_gpu_bytes){
		.lane = (uintptr_t)ptr, .len = len, .page = gnv_sys_page_size(), .dmabuf = -1, .tag = tag, .tagged = mapped ? len : 0
	};
	return 0;
}

static void cuda_mem_free(struct gpunvme_gpu *gpu, struct gnv_gpu_bytes *bytes)
{
	if (!bytes->tag)
		gnv_cuda_free(cuda_of(gpu), bytes->lane);
}

static int cuda_mem_check(struct gpunvme_gpu *gpu, uint64_t lane, size_t len)
{
	return gnv_cuda_check(cuda_of(gpu), lane, len);
}

static int cuda_mem_reach(struct gpunvme_gpu *gpu, uint64_t lane, size_t len, bool *cached)
{
	*cached = false;
	return cuda_mem_check(gpu, lane, len);
}

/* CUDA does not report the end of memory, but each allocation has a number. */
static int cuda_mem_watch(struct gpunvme_gpu *gpu, const void *ptr, struct gnv_alloc *alloc)
{
	return gnv_cuda_allocation(cuda_of(gpu), ptr, alloc) ? 0 : -ENOENT;
}

static void cuda_mem_unwatch(struct gpunvme_gpu *gpu, struct gnv_alloc *alloc)
{
	(void)gpu;
	(void)alloc;
}

static bool cuda_mem_same(struct gpunvme_gpu *gpu, const void *ptr, const struct gnv_alloc *alloc)
{
	return (alloc->tagged ? gnv_cuda_tags(cuda_of(gpu), ptr, alloc->tagged) : gnv_cuda_tag(cuda_of(gpu), ptr)) == alloc->tag;
}

static int attach(struct gpunvme_gpu *gpu, void *cpu, size_t len, bool io, struct gnv_gpu_range *range)
{
	bool ours = false;
	int ret = gnv_cuda_register(cuda_of(gpu), cpu, len, io, &range->lane, &ours);

	range->cookie = ret || !ours ? NULL : cpu;
	return ret;
}

static int cuda_mem_stays(struct gpunvme_gpu *gpu, int dmabuf)
{
	(void)gpu;
	(void)dmabuf;
	return 0;
}

static int cuda_host_attach(struct gpunvme_gpu *gpu, void *cpu, size_t len, struct gnv_gpu_range *range)
{
	return attach(gpu, cpu, len, false, range);
}

/* Pages without struct page, as a BAR has, must be registered as registers. Ordinary memory in their place must not be. */
static int cuda_mmio_attach(struct gpunvme_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_gpu_range *range)
{
	int ret;

	if (!foreign->cpu)
		return gnv_fail(-EOPNOTSUPP, "CUDA maps only what the CPU has mapped, and it has no mapping of that memory");
	ret = attach(gpu, foreign->cpu, foreign->len, false, range);
	if (ret)
		ret = attach(gpu, foreign->cpu, foreign->len, true, range);
	return ret == -EIO ? -EOPNOTSUPP : ret;
}

static int cuda_detach(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	const int ret = range->cookie ? gnv_cuda_unregister(cuda_of(gpu), range->cookie) : 0;

	if (ret == -EAGAIN)
		gnv_cuda_detach(range->cookie);
	return ret;
}

/* The pages that the driver pinned of the CPU's mapping stay: nothing can be put in their place. */
static int cuda_mmio_fence_off(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, bool reset)
{
	(void)gpu;
	(void)range;
	(void)reset;
	return 0;
}

static void cuda_mmio_distrust(struct gpunvme_gpu *gpu, const struct gnv_gpu_range *range)
{
	(void)gpu; /* nothing that is attached here is doubtful */
	(void)range;
}

static int cuda_local_alloc(struct gpunvme_gpu *gpu, size_t len, struct gnv_gpu_range *range)
{
	return gnv_cuda_alloc(cuda_of(gpu), len, &range->lane);
}

static void cuda_local_free(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, size_t len)
{
	(void)len;
	gnv_cuda_free(cuda_of(gpu), range->lane);
}

static int cuda_peek(struct gpunvme_gpu *gpu, void *to, uint64_t lane, size_t len)
{
	return gnv_cuda_read(cuda_of(gpu), to, lane, len);
}

static int cuda_poke(struct gpunvme_gpu *gpu, uint64_t lane, const void *from, size_t len)
{
	return gnv_cuda_write(cuda_of(gpu), lane, from, len);
}

/* All groups have one size, so that there are exactly as many threads as asked for. */
static uint32_t group_of(uint32_t threads)
{
	uint32_t group = threads < GNV_KERNEL_GROUP ? threads : GNV_KERNEL_GROUP;

	while (threads % group)
		group--;
	return group;
}

static int cuda_launch(struct gpunvme_gpu *gpu, const struct gnv_launch *launch)
{
	uint32_t group;

	if (launch->kernel >= GNV_KERNELS_AT_OPEN || !launch->threads)
		return gnv_fail(-EINVAL, "no such kernel, or no threads");
	group = group_of(launch->threads);
	const struct gnv_cuda_job job = { launch->kernel,     launch->args,    launch->threads / group, group,
					  launch->timeout_ms, launch->gets_on, launch->ctx };

	return gnv_cuda_launch(cuda_of(gpu), &job);
}

static int cuda_enqueue(struct gpunvme_gpu *gpu, void *stream, const struct gnv_launch *launch)
{
	/* Blocks of one warp: they fit on multiprocessors that kernels of the program use. */
	const struct gnv_cuda_job job = { launch->kernel, launch->args, launch->threads / WARP, WARP, 0, NULL, NULL };
	const int ret = load(cuda_of(gpu), gnv_stream_ptx(), GNV_KERNELS_AT_OPEN, GNV_KERNELS - GNV_KERNELS_AT_OPEN);

	return ret ? ret : gnv_cuda_enqueue(cuda_of(gpu), stream, &job);
}

/* Devices, too, access memory of the GPU through its L2. It keeps memory of the host in no cache beyond a kernel. */
static int cuda_fence(struct gpunvme_gpu *gpu)
{
	(void)gpu;
	return 0;
}

static int cuda_coherence(struct gpunvme_gpu *gpu, enum gpunvme_coherence what)
{
	(void)gpu;
	(void)what;
	return gnv_fail(-EOPNOTSUPP, "an NVIDIA GPU needs neither. Name an AMD GPU, as in hsa:0");
}

const struct gnv_gpu_ops gnv_gpu_cuda_ops = {
	.name = "cuda",
	.open = cuda_open,
	.close = cuda_close,
	.mem_alloc = cuda_mem_alloc,
	.mem_register = cuda_mem_register,
	.mem_free = cuda_mem_free,
	.mem_check = cuda_mem_check,
	.mem_reach = cuda_mem_reach,
	.mem_watch = cuda_mem_watch,
	.mem_unwatch = cuda_mem_unwatch,
	.mem_same = cuda_mem_same,
	.mem_stays = cuda_mem_stays,
	.host_attach = cuda_host_attach,
	.host_detach = cuda_detach,
	.mmio_attach = cuda_mmio_attach,
	.mmio_detach = cuda_detach,
	.mmio_fence_off = cuda_mmio_fence_off,
	.mmio_distrust = cuda_mmio_distrust,
	.local_alloc = cuda_local_alloc,
	.local_free = cuda_local_free,
	.peek = cuda_peek,
	.poke = cuda_poke,
	.launch = cuda_launch,
	.enqueue = cuda_enqueue,
	.fence = cuda_fence,
	.coherence = cuda_coherence,
};
