/* SPDX-License-Identifier: MIT */
#include "os/linux/file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "util/bits.h"
#include "util/log.h"

#define PROBE_BYTES 4096u
#define FAR_BYTES (1ull << 40)

/*
 * The exclusive open finds holders. Processes that merely have it open matter to a writer, because their blocks would change.
 * Disks of the same namespace through other controllers are kept from others, too.
 */
static int hold_others(const char *path, dev_t dev, struct gnv_os_file *file)
{
	int ret = gnv_users_hold_others(GNV_SYSFS, GNV_PROC, dev, !file->read_only, file->unheld, &file->unseen, &file->others);

	return ret == -EBUSY ? gnv_fail(ret, "%s is in use: %s", path, file->unheld) : ret;
}

/* A name in /dev itself is that of a drive, and a file of that name would be none. /dev/shm has files. */
static int missing(const char *path)
{
	if (!strncmp(path, "/dev/", 5) && !strchr(path + 5, '/'))
		return gnv_fail(-ENOENT, "%s: no such device. 'gpunvme list' and 'lsblk' show those that exist", path);
	return gnv_fail(-ENOENT, "%s: no such file. Create it first, for example with truncate -s 1G", path);
}

static int open_failed(const char *path, int err)
{
	switch (err) {
	case ENOENT:
		return missing(path);
	case EACCES:
	case EPERM:
		return gnv_fail(-EACCES, "%s: no permission to read it. Change its mode or the user", path);
	case EBUSY:
		return gnv_fail(-EBUSY, "%s: the block device is in use (mounted, held, or open exclusively). Stop its user first",
				path);
	default:
		return gnv_fail(-err, "%s: cannot open: %s", path, strerror(err));
	}
}

static bool refuses_writes(int err)
{
	return err == EACCES || err == EROFS || err == EPERM || err == ETXTBSY;
}

/* Open with the wanted rights, giving up the right to write when the image refuses it. Return: descriptor or negative errno. */
static int open_mode(const char *path, int flags, bool *read_only)
{
	struct gnv_deadline dying = gnv_deadline_in(GNV_DYING_MS);
	int fd = -1;

	if (!*read_only) {
		fd = gnv_hold_open(path, flags | O_RDWR, &dying);
		if (fd < 0 && !refuses_writes(errno))
			return -errno;
	}
	if (fd < 0) {
		fd = gnv_hold_open(path, flags | O_RDONLY, &dying);
		*read_only = true;
	}
	return fd < 0 ? -errno : fd;
}

static int check_kind(const char *path, const struct stat *st)
{
	if (S_ISDIR(st->st_mode))
		return gnv_fail(-EISDIR, "%s is a directory. Name an image file or a block device", path);
	if (!S_ISREG(st->st_mode) && !S_ISBLK(st->st_mode))
		return gnv_fail(-EINVAL, "%s is neither a regular file nor a block device", path);
	return 0;
}

static int find_size(const char *path, const struct stat *st, uint32_t block, struct gnv_os_file *file)
{
	file->size = (uint64_t)st->st_size;
	if (file->block && ioctl(file->fd, BLKGETSIZE64, &file->size))
		return gnv_fail(-errno, "%s: cannot read the size of the device: %s", path, strerror(errno));
	if (file->size < block)
		return gnv_fail(-EINVAL,
				"%s has %llu bytes, less than one block of %u. Make it larger, for example with truncate -s 1G",
				path, (unsigned long long)file->size, block);
	if (file->size % block)
		return gnv_fail(-EINVAL,
				"%s has %llu bytes, not a multiple of the block size %u. Change its size or the block size", path,
				(unsigned long long)file->size, block);
	return 0;
}

/*
 * Direct I/O is used for everything or for nothing: two ways to one file would be two views of it. So it must work for single
 * blocks. Test that by reading, because reports of file systems depend on their version.
 */
static bool probe_direct(struct gnv_os_file *file, uint32_t block)
{
	static const uint32_t aligns[] = { 512, PROBE_BYTES };
	uint64_t offset = file->size >= 2ull * block ? block : 0;
	char *mem = aligned_alloc(PROBE_BYTES, 3 * PROBE_BYTES);
	bool works = false;
	unsigned i;

	if (!mem)
		return false;
	for (i = 0; i < GNV_ARRAY_LEN(aligns) && !works; i++) {
		works = block <= PROBE_BYTES && pread(file->fd, mem + aligns[i], block, (off_t)offset) == (ssize_t)block;
		file->mem_align = aligns[i];
	}
	file->len_align = block;
	free(mem);
	return works;
}

static void choose_direct(struct gnv_os_file *file, uint32_t block)
{
	/* Without O_NONBLOCK, with which io_uring would return -EAGAIN instead of waiting. */
	int flags = fcntl(file->fd, F_GETFL) & ~O_NONBLOCK;

	file->direct = !fcntl(file->fd, F_SETFL, flags | O_DIRECT) && probe_direct(file, block);
	if (!file->direct)
		fcntl(file->fd, F_SETFL, flags);
}

