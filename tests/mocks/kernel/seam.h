/* SPDX-License-Identifier: MIT */
/*
 * The seam between the library and the kernel, for tests on a real one: a library that handles ioctl(), close(), open() and
 * opendir() before libc does. Programs link with it, or are started with it as LD_PRELOAD.
 *
 *   It remembers which range of which BAR a DMA-BUF of vfio-pci stands for, so that a mock GPU can map it: the kernel has no
 *   mmap() for those.
 *   It refuses what a real kernel may refuse and this one does not.
 *   It plays /dev/kfd and a render node, whose mappings lead to the BAR.
 *   It keeps book, and writes down the first rule that was broken: a device is closed after the GPU has let go of its BAR; memory
 *   of the GPU is freed after the controller has let go of it; the admin queue is unmapped after the controller was stopped.
 */
#ifndef TESTS_MOCKS_SEAM_H
#define TESTS_MOCKS_SEAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#if defined(SEAM_OPTIONAL) /* for programs that also work without it: then all that is declared here is NULL */
#define SEAM_API __attribute__((visibility("default"), weak))
#else
#define SEAM_API __attribute__((visibility("default")))
#endif
#define SEAM_DRM_FD 55 /* what the mock libdrm calls its device */

/* What can be refused. SEAM_REFUSE=NAME:ERRNO[:FROM[:COUNT]] in the environment does it for a program of its own. */
enum seam_call {
	SEAM_MAP_FILE,	 /* "map_file": IOMMU_IOAS_MAP_FILE, which only DMA-BUFs get */
	SEAM_MAP_VRAM,	 /* "map_vram": VFIO_IOMMU_MAP_DMA of memory of the GPU */
	SEAM_EXPORT,	 /* "export": VFIO_DEVICE_FEATURE_DMA_BUF by the library */
	SEAM_KFD_IMPORT, /* "kfd_import" */
	SEAM_KFD_MAP,	 /* "kfd_map" */
	SEAM_INTEROP,	 /* "interop": the runtime's import of a DMA-BUF that amdgpu did not export */
	SEAM_CALLS
};

enum seam_way { SEAM_WAY_INTEROP = 1, SEAM_WAY_DRM = 2, SEAM_WAY_KFD = 4 };

struct seam {
	struct {
		int err;       /* 0: not refused */
		unsigned from; /* the first call that is, counted from 1 */
		unsigned upto; /* the last one */
	} refuse[SEAM_CALLS];
	unsigned seen[SEAM_CALLS]; /* calls, refused or not */
	bool gpu_nodes;		   /* /dev/kfd and a render node exist */
	unsigned deaf;		   /* enum seam_way: mappings whose stores do not arrive */
	const char *broke;	   /* the first rule that was broken, or NULL */

	/* The mock GPU's: its memory, and what it does when the kernel was asked to attach a DMA-BUF of it. */
	const char *vram;
	size_t vram_len;
	void (*attached)(ino_t dmabuf, bool refused);
	int (*instead)(ino_t dmabuf);	      /* memory of the host that the kernel maps for it, or -1; or NULL */
	uint64_t (*in_host)(ino_t dmabuf); /* bytes of it that lie there; or NULL */
	void (*mapped)(void *ptr, size_t len); /* a BAR, for its lanes, past its runtime; or NULL */
	void (*unmapped)(void *ptr);
	void (*evict)(void); /* its queues stand still, since a BAR that they map is going; or NULL */
};
extern SEAM_API struct seam seam;

/* Forget refusals and counts; not the book. */
SEAM_API void seam_reset(void);

/* Is this call refused? Return: 0, or a positive errno. */
SEAM_API int seam_refuses(enum seam_call call);

/*
 * seam_map() - the BAR of a DMA-BUF
 * @at: where, or NULL for anywhere
 * @way: that is used
 * Return: its address, or NULL: it is no DMA-BUF that the library made.
 */
SEAM_API void *seam_map(int dmabuf, void *at, enum seam_way way, size_t *len);
SEAM_API void seam_unmap(void *ptr, bool reserve); /* and leave the addresses taken */

/* Memory of the host takes the place of a BAR, in one step: the kernel leaves a moment without an entry (docs/kernel.md). */
SEAM_API void seam_fence_off(void *ptr, size_t len);

/* A rule: here memory of the GPU is freed, whose DMA-BUF this is. */
SEAM_API void seam_freed(const void *ptr, size_t len, ino_t dmabuf);

#endif
