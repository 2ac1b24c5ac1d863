/* SPDX-License-Identifier: MIT */
/*
 * Where a file on btrfs lies on its device: its chunks are emulated, as fs/btrfs/ioctl.c gives them (btrfs_ioctl_tree_search():
 * items by their key, so many as the reply holds; copy_to_sk(): one with more stripes than that comes with no bytes; -EPERM
 * without CAP_SYS_ADMIN) and linux/btrfs_tree.h has them. With the driver itself: tests/vm/guest/filesystems.
 */
#include <endian.h>
#include <errno.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/status.h>

#include "file/fs.h"
#include "os/linux/btrfs.h"

#define MIB (1ull << 20)
#define MOST 100u
#define UUID "00010203-0405-0607-0809-0a0b0c0d0e0f"

static struct {
	struct {
		uint64_t first, bytes, type, at;
		uint16_t stripes; /* 0: the item comes without bytes */
		uint8_t device;
	} chunk[MOST];
	uint32_t chunks, at_once;
	uint64_t devices;
	int error;	 /* of the search */
	uint32_t longer; /* what an item says that it has more than it has */
	bool backwards;	 /* no key is larger than the one before */
} fs;

static char sys[] = "/tmp/gpunvme-btrfs-XXXXXX";

static size_t give_item(uint8_t *buf, uint32_t i)
{
	struct btrfs_ioctl_search_header item = { .objectid = 256, .type = BTRFS_CHUNK_ITEM_KEY, .offset = fs.chunk[i].first };
	struct btrfs_chunk c = { .length = htole64(fs.chunk[i].bytes), .type = htole64(fs.chunk[i].type),
				 .num_stripes = htole16(fs.chunk[i].stripes) };

	item.len = fs.chunk[i].stripes ? (uint32_t)(sizeof(c) + (fs.chunk[i].stripes - 1u) * sizeof(c.stripe)) : 0;
	c.stripe.offset = htole64(fs.chunk[i].at);
	c.stripe.devid = htole64(1);
	memset(c.stripe.dev_uuid, fs.chunk[i].device, sizeof(c.stripe.dev_uuid));
	memset(buf + sizeof(item), 0xee, item.len); /* further stripes: other places */
	memcpy(buf + sizeof(item), &c, item.len ? sizeof(c) : 0);
	item.len += fs.longer;
	memcpy(buf, &item, sizeof(item));
	return sizeof(item) + item.len - fs.longer;
}

static int answer_search(struct btrfs_ioctl_search_args *args)
{
	const struct btrfs_ioctl_search_key *k = &args->key;
	size_t used = 0;
	uint32_t n = 0;

	if (fs.error) {
		errno = fs.error;
		return -1;
	}
	assert_true(k->tree_id == 3 && k->min_objectid == 256 && k->max_objectid == 256 && k->min_type == 228 && k->max_type == 228);
	assert_true(k->max_transid == UINT64_MAX && !k->min_transid && k->max_offset == UINT64_MAX);
	for (uint32_t i = 0; i < fs.chunks && n < fs.at_once; i++)
		if (fs.backwards || fs.chunk[i].first >= k->min_offset) {
			if (used + sizeof(struct btrfs_ioctl_search_header) + 200 > sizeof(args->buf))
				break;
			used += give_item((uint8_t *)args->buf + used, i);
			n++;
		}
	args->key.nr_items = n;
	return 0;
}

int __wrap_ioctl(int fd, unsigned long request, ...);
int __wrap_ioctl(int fd, unsigned long request, ...)
{
	struct btrfs_ioctl_fs_info_args *info;
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	assert_int_equal(fd, 77);
	if (request == BTRFS_IOC_TREE_SEARCH)
		return answer_search(arg);
	assert_int_equal(request, BTRFS_IOC_FS_INFO);
	info = arg;
	info->num_devices = fs.devices;
	for (uint8_t i = 0; i < 16; i++)
		info->fsid[i] = i;
	return 0;
}

static void add(uint64_t first, uint64_t bytes, uint64_t at, uint64_t type, uint16_t stripes)
{
	fs.chunk[fs.chunks].first = first;
	fs.chunk[fs.chunks].bytes = bytes;
	fs.chunk[fs.chunks].at = at;
	fs.chunk[fs.chunks].type = type;
	fs.chunk[fs.chunks].device = 9;
	fs.chunk[fs.chunks++].stripes = stripes;
}

