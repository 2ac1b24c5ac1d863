/* SPDX-License-Identifier: MIT */
/* The ioctl of /dev/vram-test, the exporter of a patched kernel (contrib/kernel/vram_test.c). */
#ifndef TESTS_MOCKS_VRAM_TEST_H
#define TESTS_MOCKS_VRAM_TEST_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct vram_test_alloc {
	__u64 size;
	__s32 fd; /* the reply: a DMA-BUF */
	__u32 reserved;
};

#define VRAM_TEST_ALLOC _IOWR('V', 0x7e, struct vram_test_alloc)

#endif
