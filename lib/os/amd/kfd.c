/* SPDX-License-Identifier: MIT */
/*
 * Invariant: a mapping holds its descriptor of the node, its DMA-BUF and its range of addresses until the kernel has confirmed that
 * the GPU has released them. The order is unmap, free, DMA-BUF, range.
 */
#include "os/amd/kfd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/amd/uapi/kfd.h"
#include "util/log.h"

#define MAJOR 1	      /* another one would be another interface */
#define ATTEMPTS 100u /* of a call that signals interrupt */

static int call(int fd, unsigned long request, void *arg)
{
	unsigned n;

	for (n = 0; n < ATTEMPTS; n++) {
		if (!ioctl(fd, request, arg))
			return 0;
		if (errno != EINTR && errno != EAGAIN)
			break;
	}
	return -errno;
}

static int open_node(void)
{
	struct gnv_kfd_get_version version = { 0, 0 };
	int fd = open(GNV_KFD_NODE, O_RDWR | O_CLOEXEC), ret;

	if (fd < 0 && errno == ENOENT)
		return gnv_fail(-ENODEV, GNV_KFD_NODE " does not exist. Load amdgpu, with CONFIG_HSA_AMD");
	if (fd < 0 && (errno == EACCES || errno == EPERM))
		return gnv_fail(-EACCES, GNV_KFD_NODE ": no permission. Add your user to the group render");
	if (fd < 0)
		return gnv_fail(-errno, GNV_KFD_NODE ": cannot open: %s", strerror(errno));
	ret = call(fd, GNV_KFD_GET_VERSION, &version);
	if (ret) {
		close(fd);
		return gnv_fail(ret, GNV_KFD_NODE " does not report its version: %s", strerror(-ret));
	}
	if (version.major != MAJOR) {
		close(fd);
		return gnv_fail(-EOPNOTSUPP, GNV_KFD_NODE " speaks version %u.%u, but this library knows version %d", version.major,
				version.minor, MAJOR);
	}
	return fd;
}

