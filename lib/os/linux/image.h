/* SPDX-License-Identifier: MIT */
/* A file or block device that is read once, from its beginning to its end. Nobody is kept from changing it. */
#ifndef GNV_OS_LINUX_IMAGE_H
#define GNV_OS_LINUX_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct gnv_image {
	const char *path; /* the caller's */
	int fd;
	uint64_t size; /* bytes, when it was opened */
	uint64_t next; /* what was not read yet */
	uint64_t data_end; /* up to here there is no hole */
};

/* Return: 0; -ENOENT, -EACCES, -EISDIR, -EINVAL it is no file and no block device, or another errno; gnv_fail() has the message. */
int gnv_image_open(const char *path, struct gnv_image *image);
void gnv_image_close(struct gnv_image *image);

/*
 * gnv_image_read() - read what comes next and is no hole: up to @len bytes to @to
 * @at: its offset. @got: bytes; 0: nothing more comes.
 * Return: 0; -EIO the file has become shorter; another errno of the system; gnv_fail() has the message.
 */
int gnv_image_read(struct gnv_image *image, void *to, size_t len, uint64_t *at, size_t *got);

#endif
