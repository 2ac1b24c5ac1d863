/* SPDX-License-Identifier: MIT */
#include "fake_kernel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include <gpunvme/spec.h>

#include "os/vfio/uapi/iommufd.h"
#include "os/vfio/uapi/vfio.h"

struct fake_kernel fake_kernel;
static int iommufd = -1;
static ino_t device_inode, iommufd_inode;

int __real_open(const char *path, int flags, ...);
int __real_ioctl(int fd, unsigned long request, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_ioctl(int fd, unsigned long request, ...);

static ino_t inode_of(int fd)
{
	struct stat st;

	return fstat(fd, &st) ? 0 : st.st_ino;
}

void fake_kernel_reset(void)
{
	if (fake_kernel.req > 0)
		close(fake_kernel.req);
	if (fake_kernel.err > 0)
		close(fake_kernel.err);
	if (fake_kernel.device > 0)
		close(fake_kernel.device);
	if (iommufd > 0)
		close(iommufd);
	memset(&fake_kernel, 0, sizeof(fake_kernel));
	fake_kernel.req = fake_kernel.err = -1;
	fake_kernel.command_at_reset = FAKE_NO_RESET;
	fake_kernel.phys = 0x123400000;
	fake_kernel.device = memfd_create("device", MFD_CLOEXEC);
	iommufd = memfd_create("iommufd", MFD_CLOEXEC);
	assert_true(fake_kernel.device > 0 && iommufd > 0 && !ftruncate(fake_kernel.device, FAKE_CONFIG + 4096));
	device_inode = inode_of(fake_kernel.device);
	iommufd_inode = inode_of(iommufd);
}

int __wrap_open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	if (!strcmp(path, "/dev/iommu") || !strcmp(path, "/dev/vfio/vfio"))
		return fcntl(iommufd, F_DUPFD_CLOEXEC, 3);
	if (!strcmp(path, "/dev/vfio/devices/" FAKE_NODE))
		return fcntl(fake_kernel.device, F_DUPFD_CLOEXEC, 3);
	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	return __real_open(path, flags, mode);
}

static int answer(int err)
{
	errno = err;
	return err ? -1 : 0;
}

static struct gnv_iommufd_range usable(uint64_t i)
{
	return (struct gnv_iommufd_range){ (fake_kernel.first_range + i) << 43, ((fake_kernel.first_range + i + 1) << 43) - FAKE_ALIGN - 1 };
}

/* As iommufd_ioas_iova_ranges() (Linux iommufd/ioas.c): as many as there is room for, how many there are, and -EMSGSIZE where more. */
static int iova_ranges(struct gnv_iommufd_iova_ranges *arg)
{
	struct gnv_iommufd_range *range = (struct gnv_iommufd_range *)(uintptr_t)arg->allowed_iovas;
	const unsigned count = FAKE_RANGES - fake_kernel.first_range, room = arg->num_iovas;

	for (uint64_t i = 0; i < room && i < count; i++)
		range[i] = usable(i);
	arg->num_iovas = count;
	arg->out_iova_alignment = FAKE_ALIGN;
	return answer(room < count ? EMSGSIZE : 0);
}

/* As vfio_iommu_type1_get_info(): where there is no room, how much it takes; after the structure its capabilities. */
static int type1_info(struct vfio_iommu_type1_info *info)
{
	struct vfio_iommu_type1_info_cap_iova_range *cap = (void *)(info + 1);
	const uint32_t count = FAKE_RANGES - fake_kernel.first_range;
	const uint32_t need = (uint32_t)(sizeof(*info) + sizeof(*cap) + count * sizeof(cap->iova_ranges[0]));
	const bool room = info->argsz >= need;

	*info = (struct vfio_iommu_type1_info){ .argsz = need, .flags = VFIO_IOMMU_INFO_CAPS, .cap_offset = room ? sizeof(*info) : 0 };
	if (!room)
		return 0;
	cap->header = (struct vfio_info_cap_header){ .id = VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, .version = 1 };
	cap->nr_iovas = count;
	for (uint32_t i = 0; i < count; i++)
		cap->iova_ranges[i] = (struct vfio_iova_range){ usable(i).start, usable(i).last };
	return 0;
}

static int map(const struct gnv_iommufd_map *arg)
{
	if (fake_kernel.maps == FAKE_MAPS || (arg->iova | arg->length) % 4096 || arg->iova % FAKE_ALIGN)
		return answer(EINVAL);
	fake_kernel.label = arg->iova;
	fake_kernel.map[fake_kernel.maps].iova = arg->iova;
	fake_kernel.map[fake_kernel.maps++].len = arg->length;
	return 0;
}

