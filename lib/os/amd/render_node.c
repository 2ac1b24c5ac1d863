/* SPDX-License-Identifier: MIT */
/* Reports of the render node of a GPU, without libdrm. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libdrm/amdgpu_drm.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/amd/drm.h"
#include "os/amd/nodes.h"
#include "os/linux/sysfs.h"
#include "util/log.h"

/* The node of the GPU for computations: /dev/dri/renderD128, ... A partition's is not in the folder of its card. */
static void find_render_node(const char *sys, const char *bdf, char *path, size_t size)
{
	unsigned minor = gnv_kfd_render(sys, bdf);
	char card[GNV_BDF_BYTES], folder[300];
	struct dirent *entry;
	DIR *dir;

	gnv_kfd_card(sys, bdf, card);
	snprintf(folder, sizeof(folder), "%s/bus/pci/devices/%s/drm", sys, card);
	dir = minor ? NULL : opendir(folder);
	path[0] = 0;
	if (minor)
		snprintf(path, size, "/dev/dri/renderD%u", minor);
	while (dir && (entry = readdir(dir)))
		if (!strncmp(entry->d_name, "renderD", 7))
			snprintf(path, size, "/dev/dri/%s", entry->d_name);
	if (dir)
		closedir(dir);
}

int gnv_drm_open_node(const char *sys, const char *bdf)
{
	char path[300];
	int fd;

	find_render_node(sys, bdf, path, sizeof(path));
	if (!path[0])
		return gnv_fail(-ENODEV, "%s has no render node. Load amdgpu for it", bdf);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 && (errno == EACCES || errno == EPERM))
		return gnv_fail(-EACCES, "%s: no permission. Add your user to the group render", path);
	return fd < 0 ? gnv_fail(-ENODEV, "%s: cannot open: %s", path, strerror(errno)) : fd;
}

int gnv_drm_check(const char *sys, const char *bdf)
{
	int fd = gnv_drm_open_node(sys, bdf);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* Read the kernel's report about the buffers that were opened by this descriptor. */
static int read_host_bytes(int fd, uint64_t *bytes)
{
	char path[48], text[4096];
	unsigned long long kib = 0;
	const char *line;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (gnv_sysfs_read(path, text, sizeof(text)))
		return -EOPNOTSUPP;
	line = strstr(text, "drm-memory-gtt:");
	if (!line || !strstr(text, "drm-memory-vram:") || sscanf(line, "drm-memory-gtt: %llu KiB", &kib) != 1)
		return -EOPNOTSUPP;
	*bytes = kib * 1024;
	return 0;
}

static int import_into(int fd, int dmabuf, uint32_t *handle)
{
	struct drm_prime_handle prime = { .fd = dmabuf };

	if (ioctl(fd, DRM_IOCTL_PRIME_FD_TO_HANDLE, &prime))
		return -EOPNOTSUPP;
	*handle = prime.handle;
	return 0;
}

/* A node that was just opened has memory of the host already: the kernel's own, for fences, and page tables. */
int gnv_drm_host_bytes(const char *sys, const char *bdf, int dmabuf, uint64_t *bytes)
{
	uint64_t before = 0, after = 0;
	uint32_t handle;
	int fd = gnv_drm_open_node(sys, bdf), ret;

	if (fd < 0)
		return -EOPNOTSUPP;
	ret = read_host_bytes(fd, &before);
	if (!ret)
		ret = import_into(fd, dmabuf, &handle);
	if (!ret)
		ret = read_host_bytes(fd, &after);
	close(fd); /* and the handle with it */
	if (!ret)
		*bytes = after > before ? after - before : 0;
	return ret;
}

bool gnv_drm_uncached(const char *sys, const char *bdf, int dmabuf)
{
	struct drm_amdgpu_gem_create_in made = { .domain_flags = 0 };
	struct drm_amdgpu_gem_op op = { .op = AMDGPU_GEM_OP_GET_GEM_CREATE_INFO, .value = (uintptr_t)&made };
	int fd = gnv_drm_open_node(sys, bdf);
	bool told;

	if (fd < 0)
		return false;
	told = !import_into(fd, dmabuf, &op.handle) && !ioctl(fd, DRM_IOCTL_AMDGPU_GEM_OP, &op);
	close(fd);
	return told && made.domain_flags & GNV_DRM_UNCACHED;
}
