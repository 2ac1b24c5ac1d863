/* SPDX-License-Identifier: MIT */
/*
 * The block device of a file of a mounted file system: has it the data of this device? It must be a disk of this library from the
 * same namespace, whose number the ublk driver keeps. Both must begin with the same bytes.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "file/fs.h"
#include "file/file_live.h"
#include "os/linux/openers.h"
#include "os/linux/sysfs.h"
#include "os/linux/ublk.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/mark.h"

#define LOOKS 5 /* a superblock may be written between two reads */

static int refuse_fs(uint64_t magic)
{
	const char *why = gnv_fs_other(magic);

	if (why)
		return gnv_fail(-EOPNOTSUPP, "of mounted file systems, only ext4 and XFS show where files lie: %s", why);
	return gnv_fail(-EOPNOTSUPP, "of mounted file systems, only ext4 and XFS show where files lie, and this is another file "
				     "system (0x%llx)",
			(unsigned long long)magic);
}

int gnv_live_check_data(const struct gnv_os_mapped *m, const char *node)
{
	if (!m->journaled && (!node || !gnv_os_journals_data(GNV_PROC, node)))
		return 0;
	return gnv_fail(-EOPNOTSUPP, "ext4 writes the file's data to its journal first (data=journal, or chattr +j), so that its "
				     "blocks may be old, and are written later: mount it otherwise");
}

/* The block device's number among those of ublk. */
static int served(const char *node, uint32_t *id)
{
	if (sscanf(node, "/dev/ublkb%u", id) == 1)
		return 0;
	return gnv_fail(-EXDEV, "the file system is on %s, which is no disk of this library: mount it from a disk that "
				"gpunvme_ublk_start() or `gpunvme serve --ublk` makes of the drive", node);
}

static int check_mark(struct gpunvme_dev *dev, const struct gpunvme_ns_info *ns, const char *node)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gnv_ublk_info ublk = { 0 };
	uint32_t id;
	int ret = served(node, &id);

	if (!ret)
		ret = gpunvme_dev_get_info(dev, &info);
	if (!ret)
		ret = gnv_ublk_control(GNV_UBLK_GET_DEV_INFO, id, &ublk, sizeof(ublk));
	if (ret)
		return ret == -ENODEV ? gnv_fail(ret, "%s has gone", node) : ret;
	if (ublk.mark != gnv_mark(&info, ns))
		return gnv_fail(-EXDEV, "%s is of another namespace than %u of this device", node, ns->nsid);
	return 0;
}

static int same_head(struct gnv_reader *r, const char *node, uint8_t head[GNV_FS_HEAD])
{
	uint8_t seen[GNV_FS_HEAD];
	int ret = 0;

	for (unsigned i = 0; i < LOOKS && !ret; i++) {
		r->chunk = UINT64_MAX; /* read the drive again */
		ret = gnv_head_of(node, seen);
		if (!ret)
			ret = gnv_head_read(r, head);
		if (!ret && memcmp(seen, head, sizeof(seen)) == 0)
			return 0;
	}
	if (!ret)
		ret = gnv_fail(-EXDEV, "%s and namespace %u begin with different bytes", node, r->ns.info.nsid);
	return ret;
}

static int look(struct gnv_reader *r, const struct gnv_os_namespace *block, const struct gnv_fs *fs, struct gnv_super *super)
{
	uint8_t head[GNV_FS_HEAD];
	int ret;

	if (!gnv_within(block->first, block->bytes, r->bytes))
		return gnv_fail(-EXDEV, "%s ends after the end of namespace %u", block->node, r->ns.info.nsid);
	r->first = block->first;
	r->bytes = block->bytes;
	ret = same_head(r, block->node, head);
	if (!ret)
		ret = gnv_super_parse(head, super);
	if (!ret && super->fs != fs)
		ret = gnv_fail(-EOPNOTSUPP, "%s has another file system than the file", block->node);
	return ret;
}

int gnv_live_find(struct gpunvme_dev *dev, uint32_t nsid, const struct gnv_os_mapped *m, struct gnv_reader *r,
		  struct gnv_super *super)
{
	const struct gnv_fs *fs = gnv_fs_by_magic(m->fs);
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gnv_os_namespace block;
	int ret;

	if (!fs || gnv_fs_other(m->fs))
		return refuse_fs(m->fs);
	ret = gnv_os_block(GNV_SYSFS, m->dev, &block);
	if (!ret)
		ret = gnv_live_check_data(m, block.node);
	if (!ret)
		ret = gpunvme_ns_get_info(dev, nsid, &ns);
	if (!ret)
		ret = check_mark(dev, &ns, block.node);
	if (!ret)
		ret = gnv_reader_open(dev, nsid, r);
	if (ret)
		return ret;
	ret = look(r, &block, fs, super);
	if (ret)
		gnv_reader_close(r);
	return ret;
}
