/* SPDX-License-Identifier: MIT */
/* Files of a mounted file system, and the lease of one. */
#ifndef GNV_FILE_FILE_LIVE_H
#define GNV_FILE_FILE_LIVE_H

#include "file/file.h"
#include "os/linux/extents.h"

struct gnv_live {
	struct gnv_reader place; /* where the file system lies. Closed */

	/* Of one file, which is kept open. */
	int fd;			     /* negative: a set */
	char *name;		     /* for messages */
	struct gnv_os_mapped mapped; /* as it was last found in order */
	bool leased;

	/* Of a set. */
	uint64_t dev;  /* its block device */
	uint64_t *was; /* of each file, a sum that shows changes */
};

/* A table's, which gpunvme_file_close() ends. Return: it, or NULL with its error message (-ENOMEM). */
struct gnv_live *gnv_live_new(struct gpunvme_file *set);

/* Bytes that it takes in the host, or 0. */
uint64_t gnv_live_bytes(const struct gpunvme_file *set);

/* The extents of a descriptor's file as they are now, in bytes, and its length. Return: as gnv_os_map_fd(). */
int gnv_live_map(int fd, const char *name, struct gnv_extents *file, struct gnv_os_mapped *m);

/* -ESTALE, with how it has changed. */
int gnv_live_changed(const char *name, const char *how);
int gnv_live_changed_bytes(const char *name, uint64_t was, uint64_t now);

/* Does a file lie where the table has it? *now is sealed by it. Return: 0, -ESTALE, as gnv_extents_seal(). */
int gnv_live_compare_extents(const struct gpunvme_file *set, uint32_t number, const char *name, struct gnv_extents *now);

/* gpunvme_file_check() of a file of a set. */
int gnv_live_check_set(const struct gpunvme_file *set, uint32_t number);

/* As gnv_fill_mounted(). */
gnv_fill_fn gnv_fill_mounted_set;

/* gpunvme_file_close(): a lease that cannot be given back stays, as that of a process that died. */
int gnv_live_end(struct gnv_live *live);

/*
 * gnv_live_find() - the file system under a file, on a block device that this library makes of the device
 * @r:     set on success: open, its bytes are the file system's
 * @super: set on success
 * Return: 0; as gpunvme_file_open().
 */
int gnv_live_find(struct gpunvme_dev *dev, uint32_t nsid, const struct gnv_os_mapped *m, struct gnv_reader *r,
		  struct gnv_super *super);

/* Is the file's data where its extents say? @node: the block device, or NULL: nothing is asked of that. Return: 0, -EOPNOTSUPP. */
int gnv_live_check_data(const struct gnv_os_mapped *m, const char *node);

#endif
