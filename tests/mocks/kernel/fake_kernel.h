/* SPDX-License-Identifier: MIT */
/*
 * The kernel's side of VFIO and IOMMUFD for tests: open() and ioctl() of the nodes below are answered here, everything else is the
 * real thing. Link with -Wl,--wrap=open,--wrap=ioctl. The device's file is a memfd: BAR0 and config space are really mapped and read.
 */
#ifndef TESTS_MOCKS_FAKE_KERNEL_H
#define TESTS_MOCKS_FAKE_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_NODE "noiommu-vfio7"
#define FAKE_IOAS 5u
#define FAKE_BAR0_BYTES 0x4000u
#define FAKE_CONFIG 0x10000u /* offset of config space in the device's file */
#define FAKE_NO_RESET 0x10000u
#define FAKE_CALLS 256u
#define FAKE_MAPS 64u
#define FAKE_RANGES 40u	   /* of usable addresses, from 8 TiB to the next each, but its last piece: more than 48 bits */
#define FAKE_ALIGN 0x10000u /* of IOVAs, as with pages of 64 KiB */

struct fake_call {
	unsigned long request;
	unsigned char arg[64]; /* as it came */
};

extern struct fake_kernel {
	/* What it does. */
	unsigned fail_at; /* the how-manieth call of ioctl() fails, 0: none */
	unsigned long fail_request; /* every such one does */
	int fail_errno;
	bool no_reset; /* the device has no function reset */
	unsigned slot; /* functions that a hot reset of its slot takes along; 0: there is none */
	unsigned first_range; /* of FAKE_RANGES, that it tells of */
	uint64_t phys;	/* of the first byte of every mapping */
	uint64_t piece; /* GET_PA tells of at most so much; 0: of what is asked for */
	size_t hole_at; /* from this byte of a mapping on, memory lies elsewhere; 0: nowhere */

	/* What happened. */
	struct fake_call call[FAKE_CALLS];
	unsigned calls;
	bool bound;
	unsigned maps; /* alive */
	struct {
		uint64_t iova, len;
	} map[FAKE_MAPS];
	uint64_t label; /* of the last one */
	unsigned command_at_reset; /* the Command register before the first reset; FAKE_NO_RESET: there was none */
	int req, err;	/* eventfds that were armed, duplicates of them; -1 */
	int device;	/* its file */
} fake_kernel;

/* Forget everything. */
void fake_kernel_reset(void);

/* The n-th call with this request, or NULL. */
const struct fake_call *fake_kernel_call(unsigned long request, unsigned n);

/* Descriptors of this process. */
unsigned fake_open_files(void);

#endif
