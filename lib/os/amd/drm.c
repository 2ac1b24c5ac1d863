/* SPDX-License-Identifier: MIT */
/*
 * Invariant: addresses are reserved in the process before the GPU gets them, because the runtime uses one address for both, and
 * given back after it has let go.
 */
#include "os/amd/drm.h"

#include <errno.h>
#include <libdrm/amdgpu.h>
#include <libdrm/amdgpu_drm.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/amd/kfd.h"
#include "os/linux/dl.h"
#include "os/linux/fork.h"
#include "util/log.h"

#define IB_BYTES 4096u
#define IB_NOPS 16u
#define NOP 0xffff1000u /* a PM4 packet of one dword that does nothing */
#define ADDRESSES 4u /* that are tried for a buffer */
#define FENCE_NS 1000000000ull

/* libdrm_amdgpu's functions, as X(name without "amdgpu_"). */
#define FUNCTIONS(X)														\
	X(device_initialize) X(device_deinitialize) X(device_get_fd) X(bo_alloc) X(bo_import) X(bo_export) X(bo_free)		\
	X(bo_query_info) X(bo_cpu_map) X(bo_cpu_unmap) X(bo_va_op_raw) X(bo_list_create) X(bo_list_destroy) X(cs_ctx_create)	\
	X(cs_ctx_free) X(cs_submit) X(cs_query_fence_status)

#define FIELD(name) __typeof__(&amdgpu_##name) name;
struct api {
	FUNCTIONS(FIELD)
};

struct gnv_drm {
	struct api api;
	amdgpu_device_handle dev;
};

#define SYMBOL(name) { "amdgpu_" #name, offsetof(struct api, name), false },
static const struct gnv_dl_symbol symbols[] = { FUNCTIONS(SYMBOL) { NULL, 0, false } };
/* ROCm built by TheRock has its own copy under another name, and only that copy knows the runtime's address space. */
static const char *const files[] = { "librocm_sysdeps_drm_amdgpu.so.1", "libdrm_amdgpu.so.1", NULL };
static const struct gnv_dl library = { "libdrm_amdgpu", "GPUNVME_DRM_LIBRARY", files, symbols };

int gnv_drm_load(void)
{
	struct api api;

	return gnv_dl_load(&library, &api);
}

int gnv_drm_open(const char *sys, const char *bdf, struct gnv_drm **out)
{
	struct gnv_drm *drm = calloc(1, sizeof(*drm));
	uint32_t major, minor;
	int ret, fd;

	if (!drm)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gnv_dl_load(&library, &drm->api);
	if (ret)
		goto free_drm;
	ret = fd = gnv_drm_open_node(sys, bdf);
	if (fd < 0)
		goto free_drm;
	ret = drm->api.device_initialize(fd, &major, &minor, &drm->dev);
	close(fd); /* libdrm has its own descriptor */
	if (ret) {
		ret = gnv_fail(-ENODEV, "%s: libdrm cannot use the GPU: %s. Name an AMD GPU, and load amdgpu", bdf,
			       strerror(abs(ret)));
		goto free_drm;
	}
	*out = drm;
	return 0;

free_drm:
	free(drm);
	return ret;
}

void gnv_drm_close(struct gnv_drm *drm)
{
	drm->api.device_deinitialize(drm->dev);
	free(drm);
}

int gnv_drm_open_shared(const char *sys, const char *bdf, uint32_t kfd_id, struct gnv_drm **out)
{
	struct gnv_drm *drm;
	int ret = gnv_drm_open(sys, bdf, &drm);

	if (ret)
		return ret;
	ret = gnv_kfd_owns(kfd_id, drm->api.device_get_fd(drm->dev));
	if (!ret)
		*out = drm;
	else
		gnv_drm_close(drm);
	return ret == -EBUSY ? -EOPNOTSUPP : ret;
}

static int reserve(size_t len, void **va)
{
	void *got = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (got == MAP_FAILED)
		return gnv_fail(-ENOMEM, "no %zu bytes of address space for memory of a GPU", len);
	*va = got;
	return 0;
}

/*
 * Reserve addresses and give them to a buffer in the GPU. Free addresses of the process may be taken there, or reserved (Linux
 * amdgpu_gem.c, amdgpu_gem_va_ioctl, and amdgpu_vm.c, amdgpu_vm_bo_map: -EINVAL). Then try others, with those still reserved.
 */
