/* SPDX-License-Identifier: MIT */
/* A folder of a test's own, in which it makes images and on which it may mount. Setup and teardown for cmocka. */
#ifndef TESTS_IMAGE_H
#define TESTS_IMAGE_H

extern char image_dir[64];

int image_make_dir(void **state);
/* Unmounts what is mounted there; fails when a file was left. */
int image_remove_dir(void **state);

/* Path of a name in the folder; overwritten by the next call. */
const char *image_path(const char *name);
void image_make(const char *path, long long size);

/* The folder, with one image: disk.img. */
int image_make_disk(void **state, long long size);
int image_remove_disk(void **state);

#define SKIP(why)                                                                                                                  \
	do {                                                                                                                       \
		print_message("skipped: %s\n", why);                                                                               \
		skip();                                                                                                            \
	} while (0)

#endif
