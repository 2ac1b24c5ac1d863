/* SPDX-License-Identifier: MIT */
/*
 * Memory that two processes have by a descriptor (memfd). It is sealed against shrinking, because a process that shrinks it would
 * end the other one with SIGBUS.
 */
#ifndef GNV_OS_LINUX_SHARED_H
#define GNV_OS_LINUX_SHARED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Make memory of this process, zeroed, to be given to another process, and sealed in its size. A child of fork() has neither it nor
 * its descriptor.
 * Return: 0, -ENOMEM, -EMFILE, -ENFILE.
 */
int gnv_shared_create(size_t len, int *fd, void **ptr);
void gnv_shared_destroy(int fd, void *ptr, size_t len);

/* A mapping of another process's memory. */
struct gnv_shared {
	char *ptr; /* of the first requested byte */
	void *base; /* of the mapping, which begins at a page of the file's */
	size_t len;
};

/*
 * gnv_shared_map() - map a descriptor from an untrusted process, readable and writable
 * Return: 0; -EPERM it is not sealed against shrinking; -EINVAL the range is not in it, or does not begin at a page; -EACCES it may
 * not be written; -ENOMEM, -ENODEV; gnv_fail() has the message.
 */
int gnv_shared_map(int fd, uint64_t offset, uint64_t len, struct gnv_shared *shared);
void gnv_shared_unmap(const struct gnv_shared *shared);

/*
 * gnv_shared_overlay() - the same of whole pages, in the place of a mapping of this process, and not inherited over fork()
 * @unsealed: also of memory that is not sealed: its maker is trusted with the life of this process
 * Return: as gnv_shared_map(); then nothing has changed.
 */
int gnv_shared_overlay(void *at, int fd, uint64_t offset, size_t len, bool unsealed);

#endif
