/* SPDX-License-Identifier: MIT */
#include "seam.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/vfio.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/vfio/uapi/iommufd.h"
#include "os/vfio/uapi/vfio.h"
#include "seam_gpu.h"

#define ROOM 512u
#define REG_CC 0x14
#define REG_CSTS 0x1c
#define REG_ASQ 0x28

struct seam seam;

/* A range of a BAR that a DMA-BUF stands for; a mapping of it; what a controller has of it or of the GPU. */
struct export
{
	ino_t dmabuf;
	int device;
	uint32_t bar;
	uint64_t offset, len;
};
struct view {
	void *ptr;
	size_t len;
	int device;
};
struct dma {
	int space;
	uint64_t iova, len;
	ino_t dmabuf;	 /* or 0 */
	uintptr_t vaddr; /* or 0 */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* protects all below */
static struct export exports[ROOM];
static unsigned exported; /* ever: the oldest are forgotten */
static struct view views[ROOM];
static struct dma dmas[ROOM];
static int devices[16]; /* open VFIO devices, + 1 */

static void rule(bool kept, const char *what)
{
	if (!kept && !seam.broke)
		seam.broke = what;
}

static ino_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

void seam_reset(void)
{
	memset(seam.refuse, 0, sizeof(seam.refuse));
	memset(seam.seen, 0, sizeof(seam.seen));
	seam.deaf = 0;
}

int seam_refuses(enum seam_call call)
{
	unsigned n = __atomic_add_fetch(&seam.seen[call], 1, __ATOMIC_RELAXED);

	return seam.refuse[call].err && n >= seam.refuse[call].from && n <= seam.refuse[call].upto ? seam.refuse[call].err : 0;
}

__attribute__((constructor)) static void read_environment(void)
{
	static const char *const names[SEAM_CALLS] = { "map_file", "map_vram", "export", "kfd_import", "kfd_map", "interop" };
	const char *text = getenv("SEAM_REFUSE");
	unsigned from = 1, count = 1u << 30;
	char name[32];
	int err, i;

	seam.gpu_nodes = getenv("SEAM_GPU_NODES");
	if (!text || sscanf(text, "%31[^:]:%d:%u:%u", name, &err, &from, &count) < 2)
		return;
	for (i = 0; i < SEAM_CALLS; i++) {
		if (strcmp(names[i], name))
			continue;
		seam.refuse[i].err = err;
		seam.refuse[i].from = from;
		seam.refuse[i].upto = from + count - 1;
	}
}

static int call(int fd, unsigned long request, void *arg)
{
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

static int refused(int err)
{
	errno = err;
	return -1;
}

/* ---- BARs that are mapped ---- */

static void remember_export(int dmabuf, int device, const struct gnv_vfio_feature_dma_buf *arg)
{
	pthread_mutex_lock(&lock);
	exports[exported++ % ROOM] = (struct export){ inode_of(dmabuf), device, arg->region_index, arg->offset, arg->length };
	pthread_mutex_unlock(&lock);
}

static bool find_export(ino_t dmabuf, struct export *out)
{
	unsigned i;
	bool found = false;

	pthread_mutex_lock(&lock);
	for (i = 0; i < ROOM && !found; i++)
		if (exports[i].dmabuf == dmabuf && dmabuf) {
			*out = exports[i];
			found = true;
		}
	pthread_mutex_unlock(&lock);
	return found;
}

static void remember_view(void *ptr, size_t len, int device)
{
	unsigned i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < ROOM && views[i].ptr; i++)
		;
	rule(i < ROOM, "the seam's book is full");
	if (i < ROOM)
		views[i] = (struct view){ ptr, len, device };
	pthread_mutex_unlock(&lock);
}

void *seam_map(int dmabuf, void *at, enum seam_way way, size_t *len)
{
	struct vfio_region_info region = { .argsz = sizeof(region) };
	bool deaf = seam.deaf & way;
	struct export e;
	void *ptr;

	if (!find_export(inode_of(dmabuf), &e))
		return NULL;
	region.index = e.bar;
	if (call(e.device, VFIO_DEVICE_GET_REGION_INFO, &region))
		return NULL;
	ptr = mmap(at, e.len, PROT_READ | PROT_WRITE, (deaf ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED) | (at ? MAP_FIXED : 0),
		   deaf ? -1 : e.device, deaf ? 0 : (off_t)(region.offset + e.offset));
	if (ptr == MAP_FAILED)
		return NULL;
	remember_view(ptr, e.len, e.device);
	if (way != SEAM_WAY_INTEROP && seam.mapped)
		seam.mapped(ptr, e.len);
	*len = e.len;
	return ptr;
}

void seam_unmap(void *ptr, bool reserve)
{
	unsigned i;

	if (seam.unmapped)
		seam.unmapped(ptr);
	pthread_mutex_lock(&lock);
	for (i = 0; i < ROOM && views[i].ptr != ptr; i++)
		;
	rule(i < ROOM, "a BAR is unmapped that the GPU does not map");
	if (i < ROOM && reserve)
		mmap(ptr, views[i].len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	else if (i < ROOM)
		munmap(ptr, views[i].len);
	if (i < ROOM)
		views[i].ptr = NULL;
	pthread_mutex_unlock(&lock);
}

void seam_fence_off(void *ptr, size_t len)
{
	unsigned i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < ROOM && views[i].ptr != ptr; i++)
		;
	rule(i < ROOM && views[i].len <= len, "memory takes the place of a BAR that the GPU does not map");
	if (i < ROOM) {
		mmap(ptr, views[i].len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
		views[i].device = -1; /* no longer that device's */
	}
	pthread_mutex_unlock(&lock);
}

/*
 * Before a device is reset the kernel moves its DMA-BUFs away from their importers (Linux vfio_pci_dmabuf.c,
 * vfio_pci_dma_buf_move), and amdgpu drops the page table entries (amdgpu_dma_buf.c, amdgpu_dma_buf_move_notify): a store there now
 * faults.
 */
static void bars_vanish(int device)
{
	unsigned i;

	if (seam.evict)
		seam.evict();
	pthread_mutex_lock(&lock);
	for (i = 0; i < ROOM; i++)
		if (views[i].ptr && views[i].device == device)
			mprotect(views[i].ptr, views[i].len, PROT_NONE);
	pthread_mutex_unlock(&lock);
}

/* ---- What controllers have ---- */

static void remember_dma(struct dma dma)
{
	unsigned i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < ROOM && dmas[i].len; i++)
		;
	rule(i < ROOM, "the seam's book is full");
	if (i < ROOM)
		dmas[i] = dma;
	pthread_mutex_unlock(&lock);
}

static uint64_t reg(int device, uint64_t bar, off_t at, size_t size)
{
	uint64_t value = 0;

	return pread(device, &value, size, (off_t)bar + at) == (ssize_t)size ? value : 0;
}

/* With the lock: no controller that runs has its admin queue there. Every device is asked: one that is reset has none. */
static void rule_stopped(uint64_t iova, uint64_t len)
{
	struct vfio_region_info region = { .argsz = sizeof(region), .index = VFIO_PCI_BAR0_REGION_INDEX };
	unsigned i;

	for (i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		uint64_t asq;

		if (!devices[i] || call(devices[i] - 1, VFIO_DEVICE_GET_REGION_INFO, &region))
			continue;
		asq = reg(devices[i] - 1, region.offset, REG_ASQ, 8);
		if (asq && asq >= iova && asq - iova < len)
			rule(!(reg(devices[i] - 1, region.offset, REG_CC, 4) & 1) &&
				     !(reg(devices[i] - 1, region.offset, REG_CSTS, 4) & 1),
			     "the admin queue is unmapped while the controller runs");
	}
}

static void forget_dma(int space, uint64_t iova, uint64_t len)
{
	unsigned i;

	pthread_mutex_lock(&lock);
	rule_stopped(iova, len);
	for (i = 0; i < ROOM; i++)
		if (dmas[i].len && dmas[i].space == space && dmas[i].iova == iova)
			dmas[i].len = 0;
	pthread_mutex_unlock(&lock);
}

void seam_freed(const void *ptr, size_t len, ino_t dmabuf)
{
	uintptr_t at = (uintptr_t)ptr;
	unsigned i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < ROOM; i++)
		rule(!dmas[i].len || !((dmabuf && dmas[i].dmabuf == dmabuf) || (dmas[i].vaddr >= at && dmas[i].vaddr < at + len)),
		     "memory of the GPU is freed while the controller has it");
	pthread_mutex_unlock(&lock);
}

