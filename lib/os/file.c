/* SPDX-License-Identifier: MIT */
#include "os/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "util/bits.h"
#include "util/log.h"

#define PROBE_BYTES 4096u
#define NAME_BYTES 256 /* as in the sscanf below */

/* The first entry of a sysfs folder, or false. */
static bool first_entry(const char *dir, char *name, size_t size)
{
	struct dirent *entry;
	DIR *d = opendir(dir);
	bool found = false;

	if (!d)
		return false;
	while (!found && (entry = readdir(d)))
		if (entry->d_name[0] != '.') {
			snprintf(name, size, "%s", entry->d_name);
			found = true;
		}
	closedir(d);
	return found;
}

/* Where major:minor is mounted, or false. */
static bool mount_point(unsigned maj, unsigned min, char *where)
{
	char line[1024], point[NAME_BYTES];
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool found = false;
	unsigned a, b;

	if (!f)
		return false;
	while (!found && fgets(line, sizeof(line), f))
		if (sscanf(line, "%*d %*d %u:%u %*s %255s", &a, &b, point) == 3 && a == maj && b == min) {
			memcpy(where, point, sizeof(point));
			found = true;
		}
	fclose(f);
	return found;
}

static int check_unused(const char *path, const char *what, unsigned maj, unsigned min)
{
	char dir[128], name[NAME_BYTES];

	if (mount_point(maj, min, name))
		return gnv_fail(-EBUSY, "%s: %s is mounted on %s; unmount it first", path, what, name);
	snprintf(dir, sizeof(dir), "/sys/dev/block/%u:%u/holders", maj, min);
	if (first_entry(dir, name, sizeof(name)))
		return gnv_fail(-EBUSY, "%s: %s is held by %s; stop that first", path, what, name);
	return 0;
}

/* Number of the partition in the sysfs folder dir/name, or false when it is not a partition. */
static bool partition_number(const char *dir, const char *name, unsigned *maj, unsigned *min)
{
	char file[512];
	bool ok;
	FILE *f;

	snprintf(file, sizeof(file), "%s/%s/partition", dir, name);
	if (access(file, F_OK))
		return false;
	snprintf(file, sizeof(file), "%s/%s/dev", dir, name);
	f = fopen(file, "re");
	if (!f)
		return false;
	ok = fscanf(f, "%u:%u", maj, min) == 2;
	fclose(f);
	return ok;
}

/* Names the user of a block device or of a partition of it. The exclusive open decides; this finds the words. */
static int check_block_unused(const char *path, dev_t dev)
{
	char dir[64], what[300];
	struct dirent *entry;
	unsigned maj, min;
	int ret;
	DIR *d;

	ret = check_unused(path, "it", major(dev), minor(dev));
	if (ret)
		return ret;
	snprintf(dir, sizeof(dir), "/sys/dev/block/%u:%u", major(dev), minor(dev));
	d = opendir(dir);
	if (!d)
		return 0;
	while (!ret && (entry = readdir(d)))
		if (partition_number(dir, entry->d_name, &maj, &min)) {
			snprintf(what, sizeof(what), "its partition %s", entry->d_name);
			ret = check_unused(path, what, maj, min);
		}
	closedir(d);
	return ret;
}

int gnv_os_block_unused(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	return S_ISBLK(st.st_mode) ? check_block_unused(path, st.st_rdev) : 0;
}

static int open_failed(const char *path, int err)
{
	switch (err) {
	case ENOENT:
		return gnv_fail(-ENOENT, "%s: no such file; create it first, for example with truncate -s 1G", path);
	case EACCES:
	case EPERM:
		return gnv_fail(-EACCES, "%s: no permission to read it; change its mode or the user", path);
	case EBUSY:
		return gnv_fail(-EBUSY, "%s: the block device is in use (mounted, held, or open exclusively); stop its user first",
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
	int fd = -1;

	if (!*read_only) {
		fd = open(path, flags | O_RDWR);
		if (fd < 0 && !refuses_writes(errno))
			return -errno;
	}
	if (fd < 0) {
		fd = open(path, flags | O_RDONLY);
		*read_only = true;
	}
	return fd < 0 ? -errno : fd;
}

static int check_kind(const char *path, const struct stat *st)
{
	if (S_ISDIR(st->st_mode))
		return gnv_fail(-EISDIR, "%s is a directory; name an image file or a block device", path);
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
				"%s has %llu bytes, less than one block of %u; make it larger, for example with truncate -s 1G",
				path, (unsigned long long)file->size, block);
	if (file->size % block)
		return gnv_fail(-EINVAL,
				"%s has %llu bytes, not a multiple of the block size %u; change its size or the block size", path,
				(unsigned long long)file->size, block);
	return 0;
}

/*
 * Direct I/O is used for everything or for nothing: two ways to one file would be two views of it. So it must work for single
 * blocks, and reading is how one finds out: what the file system says about itself depends on its version.
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
	/* O_NONBLOCK goes: io_uring would answer -EAGAIN instead of waiting. */
	int flags = fcntl(file->fd, F_GETFL) & ~O_NONBLOCK;

	file->direct = !fcntl(file->fd, F_SETFL, flags | O_DIRECT) && probe_direct(file, block);
	if (!file->direct)
		fcntl(file->fd, F_SETFL, flags);
}

static int inspect(const char *path, uint32_t block, struct gnv_os_file *file)
{
	struct stat st;
	int ret;

	if (fstat(file->fd, &st))
		return gnv_fail(-errno, "%s: cannot inspect: %s", path, strerror(errno));
	ret = check_kind(path, &st);
	if (ret)
		return ret;
	if (file->block != S_ISBLK(st.st_mode))
		return gnv_fail(-EBUSY, "%s was replaced while it was being opened; try again", path);
	ret = find_size(path, &st, block, file);
	if (ret)
		return ret;
	file->dev = file->block ? st.st_rdev : st.st_dev;
	file->ino = file->block ? 0 : st.st_ino;
	choose_direct(file, block);
	return 0;
}

int gnv_os_file_open(const char *path, uint32_t block, bool read_only, struct gnv_os_file *file)
{
	int flags = O_CLOEXEC | O_NONBLOCK | O_NOCTTY; /* a FIFO put in the place of the image must not hang us */
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
		ret = check_block_unused(path, st.st_rdev);
		if (ret)
			return ret;
		flags |= O_EXCL;
	}
	/* Root may write what its mode protects; whoever took the write bits away did not mean that. */
	if (!file->block && !(st.st_mode & 0222))
		file->read_only = true;
	file->fd = open_mode(path, flags, &file->read_only);
	if (file->fd < 0)
		return open_failed(path, -file->fd);
	ret = inspect(path, block, file);
	if (ret)
		gnv_os_file_close(file);
	return ret;
}

void gnv_os_file_close(struct gnv_os_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
}

int gnv_os_file_sync(const struct gnv_os_file *file)
{
	return fdatasync(file->fd) ? -errno : 0;
}