static int map_anywhere(struct gnv_drm *drm, struct gnv_drm_bo *bo, uint64_t flags)
{
	void *taken[ADDRESSES];
	unsigned n = 0;
	int ret, refused = -EINVAL;

	do {
		ret = reserve(bo->len, &taken[n]);
		if (!ret)
			refused = drm->api.bo_va_op_raw(drm->dev, bo->bo, 0, bo->len, (uintptr_t)taken[n++],
							AMDGPU_VM_PAGE_READABLE | flags, AMDGPU_VA_OP_MAP);
	} while (!ret && refused == -EINVAL && n < ADDRESSES);
	if (!ret && !refused)
		bo->va = taken[--n];
	while (n)
		munmap(taken[--n], bo->len);
	return ret ? ret : refused;
}

/* Give a buffer an address in the GPU. */
static int map(struct gnv_drm *drm, struct gnv_drm_bo *bo, uint64_t flags)
{
	int ret = map_anywhere(drm, bo, flags);

	if (!ret)
		return 0;
	return gnv_fail(ret == -ENOMEM ? ret : -EIO, "amdgpu gives %zu bytes no address in the GPU: %s", bo->len,
			strerror(abs(ret)));
}

static void drop(struct gnv_drm *drm, struct gnv_drm_bo *bo)
{
	if (bo->bo)
		drm->api.bo_free(bo->bo);
	if (bo->instead)
		drm->api.bo_free(bo->instead);
	if (bo->dmabuf >= 0)
		gnv_fork_close(bo->dmabuf); /* one of an import may be in the list of fork.h */
	if (bo->va)
		munmap(bo->va, bo->len);
	*bo = (struct gnv_drm_bo){ .dmabuf = -1 };
}

static int kept(const struct gnv_drm_bo *bo, const char *why)
{
	return gnv_fail(-EBUSY, "amdgpu does not release %zu bytes: %s. A device that has them must stay open until the process ends",
			bo->len, why);
}

static int update_tables(struct gnv_drm *drm, struct gnv_drm_bo *bo);

int gnv_drm_free(struct gnv_drm *drm, struct gnv_drm_bo *bo)
{
	amdgpu_bo_handle mapped = bo->instead ? bo->instead : bo->bo;
	int ret = 0;

	if (bo->va)
		ret = drm->api.bo_va_op_raw(drm->dev, mapped, 0, bo->len, (uintptr_t)bo->va, 0, AMDGPU_VA_OP_UNMAP);
	if (ret)
		return kept(bo, strerror(abs(ret)));
	if (bo->va && bo->foreign && update_tables(drm, NULL))
		return kept(bo, gpunvme_errmsg());
	drop(drm, bo);
	return 0;
}

/* After `ret`: undo, and keep its sentence unless undoing fails. */
static int back_out(struct gnv_drm *drm, struct gnv_drm_bo *bo, int ret)
{
	int undone = gnv_drm_free(drm, bo);

	return undone ? undone : ret;
}

/* If memory is short, the kernel silently gives host memory, or memory that the CPU cannot access. */
static int check_place(struct gnv_drm *drm, const struct gnv_drm_bo *bo)
{
	struct amdgpu_bo_info info = { 0 };
	int ret = drm->api.bo_query_info(bo->bo, &info);

	if (ret)
		return gnv_fail(-EIO, "amdgpu does not report the place of memory: %s", strerror(abs(ret)));
	if (info.preferred_heap == AMDGPU_GEM_DOMAIN_VRAM && info.alloc_flags & AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED)
		return 0;
	return gnv_fail(-ENOMEM,
			"the GPU has no %zu bytes that the CPU can access as well. Enable a large BAR (Above 4G Decoding, Resizable "
			"BAR) in the firmware, or free some of its memory",
			bo->len);
}