static int map_file(int fd, struct gnv_iommufd_map_file *arg)
{
	int err = seam_refuses(SEAM_MAP_FILE), ret;
	ino_t dmabuf = inode_of(arg->fd);
	int instead = seam.instead && !err ? seam.instead(dmabuf) : -1;

	if (instead >= 0)
		arg->fd = instead;
	ret = err ? refused(err) : call(fd, GNV_IOMMUFD_MAP_FILE, arg);
	if (!ret)
		remember_dma((struct dma){ fd, arg->iova, arg->length, dmabuf, 0 });
	err = errno;
	if (seam.attached)
		seam.attached(dmabuf, ret);
	errno = err;
	return ret;
}

static int map_dma(int fd, struct vfio_iommu_type1_dma_map *arg)
{
	bool vram = seam.vram && arg->vaddr - (uintptr_t)seam.vram < seam.vram_len;
	int err = vram ? seam_refuses(SEAM_MAP_VRAM) : 0, ret = err ? refused(err) : call(fd, VFIO_IOMMU_MAP_DMA, arg);

	if (!ret && vram)
		remember_dma((struct dma){ fd, arg->iova, arg->size, 0, arg->vaddr });
	return ret;
}

/* ---- Devices ---- */

static void device_opened(int fd)
{
	unsigned i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < 16 && devices[i]; i++)
		;
	if (i < 16)
		devices[i] = fd + 1;
	pthread_mutex_unlock(&lock);
}

