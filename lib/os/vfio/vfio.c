/* SPDX-License-Identifier: MIT */
/*
 * Operations of a VFIO device file, however it was opened.
 * Invariant: descriptors are -1 when closed. Nothing here depends on the order in which the two kinds are opened.
 */
#include "os/vfio/vfio.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/pci_regs.h>
#include <linux/vfio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/vfio/uapi/vfio.h"
#include "os/linux/fork.h"
#include "util/checked.h"
#include "util/log.h"

int gnv_vfio_node(const char *path, const char *remedy)
{
	int fd;

	gnv_fork_begin();
	fd = gnv_fork_keep(open(path, O_RDWR | O_CLOEXEC));
	if (fd >= 0)
		return fd;
	if (errno == EACCES || errno == EPERM)
		return gnv_fail(-EACCES, "%s: no permission. Give it to your user (gpunvme bind --user NAME, or chown)", path);
	if (errno == EBUSY)
		return gnv_fail(-EBUSY, "%s is in use by another process. Stop that first", path);
	if (errno == ENOENT)
		return gnv_fail(-ENODEV, "%s does not exist. %s", path, remedy);
	return gnv_fail(-errno, "%s: cannot open: %s", path, strerror(errno));
}

int gnv_vfio_as_dup(const struct gnv_vfio_as *as, struct gnv_vfio_as *own)
{
	int fd;

	gnv_fork_begin();
	fd = gnv_fork_keep(fcntl(as->fd, F_DUPFD_CLOEXEC, 3));
	if (fd < 0)
		return gnv_fail(-EMFILE, "no descriptor for an address space. Raise RLIMIT_NOFILE (ulimit -n)");
	*own = (struct gnv_vfio_as){ fd, as->ioas };
	return 0;
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		gnv_fork_close(*fd);
	*fd = -1;
}

void gnv_vfio_as_close(struct gnv_vfio_as *as)
{
	close_fd(&as->fd);
}

static void learn_region(struct gnv_vfio *vfio, uint32_t index, struct gnv_vfio_region *region)
{
	struct vfio_region_info info = { .argsz = sizeof(info), .index = index };

	if (ioctl(vfio->fd, VFIO_DEVICE_GET_REGION_INFO, &info))
		return; /* size 0: absent */
	region->offset = info.offset;
	region->size = info.size;
	region->mappable = info.flags & VFIO_REGION_INFO_FLAG_MMAP;
}

/*
 * How many functions a hot reset would reset, too: all of the slot, or of the bus. If there is no room for them, the kernel reports
 * an error. Return: 0: there is no hot reset.
 */
static unsigned slot_mates(const struct gnv_vfio *vfio)
{
	/* With room for one. */
	struct vfio_pci_hot_reset_info info;
	uint32_t arg[(sizeof(info) + sizeof(struct vfio_pci_dependent_device)) / 4] = { sizeof(arg) };

	if (ioctl(vfio->fd, VFIO_DEVICE_GET_PCI_HOT_RESET_INFO, arg))
		return errno == ENOSPC ? 2 : 0;
	memcpy(&info, arg, sizeof(info));
	return info.count;
}

static int reset_slot(const struct gnv_vfio *vfio)
{
	union {
		struct vfio_pci_hot_reset reset;
		char room[sizeof(struct vfio_pci_hot_reset) + sizeof(int32_t)]; /* for one group */
	} arg = { .reset.argsz = sizeof(arg.reset) };

	/* By group, the caller must show that it owns all groups. By character device, the kernel knows. */
	if (vfio->group >= 0) {
		arg.reset.argsz = sizeof(arg);
		arg.reset.count = 1;
		memcpy(arg.room + sizeof(arg.reset), &vfio->group, sizeof(int32_t));
	}
	return ioctl(vfio->fd, VFIO_DEVICE_PCI_HOT_RESET, &arg);
}

static int learn(struct gnv_vfio *vfio)
{
	struct vfio_device_info info = { .argsz = sizeof(info) };
	unsigned i;

	if (ioctl(vfio->fd, VFIO_DEVICE_GET_INFO, &info))
		return gnv_fail(-errno, "%s: VFIO does not describe the device: %s", vfio->bdf, strerror(errno));
	if (info.flags & VFIO_DEVICE_FLAGS_RESET)
		vfio->reset_way = GNV_VFIO_RESET_FUNCTION;
	else
		vfio->reset_way = slot_mates(vfio) == 1 ? GNV_VFIO_RESET_SLOT : GNV_VFIO_RESET_NONE;
	for (i = 0; i < GNV_VFIO_BARS; i++)
		learn_region(vfio, VFIO_PCI_BAR0_REGION_INDEX + i, &vfio->bar[i]);
	learn_region(vfio, VFIO_PCI_CONFIG_REGION_INDEX, &vfio->config);
	return 0;
}

