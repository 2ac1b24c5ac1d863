/* SPDX-License-Identifier: MIT */
/*
 * Many files as one table: kernels use them by number, or by a hash of the name, and read them as they read one (file.h).
 *
 *   gpunvme_files_open    from a file system that nobody has mounted: a list of names, and all files below directories
 *   gpunvme_files_map     from maps of files
 *   gpunvme_files_live    while their file system is mounted; gpunvme_files_check() tells what has changed since
 *   gpunvme_files_view    what a kernel receives; gpunvme_files_get() makes a file of a number there, gpunvme_files_find_hash() a
 *                         number of a name (gpunvme/device.h)
 *   gpunvme_files_find    the number of a name, for the host
 *
 * The table has 34 to 36 bytes for each file in memory of the lanes, and 24 for each extent. What file.h says of files holds for
 * all of them: the table was true when it was made.
 */
#ifndef GPUNVME_FILES_H
#define GPUNVME_FILES_H

#include <gpunvme/file.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_files;

#define GPUNVME_FILES_MAX (1u << 24) /* files of one table */

enum gpunvme_files_flags {
	GPUNVME_FILES_WRITE = GPUNVME_FILE_WRITE, /* kernels may write in place, to all of them */
	GPUNVME_FILES_SKIP = 1u << 1,             /* leave out what has no blocks that threads could read; the rest moves up */
};

/*
 * Called now and then while a table is made. @total is 0 as long as it is not known, while names are looked for: then @done counts
 * names. Non-zero ends the call. It may call nothing of the library.
 */
typedef int gpunvme_files_progress_fn(void *ctx, uint64_t done, uint64_t total);

struct gpunvme_files_opts {
	size_t size;        /* sizeof(struct gpunvme_files_opts) */
	uint32_t flags;     /* enum gpunvme_files_flags; an unknown bit is an error */
	uint32_t nsid;      /* 0: the device's default namespace */
	uint32_t partition; /* as in struct gpunvme_file_opts */
	uint32_t reserved;  /* 0 */
	gpunvme_files_progress_fn *progress; /* or NULL */
	void *ctx;                           /* for it */
};
#define GPUNVME_FILES_OPTS_INIT { sizeof(struct gpunvme_files_opts), 0, 0, 0, 0, NULL, NULL }

/**
 * gpunvme_files_open() - find files by their names on a file system that is not mounted
 * @dev:   the device; needs a queue pair that the program has not, which it keeps until that wants it
 * @paths: names of files, and of directories, each of which stands for all regular files below it; as for gpunvme_file_open()
 * @count: how many
 * @opts:  NULL for the defaults
 * @files: set on success; the caller owns it
 *
 * Files are numbered from 0 on, in the order of @paths, and those of one directory by the bytes of their names; so a list of files
 * has in the table the numbers that it has in the list. Each is called by the name with which gpunvme_file_open() finds it: as it
 * was given, or the directory's as it was given, and '/' and its path below that. Symbolic links, devices and the like below
 * directories are passed over. The inodes are read in the order in which they lie. Of a long list those of one directory had better
 * stand together: it is read once for them then. Any thread may call it.
 *
 * Return: 0, also when a directory has no file below it; -EINVAL; -ENOENT and all others of gpunvme_file_open() for the first file
 * that cannot be had, which the sentence names, then there is no table; -EUCLEAN directories lead in circles, or have more names
 * than there is room for; -E2BIG more than GPUNVME_FILES_MAX files, more than 2^32 - 1 extents, names below directories that take
 * more than 64 MiB and eight times the file system; or a directory of which the list has two files in a row and whose names take
 * more than the file system, both at most 4 GiB; what the progress function answered.
 */
GPUNVME_API int gpunvme_files_open(struct gpunvme_dev *dev, const char *const *paths, uint32_t count,
				   const struct gpunvme_files_opts *opts, struct gpunvme_files **files);

/**
 * gpunvme_files_map() - many files from their maps
 * @dev:   the device; needs a queue pair that the program has not, which it keeps until that wants it
 * @texts: what gpunvme_map_make() gave, NUL-terminated
 * @names: what to call them, or NULL: they have no names, only numbers
 * @count: how many
 * @opts:  NULL for the defaults
 * @files: set on success; the caller owns it
 *
 * Files have the numbers of their maps in the list. All must be of one file system. Any thread may call it.
 * Return: 0; -EINVAL, also for maps of several file systems; as gpunvme_file_map() for the first that is refused, whose number the
 * sentence has; -E2BIG; what the progress function answered.
 */
GPUNVME_API int gpunvme_files_map(struct gpunvme_dev *dev, const char *const *texts, const char *const *names, uint32_t count,
				  const struct gpunvme_files_opts *opts, struct gpunvme_files **files);