/* As mkfs.btrfs and a balance leave them: two whose addresses go on, and whose places do not. */
static void plain(void)
{
	memset(&fs, 0, sizeof(fs));
	fs.at_once = MOST;
	fs.devices = 1;
	add(1 * MIB, 4 * MIB, 1 * MIB, BTRFS_BLOCK_GROUP_SYSTEM, 1);
	add(5 * MIB, 8 * MIB, 5 * MIB, BTRFS_BLOCK_GROUP_METADATA | BTRFS_BLOCK_GROUP_DUP, 2);
	add(64 * MIB, 8 * MIB, 40 * MIB, BTRFS_BLOCK_GROUP_DATA, 1);
	add(72 * MIB, 8 * MIB, 20 * MIB, BTRFS_BLOCK_GROUP_DATA | BTRFS_BLOCK_GROUP_DUP, 2);
}

static struct {
	uint64_t pos, at, len;
} seen[8];
static uint32_t count;

static int see(void *ctx, uint64_t pos, uint64_t at, uint64_t len)
{
	assert_ptr_equal(ctx, seen);
	seen[count].pos = pos;
	seen[count].at = at;
	seen[count++].len = len;
	return len == 4242 ? -EFBIG : 0;
}

static int translate(uint64_t pos, uint64_t at, uint64_t len)
{
	struct gnv_btrfs b;
	int ret = gnv_btrfs_open(sys, 77, "/the/file", see, seen, &b);

	count = 0;
	if (ret)
		return ret;
	assert_int_equal(b.dev, makedev(259, 3));
	ret = gnv_btrfs_extent(&b, pos, at, len);
	gnv_btrfs_close(&b);
	return ret;
}

static void refused(int error, const char *words)
{
	int ret = translate(0, 64 * MIB, 4096);

	if (ret != error || count || !strstr(gpunvme_errmsg(), words) || !strstr(gpunvme_errmsg(), "/the/file"))
		fail_msg("%d instead of %d: %s", ret, error, gpunvme_errmsg());
}

static void told(uint32_t i, uint64_t pos, uint64_t at, uint64_t len)
{
	if (i >= count || seen[i].pos != pos || seen[i].at != at || seen[i].len != len)
		fail_msg("extent %u of %u: %llu %llu %llu", i, count, (unsigned long long)seen[i].pos, (unsigned long long)seen[i].at,
			 (unsigned long long)seen[i].len);
}

/* Also where each reply has one, and the last address of a chunk. */
static void addresses(void **state)
{
	(void)state;
	for (uint32_t at_once = 1; at_once < 6; at_once++) {
		plain();
		fs.at_once = at_once;
		assert_int_equal(translate(12288, 65 * MIB, 4096), 0);
		assert_int_equal(count, 1);
		told(0, 12288, 41 * MIB, 4096);
		assert_int_equal(translate(0, 80 * MIB - 4096, 4096), 0);
		told(0, 0, 28 * MIB - 4096, 4096);
		assert_int_equal(translate(0, 80 * MIB, 4096), -EUCLEAN); /* there is none any more, */
		assert_int_equal(translate(0, 13 * MIB, 4096), -EUCLEAN); /* none between them, */
		assert_int_equal(translate(0, MIB - 4096, 4096), -EUCLEAN); /* and none before */
		assert_non_null(strstr(gpunvme_errmsg(), "make no sense"));
	}
}

/* What FIEMAP has merged (emit_fiemap_extent()). */
static void extents_of_several_chunks(void **state)
{
	(void)state;
	plain();
	assert_int_equal(translate(4096, 70 * MIB, 4 * MIB), 0);
	assert_int_equal(count, 2);
	told(0, 4096, 46 * MIB, 2 * MIB);
	told(1, 4096 + 2 * MIB, 20 * MIB, 2 * MIB);
	assert_int_equal(translate(0, 70 * MIB, 11 * MIB), -EUCLEAN); /* more than they have */
	plain();
	fs.chunk[2].bytes = 4242;
	fs.chunk[3].first = 64 * MIB + 4242;
	assert_int_equal(translate(0, 64 * MIB, 8192), -EFBIG); /* and ends on request */
	assert_int_equal(count, 1);
}

