/* SPDX-License-Identifier: MIT */
#include "os/topology.h"

#include <dirent.h>
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
#define CAP_ACS 0x000du
#define ACS_REDIRECT 0x0cu /* requests and completions of peers */

/* ---- KFD ---- */

/* The number behind `key` in a file of lines "key value". Return: 0, -ENOENT. */
static int property(const char *path, const char *key, uint64_t *value)
{
	FILE *file = fopen(path, "re");
	char name[64];
	unsigned long long got;
	int ret = -ENOENT;

	if (!file)
		return ret;
	while (ret && fscanf(file, "%63s %llu", name, &got) == 2) {
		if (!strcmp(name, key)) {
			*value = got;
			ret = 0;
		}
	}
	fclose(file);
	return ret;
}

static void node_path(char *path, size_t size, const char *sys, unsigned node, const char *rest)
{
	snprintf(path, size, "%s/class/kfd/kfd/topology/nodes/%u/%s", sys, node, rest);
}

static uint64_t node_property(const char *sys, unsigned node, const char *file, const char *key)
{
	char path[PATH_MAX];
	uint64_t value = 0;

	node_path(path, sizeof(path), sys, node, file);
	return property(path, key, &value) ? 0 : value;
}

uint32_t gnv_topology_kfd_id(const char *sys, unsigned node)
{
	char path[PATH_MAX];
	unsigned id = 0;
	FILE *file;

	node_path(path, sizeof(path), sys, node, "gpu_id");
	file = fopen(path, "re");
	if (!file)
		return 0;
	if (fscanf(file, "%u", &id) != 1)
		id = 0;
	fclose(file);
	return id;
}

/* 110000 is gfx1100, 90010 gfx90a. */
static void name_gfx(uint64_t version, char *gfx, size_t size)
{
	snprintf(gfx, size, "gfx%u%u%x", (unsigned)(version / 10000 % 100), (unsigned)(version / 100 % 100),
		 (unsigned)(version % 100));
}

static void read_memory(const char *sys, struct gnv_gpu_node *gpu)
{
	char file[64];
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
	char path[PATH_MAX], text[32] = "";
	FILE *file;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/power/runtime_status", sys, gpu->bdf);
	file = fopen(path, "re");
	if (!file)
		return;
	gpu->asleep = fscanf(file, "%31s", text) == 1 && !strcmp(text, "suspended");
	fclose(file);
}

int gnv_topology_gpu(const char *sys, unsigned n, struct gnv_gpu_node *gpu)
{
	unsigned node;
	uint64_t at;

	for (node = 0; node < NODES; node++) {
		uint32_t id = gnv_topology_kfd_id(sys, node);

		if (!id || n--)
			continue;
		memset(gpu, 0, sizeof(*gpu));
		gpu->node = node;
		gpu->kfd_id = id;
		at = node_property(sys, node, "properties", "location_id");
		snprintf(gpu->bdf, sizeof(gpu->bdf), "%04x:%02x:%02x.%x",
			 (unsigned)node_property(sys, node, "properties", "domain") & 0xffff, (unsigned)(at >> 8) & 0xff,
			 (unsigned)(at >> 3) & 0x1f, (unsigned)at & 7);
		name_gfx(node_property(sys, node, "properties", "gfx_target_version"), gpu->gfx, sizeof(gpu->gfx));
		read_memory(sys, gpu);
		read_links(sys, gpu);
		read_power(sys, gpu);
		return 0;
	}
	return -ENOENT;
}

/* ---- PCI ---- */

/* Does a bridge redirect? 1, 0, or -1. Its extended capabilities are readable by root only. */
static int redirects(const char *sys, const char *bdf)
{
	unsigned char config[4096];
	char path[PATH_MAX];
	size_t got, at = 256;
	FILE *file;

	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/config", sys, bdf);
	file = fopen(path, "re");
	if (!file)
		return -1;
	got = fread(config, 1, sizeof(config), file);
	fclose(file);
	if (got < 260)
		return -1;
	while (at >= 256 && at + 8 <= got) {
		uint32_t header = config[at] | (uint32_t)config[at + 1] << 8 | (uint32_t)config[at + 2] << 16 |
				  (uint32_t)config[at + 3] << 24;

		if ((header & 0xffff) == CAP_ACS)
			return (config[at + 6] & ACS_REDIRECT) != 0;
		if (!header || (header >> 20) <= at)
			break;
		at = header >> 20;
	}
	return 0;
}

/* The device's place in /sys/devices: its root, the bridges above it, itself. Return: how many parts, 0 when there is none. */
static unsigned split_path(const char *sys, const char *bdf, char *path, char *part[], unsigned room)
{
	char link[PATH_MAX], *at;
	unsigned count = 0;

	snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", sys, bdf);
	if (!realpath(link, path))
		return 0;
	at = strstr(path, "/pci");
	if (!at)
		return 0;
	for (at = strtok_r(at, "/", &path); at && count < room; at = strtok_r(NULL, "/", &path))
		part[count++] = at;
	return count;
}

static int worse(int a, int b)
{
	return a == 1 || b == 1 ? 1 : a < 0 || b < 0 ? -1 : 0;
}

int gnv_topology_path(const char *sys, const char *a, const char *b, struct gnv_path *path)
{
	char text[2][PATH_MAX], *part[2][32];
	unsigned count[2], common = 0, side, i;
	struct gnv_pci pci[2];

	if (gnv_sysfs_pci(sys, a, &pci[0]) || gnv_sysfs_pci(sys, b, &pci[1]))
		return -ENODEV;
	count[0] = split_path(sys, a, text[0], part[0], 32);
	count[1] = split_path(sys, b, text[1], part[1], 32);
	if (!count[0] || !count[1])
		return -ENODEV;
	while (common < count[0] && common < count[1] && !strcmp(part[0][common], part[1][common]))
		common++;
	if (!common)
		path->distance = pci[0].numa == pci[1].numa ? GNV_SAME_SOCKET : GNV_ACROSS_SOCKETS;
	else
		path->distance = common >= 3 ? GNV_SAME_SWITCH : GNV_SAME_ROOT; /* root, its port, a switch's upper port */
	path->redirect = 0;
	for (side = 0; side < 2; side++)
		for (i = common > 1 ? common : 1; i + 1 < count[side]; i++)
			path->redirect = worse(path->redirect, redirects(sys, part[side][i]));
	return 0;
}
