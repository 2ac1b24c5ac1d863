/* SPDX-License-Identifier: MIT */
/*
 * Files: the blocks of a namespace that a file has, or each file of a set. So kernels read and write files by name or number
 * (gpunvme/device.h).
 *
 *   gpunvme_file_open       one file: unmounted (ext2, ext3 and ext4), by its map (ext4, XFS, btrfs), or mounted from a block
 *                           device of this library (ext4 and XFS)
 *   gpunvme_file_open_set   many files as one table: a list of names, and all files below directories
 *   gpunvme_file_map_make   the map of a file: its blocks as text, made while a file system is mounted read-only
 *   gpunvme_file_check      whether a file of a mounted file system has changed
 *   gpunvme_file_lease      keep it unchanged, so that kernels may write in place
 *   gpunvme_file_view       what a kernel receives of one file, or of a set (gpunvme_files_get(), gpunvme_files_find_hash())
 *   gpunvme_file_find       the number of a name, for the host
 *   gpunvme_file_list       the names of a directory
 *
 * A file here is a table that was true when it was made. The file system may change the file afterwards, unless it is not mounted.
 * A drive opened by `pci:` is not mounted, and `soft:` refuses what another process has mounted or writes to. If it is mounted,
 * gpunvme_file_check() reports changes, and gpunvme_file_lease() prevents them. Kernels never change the size, times and extents
 * that a file system records. The table has 34 to 36 bytes for each file in memory of the threads, and 24 for each extent.
 */
#ifndef GPUNVME_FILE_H
#define GPUNVME_FILE_H

#include <gpunvme/dev.h>
#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_file; /* one file, or a set of them, numbered from 0 on */

#define GPUNVME_FILE_SET_MAX (1u << 24) /* files of a set */

enum gpunvme_file_flags {
	GPUNVME_FILE_WRITE = 1u << 0, /* kernels may write in place, to all of them */
	GPUNVME_FILE_SKIP = 1u << 1,  /* of a set: leave out files without blocks that threads could read. The rest moves up */
};

/* Meaning of the names that files are opened by. */
enum gpunvme_file_how {
	GPUNVME_FILE_UNMOUNTED, /* paths from the root of a file system that is not mounted */
	GPUNVME_FILE_MAP,       /* maps that gpunvme_file_map_make() made */
	GPUNVME_FILE_MOUNTED,   /* paths of this process, to a file system that is mounted */
};

/*
 * Called now and then while a table is made. @total is 0 while the library looks for names: then @done counts names. Non-zero ends
 * the call. It must not call the library.
 */
typedef int gpunvme_file_progress_fn(void *ctx, uint64_t done, uint64_t total);

struct gpunvme_file_opts {
	size_t size;        /* sizeof(struct gpunvme_file_opts) */
	uint32_t flags;     /* enum gpunvme_file_flags. An unknown bit is an error */
	uint32_t nsid;      /* 0: the device's default namespace */
	uint32_t partition; /* its number, as Linux counts. 0: the file system begins with the namespace. Only if not mounted */
	uint32_t how;       /* enum gpunvme_file_how */
	gpunvme_file_progress_fn *progress; /* or NULL */
	void *ctx;                          /* for it */
	const char *const *names; /* names of the files of maps, one for each. NULL: only numbers */
};
#define GPUNVME_FILE_OPTS_INIT { sizeof(struct gpunvme_file_opts), 0, 0, 0, GPUNVME_FILE_UNMOUNTED, NULL, NULL, NULL }

