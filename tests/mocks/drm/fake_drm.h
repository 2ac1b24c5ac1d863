/* SPDX-License-Identifier: MIT */
/* A libdrm_amdgpu without a GPU: it counts what is made, checks what it is asked, and fails where the test wants it. */
#ifndef TESTS_MOCKS_FAKE_DRM_H
#define TESTS_MOCKS_FAKE_DRM_H

#include <stdbool.h>
#include <stdint.h>

#define FAKE_DRM_FD 55 /* of the device */

struct fake_drm {
	unsigned fails_at;  /* the how-manieth call fails; 0: none */
	int fails_with;	    /* negative */
	const char *refuse; /* or the function of this name */
	bool hangs;	    /* commands never end */
	bool no_rings; /* there are no kernel queues: amdgpu.user_queue=2, or GC 12.1 (Linux gfx_v12_1.c, disable_kq) */
	unsigned taken; /* so many addresses are something else's in the GPU */
	bool no_uncached;   /* the kernel takes that flag from KFD only */
	bool host, unseen;  /* memory of the GPU lies in the host's, or where the CPU does not see it */
	uint64_t import_size; /* with `place` it is what the DMA-BUF has */
	int (*place)(uint32_t imported, uint64_t va, bool map); /* called when an import gets or loses an address; or NULL */
	void (*fence_off)(uint64_t va,
			  uint64_t size); /* called when memory of the host takes its place there, by a command; or NULL */
	const char *broke; /* the first rule that was broken, or NULL */

	unsigned count; /* calls that could fail */
	unsigned devices, bos, maps, contexts, lists;
	unsigned commands, replaced;
	uint64_t alloc_flags, va_flags; /* of the last allocation of VRAM, and of its mapping or that of an import */
	uint64_t va, taken_at;
	uint32_t imported;
};

/* The one of the loaded library. */
struct fake_drm *fake_drm(void);

#endif
