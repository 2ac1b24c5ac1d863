/* SPDX-License-Identifier: MIT */
/*
 * ext2, ext3 and ext4 with libext2fs, which reads through an I/O manager of ours. Where fields of the superblock lie: Linux,
 * Documentation/filesystems/ext4/super.rst. Images are untrusted: one may have trees of blocks that name each
 * other, so the reads of a call are counted.
 */
#include "file/ext2fs.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "file/file_map.h"
#include "file/session.h"

#define READS_MAX (1u << 24) /* of one call: a directory of ten million names has half a million blocks */
#define LOADS_MIN (1u << 16) /* of them from the drive, for however small a file system */

/* ---- The I/O manager ---- */

static errcode_t io_close(io_channel channel)
{
	if (--channel->refcount > 0)
		return 0;
	ext2fs_free_mem(&channel->name);
	ext2fs_free_mem(&channel);
	return 0;
}

static errcode_t io_set_blksize(io_channel channel, int blksize)
{
	channel->block_size = blksize;
	return 0;
}

/* A negative count is one of bytes. */
static errcode_t io_read64(io_channel channel, unsigned long long block, int count, void *data)
{
	struct gnv_session *s = channel->private_data;
	const uint64_t size = (uint64_t)channel->block_size, bytes = count < 0 ? (uint64_t)-(int64_t)count : (uint64_t)count * size;

	if (s->reads++ >= READS_MAX || s->r->loads >= s->loads_max)
		s->ret = gnv_fail(-EUCLEAN, "the file system leads in circles: check it with e2fsck");
	else if (block > UINT64_MAX / size)
		s->ret = gnv_fail(-EUCLEAN, "the file system names blocks that no drive has: check it with e2fsck");
	else
		s->ret = gnv_reader_read(s->r, block * size, data, bytes);
	return s->ret ? EXT2_ET_SHORT_READ : 0;
}

static errcode_t io_read(io_channel channel, unsigned long block, int count, void *data)
{
	return io_read64(channel, block, count, data);
}

static errcode_t io_write64(io_channel channel, unsigned long long block, int count, const void *data)
{
	(void)channel, (void)block, (void)count, (void)data;
	return EXT2_ET_RO_FILSYS;
}

static errcode_t io_write(io_channel channel, unsigned long block, int count, const void *data)
{
	return io_write64(channel, block, count, data);
}

static errcode_t io_flush(io_channel channel)
{
	(void)channel;
	return 0;
}

/* A manager gets nothing of its caller's but a name: the session that this thread opens stands here during ext2fs_open(). */
static _Thread_local struct gnv_session *opening;

static errcode_t io_open(const char *name, int flags, io_channel *out);

static struct struct_io_manager manager = {
	.magic = EXT2_ET_MAGIC_IO_MANAGER,
	.name = "gpunvme",
	.open = io_open,
	.close = io_close,
	.set_blksize = io_set_blksize,
	.read_blk = io_read,
	.write_blk = io_write,
	.flush = io_flush,
	.read_blk64 = io_read64,
	.write_blk64 = io_write64,
};

static errcode_t io_open(const char *name, int flags, io_channel *out)
{
	io_channel channel;
	errcode_t err = ext2fs_get_memzero(sizeof(*channel), &channel);

	(void)flags;
	if (err)
		return err;
	err = ext2fs_get_mem(strlen(name) + 1, &channel->name);
	if (err) {
		ext2fs_free_mem(&channel);
		return err;
	}
	memcpy(channel->name, name, strlen(name) + 1);
	channel->magic = EXT2_ET_MAGIC_IO_CHANNEL;
	channel->manager = &manager;
	channel->block_size = 1024;
	channel->refcount = 1;
	channel->private_data = opening;
	*out = channel;
	return 0;
}

/* ---- Opening ---- */

int gnv_session_failed(const struct gnv_session *s, errcode_t err, const char *what)
{
	if (s->ret)
		return s->ret;
	switch (err) {
	case EXT2_ET_NO_MEMORY:
		return gnv_fail(-ENOMEM, "out of memory");
	case EXT2_ET_FILE_NOT_FOUND:
		return gnv_fail(-ENOENT, "%s is not there%s", what,
				s->fs && ext2fs_has_feature_casefold(s->fs->super) ?
					". Folders that ignore case do not do so here: give the name as they list it" :
					"");
	case EXT2_ET_NO_DIRECTORY:
		return gnv_fail(-ENOTDIR, "%s leads through something that is no directory", what);
	case EXT2_ET_SYMLINK_LOOP:
		return gnv_fail(-ELOOP, "%s leads through symbolic links that lead to each other", what);
	case EXT2_ET_UNSUPP_FEATURE:
	case EXT2_ET_RO_UNSUPP_FEATURE:
		return gnv_fail(-EOPNOTSUPP, "the file system has a feature that this libext2fs does not know: install a newer one");
	default:
		return gnv_fail(-EUCLEAN, "%s cannot be read (%s): check the file system with e2fsck", what, error_message(err));
	}
}