static void kinds(void **state)
{
	static const uint64_t whole[] = { 0, BTRFS_BLOCK_GROUP_METADATA, BTRFS_BLOCK_GROUP_DUP, BTRFS_BLOCK_GROUP_RAID1,
					  BTRFS_BLOCK_GROUP_RAID1C3, BTRFS_BLOCK_GROUP_RAID1C4 };
	static const uint64_t others[] = { BTRFS_BLOCK_GROUP_RAID0, BTRFS_BLOCK_GROUP_RAID10, BTRFS_BLOCK_GROUP_RAID5,
					   BTRFS_BLOCK_GROUP_RAID6, 1ull << 11, 1ull << 12, 1ull << 63 };

	(void)state;
	for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
		plain();
		fs.chunk[2].type |= whole[i];
		assert_int_equal(translate(0, 64 * MIB, 4096), 0);
		told(0, 0, 40 * MIB, 4096);
	}
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		plain();
		fs.chunk[2].type |= others[i];
		refused(-EOPNOTSUPP, "has a btrfs profile that cannot be mapped");
		assert_int_equal(translate(0, 72 * MIB, 4096), 0); /* another chunk is what it is */
	}
	plain();
	fs.chunk[0].stripes = 0; /* which names no device */
	fs.chunk[2].stripes = 0;
	refused(-EOPNOTSUPP, "has a btrfs profile that cannot be mapped");
	assert_int_equal(translate(0, 72 * MIB, 4096), 0);
}

static void devices(void **state)
{
	char path[256], away[256];

	(void)state;
	plain();
	fs.devices = 2; /* one of them is missing */
	refused(-EOPNOTSUPP, "btrfs of several devices");
	plain();
	fs.chunk[3].device = 8;
	refused(-EOPNOTSUPP, "btrfs of several devices");
	plain();
	snprintf(path, sizeof(path), "%s/fs/btrfs/" UUID "/devices/sdx", sys); /* a seed, which is not counted */
	assert_int_equal(mkdir(path, 0755), 0);
	refused(-EOPNOTSUPP, "btrfs of several devices");
	assert_int_equal(rmdir(path), 0);
	snprintf(path, sizeof(path), "%s/fs/btrfs", sys); /* not there in a container */
	snprintf(away, sizeof(away), "%s/fs/away", sys);
	assert_int_equal(rename(path, away), 0);
	refused(-EOPNOTSUPP, "sysfs does not report the device");
	assert_int_equal(rename(away, path), 0);
	fs.error = EPERM;
	refused(-EACCES, "only root may read");
	fs.error = EIO;
	refused(-EIO, "does not report its place");
}

static void nonsense(void **state)
{
	(void)state;
	plain();
	fs.longer = 4096;
	refused(-EUCLEAN, "make no sense");
	plain();
	fs.backwards = true;
	refused(-EUCLEAN, "make no sense");
	plain();
	fs.chunk[2].bytes = 0;
	refused(-EUCLEAN, "make no sense");
	plain();
	fs.chunk[3].at = UINT64_MAX - MIB;
	refused(-EUCLEAN, "make no sense");
	plain();
	fs.chunk[3].first = UINT64_MAX - MIB;
	refused(-EUCLEAN, "make no sense");
	plain();
	fs.chunks = 0;
	refused(-EUCLEAN, "make no sense");
}

/* More than one reply holds. */
static void many_chunks(void **state)
{
	(void)state;
	memset(&fs, 0, sizeof(fs));
	fs.at_once = MOST;
	fs.devices = 1;
	for (uint32_t i = 0; i < MOST; i++)
		add((i + 1) * MIB, MIB, (MOST - i) * 2 * MIB, BTRFS_BLOCK_GROUP_DATA, 1);
	for (uint32_t i = 0; i < MOST; i++) {
		assert_int_equal(translate(0, (i + 1) * MIB + 8192, 4096), 0);
		told(0, 0, (MOST - i) * 2 * MIB + 8192, 4096);
	}
}

/* ---- The superblock ---- */

static uint8_t head[GNV_FS_HEAD];

static void put(size_t at, uint64_t word)
{
	word = htole64(word);
	memcpy(head + GNV_FS_LATE + at, &word, sizeof(word));
}

