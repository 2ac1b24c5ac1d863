/* SPDX-License-Identifier: MIT */
/* A file whose file system never replies: each call that asks FUSE, close() too, waits until evil_fuse_end(). */
#ifndef TESTS_EVIL_FUSE_H
#define TESTS_EVIL_FUSE_H

/* Return: a descriptor that the calling thread alone can close, or -1, after a message that says why there is no FUSE here. */
int evil_fuse(void);
void evil_fuse_end(void);

#endif