/**
 * gpunvme_file_open() - open one file
 * @dev:  the device. The library needs a free queue pair of it, and keeps that until the program requests it
 * @name: its path, or its map, as opts->how says
 * @opts: NULL for the defaults: a path on a file system that is not mounted. Not kept
 * @file: set on success. The caller owns it and closes it by gpunvme_file_close()
 *
 * Everything on the drive is untrusted. Any thread may call it, for a mounted file system all but those that process its block
 * device.
 *
 * GPUNVME_FILE_UNMOUNTED: reads ext2, ext3 and ext4 with libext2fs, through the library. Symbolic links are followed within the
 * file system. Names match byte by byte, also in a folder that ignores case (casefold) when Linux has it mounted.
 *
 * GPUNVME_FILE_MAP: compares the superblock with that in the map: nothing may have been written to the file system since. XFS does
 * not show that if it was mounted for writing and the machine then stopped: read by such a map only what you can check. Writing is
 * refused there, as on btrfs, which only its own driver may write to.
 *
 * GPUNVME_FILE_MOUNTED: the file system must be ext4 or XFS, mounted from a block device or a partition of it. This library must
 * make that block device of the same namespace, in this process or another (gpunvme/serve.h). The ublk driver reports that, and the
 * first bytes of both are compared. Other processes cannot mount the image of a `soft:` device, so use such a block device there,
 * too. What was written so far is flushed to the drive (FIEMAP with sync), then the kernel reports the blocks of the file. The path
 * of an open file is "/proc/self/fd/N". The file is for reading, until it is leased. After any change the kernel may give it other
 * blocks, and its blocks to other files: after kernels have run, gpunvme_file_check() says whether they read this file. The library
 * keeps a descriptor until gpunvme_file_close(). So the file system cannot be unmounted before, and a file that is deleted keeps
 * its blocks.
 * Return:
 * - 0; -ENOMEM; -ECHILD; what the progress function returned; otherwise as open(), gpunvme_queue_create() and gpunvme_read().
 * - -EINVAL: an option, GPUNVME_FILE_SKIP, or GPUNVME_FILE_WRITE if mounted. A path that leaves the root. A text that is no whole
 *   map.
 * - -ENOENT, -ENOTDIR, -EISDIR, -ELOOP, -ENAMETOOLONG (more than 4095 bytes): as of any path; -ENXIO: no such partition.
 * - -EOPNOTSUPP: another file system, as the error message says, or one with an unknown feature. No regular file, or one that is
 *   encrypted, compressed or stored in its inode. For writing also a file that fs-verity protects, or is immutable or for
 *   appending. Or this build has no libext2fs. If mounted also a real-time device, or an ext4 that writes the file's data to the
 *   journal first.
 * - -EBUSY: its journal waits to be replayed, or it was not unmounted. If mounted: a process writes to it, and data is not
 *   allocated.
 * - -ESTALE: another thread formatted the namespace meanwhile. Or the map is of another file system, or that was written since.
 * - -ERANGE: the map or the file system has blocks that the namespace lacks; -EFBIG: its last block would end after 2^64 bytes.
 * - -EXDEV: the block device is not made by this library, or of another namespace; -EACCES: mounted, and not root; -EROFS.
 * - -EUCLEAN: the file system is damaged, or has recorded errors.
 */
GPUNVME_API int gpunvme_file_open(struct gpunvme_dev *dev, const char *name, const struct gpunvme_file_opts *opts,
				  struct gpunvme_file **file);

/**
 * gpunvme_file_open_set() - open many files as one table
 * @dev:   as for gpunvme_file_open()
 * @names: paths of files, and of directories, each of which stands for all regular files below it. Or maps, as opts->how says
 * @count: number of names, 1 or more
 * @opts:  NULL for the defaults. Not kept
 * @file:  set on success. The caller owns it and closes it by gpunvme_file_close()
 *
 * Files are numbered from 0 on, in the order of @names, and those of one directory by the bytes of their names. So a list of files
 * has in the table the numbers that it has in the list. The name of a file is the one with which gpunvme_file_open() finds it: as
 * given, or the directory as given, '/' and the path below it (mounted: the directory without '/' at its end). Symbolic links,
 * devices and the like below directories are skipped. All files are of one file system. The inodes are read in their order on the
 * drive. A long list should have the files of one directory together, because it is read once for them then. gpunvme_file_open()
 * says the rest, with one difference: no file is kept open. So a mounted file system may be unmounted, no file can be leased, and
 * each file has 8 bytes more in the host. Threads: as gpunvme_file_open().
 * A set of one file is a file: all other calls take either. Opening has two calls, because a directory is many files here and an
 * error there.
 * Return: (an error is of the first file that cannot be opened, which the message names, and there is no table)
 * - 0: also if a directory has no file below it.
 * - -EINVAL: also for maps of several file systems; -EXDEV: also for mounted files of several file systems.
 * - -EUCLEAN: also if directories lead in circles, or have more names than there is room for.
 * - -EBUSY: also if a mounted file was replaced meanwhile.
 * - -E2BIG: more than GPUNVME_FILE_SET_MAX files or 2^32 - 1 extents. Or names that take more than 4 GiB, if not mounted more than
 *   64 MiB plus eight times the file system. Or a directory of two files in a row of the list, with names that take more than the
 *   file system.
 * - Otherwise as gpunvme_file_open().
 */