/**
 * gpunvme_files_live() - files of a file system that is mounted
 * @dev:   the device whose namespace it is on; needs a queue pair that the program has not, which it keeps until that wants it
 * @paths: names of files, and of directories, each of which stands for all regular files below it; as this process has them
 * @count: how many
 * @opts:  NULL for the defaults; without GPUNVME_FILES_WRITE, and partition 0
 * @files: set on success; the caller owns it
 *
 * What gpunvme_file_live() says of one file holds for all of these. They are called by the names with which it finds them, a
 * directory without '/' at its end, and numbered as by gpunvme_files_open(). Below directories symbolic links are passed over.
 * All must be of one file system. The table keeps no file open, so it may be unmounted; each file has 8 bytes more in the host.
 * Any thread may call it, but those that serve the block device.
 * Return: 0, also when a directory has no file below it; -EINVAL; -EXDEV also when they are of several file systems; -EBUSY also
 * when something was replaced under way; -ELOOP; -E2BIG also for names that take more than 4 GiB; otherwise as gpunvme_file_live()
 * for the first that cannot be had, which the sentence names; what the progress function answered.
 */
GPUNVME_API int gpunvme_files_live(struct gpunvme_dev *dev, const char *const *paths, uint32_t count,
				   const struct gpunvme_files_opts *opts, struct gpunvme_files **files);

/**
 * gpunvme_files_check() - are files of a mounted file system what they were?
 * @files: of gpunvme_files_live()
 * @first: number of the first one
 * @count: how many from there on; several threads may look at parts of a long table
 *
 * For each as gpunvme_file_check(), by its name; a relative one is looked for where the process is by then. 0, called after the
 * last command of a kernel has completed: what it read were these files as they were all the while. Otherwise the sentence names
 * the first that has changed, and how. A change cannot be taken into the table: close it, and make another. Any thread may call it.
 * Return: 0; -ESTALE one has changed, was deleted or renamed, or something else has its name; -EINVAL it is no such table; -ENOENT
 * it has not so many files; -ECHILD; what open files and their file systems return.
 */
GPUNVME_API int gpunvme_files_check(const struct gpunvme_files *files, uint32_t first, uint32_t count);

/**
 * gpunvme_files_close() - end the use of many files
 * @files: or NULL
 * No kernel may use a view of them any more. May come after the device was closed.
 * Return: 0; -ECHILD.
 */
GPUNVME_API int gpunvme_files_close(struct gpunvme_files *files);

struct gpunvme_files_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_files_info) */
	uint32_t files;
	uint32_t extents;    /* of all; files that are one by several names (hard links) share theirs */
	uint64_t bytes;      /* of all files */
	uint64_t lane_bytes; /* of memory that the table takes in each GPU */
	uint64_t host_bytes; /* and in the host, names included */
	uint32_t skipped;    /* by GPUNVME_FILES_SKIP */
	uint32_t writable;   /* opened with GPUNVME_FILES_WRITE */
	uint32_t lba_size;   /* of the namespace */
	uint32_t nsid;
	uint8_t uuid[16]; /* of the file system */
	char fs[8];       /* "ext4", "xfs", "btrfs"; of a live table without files none */
};

/**
 * gpunvme_files_get_info() - what the table is
 * @files: the table
 * @info:  filled; info->size must be set
 *
 * Any thread may call it. Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_files_get_info(const struct gpunvme_files *files, struct gpunvme_files_info *info);

struct gpunvme_files_entry {
	size_t size;      /* set by the caller to sizeof(struct gpunvme_files_entry) */
	const char *name; /* valid until gpunvme_files_close(); any bytes but NUL; NULL: it has none */
	uint64_t bytes;
	uint64_t inode;
	uint64_t hash; /* of its name, as gpunvme_files_hash() computes it; 0 without a name */
	uint32_t extents;
	uint32_t reserved;
};

/**
 * gpunvme_files_get_entry() - what one file is
 * @files:  the table
 * @number: of the file
 * @entry:  filled; entry->size must be set
 *
 * Any thread may call it. Return: 0; -EINVAL; -ENOENT there is no file of that number.
 */
GPUNVME_API int gpunvme_files_get_entry(const struct gpunvme_files *files, uint32_t number, struct gpunvme_files_entry *entry);

/**
 * gpunvme_files_find() - the number of a name
 * @files:  the table
 * @name:   byte for byte as the table has it
 * @number: set on success; of several files with this name the first
 *
 * Compares names, so it tells those apart that have one hash. Any thread may call it. Return: 0; -EINVAL; -ENOENT.
 */
GPUNVME_API int gpunvme_files_find(const struct gpunvme_files *files, const char *name, uint32_t *number);

/* As gpunvme_files_view(), for a caller whose dq.h has the given version. Use the wrapper below. */
GPUNVME_API int gpunvme_files_view_v(struct gpunvme_files *files, struct gpunvme_gpu *gpu, struct gpunvme_dfiles *dfiles,
				     uint32_t version, uint32_t size);

/**
 * gpunvme_files_view() - many files for kernels
 * @files:  the table
 * @gpu:    whose lanes will use it
 * @dfiles: filled; plain data, valid until gpunvme_files_close()
 *
 * Puts the table into memory of the lanes, once for each GPU. Any thread may call it.
 * Return: 0; -EINVAL; -EPROTONOSUPPORT the caller was compiled with another version of dq.h; -ENOMEM; what the GPU returns.
 */
static inline int gpunvme_files_view(struct gpunvme_files *files, struct gpunvme_gpu *gpu, struct gpunvme_dfiles *dfiles)
{
	return gpunvme_files_view_v(files, gpu, dfiles, GPUNVME_DQ_MAJOR << 16 | GPUNVME_DQ_MINOR, (uint32_t)sizeof(*dfiles));
}

#ifdef __cplusplus
}
#endif
#endif
