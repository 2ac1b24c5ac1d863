/* SPDX-License-Identifier: MIT */
/*
 * The tree of chunks, as BTRFS_IOC_TREE_SEARCH gives it (linux/btrfs.h, fs/btrfs/ioctl.c, btrfs_ioctl_tree_search(), copy_to_sk()):
 * items of linux/btrfs_tree.h as they are on the drive, little-endian. An extent of FIEMAP may be of two chunks, because fs/btrfs
 * merges extents whose addresses continue (emit_fiemap_extent()), and the devices' may not.
 */
#include "os/linux/btrfs.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>

#include "os/linux/sysfs.h"
#include "util/bits.h"
#include "util/log.h"

/* Each of their stripes is the whole. Bits that are not known here mean that addresses are translated once more. */
#define KINDS (BTRFS_BLOCK_GROUP_DATA | BTRFS_BLOCK_GROUP_SYSTEM | BTRFS_BLOCK_GROUP_METADATA)
#define COPIES (BTRFS_BLOCK_GROUP_DUP | BTRFS_BLOCK_GROUP_RAID1 | BTRFS_BLOCK_GROUP_RAID1C3 | BTRFS_BLOCK_GROUP_RAID1C4)

/* ---- Its device ---- */

static int several(const char *path)
{
	return gnv_fail(-EOPNOTSUPP, "%s is on a btrfs of several devices, and a map is of one", path);
}

static int asked(const char *path)
{
	if (errno == EPERM)
		return gnv_fail(-EACCES, "%s: only root may read where btrfs has it on its devices", path);
	return gnv_fail(-errno, "%s: btrfs does not report its place on the devices: %s", path, strerror(errno));
}

/* btrfs_sysfs_add_fs_devices(): a link for each device that is there, by its name in sysfs, those of a seed among them. */
static unsigned count_devices(const char *folder, char name[64])
{
	DIR *d = opendir(folder);
	struct dirent *e;
	unsigned count = 0;

	while (d && (e = readdir(d))) {
		if (e->d_name[0] == '.')
			continue;
		snprintf(name, 64, "%.63s", e->d_name);
		count++;
	}
	if (d)
		closedir(d);
	return count;
}

