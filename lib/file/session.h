/* SPDX-License-Identifier: MIT */
/* An ext2, ext3 or ext4 that libext2fs has open, for as long as a call lasts. Only where GNV_WITH_EXT4. */
#ifndef GNV_FILE_SESSION_H
#define GNV_FILE_SESSION_H

#define __bitwise /* else sparse finds that libext2fs' numbers are none */
#include <ext2fs/ext2fs.h>

#include "file/file.h"

struct gnv_session {
	struct gnv_reader *r;
	ext2_filsys fs;
	uint32_t reads;
	uint64_t loads_max; /* some for each chunk, and for each inode, which a listing visits in any order */
	uint64_t names_max; /* of all directories: more have no room there */
	int ret; /* why a read failed, or a function that libext2fs has called. Its message was set */
};

/* Return: 0, then s->fs is the caller's to ext2fs_free(); as gpunvme_file_open(). */
int gnv_session_open(struct gnv_reader *r, struct gnv_session *s);

/* Report an error of libext2fs, with the path. A read that failed has its own message. */
int gnv_session_failed(const struct gnv_session *s, errcode_t err, const char *what);

/* From the root. Return: 0, -ENOENT, -ENOTDIR, -ELOOP, ... */
int gnv_session_find(struct gnv_session *s, const char *path, ext2_ino_t *ino);

/* Fills extents and info of a file that is there. Return: 0; as gpunvme_file_open(). */
int gnv_session_file(struct gnv_session *s, ext2_ino_t ino, const char *path, struct gnv_extents *file);

/* The name of a directory's entry, if it is one. Return: 0, -EUCLEAN. */
int gnv_session_name(const struct ext2_dir_entry *e, char name[EXT2_NAME_LEN + 1]);

/* ---- Many paths (ext2fs_lookup.c) ---- */

struct known;

struct gnv_lookup {
	struct gnv_session *s;
	const char *dir; /* the path before, whose first `len` bytes are its directory */
	size_t len;
	struct known *known; /* the names of that, once they are loaded */
	uint32_t count, room;
	bool loaded;
	struct gnv_names names;
};

/* As gnv_session_find(), with the inode. The path must stay until the next call. */
int gnv_lookup(struct gnv_lookup *l, const char *path, struct ext2_inode *inode, ext2_ino_t *ino);
void gnv_lookup_end(struct gnv_lookup *l);

#endif
