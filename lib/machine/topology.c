/* SPDX-License-Identifier: MIT */
#include "machine/topology.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/amd/nodes.h"
#include "util/log.h"

#define DEPTH 32u /* bridges above a device */
#define CAP_ACS 0x000du
#define CAPABILITIES (4096u / 8u) /* so many fit, whatever their links say */
#define ACS_REDIRECT 0x0cu	  /* requests and completions of peers */

/* Does a bridge redirect? 1, 0, or -1. Its extended capabilities are readable by root only. */
static int redirects(const char *sys, const char *bdf)
{
	unsigned char config[4096];
	size_t got = gnv_sysfs_config(sys, bdf, config, sizeof(config)), at = 256;
	unsigned n;

	if (got < 260)
		return -1;
	for (n = 0; n < CAPABILITIES && at >= 256 && at + 8 <= got; n++) {
		uint32_t header = config[at] | (uint32_t)config[at + 1] << 8 | (uint32_t)config[at + 2] << 16 |
				  (uint32_t)config[at + 3] << 24;

		if (header == UINT32_MAX) /* it does not respond */
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
	unsigned count = 0;
	char *at, *rest;

	if (gnv_sysfs_place(sys, bdf, path))
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

/* As far as the firmware shows it. */
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
	char text[2][PATH_MAX], *part[2][DEPTH], card[2][GNV_BDF_BYTES];
	unsigned count[2], common = 0, side, i;
	struct gnv_pci pci[2];
	int ret;

	gnv_kfd_card(sys, a, card[0]);
	gnv_kfd_card(sys, b, card[1]);
	ret = gnv_sysfs_pci(sys, card[0], &pci[0]);
	if (!ret)
		ret = gnv_sysfs_pci(sys, card[1], &pci[1]);
	if (ret)
		return ret;
	count[0] = split_path(sys, card[0], text[0], part[0], DEPTH);
	count[1] = split_path(sys, card[1], text[1], part[1], DEPTH);
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
