/* SPDX-License-Identifier: MIT */
/*
 * XFS, by a map only. The superblock: xfs_dsb in fs/xfs/libxfs/xfs_format.h of Linux, magic "XFSB", UUID at byte 32.
 * Whether its log waits to be replayed stands in the log alone.
 */
#include <string.h>

#include "file/fs.h"

static bool known(const uint8_t *head, const uint8_t **uuid)
{
	*uuid = head + 32;
	return memcmp(head, "XFSB", 4) == 0;
}

const struct gnv_fs gnv_fs_xfs = { .name = "xfs", .magic = 0x58465342, .super = 0, .bytes = 512, .known = known };
