/* SPDX-License-Identifier: MIT */
#include "os/dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

int gnv_dmabuf_dup(int fd, int *own)
{
	int got = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (got < 0)
		return -errno;
	*own = got;
	return 0;
}

void gnv_dmabuf_close(int fd)
{
	close(fd);
}

int gnv_dmabuf_size(int fd, uint64_t *size)
{
	off_t end = lseek(fd, 0, SEEK_END);

	if (end <= 0)
		return -EINVAL;
	*size = (uint64_t)end;
	return 0;
}

int gnv_dmabuf_map(int fd, uint64_t offset, size_t len, void **ptr)
{
	void *got = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);

	if (got == MAP_FAILED)
		return -EOPNOTSUPP;
	*ptr = got;
	return 0;
}