static int find_device(const char *sys, int fd, struct gnv_btrfs *b)
{
	struct btrfs_ioctl_fs_info_args info = { 0 };
	char folder[256], path[352], name[64] = "", text[32];
	unsigned major_of, minor_of;
	const uint8_t *u = info.fsid;

	if (ioctl(fd, BTRFS_IOC_FS_INFO, &info))
		return asked(b->path);
	snprintf(folder, sizeof(folder),
		 "%.128s/fs/btrfs/%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x/devices", sys, u[0], u[1], u[2], u[3],
		 u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
	if (info.num_devices != 1 || count_devices(folder, name) > 1)
		return several(b->path);
	snprintf(path, sizeof(path), "%s/%s/dev", folder, name);
	if (gnv_sysfs_read(path, text, sizeof(text)) || sscanf(text, "%u:%u", &major_of, &minor_of) != 2)
		return gnv_fail(-EOPNOTSUPP, "%s: sysfs does not report the device of its btrfs", b->path);
	b->dev = makedev(major_of, minor_of);
	return 0;
}

/* ---- Its chunks ---- */

static int damaged(const char *path)
{
	return gnv_fail(-EUCLEAN, "%s: the chunks of its btrfs make no sense", path);
}

static int keep(struct gnv_btrfs *b, const struct gnv_btrfs_chunk *chunk)
{
	struct gnv_btrfs_chunk *more;

	if (chunk->whole && (chunk->first + chunk->bytes <= chunk->first || chunk->at + chunk->bytes <= chunk->at))
		return damaged(b->path);
	if (b->chunks == b->room) {
		more = realloc(b->chunk, 2 * (b->room + 32) * sizeof(*more));
		if (!more)
			return gnv_fail(-ENOMEM, "out of memory");
		b->chunk = more;
		b->room = 2 * (b->room + 32);
	}
	b->chunk[b->chunks++] = *chunk;
	return 0;
}

static uint64_t word(const void *at)
{
	uint64_t n;

	memcpy(&n, at, sizeof(n));
	return le64toh(n);
}

/* A chunk with too many stripes for one result comes without any. */
static int take(struct gnv_btrfs *b, const struct btrfs_ioctl_search_header *item, const uint8_t *data)
{
	struct gnv_btrfs_chunk chunk = { .first = item->offset };
	struct btrfs_chunk c;

	if (item->len < sizeof(c))
		return keep(b, &chunk);
	memcpy(&c, data, sizeof(c));
	chunk.bytes = word(&c.length);
	chunk.at = word(&c.stripe.offset);
	chunk.whole = !(word(&c.type) & ~(uint64_t)(KINDS | COPIES)) && c.num_stripes;
	if (!b->named)
		memcpy(b->uuid, c.stripe.dev_uuid, sizeof(b->uuid));
	b->named = true;
	if (memcmp(b->uuid, c.stripe.dev_uuid, sizeof(b->uuid)) != 0)
		return several(b->path);
	return keep(b, &chunk);
}

/* Take the items of one result, from *from on, and move *from past them. */
static int take_all(struct gnv_btrfs *b, const struct btrfs_ioctl_search_args *args, uint64_t *from)
{
	struct btrfs_ioctl_search_header item;
	size_t at = 0;
	int ret = 0;

	for (uint32_t i = 0; i < args->key.nr_items && !ret; i++) {
		if (at + sizeof(item) > sizeof(args->buf))
			return damaged(b->path);
		memcpy(&item, args->buf + at, sizeof(item));
		at += sizeof(item);
		if (item.len > sizeof(args->buf) - at || item.offset < *from || item.offset == UINT64_MAX)
			return damaged(b->path);
		ret = take(b, &item, (const uint8_t *)args->buf + at);
		at += item.len;
		*from = item.offset + 1;
	}
	return ret;
}

static int find_chunks(int fd, struct gnv_btrfs *b)
{
	struct btrfs_ioctl_search_args *args = calloc(1, sizeof(*args));
	uint64_t from = 0;
	int ret = args ? 0 : gnv_fail(-ENOMEM, "out of memory");

	while (!ret) {
		args->key = (struct btrfs_ioctl_search_key){
			.tree_id = BTRFS_CHUNK_TREE_OBJECTID, .min_offset = from, .max_offset = UINT64_MAX, .max_transid = UINT64_MAX,
			.min_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID, .max_objectid = BTRFS_FIRST_CHUNK_TREE_OBJECTID,
			.min_type = BTRFS_CHUNK_ITEM_KEY, .max_type = BTRFS_CHUNK_ITEM_KEY, .nr_items = UINT32_MAX };
		if (ioctl(fd, BTRFS_IOC_TREE_SEARCH, args))
			ret = asked(b->path);
		else if (!args->key.nr_items)
			break;
		else
			ret = take_all(b, args, &from);
	}
	free(args);
	return ret;
}

int gnv_btrfs_open(const char *sys, int fd, const char *path, gnv_os_extent_fn *fn, void *ctx, struct gnv_btrfs *out)
{
	struct gnv_btrfs b = { .path = path, .fn = fn, .ctx = ctx };
	int ret = find_device(sys, fd, &b);

	if (!ret)
		ret = find_chunks(fd, &b);
	if (ret)
		gnv_btrfs_close(&b);
	else
		*out = b;
	return ret;
}

void gnv_btrfs_close(struct gnv_btrfs *b)
{
	free(b->chunk);
}

/* ---- Where something lies ---- */

/* The last chunk that begins there or before. */
static const struct gnv_btrfs_chunk *find(const struct gnv_btrfs *b, uint64_t at)
{
	size_t low = 0, high = b->chunks, mid;

	while (low < high) {
		mid = low + (high - low) / 2;
		if (b->chunk[mid].first <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low ? &b->chunk[low - 1] : NULL;
}

int gnv_btrfs_extent(void *ctx, uint64_t pos, uint64_t at, uint64_t len)
{
	const struct gnv_btrfs *b = ctx;
	const struct gnv_btrfs_chunk *c;
	uint64_t part;
	int ret = 0;

	while (!ret && len) {
		c = find(b, at);
		if (c && !c->whole)
			return gnv_fail(-EOPNOTSUPP, "%s has a btrfs profile that cannot be mapped. Use the profile single or dup", b->path);
		if (!c || at - c->first >= c->bytes)
			return damaged(b->path);
		part = gnv_min(len, c->bytes - (at - c->first));
		ret = b->fn(b->ctx, pos, c->at + (at - c->first), part);
		pos += part;
		at += part;
		len -= part;
	}
	return ret;
}
