/* SPDX-License-Identifier: MIT */
/*
 * Many paths, one after the other: those of a list are often of one directory, and libext2fs reads it from its begin for each. So
 * the names of the last directory are kept, sorted, from its second path on.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "file/session.h"

#define KNOWN_MOST (1u << 28) /* names that are kept: 4 GiB of struct known */

struct known {
	const char *name;
	ext2_ino_t ino;
};

static int by_name(const void *one, const void *other)
{
	return strcmp(((const struct known *)one)->name, ((const struct known *)other)->name);
}

void gnv_lookup_end(struct gnv_lookup *l)
{
	gnv_names_free(&l->names);
	free(l->known);
	l->known = NULL;
	l->count = l->room = 0;
	l->loaded = false;
}

static int keep(struct gnv_lookup *l, const struct ext2_dir_entry *e)
{
	const uint32_t room = l->room ? 2 * l->room : 64;
	struct known *more = l->known;
	char name[EXT2_NAME_LEN + 1], *copy;
	int ret = gnv_session_name(e, name);

	if (!ret && l->count >= l->s->names_max)
		ret = gnv_fail(-EUCLEAN, "a directory has more names than its file system has room for: check it with e2fsck");
	if (!ret)
		ret = gnv_names_room(&l->names, strlen(name) + 1, &copy);
	if (ret)
		return ret;
	if (l->count == l->room) {
		more = room <= KNOWN_MOST ? realloc(l->known, room * sizeof(*more)) : NULL;
		if (!more)
			return gnv_fail(-ENOMEM, "out of memory");
		l->known = more;
		l->room = room;
	}
	strcpy(copy, name);
	l->known[l->count++] = (struct known){ copy, e->inode };
	return 0;
}

static int each(ext2_ino_t dir, int kind, struct ext2_dir_entry *e, int offset, int size, char *buf, void *ctx)
{
	struct gnv_lookup *l = ctx;

	(void)dir, (void)offset, (void)size, (void)buf;
	if (kind != DIRENT_DOT_FILE && kind != DIRENT_DOT_DOT_FILE)
		l->s->ret = keep(l, e);
	return l->s->ret ? DIRENT_ABORT : 0;
}

static int load(struct gnv_lookup *l)
{
	char dir[GNV_PATH_ROOM] = "/";
	ext2_ino_t ino;
	errcode_t err;
	int ret;

	if (l->len)
		memcpy(dir, l->dir, l->len);
	ret = gnv_session_find(l->s, dir, &ino);
	if (ret)
		return ret;
	err = ext2fs_dir_iterate2(l->s->fs, ino, 0, NULL, each, l);
	if (err || l->s->ret)
		return gnv_session_failed(l->s, err, dir);
	if (l->count)
		qsort(l->known, l->count, sizeof(*l->known), by_name);
	l->loaded = true;
	return 0;
}

int gnv_lookup(struct gnv_lookup *l, const char *path, struct ext2_inode *inode, ext2_ino_t *ino)
{
	const char *slash = strrchr(path, '/');
	const size_t len = slash ? (size_t)(slash + 1 - path) : 0;
	const struct known key = { path + len, 0 }, *found = NULL;
	errcode_t err = 0;
	int ret = 0;

	if (l->dir && len == l->len && memcmp(path, l->dir, len) == 0) {
		ret = l->loaded ? 0 : load(l);
		found = !ret && l->count ? bsearch(&key, l->known, l->count, sizeof(key), by_name) : NULL;
	} else {
		gnv_lookup_end(l);
		l->dir = path;
		l->len = len;
	}
	if (found) {
		*ino = found->ino;
		err = ext2fs_read_inode(l->s->fs, *ino, inode);
	}
	if (ret || err)
		return ret ? ret : gnv_session_failed(l->s, err, path);
	if (found && !LINUX_S_ISLNK(inode->i_mode))
		return 0;
	ret = gnv_session_find(l->s, path, ino); /* which follows links, and says why something is not there */
	err = ret ? 0 : ext2fs_read_inode(l->s->fs, *ino, inode);
	if (ret)
		return ret;
	return err ? gnv_session_failed(l->s, err, path) : 0;
}
