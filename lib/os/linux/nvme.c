/* SPDX-License-Identifier: MIT */
#include "os/linux/nvme.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/nvme_ioctl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/linux/drive.h"
#include "os/linux/fork.h"
#include "os/linux/sys.h"
#include "os/linux/exclusive.h"
#include "util/bits.h"
#include "util/log.h"

#define PATH_BYTES 300
#define NAME_BYTES 40
#define ADMIN_IDENTIFY 0x06
#define IDENTIFY_BYTES 4096u

_Static_assert(sizeof(struct nvme_uring_cmd) <= GNV_URING_COMMAND, "it fits into a wide entry");

/* ---- Which device ---- */

/* The name that the kernel gave the node, whatever it is called in this /dev. */
static bool generic_name(dev_t dev, char name[NAME_BYTES])
{
	char path[PATH_BYTES], target[PATH_BYTES], number[32], text[32];
	const char *last;
	ssize_t n;

	snprintf(path, sizeof(path), GNV_SYSFS "/dev/char/%u:%u", major(dev), minor(dev));
	n = readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return false;
	target[n] = 0;
	last = strrchr(target, '/') ? strrchr(target, '/') + 1 : target;
	snprintf(number, sizeof(number), "%u:%u", major(dev), minor(dev));
	snprintf(name, NAME_BYTES, "%.39s", last);
	snprintf(path, sizeof(path), GNV_SYSFS "/class/nvme-generic/%s/dev", name);
	return !gnv_sysfs_read(path, text, sizeof(text)) && !strcmp(text, number);
}

bool gnv_os_nvme_owns(const char *path)
{
	char name[NAME_BYTES];
	struct stat st;

	if (stat(path, &st))
		return !strncmp(path, "/dev/ng", strlen("/dev/ng"));
	return S_ISCHR(st.st_mode) && generic_name(st.st_rdev, name);
}

/* ---- The kernel's block device of the same namespace: its other users, and its limits ---- */

static void disk_text(const char *disk, const char *attribute, char *text, size_t size)
{
	char path[PATH_BYTES];

	snprintf(path, sizeof(path), GNV_SYSFS "/class/block/%s/%s", disk, attribute);
	gnv_sysfs_read(path, text, size);
}

static uint64_t disk_number(const char *disk, const char *attribute)
{
	char text[32];

	disk_text(disk, attribute, text, sizeof(text));
	return strtoull(text, NULL, 10);
}

/* A command is one request of the block layer, which splits none of these, with a page for each segment at worst. */
static uint64_t max_bytes(const char *disk)
{
	const uint64_t kib = disk_number(disk, "queue/max_hw_sectors_kb"), segments = disk_number(disk, "queue/max_segments");
	uint64_t most = UINT32_MAX;

	if (kib)
		most = gnv_min(most, kib << 10);
	if (segments)
		most = gnv_min(most, segments * gnv_sys_page_size());
	return most;
}

static int no_disk(const char *path)
{
	return gnv_fail(-EOPNOTSUPP,
			"%s: Linux makes no block device of it, which would keep other users away, so this namespace cannot be used", path);
}

static int inspect_disk(const char *path, const char *disk, struct gnv_os_nvme *nvme)
{
	char text[32];
	unsigned maj, min;

	disk_text(disk, "dev", text, sizeof(text));
	if (sscanf(text, "%u:%u", &maj, &min) != 2)
		return no_disk(path);
	nvme->disk = makedev(maj, min);
	disk_text(disk, "queue/zoned", text, sizeof(text));
	if (text[0] && strcmp(text, "none") != 0)
		return gnv_fail(-EOPNOTSUPP, "%s is zoned, and its blocks cannot be written in any order. Use another namespace", path);
	nvme->max_bytes = max_bytes(disk);
	return 0;
}

static int hold_disk(const char *path, struct gnv_os_nvme *nvme)
{
	char text[GNV_USERS_TEXT];
	int ret = gnv_users_hold_block(GNV_SYSFS, GNV_PROC, nvme->disk, !nvme->read_only, text, &nvme->unseen, &nvme->hold);

	if (!ret)
		nvme->held = gnv_users_held(nvme->hold);
	if (ret == -EBUSY)
		return gnv_fail(ret, "%s is in use: %s", path, text);
	return ret && ret != -ENOMEM ? gnv_fail(ret, "%s: %s", path, text) : ret;
}

/* ---- Opening ---- */

static int open_failed(const char *path, int err)
{
	if (err == ENOENT || err == ENXIO || err == ENODEV)
		return gnv_fail(-ENOENT, "%s: there is no such drive. nvme list --verbose shows the generic devices of the kernel",
				path);
	if (err == EACCES || err == EPERM)
		return gnv_fail(-EACCES, "%s: no permission to open it. Run as root, or give this user the right by a rule of udev", path);
	return gnv_fail(-err, "%s: cannot open: %s", path, strerror(err));
}

