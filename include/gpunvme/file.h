/* SPDX-License-Identifier: MIT */
/*
 * Files: which blocks of a namespace a file has, or each file of a set, so that kernels read and write them by name or number
 * (gpunvme/device.h).
 *
 *   gpunvme_file_open       one file: of a file system that is not mounted (ext2, ext3 and ext4); by its map (ext4, XFS, btrfs); or
 *                           of one that is mounted from a block device of this library (ext4 and XFS)
 *   gpunvme_file_open_set   many as one table: a list of names, and all files below directories
 *   gpunvme_file_map_make   while a file system is mounted read-only: the blocks of a file as text, its map
 *   gpunvme_file_check      whether a file of a mounted file system still is what it was
 *   gpunvme_file_lease      it stays so, and may be written in place
 *   gpunvme_file_view       what a kernel receives of one file; gpunvme_file_view_set() of a set: there gpunvme_files_get() makes a
 *                           file of a number, and gpunvme_files_find_hash() a number of a name
 *   gpunvme_file_find       the number of a name, for the host
 *   gpunvme_file_list       what a directory has
 *
 * A file here is a table that was true when it was made. Nothing keeps the file system from changing the file afterwards, but that
 * it is not mounted. A drive opened by `pci:` is not, and `soft:` refuses what another process has mounted or writes to.
 * Where it is mounted, gpunvme_file_check() reports changes, and gpunvme_file_lease() keeps them away.
 * Kernels never change what a file system knows of a file: size, times and extents stay.
 *
 * The table has 34 to 36 bytes for each file in memory of the lanes, and 24 for each extent.
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
	GPUNVME_FILE_SKIP = 1u << 1,  /* of a set: leave out what has no blocks that threads could read; the rest moves up */
};

/* What the names are that files are opened by. */
enum gpunvme_file_how {
	GPUNVME_FILE_UNMOUNTED, /* paths from the root of a file system that nobody has mounted */
	GPUNVME_FILE_MAP,       /* no names but maps: what gpunvme_file_map_make() gave */
	GPUNVME_FILE_MOUNTED,   /* paths of this process, to a file system that is mounted */
};

/*
 * Called now and then while a table is made. @total is 0 as long as it is not known, while names are looked for: then @done counts
 * names. Non-zero ends the call. It may call nothing of the library.
 */
typedef int gpunvme_file_progress_fn(void *ctx, uint64_t done, uint64_t total);

struct gpunvme_file_opts {
	size_t size;        /* sizeof(struct gpunvme_file_opts) */
	uint32_t flags;     /* enum gpunvme_file_flags; an unknown bit is an error */
	uint32_t nsid;      /* 0: the device's default namespace */
	uint32_t partition; /* its number, as Linux counts; 0: the file system begins where the namespace does. Only when unmounted */
	uint32_t how;       /* enum gpunvme_file_how */
	gpunvme_file_progress_fn *progress; /* or NULL */
	void *ctx;                          /* for it */
	const char *const *names; /* what to call the files of maps, one for each; NULL: they have no names, only numbers */
};
#define GPUNVME_FILE_OPTS_INIT { sizeof(struct gpunvme_file_opts), 0, 0, 0, GPUNVME_FILE_UNMOUNTED, NULL, NULL, NULL }