/* As mkfs.btrfs 6.2 leaves it: struct btrfs_super_block of fs/btrfs/ctree.h. */
static int super(size_t at, uint64_t word, struct gnv_super *s)
{
	memset(head, 0, sizeof(head));
	memset(head + GNV_FS_LATE + 0x20, 7, 16);
	put(0x30, 65536);
	put(0x38, 1);
	memcpy(head + GNV_FS_LATE + 0x40, "_BHRfS_M", 8);
	put(0x88, 1);
	put(0xbc, 0x341);
	if (at)
		put(at, word);
	return gnv_super_of(head, s);
}

static void superblocks(void **state)
{
	struct gnv_super s, later;

	(void)state;
	assert_int_equal(super(0, 0, &s), 0);
	assert_true(s.fs == gnv_fs_by_name("btrfs") && s.fs == gnv_fs_by_magic(0x9123683e) && s.frozen && s.uuid[15] == 7);
	assert_int_equal(super(0x48, 12, &later), 0); /* generation: any commit */
	assert_true(later.sum != s.sum);
	assert_int_equal(super(0x38, 1ull << 32 | 3, &s), 0);
	assert_int_equal(super(0xbc, 0x10fff, &s), 0);
	assert_int_equal(super(0x30, 1 << 26, &s), -EOPNOTSUPP); /* a copy of it, from elsewhere */
	assert_int_equal(super(0x38, 5, &s), -EUCLEAN);
	assert_int_equal(super(0x38, 1ull << 33 | 1, &s), -EOPNOTSUPP); /* btrfs-image: no data is there */
	assert_non_null(strstr(gpunvme_errmsg(), "image of metadata"));
	assert_int_equal(super(0x60, 1 << 20, &s), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "waits to be replayed"));
	assert_int_equal(super(0x88, 2, &s), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "several devices"));
	for (unsigned bit = 12; bit < 64; bit++)
		assert_int_equal(super(0xbc, 1ull << bit | 0x341, &s), bit == 16 ? 0 : -EOPNOTSUPP);
}

/* ---- What it is mounted as ---- */

static void write_text(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", sys, name);
	f = fopen(path, "we");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

/* fs/proc/fd.c, seq_show(), and fs/proc_namespace.c, show_mountinfo(): mounts by their number, superblocks by their device. */
static void mounts(void **state)
{
	(void)state;
	write_text("self/fdinfo/5", "pos:\t0\nflags:\t0100000\nmnt_id:\t29\nino:\t257\n");
	write_text("self/mountinfo", "nonsense\n28 1 0:40 / /a rw - btrfs /dev/x rw\n290 1 0:42 / /b rw - btrfs /dev/x ro\n"
				     "29 1 0:41 /sub /c ro - btrfs /dev/x ro,subvol=/sub\n");
	assert_int_equal(gnv_os_mounted(sys, 5), makedev(0, 41));
	assert_int_equal(gnv_os_mounted(sys, 6), 0);
	write_text("self/fdinfo/5", "mnt_id:\t30\n");
	assert_int_equal(gnv_os_mounted(sys, 5), 0);
	write_text("self/fdinfo/5", "pos:\t0\n");
	assert_int_equal(gnv_os_mounted(sys, 5), 0);
}

static void make_folders(const char *name)
{
	char path[256], *at;

	snprintf(path, sizeof(path), "%s/%s", sys, name);
	for (at = path + strlen(sys) + 1; (at = strchr(at, '/')); *at++ = '/') {
		*at = 0;
		mkdir(path, 0755);
	}
}

static int make_sysfs(void **state)
{
	(void)state;
	if (!mkdtemp(sys))
		return -1;
	make_folders("fs/btrfs/" UUID "/devices/nvme0n1p3/");
	make_folders("self/fdinfo/");
	write_text("fs/btrfs/" UUID "/devices/nvme0n1p3/dev", "259:3\n");
	return 0;
}

static int remove_sysfs(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", sys);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(addresses),  cmocka_unit_test(extents_of_several_chunks),
		cmocka_unit_test(kinds),      cmocka_unit_test(devices),
		cmocka_unit_test(nonsense),   cmocka_unit_test(many_chunks),
		cmocka_unit_test(superblocks), cmocka_unit_test(mounts),
	};

	return cmocka_run_group_tests(tests, make_sysfs, remove_sysfs);
}
