/* SPDX-License-Identifier: MIT */
/* Maps of files on mounted file systems, as the kernel reports them. */
#include <errno.h>
#include <string.h>

#include "file/file_map.h"
#include "os/linux/extents.h"
#include "os/linux/sysfs.h"
#include "util/entry.h"

static int add(void *ctx, uint64_t pos, uint64_t at, uint64_t len)
{
	return gnv_extents_add(ctx, pos, at, len);
}

static const char *unwritable(const struct gnv_os_mapped *m)
{
	return gnv_map_reason(m->shared ? "shared" : m->verity ? "verity" : m->immutable || m->append ? "immutable" : "ok");
}

static void describe(struct gnv_extents *file, const struct gnv_os_mapped *m)
{
	file->info.bytes = m->bytes;
	file->info.inode = m->inode;
	file->info.mtime = m->mtime;
	file->info.mtime_ns = m->mtime_ns;
	file->info.generation = m->generation;
	file->info.block = m->block;
	file->unwritable = unwritable(m);
}

static int refuse_fs(uint64_t magic)
{
	const char *why = gnv_fs_other(magic);

	if (why)
		return gnv_fail(-EOPNOTSUPP, "maps are made of files on ext4, XFS and btrfs only: %s", why);
	return gnv_fail(-EOPNOTSUPP, "maps are made of files on ext4, XFS and btrfs only, and this is another file system (0x%llx)",
			(unsigned long long)magic);
}

/* The file system under it, which must stand still. */
static int find_fs(const struct gnv_os_mapped *m, struct gnv_map *map)
{
	const struct gnv_fs *fs = gnv_fs_by_magic(m->fs);
	uint8_t head[GNV_FS_HEAD];
	struct gnv_os_namespace ns;
	int ret;

	if (!fs)
		return refuse_fs(m->fs);
	ret = gnv_os_namespace(GNV_SYSFS, m->dev, &ns);
	if (!ret && !m->still)
		ret = gnv_fail(-EBUSY, "the file system is mounted for writing, here or elsewhere, so that no map would stay true: %s",
			       fs == &gnv_fs_xfs ? "unmount it, and mount it by `mount -o ro,norecovery`, because XFS writes otherwise even so" :
						   "mount it read-only (`mount -o remount,ro`), until the map is used");
	if (!ret)
		ret = gnv_head_of(ns.node, head);
	if (!ret)
		ret = gnv_super_of(head, &map->super);
	if (!ret && map->super.fs != fs)
		ret = gnv_fail(-EOPNOTSUPP, "%s has another file system than the file", ns.node);
	if (ret)
		return ret;
	map->first = ns.first;
	map->bytes = ns.bytes;
	memcpy(map->serial, ns.serial, sizeof(map->serial));
	return 0;
}

GPUNVME_API int gpunvme_file_map_make(const char *path, char **text)
{
	struct gnv_map map = { .file = NULL };
	struct gnv_os_mapped mapped;
	int ret;

	if (!path || !text)
		return gnv_null("path and text");
	map.file = gnv_extents_new();
	if (!map.file)
		return -ENOMEM;
	ret = gnv_os_map(path, &mapped, add, map.file);
	if (!ret)
		ret = find_fs(&mapped, &map);
	if (!ret) {
		describe(map.file, &mapped);
		gnv_map_freeze(map.file, &map.super);
		ret = gnv_map_write(&map, text);
	}
	gnv_extents_free(map.file);
	return ret;
}
