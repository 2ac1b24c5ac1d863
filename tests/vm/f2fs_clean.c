/* SPDX-License-Identifier: MIT */
/* Has f2fs clean the segment that a byte of its drive is in: f2fs_clean FOLDER BYTE. F2FS_IOC_GARBAGE_COLLECT_RANGE of linux/f2fs.h. */
#include <fcntl.h>
#include <linux/f2fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

int main(int argc, char **argv)
{
	struct f2fs_gc_range range = { .sync = 1, .len = 1 };
	int fd = argc == 3 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	if (fd < 0) {
		fprintf(stderr, "usage: f2fs_clean FOLDER BYTE\n");
		return 2;
	}
	range.start = strtoull(argv[2], NULL, 10) / 4096;
	if (ioctl(fd, F2FS_IOC_GARBAGE_COLLECT_RANGE, &range)) {
		perror("f2fs_clean");
		return 1;
	}
	return 0;
}