/**
 * gpunvme_file_open() - open one file
 * @dev:  the device; needs a queue pair that the program has not, which it keeps until that wants it
 * @name: its path, or its map, as @opts says
 * @opts: NULL for the defaults: its path on a file system that is not mounted
 * @file: set on success; the caller owns it
 *
 * Any thread may call it. Of a mounted file system, threads that serve its block device must not. Everything on the drive is
 * untrusted.
 *
 * GPUNVME_FILE_UNMOUNTED: reads ext2, ext3 and ext4 with libext2fs, through the library. Symbolic links are followed within the
 * file system. Names match byte by byte, also in a folder that ignores case (casefold) where Linux has it mounted.
 *
 * GPUNVME_FILE_MAP: reads the superblock that the map was made under, and compares: nothing may have been written to the file
 * system since. On XFS this does not show when it was mounted for writing and the machine then stopped: read by such a map what you
 * can check. Writing is refused, as it is on btrfs, which only its own driver may write to.
 *
 * GPUNVME_FILE_MOUNTED: the file system must be ext4 or XFS, mounted from a block device or a partition of it. This library must
 * serve that block device from the same namespace, in this process or another (gpunvme/serve.h). That is known by what the ublk
 * driver keeps, and by the bytes with which both begin. The image of a `soft:` device cannot be mounted by others, so there, too,
 * the way is a block device that is served. What was written so far is brought to the drive (FIEMAP with sync), then the kernel is
 * asked where the file lies. Of an open file the path is "/proc/self/fd/N". The file is for reading, until it is leased. The kernel
 * may give it other blocks, and its blocks to other files, as soon as somebody changes it: after kernels have run,
 * gpunvme_file_check() says whether what they read was this file. A descriptor is kept until gpunvme_file_close(), so that the file
 * system cannot be unmounted before, and a file that is deleted keeps its blocks.
 *
 * Return: 0; -EINVAL an option, GPUNVME_FILE_SKIP, a path that leaves the root, or the text is no map, was cut off or edited;
 * -ENOENT, -ENOTDIR, -EISDIR, -ELOOP as of any path; -EOPNOTSUPP another file system, as the sentence says, one with a feature that
 * is not known, a file that is no regular file, encrypted, compressed or stored in its inode; for writing also one that fs-verity
 * protects or that is immutable or for appending, or this build has no libext2fs; mounted, also a real-time device, or ext4 writes
 * the file's data to the journal first; -EBUSY its journal waits to be replayed, or it was not unmounted; mounted: data is not
 * allocated yet, as somebody writes to it; -ESTALE another thread formatted the namespace meanwhile, or the map's file system is
 * another one, or has been written to since; -ERANGE the map has blocks that the namespace has not; -EXDEV the block device is not
 * served by this library, or from another namespace; -EACCES mounted, and not root; -EUCLEAN it is damaged, or knows itself that it
 * has errors; -ENXIO no such partition; -EROFS; -ENOMEM; -ECHILD; what the progress function answered; otherwise as open(),
 * gpunvme_queue_create() and gpunvme_read().
 */
GPUNVME_API int gpunvme_file_open(struct gpunvme_dev *dev, const char *name, const struct gpunvme_file_opts *opts,
				  struct gpunvme_file **file);

/**
 * gpunvme_file_open_set() - open many files as one table
 * @dev:   as for gpunvme_file_open()
 * @names: paths of files, and of directories, each of which stands for all regular files below it; or maps, as @opts says
 * @count: how many
 * @opts:  NULL for the defaults
 * @file:  set on success; the caller owns it
 *
 * Files are numbered from 0 on, in the order of @names, and those of one directory by the bytes of their names. So a list of files
 * has in the table the numbers that it has in the list. Each is called by the name with which gpunvme_file_open() finds it: as it
 * was given, or the directory's as it was given, and '/' and its path below that (mounted: the directory's without '/' at its end).
 * Symbolic links, devices and the like below directories are passed over. All files are of one file system. The inodes are read in
 * the order in which they lie. Of a long list those of one directory had better stand together: it is read once for them then.
 * What gpunvme_file_open() says of one file holds for all of these, but that no file is kept open, so a mounted file system may be
 * unmounted and no file can be leased. There, each file has 8 bytes more in the host. Threads: as gpunvme_file_open().
 *
 * Return: 0, also when a directory has no file below it; -EINVAL, also for maps of several file systems; -ENOENT and all others of
 * gpunvme_file_open() for the first file that cannot be had, which the sentence names (of a map, its number): then there is no
 * table; -EUCLEAN directories lead in circles, or have more names than there is room for; -EXDEV mounted, and of several file
 * systems; -EBUSY mounted, and something was replaced under way; -E2BIG more than GPUNVME_FILE_SET_MAX files, more than 2^32 - 1
 * extents, names below directories that take more than 64 MiB and eight times the file system; or a directory of which the list has
 * two files in a row and whose names take more than the file system, both at most 4 GiB (mounted: 4 GiB).
 */
GPUNVME_API int gpunvme_file_open_set(struct gpunvme_dev *dev, const char *const *names, uint32_t count,
				      const struct gpunvme_file_opts *opts, struct gpunvme_file **file);

