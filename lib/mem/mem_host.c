/* SPDX-License-Identifier: MIT */
/*
 * Host memory: allocated by the library, or registered by its owner.
 * Invariant: `cpu` and `len` describe one mapping, whole pages, readable and writable; lanes of the CPU use the same address.
 */
#include <errno.h>
#include <stdlib.h>

#include "mem/mem.h"
#include "os/linux/sys.h"
#include "util/bits.h"

#define HUGE_PAGE (2u << 20)

static void host_release(struct gpunvme_mem *mem)
{
	gnv_sys_unmap(mem->cpu, mem->len);
}

static void registered_release(struct gpunvme_mem *mem)
{
	(void)mem; /* the bytes are the caller's */
}

static const struct gnv_mem_ops host_ops = { "host", host_release, gnv_mem_attach_host, gnv_mem_detach_host };
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
		"no 2 MiB pages for %zu bytes (vm.nr_hugepages reserves them); using small or transparent huge pages", len);
	*page = gnv_sys_page_size();
	return gnv_sys_map(len, HUGE_PAGE, false, ptr);
}

int gnv_mem_host_alloc(size_t len, uint32_t flags, const struct gnv_log *log, struct gpunvme_mem **mem)
{
	bool huge = flags & GPUNVME_MEM_HUGE;
	size_t unit = huge ? HUGE_PAGE : gnv_sys_page_size(), page;
	void *ptr;

	if (!len)
		return gnv_fail(-EINVAL, "memory of zero bytes was asked for");
	if (len > PTRDIFF_MAX - unit)
		return gnv_fail(-ENOMEM, "%zu bytes are more than an address space holds", len);
	len = gnv_align_up(len, unit);
	if (map_pages(len, huge, log, &ptr, &page))
		return gnv_fail(-ENOMEM, "the system has no %zu bytes of memory for this process", len);
	*mem = object_new(&host_ops, ptr, len, page);
	if (!*mem) {
		gnv_sys_unmap(ptr, len);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	(*mem)->locked = !gnv_sys_lock(ptr, len);
	return 0;
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
