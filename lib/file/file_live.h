/* SPDX-License-Identifier: MIT */
/* A file of a mounted file system, and its lease. */
#ifndef GNV_FILE_FILE_LIVE_H
#define GNV_FILE_FILE_LIVE_H

#include "file/fs.h"
#include "os/linux/extents.h"

struct gnv_live {
	int fd;
	char *name;		    /* for sentences */
	struct gnv_reader place;    /* where its file system lies; closed */
	struct gnv_os_mapped mapped; /* as it was last found in order */
	bool leased;
};

/* gpunvme_file_close(): a lease that cannot be given back stays, as that of a process that died. */
int gnv_live_end(struct gnv_live *live);

/*
 * gnv_live_find() - the file system under a file, on a block device that this library serves from the device
 * @r:     set on success: open, its bytes are the file system's
 * @super: set on success
 * Return: 0; as gpunvme_file_live().
 */
int gnv_live_find(struct gpunvme_dev *dev, uint32_t nsid, const struct gnv_os_mapped *m, struct gnv_reader *r,
		  struct gnv_super *super);

/* Is the file's data where its extents say? @node: the block device, or NULL: nothing is asked of that. Return: 0, -EOPNOTSUPP. */
int gnv_live_check_data(const struct gnv_os_mapped *m, const char *node);

/* Nothing but reading, of what is mounted. @what: the structure of options, for the sentence. Return: 0, -EINVAL. */
int gnv_live_opts(const struct gpunvme_file_opts *opts, const char *what);

#endif
