/* SPDX-License-Identifier: MIT */
#include "os/linux/extents.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "os/linux/btrfs.h"
#include "os/linux/fork.h"
#include "os/linux/lease.h"
#include "os/linux/openers.h"
#include "os/linux/sysfs.h"
#include "util/clock.h"
#include "util/log.h"

#define AT_ONCE 256u /* extents of one question */
#define HEAD_ALIGN 4096u
#define MOUNTS "/self/mountinfo"
#define BTRFS 0x9123683eu /* linux/magic.h */
#define SECTOR 512u /* in which sysfs counts */

/* ---- A file ---- */

static int refuse(const char *path, const char *why)
{
	return gnv_fail(-EOPNOTSUPP, "%s has no blocks of its own that can be mapped: %s", path, why);
}

/* Inode flags of linux/fs.h. A file system without them fails the call. */
static int check_inode(int fd, const char *path, struct gnv_os_mapped *m)
{
	struct fsxattr x = { 0 };
	int word[2] = { 0 }, flags; /* an int, and by the numbers a long, which FUSE may write the whole of */

	if (!ioctl(fd, FS_IOC_GETFLAGS, word)) {
		flags = word[0];
		if (flags & FS_ENCRYPT_FL)
			return refuse(path, "it is encrypted");
		if (flags & FS_COMPR_FL && m->fs != BTRFS) /* there it is a hint, and each extent has the fact */
			return refuse(path, "it is compressed");
		m->verity = flags & FS_VERITY_FL;
		m->immutable = flags & FS_IMMUTABLE_FL;
		m->append = flags & FS_APPEND_FL;
		m->journaled = flags & FS_JOURNAL_DATA_FL;
	}
	if (!ioctl(fd, FS_IOC_FSGETXATTR, &x) && x.fsx_xflags & FS_XFLAG_REALTIME)
		return refuse(path, "it is on a real-time device");
	if (!ioctl(fd, FS_IOC_GETVERSION, word))
		m->generation = (uint32_t)word[0];
	return 0;
}

/*
 * Fields of Documentation/filesystems/proc.rst, 3.5: the last ones, after a dash alone, are the superblock's: type, device and
 * options. XFS writes its superblock also when it is mounted read-only, and when that ends (seen on 7.2), but not without recovery.
 */
static bool is_still(const char *super)
{
	char type[16], option[4];

	if (!super || sscanf(super, " - %15s %*s %3[^, \n]", type, option) != 2 || strcmp(option, "ro") != 0)
		return false;
	return strcmp(type, "xfs") != 0 || strstr(super, ",norecovery");
}

bool gnv_os_stands_still(const char *mountinfo, uint64_t dev)
{
	FILE *f = fopen(mountinfo, "re");
	bool found = false, writable = false;
	unsigned major_of, minor_of;
	char *line = NULL;
	size_t room = 0;

	while (f && getline(&line, &room, f) > 0) {
		if (sscanf(line, "%*u %*u %u:%u", &major_of, &minor_of) != 2 || major_of != major(dev) || minor_of != minor(dev))
			continue;
		found = true;
		writable |= !is_still(strstr(line, " - "));
	}
	free(line);
	if (f)
		fclose(f);
	return found && !writable;
}

uint64_t gnv_os_mounted(const char *proc, int fd)
{
	char path[128], text[512], *id;
	unsigned mount, wanted, major_of, minor_of;
	uint64_t dev = 0;
	char *line = NULL;
	size_t room = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%.64s/self/fdinfo/%d", proc, fd);
	if (gnv_sysfs_read(path, text, sizeof(text)) || !(id = strstr(text, "mnt_id:")) || sscanf(id, "mnt_id: %u", &wanted) != 1)
		return 0;
	snprintf(path, sizeof(path), "%.64s" MOUNTS, proc);
	f = fopen(path, "re");
	while (f && !dev && getline(&line, &room, f) > 0)
		if (sscanf(line, "%u %*u %u:%u", &mount, &major_of, &minor_of) == 3 && mount == wanted)
			dev = makedev(major_of, minor_of);
	free(line);
	if (f)
		fclose(f);
	return dev;
}

/*
 * The kernel's clock for files has ticks of at most 10 ms, and a time may also be slightly later than it. A much later time is from
 * a clock that was set back: the next change of the file sets another time, so do not wait for a million of such files.
 */
static void pass_tick(const struct gnv_os_mapped *m)
{
	struct timespec now;

	for (unsigned i = 0; i < 50; i++) {
		clock_gettime(CLOCK_REALTIME_COARSE, &now);
		if (now.tv_sec > m->ctime || now.tv_sec + 1 < m->ctime || (now.tv_sec == m->ctime && now.tv_nsec > (long)m->ctime_ns))
			return;
		gnv_sleep_ms(1);
	}
}

