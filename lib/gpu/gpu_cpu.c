/* SPDX-License-Identifier: MIT */
/*
 * Threads of this process in place of a GPU's: every address is a pointer, and a kernel is a call.
 * Invariant: words that threads change while the host copies them are only touched by atomics.
 */
#include <gpunvme/device.h>

#include <stdio.h>
#include <string.h>

#include "gpu/cpu_stream.h"
#include "gpu/gpu.h"
#include "os/linux/sys.h"
#include "util/bits.h"

#define TICKS_PER_MS 1000000u /* the threads read CLOCK_MONOTONIC in nanoseconds */

static int cpu_open(struct gpunvme_gpu *gpu, const char *rest)
{
	static const struct {
		const char *text;
		uint32_t width;
	} widths[] = { { "1", 1 }, { "4", 4 }, { "32", 32 } };
	size_t i;

	gpu->info.kind = GPUNVME_GPU_CPU;
	gpu->info.ticks_per_ms = TICKS_PER_MS;
	gpu->info.width = rest ? 0 : 1;
	for (i = 0; rest && i < GNV_ARRAY_LEN(widths); i++)
		if (!strcmp(rest, widths[i].text))
			gpu->info.width = widths[i].width;
	if (!gpu->info.width)
		return gnv_fail(-EINVAL, "gpu 'cpu:%s': the width must be 1, 4 or 32, as in 'cpu:4'", rest);
	snprintf(gpu->info.name, sizeof(gpu->info.name), "CPU threads, %u to a wave", gpu->info.width);
	return 0;
}

static void cpu_close(struct gpunvme_gpu *gpu)
{
	(void)gpu;
}

static int cpu_mem_alloc(struct gpunvme_gpu *gpu, uint32_t how, size_t len, struct gnv_gpu_bytes *bytes)
{
	(void)gpu;
	(void)how;
	(void)len;
	(void)bytes;
	return gnv_fail(-EOPNOTSUPP, "CPU threads have no memory of their own");
}

static int cpu_mem_register(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gnv_gpu_bytes *bytes)
{
	(void)gpu;
	(void)ptr;
	(void)len;
	(void)bytes;
	return -ENOENT;
}

static void cpu_mem_free(struct gpunvme_gpu *gpu, struct gnv_gpu_bytes *bytes)
{
	(void)gpu;
	(void)bytes;
}

/* All memory of the process is theirs. */
static int cpu_mem_check(struct gpunvme_gpu *gpu, uint64_t lane, size_t len)
{
	(void)gpu;
	(void)lane;
	(void)len;
	return 0;
}

static int cpu_mem_reach(struct gpunvme_gpu *gpu, uint64_t lane, size_t len, bool *cached)
{
	*cached = false;
	return cpu_mem_check(gpu, lane, len);
}

static int cpu_mem_watch(struct gpunvme_gpu *gpu, const void *ptr, struct gnv_alloc *alloc)
{
	(void)gpu;
	(void)ptr;
	(void)alloc;
	return -ENOENT;
}

static void cpu_mem_unwatch(struct gpunvme_gpu *gpu, struct gnv_alloc *alloc)
{
	(void)gpu;
	(void)alloc;
}

static bool cpu_mem_same(struct gpunvme_gpu *gpu, const void *ptr, const struct gnv_alloc *alloc)
{
	(void)gpu;
	(void)ptr;
	(void)alloc;
	return true;
}

static int cpu_mem_stays(struct gpunvme_gpu *gpu, int dmabuf)
{
	(void)gpu;
	(void)dmabuf;
	return 0;
}

static int cpu_host_attach(struct gpunvme_gpu *gpu, void *cpu, size_t len, struct gnv_gpu_range *range)
{
	(void)gpu;
	(void)len;
	range->lane = (uintptr_t)cpu;
	return 0;
}

static int cpu_mmio_attach(struct gpunvme_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_gpu_range *range)
{
	if (!foreign->cpu)
		return gnv_fail(-EOPNOTSUPP, "the CPU has no mapping of that memory, so its threads cannot reach it");
	return cpu_host_attach(gpu, foreign->cpu, foreign->len, range);
}

static int cpu_detach(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)gpu;
	(void)range;
	return 0;
}

/* The CPU's own mapping is replaced by its owner. */
static int cpu_mmio_fence_off(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, bool reset)
{
	(void)gpu;
	(void)range;
	(void)reset;
	return 0;
}

static void cpu_mmio_distrust(struct gpunvme_gpu *gpu, const struct gnv_gpu_range *range)
{
	(void)gpu;
	(void)range;
}

static size_t whole_pages(size_t len)
{
	return gnv_align_up(len, gnv_sys_page_size());
}

