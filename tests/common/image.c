/* SPDX-License-Identifier: MIT */
#include "common/image.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

char image_dir[64];

int image_make_dir(void **state)
{
	(void)state;
	snprintf(image_dir, sizeof(image_dir), "/tmp/gnv-image-XXXXXX");
	return mkdtemp(image_dir) ? 0 : -1;
}

int image_remove_dir(void **state)
{
	(void)state;
	umount2(image_dir, MNT_DETACH);
	return rmdir(image_dir);
}

const char *image_path(const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), "%s/%s", image_dir, name);
	return path;
}

void image_make(const char *path, long long size)
{
	int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, size), 0);
	close(fd);
}

int image_make_disk(void **state, long long size)
{
	if (image_make_dir(state))
		return -1;
	image_make(image_path("disk.img"), size);
	return 0;
}

int image_remove_disk(void **state)
{
	unlink(image_path("disk.img"));
	return image_remove_dir(state);
}
