/* SPDX-License-Identifier: MIT */
/* ext2, ext3 and ext4 by libext2fs. Only where GNV_WITH_EXT4. */
#ifndef GNV_FILE_EXT2FS_H
#define GNV_FILE_EXT2FS_H

#include "file/fs.h"

/* As struct gnv_fs wants them. */
int gnv_ext2fs_list(struct gnv_reader *r, const char *path, struct gnv_list *list);
int gnv_ext2fs_gather(struct gnv_reader *r, const char *const *paths, uint32_t count, struct gnv_fill *fill);

#endif
