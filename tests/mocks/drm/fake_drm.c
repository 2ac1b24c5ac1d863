/* SPDX-License-Identifier: MIT */
#include "fake_drm.h"

#include <errno.h>
#include <libdrm/amdgpu.h>
#include <libdrm/amdgpu_drm.h>
#include <string.h>
#include <unistd.h>

struct amdgpu_device {
	int dummy;
};
struct amdgpu_bo {
	bool used, mapped, vram, cpu, import;
	bool placed; /* the GPU's page tables have it */
	bool left;   /* unmapped, and they may have it still */
	bool instead; /* of an import */
	uint32_t handle; /* of an import */
	uint64_t size, va;
	uint32_t data[1024];
};
struct amdgpu_context {
	int dummy;
};
struct amdgpu_bo_list {
	struct amdgpu_bo *bo[2];
};

static struct fake_drm state;
static struct amdgpu_device device;
static struct amdgpu_context context;
static struct amdgpu_bo_list list;
static struct amdgpu_bo bos[8];

struct fake_drm *fake_drm(void)
{
	return &state;
}

static void rule(bool kept, const char *what)
{
	if (!kept && !state.broke)
		state.broke = what;
}

static int fails(const char *name)
{
	if (state.refuse && !strcmp(state.refuse, name))
		return state.fails_with;
	return ++state.count == state.fails_at ? state.fails_with : 0;
}

static struct amdgpu_bo *bo_new(uint64_t size)
{
	for (unsigned i = 0; i < 8; i++) {
		if (bos[i].used)
			continue;
		memset(&bos[i], 0, sizeof(bos[i]));
		bos[i].used = true;
		bos[i].size = size;
		state.bos++;
		return &bos[i];
	}
	rule(false, "buffers are lost");
	return NULL;
}

int amdgpu_device_initialize(int fd, uint32_t *major, uint32_t *minor, amdgpu_device_handle *dev)
{
	int ret = fails("device_initialize");

	rule(fd >= 0, "a render node");
	if (ret)
		return ret;
	*major = 3;
	*minor = 54;
	*dev = &device;
	state.devices++;
	return 0;
}

int amdgpu_device_deinitialize(amdgpu_device_handle dev)
{
	rule(dev == &device && !state.bos && !state.contexts && !state.lists, "a device is closed last");
	state.devices--;
	return 0;
}

int amdgpu_device_get_fd(amdgpu_device_handle dev)
{
	rule(dev == &device, "the device");
	return FAKE_DRM_FD;
}

int amdgpu_bo_alloc(amdgpu_device_handle dev, struct amdgpu_bo_alloc_request *request, amdgpu_bo_handle *bo)
{
	bool vram = request->preferred_heap == AMDGPU_GEM_DOMAIN_VRAM;
	int ret = fails(vram ? "vram" : "bo_alloc");

	rule(dev == &device && request->alloc_size % 4096 == 0, "whole pages");
	if (!ret && state.no_uncached && request->flags & 1u << 14)
		ret = -EINVAL;
	if (ret)
		return ret;
	if (vram)
		state.alloc_flags = request->flags;
	*bo = bo_new(request->alloc_size);
	(*bo)->vram = vram;
	return 0;
}

int amdgpu_bo_import(amdgpu_device_handle dev, enum amdgpu_bo_handle_type type, uint32_t handle,
		     struct amdgpu_bo_import_result *out)
{
	int ret = fails("bo_import");

	rule(dev == &device && type == amdgpu_bo_handle_type_dma_buf_fd, "a DMA-BUF");
	if (ret)
		return ret;
	state.imported = handle;
	out->alloc_size = state.place ? (uint64_t)lseek((int)handle, 0, SEEK_END) : state.import_size;
	out->buf_handle = bo_new(out->alloc_size);
	out->buf_handle->import = true;
	out->buf_handle->handle = handle;
	out->buf_handle->vram = true; /* its mapping is the one to look at */
	return 0;
}

int amdgpu_bo_export(amdgpu_bo_handle bo, enum amdgpu_bo_handle_type type, uint32_t *handle)
{
	int ret = fails("bo_export");

	rule(bo->used && type == amdgpu_bo_handle_type_dma_buf_fd, "export of a buffer");
	rule(bo->placed, "the GPU has it before a controller gets it");
	*handle = 1999;
	return ret;
}

int amdgpu_bo_free(amdgpu_bo_handle bo)
{
	rule(bo->used && !bo->mapped && !bo->cpu, "a buffer is unmapped before it is freed");
	rule(!bo->left || !bo->import, "the GPU has let go of an import before it is freed");
	bo->used = false;
	state.bos--;
	return 0;
}

int amdgpu_bo_query_info(amdgpu_bo_handle bo, struct amdgpu_bo_info *info)
{
	rule(bo->used, "a buffer that is asked about");
	info->preferred_heap = AMDGPU_GEM_DOMAIN_VRAM | (state.host ? AMDGPU_GEM_DOMAIN_GTT : 0u);
	info->alloc_flags = state.alloc_flags & ~(state.unseen ? (uint64_t)AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED : 0);
	return fails("bo_query_info");
}

int amdgpu_bo_cpu_map(amdgpu_bo_handle bo, void **cpu)
{
	int ret = fails("bo_cpu_map");

	*cpu = bo->data;
	bo->cpu = !ret;
	return ret;
}

int amdgpu_bo_cpu_unmap(amdgpu_bo_handle bo)
{
	bo->cpu = false;
	return 0;
}

