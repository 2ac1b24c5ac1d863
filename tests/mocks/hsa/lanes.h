/* SPDX-License-Identifier: MIT */
/*
 * How kernels run: as the C text that the library has for CPU threads, or as the machine code they were given, on the executor of
 * tests/gfx. What a packet and a code object are is the same for both.
 */
#ifndef TESTS_MOCKS_HSA_LANES_H
#define TESTS_MOCKS_HSA_LANES_H

#include "fault.h"

struct mock_kernel {
	const struct mock_lanes *lanes;
	const void *code;  /* what lanes->load() answered */
	const void *entry; /* what lanes->find() found */
	const char *name;  /* without .kd */
	uint32_t kernarg, group, private; /* bytes */
};

struct mock_lanes {
	/* Take a code object; NULL: it is none. */
	void *(*load)(const void *elf, size_t len);
	void (*unload)(void *code);
	/* Fills in entry and sizes of the kernel k->name; false: there is none. */
	bool (*find)(struct mock_kernel *k);
	/*
	 * Run to the end. HSA_STATUS_INFO_BREAK: *guard->stop was set meanwhile. Any other status but success ends the queue;
	 * HSA_STATUS_ERROR_MEMORY_FAULT is noted in the guard. The packet is correct; its arguments may lie anywhere.
	 */
	hsa_status_t (*run)(const struct mock_kernel *k, const hsa_kernel_dispatch_packet_t *packet, unsigned gpu,
			    struct mock_guard *guard);
};

extern const struct mock_lanes mock_lanes_cpu, mock_lanes_gfx;

/* The kernel that packets call by this number, or NULL. */
const struct mock_kernel *mock_kernel(uint64_t object);

#endif