/* A file without a name in the file system of the image @st. Return: its descriptor, or -1: this cannot be done there. */
static int open_unnamed(const char *path, const struct stat *st)
{
	char *folder = realpath(path, NULL), *name = folder ? strrchr(folder, '/') : NULL;
	struct stat own;
	int fd = -1;

	if (name) {
		name[1] = 0;
		fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	}
	free(folder);
	if (fd >= 0 && (fstat(fd, &own) || own.st_dev != st->st_dev)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* EFBIG: where files are small, as on FAT, there is no farther place to try, and vfs_fallocate() of fs/open.c looks at it first. */
static bool refuses_holes(int fd, uint64_t at, uint32_t block)
{
	return fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, block) &&
	       (errno == EOPNOTSUPP || errno == ENOSYS || errno == ENODEV || errno == EFBIG);
}

/*
 * A hole is tried in another file: a program that this process cannot see may write to the image, also after its end, and file
 * systems count a hole as a change (xfs_file_fallocate() in fs/xfs/xfs_file.c). Where there is no other file, the image itself is
 * tried, farther from its end than a program could write meanwhile. Trying would cost a device its data, so sysfs is read.
 */
static bool lacks_holes(const char *path, const struct gnv_os_file *file, const struct stat *st, uint32_t block)
{
	bool lacks;
	int fd;

	if (file->read_only)
		return false;
	if (file->block)
		return !gnv_drive_zeroes(GNV_SYSFS, st->st_rdev);
	fd = open_unnamed(path, st);
	if (fd < 0)
		return refuses_holes(file->fd, file->size + FAR_BYTES, block);
	lacks = refuses_holes(fd, 0, block);
	close(fd);
	return lacks;
}

static bool is_overlay(int fd)
{
	struct statfs fs;

	return !fstatfs(fd, &fs) && fs.f_type == OVERLAYFS_SUPER_MAGIC;
}

/* All of it, so that a virtual machine that locks some bytes of its image is met, too. */
static int set_lock(const struct gnv_os_file *file, short type)
{
	struct flock lock = { .l_type = type, .l_whence = SEEK_SET };

	return fcntl(file->fd, F_OFD_SETLK, &lock) ? -errno : 0;
}

static int lock_image(const char *path, struct gnv_os_file *file)
{
	struct gnv_deadline deadline = gnv_deadline_in(GNV_DYING_MS);
	char text[GNV_USERS_TEXT];
	bool locked;
	int ret;

	do {
		ret = set_lock(file, file->read_only ? F_RDLCK : F_WRLCK);
		locked = ret == -EAGAIN || ret == -EACCES;
		file->unlocked = -ret;
		if (file->read_only && !locked)
			return 0;
		ret = gnv_users_of_image(GNV_SYSFS, GNV_PROC, file->fd, locked, text);
	} while (ret == -EAGAIN && gnv_deadline_poll_again(&deadline));
	return ret ? gnv_fail(-EBUSY, "%s is in use: %s", path, text) : 0;
}

static void identify(const struct stat *st, uint64_t *dev, uint64_t *ino)
{
	const bool block = S_ISBLK(st->st_mode);

	*dev = block ? st->st_rdev : st->st_dev;
	*ino = block ? 0 : st->st_ino;
}

int gnv_os_file_id(int fd, uint64_t *dev, uint64_t *ino)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	identify(&st, dev, ino);
	return 0;
}

/* @found: what @path was when its users were looked for */
static int inspect(const char *path, uint32_t block, const struct stat *found, struct gnv_os_file *file)
{
	struct stat st;
	int ret, sector;

	if (fstat(file->fd, &st))
		return gnv_fail(-errno, "%s: cannot inspect: %s", path, strerror(errno));
	ret = check_kind(path, &st);
	if (ret)
		return ret;
	if (file->block != S_ISBLK(st.st_mode) || (file->block && st.st_rdev != found->st_rdev))
		return gnv_fail(-EBUSY, "%s was replaced while it was being opened. Try again", path);
	ret = find_size(path, &st, block, file);
	if (!ret && !file->block)
		ret = lock_image(path, file);
	if (ret)
		return ret;
	identify(&st, &file->dev, &file->ino);
	file->sector = file->block && !ioctl(file->fd, BLKSSZGET, &sector) && sector > 0 ? (uint32_t)sector : 0;
	file->no_holes = lacks_holes(path, file, &st, block);
	file->overlay = !file->block && is_overlay(file->fd);
	choose_direct(file, block);
	return 0;
}

int gnv_os_file_open(const char *path, uint32_t block, bool read_only, struct gnv_os_file *file)
{
	int flags = O_NOCTTY;
	struct stat st;
	int ret;

	*file = (struct gnv_os_file){ .fd = -1, .read_only = read_only };
	if (stat(path, &st))
		return open_failed(path, errno);
	ret = check_kind(path, &st);
	if (ret)
		return ret;
	file->block = S_ISBLK(st.st_mode);
	if (file->block) {
		ret = hold_others(path, st.st_rdev, file);
		if (ret)
			return ret;
		flags |= O_EXCL;
	}
	/* Root may write a file whose mode forbids it. A file without write bits is not meant to be written. */
	if (!file->block && !(st.st_mode & 0222))
		file->read_only = true;
	file->fd = open_mode(path, flags, &file->read_only);
	ret = file->fd < 0 ? open_failed(path, -file->fd) : inspect(path, block, &st, file);
	if (ret)
		gnv_os_file_close(file);
	return ret;
}

void gnv_os_file_close(struct gnv_os_file *file)
{
	if (file->fd >= 0) {
		set_lock(file, F_UNLCK); /* a child of fork() may have the descriptor, too, and with it the lock */
		gnv_fork_close(file->fd);
	}
	file->fd = -1;
	gnv_users_release(file->others);
	file->others = NULL;
}