/* As iommufd_ioas_unmap(): whole mappings only, and how many bytes they had; none is an error. */
static int unmap(struct gnv_iommufd_unmap *arg)
{
	uint64_t bytes = 0;
	unsigned i = 0;

	while (i < fake_kernel.maps) {
		if (fake_kernel.map[i].iova < arg->iova || fake_kernel.map[i].iova + fake_kernel.map[i].len > arg->iova + arg->length) {
			i++;
			continue;
		}
		bytes += fake_kernel.map[i].len;
		fake_kernel.map[i] = fake_kernel.map[--fake_kernel.maps];
	}
	arg->length = bytes;
	return answer(bytes ? 0 : ENOENT);
}

static int get_pa(struct gnv_iommufd_get_pa *arg)
{
	uint64_t at = arg->iova - fake_kernel.label, limit = fake_kernel.piece ? fake_kernel.piece : arg->length;

	if (!fake_kernel.maps || arg->iova < fake_kernel.label)
		return answer(ENOENT);
	arg->out_phys = fake_kernel.phys + at;
	if (fake_kernel.hole_at && at >= fake_kernel.hole_at)
		arg->out_phys += 0x10000000;
	else if (fake_kernel.hole_at && at + limit > fake_kernel.hole_at)
		limit = fake_kernel.hole_at - at;
	arg->length = limit < arg->length || fake_kernel.piece > arg->length ? limit : arg->length;
	return 0;
}

static int on_iommufd(unsigned long request, void *arg)
{
	switch (request) {
	case GNV_IOMMUFD_IOAS_ALLOC:
		((struct gnv_iommufd_ioas_alloc *)arg)->out_ioas_id = FAKE_IOAS;
		return 0;
	case GNV_IOMMUFD_IOVA_RANGES:
		return iova_ranges(arg);
	case VFIO_IOMMU_GET_INFO:
		return type1_info(arg);
	case GNV_IOMMUFD_MAP:
		return map(arg);
	case GNV_IOMMUFD_UNMAP:
		return unmap(arg);
	case GNV_IOMMUFD_NOIOMMU_GET_PA:
		return get_pa(arg);
	default:
		return answer(ENOTTY);
	}
}

static int region_info(struct vfio_region_info *info)
{
	if (info->index == VFIO_PCI_BAR0_REGION_INDEX) {
		info->size = FAKE_BAR0_BYTES;
		info->flags = VFIO_REGION_INFO_FLAG_MMAP;
		return 0;
	}
	info->offset = FAKE_CONFIG;
	info->size = info->index == VFIO_PCI_CONFIG_REGION_INDEX ? 4096 : 0;
	return 0;
}

/* Keep what is armed, as the kernel does: descriptors of its own. */
static int set_irqs(const struct vfio_irq_set *set)
{
	int *slot = set->index == VFIO_PCI_REQ_IRQ_INDEX ? &fake_kernel.req : &fake_kernel.err, fd;

	memcpy(&fd, set->data, sizeof(fd));
	if (*slot >= 0)
		close(*slot);
	*slot = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return 0;
}

/* As vfio_pci_ioctl_get_pci_hot_reset_info() of Linux 7.2: no room is a reply, with how many there are. */
static int hot_reset_info(struct vfio_pci_hot_reset_info *info)
{
	const uint32_t room = (info->argsz - (uint32_t)sizeof(*info)) / (uint32_t)sizeof(info->devices[0]);

	if (!fake_kernel.slot)
		return answer(ENODEV);
	info->count = fake_kernel.slot;
	info->flags = 3; /* numbers of an IOMMUFD, and all of them are the caller's (uapi of Linux 6.6) */
	if (fake_kernel.slot > room)
		return answer(ENOSPC);
	memset(info->devices, 0, fake_kernel.slot * sizeof(info->devices[0]));
	return 0;
}

/* What stands in the registers of an NVMe controller is forgotten. */
static int forget_all(void)
{
	const uint64_t zero = 0;
	uint16_t command;

	if (pread(fake_kernel.device, &command, 2, FAKE_CONFIG + PCI_COMMAND) != 2 ||
	    pwrite(fake_kernel.device, &zero, 8, GPUNVME_REG_CC) != 8 || pwrite(fake_kernel.device, &zero, 4, GPUNVME_REG_CSTS) != 4)
		return answer(EIO);
	if (fake_kernel.command_at_reset == FAKE_NO_RESET)
		fake_kernel.command_at_reset = command;
	return 0;
}

