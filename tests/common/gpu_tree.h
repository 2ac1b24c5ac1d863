/* SPDX-License-Identifier: MIT */
/* GPUs, bridges and their places in a made-up sysfs. */
#ifndef TESTS_COMMON_GPU_TREE_H
#define TESTS_COMMON_GPU_TREE_H

#include "common/tree.h"

#define GIB (1ull << 30)

/* A PCI device at its place, "pci0000:00/0000:00:01.0/0000:03:00.0". */
static inline void put_pci(const char *place, unsigned class_code, unsigned vendor, int numa)
{
	const char *bdf = strrchr(place, '/') + 1;
	char text[256];

	snprintf(text, sizeof(text), "0x%06x\n", class_code);
	put(text, "devices/%s/class", place);
	snprintf(text, sizeof(text), "0x%04x\n", vendor);
	put(text, "devices/%s/vendor", place);
	snprintf(text, sizeof(text), "%d\n", numa);
	put(text, "devices/%s/numa_node", place);
	snprintf(text, sizeof(text), ">../../../devices/%s", place);
	put(text, "bus/pci/devices/%s", bdf);
}

/* A node of KFD with one bank of memory of the given heap: 1 visible, 2 not all of it. */
static inline void put_node(unsigned node, unsigned gpu_id, unsigned location, unsigned gfx, unsigned heap, unsigned long long vram)
{
	char text[256];

	snprintf(text, sizeof(text), "%u\n", gpu_id);
	put(text, "class/kfd/kfd/topology/nodes/%u/gpu_id", node);
	snprintf(text, sizeof(text), "simd_count 192\nio_links_count 0\ngfx_target_version %u\nlocation_id %u\ndomain 0\n", gfx,
		 location);
	put(text, "class/kfd/kfd/topology/nodes/%u/properties", node);
	snprintf(text, sizeof(text), "heap_type %u\nsize_in_bytes %llu\nflags 0\n", heap, vram);
	put(text, "class/kfd/kfd/topology/nodes/%u/mem_banks/0/properties", node);
}

/* One of a card's partitions, with a render node. */
static inline void put_partition(unsigned node, unsigned gpu_id, unsigned location, unsigned render, unsigned long long vram)
{
	char text[256];

	put_node(node, gpu_id, location, 90402, 2, vram);
	snprintf(text, sizeof(text), "gfx_target_version 90402\nlocation_id %u\ndomain 0\ndrm_render_minor %u\n", location, render);
	put(text, "class/kfd/kfd/topology/nodes/%u/properties", node);
}

#endif
