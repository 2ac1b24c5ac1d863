/* SPDX-License-Identifier: MIT */
/*
 * A KFD that knows two things: whose address space a GPU has, and imports of DMA-BUFs, which it maps at the given address: there
 * the lanes, which are threads of this process, find the BAR.
 */
#include "seam_gpu.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <libdrm/drm.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/amd/uapi/kfd.h"
#include "seam.h"

#define RENDER "renderD200"
#define FDINFO "/proc/self/fdinfo/"

static struct {
	void *va;
	int dmabuf; /* or -1: memory of the host */
	size_t len; /* of that */
	bool mapped;
} import[8]; /* by handle - 1 */

static ino_t prime; /* what the render node, since it was opened last, has a handle of; or 0 */

/*
 * What the kernel says of that. Each opening of a render node maps the seq64 buffer of the whole device, 2 MiB in memory of the host,
 * into the new address space (Linux 7.2 amdgpu_kms.c, amdgpu_driver_open_kms; amdgpu_seq64.c, amdgpu_seq64_map), and it is counted
 * (amdgpu_fdinfo.c, amdgpu_show_fdinfo); with it lie page tables, on an APU in the same memory.
 */
#define OPENED_KIB 2064u
static int open_fdinfo(void)
{
	int fd = memfd_create("fdinfo", MFD_CLOEXEC);
	uint64_t host = prime && seam.in_host ? seam.in_host(prime) : 0;

	dprintf(fd, "pos:\t0\ndrm-driver:\tamdgpu\ndrm-memory-vram:\t4 KiB\ndrm-memory-gtt: \t%llu KiB\n",
		OPENED_KIB + (unsigned long long)host / 1024);
	lseek(fd, 0, SEEK_SET);
	return fd;
}

static int answer(int err)
{
	errno = err;
	return err ? -1 : 0;
}

static int import_dmabuf(struct gnv_kfd_import_dmabuf *arg)
{
	int err = seam_refuses(SEAM_KFD_IMPORT);
	unsigned i;

	for (i = 0; i < 8 && import[i].va; i++)
		;
	if (err || i == 8)
		return answer(err ? err : ENOMEM);
	import[i].va = (void *)(uintptr_t)arg->va;
	import[i].dmabuf = (int)arg->dmabuf;
	arg->handle = i + 1;
	return 0;
}

/* Memory of the host where an import was, whose addresses are the process's still. */
static int alloc_memory(struct gnv_kfd_alloc_memory *arg)
{
	unsigned i;

	for (i = 0; i < 8 && import[i].va; i++)
		;
	if (i == 8 || !(arg->flags & GNV_KFD_ALLOC_GTT))
		return answer(EINVAL);
	import[i].va = (void *)(uintptr_t)arg->va;
	import[i].dmabuf = -1;
	import[i].len = arg->size;
	arg->handle = i + 1;
	return 0;
}

static int map_memory(struct gnv_kfd_map_memory *arg)
{
	int err = seam_refuses(SEAM_KFD_MAP);
	size_t len;

	if (import[arg->handle - 1].dmabuf < 0) {
		mmap(import[arg->handle - 1].va, import[arg->handle - 1].len, PROT_READ | PROT_WRITE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		import[arg->handle - 1].mapped = true;
		arg->done = 1;
		return 0;
	}
	if (err || !seam_map(import[arg->handle - 1].dmabuf, import[arg->handle - 1].va, SEAM_WAY_KFD, &len))
		return answer(err ? err : EINVAL);
	import[arg->handle - 1].mapped = true;
	arg->done = 1;
	return 0;
}

static int unmap_memory(const struct gnv_kfd_map_memory *arg)
{
	if (import[arg->handle - 1].dmabuf >= 0)
		seam_unmap(import[arg->handle - 1].va, true);
	import[arg->handle - 1].mapped = false;
	return 0;
}

static int free_memory(const struct gnv_kfd_free_memory *arg)
{
	if (import[arg->handle - 1].mapped && !seam.broke)
		seam.broke = "KFD: memory is unmapped before it is freed";
	import[arg->handle - 1].va = NULL;
	return 0;
}

bool seam_gpu_answers(int fd, unsigned long request, void *arg, int *ret)
{
	(void)fd;
	if (!seam.gpu_nodes)
		return false;
	switch (request) {
	case DRM_IOCTL_PRIME_FD_TO_HANDLE: {
		struct stat st;

		prime = fstat(((struct drm_prime_handle *)arg)->fd, &st) ? 0 : st.st_ino;
		*ret = 0;
		break;
	}
	case GNV_KFD_GET_VERSION:
		*(struct gnv_kfd_get_version *)arg = (struct gnv_kfd_get_version){ 1, 18 };
		*ret = 0;
		break;
	case GNV_KFD_ACQUIRE_VM:
		/* As kfd_ioctl_acquire_vm() (Linux kfd_chardev.c) replies once the runtime has given it a render node. */
		*ret = answer(((struct gnv_kfd_acquire_vm *)arg)->drm_fd == SEAM_DRM_FD ? 0 : EBUSY);
		break;
	case GNV_KFD_IMPORT_DMABUF:
		*ret = import_dmabuf(arg);
		break;
	case GNV_KFD_ALLOC_MEMORY:
		*ret = alloc_memory(arg);
		break;
	case GNV_KFD_MAP_MEMORY:
		*ret = map_memory(arg);
		break;
	case GNV_KFD_UNMAP_MEMORY:
		*ret = unmap_memory(arg);
		break;
	case GNV_KFD_FREE_MEMORY:
		*ret = free_memory(arg);
		break;
	default:
		return false;
	}
	return true;
}

int open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	if (seam.gpu_nodes && !strcmp(path, "/dev/dri/" RENDER))
		prime = 0;
	if (seam.gpu_nodes && (!strcmp(path, "/dev/kfd") || !strcmp(path, "/dev/dri/" RENDER)))
		return memfd_create("node", MFD_CLOEXEC);
	if (seam.gpu_nodes && !strncmp(path, FDINFO, strlen(FDINFO)))
		return open_fdinfo();
	va_start(args, flags);
	mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(args, mode_t) : 0;
	va_end(args);
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

/* A GPU's folder "drm" holds the name of its render node. */
DIR *opendir(const char *path)
{
	static char folder[] = "/tmp/gpunvme-seam-XXXXXX";
	static bool made;
	DIR *(*real)(const char *);
	const char *end = strrchr(path, '/');
	char name[64];

	*(void **)&real = dlsym(RTLD_NEXT, "opendir");
	if (!seam.gpu_nodes || !end || strcmp(end, "/drm"))
		return real(path);
	if (!made) {
		if (!mkdtemp(folder))
			return NULL;
		snprintf(name, sizeof(name), "%s/" RENDER, folder);
		made = !mkdir(name, 0700);
	}
	return real(folder);
}
