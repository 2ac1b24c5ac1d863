/* SPDX-License-Identifier: MIT */
#include "os/linux/loop.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/loop.h>
#include <linux/major.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "os/linux/sysfs.h"

#define PATH_BYTES 512

/* The kernel writes the name and a newline. A name may end in white space, too, and be as long as a path. */
int gnv_loop_read_file(const char *path, char file[PATH_MAX + 1])
{
	FILE *f = fopen(path, "re");
	size_t n;

	if (!f)
		return gnv_sysfs_absent(-errno) ? 0 : -errno;
	n = fread(file, 1, PATH_MAX, f);
	fclose(f);
	if (n && file[n - 1] == '\n')
		n--;
	file[n] = 0;
	return n != 0;
}

/* The kernel packs a device number (huge_encode_dev() in include/linux/kdev_t.h): 12 bits of major, 20 of minor. */
static uint64_t unpack(uint64_t packed)
{
	return makedev((unsigned)(packed >> 8 & 0xfff), (unsigned)((packed & 0xff) | (packed >> 12 & 0xfff00)));
}

/*
 * A user that may open the device's node may read it. The node is open for a moment, which keeps no other user out. open() may wait
 * for a process that reads its partitions or closes it. It is outside the lock, so that fork() does not wait, too. A child that is
 * made meanwhile has the descriptor.
 */
int gnv_loop_identity(const char *name, struct gnv_opened *what)
{
	struct loop_info64 info = { 0 };
	char node[PATH_BYTES];
	int fd, ret = -ENOENT;
	struct stat st;

	snprintf(node, sizeof(node), "/dev/%.60s", name);
	fd = open(node, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	gnv_fork_begin();
	gnv_fork_keep(fd);
	if (!fstat(fd, &st) && S_ISBLK(st.st_mode) && major(st.st_rdev) == LOOP_MAJOR)
		ret = ioctl(fd, LOOP_GET_STATUS64, &info) ? -errno : 0;
	gnv_fork_close(fd);
	if (info.lo_rdevice)
		*what = (struct gnv_opened){ .kind = GNV_OPENED_BLOCK, .dev = unpack(info.lo_rdevice) };
	else
		*what = (struct gnv_opened){ .kind = GNV_OPENED_FILE, .dev = unpack(info.lo_device), .ino = info.lo_inode };
	return ret;
}

/*
 * One that this user may not open is missed, as loop.h says. An image whose file system does not respond (NFS, FUSE) is another
 * one, because nodes of /dev do.
 */
static int is_made_of(const char *name, const struct gnv_opened *what)
{
	struct gnv_opened own;
	const int ret = gnv_loop_identity(name, &own);

	if (ret)
		return ret == -EMFILE || ret == -ENFILE || ret == -ENOMEM ? ret : 0;
	return own.kind == what->kind && own.dev == what->dev && own.ino == what->ino;
}

/*
 * The name that the kernel reports comes first. It is wrong after the image was renamed, and missing after it was deleted. Then ask
 * the device, but not for an image on another file system, which may no longer respond and would block this thread.
 */
static int is_loop_of(const char *name, const char *file, const struct gnv_opened *what)
{
	struct statx st;

	if (statx(AT_FDCWD, file, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &st))
		return is_made_of(name, what);
	if (gnv_opened_is(what, &st))
		return 1;
	if (what->kind == GNV_OPENED_FILE && makedev(st.stx_dev_major, st.stx_dev_minor) != what->dev)
		return 0;
	if (what->kind == GNV_OPENED_BLOCK && S_ISREG(st.stx_mode))
		return 0;
	return is_made_of(name, what);
}

int gnv_loop_find(const char *sys, const struct gnv_opened *what, char *name, size_t size)
{
	char class[PATH_BYTES], path[PATH_BYTES], file[PATH_MAX + 1];
	int found = 0, ret = 0;

	snprintf(class, sizeof(class), "%s/class/block", sys);
	for (unsigned i = 0; !found && !(ret = gnv_sysfs_entry(class, "loop", i, name, size)); i++) {
		snprintf(path, sizeof(path), "%.300s/%.60s/loop/backing_file", class, name);
		found = gnv_loop_read_file(path, file);
		if (found > 0)
			found = is_loop_of(name, file, what);
	}
	return gnv_sysfs_absent(ret) ? found : ret;
}

bool gnv_loop_of(const char *sys, const struct gnv_opened *what, char *name, size_t size)
{
	return gnv_loop_find(sys, what, name, size) > 0;
}