static int cpu_local_alloc(struct gpunvme_gpu *gpu, size_t len, struct gnv_gpu_range *range)
{
	void *ptr;

	(void)gpu;
	if (gnv_sys_map(whole_pages(len), 0, false, &ptr))
		return gnv_fail(-ENOMEM, "the system has no %zu bytes of memory for this process", len);
	range->lane = (uintptr_t)ptr;
	return 0;
}

static void cpu_local_free(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, size_t len)
{
	(void)gpu;
	gnv_sys_unmap((void *)(uintptr_t)range->lane, whole_pages(len));
}

/* One word or byte from an address to another, whole. */
#define COPY(type, to, from)                                                                                                       \
	__atomic_store_n((type *)(to), __atomic_load_n((const type *)(from), __ATOMIC_RELAXED), __ATOMIC_RELAXED)

static void copy(uintptr_t to, uintptr_t from, size_t len)
{
	size_t step;

	for (; len; to += step, from += step, len -= step) {
		step = (to | from) & 3 || len < 4 ? 1 : (to | from) & 7 || len < 8 ? 4 : 8;
		if (step == 8)
			COPY(uint64_t, to, from);
		else if (step == 4)
			COPY(uint32_t, to, from);
		else
			COPY(uint8_t, to, from);
	}
}

static int cpu_peek(struct gpunvme_gpu *gpu, void *to, uint64_t lane, size_t len)
{
	(void)gpu;
	copy((uintptr_t)to, (uintptr_t)lane, len);
	return 0;
}

static int cpu_poke(struct gpunvme_gpu *gpu, uint64_t lane, const void *from, size_t len)
{
	(void)gpu;
	copy((uintptr_t)lane, (uintptr_t)from, len);
	return 0;
}

static int cpu_launch(struct gpunvme_gpu *gpu, const struct gnv_launch *launch)
{
	union {
		uint64_t align;
		unsigned char bytes[GNV_CPU_ARGS_MAX];
	} args;

	if (launch->kernel >= GNV_KERNELS || launch->args_len > sizeof(args))
		return gnv_fail(-EINVAL, "no such kernel, or %zu bytes of arguments", launch->args_len);
	memcpy(args.bytes, launch->args, launch->args_len);
	if (launch->threads == 1)
		gnv_kernel_cpu[launch->kernel](args.bytes); /* the caller is the thread */
	else if (gpunvme_cpu_launch(launch->threads, gpu->info.width, gnv_kernel_cpu[launch->kernel], args.bytes))
		return gnv_fail(-ENOMEM, "cannot start %u threads", launch->threads);
	return 0;
}

static int cpu_enqueue(struct gpunvme_gpu *gpu, void *stream, const struct gnv_launch *launch)
{
	uint64_t args[GNV_CPU_ARGS_MAX / 8];

	if (stream)
		return gnv_cpu_stream_put(gpu, stream, launch);
	memcpy(args, launch->args, launch->args_len);
	gnv_cpu_run(gpu, launch->kernel, launch->threads, args);
	return 0;
}

static int cpu_fence(struct gpunvme_gpu *gpu)
{
	(void)gpu;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return 0;
}

static int cpu_coherence(struct gpunvme_gpu *gpu, enum gpunvme_coherence what)
{
	(void)gpu;
	(void)what;
	return gnv_fail(-EOPNOTSUPP, "CPU threads need neither. Name an AMD GPU, as in hsa:0");
}

const struct gnv_gpu_ops gnv_gpu_cpu_ops = {
	.name = "cpu",
	.open = cpu_open,
	.close = cpu_close,
	.mem_alloc = cpu_mem_alloc,
	.mem_register = cpu_mem_register,
	.mem_free = cpu_mem_free,
	.mem_check = cpu_mem_check,
	.mem_reach = cpu_mem_reach,
	.mem_watch = cpu_mem_watch,
	.mem_unwatch = cpu_mem_unwatch,
	.mem_same = cpu_mem_same,
	.mem_stays = cpu_mem_stays,
	.host_attach = cpu_host_attach,
	.host_detach = cpu_detach,
	.mmio_attach = cpu_mmio_attach,
	.mmio_detach = cpu_detach,
	.mmio_fence_off = cpu_mmio_fence_off,
	.mmio_distrust = cpu_mmio_distrust,
	.local_alloc = cpu_local_alloc,
	.local_free = cpu_local_free,
	.peek = cpu_peek,
	.poke = cpu_poke,
	.launch = cpu_launch,
	.enqueue = cpu_enqueue,
	.fence = cpu_fence,
	.coherence = cpu_coherence,
};
