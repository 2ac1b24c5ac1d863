/* SPDX-License-Identifier: MIT */
/*
 * Memory of a GPU. Its own threads have an address of it from the start. Other GPUs access it as foreign memory, by its DMA-BUF.
 * Invariant: the bytes go before the reference to the GPU.
 */
#include <errno.h>
#include <stdlib.h>

#include "mem/mem.h"
#include "util/bits.h"

struct mem_gpu {
	struct gpunvme_mem mem;
	struct gnv_gpu_bytes bytes;
};

static void gpu_release(struct gpunvme_mem *mem)
{
	mem->gpu->ops->mem_free(mem->gpu, &gnv_container_of(mem, struct mem_gpu, mem)->bytes);
}

static int gpu_attach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range)
{
	if (gpu != mem->gpu)
		return gnv_mem_attach_foreign(mem, gpu, offset, len, range);
	range->lane = mem->lane + offset;
	return 0;
}

static int gpu_detach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	return gpu == mem->gpu ? 0 : gnv_mem_detach_foreign(mem, gpu, range);
}

static const struct gnv_mem_ops gpu_ops = { "GPU", gpu_release, gpu_attach, gpu_detach };

static int wrap(struct gpunvme_gpu *gpu, struct mem_gpu *made, int ret, struct gpunvme_mem **mem)
{
	if (ret) {
		free(made);
		return ret;
	}
	gnv_mem_init(&made->mem, &gpu_ops);
	made->mem.gpu = gnv_gpu_get(gpu);
	made->mem.cpu = made->bytes.cpu;
	made->mem.len = made->bytes.len;
	made->mem.page = made->bytes.page;
	made->mem.dmabuf = made->bytes.dmabuf;
	made->mem.dmabuf_offset = made->bytes.dmabuf_offset;
	made->mem.lane = made->bytes.lane;
	made->mem.local = true;
	made->mem.far = true;
	made->mem.moves = true;
	made->mem.locked = true;
	made->mem.cached_stores = made->bytes.cached;
	made->mem.tag = made->bytes.tag;
	made->mem.tagged = made->bytes.tagged;
	*mem = &made->mem;
	return 0;
}

int gnv_mem_gpu_alloc(struct gpunvme_gpu *gpu, uint32_t how, size_t len, struct gpunvme_mem **mem)
{
	struct mem_gpu *made;

	if (!len)
		return gnv_fail(-EINVAL, "memory of zero bytes was asked for");
	if (len > PTRDIFF_MAX / 2)
		return gnv_fail(-ENOMEM, "%zu bytes are more than an address space holds", len);
	made = calloc(1, sizeof(*made));
	if (!made)
		return gnv_fail(-ENOMEM, "out of memory");
	return wrap(gpu, made, gpu->ops->mem_alloc(gpu, how, len, &made->bytes), mem);
}

int gnv_mem_gpu_register(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gpunvme_mem **mem)
{
	struct mem_gpu *made = calloc(1, sizeof(*made));

	if (!made)
		return gnv_fail(-ENOMEM, "out of memory");
	made->mem.borrowed = true;
	return wrap(gpu, made, gpu->ops->mem_register(gpu, ptr, len, &made->bytes), mem);
}
