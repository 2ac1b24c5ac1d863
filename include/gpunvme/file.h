/* SPDX-License-Identifier: MIT */
/*
 * Files: which blocks of a namespace a file has, so that kernels read and write it by name (gpunvme/device.h).
 *
 *   gpunvme_file_open     from a file system that nobody has mounted: ext2, ext3 and ext4
 *   gpunvme_map_make      while a file system is mounted read-only: the blocks of a file as text; ext4, XFS and btrfs
 *   gpunvme_file_map      from that text, once the library has the drive
 *   gpunvme_file_live     while its file system is mounted, from a block device that the library serves: ext4 and XFS
 *   gpunvme_file_check    whether it still is what it was then
 *   gpunvme_file_lease    it stays so, and may be written in place
 *   gpunvme_file_view     what a kernel receives
 *   gpunvme_file_list     what a directory has
 *
 * A file here is a table that was true when it was made. Nothing keeps the file system from changing the file afterwards, but that
 * it is not mounted. A drive opened by `pci:` is not, and `soft:` refuses what another process has mounted or writes to.
 * Where it is mounted, gpunvme_file_check() reports changes, and gpunvme_file_lease() keeps them away.
 * Kernels never change what a file system knows of a file: size, times and extents stay.
 */
#ifndef GPUNVME_FILE_H
#define GPUNVME_FILE_H

#include <gpunvme/dev.h>
#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_file;

enum gpunvme_file_flags {
	GPUNVME_FILE_WRITE = 1u << 0, /* kernels may write in place */
};

struct gpunvme_file_opts {
	size_t size;        /* sizeof(struct gpunvme_file_opts) */
	uint32_t flags;     /* enum gpunvme_file_flags; an unknown bit is an error */
	uint32_t nsid;      /* 0: the device's default namespace */
	uint32_t partition; /* its number, as Linux counts; 0: the file system begins where the namespace does. A map knows its own */
	uint32_t reserved;  /* 0 */
};
#define GPUNVME_FILE_OPTS_INIT { sizeof(struct gpunvme_file_opts), 0, 0, 0, 0 }

/**
 * gpunvme_file_open() - find a file by its name on a file system that is not mounted
 * @dev:  the device; needs a queue pair that the program has not, which it keeps until that wants it
 * @path: from the root of the file system; symbolic links are followed within it. Names match byte by byte, also in a folder that
 *        ignores case (casefold) where Linux has it mounted
 * @opts: NULL for the defaults
 * @file: set on success; the caller owns it
 *
 * Reads ext2, ext3 and ext4 with libext2fs, through the library. Everything on the drive is untrusted. Any thread may call it.
 * Return: 0; -EINVAL an option, or a path that leaves the root; -ENOENT, -ENOTDIR, -EISDIR, -ELOOP as of any path; -EOPNOTSUPP
 * another file system, one with a feature that is not known, a file that is no regular file, encrypted, compressed or stored in its
 * inode; for writing also one that fs-verity protects or that is immutable or for appending, or this build has no libext2fs; -EBUSY
 * its journal waits to be replayed, or it was not unmounted; -ESTALE another thread formatted the namespace meanwhile; -EUCLEAN it
 * is damaged, or knows itself that it has errors; -ENXIO no such partition; -EROFS; -ENOMEM; otherwise as gpunvme_qp_create() and
 * gpunvme_read().
 */
GPUNVME_API int gpunvme_file_open(struct gpunvme_dev *dev, const char *path, const struct gpunvme_file_opts *opts,
				  struct gpunvme_file **file);

/**
 * gpunvme_file_close() - end the use of a file
 * @file: or NULL; a lease of it is given back before, as gpunvme_file_unlease() does
 *
 * No kernel may use a view of it any more. May come after the device was closed.
 * Return: 0; -ECHILD; otherwise the lease could not be given back, with an error of gpunvme_file_unlease(), -EBUSY among them.
 * The file is gone all the same, so do not call again. The lease is left as by a process that dies: gpunvme_lease_remove() ends it.
 */
GPUNVME_API int gpunvme_file_close(struct gpunvme_file *file);

