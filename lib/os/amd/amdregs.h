/* SPDX-License-Identifier: MIT */
/*
 * Registers of an AMD GPU through the kernel's debug file system: for root, for diagnosis. A wrong write hangs the
 * machine.
 */
#ifndef GNV_OS_AMD_AMDREGS_H
#define GNV_OS_AMD_AMDREGS_H

#include <stdbool.h>
#include <stdint.h>

#define GNV_DEBUGFS "/sys/kernel/debug"

/* The graphics and compute block, as the GPU's own table (IP discovery) describes it. */
struct gnv_amdgc {
	unsigned major, minor, revision;
	uint32_t base; /* of its first segment of registers, in words */
};

/* Return: 0; -ENOENT the kernel shows no such table; gnv_fail() has the message. */
int gnv_amdgc_read(const char *sys, const char *bdf, struct gnv_amdgc *gc);

struct gnv_amdregs {
	int fd;
	int gfxoff; /* the file that keeps the block from being powered down meanwhile, or -1 */
};

/* Return: 0; -EACCES not root; -ENOENT no such GPU there, or no debug file system; gnv_fail() has the message. */
int gnv_amdregs_open(const char *debug, const char *bdf, struct gnv_amdregs *regs);
void gnv_amdregs_close(struct gnv_amdregs *regs);

/* @reg: in words. Return: 0, -EIO; gnv_fail() has the message. */
int gnv_amdregs_read(const struct gnv_amdregs *regs, uint32_t reg, uint32_t *value);
int gnv_amdregs_write(const struct gnv_amdregs *regs, uint32_t reg, uint32_t value);

#endif