int gnv_vfio_open(gnv_vfio_take *take, const struct gnv_pci *pci, const struct gnv_vfio_as *share, struct gnv_vfio *vfio)
{
	int ret;

	memset(vfio, 0, sizeof(*vfio));
	memcpy(vfio->bdf, pci->bdf, sizeof(vfio->bdf));
	vfio->fd = vfio->as.fd = vfio->group = -1;
	ret = take(pci, share, vfio);
	if (!ret)
		ret = learn(vfio);
	if (ret)
		gnv_vfio_close(vfio);
	return ret;
}

static int config_read(const struct gnv_vfio *vfio, unsigned at, void *value, size_t size)
{
	return pread(vfio->fd, value, size, (off_t)(vfio->config.offset + at)) == (ssize_t)size ? 0 : -EIO;
}

static int config_write(const struct gnv_vfio *vfio, unsigned at, const void *value, size_t size)
{
	return pwrite(vfio->fd, value, size, (off_t)(vfio->config.offset + at)) == (ssize_t)size ? 0 : -EIO;
}

/* Bits are only ever added: a write with MEMORY clear, however short, would revoke every export of the BARs. */
static int command_add(const struct gnv_vfio *vfio, uint16_t bits)
{
	uint16_t command;
	int ret = config_read(vfio, PCI_COMMAND, &command, sizeof(command));

	command |= bits;
	if (!ret)
		ret = config_write(vfio, PCI_COMMAND, &command, sizeof(command));
	if (ret)
		return gnv_fail(ret, "%s: its PCI config space does not respond. Check power, slot and link", vfio->bdf);
	return 0;
}

/* VFIO switches INTx on when it opens a device, and a queue without its own interrupt asserts it. */
int gnv_vfio_enable(const struct gnv_vfio *vfio)
{
	return command_add(vfio, PCI_COMMAND_MEMORY | PCI_COMMAND_INTX_DISABLE);
}

int gnv_vfio_master(const struct gnv_vfio *vfio)
{
	return command_add(vfio, PCI_COMMAND_MASTER);
}

int gnv_vfio_reset(const struct gnv_vfio *vfio)
{
	if (vfio->fd < 0)
		return gnv_fail(-ENODEV, "%s was given back to the kernel", vfio->bdf);
	if (vfio->reset_way == GNV_VFIO_RESET_NONE)
		return gnv_fail(-EOPNOTSUPP,
				"%s has no reset of its own and is not alone in its slot. Close it, and remove and rescan it or restart the "
				"machine",
				vfio->bdf);
	if (vfio->reset_way == GNV_VFIO_RESET_SLOT ? reset_slot(vfio) : ioctl(vfio->fd, VFIO_DEVICE_RESET))
		return gnv_fail(-EIO, "%s was not reset: %s. Try again, or close it", vfio->bdf, strerror(errno));
	return 0;
}

int gnv_vfio_quiesce(const struct gnv_vfio *vfio, enum gnv_vfio_end *end)
{
	uint16_t command;

	*end = GNV_VFIO_END_RESET;
	if (vfio->fd < 0 || !gnv_vfio_reset(vfio))
		return 0; /* released: its bus mastering was ended before */
	if (config_read(vfio, PCI_COMMAND, &command, sizeof(command)))
		return -EIO;
	*end = command == 0xffff ? GNV_VFIO_END_GONE : GNV_VFIO_END_MASTER;
	if (*end == GNV_VFIO_END_GONE)
		return 0;
	command &= (uint16_t)~PCI_COMMAND_MASTER;
	if (config_write(vfio, PCI_COMMAND, &command, sizeof(command)) || config_read(vfio, PCI_COMMAND, &command, sizeof(command)))
		return -EIO;
	return command & PCI_COMMAND_MASTER ? -EIO : 0;
}

int gnv_vfio_map(const struct gnv_vfio *vfio, unsigned bar, uint64_t offset, size_t len, void **ptr)
{
	const struct gnv_vfio_region *region = &vfio->bar[bar];
	void *got;

	if (!region->mappable || !gnv_within(offset, len, region->size) || !len)
		return gnv_fail(-EOPNOTSUPP, "%s: BAR %u (%llu bytes) cannot be mapped at 0x%llx for %zu bytes", vfio->bdf, bar,
				(unsigned long long)region->size, (unsigned long long)offset, len);
	got = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, vfio->fd, (off_t)(region->offset + offset));
	if (got == MAP_FAILED)
		return gnv_fail(-errno, "%s: BAR %u cannot be mapped: %s", vfio->bdf, bar, strerror(errno));
	madvise(got, len, MADV_DONTFORK); /* a mapping keeps the device open as a descriptor does */
	*ptr = got;
	return 0;
}