GPUNVME_API int gpunvme_file_open_set(struct gpunvme_dev *dev, const char *const *names, uint32_t count,
				      const struct gpunvme_file_opts *opts, struct gpunvme_file **file);

/**
 * gpunvme_file_close() - close a file, or a set
 * @file: NULL does nothing. No kernel may use a view of it any more, and no other thread. Its device may be closed before
 *
 * A lease of it is given back, as by gpunvme_file_unlease().
 * Return: 0; -ECHILD; otherwise an error of gpunvme_file_unlease(), also -EBUSY: the lease could not be given back. The file is
 * closed all the same, so do not call again. The lease remains as after the death of a process: gpunvme_file_lease_remove() ends
 * it.
 */
GPUNVME_API int gpunvme_file_close(struct gpunvme_file *file);

/**
 * gpunvme_file_map_make() - make the map of a file on a mounted file system: its blocks as text
 * @path: of the file
 * @text: set on success. The caller frees it with free()
 *
 * The file system must be ext4, XFS or btrfs, mounted read-only, on an NVMe namespace or a partition of one. What is written later
 * would not be in the map, and the map is refused then. XFS writes to its superblock also when it is mounted read-only: unmount it,
 * and mount it with the options ro and norecovery. btrfs must be on one device, and have its data once, or in whole copies (dup),
 * of which the first is taken. Its addresses are translated by its chunks. Its checksums are not used. The call asks the kernel
 * (FIEMAP) and reads the superblock from the block device, which needs that permission. btrfs needs root. Any thread may call it.
 * Return:
 * - 0; -ENOMEM; -EACCES: btrfs, and not root; otherwise as open() and read() of the path and the block device.
 * - -EOPNOTSUPP: another file system, no regular file, or one without own blocks on the drive: encrypted, compressed, in its inode,
 *   on a real-time device, or below device mapper, md or a loop device. Or a btrfs of several devices, striped, or with a feature
 *   that moves its data.
 * - -EBUSY: mounted for writing, the file has data that is not allocated yet, or a log waits to be replayed; -EUCLEAN: it has
 *   errors.
 */
GPUNVME_API int gpunvme_file_map_make(const char *path, char **text);

/**
 * gpunvme_file_check() - check whether files of a mounted file system have changed
 * @file:  opened with GPUNVME_FILE_MOUNTED
 * @first: number of the first file
 * @count: number of files, 1 for one file. Several threads may check parts of a large set
 *
 * Compares size, times and extents with those of when it was opened, leased or given back. Files of a set are found by their names,
 * relative ones from the present directory of the process. If it returns 0 after the last command of a kernel has completed, the
 * kernel has read these files as they were all that time. Otherwise the error message names the first that has changed, and how.
 * The table stays as it was made: close it, and open it again. Changes of owner, mode, names or attributes count, because what sets
 * back the time of a write leaves only that trace. Under a lease it also reports what the lease does not prevent. It does not
 * report a write past the kernel's cache (O_DIRECT) that began before the file was opened and ends afterwards. No lease is given
 * before such a write ends. Any thread may call it.
 * Return: 0; -ESTALE: one has changed, of a set also: was deleted or renamed, or another file has its name; -EINVAL: not opened so;
 * -ENOENT: it has not so many files; -ECHILD; -ENOMEM; or errors of opening files.
 */