/**
 * gpunvme_file_close() - end the use of a file, or of a set
 * @file: or NULL; a lease of it is given back before, as gpunvme_file_unlease() does
 *
 * No kernel may use a view of it any more. May come after the device was closed.
 * Return: 0; -ECHILD; otherwise the lease could not be given back, with an error of gpunvme_file_unlease(), -EBUSY among them. The
 * file is gone all the same, so do not call again. The lease is left as by a process that dies: gpunvme_file_lease_remove() ends
 * it.
 */
GPUNVME_API int gpunvme_file_close(struct gpunvme_file *file);

/**
 * gpunvme_file_map_make() - the blocks of a file on a mounted file system, as text
 * @path: of the file
 * @text: set on success; the caller frees it with free()
 *
 * The file system must be mounted read-only and be ext4, XFS or btrfs, on an NVMe namespace or a partition of one: what is written
 * later would not be in the map, and the map is refused when anything was. XFS writes to its superblock also when it is mounted
 * read-only: it must have been unmounted, and mounted with the options ro and norecovery. btrfs must be on one device, and have
 * its data once, or in whole copies (dup), of which the first is taken. Its addresses are translated by its chunks, and its
 * checksums are not looked at. Asks the kernel (FIEMAP), and reads the superblock from the block device, which needs the right to.
 * btrfs needs root. Any thread may call it.
 * Return: 0; -EOPNOTSUPP another file system, no regular file, or one that has no blocks of its own on the drive: encrypted,
 * compressed, in its inode, on a real-time device, or below device mapper, md or a loop device; or a btrfs of several devices,
 * striped, or with a feature that moves its data; -EBUSY the file system is mounted for writing, or the file has data that is not
 * allocated yet, or a log waits to be replayed; -EUCLEAN it has noted errors; -EACCES btrfs, and not root; -ENOMEM; as open() and
 * read() of the path and the block device return.
 */
GPUNVME_API int gpunvme_file_map_make(const char *path, char **text);

/**
 * gpunvme_file_check() - are files of a mounted file system what they were?
 * @file:  opened with GPUNVME_FILE_MOUNTED
 * @first: number of the first one
 * @count: how many from there on, 1 of one file; several threads may look at parts of a large set
 *
 * Compares size, times and extents with those of when it was opened, or leased, or given back. Files of a set go by their names,
 * and a relative one is looked for where the process is by then. 0, called after the last command of a kernel has completed: what
 * it read were these files as they were all the while. Otherwise the error message names the first that has changed, and how. The
 * table stays as it was made: close it, and open it again. A change of owner, mode, names or attributes counts as one, because
 * what sets back the time of a write leaves only that trace. Under a lease it also tells what the lease does not prevent. Not
 * told: a write past the kernel's cache (O_DIRECT) that had begun before the file was opened and ends after that. A lease is not
 * given before it has.
 * Any thread may call it.
 * Return: 0; -ESTALE one has changed; of a set also: was deleted or renamed, or something else has its name; -EINVAL it is no such
 * file; -ENOENT it has not so many files; -ECHILD; what open files and their file systems return.
 */
GPUNVME_API int gpunvme_file_check(const struct gpunvme_file *file, uint32_t first, uint32_t count);

/**
 * gpunvme_file_lease() - keep a file of a mounted file system as it is, so that kernels may write to its blocks
 * @file: of gpunvme_file_open() with GPUNVME_FILE_MOUNTED, unchanged since
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
 * - A write of a kernel that is late. One that timed out may still be carried out until gpunvme_queue_recover() or
 *   gpunvme_dev_reset() is 0, and what a process had sent to a server (`vfio-user:`) before it died, until that has noticed: give
 *   it back after that.
 *
 * Holes and what was only preallocated stay so: kernels that write there get -GPUNVME_EOPNOTSUPP (device.h).
 *
 * A process that ends without giving it back leaves it immutable. The attribute trusted.gpunvme.lease names the process, and the
 * inode, because a copy has the attribute, too (`getfattr -n trusted.gpunvme.lease FILE`, `lsattr FILE`): nobody writes to it by
 * mistake over what the kernel's cache does not know. The next gpunvme_file_lease() of it takes that over, and
 * `gpunvme unlease FILE` or gpunvme_file_lease_remove() ends it.
 *
 * One call on a file at a time, and no kernel that writes to it. All or nothing. Source: Linux, fs/namei.c, fs/open.c,
 * fs/remap_range.c, fs/locks.c, fs/ext4, fs/xfs.
 * Return: 0; -EBUSY it is leased, by this process or another, or somebody has it open or mapped for writing, or has a lock on it,
 * or opens it for writing at this moment;
 * -ESTALE it has changed since it was opened; -EOPNOTSUPP it must not be written in place: shared with another file, verity,
 * immutable otherwise, for appending only, features of its file system; or the kernel has not all that it takes; -EROFS; -EACCES
 * not root; -EINVAL it is no such file; -ECHILD; -EIO and others of fsync().
 */
