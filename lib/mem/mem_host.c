/* SPDX-License-Identifier: MIT */
/*
 * Host memory: allocated by the library, or registered by its owner.
 * Invariant: `cpu` and `len` describe one mapping, whole pages, readable and writable. CPU threads use the same address.
 */
#include <errno.h>
#include <stdlib.h>

#include "mem/mem.h"
#include "os/linux/shared.h"
#include "os/linux/sys.h"
#include "util/bits.h"

#define HUGE_PAGE (2u << 20)

static void host_release(struct gpunvme_mem *mem)
{
	gnv_sys_unmap(mem->cpu, mem->len);
}

static void shared_release(struct gpunvme_mem *mem)
{
	gnv_shared_destroy(mem->fd, mem->cpu, mem->len);
}

static void lanes_release(struct gpunvme_mem *mem)
{
	mem->gpu->ops->host_free(mem->gpu, mem->cpu);
}

static void registered_release(struct gpunvme_mem *mem)
{
	(void)mem; /* the bytes are the caller's */
}

static const struct gnv_mem_ops host_ops = { "host", host_release, gnv_mem_attach_host, gnv_mem_detach_host };
static const struct gnv_mem_ops shared_ops = { "shared", shared_release, gnv_mem_attach_host, gnv_mem_detach_host };
static const struct gnv_mem_ops lanes_ops = { "host", lanes_release, gnv_mem_attach_host, gnv_mem_detach_host };
static const struct gnv_mem_ops registered_ops = { "registered", registered_release, gnv_mem_attach_host,
						     gnv_mem_detach_host };

static struct gpunvme_mem *object_new(const struct gnv_mem_ops *ops, void *ptr, size_t len, size_t page)
{
	struct gpunvme_mem *mem = calloc(1, sizeof(*mem));

	if (!mem)
		return NULL;
	gnv_mem_init(mem, ops);
	mem->cpu = ptr;
	mem->len = len;
	mem->page = page;
	return mem;
}

/* Map `len` bytes in the pages asked for or, with one line in the log, in the next best ones. */
static int map_pages(size_t len, bool huge, const struct gnv_log *log, void **ptr, size_t *page)
{
	*page = huge ? HUGE_PAGE : gnv_sys_page_size();
	if (!huge)
		return gnv_sys_map(len, 0, false, ptr);
	if (!gnv_sys_map(len, HUGE_PAGE, true, ptr))
		return 0;
	gnv_log(log, GPUNVME_LOG_INFO,
		"no 2 MiB pages for %zu bytes (vm.nr_hugepages reserves them). Using small or transparent huge pages", len);
	*page = gnv_sys_page_size();
	return gnv_sys_map(len, HUGE_PAGE, false, ptr);
}

static int alloc_private(size_t len, bool huge, const struct gnv_log *log, struct gpunvme_mem **mem)
{
	size_t page;
	void *ptr;

	if (map_pages(len, huge, log, &ptr, &page))
		return gnv_fail(-ENOMEM, "the system has no %zu bytes of memory for this process", len);
	*mem = object_new(&host_ops, ptr, len, page);
	if (*mem)
		return 0;
	gnv_sys_unmap(ptr, len);
	return gnv_fail(-ENOMEM, "out of memory");
}

static int alloc_shared(size_t len, struct gpunvme_mem **mem)
{
	void *ptr;
	int fd, ret = gnv_shared_create(len, &fd, &ptr);

	if (ret == -EMFILE || ret == -ENFILE)
		return gnv_fail(-EMFILE, "no descriptor for %zu bytes that another process can map. Raise RLIMIT_NOFILE (ulimit -n)",
				len);
	if (ret)
		return gnv_fail(-ENOMEM, "the system has no %zu bytes of memory that another process can map", len);
	*mem = object_new(&shared_ops, ptr, len, gnv_sys_page_size());
	if (!*mem) {
		gnv_shared_destroy(fd, ptr, len);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	(*mem)->fd = fd;
	return 0;
}

int gnv_mem_host_alloc(size_t len, uint32_t flags, const struct gnv_log *log, struct gpunvme_mem **mem)
{
	const bool huge = flags & GPUNVME_MEM_HUGE;
	const size_t unit = huge ? HUGE_PAGE : gnv_sys_page_size();
	int ret;

	if (!len)
		return gnv_fail(-EINVAL, "memory of zero bytes was asked for");
	if (len > PTRDIFF_MAX - unit)
		return gnv_fail(-ENOMEM, "%zu bytes are more than an address space holds", len);
	len = gnv_align_up(len, unit);
	ret = flags & GPUNVME_MEM_SHARED ? alloc_shared(len, mem) : alloc_private(len, huge, log, mem);
	if (!ret)
		(*mem)->locked = !gnv_sys_lock((*mem)->cpu, len);
	return ret;
}

/* Memory of the threads' runtime. */
static int alloc_of_lanes(struct gpunvme_gpu *gpu, size_t len, struct gpunvme_mem **mem)
{
	const size_t page = gnv_sys_page_size();
	void *ptr;
	int ret;

	if (!len)
		return gnv_fail(-EINVAL, "memory of zero bytes was asked for");
	if (len > PTRDIFF_MAX - page)
		return gnv_fail(-ENOMEM, "%zu bytes are more than an address space holds", len);
	len = gnv_align_up(len, page);
	ret = gpu->ops->host_alloc(gpu, len, &ptr);
	if (ret)
		return ret;
	*mem = object_new(&lanes_ops, ptr, len, page);
	if (!*mem) {
		gpu->ops->host_free(gpu, ptr);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	(*mem)->locked = !gnv_sys_lock(ptr, len);
	return 0;
}

int gnv_mem_host_alloc_for(struct gpunvme_gpu *gpu, size_t len, uint32_t flags, struct gpunvme_mem **mem)
{
	int ret = -EOPNOTSUPP;

	if (gpu->ops->host_alloc && !(flags & (GPUNVME_MEM_HUGE | GPUNVME_MEM_SHARED))) {
		ret = alloc_of_lanes(gpu, len, mem);
		if (ret == -EOPNOTSUPP)
			gnv_log(gnv_gpu_log(gpu), GPUNVME_LOG_WARN, "%s. Copies by HIP make other memory cached until "
								    "gpunvme_gpu_fence()",
				gpunvme_errmsg());
	}
	if (ret == -EOPNOTSUPP)
		ret = gnv_mem_host_alloc(len, flags, gnv_gpu_log(gpu), mem);
	if (!ret)
		(*mem)->gpu = gnv_gpu_get(gpu);
	return ret;
}

int gnv_mem_host_register(void *ptr, size_t len, struct gpunvme_mem **mem)
{
	size_t page = gnv_sys_page_size();
	int ret;

	if (!ptr || !len || ((uintptr_t)ptr | len) & (page - 1))
		return gnv_fail(-EINVAL, "memory to register (%p, %zu bytes) must begin and end on a page of %zu bytes", ptr, len,
				page);
	ret = gnv_sys_probe(ptr, len);
	if (ret == -EFAULT)
		return gnv_fail(ret, "%p to +%zu is not all readable and writable memory of this process", ptr, len);
	if (ret)
		return gnv_fail(ret, "cannot tell whether %p is usable memory: /proc/self/maps is not readable", ptr);
	*mem = object_new(&registered_ops, ptr, len, page);
	return *mem ? 0 : gnv_fail(-ENOMEM, "out of memory");
}