GPUNVME_API int gpunvme_file_check(const struct gpunvme_file *file, uint32_t first, uint32_t count);

/**
 * gpunvme_file_lease() - keep a file of a mounted file system unchanged, so that kernels may write to its blocks
 * @file: of gpunvme_file_open() with GPUNVME_FILE_MOUNTED, unchanged since
 *
 * After 0, until gpunvme_file_unlease(), the file has these extents and this size. All that was written to it is on the drive. New
 * views let kernels write in place. Older views stay for reading. Three things protect it on ext4 and XFS:
 * - The immutable flag (FS_IMMUTABLE_FL): opening it for writing, truncate, unlink, rename, link and chmod are -EPERM. So are
 *   fallocate, reflink and dedupe into it, and XFS's exchange of ranges. e4defrag and xfs_fsr have to open it for writing.
 * - A read lease (F_SETLEASE), which the kernel gives only while no process has it open, or mapped, for writing.
 * - A lock (flock), by which a second lease, of any process, is refused.
 *
 * They do not prevent:
 * - Reads from the kernel's cache: the bytes from before kernels wrote.
 * - A copy by reflink on XFS, which `cp` makes by itself. Both files then have the blocks that kernels write to.
 *   gpunvme_file_check() reports it (-ESTALE), and nothing repairs it: do not copy a leased file.
 * - Root that clears the flag (chattr -i). A process that then opens it for writing waits until the kernel's lease ends
 *   (/proc/sys/fs/lease-break-time, 45 s), and the check reports it (-ESTALE).
 * - Writes to the block device, and gpunvme_write().
 * - A late write of a kernel. One that timed out may still be carried out until gpunvme_queue_recover() or gpunvme_dev_reset() is
 *   0. What a process had sent to a server (`vfio-user:`) before it died may be, until the server notices that. Give it back after
 *   that.
 *
 * Kernels that write to holes and to preallocated blocks get -GPUNVME_EOPNOTSUPP (device.h).
 *
 * A process that ends without giving it back leaves it immutable. So no process writes to it by mistake over what the kernel's
 * cache lacks. The attribute trusted.gpunvme.lease names the process and the inode, because a copy has the attribute, too
 * (`getfattr -n trusted.gpunvme.lease FILE`, `lsattr FILE`). The next gpunvme_file_lease() of it takes that over. `gpunvme unlease
 * FILE` or gpunvme_file_lease_remove() ends it. One call on a file at a time, while no kernel writes to it. All or nothing. Source:
 * Linux, fs/namei.c, fs/open.c, fs/remap_range.c, fs/locks.c, fs/ext4, fs/xfs.
 * Return:
 * - 0; -EROFS; -EACCES: not root; -EINVAL: not opened so; -ECHILD; -ENOMEM; -EIO and others of fsync().
 * - -EBUSY: it is leased, by this process or another. Or a process has it open or mapped for writing, opens it so now, or locks it.
 * - -ESTALE: it has changed since it was opened.
 * - -EOPNOTSUPP: it must not be written in place: shared with another file, verity, immutable otherwise, for appending only, or a
 *   feature of its file system. Or the kernel lacks flag, attributes or leases.
 */
GPUNVME_API int gpunvme_file_lease(struct gpunvme_file *file);

/**
 * gpunvme_file_unlease() - give a leased file back to the kernel
 * @file: the file. No kernel writes to it any more, and views for writing are not used again
 *
 * The call flushes what kernels wrote, as by fsync(). It drops the file from the kernel's cache, so that all readers see what is on
 * the drive. (Before Linux 6.5, which has cachestat(), it misses a page that is being read at that moment.) It sets the time of
 * change to now. Then others may write to the file again, and it is as just opened. A file whose lease was broken is given back,
 * too, and gpunvme_file_check() is -ESTALE from then on: close it, and open it again. One call on a file at a time.
 * Return:
 * - 0; -EINVAL: it is not leased; -ECHILD; -EIO and others of fsync(); -EPERM: this process is not root any more.
 * - -EBUSY: a process has it mapped or keeps reading it, so its old bytes stay in the cache. It is still leased: end that, call
 *   again.
 */
