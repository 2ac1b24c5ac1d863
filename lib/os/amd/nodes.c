/* SPDX-License-Identifier: MIT */
#include "os/amd/nodes.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"

#define NODES 256u
#define LINK_XGMI 11
#define HEAP_PUBLIC 1
#define HEAP_PRIVATE 2

/* The number after `key` in a file of lines "key value", or 0. */
static uint64_t property(const char *path, const char *key)
{
	FILE *file = fopen(path, "re");
	size_t len = strlen(key);
	char line[128];
	uint64_t value = 0;

	while (file && !value && fgets(line, sizeof(line), file))
		if (!strncmp(line, key, len) && line[len] == ' ')
			value = strtoull(line + len, NULL, 10);
	if (file)
		fclose(file);
	return value;
}

static void node_path(char *path, size_t size, const char *sys, unsigned node, const char *rest)
{
	snprintf(path, size, "%s/class/kfd/kfd/topology/nodes/%u/%s", sys, node, rest);
}

static uint64_t node_property(const char *sys, unsigned node, const char *file, const char *key)
{
	char path[PATH_MAX];

	node_path(path, sizeof(path), sys, node, file);
	return property(path, key);
}

/* KFD's number of the GPU at a node. 0: the node is a CPU, or the process may not see it. */
static uint32_t node_gpu(const char *sys, unsigned node)
{
	char path[PATH_MAX], text[32];

	node_path(path, sizeof(path), sys, node, "gpu_id");
	return gnv_sysfs_read(path, text, sizeof(text)) ? 0 : (uint32_t)strtoul(text, NULL, 10);
}

/* 110000 is gfx1100, 90010 gfx90a. */
static void name_gfx(uint64_t version, char *gfx, size_t size)
{
	if (!version)
		return;
	snprintf(gfx, size, "gfx%u%u%x", (unsigned)(version / 10000 % 100), (unsigned)(version / 100 % 100),
		 (unsigned)(version % 100));
}

static void device_path(char *path, size_t size, const char *sys, const char *bdf, const char *file)
{
	snprintf(path, size, "%s/bus/pci/devices/%s/%s", sys, bdf, file);
}

/* KFD adds the number of a partition to the address that it reports (Linux kfd_topology.c, kfd_topology_add_device). */
void gnv_kfd_card(const char *sys, const char *bdf, char card[GNV_BDF_BYTES])
{
	char path[PATH_MAX], text[32], *dot;

	snprintf(card, GNV_BDF_BYTES, "%s", bdf);
	device_path(path, sizeof(path), sys, bdf, "class");
	dot = strchr(card, '.'); /* a domain of eight digits leaves room for the point alone */
	if (gnv_sysfs_read(path, text, sizeof(text)) && dot)
		snprintf(dot, (size_t)(card + GNV_BDF_BYTES - dot), ".0");
}

static void read_memory(const char *sys, struct gnv_gpu_node *gpu)
{
	char file[64], path[PATH_MAX], text[32], card[GNV_BDF_BYTES];
	unsigned i;

	for (i = 0; i < 16; i++) {
		uint64_t size, heap;

		snprintf(file, sizeof(file), "mem_banks/%u/properties", i);
		size = node_property(sys, gpu->node, file, "size_in_bytes");
		if (!size)
			break;
		heap = node_property(sys, gpu->node, file, "heap_type");
		if (heap == HEAP_PUBLIC || heap == HEAP_PRIVATE)
			gpu->vram += size;
		if (heap == HEAP_PUBLIC)
			gpu->visible += size;
	}
	/* KFD reports only the size of partly visible memory. The display driver reports both. */
	gnv_kfd_card(sys, gpu->bdf, card);
	device_path(path, sizeof(path), sys, card, "mem_info_vis_vram_total");
	if (!gpu->visible && !gnv_sysfs_read(path, text, sizeof(text)))
		gpu->visible = gnv_min(strtoull(text, NULL, 10), gpu->vram);
}

static void read_links(const char *sys, struct gnv_gpu_node *gpu)
{
	uint64_t links = node_property(sys, gpu->node, "properties", "io_links_count"), i;
	char file[64];

	for (i = 0; i < links && i < 64; i++) {
		snprintf(file, sizeof(file), "io_links/%u/properties", (unsigned)i);
		gpu->xgmi += node_property(sys, gpu->node, file, "type") == LINK_XGMI;
	}
}

static void read_power(const char *sys, struct gnv_gpu_node *gpu)
{
	char path[PATH_MAX], text[32], card[GNV_BDF_BYTES];

	gnv_kfd_card(sys, gpu->bdf, card);
	device_path(path, sizeof(path), sys, card, "power/runtime_status");
	gpu->asleep = !gnv_sysfs_read(path, text, sizeof(text)) && !strcmp(text, "suspended");
}

int gnv_kfd_gpu(const char *sys, unsigned n, struct gnv_gpu_node *gpu)
{
	unsigned node;
	uint64_t at;

	for (node = 0; node < NODES; node++) {
		uint32_t id = node_gpu(sys, node);

		if (!id || n--)
			continue;
		memset(gpu, 0, sizeof(*gpu));
		gpu->node = node;
		gpu->kfd_id = id;
		at = node_property(sys, node, "properties", "location_id");
		snprintf(gpu->bdf, sizeof(gpu->bdf), "%04x:%02x:%02x.%x",
			 (unsigned)node_property(sys, node, "properties", "domain") & 0xffff, (unsigned)(at >> 8) & 0xff,
			 (unsigned)(at >> 3) & 0x1f, (unsigned)at & 7);
		gpu->render = (unsigned)node_property(sys, node, "properties", "drm_render_minor");
		name_gfx(node_property(sys, node, "properties", "gfx_target_version"), gpu->gfx, sizeof(gpu->gfx));
		read_memory(sys, gpu);
		read_links(sys, gpu);
		read_power(sys, gpu);
		return 0;
	}
	return -ENOENT;
}

uint32_t gnv_kfd_id(const char *sys, const char *bdf, unsigned node)
{
	struct gnv_gpu_node gpu;
	unsigned n, found = 0;
	uint32_t id = 0;

	for (n = 0; !gnv_kfd_gpu(sys, n, &gpu); n++) {
		if (strcmp(gpu.bdf, bdf))
			continue;
		if (gpu.node == node)
			return gpu.kfd_id;
		id = gpu.kfd_id;
		found++;
	}
	return found == 1 ? id : 0;
}

unsigned gnv_kfd_render(const char *sys, const char *bdf)
{
	struct gnv_gpu_node gpu;
	unsigned n, render = 0;

	for (n = 0; !gnv_kfd_gpu(sys, n, &gpu); n++) {
		if (strcmp(gpu.bdf, bdf))
			continue;
		if (render && render != gpu.render)
			return 0;
		render = gpu.render;
	}
	return render;
}