int gnv_os_stat(int fd, const char *path, struct gnv_os_mapped *m)
{
	struct stat st;
	struct statfs fs;

	if (fstat(fd, &st) || fstatfs(fd, &fs))
		return gnv_fail(-errno, "%s: %s", path, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(path, "it is no regular file");
	*m = (struct gnv_os_mapped){
		.fs = (uint64_t)fs.f_type & UINT32_MAX,
		.dev = st.st_dev,
		.inode = st.st_ino,
		.bytes = (uint64_t)st.st_size,
		.mtime = st.st_mtim.tv_sec,
		.mtime_ns = (uint32_t)st.st_mtim.tv_nsec,
		.ctime = st.st_ctim.tv_sec,
		.ctime_ns = (uint32_t)st.st_ctim.tv_nsec,
		.links = (uint32_t)st.st_nlink,
		.block = (uint32_t)st.st_blksize,
	};
	return 0;
}

int gnv_os_describe(int fd, const char *path, struct gnv_os_mapped *m)
{
	int ret = gnv_os_stat(fd, path, m);

	if (ret)
		return ret;
	pass_tick(m);
	return check_inode(fd, path, m);
}

/* Flags of linux/fiemap.h, as in Documentation/filesystems/fiemap.rst. */
#define KNOWN 0x3f8fu

static int check_extent(const char *path, uint32_t flags)
{
	if (flags & (FIEMAP_EXTENT_DATA_ENCRYPTED | FIEMAP_EXTENT_ENCODED))
		return refuse(path, "it is encrypted or compressed");
	if (flags & (FIEMAP_EXTENT_DATA_INLINE | FIEMAP_EXTENT_DATA_TAIL | FIEMAP_EXTENT_NOT_ALIGNED))
		return refuse(path, "its data is among the file system's own");
	if (flags & (FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN))
		return gnv_fail(-EBUSY, "%s has data that is not allocated yet: a program writes to it. End that, and try again", path);
	if (flags & ~KNOWN)
		return refuse(path, "its file system reports unknown flags of it");
	return 0;
}

/* The extents of one result. *pos: where the next call begins. *last: there is none. */
static int take(const char *path, const struct fiemap *map, struct gnv_os_mapped *m, uint64_t *pos, bool *last,
		gnv_os_extent_fn *fn, void *ctx)
{
	int ret = 0;

	*last = !map->fm_mapped_extents;
	for (uint32_t i = 0; i < map->fm_mapped_extents && !ret; i++) {
		const struct fiemap_extent *e = &map->fm_extents[i];

		if (e->fe_logical >= m->bytes) { /* XFS reserves space for later */
			*last = true;
			break;
		}
		ret = check_extent(path, e->fe_flags);
		if (!ret && !(e->fe_flags & FIEMAP_EXTENT_UNWRITTEN))
			ret = fn(ctx, e->fe_logical, e->fe_physical, e->fe_length);
		m->shared |= e->fe_flags & FIEMAP_EXTENT_SHARED;
		*last |= e->fe_flags & FIEMAP_EXTENT_LAST;
		if (e->fe_length)
			*pos = e->fe_logical + e->fe_length;
	}
	return ret;
}

static int ask(int fd, const char *path, struct gnv_os_mapped *m, gnv_os_extent_fn *fn, void *ctx)
{
	struct fiemap *map = calloc(1, sizeof(*map) + AT_ONCE * sizeof(map->fm_extents[0]));
	uint64_t pos = 0, before;
	bool last = false;
	int ret = map ? 0 : gnv_fail(-ENOMEM, "out of memory");

	while (!ret && !last) {
		before = pos;
		*map = (struct fiemap){ .fm_start = pos, .fm_length = UINT64_MAX - pos, .fm_flags = FIEMAP_FLAG_SYNC,
					.fm_extent_count = AT_ONCE };
		if (ioctl(fd, FS_IOC_FIEMAP, map))
			ret = gnv_fail(-errno, "%s: its file system does not report its extents: %s", path, strerror(errno));
		else
			ret = take(path, map, m, &pos, &last, fn, ctx);
		last |= pos <= before;
	}
	free(map);
	return ret;
}

int gnv_os_map_fd(int fd, const char *name, struct gnv_os_mapped *m, gnv_os_extent_fn *fn, void *ctx)
{
	int ret = gnv_os_describe(fd, name, m);

	if (ret)
		return ret;
	return ask(fd, name, m, fn, ctx);
}

static int map_btrfs(int fd, const char *path, struct gnv_os_mapped *m, gnv_os_extent_fn *fn, void *ctx)
{
	struct gnv_btrfs b;
	int ret = gnv_btrfs_open(GNV_SYSFS, fd, path, fn, ctx, &b);

	if (ret)
		return ret;
	ret = gnv_os_map_fd(fd, path, m, gnv_btrfs_extent, &b);
	m->dev = b.dev;
	gnv_btrfs_close(&b);
	return ret;
}

int gnv_os_map(const char *path, struct gnv_os_mapped *m, gnv_os_extent_fn *fn, void *ctx)
{
	int fd = gnv_os_live_open(path), ret;
	uint64_t mounted;
	bool still;

	if (fd < 0)
		return fd;
	mounted = gnv_os_mounted(GNV_PROC, fd);
	still = gnv_os_stands_still(GNV_PROC MOUNTS, mounted);
	ret = gnv_os_describe(fd, path, m);
	if (!ret)
		ret = m->fs == BTRFS ? map_btrfs(fd, path, m, fn, ctx) : gnv_os_map_fd(fd, path, m, fn, ctx);
	m->still = still && gnv_os_stands_still(GNV_PROC MOUNTS, mounted);
	gnv_fork_close(fd);
	return ret;
}

/* ---- Its block device ---- */

static uint64_t number(const char *folder, const char *name)
{
	char path[512], text[32];

	snprintf(path, sizeof(path), "%.400s/%.40s", folder, name);
	return gnv_sysfs_read(path, text, sizeof(text)) ? 0 : strtoull(text, NULL, 10);
}

/* The serial number that the nvme driver shows in the folder of the disk, or in that of the subsystem of several paths. */
static bool serial_of(const char *disk, char serial[41])
{
	char path[512];

	snprintf(path, sizeof(path), "%.400s/device/serial", disk);
	if (gnv_sysfs_read(path, serial, 41) || !serial[0])
		return false;
	for (char *c = serial; *c; c++)
		*c = *c > ' ' && *c < 127 ? *c : '_';
	return true;
}

static int no_disk(uint64_t dev)
{
	return gnv_fail(-EOPNOTSUPP, "the file system is not on an NVMe namespace or a partition of one, but on block device %u:%u",
			major(dev), minor(dev));
}

static void folder_of(const char *sys, uint64_t dev, char folder[256])
{
	snprintf(folder, 256, "%.180s/dev/block/%u:%u", sys, major(dev), minor(dev));
}

int gnv_os_block(const char *sys, uint64_t dev, struct gnv_os_namespace *ns)
{
	char folder[256], path[272], name[64], text[512], *entry;

	folder_of(sys, dev, folder);
	snprintf(path, sizeof(path), "%s/uevent", folder);
	if (gnv_sysfs_read(path, text, sizeof(text)) || !(entry = strstr(text, "DEVNAME=")) ||
	    sscanf(entry, "DEVNAME=%50s", name) != 1)
		return no_disk(dev);
	*ns = (struct gnv_os_namespace){ .first = number(folder, "start") * SECTOR, .bytes = number(folder, "size") * SECTOR };
	snprintf(ns->node, sizeof(ns->node), "/dev/%.50s", name);
	return 0;
}

int gnv_os_namespace(const char *sys, uint64_t dev, struct gnv_os_namespace *ns)
{
	struct gnv_os_namespace block;
	char folder[256], path[272];
	bool part;
	int ret = gnv_os_block(sys, dev, &block);

	if (ret)
		return ret;
	if (strncmp(block.node, "/dev/nvme", 9) != 0)
		return no_disk(dev);
	folder_of(sys, dev, folder);
	part = number(folder, "partition") != 0;
	snprintf(path, sizeof(path), "%s%s", folder, part ? "/.." : "");
	if (!serial_of(path, block.serial))
		snprintf(block.serial, sizeof(block.serial), "unknown");
	*ns = block;
	return 0;
}

/* ext4 shows all of its mount options there, also defaults of its superblock. */
bool gnv_os_journals_data(const char *proc, const char *node)
{
	char path[256], text[4096];

	snprintf(path, sizeof(path), "%.128s/fs/ext4/%.60s/options", proc, node + strlen("/dev/"));
	return !gnv_sysfs_read(path, text, sizeof(text)) && strstr(text, "data=journal");
}

int gnv_os_head(const char *node, uint64_t at, void *buf, size_t len)
{
	int fd = open(node, O_RDONLY | O_DIRECT | O_CLOEXEC), ret = 0;
	void *own = aligned_alloc(HEAD_ALIGN, len);
	ssize_t n;

	if (fd < 0) {
		ret = gnv_fail(-errno, "%s: %s. Its superblock must be read: run as root", node, strerror(errno));
	} else {
		n = own ? pread(fd, own, len, (off_t)at) : -1;
		if (n < 0) {
			ret = gnv_fail(-EIO, "the superblock on %s cannot be read", node);
		} else {
			memset(buf, 0, len);
			memcpy(buf, own, (size_t)n);
		}
		close(fd);
	}
	free(own);
	return ret;
}
