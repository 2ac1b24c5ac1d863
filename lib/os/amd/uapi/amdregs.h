/* SPDX-License-Identifier: MIT */
/* The interface of amdgpu_regs2 in the kernel's debug file system, which is in no header for programs. */
#ifndef GNV_OS_AMD_UAPI_AMDREGS_H
#define GNV_OS_AMD_UAPI_AMDREGS_H

#include <stdint.h>
#include <sys/ioctl.h>

/* The instance of a register for the next access. Zero: all of them. */
struct gnv_amdregs_state {
	uint32_t use_srbm;
	uint32_t use_grbm;
	uint32_t pg_lock; /* hold off power gating */
	uint32_t se, sh, instance;
	uint32_t me, pipe, queue, vmid;
};
#define GNV_AMDREGS_SET_STATE _IOWR(0x20, 0, struct gnv_amdregs_state)

_Static_assert(sizeof(struct gnv_amdregs_state) == 40, "uapi layout");

#endif