GPUNVME_API int gpunvme_file_lease(struct gpunvme_file *file);

/**
 * gpunvme_file_unlease() - give it back to the kernel
 * @file: that is leased; no kernel writes to it any more, and no view that lets one is used again
 *
 * The call flushes what kernels wrote, as by fsync(). It drops the file from the kernel's cache, so that all readers see what is on
 * the drive. It sets the time of change to now, and others may write to the file again. (A page that is being read at that moment
 * does not show before Linux 6.5, which has cachestat().) Then it is as it was opened again. One whose lease was broken is given
 * back, too, and gpunvme_file_check() is -ESTALE from then on: close it, and open it again. gpunvme_file_close() does the same as
 * this call, and where that fails reports it, and leaves the file as a process does that dies. One call on a file at a time.
 * Return: 0; -EBUSY somebody has it mapped, or reads it all the while, so that its old bytes cannot be dropped: end that and call
 * again, it is leased still; -EINVAL it is not leased; -ECHILD; -EIO and others of fsync(); -EPERM this process is not root any
 * more.
 */
GPUNVME_API int gpunvme_file_unlease(struct gpunvme_file *file);

/**
 * gpunvme_file_lease_remove() - end the lease of a process that has died
 * @path: of the file, whose file system is mounted
 *
 * As gpunvme_file_unlease(). Any thread may call it, and needs no device. Return: 0; -ENOENT no lease has left anything there, or
 * not root; -EBUSY it is leased by a process that lives, or as gpunvme_file_unlease(); as open() of the path.
 */
GPUNVME_API int gpunvme_file_lease_remove(const char *path);

struct gpunvme_file_info {
	size_t size;         /* set by the caller to sizeof(struct gpunvme_file_info) */
	uint64_t bytes;      /* of all files */
	uint64_t lane_bytes; /* of memory that the table takes in each GPU */
	uint64_t host_bytes; /* and in the host, names included */
	uint64_t inode;      /* of gpunvme_file_open(), as the next three; of a set 0, and gpunvme_file_get_entry() tells inodes */
	int64_t mtime;       /* seconds since 1970 ... */
	uint32_t mtime_ns;   /* ... and nanoseconds */
	uint32_t generation; /* of the inode, which is used again */
	uint32_t files;
	uint32_t extents;  /* of all; files that are one by several names (hard links) share theirs */
	uint32_t skipped;  /* by GPUNVME_FILE_SKIP */
	uint32_t writable; /* opened with GPUNVME_FILE_WRITE, or leased */
	uint32_t block;    /* bytes of a block of the file system; 0 without files */
	uint32_t lba_size; /* of the namespace */
	uint32_t nsid;
	uint32_t reserved;
	uint8_t uuid[16]; /* of the file system */
	char fs[8];       /* "ext4", "xfs", "btrfs"; of a mounted set without files none */
};

/**
 * gpunvme_file_get_info() - what it is
 * @file: the file, or set
 * @info: filled; info->size must be set
 *
 * Any thread may call it. Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_file_get_info(const struct gpunvme_file *file, struct gpunvme_file_info *info);

struct gpunvme_file_entry {
	size_t size;      /* set by the caller to sizeof(struct gpunvme_file_entry) */
	const char *name; /* valid until gpunvme_file_close(); any bytes but NUL; NULL: it has none */
	uint64_t bytes;
	uint64_t inode;
	uint64_t hash; /* of its name, as gpunvme_files_hash() computes it; 0 without a name */
	uint32_t extents;
	uint32_t reserved;
};