/**
 * gpunvme_map_make() - the blocks of a file on a mounted file system, as text
 * @path: of the file
 * @text: set on success; the caller frees it with free()
 *
 * The file system must be mounted read-only and be ext4, XFS or btrfs, on an NVMe namespace or a partition of one: what is written
 * later would not be in the map, and the map is refused when anything was. XFS writes to its superblock also when it is mounted
 * read-only: it must have been unmounted, and mounted with the options ro and norecovery. btrfs must be on one device, and have
 * its data once, or in whole copies (dup), of which the first is taken; its addresses are translated by its chunks, and its
 * checksums are not looked at. Asks the kernel (FIEMAP), and reads the superblock from the block device, which needs the right to;
 * btrfs, root. Any thread may call it.
 * Return: 0; -EOPNOTSUPP another file system, no regular file, or one that has no blocks of its own on the drive: encrypted,
 * compressed, in its inode, on a real-time device, or below device mapper, md or a loop device; or a btrfs of several devices,
 * striped, or with a feature that moves its data; -EBUSY the file system is mounted for writing, or the file has data that is not
 * allocated yet, or a log waits to be replayed; -EUCLEAN it has noted errors; -EACCES btrfs, and not root; -ENOMEM; as open() and
 * read() of the path and the block device return.
 */
GPUNVME_API int gpunvme_map_make(const char *path, char **text);

/**
 * gpunvme_file_map() - a file from its map
 * @dev:  the device; needs a queue pair that the program has not, which it keeps until that wants it
 * @text: what gpunvme_map_make() gave, NUL-terminated
 * @opts: NULL for the defaults
 * @file: set on success; the caller owns it
 *
 * Reads the superblock that the map was made under, and compares: nothing may have been written to the file system since. On XFS
 * this does not show when it was mounted for writing and the machine then stopped: read by such a map what you can check; writing
 * is refused, as it is on btrfs, which only its own driver may write to. Any thread may call it.
 * Return: 0; -EINVAL an option, or the text is no map, was cut off or edited; -ESTALE the file system is another one, or has been
 * written to since; -ERANGE the map has blocks that the namespace has not; -EOPNOTSUPP the file must not be written in place;
 * -EBUSY the journal waits to be replayed; -EROFS; -ENOMEM; otherwise as gpunvme_qp_create() and gpunvme_read().
 */
GPUNVME_API int gpunvme_file_map(struct gpunvme_dev *dev, const char *text, const struct gpunvme_file_opts *opts,
				 struct gpunvme_file **file);

/**
 * gpunvme_file_live() - a file of a file system that is mounted
 * @dev:  the device whose namespace the file system is on; needs a queue pair that the program has not, which it keeps until that
 *         wants it
 * @path: in the directories of this process; of an open file "/proc/self/fd/N"
 * @opts: NULL for the defaults; without GPUNVME_FILE_WRITE, and partition 0
 * @file: set on success; the caller owns it
 *
 * The file system must be ext4 or XFS, mounted from a block device or a partition of it. This library must serve that block device
 * from the same namespace, in this process or another (gpunvme/serve.h). That is known by what the ublk driver keeps, and by the
 * bytes with which both begin. What `soft:` has beneath it nobody else can have mounted, so there, too, the way is a block device
 * that is served. What was written so far is brought to the drive (FIEMAP with sync), then the kernel is asked where the file lies.
 *
 * For reading. The kernel may give the file other blocks, and its blocks to other files, as soon as somebody changes it: after
 * kernels have run, gpunvme_file_check() says whether what they read was this file. A descriptor is kept until
 * gpunvme_file_close(), so that the file system cannot be unmounted before, and a file that is deleted keeps its blocks. Any
 * thread may call it, but those that serve the block device.
 * Return: 0; -EINVAL an option; -EXDEV the block device is not served by this library, or from another namespace; -EOPNOTSUPP
 * another file system, as the sentence says (btrfs, f2fs, tmpfs, overlayfs, and what is unknown), no regular file, one that is
 * encrypted, compressed, in its inode or on a real-time device; or ext4 writes its data to the journal first; -EBUSY data is not
 * allocated yet, as somebody writes to it; -EACCES not root; -ECHILD; -ENOMEM; as open(), gpunvme_qp_create() and gpunvme_read().
 */
GPUNVME_API int gpunvme_file_live(struct gpunvme_dev *dev, const char *path, const struct gpunvme_file_opts *opts,
				  struct gpunvme_file **file);

/**
 * gpunvme_file_check() - is a file of a mounted file system what it was?
 * @file: of gpunvme_file_live()
 *
 * Compares size, times and extents with those of when it was opened, or leased, or given back. 0, called after the last command of
 * a kernel has completed: what it read was this file as it was all the while. Otherwise the sentence says what has changed; the
 * file stays as it was opened: close it, and open it again. A change of its owner, mode, names or attributes counts as one,
 * because what sets back the time of a write leaves only that trace. Under a lease it also tells what the lease does not prevent.
 * Not told: a write past the kernel's cache (O_DIRECT) that had begun before the file was opened and ends after that; a lease is
 * not given before it has. Any thread may call it.
 * Return: 0; -ESTALE it has changed; -EINVAL it is no such file; -ECHILD; what open files and their file systems return.
 */