int close(int fd)
{
	unsigned i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < 16; i++)
		if (devices[i] == fd + 1)
			devices[i] = 0;
	for (i = 0; i < ROOM; i++) {
		rule(!views[i].ptr || views[i].device != fd, "a device is closed while the GPU maps its BAR");
		if (dmas[i].space == fd)
			dmas[i].len = 0; /* the last descriptor of a space takes its mappings along; a dup has no entries */
	}
	pthread_mutex_unlock(&lock);
	return (int)syscall(SYS_close, fd);
}

static int feature(int fd, struct vfio_device_feature *arg)
{
	bool export = (arg->flags & VFIO_DEVICE_FEATURE_MASK) == GNV_VFIO_FEATURE_DMA_BUF;
	int err = export && !(arg->flags & VFIO_DEVICE_FEATURE_PROBE) ? seam_refuses(SEAM_EXPORT) : 0;
	int ret = err ? refused(err) : call(fd, VFIO_DEVICE_FEATURE, arg);

	if (export && ret >= 0 && !(arg->flags & VFIO_DEVICE_FEATURE_PROBE))
		remember_export(ret, fd, (const struct gnv_vfio_feature_dma_buf *)(const void *)arg);
	return ret;
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;
	int ret;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (seam_gpu_answers(fd, request, arg, &ret))
		return ret;
	switch (request) {
	case GNV_IOMMUFD_MAP_FILE:
		return map_file(fd, arg);
	case VFIO_IOMMU_MAP_DMA:
		return map_dma(fd, arg);
	case GNV_IOMMUFD_UNMAP:
		forget_dma(fd, ((struct gnv_iommufd_unmap *)arg)->iova, ((struct gnv_iommufd_unmap *)arg)->length);
		break;
	case VFIO_IOMMU_UNMAP_DMA:
		forget_dma(fd, ((struct vfio_iommu_type1_dma_unmap *)arg)->iova, ((struct vfio_iommu_type1_dma_unmap *)arg)->size);
		break;
	case VFIO_DEVICE_FEATURE:
		return feature(fd, arg);
	case VFIO_DEVICE_RESET:
		bars_vanish(fd);
		break;
	default:
		break;
	}
	ret = call(fd, request, arg);
	if (request == GNV_VFIO_BIND_IOMMUFD && !ret)
		device_opened(fd);
	if (request == VFIO_GROUP_GET_DEVICE_FD && ret >= 0)
		device_opened(ret);
	return ret;
}