int gnv_drm_alloc(struct gnv_drm *drm, size_t len, struct gnv_drm_bo *bo)
{
	struct amdgpu_bo_alloc_request request = { .alloc_size = len,
						   .phys_alignment = len >= (2u << 20) ? 2u << 20 : 0,
						   .preferred_heap = AMDGPU_GEM_DOMAIN_VRAM,
						   .flags = AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_VRAM_CLEARED |
							    GNV_DRM_UNCACHED };
	amdgpu_bo_handle handle;
	uint32_t fd;
	int ret;

	*bo = (struct gnv_drm_bo){ .len = len, .dmabuf = -1 };
	ret = drm->api.bo_alloc(drm->dev, &request, &handle);
	bo->uncached = !ret;
	if (ret == -EINVAL) { /* a kernel that takes the flag from KFD only: there is still the mapping's own */
		request.flags &= ~(uint64_t)GNV_DRM_UNCACHED;
		ret = drm->api.bo_alloc(drm->dev, &request, &handle);
	}
	if (ret)
		return gnv_fail(-ENOMEM, "the GPU has no %zu bytes of memory: %s", len, strerror(abs(ret)));
	bo->bo = handle;
	ret = check_place(drm, bo);
	if (!ret)
		ret = map(drm, bo, AMDGPU_VM_PAGE_WRITEABLE | AMDGPU_VM_MTYPE_UC);
	if (!ret)
		ret = update_tables(drm, bo);
	if (ret)
		return back_out(drm, bo, ret);
	ret = drm->api.bo_export(handle, amdgpu_bo_handle_type_dma_buf_fd, &fd);
	if (ret)
		return back_out(drm, bo, gnv_fail(-EIO, "amdgpu exports no DMA-BUF: %s", strerror(abs(ret))));
	bo->dmabuf = (int)fd;
	return 0;
}

/* A command buffer that does nothing. */
static int nop_buffer(struct gnv_drm *drm, struct gnv_drm_bo *ib)
{
	struct amdgpu_bo_alloc_request request = { .alloc_size = IB_BYTES, .preferred_heap = AMDGPU_GEM_DOMAIN_GTT };
	amdgpu_bo_handle handle;
	void *cpu;
	int ret;

	*ib = (struct gnv_drm_bo){ .len = IB_BYTES, .dmabuf = -1 };
	ret = drm->api.bo_alloc(drm->dev, &request, &handle);
	if (ret)
		return gnv_fail(-ENOMEM, "amdgpu has no memory for a command: %s", strerror(abs(ret)));
	ib->bo = handle;
	ret = drm->api.bo_cpu_map(handle, &cpu);
	if (ret)
		return back_out(drm, ib, gnv_fail(-EIO, "a command buffer cannot be mapped: %s", strerror(abs(ret))));
	for (unsigned i = 0; i < IB_NOPS; i++)
		((uint32_t *)cpu)[i] = NOP;
	drm->api.bo_cpu_unmap(handle);
	ret = map(drm, ib, AMDGPU_VM_PAGE_EXECUTABLE);
	return ret ? back_out(drm, ib, ret) : 0;
}

static int submit(struct gnv_drm *drm, amdgpu_context_handle ctx, amdgpu_bo_list_handle list, const struct gnv_drm_bo *ib)
{
	struct amdgpu_cs_ib_info info = { .ib_mc_address = (uintptr_t)ib->va, .size = IB_NOPS };
	struct amdgpu_cs_request request = { .ip_type = AMDGPU_HW_IP_COMPUTE, .resources = list, .number_of_ibs = 1, .ibs = &info };
	struct amdgpu_cs_fence fence = { .context = ctx, .ip_type = AMDGPU_HW_IP_COMPUTE };
	uint32_t expired = 0;
	int ret = drm->api.cs_submit(ctx, 0, &request, 1);

	if (ret)
		return gnv_fail(-EIO, "amdgpu takes no command: %s", strerror(abs(ret)));
	fence.fence = request.seq_no;
	ret = drm->api.cs_query_fence_status(&fence, FENCE_NS, 0, &expired);
	if (ret || !expired)
		return gnv_fail(-ETIMEDOUT, "the GPU did not run an empty command within a second");
	return 0;
}

