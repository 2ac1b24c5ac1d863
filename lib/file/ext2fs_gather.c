/* SPDX-License-Identifier: MIT */
/*
 * Files of an ext2, ext3 or ext4 by many names: all directories are read first, and the inodes then in the order in which they lie.
 * A directory has one name. One that has more leads in circles, or is made to have many names of few blocks.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/ext2fs.h"
#include "file/file.h"
#include "file/session.h"
#include "util/bits.h"

struct dir {
	ext2_ino_t ino;
	const char *name;
};

/* All that lies below one name of the list. */
struct tree {
	struct gnv_session *s;
	struct gnv_fill *fill;
	struct dir *dir; /* those that were found */
	uint32_t dirs, room, at;
	uint8_t *seen; /* a bit for each inode: it was found as a directory */
};

static int add_dir(struct tree *t, ext2_ino_t ino, const char *name)
{
	const uint32_t room = t->room ? 2 * t->room : 16;
	struct dir *more = t->dir;

	if (ino > t->s->fs->super->s_inodes_count || t->seen[ino / 8] & 1u << ino % 8)
		return gnv_fail(-EUCLEAN, "a directory has two names, or leads in circles: check the file system with e2fsck");
	if (t->dirs == t->room) {
		more = room > t->room ? realloc(t->dir, room * sizeof(*more)) : NULL;
		if (!more)
			return gnv_fail(-ENOMEM, "out of memory");
		t->dir = more;
		t->room = room;
	}
	t->seen[ino / 8] |= (uint8_t)(1u << ino % 8);
	t->dir[t->dirs++] = (struct dir){ ino, name };
	return 0;
}

static int join(const struct tree *t, const char *name, const char **path)
{
	const char *dir = t->dir[t->at].name;
	size_t len = strlen(dir), more = strlen(name) + 1;
	char *room;
	int ret;

	while (len && dir[len - 1] == '/')
		len--;
	if (len + 1 + more > GNV_PATH_ROOM)
		return gnv_fail(-ENAMETOOLONG, "below a directory is a path that has more than 4095 bytes");
	ret = gnv_names_room(&t->fill->set->names, len + 1 + more, &room);
	if (ret)
		return ret;
	memcpy(room, dir, len);
	room[len] = '/';
	memcpy(room + len + 1, name, more);
	*path = room;
	return 0;
}

/* As the entry says, if the file system has types there. Otherwise as the inode says. */
static int type_of(struct gnv_session *s, const struct ext2_dir_entry *e, int *type)
{
	struct ext2_inode inode;
	errcode_t err;

	*type = ext2fs_dirent_file_type(e);
	if (*type != EXT2_FT_UNKNOWN && ext2fs_has_feature_filetype(s->fs->super))
		return 0;
	err = ext2fs_read_inode(s->fs, e->inode, &inode);
	if (err)
		return gnv_session_failed(s, err, "an inode that a directory names");
	*type = LINUX_S_ISREG(inode.i_mode) ? EXT2_FT_REG_FILE : LINUX_S_ISDIR(inode.i_mode) ? EXT2_FT_DIR : EXT2_FT_UNKNOWN;
	return 0;
}

static int add(struct tree *t, const struct ext2_dir_entry *e)
{
	char name[EXT2_NAME_LEN + 1];
	const char *path = NULL;
	int type = EXT2_FT_UNKNOWN, ret = gnv_session_name(e, name);

	if (!ret)
		ret = type_of(t->s, e, &type);
	if (ret || (type != EXT2_FT_REG_FILE && type != EXT2_FT_DIR))
		return ret;
	ret = join(t, name, &path);
	if (ret)
		return ret;
	return type == EXT2_FT_DIR ? add_dir(t, e->inode, path) : gnv_fill_name(t->fill, path, e->inode);
}

static int each(ext2_ino_t dir, int kind, struct ext2_dir_entry *e, int offset, int size, char *buf, void *ctx)
{
	struct tree *t = ctx;

	(void)dir, (void)offset, (void)size, (void)buf;
	if (kind == DIRENT_DOT_FILE || kind == DIRENT_DOT_DOT_FILE)
		return 0;
	t->s->ret = add(t, e);
	return t->s->ret ? DIRENT_ABORT : 0;
}