GPUNVME_API int gpunvme_file_unlease(struct gpunvme_file *file);

/**
 * gpunvme_file_lease_remove() - end the lease of a process that has died
 * @path: of the file, whose file system is mounted
 *
 * Does what gpunvme_file_unlease() does, and needs no device. Any thread may call it.
 * Return: 0; -ENOENT: there is no lease, or this is not root; -EBUSY: a living process has it, or as gpunvme_file_unlease();
 * otherwise as open() of the path.
 */
GPUNVME_API int gpunvme_file_lease_remove(const char *path);

struct gpunvme_file_info {
	size_t size;         /* set by the caller to sizeof(struct gpunvme_file_info) */
	uint64_t bytes;      /* of all files */
	uint64_t gpu_bytes; /* bytes that the table takes in memory of each GPU */
	uint64_t host_bytes; /* bytes that it takes in the host, with the names */
	uint64_t inode;      /* of gpunvme_file_open(), as the next three. Of a set 0: see gpunvme_file_get_entry() */
	int64_t mtime;       /* seconds since 1970 ... */
	uint32_t mtime_ns;   /* ... and nanoseconds */
	uint32_t generation; /* of the inode, whose number is used again */
	uint32_t files;
	uint32_t extents;  /* of all. Hard links share theirs */
	uint32_t skipped;  /* files that GPUNVME_FILE_SKIP left out */
	uint32_t writable; /* 1: opened with GPUNVME_FILE_WRITE, or leased */
	uint32_t block;    /* bytes of a block of the file system. 0 without files */
	uint32_t lba_size; /* of the namespace */
	uint32_t nsid;
	uint32_t reserved;
	uint8_t uuid[16]; /* of the file system */
	char fs[8];       /* "ext4", "xfs", "btrfs". "": a mounted set without files */
};

/**
 * gpunvme_file_get_info() - get the properties of a file, or set
 * @file: the file, or set
 * @info: filled. Set info->size before
 *
 * Any thread may call it.
 * Return: 0; -EINVAL: info->size is too small.
 */
GPUNVME_API int gpunvme_file_get_info(const struct gpunvme_file *file, struct gpunvme_file_info *info);

struct gpunvme_file_entry {
	size_t size;      /* set by the caller to sizeof(struct gpunvme_file_entry) */
	const char *name; /* valid until gpunvme_file_close(). Any bytes but NUL. NULL: it has none */
	uint64_t bytes;
	uint64_t inode;
	uint64_t hash; /* of its name, as gpunvme_files_hash() computes it. 0 without a name */
	uint32_t extents;
	uint32_t reserved;
};

/**
 * gpunvme_file_get_entry() - get the properties of one file of a set
 * @file:   the set, or the file
 * @number: of the file. 0 for a file of gpunvme_file_open()
 * @entry:  filled. Set entry->size before
 *
 * The files of a set need no list: their numbers are 0 to gpunvme_file_info.files - 1. Any thread may call it.
 * Return: 0; -EINVAL; -ENOENT: there is no file of that number.
 */
GPUNVME_API int gpunvme_file_get_entry(const struct gpunvme_file *file, uint32_t number, struct gpunvme_file_entry *entry);

/**
 * gpunvme_file_get_extents() - get the blocks of the namespace that a file has
 * @file:    the file, or set
 * @number:  of the file. 0 for a file of gpunvme_file_open()
 * @extents: room for *count extents
 * @count:   in: room. Out: number of extents, which may exceed the room
 *
 * In the order of the file, adjacent ones merged. What no extent covers reads as zeroes. Any thread may call it.
 * Return: 0; -EINVAL; -ENOENT: there is no file of that number.
 */
GPUNVME_API int gpunvme_file_get_extents(const struct gpunvme_file *file, uint32_t number, struct gpunvme_dextent *extents,
					 uint32_t *count);

/**
 * gpunvme_file_find() - find the number of a name
 * @file:   the set
 * @name:   byte for byte as the table has it
 * @number: set on success. Of several files with this name the first
 *
 * Compares names, so it distinguishes names with the same hash. Any thread may call it.
 * Return: 0; -EINVAL; -ENOENT: no file has this name.
 */