static int check_size(const struct gnv_session *s)
{
	if (ext2fs_blocks_count(s->fs->super) > s->r->bytes / s->fs->blocksize)
		return gnv_fail(-EUCLEAN, "the file system is larger than its drive or partition: was the image or partition cut "
					  "off?");
	return 0;
}

int gnv_session_open(struct gnv_reader *r, struct gnv_session *s)
{
	errcode_t err;
	int ret;

	*s = (struct gnv_session){ .r = r, .loads_max = r->loads + 4 * (r->bytes / GNV_READER_CHUNK) + LOADS_MIN };
	initialize_ext2_error_table();
	opening = s;
	err = ext2fs_open("gpunvme", EXT2_FLAG_64BITS, 0, 0, &manager, &s->fs);
	opening = NULL;
	if (err)
		return gnv_session_failed(s, err, "the superblock");
	s->loads_max += 2ull * s->fs->super->s_inodes_count;
	s->names_max = ext2fs_blocks_count(s->fs->super) * s->fs->blocksize / EXT2_DIR_REC_LEN(1);
	ret = check_size(s);
	if (ret)
		ext2fs_free(s->fs);
	return ret;
}

/* ---- A file ---- */

/* Inode flags of Documentation/filesystems/ext4/inodes.rst. */
static int check_inode(const struct ext2_inode *inode, const char *path, struct gnv_extents *file)
{
	const char *why = inode->i_flags & EXT4_ENCRYPT_FL	 ? "encrypted"
			  : inode->i_flags & EXT2_COMPR_FL	 ? "compressed"
			  : inode->i_flags & EXT4_INLINE_DATA_FL ? "stored in its inode"
								 : NULL;

	if (LINUX_S_ISDIR(inode->i_mode))
		return gnv_fail(-EISDIR, "%s is a directory", path);
	if (!LINUX_S_ISREG(inode->i_mode))
		return gnv_fail(-EOPNOTSUPP, "%s is no regular file", path);
	if (why)
		return gnv_fail(-EOPNOTSUPP, "%s is %s: it has no blocks that a kernel could read", path, why);
	if (inode->i_flags & EXT4_VERITY_FL)
		file->unwritable = gnv_map_reason("verity");
	else if (inode->i_flags & (EXT2_IMMUTABLE_FL | EXT2_APPEND_FL))
		file->unwritable = gnv_map_reason("immutable");
	return 0;
}

/* Times as in Documentation/filesystems/ext4/inodes.rst, "Inode Timestamps": two bits more of seconds, 30 of nanoseconds. */
static void describe(ext2_filsys fs, ext2_ino_t ino, const struct ext2_inode_large *inode, struct gpunvme_file_info *info)
{
	const bool large = EXT2_INODE_SIZE(fs->super) > EXT2_GOOD_OLD_INODE_SIZE && inode->i_extra_isize >= 12;

	info->bytes = EXT2_I_SIZE(inode);
	info->inode = ino;
	info->generation = inode->i_generation;
	info->block = fs->blocksize;
	info->mtime = (int32_t)inode->i_mtime;
	if (large) {
		info->mtime += (int64_t)(inode->i_mtime_extra & 3) << 32;
		info->mtime_ns = inode->i_mtime_extra >> 2;
	}
}

static int walk(struct gnv_session *s, ext2_ino_t ino, struct ext2_inode *inode, const char *path, struct gnv_extents *file)
{
	const uint64_t block = s->fs->blocksize;
	struct ext2fs_extent e;
	ext2_extent_handle_t handle;
	errcode_t err = ext2fs_extent_open2(s->fs, ino, inode, &handle);
	int ret = 0;

	if (err)
		return gnv_session_failed(s, err, path);
	err = ext2fs_extent_get(handle, EXT2_EXTENT_ROOT, &e);
	while (!err && !ret) {
		if (e.e_flags & EXT2_EXTENT_FLAGS_LEAF && !(e.e_flags & EXT2_EXTENT_FLAGS_UNINIT))
			ret = gnv_extents_add(file, e.e_lblk * block, e.e_pblk * block, e.e_len * block);
		err = ext2fs_extent_get(handle, EXT2_EXTENT_NEXT, &e);
	}
	ext2fs_extent_free(handle);
	if (ret)
		return ret;
	return err == EXT2_ET_EXTENT_NO_NEXT || err == EXT2_ET_NO_CURRENT_NODE ? 0 : gnv_session_failed(s, err, path);
}

struct blocks {
	struct gnv_session *s;
	struct gnv_extents *file;
	uint64_t count;
};

static int add_block(ext2_filsys fs, blk64_t *at, e2_blkcnt_t number, blk64_t ref, int offset, void *ctx)
{
	struct blocks *b = ctx;

	(void)ref, (void)offset;
	if (++b->count > ext2fs_blocks_count(fs->super))
		b->s->ret = gnv_fail(-EUCLEAN, "the file has more blocks than its file system: check it with e2fsck");
	else
		b->s->ret = gnv_extents_add(b->file, (uint64_t)number * fs->blocksize, *at * fs->blocksize, fs->blocksize);
	return b->s->ret ? BLOCK_ABORT : 0;
}

