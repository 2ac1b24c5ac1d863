/* SPDX-License-Identifier: MIT */
/*
 * btrfs, by a map only, and for reading only: it writes every change to another place, and has checksums of all data. The
 * superblock: Linux, struct btrfs_super_block of include/uapi/linux/btrfs_tree.h, at 64 KiB: fsid at 20h, bytenr at 30h, flags at
 * 38h, magic at 40h, log_root at 60h, num_devices at 88h, incompat_flags at bch. Every commit writes it, with its own number
 * (generation).
 */
#include <errno.h>
#include <string.h>

#include "file/fs.h"

#define WRITTEN 3ull	      /* flags that each may have: BTRFS_HEADER_FLAG_WRITTEN, _RELOC ... */
#define SEEDING (1ull << 32)  /* ... and a file system that others grow from */
#define ERROR (1ull << 2)     /* BTRFS_SUPER_FLAG_ERROR */
/*
 * Incompatible features that do not change where data lies, by the BTRFS_FEATURE_INCOMPAT_ of linux/btrfs.h: all up to RAID1C34
 * (bit 11), and SIMPLE_QUOTA (16). Not among them: zoned, whose superblock is elsewhere, extent tree v2, and those that translate
 * addresses once more (the tree of stripes, and that of remapped blocks).
 */
#define HARMLESS 0x10fffull

static uint64_t word(const uint8_t *at)
{
	uint64_t n = 0;

	for (unsigned i = 8; i; i--)
		n = n << 8 | at[i - 1];
	return n;
}

static const uint8_t *super(const uint8_t *head)
{
	return head + GNV_FS_LATE;
}

static bool known(const uint8_t *head, const uint8_t **uuid)
{
	*uuid = super(head) + 0x20;
	return memcmp(super(head) + 0x40, "_BHRfS_M", 8) == 0 && word(super(head) + 0x30) == GNV_FS_LATE_AT;
}

static int check(const uint8_t *head)
{
	const uint8_t *s = super(head);

	if (word(s + 0x38) & ERROR)
		return gnv_fail(-EUCLEAN, "the file system has noted errors of its own: check it with btrfs check");
	if (word(s + 0x38) & ~(WRITTEN | SEEDING))
		return gnv_fail(-EOPNOTSUPP, "the btrfs is being converted, or an image of metadata alone");
	if (word(s + 0x60))
		return gnv_fail(-EBUSY, "the log of the file system waits to be replayed: mount and unmount it once");
	if (word(s + 0x88) != 1)
		return gnv_fail(-EOPNOTSUPP, "the btrfs is on several devices, and a map is of one");
	if (word(s + 0xbc) & ~HARMLESS)
		return gnv_fail(-EOPNOTSUPP, "the btrfs has a feature by which data may lie elsewhere than its chunks say");
	return 0;
}

static bool frozen(const uint8_t *head)
{
	(void)head;
	return true;
}

const struct gnv_fs gnv_fs_btrfs = {
	.name = "btrfs", .magic = 0x9123683e, .super = GNV_FS_LATE, .bytes = 4096, .known = known, .check = check, .frozen = frozen,
};