static int walk_tree(struct tree *t, ext2_ino_t ino, const char *name)
{
	errcode_t err;
	int ret = add_dir(t, ino, name);

	for (t->at = 0; t->at < t->dirs && !ret; t->at++) {
		err = ext2fs_dir_iterate2(t->s->fs, t->dir[t->at].ino, 0, NULL, each, t);
		if (err || t->s->ret)
			ret = gnv_session_failed(t->s, err, "a directory");
	}
	return ret;
}

static int gather_dir(struct gnv_session *s, struct gnv_fill *fill, ext2_ino_t ino, const char *name)
{
	struct tree t = { .s = s, .fill = fill, .seen = calloc(s->fs->super->s_inodes_count / 8 + 1, 1) };
	const uint32_t from = fill->set->info.files;
	int ret = t.seen ? walk_tree(&t, ino, name) : gnv_fail(-ENOMEM, "out of memory");

	if (!ret)
		gnv_fill_sort(fill, from);
	free(t.seen);
	free(t.dir);
	return ret;
}

static int gather_one(struct gnv_lookup *l, struct gnv_fill *fill, const char *path)
{
	const size_t len = strlen(path) + 1;
	struct ext2_inode inode;
	ext2_ino_t ino;
	char *name;
	int ret = gnv_lookup(l, path, &inode, &ino);

	/* The caller has the listed names, too. Twice, because pieces of memory are not filled to the end. */
	fill->set->names.max += 2 * len;
	if (!ret)
		ret = gnv_names_room(&fill->set->names, len, &name);
	if (ret)
		return ret;
	memcpy(name, path, len);
	return LINUX_S_ISDIR(inode.i_mode) && !fill->alone ? gather_dir(l->s, fill, ino, name) : gnv_fill_name(fill, name, ino);
}

struct reading {
	struct gnv_session *s;
	const struct gpunvme_file *set;
};

static int read_inode(void *ctx, uint32_t number, const char *name, struct gnv_extents *file)
{
	const struct reading *reading = ctx;

	return gnv_session_file(reading->s, (ext2_ino_t)reading->set->many[number].inode, name, file);
}

/*
 * The limit of names. A damaged file system has paths of 4 KiB for the 12 bytes of an entry, which may lie in many blocks of a
 * directory at once. A sound one has an inode of 128 or 256 bytes for each. So eight times its size are paths of 1 to 2 KiB for as
 * many files as it can have.
 */
#define NAMES_LEAST (64ull << 20)
#define DIR_MORE (1u << 20) /* the names of one directory are smaller than its blocks, except for unused memory */

static void set_limits(const struct gnv_session *s, struct gnv_lookup *l, struct gnv_fill *fill, uint32_t listed)
{
	const uint64_t bytes = ext2fs_blocks_count(s->fs->super) * s->fs->blocksize;

	fill->extents_max = ext2fs_blocks_count(s->fs->super);
	fill->names_max = s->names_max + listed;
	fill->set->names.max = gnv_min(NAMES_LEAST + 8 * gnv_min(bytes, GNV_NAMES_MOST), GNV_NAMES_MOST);
	l->names.max = gnv_min(bytes + DIR_MORE, GNV_NAMES_MOST);
}

int gnv_ext2fs_gather(struct gnv_reader *r, const char *const *paths, uint32_t count, struct gnv_fill *fill)
{
	struct gnv_session s;
	struct gnv_lookup lookup = { .s = &s };
	struct reading reading = { &s, fill->set };
	int ret = gnv_session_open(r, &s);

	if (ret)
		return ret;
	set_limits(&s, &lookup, fill, count);
	for (uint32_t i = 0; i < count && !ret; i++)
		ret = gather_one(&lookup, fill, paths[i]);
	gnv_lookup_end(&lookup);
	if (!ret)
		ret = gnv_fill_all(fill, read_inode, &reading);
	ext2fs_free(s.fs);
	return ret;
}