int gnv_kfd_check(void)
{
	int fd = open_node();

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

static int import_failed(uint32_t gpu_id, int ret)
{
	switch (-ret) {
	case ENOTTY:
		return gnv_fail(-EOPNOTSUPP, "this kernel's KFD imports no DMA-BUFs. Use Linux 7.1 or newer");
	case EOPNOTSUPP:
		return gnv_fail(-EOPNOTSUPP,
				"the exporter refuses GPU %u: a kernel before 7.1, or the BAR cannot be reached peer to peer. Use "
				"Linux 7.1 or newer, and slots below one switch or a root complex that forwards",
				gpu_id);
	case EINVAL:
		return gnv_fail(-EINVAL,
				"KFD refuses the BAR for GPU %u: an unknown GPU, an address in use, or no path from the GPU to the "
				"device. Put both below one switch or root complex",
				gpu_id);
	case ENODEV:
		return gnv_fail(-ENODEV,
				"GPU %u has no address space in this process, or the BAR was revoked. Initialise the ROCm runtime "
				"first, and do not reset the device meanwhile",
				gpu_id);
	case EBADF:
		return gnv_fail(-EBADF, "KFD belongs to the process that opened it. Open the GPU after fork(), not before");
	case ENOMEM:
		return gnv_fail(-ENOMEM, "the kernel has no memory for a mapping to GPU %u", gpu_id);
	default:
		return gnv_fail(ret, "KFD cannot import the BAR for GPU %u: %s", gpu_id, strerror(-ret));
	}
}

static int map_failed(uint32_t gpu_id, int ret)
{
	if (ret == -ENODEV)
		return gnv_fail(
			-ENODEV,
			"the BAR was revoked while it was mapped to GPU %u: its device was reset or does not decode memory. "
			"Map it again after that",
			gpu_id);
	if (ret == -EINVAL)
		return gnv_fail(-EINVAL, "KFD cannot map the BAR to GPU %u: the address is taken. Leave address space free",
				gpu_id);
	return gnv_fail(ret, "KFD cannot map the BAR to GPU %u: %s", gpu_id, strerror(-ret));
}

static int map_to_gpu(const struct gnv_kfd_map *map)
{
	struct gnv_kfd_map_memory arg = { .handle = map->handle, .gpu_ids = (uintptr_t)&map->gpu_id, .count = 1 };
	int ret = call(map->kfd, GNV_KFD_MAP_MEMORY, &arg);

	if (!ret && arg.done != 1)
		ret = -EIO;
	return ret ? map_failed(map->gpu_id, ret) : 0;
}

static int free_handle(const struct gnv_kfd_map *map)
{
	struct gnv_kfd_free_memory arg = { .handle = map->handle };

	return call(map->kfd, GNV_KFD_FREE_MEMORY, &arg);
}

static int kept(const struct gnv_kfd_map *map, int ret)
{
	return gnv_fail(-EBUSY, "GPU %u does not release a BAR: %s. The device must stay open until the process ends",
			map->gpu_id, strerror(-ret));
}

static void drop(struct gnv_kfd_map *map)
{
	close(map->dmabuf);
	if (map->va)
		munmap(map->va, map->len);
	if (map->kfd >= 0)
		close(map->kfd);
	memset(map, 0, sizeof(*map));
	map->kfd = map->dmabuf = -1;
}

/* With the node open: addresses, handle, mapping. After a failure, drop() undoes the earlier ones. */
static int import_at(struct gnv_kfd_map *map)
{
	struct gnv_kfd_import_dmabuf arg = { .gpu_id = map->gpu_id, .dmabuf = (uint32_t)map->dmabuf };
	void *va = mmap(NULL, map->len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int ret;

	if (va == MAP_FAILED)
		return gnv_fail(-ENOMEM, "no %zu bytes of address space for a BAR", map->len);
	map->va = va;
	arg.va = (uintptr_t)va;
	ret = call(map->kfd, GNV_KFD_IMPORT_DMABUF, &arg);
	if (ret)
		return import_failed(map->gpu_id, ret);
	map->handle = arg.handle;
	ret = map_to_gpu(map);
	if (ret) {
		int freed = free_handle(map);

		if (freed)
			return kept(map, freed);
	}
	return ret;
}

int gnv_kfd_import(uint32_t gpu_id, int dmabuf, size_t len, struct gnv_kfd_map *map)
{
	int ret;

	*map = (struct gnv_kfd_map){ .kfd = -1, .dmabuf = dmabuf, .gpu_id = gpu_id, .len = len };
	map->kfd = open_node();
	ret = map->kfd < 0 ? map->kfd : import_at(map);
	if (ret && ret != -EBUSY)
		drop(map);
	return ret;
}

static int unmap(struct gnv_kfd_map *map)
{
	struct gnv_kfd_map_memory arg = { .handle = map->handle, .gpu_ids = (uintptr_t)&map->gpu_id, .count = 1 };
	int ret = map->empty ? 0 : call(map->kfd, GNV_KFD_UNMAP_MEMORY, &arg);

	if (!ret && !map->empty)
		ret = free_handle(map);
	if (ret)
		return kept(map, ret);
	map->empty = true;
	return 0;
}

int gnv_kfd_fence_off(struct gnv_kfd_map *map)
{
	struct gnv_kfd_alloc_memory arg = { .va = (uintptr_t)map->va,
					    .size = map->len,
					    .gpu_id = map->gpu_id,
					    .flags = GNV_KFD_ALLOC_GTT | GNV_KFD_ALLOC_WRITABLE | GNV_KFD_ALLOC_NO_SUBSTITUTE };
	int ret = unmap(map);

	if (ret)
		return ret;
	ret = call(map->kfd, GNV_KFD_ALLOC_MEMORY, &arg);
	if (ret)
		return gnv_fail(ret, "KFD has no memory in the place of a BAR for GPU %u: %s", map->gpu_id, strerror(-ret));
	map->handle = arg.handle;
	ret = map_to_gpu(map);
	map->empty = ret && !free_handle(map);
	return ret;
}

int gnv_kfd_release(struct gnv_kfd_map *map)
{
	int ret = unmap(map);

	if (!ret)
		drop(map);
	return ret;
}

int gnv_kfd_owns(uint32_t gpu_id, int drm_fd)
{
	struct gnv_kfd_acquire_vm arg = { .drm_fd = (uint32_t)drm_fd, .gpu_id = gpu_id };
	int kfd = open_node(), ret;

	if (kfd < 0)
		return kfd;
	ret = call(kfd, GNV_KFD_ACQUIRE_VM, &arg);
	close(kfd);
	if (ret == -EBUSY)
		return gnv_fail(-EBUSY, "the ROCm runtime does not use libdrm's address space of GPU %u. Use ROCm 6 or newer",
				gpu_id);
	if (ret == -EINVAL)
		return gnv_fail(-EINVAL, "KFD knows no GPU %u for this render node. Give the container both nodes of the same GPU",
				gpu_id);
	return ret ? gnv_fail(ret, "KFD does not report the address space of GPU %u: %s", gpu_id, strerror(-ret)) : 0;
}