static struct amdgpu_bo *mapped_at(uint64_t va)
{
	for (unsigned i = 0; i < 8; i++)
		if (bos[i].used && bos[i].mapped && bos[i].va == va)
			return &bos[i];
	return NULL;
}

/* What the page tables say changes here. */
static int place(struct amdgpu_bo *bo, bool map)
{
	int ret = 0;

	if (bo->placed != map && bo->import && state.place)
		ret = state.place(bo->handle, bo->va, map);
	if (map && !bo->placed && bo->instead && state.fence_off)
		state.fence_off(bo->va, bo->size);
	bo->placed = map && !ret;
	bo->left = false;
	return ret;
}

/* The old entries are cleared, and the new ones written, or neither is done before the next command. */
static void replace(struct amdgpu_bo *bo, uint64_t va, uint64_t flags)
{
	struct amdgpu_bo *old = mapped_at(va);

	rule(old && old->size >= bo->size && !bo->import && flags & AMDGPU_VM_PAGE_WRITEABLE, "memory in the place of an import");
	if (!old)
		return;
	old->mapped = old->placed = false;
	bo->mapped = bo->instead = true;
	bo->va = va;
	state.replaced++;
}

/*
 * Only wrong arguments are reported: amdgpu_gem_va_update_vm() keeps errors for itself, and gives up in silence while the address
 * space is being evicted (Linux 7.2 amdgpu_gem.c; 6.12 the same). So the page tables change when the next command runs.
 */
int amdgpu_bo_va_op_raw(amdgpu_device_handle dev, amdgpu_bo_handle bo, uint64_t offset, uint64_t size, uint64_t va, uint64_t flags,
			uint32_t ops)
{
	int ret = fails(ops == AMDGPU_VA_OP_MAP ? "map" : ops == AMDGPU_VA_OP_REPLACE ? "replace" : "unmap");

	rule(dev == &device && bo->used && !offset && size <= bo->size && va && va % 4096 == 0, "a mapping of the buffer");
	if (ret)
		return ret;
	rule(bo->mapped == (ops == AMDGPU_VA_OP_UNMAP), "mapped once, unmapped once");
	if (ops == AMDGPU_VA_OP_MAP && state.taken) {
		rule(va != state.taken_at, "an address is tried once");
		state.taken_at = va;
		state.taken--;
		return -EINVAL;
	}
	if (ops == AMDGPU_VA_OP_REPLACE) {
		replace(bo, va, flags);
		return 0;
	}
	bo->mapped = ops == AMDGPU_VA_OP_MAP;
	bo->left = !bo->mapped && bo->placed;
	state.maps += bo->mapped ? 1u : -1u;
	bo->va = va;
	if (bo->mapped && bo->vram) {
		state.va_flags = flags;
		state.va = va;
	}
	return 0;
}

int amdgpu_bo_list_create(amdgpu_device_handle dev, uint32_t count, amdgpu_bo_handle *bo, uint8_t *prios,
			  amdgpu_bo_list_handle *out)
{
	int ret = fails("bo_list_create");

	rule(dev == &device && (count == 1 || count == 2) && !prios, "the command, and the buffer");
	if (ret)
		return ret;
	list.bo[0] = bo[0];
	list.bo[1] = count > 1 ? bo[1] : NULL;
	*out = &list;
	state.lists++;
	return 0;
}

int amdgpu_bo_list_destroy(amdgpu_bo_list_handle handle)
{
	rule(handle == &list, "the list");
	state.lists--;
	return 0;
}

int amdgpu_cs_ctx_create(amdgpu_device_handle dev, amdgpu_context_handle *ctx)
{
	int ret = fails("cs_ctx_create");

	rule(dev == &device, "the device");
	if (ret)
		return ret;
	*ctx = &context;
	state.contexts++;
	return 0;
}

int amdgpu_cs_ctx_free(amdgpu_context_handle ctx)
{
	rule(ctx == &context && !state.lists, "the context");
	state.contexts--;
	return 0;
}

int amdgpu_cs_submit(amdgpu_context_handle ctx, uint64_t flags, struct amdgpu_cs_request *request, uint32_t count)
{
	struct amdgpu_bo *ib = list.bo[0];
	int ret = fails("cs_submit");

	rule(ctx == &context && !flags && count == 1 && request->ip_type == AMDGPU_HW_IP_COMPUTE && request->resources == &list,
	     "one command");
	rule(request->number_of_ibs == 1 && ib->mapped && request->ibs->ib_mc_address == ib->va, "the command is mapped");
	for (unsigned i = 0; i < request->ibs->size; i++)
		rule(ib->data[i] == 0xffff1000u, "it does nothing");
	if (ret || state.no_rings)
		return ret ? ret : -EINVAL;
	for (unsigned i = 0; i < 8; i++)
		if (bos[i].used && bos[i].left)
			place(&bos[i], false);
	if (list.bo[1])
		ret = place(list.bo[1], true);
	if (ret)
		return ret;
	state.commands++;
	request->seq_no = 7;
	return 0;
}

int amdgpu_cs_query_fence_status(struct amdgpu_cs_fence *fence, uint64_t timeout_ns, uint64_t flags, uint32_t *expired)
{
	int ret = fails("cs_query_fence_status");

	rule(fence->context == &context && fence->fence == 7 && !flags && timeout_ns < 10000000000ull, "a bounded wait");
	*expired = !ret && !state.hangs;
	return ret;
}
