/* SPDX-License-Identifier: MIT */
/* Where the signatures are: the on-disk formats as the Linux kernel and util-linux read them. */
#include "blank.h"
#include "stamp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct signature {
	const char *name;
	int64_t at; /* negative: from the end of the drive */
	const char *bytes;
	unsigned len;
} signatures[] = {
	{ "a GPT partition table", 512, "EFI PART", 8 },
	{ "a GPT partition table", 4096, "EFI PART", 8 },
	{ "the second copy of a GPT partition table", -512, "EFI PART", 8 },
	{ "the second copy of a GPT partition table", -4096, "EFI PART", 8 },
	{ "a LUKS volume", 0, "LUKS\xba\xbe", 6 },
	{ "an LVM physical volume", 512, "LABELONE", 8 },
	{ "an XFS file system", 0, "XFSB", 4 },
	{ "a Btrfs file system", 0x10040, "_BHRfS_M", 8 },
	{ "an ext2, ext3 or ext4 file system", 1080, "\x53\xef", 2 },
	{ "an F2FS file system", 1024, "\x10\x20\xf5\xf2", 4 },
	{ "a bcache device", 4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca", 8 },
	{ "a bcachefs file system", 4120, "\xc6\x85\x73\xf6\x66\xce\x90\xa9", 8 },
	{ "an APFS container", 32, "NXSB", 4 },
	{ "an exFAT file system", 3, "EXFAT   ", 8 },
	{ "an NTFS file system", 3, "NTFS    ", 8 },
	{ "a BitLocker volume", 3, "-FVE-FS-", 8 },
	{ "a FAT file system", 82, "FAT32   ", 8 },
	{ "a FAT file system", 54, "FAT", 3 },
	{ "an ISO 9660 image", 32769, "CD001", 5 },
	{ "swap space", 4086, "SWAPSPACE2", 10 },
	{ "a member of a Linux RAID", 0, "\xfc\x4e\x2b\xa9", 4 },
	{ "a member of a Linux RAID", 4096, "\xfc\x4e\x2b\xa9", 4 },
	{ "a member of an Intel RAID", -1024, "Intel Raid ISM Cfg Sig. ", 24 },
	{ "a member of a DDF RAID", -512, "\xde\x11\xde\x11", 4 },
	{ "a ZFS label", 16384, "\x01\x01\0\0\0\0\0\0\0\0\0\x01", 12 },
	{ "a partition table", 510, "\x55\xaa", 2 }, /* last: much else has it, too */
};

static bool bears(const struct signature *s, const struct blank_end *first, const struct blank_end *last)
{
	const struct blank_end *end = s->at < 0 ? last : first;
	const uint64_t at = s->at < 0 ? end->len - (uint64_t)-s->at : (uint64_t)s->at;

	return (s->at < 0 ? (uint64_t)-s->at <= end->len : at + s->len <= end->len) && !memcmp(end->bytes + at, s->bytes, s->len);
}

static bool is_uniform(const unsigned char *bytes, uint32_t len)
{
	return (bytes[0] == 0 || bytes[0] == 0xff) && !memcmp(bytes, bytes + 1, len - 1);
}

/* The offset of the first byte of data, or @end->len if all blocks are empty. */
static uint64_t find_data(const struct blank_end *end, uint32_t lba_size)
{
	struct stamp s;
	uint64_t at;

	for (at = 0; at < end->len; at += lba_size)
		if (!is_uniform(end->bytes + at, lba_size) && !stamp_read(end->bytes + at, lba_size, &s))
			break;
	return at;
}

bool blank_check(const struct blank_end *first, const struct blank_end *last, uint32_t lba_size, char seen[128])
{
	const struct blank_end *ends[] = { first, last };
	uint64_t at[2];

	for (int i = 0; i < 2; i++)
		at[i] = find_data(ends[i], lba_size);
	if (at[0] == first->len && at[1] == last->len)
		return true;
	for (unsigned i = 0; i < sizeof(signatures) / sizeof(signatures[0]); i++)
		if (bears(&signatures[i], first, last)) {
			snprintf(seen, 128, "%s", signatures[i].name);
			return false;
		}
	snprintf(seen, 128, "data of no kind that this program knows, at byte %" PRIu64,
		 at[0] < first->len ? at[0] : last->at + at[1]);
	return false;
}