/* VFIO returns the value that the function's register had when it was opened (vfio_config_init() of the kernel). */
int gnv_vfio_bar_address(const struct gnv_vfio *vfio, unsigned bar, uint64_t *address)
{
	const unsigned at = PCI_BASE_ADDRESS_0 + 4 * bar;
	uint32_t low, high = 0;

	if (config_read(vfio, at, &low, 4))
		return -EIO;
	if (low & PCI_BASE_ADDRESS_SPACE_IO)
		return -ENOENT;
	if ((low & PCI_BASE_ADDRESS_MEM_TYPE_MASK) == PCI_BASE_ADDRESS_MEM_TYPE_64 && (bar == 5 || config_read(vfio, at + 4, &high, 4)))
		return -EIO;
	*address = (uint64_t)high << 32 | (low & (uint32_t)PCI_BASE_ADDRESS_MEM_MASK);
	return *address ? 0 : -ENOENT;
}

/* Offset of a capability in config space, 0 when absent. */
static unsigned find_capability(const struct gnv_vfio *vfio, uint8_t id)
{
	uint8_t at, cap[2];
	unsigned hops;

	if (config_read(vfio, PCI_CAPABILITY_LIST, &at, 1))
		return 0;
	for (hops = 0; at >= PCI_STD_HEADER_SIZEOF && hops < 48; hops++, at = cap[1]) {
		at &= 0xfc;
		if (config_read(vfio, at, cap, 2))
			return 0;
		if (cap[0] == id)
			return at;
	}
	return 0;
}

int gnv_vfio_msix(const struct gnv_vfio *vfio, unsigned bar[2], struct gnv_range range[2])
{
	unsigned at = find_capability(vfio, PCI_CAP_ID_MSIX);
	uint32_t word[2];
	uint64_t vectors;
	uint16_t flags;

	if (!at)
		return -ENOENT;
	if (config_read(vfio, at + PCI_MSIX_FLAGS, &flags, 2) || config_read(vfio, at + PCI_MSIX_TABLE, word, 8))
		return -EIO;
	vectors = (flags & PCI_MSIX_FLAGS_QSIZE) + 1u;
	for (unsigned i = 0; i < 2; i++) {
		uint64_t size = i ? (vectors + 63) / 64 * 8 : vectors * PCI_MSIX_ENTRY_SIZE;

		bar[i] = word[i] & PCI_MSIX_TABLE_BIR;
		range[i].start = word[i] & PCI_MSIX_TABLE_OFFSET;
		range[i].last = range[i].start + size - 1;
	}
	return 0;
}

static int export_failed(const struct gnv_vfio *vfio, int err)
{
	if (err == ENOTTY)
		return gnv_fail(
			-EOPNOTSUPP,
			"%s: this kernel cannot export a BAR as DMA-BUF. Use Linux 6.19 or newer (7.1 for GPUs) with CONFIG_PCI_P2PDMA",
			vfio->bdf);
	if (err == EOPNOTSUPP)
		return gnv_fail(-EOPNOTSUPP, "%s: its VFIO driver cannot export a BAR as DMA-BUF. Bind it to vfio-pci", vfio->bdf);
	return gnv_fail(-err, "%s: the kernel refused to export the BAR as DMA-BUF: %s", vfio->bdf, strerror(err));
}

int gnv_vfio_export(const struct gnv_vfio *vfio, unsigned bar, uint64_t offset, uint64_t len, unsigned times, int *fd)
{
	struct {
		struct gnv_vfio_feature_dma_buf once;
		uint64_t offset, length;
	} feature = { { .argsz = sizeof(feature.once),
			.flags = VFIO_DEVICE_FEATURE_GET | GNV_VFIO_FEATURE_DMA_BUF,
			.region_index = bar,
			.open_flags = O_RDWR | O_CLOEXEC,
			.nr_ranges = times,
			.offset = offset,
			.length = len },
		      0,
		      0 };
	struct vfio_device_feature probe = {
		.argsz = sizeof(probe), .flags = VFIO_DEVICE_FEATURE_PROBE | VFIO_DEVICE_FEATURE_GET | GNV_VFIO_FEATURE_DMA_BUF
	};
	int got;

	if (ioctl(vfio->fd, VFIO_DEVICE_FEATURE, &probe))
		return export_failed(vfio, errno);
	if (!fd)
		return 0;
	if (times == 2) {
		feature.once.argsz = sizeof(feature);
		feature.offset = offset;
		feature.length = len;
	}
	got = ioctl(vfio->fd, VFIO_DEVICE_FEATURE, &feature);
	if (got < 0)
		return export_failed(vfio, errno);
	*fd = got;
	return 0;
}

void gnv_vfio_release(struct gnv_vfio *vfio)
{
	int fd = vfio->fd;

	__atomic_store_n(&vfio->fd, -1, __ATOMIC_RELEASE);
	gnv_fork_close(fd);
}

bool gnv_vfio_released(const struct gnv_vfio *vfio)
{
	return __atomic_load_n(&vfio->fd, __ATOMIC_ACQUIRE) < 0;
}

void gnv_vfio_close(struct gnv_vfio *vfio)
{
	close_fd(&vfio->fd);
	close_fd(&vfio->group);
	gnv_vfio_as_close(&vfio->as);
}