/**
 * gpunvme_file_get_entry() - what one file of a set is
 * @file:   the set
 * @number: of the file; 0 for what gpunvme_file_open() opened
 * @entry:  filled; entry->size must be set
 *
 * Any thread may call it. Return: 0; -EINVAL; -ENOENT there is no file of that number.
 */
GPUNVME_API int gpunvme_file_get_entry(const struct gpunvme_file *file, uint32_t number, struct gpunvme_file_entry *entry);

/**
 * gpunvme_file_get_extents() - which blocks of the namespace a file has
 * @file:    the file, or set
 * @number:  of the file; 0 for what gpunvme_file_open() opened
 * @first:   number of the first extent that is wanted
 * @extents: room for *count
 * @count:   in: room; out: how many there are from @first on, which may be more than there was room for
 *
 * In the order of the file, merged where they lie side by side. What none covers reads as zeroes. Any thread may call it.
 * Return: 0; -EINVAL; -ENOENT there is no file of that number.
 */
GPUNVME_API int gpunvme_file_get_extents(const struct gpunvme_file *file, uint32_t number, uint32_t first,
					 struct gpunvme_dextent *extents, uint32_t *count);

/**
 * gpunvme_file_find() - the number of a name
 * @file:   the set
 * @name:   byte for byte as the table has it
 * @number: set on success; of several files with this name the first
 *
 * Compares names, so it tells those apart that have one hash. Any thread may call it. Return: 0; -EINVAL; -ENOENT.
 */
GPUNVME_API int gpunvme_file_find(const struct gpunvme_file *file, const char *name, uint32_t *number);

/* As gpunvme_file_view() and gpunvme_file_view_set(), by the kind, for a caller whose dq.h has the given version. Use them. */
GPUNVME_API int gpunvme_file_view_v(struct gpunvme_file *file, struct gpunvme_gpu *gpu, uint32_t kind, void *view, uint32_t version,
				    uint32_t size);

/**
 * gpunvme_file_view() - a file for kernels
 * @file:  the file; a set must have exactly one
 * @gpu:   whose lanes will use it
 * @dfile: filled; plain data, valid until gpunvme_file_close()
 *
 * Puts the table into memory of the lanes, once for each GPU. Any thread may call it.
 * Return: 0; -EINVAL; -EPROTONOSUPPORT the caller was compiled with another version of dq.h; -ENOMEM; what the GPU returns.
 */
static inline int gpunvme_file_view(struct gpunvme_file *file, struct gpunvme_gpu *gpu, struct gpunvme_dfile *dfile)
{
	return gpunvme_file_view_v(file, gpu, GPUNVME_KIND_FILE, dfile, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR,
				   (uint32_t)sizeof(*dfile));
}

/**
 * gpunvme_file_view_set() - a set of files for kernels
 * @file:   the set, which may have one file, or none
 * @gpu:    whose lanes will use it
 * @dfiles: filled; plain data, valid until gpunvme_file_close()
 *
 * As gpunvme_file_view().
 */
static inline int gpunvme_file_view_set(struct gpunvme_file *file, struct gpunvme_gpu *gpu, struct gpunvme_dfiles *dfiles)
{
	return gpunvme_file_view_v(file, gpu, GPUNVME_KIND_FILES, dfiles, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR,
				   (uint32_t)sizeof(*dfiles));
}

enum gpunvme_dirent_type { GPUNVME_DIRENT_OTHER, GPUNVME_DIRENT_FILE, GPUNVME_DIRENT_DIR, GPUNVME_DIRENT_LINK };

/* One name of a directory. */
struct gpunvme_dirent {
	char name[256]; /* as the file system has it, which may be any bytes but '/' and NUL */
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
 * gpunvme_file_list() - what a directory of a file system has that is not mounted
 * @dev:   as gpunvme_file_open()
 * @path:  of a directory, or of a file, which is then the only name
 * @opts:  as gpunvme_file_open(), without a way and flags; NULL for the defaults
 * @list:  room for *count elements: the names, without "." and "..", in the order of the directory
 * @count: in: room; out: how many there are, which may be more than there was room for
 *
 * Reads the directory of the drive in each call. Return: 0; -EINVAL; as gpunvme_file_open().
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
