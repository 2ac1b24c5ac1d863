/* SPDX-License-Identifier: MIT */
#include "os/topology.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"
#include "util/log.h"

#define NODES 256u
#define LINK_XGMI 11
#define HEAP_PUBLIC 1
#define HEAP_PRIVATE 2
#define DEPTH 32u /* bridges above a device */
#define CAP_ACS 0x000du
#define CAPABILITIES (4096u / 8u) /* so many fit, whatever their links say */
#define ACS_REDIRECT 0x0cu	  /* requests and completions of peers */

/* ---- KFD ---- */

/* The number behind `key` in a file of lines "key value"; 0 where there is none. */
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

static void read_memory(const char *sys, struct gnv_gpu_node *gpu)
{
	char file[64], path[PATH_MAX], text[32];
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
	/* Of memory that is visible in part KFD says only how much there is; the display driver says both. */
	device_path(path, sizeof(path), sys, gpu->bdf, "mem_info_vis_vram_total");
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
	char path[PATH_MAX], text[32];

	device_path(path, sizeof(path), sys, gpu->bdf, "power/runtime_status");
	gpu->asleep = !gnv_sysfs_read(path, text, sizeof(text)) && !strcmp(text, "suspended");
}

int gnv_topology_gpu(const char *sys, unsigned n, struct gnv_gpu_node *gpu)
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
		name_gfx(node_property(sys, node, "properties", "gfx_target_version"), gpu->gfx, sizeof(gpu->gfx));
		read_memory(sys, gpu);
		read_links(sys, gpu);
		read_power(sys, gpu);
		return 0;
	}
	return -ENOENT;
}

uint32_t gnv_topology_kfd_id(const char *sys, const char *bdf, unsigned node)
{
	struct gnv_gpu_node gpu;
	unsigned n, found = 0;
	uint32_t id = 0;

	for (n = 0; !gnv_topology_gpu(sys, n, &gpu); n++) {
		if (strcmp(gpu.bdf, bdf))
			continue;
		if (gpu.node == node)
			return gpu.kfd_id;
		id = gpu.kfd_id;
		found++;
	}
	return found == 1 ? id : 0;
}

/* ---- PCI ---- */

/* Does a bridge redirect? 1, 0, or -1. Its extended capabilities are readable by root only. */
static int redirects(const char *sys, const char *bdf)
{
	unsigned char config[4096];
	char path[PATH_MAX];
	size_t got, at = 256;
	unsigned n;
	FILE *file;

	device_path(path, sizeof(path), sys, bdf, "config");
	file = fopen(path, "re");
	if (!file)
		return -1;
	got = fread(config, 1, sizeof(config), file);
	fclose(file);
	if (got < 260)
		return -1;
	for (n = 0; n < CAPABILITIES && at >= 256 && at + 8 <= got; n++) {
		uint32_t header = config[at] | (uint32_t)config[at + 1] << 8 | (uint32_t)config[at + 2] << 16 |
				  (uint32_t)config[at + 3] << 24;

		if (header == UINT32_MAX) /* it does not answer */
			return -1;
		if ((header & 0xffff) == CAP_ACS)
			return (config[at + 6] & ACS_REDIRECT) != 0;
		at = header >> 20 & 0xffc;
	}
	return n < CAPABILITIES ? 0 : -1;
}

/* The device's place in /sys/devices: its root, the bridges above it, itself. Return: how many parts, 0 when there is none. */
static unsigned split_path(const char *sys, const char *bdf, char *path, char *part[], unsigned room)
{
	char link[PATH_MAX], *at, *rest;
	unsigned count = 0;

	snprintf(link, sizeof(link), "%s/bus/pci/devices/%s", sys, bdf);
	if (!realpath(link, path))
		return 0;
	for (at = strstr(path, "/pci"); at && !isxdigit((unsigned char)at[4]); at = strstr(at + 1, "/pci"))
		;
	if (!at)
		return 0;
	for (at = strtok_r(at, "/", &rest); at && count < room; at = strtok_r(NULL, "/", &rest))
		part[count++] = at;
	return count;
}

static int worse(int a, int b)
{
	return a == 1 || b == 1 ? 1 : a < 0 || b < 0 ? -1 : 0;
}

/* The processor of a NUMA node, or -1: several nodes may be of one. */
static int package_of(const char *sys, int node)
{
	char path[PATH_MAX], text[32];

	snprintf(path, sizeof(path), "%s/devices/system/node/node%d/cpulist", sys, node);
	if (gnv_sysfs_read(path, text, sizeof(text)) || !text[0])
		return -1;
	snprintf(path, sizeof(path), "%s/devices/system/cpu/cpu%lu/topology/physical_package_id", sys, strtoul(text, NULL, 10));
	return gnv_sysfs_read(path, text, sizeof(text)) || !text[0] ? -1 : atoi(text);
}

/* As far as the firmware tells. */
static bool same_socket(const char *sys, int node_a, int node_b)
{
	int package;

	if (node_a < 0 || node_b < 0 || node_a == node_b)
		return true;
	package = package_of(sys, node_a);
	return package >= 0 && package == package_of(sys, node_b);
}

int gnv_topology_path(const char *sys, const char *a, const char *b, struct gpunvme_pci_path *path)
{
	char text[2][PATH_MAX], *part[2][DEPTH];
	unsigned count[2], common = 0, side, i;
	struct gnv_pci pci[2];
	int ret = gnv_sysfs_pci(sys, a, &pci[0]);

	if (!ret)
		ret = gnv_sysfs_pci(sys, b, &pci[1]);
	if (ret)
		return ret;
	count[0] = split_path(sys, a, text[0], part[0], DEPTH);
	count[1] = split_path(sys, b, text[1], part[1], DEPTH);
	if (!count[0] || !count[1])
		return gnv_fail(-ENODEV, "sysfs does not show where %s is", count[0] ? b : a);
	while (common < count[0] && common < count[1] && !strcmp(part[0][common], part[1][common]))
		common++;
	if (!common)
		path->distance = same_socket(sys, pci[0].numa, pci[1].numa) ? GPUNVME_SAME_SOCKET : GPUNVME_ACROSS_SOCKETS;
	else
		path->distance = common >= 3 ? GPUNVME_SAME_SWITCH : GPUNVME_SAME_ROOT; /* root, its port, a switch's upper port */
	path->redirect = 0;
	for (side = 0; side < 2; side++)
		for (i = common > 1 ? common : 1; i + 1 < count[side]; i++)
			path->redirect = worse(path->redirect, redirects(sys, part[side][i]));
	return 0;
}