/* A file without extents, as ext2 and ext3 have them. */
static int walk_blocks(struct gnv_session *s, ext2_ino_t ino, const char *path, struct gnv_extents *file)
{
	struct blocks b = { s, file, 0 };
	errcode_t err = ext2fs_block_iterate3(s->fs, ino, BLOCK_FLAG_READ_ONLY | BLOCK_FLAG_DATA_ONLY, NULL, add_block, &b);

	return err || s->ret ? gnv_session_failed(s, err, path) : 0;
}

int gnv_session_file(struct gnv_session *s, ext2_ino_t ino, const char *path, struct gnv_extents *file)
{
	struct ext2_inode_large large = { 0 };
	struct ext2_inode *inode = (struct ext2_inode *)(void *)&large;
	errcode_t err = ext2fs_read_inode_full(s->fs, ino, inode, sizeof(large));
	int ret;

	if (err)
		return gnv_session_failed(s, err, path);
	ret = check_inode(inode, path, file);
	if (ret)
		return ret;
	describe(s->fs, ino, &large, &file->info);
	return inode->i_flags & EXT4_EXTENTS_FL ? walk(s, ino, inode, path, file) : walk_blocks(s, ino, path, file);
}

int gnv_session_find(struct gnv_session *s, const char *path, ext2_ino_t *ino)
{
	errcode_t err = ext2fs_namei_follow(s->fs, EXT2_ROOT_INO, EXT2_ROOT_INO, path, ino);

	return err ? gnv_session_failed(s, err, path) : 0;
}

/* ---- A directory ---- */

struct listing {
	struct gnv_session *s;
	struct gnv_list *list;
};

static uint32_t type_of(uint16_t mode)
{
	return LINUX_S_ISREG(mode) ? GPUNVME_DIRENT_FILE : LINUX_S_ISDIR(mode) ? GPUNVME_DIRENT_DIR
		: LINUX_S_ISLNK(mode) ? GPUNVME_DIRENT_LINK : GPUNVME_DIRENT_OTHER;
}

static int tell(struct listing *l, ext2_ino_t ino, const char *name)
{
	struct ext2_inode_large large = { 0 };
	struct gpunvme_file_info info = { 0 };
	char what[64];
	errcode_t err = ext2fs_read_inode_full(l->s->fs, ino, (struct ext2_inode *)(void *)&large, sizeof(large));
	struct gpunvme_dirent entry = { .inode = ino, .type = type_of(large.i_mode) };

	/* A name may have any bytes, and the error message is for terminals. */
	snprintf(what, sizeof(what), "inode %u, which a directory names,", ino);
	if (err)
		return gnv_session_failed(l->s, err, what);
	describe(l->s->fs, ino, &large, &info);
	entry.bytes = info.bytes;
	entry.mtime = info.mtime;
	snprintf(entry.name, sizeof(entry.name), "%s", name);
	gnv_list_add(l->list, &entry, sizeof(entry));
	return 0;
}

int gnv_session_name(const struct ext2_dir_entry *e, char name[EXT2_NAME_LEN + 1])
{
	const size_t len = (size_t)ext2fs_dirent_name_len(e);

	memcpy(name, e->name, len);
	name[len] = '\0';
	return len && strlen(name) == len && !strchr(name, '/') ?
		       0 :
		       gnv_fail(-EUCLEAN, "invalid directory entry name: check the file system with e2fsck");
}

static int each(ext2_ino_t dir, int kind, struct ext2_dir_entry *e, int offset, int size, char *buf, void *ctx)
{
	struct listing *l = ctx;
	char name[EXT2_NAME_LEN + 1];

	(void)dir, (void)offset, (void)size, (void)buf;
	if (kind == DIRENT_DOT_FILE || kind == DIRENT_DOT_DOT_FILE)
		return 0;
	l->s->ret = gnv_session_name(e, name);
	if (!l->s->ret)
		l->s->ret = tell(l, e->inode, name);
	return l->s->ret ? DIRENT_ABORT : 0;
}

static int list_in(struct gnv_session *s, const char *path, struct gnv_list *list)
{
	struct listing l = { s, list };
	struct ext2_inode inode;
	ext2_ino_t ino;
	errcode_t err;
	int ret = gnv_session_find(s, path, &ino);

	if (ret)
		return ret;
	err = ext2fs_read_inode(s->fs, ino, &inode);
	if (err)
		return gnv_session_failed(s, err, path);
	if (!LINUX_S_ISDIR(inode.i_mode))
		return tell(&l, ino, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
	err = ext2fs_dir_iterate2(s->fs, ino, 0, NULL, each, &l);
	return err || s->ret ? gnv_session_failed(s, err, path) : 0;
}

int gnv_ext2fs_list(struct gnv_reader *r, const char *path, struct gnv_list *list)
{
	struct gnv_session s;
	int ret = gnv_session_open(r, &s);

	if (ret)
		return ret;
	ret = list_in(&s, path, list);
	ext2fs_free(s.fs);
	return ret;
}