/* A FIFO that was put in its place must not hang us. */
static int open_mode(const char *path, int flags)
{
	gnv_fork_begin();
	return gnv_fork_keep(open(path, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
}

/* With it io_uring would return -EAGAIN instead of waiting. */
static int let_wait(const char *path, int fd)
{
	const int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || fcntl(fd, F_SETFL, flags & ~O_NONBLOCK))
		return gnv_fail(-errno, "%s: cannot be made to wait: %s", path, strerror(errno));
	return 0;
}

static int open_node(const char *path, dev_t dev, struct gnv_os_nvme *nvme)
{
	struct stat st;

	nvme->fd = nvme->read_only ? -1 : open_mode(path, O_RDWR);
	if (nvme->fd < 0 && (nvme->read_only || errno == EACCES || errno == EPERM || errno == EROFS)) {
		nvme->fd = open_mode(path, O_RDONLY);
		nvme->read_only = true;
	}
	if (nvme->fd < 0)
		return open_failed(path, errno);
	if (fstat(nvme->fd, &st) || !S_ISCHR(st.st_mode) || st.st_rdev != dev)
		return gnv_fail(-EBUSY, "%s was replaced while it was being opened. Try again", path);
	return let_wait(path, nvme->fd);
}

static int find_nsid(const char *path, const char *disk, struct gnv_os_nvme *nvme)
{
	const int nsid = ioctl(nvme->fd, NVME_IOCTL_ID);
	const uint64_t held = disk_number(disk, "nsid");

	if (nsid <= 0)
		return gnv_fail(nsid ? -errno : -EINVAL, "%s: the kernel does not report its namespace: %s", path,
				nsid ? strerror(errno) : "it has none");
	if (held && held != (uint64_t)nsid)
		return gnv_fail(-EBUSY, "%s is namespace %d, and its disk %s is %llu: it was replaced. Try again", path, nsid,
				disk, (unsigned long long)held);
	nvme->nsid = (uint32_t)nsid;
	return 0;
}

int gnv_os_nvme_open(const char *path, bool read_only, struct gnv_os_nvme *nvme)
{
	char name[NAME_BYTES], disk[NAME_BYTES];
	struct stat st;
	int ret;

	*nvme = (struct gnv_os_nvme){ .fd = -1, .held = -1, .read_only = read_only };
	if (stat(path, &st))
		return open_failed(path, errno);
	if (!S_ISCHR(st.st_mode) || !generic_name(st.st_rdev, name) || strncmp(name, "ng", 2) != 0)
		return gnv_fail(-EINVAL, "%s is no generic device of the nvme driver. Name one such as /dev/ng0n1", path);
	ret = gnv_drive_disk_of(GNV_SYSFS, name, disk, sizeof(disk)) ? no_disk(path) : inspect_disk(path, disk, nvme);
	if (!ret)
		ret = hold_disk(path, nvme);
	if (!ret)
		ret = open_node(path, st.st_rdev, nvme);
	if (!ret)
		ret = find_nsid(path, disk, nvme);
	if (ret)
		gnv_os_nvme_close(nvme);
	return ret;
}

void gnv_os_nvme_close(struct gnv_os_nvme *nvme)
{
	if (nvme->fd >= 0)
		gnv_fork_close(nvme->fd);
	nvme->fd = -1;
	gnv_users_release(nvme->hold);
	nvme->hold = NULL;
	nvme->held = -1;
}

/* ---- Commands ---- */

int gnv_os_nvme_identify(const struct gnv_os_nvme *nvme, uint8_t cns, void *data)
{
	const bool of_ns = !cns; /* Identify Namespace */
	struct nvme_passthru_cmd cmd = { .opcode = ADMIN_IDENTIFY,
					 .nsid = of_ns ? nvme->nsid : 0,
					 .addr = (uintptr_t)data,
					 .data_len = IDENTIFY_BYTES,
					 .cdw10 = cns };
	const int ret = ioctl(nvme->fd, NVME_IOCTL_ADMIN_CMD, &cmd);

	return ret < 0 ? -errno : ret;
}

uint32_t gnv_os_nvme_block(const struct gnv_os_nvme *nvme)
{
	uint64_t size = 0;
	int block = 0;

	if (ioctl(nvme->held, BLKSSZGET, &block) || ioctl(nvme->held, BLKGETSIZE64, &size))
		return 0;
	return size && block > 0 ? (uint32_t)block : 0;
}

int gnv_os_nvme_queue(const struct gnv_os_nvme *nvme, struct gnv_uring *ring, const struct gnv_os_nvme_cmd *cmd, void *tag)
{
	struct nvme_uring_cmd raw = { .opcode = cmd->opc,
				      .nsid = nvme->nsid,
				      .cdw10 = cmd->cdw10,
				      .cdw11 = cmd->cdw11,
				      .cdw12 = cmd->cdw12,
				      .cdw13 = cmd->cdw13 };
	uint32_t op = NVME_URING_CMD_IO;

	if (cmd->count > 1) { /* the vectors are read when the entry is */
		op = NVME_URING_CMD_IO_VEC;
		raw.addr = (uintptr_t)cmd->iov;
		raw.data_len = cmd->count;
	} else if (cmd->count) {
		raw.addr = (uintptr_t)cmd->iov->iov_base;
		raw.data_len = (uint32_t)cmd->iov->iov_len;
	}
	return gnv_uring_command_fixed(ring, op, &raw, sizeof(raw), cmd->count == 1 ? cmd->buffer : -1, tag);
}
