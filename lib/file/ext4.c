/* SPDX-License-Identifier: MIT */
/*
 * ext2, ext3 and ext4. The superblock: Linux, Documentation/filesystems/ext4/super.rst, s_magic at 38h, s_state at 3ah (1 cleanly
 * unmounted, 2 errors), s_feature_incompat at 60h with INCOMPAT_RECOVER 4h, s_feature_ro_compat at 64h, s_uuid at 68h.
 */
#include <errno.h>

#include "file/ext2fs.h"

#define SUPER 1024

static bool known(const uint8_t *head, const uint8_t **uuid)
{
	*uuid = head + SUPER + 0x68;
	return head[SUPER + 0x38] == 0x53 && head[SUPER + 0x39] == 0xef;
}

/*
 * Features of s_feature_ro_compat that do not touch data which stays where it is: places of superblocks (1h), sizes and counts (2h,
 * 8h, 20h, 40h, 200h), quotas (100h, 2000h), checksums of metadata (10h, 400h), and verity, which each file has by itself (8000h).
 * Not among them: snapshots and shared blocks, of which others live, read-only, and orphans that wait for a mount.
 */
#define HARMLESS 0xa77bu

static int check(const uint8_t *head)
{
	if (head[SUPER + 0x60] & 4)
		return gnv_fail(-EBUSY, "the journal of the file system waits to be replayed: mount and unmount it once, or check it");
	if (head[SUPER + 0x3a] & 2)
		return gnv_fail(-EUCLEAN, "the file system has noted errors of its own: check it with e2fsck");
	if (!(head[SUPER + 0x3a] & 1))
		return gnv_fail(-EBUSY, "the file system was not unmounted: check it with e2fsck");
	return 0;
}

static bool frozen(const uint8_t *head)
{
	const uint8_t *f = head + SUPER + 0x64;

	return ((uint32_t)f[0] | (uint32_t)f[1] << 8 | (uint32_t)f[2] << 16 | (uint32_t)f[3] << 24) & ~HARMLESS;
}

const struct gnv_fs gnv_fs_ext4 = {
	.name = "ext4", .magic = 0xef53, .super = SUPER, .bytes = 1024, .known = known, .check = check, .frozen = frozen,
#if GNV_WITH_EXT4
	.list = gnv_ext2fs_list, .gather = gnv_ext2fs_gather,
#endif
};