GPUNVME_API int gpunvme_file_check(const struct gpunvme_file *file);

/**
 * gpunvme_file_lease() - keep a file of a mounted file system as it is, so that kernels may write to its blocks
 * @file: of gpunvme_file_live(), unchanged since
 *
 * After 0, until gpunvme_file_unlease(), the file has these extents and this size. All that was written to it is on the drive.
 * Views made from now on let kernels write in place. Views made before stay for reading. What keeps it is the same on ext4 and XFS:
 *
 * - The immutable flag (FS_IMMUTABLE_FL): opening it for writing, truncate, unlink, rename, link and chmod are -EPERM, and so are
 *   fallocate, reflink and dedupe into it, and XFS's exchange of ranges; e4defrag and xfs_fsr have to open it for writing.
 * - A read lease (F_SETLEASE), which the kernel gives only while nobody has it open, or mapped, for writing.
 * - A lock (flock), by which a second lease, of any process, is refused.
 *
 * What they do not prevent:
 *
 * - Reading, with what the kernel has in its cache: the bytes of before kernels wrote, where it had read them.
 * - A copy by reflink on XFS, which `cp` makes by itself: both files then have the blocks that kernels write to. The check tells
 *   (-ESTALE), and nothing mends it: do not copy a leased file.
 * - Root that clears the flag (chattr -i). A process that then opens it for writing waits until the kernel's lease ends
 *   (/proc/sys/fs/lease-break-time, 45 s), and the check reports it (-ESTALE).
 * - What goes around files: writing to the block device, and gpunvme_write().
 * - A write of a kernel that is late. One that timed out may still be carried out until gpunvme_qp_recover() or gpunvme_dev_reset()
 *   is 0, and what a process had sent to a server (`vfio-user:`) before it died, until that has noticed: give it back after that.
 *
 * Holes and what was only preallocated stay so: kernels that write there get -GPUNVME_EOPNOTSUPP (device.h).
 *
 * A process that ends without giving it back leaves it immutable. The attribute trusted.gpunvme.lease names the process, and the
 * inode, because a copy has the attribute, too (`getfattr -n trusted.gpunvme.lease FILE`, `lsattr FILE`): nobody writes to it by
 * mistake over what the kernel's cache does not know. The next gpunvme_file_lease() of it takes that over, and `gpunvme unlease
 * FILE` or gpunvme_lease_remove() ends it.
 *
 * One call on a file at a time, and no kernel that writes to it. All or nothing. Source: Linux, fs/namei.c, fs/open.c,
 * fs/remap_range.c, fs/locks.c, fs/ext4, fs/xfs.
 * Return: 0; -EBUSY it is leased, by this process or another, or somebody has it open or mapped for writing, or has a lock on it,
 * or opens it for writing at this moment;
 * -ESTALE it has changed since it was opened; -EOPNOTSUPP it must not be written in place: shared with another file, verity,
 * immutable otherwise, for appending only, features of its file system; or the kernel has not all that it takes; -EROFS; -EACCES
 * not root; -EINVAL it is no file of gpunvme_file_live(); -ECHILD; -EIO and others of fsync().
 */
GPUNVME_API int gpunvme_file_lease(struct gpunvme_file *file);

/**
 * gpunvme_file_unlease() - give it back to the kernel
 * @file: that is leased; no kernel writes to it any more, and no view that lets one is used again
 *
 * The call flushes what kernels wrote, as by fsync(). It drops the file from the kernel's cache, so that all readers see what is on
 * the drive. It sets the time of change to now, and others may write to the file again. (A page that is being read at that moment
 * does not show before Linux 6.5, which has cachestat().) Then it is a file of gpunvme_file_live() again. One whose lease was
 * broken is given back, too, and gpunvme_file_check() is -ESTALE from then on: close it, and open it again. gpunvme_file_close()
 * does the same as this call, and where that fails reports it, and leaves the file as a process does that dies. One call on a file
 * at a time.
 * Return: 0; -EBUSY somebody has it mapped, or reads it all the while, so that its old bytes cannot be dropped: end that and call
 * again, it is leased still; -EINVAL it is not leased; -ECHILD; -EIO and others of fsync(); -EPERM this process is not root any
 * more.
 */
