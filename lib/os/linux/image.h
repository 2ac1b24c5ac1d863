/* SPDX-License-Identifier: MIT */
/* A file or block device that is read once, from its beginning to its end. Other programs may change it. */
#ifndef GNV_OS_LINUX_IMAGE_H
#define GNV_OS_LINUX_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct gnv_image {
	const char *path; /* the caller's */
	int fd;
	uint64_t size; /* bytes, when it was opened */
	uint64_t next; /* the offset of the next read */
	uint64_t data_end; /* up to here there is no hole */
};

/* Return: 0; -ENOENT, -EACCES, -EISDIR, -EINVAL it is no file and no block device, or another errno; gnv_fail() has the message. */
int gnv_image_open(const char *path, struct gnv_image *image);
void gnv_image_close(struct gnv_image *image);

/*
 * gnv_image_read() - read the next data that is no hole: up to @len bytes to @to
 * @at: its offset. @got: bytes, or 0 at the end.
 * Return: 0; -EIO the file has become shorter; another errno of the system; gnv_fail() has the message.
 */
int gnv_image_read(struct gnv_image *image, void *to, size_t len, uint64_t *at, size_t *got);

#endif