/* By character device it wants no groups, and all affected devices in the caller's IOMMUFD. */
static int hot_reset(const struct vfio_pci_hot_reset *reset)
{
	if (reset->argsz < sizeof(*reset) || reset->flags || reset->count)
		return answer(EINVAL);
	return fake_kernel.slot == 1 ? forget_all() : answer(EPERM);
}

/*
 * The kernel asks for the device when its driver is removed. device_release_driver_internal() (Linux drivers/base/dd.c) has its lock
 * then, and pci_try_reset_function(), as __pci_reset_slot() and __pci_reset_bus(), takes it or fails (drivers/pci/pci.c).
 */
static bool is_removed(void)
{
	struct pollfd req = { fake_kernel.req, POLLIN, 0 };

	return fake_kernel.req >= 0 && poll(&req, 1, 0) == 1;
}

/* Before it is bound a device replies to nothing else (Linux vfio_main.c, vfio_device_fops_unl_ioctl: access_granted). */
static int on_device(unsigned long request, void *arg)
{
	if (!fake_kernel.bound && request != GNV_VFIO_BIND_IOMMUFD)
		return answer(EINVAL);
	switch (request) {
	case VFIO_DEVICE_GET_INFO:
		((struct vfio_device_info *)arg)->flags = (fake_kernel.no_reset ? 0 : VFIO_DEVICE_FLAGS_RESET) | VFIO_DEVICE_FLAGS_PCI;
		return 0;
	case VFIO_DEVICE_GET_REGION_INFO:
		return region_info(arg);
	case VFIO_DEVICE_GET_PCI_HOT_RESET_INFO:
		return hot_reset_info(arg);
	case VFIO_DEVICE_PCI_HOT_RESET:
		return is_removed() ? answer(EAGAIN) : hot_reset(arg);
	case VFIO_DEVICE_GET_IRQ_INFO:
		((struct vfio_irq_info *)arg)->count = 1;
		return 0;
	case VFIO_DEVICE_SET_IRQS:
		return set_irqs(arg);
	case VFIO_DEVICE_FEATURE: /* a DMA-BUF is any file here */
		return ((struct vfio_device_feature *)arg)->flags & VFIO_DEVICE_FEATURE_PROBE ?
			       0 :
			       fcntl(fake_kernel.device, F_DUPFD_CLOEXEC, 3);
	case GNV_VFIO_BIND_IOMMUFD:
		fake_kernel.bound = true;
		return 0;
	case VFIO_DEVICE_RESET:
		return is_removed() ? answer(EAGAIN) : forget_all();
	case GNV_VFIO_ATTACH_PT:
		return 0;
	default:
		return answer(ENOTTY);
	}
}

static size_t arg_bytes(unsigned long request, const void *arg)
{
	uint32_t size = 0;

	if (request != VFIO_DEVICE_RESET)
		memcpy(&size, arg, sizeof(size)); /* every structure begins with it */
	return size < sizeof(fake_kernel.call[0].arg) ? size : sizeof(fake_kernel.call[0].arg);
}

static int handle(ino_t inode, unsigned long request, void *arg)
{
	struct fake_call *call;

	assert_true(fake_kernel.calls < FAKE_CALLS);
	call = &fake_kernel.call[fake_kernel.calls++];
	call->request = request;
	memcpy(call->arg, arg ? arg : "", arg_bytes(request, arg));
	if (fake_kernel.calls == fake_kernel.fail_at || request == fake_kernel.fail_request)
		return answer(fake_kernel.fail_errno);
	return inode == device_inode ? on_device(request, arg) : on_iommufd(request, arg);
}

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	ino_t inode = inode_of(fd);
	va_list args;
	void *arg;
	int ret;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (inode != device_inode && inode != iommufd_inode)
		return __real_ioctl(fd, request, arg);
	pthread_mutex_lock(&lock);
	ret = handle(inode, request, arg);
	pthread_mutex_unlock(&lock);
	return ret;
}

const struct fake_call *fake_kernel_call(unsigned long request, unsigned n)
{
	for (unsigned i = 0; i < fake_kernel.calls; i++)
		if (fake_kernel.call[i].request == request && !n--)
			return &fake_kernel.call[i];
	return NULL;
}

unsigned fake_open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}
