/* SPDX-License-Identifier: MIT */
#include "os/linux/dmabuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "os/linux/sysfs.h"

int gnv_dmabuf_dup(int fd, int *own)
{
	int got;

	gnv_fork_begin();
	got = gnv_fork_keep(fcntl(fd, F_DUPFD_CLOEXEC, 3));
	if (got < 0)
		return -errno;
	*own = got;
	return 0;
}

void gnv_dmabuf_close(int fd)
{
	gnv_fork_close(fd);
}

/* dma_buf_show_fdinfo() of drivers/dma-buf/dma-buf.c: a line for each property, "exp_name:", a tab, the name. */
void gnv_dmabuf_exporter(int fd, char *name, size_t size)
{
	static const char key[] = "exp_name:\t";
	char path[48], text[1024];
	const char *line;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	line = gnv_sysfs_read(path, text, sizeof(text)) ? NULL : strstr(text, key);
	snprintf(name, size, "%.*s", line ? (int)strcspn(line + strlen(key), "\n") : 0, line ? line + strlen(key) : "");
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
	madvise(got, len, MADV_DONTFORK);
	*ptr = got;
	return 0;
}