GPUNVME_API int gpunvme_file_find(const struct gpunvme_file *file, const char *name, uint32_t *number);

/* As gpunvme_file_view(), for a caller whose dq.h has the given version. @view is of @kind (enum gpunvme_kind) and @size bytes. */
GPUNVME_API int gpunvme_file_view_v(struct gpunvme_file *file, struct gpunvme_gpu *gpu, uint32_t kind, void *view, uint32_t version,
				    uint32_t size);

/**
 * gpunvme_file_view() - get the view of a file, or of a set of files, for kernels
 * @file: the file, or set
 * @gpu:  the processor whose threads will use it
 * @view: filled. Plain data, valid until gpunvme_file_close(). A struct gpunvme_dfile takes one file, also of a set that has only
 *        one. A struct gpunvme_dfiles takes any set, also of one file, or of none
 *
 * In C it is a macro that uses the type of @view. Copies the table to memory of the threads, once for each GPU. Any thread may
 * call it.
 * Return: 0; -EINVAL: also a struct gpunvme_dfile for a set of none or several files; -EPROTONOSUPPORT: the caller was compiled
 * with another version of dq.h; -ECHILD; -ENOMEM; or errors of the GPU.
 */
#ifdef __cplusplus
} /* overloads are C++ */
static inline int gpunvme_file_view(struct gpunvme_file *file, struct gpunvme_gpu *gpu, struct gpunvme_dfile *view)
{
	return gpunvme_file_view_v(file, gpu, GPUNVME_KIND_FILE, view, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR,
				   (uint32_t)sizeof(*view));
}
static inline int gpunvme_file_view(struct gpunvme_file *file, struct gpunvme_gpu *gpu, struct gpunvme_dfiles *view)
{
	return gpunvme_file_view_v(file, gpu, GPUNVME_KIND_FILES, view, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR,
				   (uint32_t)sizeof(*view));
}
extern "C" {
#else
#define gpunvme_file_view(file, gpu, view) \
	gpunvme_file_view_v(file, gpu, \
			    _Generic((view), struct gpunvme_dfile *: GPUNVME_KIND_FILE, struct gpunvme_dfiles *: GPUNVME_KIND_FILES), \
			    view, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR, (uint32_t)sizeof(*(view)))
#endif

enum gpunvme_dirent_type { GPUNVME_DIRENT_OTHER, GPUNVME_DIRENT_FILE, GPUNVME_DIRENT_DIR, GPUNVME_DIRENT_LINK };

/* One name of a directory. */
struct gpunvme_dirent {
	char name[256]; /* as the file system has it: any bytes but '/' and NUL */
	uint64_t inode;
	uint64_t bytes;
	int64_t mtime; /* seconds since 1970 */
	uint32_t type; /* enum gpunvme_dirent_type */
	uint32_t reserved;
};

/* As gpunvme_file_list(), for a caller whose elements have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_file_list_v(struct gpunvme_dev *dev, const char *path, const struct gpunvme_file_opts *opts,
				    struct gpunvme_dirent *list, uint32_t *count, size_t stride);

/**
 * gpunvme_file_list() - list the names of a directory of a file system that is not mounted
 * @dev:   as for gpunvme_file_open()
 * @path:  of a directory, or of a file, which is then the only name
 * @opts:  as for gpunvme_file_open(), with flags and how 0. NULL for the defaults
 * @list:  room for *count elements: the names, without "." and "..", in the order of the directory
 * @count: in: room. Out: number of names, which may exceed the room
 *
 * Each call reads the directory from the drive. Threads: as gpunvme_file_open().
 * Return: 0; -EINVAL; otherwise as gpunvme_file_open().
 */
static inline int gpunvme_file_list(struct gpunvme_dev *dev, const char *path, const struct gpunvme_file_opts *opts,
				    struct gpunvme_dirent *list, uint32_t *count)
{
	return gpunvme_file_list_v(dev, path, opts, list, count, sizeof(*list));
}

#ifdef __cplusplus
}
#endif
#endif
