/* SPDX-License-Identifier: MIT */
/* System calls are made past the seam (seam.h), which belongs to the library's own. */
#include "bar.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/vfio/uapi/iommufd.h"
#include "os/vfio/uapi/vfio.h"
#include "mocks/kernel/seam.h"
#include "mocks/kernel/vram_test.h"

#define PAGE 4096u
#define BAR 2u
#define PAGES_MAX 65536u
#define NODE_BYTES (64u << 20) /* what the exporter of a patched kernel has */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	unsigned users;
	int device, iommufd;
	char *ptr;
	size_t pages;
	off_t offset; /* of the BAR in the device's file */
	bool taken[PAGES_MAX];
	int dmabuf[PAGES_MAX]; /* that begins at this page, of the exporter */
} bar = { .device = -1, .iommufd = -1 };

static int call(int fd, unsigned long request, void *arg)
{
	int ret = (int)syscall(SYS_ioctl, fd, request, arg);

	return ret < 0 ? -errno : ret;
}

bool mock_bar_address(uint32_t *id, uint32_t *domain)
{
	const char *text = getenv("MOCK_BAR");
	unsigned bus, device, function;

	if (!text || sscanf(text, "%4x:%2x:%2x.%1x", domain, &bus, &device, &function) != 4)
		return false;
	*id = bus << 8 | device << 3 | function;
	return true;
}

static int open_node(void)
{
	char path[300], node[300] = "";
	struct dirent *entry;
	DIR *dir;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/vfio-dev", getenv("MOCK_BAR"));
	dir = opendir(path);
	while (dir && (entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			snprintf(node, sizeof(node), "/dev/vfio/devices/%s", entry->d_name);
	if (dir)
		closedir(dir);
	return (int)syscall(SYS_openat, AT_FDCWD, node, O_RDWR | O_CLOEXEC);
}

static const char *node(void)
{
	return getenv("MOCK_VRAM");
}

/* Room for the buffers that the exporter gives (contrib/kernel/vram_test.c). */
static int bring_up_node(void)
{
	bar.device = (int)syscall(SYS_openat, AT_FDCWD, node(), O_RDWR | O_CLOEXEC);
	if (bar.device < 0)
		return -errno;
	bar.pages = NODE_BYTES / PAGE;
	bar.ptr = mmap(NULL, NODE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return bar.ptr == MAP_FAILED ? -errno : 0;
}

/* A device replies only when it is bound; its memory only when it decodes. */
static int bring_up_device(void)
{
	struct gnv_vfio_bind_iommufd bind = { .argsz = sizeof(bind) };
	struct vfio_region_info config = { .argsz = sizeof(config), .index = VFIO_PCI_CONFIG_REGION_INDEX };
	struct vfio_region_info region = { .argsz = sizeof(region), .index = VFIO_PCI_BAR0_REGION_INDEX + BAR };
	uint16_t command = PCI_COMMAND_MEMORY;
	int ret;

	bar.device = open_node();
	bar.iommufd = (int)syscall(SYS_openat, AT_FDCWD, "/dev/iommu", O_RDWR | O_CLOEXEC);
	if (bar.device < 0 || bar.iommufd < 0)
		return -ENODEV;
	bind.iommufd = bar.iommufd;
	ret = call(bar.device, GNV_VFIO_BIND_IOMMUFD, &bind);
	if (!ret)
		ret = call(bar.device, VFIO_DEVICE_GET_REGION_INFO, &config);
	if (!ret && pwrite(bar.device, &command, 2, (off_t)config.offset + PCI_COMMAND) != 2)
		ret = -EIO;
	if (!ret)
		ret = call(bar.device, VFIO_DEVICE_GET_REGION_INFO, &region);
	if (ret)
		return ret;
	bar.pages = region.size / PAGE < PAGES_MAX ? region.size / PAGE : PAGES_MAX;
	bar.offset = (off_t)region.offset;
	bar.ptr = mmap(NULL, bar.pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, bar.device, bar.offset);
	return bar.ptr == MAP_FAILED ? -errno : 0;
}

static void put_down(void)
{
	if (bar.ptr && bar.ptr != MAP_FAILED)
		munmap(bar.ptr, bar.pages * PAGE);
	if (bar.device >= 0)
		syscall(SYS_close, bar.device);
	if (bar.iommufd >= 0)
		syscall(SYS_close, bar.iommufd);
	bar.device = bar.iommufd = -1;
	bar.ptr = NULL;
	memset(bar.taken, 0, sizeof(bar.taken));
	if (&seam)
		seam.vram = NULL;
}

int mock_bar_open(void)
{
	int ret = 0;

	if (!getenv("MOCK_BAR"))
		return 0;
	pthread_mutex_lock(&lock);
	if (!bar.users++) {
		ret = node() ? bring_up_node() : bring_up_device();
		if (ret) {
			fprintf(stderr, "mock: %s cannot be its memory: %s\n", getenv("MOCK_BAR"), strerror(-ret));
			put_down();
			bar.users--;
		} else if (&seam) {
			seam.vram_len = bar.pages * PAGE;
			seam.vram = bar.ptr;
		}
	}
	pthread_mutex_unlock(&lock);
	return ret;
}

void mock_bar_close(void)
{
	pthread_mutex_lock(&lock);
	if (bar.users && !--bar.users)
		put_down();
	pthread_mutex_unlock(&lock);
}

/* The pages at `ptr`, from where they are. */
static bool place(char *ptr, size_t len)
{
	struct vram_test_alloc alloc = { .size = len };
	int fd = bar.device;

	if (node()) {
		if (call(bar.device, VRAM_TEST_ALLOC, &alloc))
			return false;
		fd = bar.dmabuf[(size_t)(ptr - bar.ptr) / PAGE] = alloc.fd;
	}
	return mmap(ptr, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, node() ? 0 : bar.offset + (ptr - bar.ptr)) == ptr;
}

char *mock_bar_alloc(size_t len)
{
	size_t want = len / PAGE, at = 0, run = 0;
	char *ptr = NULL;

	pthread_mutex_lock(&lock);
	for (; at < bar.pages && run < want; at++)
		run = bar.taken[at] ? 0 : run + 1;
	if (bar.ptr && run == want && place(bar.ptr + (at - want) * PAGE, len)) {
		memset(&bar.taken[at - want], 1, want);
		ptr = bar.ptr + (at - want) * PAGE;
	}
	pthread_mutex_unlock(&lock);
	return ptr;
}

void mock_bar_free(char *ptr, size_t len)
{
	pthread_mutex_lock(&lock);
	mmap(ptr, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	memset(&bar.taken[(size_t)(ptr - bar.ptr) / PAGE], 0, len / PAGE);
	if (node())
		syscall(SYS_close, bar.dmabuf[(size_t)(ptr - bar.ptr) / PAGE]);
	pthread_mutex_unlock(&lock);
}

int mock_bar_export(const char *ptr, size_t len)
{
	struct gnv_vfio_feature_dma_buf feature = { .argsz = sizeof(feature),
						    .flags = VFIO_DEVICE_FEATURE_GET | GNV_VFIO_FEATURE_DMA_BUF,
						    .region_index = BAR,
						    .open_flags = O_RDWR | O_CLOEXEC,
						    .nr_ranges = 1,
						    .offset = (uint64_t)(ptr - bar.ptr),
						    .length = len };

	if (node())
		return (int)syscall(SYS_fcntl, bar.dmabuf[(size_t)(ptr - bar.ptr) / PAGE], F_DUPFD_CLOEXEC, 3);
	return call(bar.device, VFIO_DEVICE_FEATURE, &feature);
}
