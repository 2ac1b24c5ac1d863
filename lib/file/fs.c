/* SPDX-License-Identifier: MIT */
#include "file/fs.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"
#include "util/mark.h"

static const struct gnv_fs *const table[] = { &gnv_fs_ext4, &gnv_fs_xfs };

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
	return gnv_fail(-EOPNOTSUPP, "no ext2, ext3, ext4 or XFS begins there: name the partition that has it, by its number");
}

int gnv_super_of(const uint8_t head[GNV_FS_HEAD], struct gnv_super *super)
{
	int ret = gnv_super_parse(head, super);

	return !ret && super->fs->check ? super->fs->check(head) : ret;
}

int gnv_super_read(struct gnv_reader *r, struct gnv_super *super)
{
	uint8_t head[GNV_FS_HEAD];
	int ret = gnv_reader_read(r, 0, head, sizeof(head));

	return ret ? ret : gnv_super_of(head, super);
}
