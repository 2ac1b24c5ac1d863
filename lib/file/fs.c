/* SPDX-License-Identifier: MIT */
#include "file/fs.h"

#include <errno.h>
#include <string.h>

#include "os/linux/extents.h"
#include "util/bits.h"
#include "util/mark.h"

static const struct gnv_fs *const table[] = { &gnv_fs_ext4, &gnv_fs_xfs, &gnv_fs_btrfs };

/* By the numbers of linux/magic.h. */
static const struct {
	uint64_t magic;
	const char *why;
} others[] = {
	{ 0x9123683e, "btrfs writes every change to another place, and offers nothing that keeps blocks where they are. Make a map "
		      "while it is mounted read-only (`gpunvme extents`)" },
	{ 0xf2f52010, "f2fs moves blocks when it cleans, and its superblock does not show that it did" },
	{ 0x01021994, "tmpfs is in memory" },
	{ 0x794c7630, "overlayfs has no blocks: name the file in the file system below it" },
};

const char *gnv_fs_other(uint64_t magic)
{
	for (size_t i = 0; i < GNV_ARRAY_LEN(others); i++)
		if (others[i].magic == magic)
			return others[i].why;
	return NULL;
}

const struct gnv_fs *gnv_fs_by_magic(uint64_t magic)
{
	for (size_t i = 0; i < GNV_ARRAY_LEN(table); i++)
		if (table[i]->magic == magic)
			return table[i];
	return NULL;
}

const struct gnv_fs *gnv_fs_by_name(const char *name)
{
	for (size_t i = 0; i < GNV_ARRAY_LEN(table); i++)
		if (strcmp(table[i]->name, name) == 0)
			return table[i];
	return NULL;
}

uint64_t gnv_sum(const void *bytes, size_t len)
{
	return gnv_fnv(GNV_FNV_BEGIN, bytes, len);
}

int gnv_head_read(struct gnv_reader *r, uint8_t head[GNV_FS_HEAD])
{
	int ret = gnv_reader_read(r, 0, head, GNV_FS_LATE);

	memset(head + GNV_FS_LATE, 0, GNV_FS_LATE);
	if (!ret && r->bytes >= GNV_FS_LATE_AT + GNV_FS_LATE)
		ret = gnv_reader_read(r, GNV_FS_LATE_AT, head + GNV_FS_LATE, GNV_FS_LATE);
	return ret;
}

int gnv_head_of(const char *node, uint8_t head[GNV_FS_HEAD])
{
	int ret = gnv_os_head(node, 0, head, GNV_FS_LATE);

	if (ret)
		return ret;
	return gnv_os_head(node, GNV_FS_LATE_AT, head + GNV_FS_LATE, GNV_FS_LATE);
}

int gnv_super_parse(const uint8_t head[GNV_FS_HEAD], struct gnv_super *super)
{
	const uint8_t *uuid;

	for (size_t i = 0; i < GNV_ARRAY_LEN(table); i++) {
		if (!table[i]->known(head, &uuid))
			continue;
		super->fs = table[i];
		memcpy(super->uuid, uuid, sizeof(super->uuid));
		super->sum = gnv_sum(head + table[i]->super, table[i]->bytes);
		super->frozen = table[i]->frozen && table[i]->frozen(head);
		return 0;
	}
	return gnv_fail(-EOPNOTSUPP, "no ext2, ext3, ext4, XFS or btrfs begins there: name the partition that has it, by its number");
}

int gnv_super_of(const uint8_t head[GNV_FS_HEAD], struct gnv_super *super)
{
	int ret = gnv_super_parse(head, super);

	return !ret && super->fs->check ? super->fs->check(head) : ret;
}

int gnv_super_read(struct gnv_reader *r, struct gnv_super *super)
{
	uint8_t head[GNV_FS_HEAD];
	int ret = gnv_head_read(r, head);

	if (ret)
		return ret;
	return gnv_super_of(head, super);
}
