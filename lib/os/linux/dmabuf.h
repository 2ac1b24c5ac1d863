/* SPDX-License-Identifier: MIT */
/* DMA-BUFs as files: their size, a descriptor of one's own, and the CPU's view where the exporter offers one. */
#ifndef GNV_OS_LINUX_DMABUF_H
#define GNV_OS_LINUX_DMABUF_H

#include <stddef.h>
#include <stdint.h>

/* A second descriptor of the same buffer. Return: 0, -EBADF, -EMFILE. */
int gnv_dmabuf_dup(int fd, int *own);
void gnv_dmabuf_close(int fd);

/* The name of its exporter, as fdinfo has it, or "" if the kernel does not report it. */
void gnv_dmabuf_exporter(int fd, char *name, size_t size);

/* Return: 0; -EINVAL it is nothing that has a size. */
int gnv_dmabuf_size(int fd, uint64_t *size);

/* Map it for the CPU. Return: 0; -EOPNOTSUPP the exporter does not offer that (vfio-pci does not). */
int gnv_dmabuf_map(int fd, uint64_t offset, size_t len, void **ptr);

#endif
