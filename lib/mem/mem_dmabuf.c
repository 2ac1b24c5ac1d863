/* SPDX-License-Identifier: MIT */
/*
 * Memory of another driver, by its DMA-BUF.
 * Invariant: the object has a descriptor of its own, so the caller may close theirs.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/vram.h"
#include "mem/mem.h"
#include "os/linux/dmabuf.h"
#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/process.h"

static void dmabuf_release(struct gpunvme_mem *mem)
{
	if (mem->cpu)
		gnv_sys_unmap(mem->cpu, mem->len);
	gnv_dmabuf_close(mem->dmabuf);
}

static const struct gnv_mem_ops dmabuf_ops = { "dmabuf", dmabuf_release, gnv_mem_attach_foreign, gnv_mem_detach_foreign };

static int check_range(int fd, uint64_t offset, size_t len)
{
	size_t page = gnv_sys_page_size();
	uint64_t size;

	if (gnv_dmabuf_size(fd, &size))
		return gnv_fail(-EINVAL, "descriptor %d is no DMA-BUF: it has no size", fd);
	if (!len || (offset | len) & (page - 1))
		return gnv_fail(-EINVAL, "the part of a DMA-BUF (offset 0x%llx, %zu bytes) must begin and end on a page of %zu bytes",
				(unsigned long long)offset, len, page);
	if (!gnv_within(offset, len, size))
		return gnv_fail(-ERANGE, "offset 0x%llx and %zu bytes are not within the %llu bytes of the DMA-BUF",
				(unsigned long long)offset, len, (unsigned long long)size);
	return 0;
}

/*
 * BARs that vfio-pci lends, and pages of the host, stay where they are. Drivers of GPUs move theirs. All of DRM, amdgpu too, export
 * as "drm" (drm_gem_prime_export), others by their own names. An unknown exporter is assumed to move its memory.
 */
static bool may_move(int fd)
{
	static const char *const still[] = { "vfio_pci_core", "udmabuf", "system", "reserved", "linux,cma", "default_cma_region" };
	char name[64];
	size_t i;

	gnv_dmabuf_exporter(fd, name, sizeof(name));
	for (i = 0; i < GNV_ARRAY_LEN(still); i++)
		if (!strcmp(name, still[i]))
			return false;
	return true;
}

/*
 * Stores to a GPU's own memory by the address that its runtime gave stay in its L2, and the DMA-BUF may be of that memory. It does
 * not say of which. It says how threads access it only if libdrm marked it as uncached. So memory that may move may be cached.
 */
static bool may_be_cached(const struct gpunvme_gpu *gpu, int fd)
{
	return gpu->keeps_stores && !gnv_vram_uncached(gpu, fd);
}

GPUNVME_API int gpunvme_mem_import_dmabuf(struct gpunvme_gpu *gpu, int fd, uint64_t offset, size_t len, struct gpunvme_mem **out)
{
	struct gpunvme_mem *mem;
	void *cpu = NULL;
	int own, ret = gnv_enter(gpu, gpu && out, "gpu and mem");

	if (ret)
		return ret;
	ret = check_range(fd, offset, len);
	if (ret)
		return ret;
	ret = gnv_dmabuf_dup(fd, &own);
	if (ret)
		return gnv_fail(ret, "no descriptor for the DMA-BUF. Raise RLIMIT_NOFILE (ulimit -n)");
	mem = calloc(1, sizeof(*mem));
	if (!mem) {
		gnv_dmabuf_close(own);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	gnv_dmabuf_map(own, offset, len, &cpu); /* no CPU address is a property, not a failure */
	gnv_mem_init(mem, &dmabuf_ops);
	mem->cpu = cpu;
	mem->len = len;
	mem->page = gnv_sys_page_size();
	mem->far = true;
	mem->moves = may_move(own);
	mem->cached_stores = mem->moves && may_be_cached(gpu, own);
	mem->dmabuf = own;
	mem->dmabuf_offset = offset;
	mem->gpu = gnv_gpu_get(gpu);
	*out = mem;
	return 0;
}