/* An empty command with a buffer that it names, or NULL. -ETIMEDOUT: it was taken, and may come to run. */
static int run_nop(struct gnv_drm *drm, amdgpu_context_handle ctx, const struct gnv_drm_bo *bo, const struct gnv_drm_bo *ib)
{
	amdgpu_bo_handle named[2] = { ib->bo, bo ? bo->instead ? bo->instead : bo->bo : NULL };
	amdgpu_bo_list_handle list;
	int ret = drm->api.bo_list_create(drm->dev, bo ? 2 : 1, named, NULL, &list);

	if (ret)
		return gnv_fail(-EIO, "amdgpu takes no list of buffers: %s", strerror(abs(ret)));
	ret = submit(drm, ctx, list, ib);
	drm->api.bo_list_destroy(list);
	return ret;
}

/*
 * The kernel updates page table entries at the next command: amdgpu places imports only when a command uses them, and reports no
 * errors of mapping and unmapping (Linux amdgpu_gem.c, amdgpu_gem_va_update_vm). So run an empty command after each.
 */
static int update_tables(struct gnv_drm *drm, struct gnv_drm_bo *bo)
{
	amdgpu_context_handle ctx;
	struct gnv_drm_bo ib;
	int ret = nop_buffer(drm, &ib), undone;

	if (ret)
		return ret;
	ret = drm->api.cs_ctx_create(drm->dev, &ctx);
	if (ret)
		return back_out(drm, &ib, gnv_fail(-EIO, "amdgpu takes no commands: %s", strerror(abs(ret))));
	ret = run_nop(drm, ctx, bo, &ib);
	drm->api.cs_ctx_free(ctx);
	undone = gnv_drm_free(drm, &ib);
	return ret ? ret : undone;
}

int gnv_drm_fence_off(struct gnv_drm *drm, struct gnv_drm_bo *bo)
{
	struct amdgpu_bo_alloc_request request = { .alloc_size = bo->len, .preferred_heap = AMDGPU_GEM_DOMAIN_GTT };
	amdgpu_bo_handle handle;
	int ret;

	if (bo->instead)
		return 0;
	ret = drm->api.bo_alloc(drm->dev, &request, &handle);
	if (ret)
		return gnv_fail(-ENOMEM, "amdgpu has no memory in the place of a BAR: %s", strerror(abs(ret)));
	ret = drm->api.bo_va_op_raw(drm->dev, handle, 0, bo->len, (uintptr_t)bo->va, AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE,
				    AMDGPU_VA_OP_REPLACE);
	if (ret) {
		drm->api.bo_free(handle);
		return gnv_fail(-EIO, "amdgpu does not put memory in the place of a BAR: %s", strerror(abs(ret)));
	}
	bo->instead = handle;
	return update_tables(drm, bo);
}

static int import_failed(int ret)
{
	if (ret == -EOPNOTSUPP || ret == -EINVAL || ret == -ENOSYS)
		return gnv_fail(
			-EOPNOTSUPP,
			"amdgpu cannot import the BAR: a kernel before 7.1, or no path from the GPU to the device. Use Linux "
			"7.1 or newer, and slots below one switch or a root complex that forwards");
	if (ret == -ENODEV)
		return gnv_fail(
			ret, "the BAR was revoked: its device was reset or does not decode memory. Map it again after that");
	return gnv_fail(ret == -ENOMEM ? ret : -EIO, "amdgpu cannot import the BAR: %s", strerror(abs(ret)));
}

int gnv_drm_import(struct gnv_drm *drm, int dmabuf, size_t len, struct gnv_drm_bo *bo)
{
	struct amdgpu_bo_import_result got;
	int ret;

	*bo = (struct gnv_drm_bo){ .len = len, .dmabuf = dmabuf };
	ret = drm->api.bo_import(drm->dev, amdgpu_bo_handle_type_dma_buf_fd, (uint32_t)dmabuf, &got);
	if (ret)
		return back_out(drm, bo, import_failed(ret));
	bo->bo = got.buf_handle;
	if (got.alloc_size < len)
		return back_out(drm, bo,
				gnv_fail(-EIO, "amdgpu imported %llu bytes of %zu", (unsigned long long)got.alloc_size, len));
	ret = map(drm, bo, AMDGPU_VM_PAGE_WRITEABLE | AMDGPU_VM_MTYPE_UC);
	if (!ret)
		ret = update_tables(drm, bo);
	bo->foreign = !ret || ret == -ETIMEDOUT || ret == -EBUSY; /* else no command named it, and the GPU has not got it */
	return ret ? back_out(drm, bo, ret) : 0;
}