GPUNVME_API int gpunvme_file_unlease(struct gpunvme_file *file);

/**
 * gpunvme_lease_remove() - end the lease of a process that has died
 * @path: of the file, whose file system is mounted
 *
 * As gpunvme_file_unlease(). Any thread may call it, and needs no device. Return: 0; -ENOENT no lease has left anything there, or
 * not root; -EBUSY it is leased by a process that lives, or as gpunvme_file_unlease(); as open() of the path.
 */
GPUNVME_API int gpunvme_lease_remove(const char *path);

struct gpunvme_file_info {
	size_t size;    /* set by the caller to sizeof(struct gpunvme_file_info) */
	uint64_t bytes; /* of the file */
	uint64_t inode;
	int64_t mtime;  /* seconds since 1970 ... */
	uint32_t mtime_ns; /* ... and nanoseconds */
	uint32_t generation; /* of the inode, which is used again */
	uint32_t block;      /* bytes of a block of the file system */
	uint32_t lba_size;   /* of the namespace */
	uint32_t nsid;
	uint32_t extents;
	uint8_t uuid[16]; /* of the file system */
	char fs[8];       /* "ext4", "xfs", "btrfs" */
	uint32_t writable; /* opened with GPUNVME_FILE_WRITE, or leased */
	uint32_t reserved;
};

/**
 * gpunvme_file_get_info() - what it is
 * @file: the file
 * @info: filled; info->size must be set
 *
 * Any thread may call it. Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_file_get_info(const struct gpunvme_file *file, struct gpunvme_file_info *info);

/**
 * gpunvme_file_get_extents() - which blocks of the namespace it has
 * @file:    the file
 * @first:   number of the first extent that is wanted
 * @extents: room for *count
 * @count:   in: room; out: how many were stored
 *
 * In the order of the file, merged where they lie side by side. What none covers reads as zeroes. Any thread may call it.
 * Return: 0, -EINVAL.
 */
GPUNVME_API int gpunvme_file_get_extents(const struct gpunvme_file *file, uint32_t first, struct gpunvme_dextent *extents,
					 uint32_t *count);

/* As gpunvme_file_view(), for a caller whose dq.h has the given version. Use the wrapper below. */
GPUNVME_API int gpunvme_file_view_v(struct gpunvme_file *file, struct gpunvme_gpu *gpu, struct gpunvme_dfile *dfile,
				    uint32_t version, uint32_t size);

/**
 * gpunvme_file_view() - a file for kernels
 * @file:  the file
 * @gpu:   whose lanes will use it
 * @dfile: filled; plain data, valid until gpunvme_file_close()
 *
 * Puts the table of its extents into memory of the lanes, once for each GPU. Any thread may call it.
 * Return: 0; -EINVAL; -EPROTONOSUPPORT the caller was compiled with another version of dq.h; -ENOMEM; what the GPU returns.
 */
static inline int gpunvme_file_view(struct gpunvme_file *file, struct gpunvme_gpu *gpu, struct gpunvme_dfile *dfile)
{
	return gpunvme_file_view_v(file, gpu, dfile, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR, (uint32_t)sizeof(*dfile));
}

enum gpunvme_dirent_type { GPUNVME_DIRENT_OTHER, GPUNVME_DIRENT_FILE, GPUNVME_DIRENT_DIR, GPUNVME_DIRENT_LINK };

/* One name of a directory. */
struct gpunvme_dirent {
	const char *name; /* as the file system has it, which may be any bytes but '/' and NUL; valid during the call */
	uint64_t inode;
	uint64_t bytes;
	int64_t mtime; /* seconds since 1970 */
	uint32_t type; /* enum gpunvme_dirent_type */
	uint32_t reserved;
};

/* Called for each name, "." and ".." left out, in the order of the directory. Non-zero ends it. */
typedef int gpunvme_dirent_fn(void *ctx, const struct gpunvme_dirent *entry);

/**
 * gpunvme_file_list() - what a directory of a file system has that is not mounted
 * @dev:  as gpunvme_file_open()
 * @path: of a directory, or of a file, which is then the only name
 * @opts: as gpunvme_file_open(); NULL for the defaults
 * @fn:   called for each name; may call nothing of the library
 * @ctx:  for @fn
 *
 * Return: 0; what @fn answered; as gpunvme_file_open().
 */
GPUNVME_API int gpunvme_file_list(struct gpunvme_dev *dev, const char *path, const struct gpunvme_file_opts *opts,
				  gpunvme_dirent_fn *fn, void *ctx);

#ifdef __cplusplus
}
#endif
#endif
