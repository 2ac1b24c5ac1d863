/* SPDX-License-Identifier: MIT */
/* Loop devices for tests, where the machine lets us have them. */
#ifndef TESTS_COMMON_LOOP_H
#define TESTS_COMMON_LOOP_H

#include <fcntl.h>
#include <linux/loop.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A loop device on an image, its own where that is NULL, gone when its descriptor is. Return: descriptor, or -1. */
static inline int make_loop(char *path, size_t size, const char *image)
{
	int control = open("/dev/loop-control", O_RDWR), file, loop, n;
	struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR };

	if (control < 0)
		return -1;
	n = ioctl(control, LOOP_CTL_GET_FREE);
	close(control);
	snprintf(path, size, "/dev/loop%d", n);
	file = image ? open(image, O_RDWR | O_CLOEXEC) : open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	loop = open(path, O_RDWR | O_CLOEXEC);
	config.fd = (uint32_t)file;
	if (n < 0 || file < 0 || loop < 0 || (!image && ftruncate(file, 16 << 20)) || ioctl(loop, LOOP_CONFIGURE, &config)) {
		close(loop);
		loop = -1;
	}
	close(file);
	if (loop >= 0) {
		int writer = loop;

		loop = open(path, O_RDONLY | O_CLOEXEC); /* a descriptor for writing would be in the way */
		close(writer);
	}
	return loop;
}

#endif
