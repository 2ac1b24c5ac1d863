/* SPDX-License-Identifier: MIT */
/*
 * The kernel decides when a driver maps a BAR for another device, and shows its result nowhere. This follows its rules:
 * a common bridge without ACS redirection, else a processor or host bridges that it knows to carry such traffic.
 */
#include "machine/p2pdma.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/amd/nodes.h"
#include "util/bits.h"
#include "util/log.h"

#define VENDOR_AMD 2 /* of processors, X86_VENDOR_AMD */
#define ZEN 0x17     /* the family from which on AMD's processors carry it */
#define ANY 0xffffu

/* Host bridges, or devices that come first on a root bus, in the list of Linux 7.3. */
static const struct bridge {
	uint16_t vendor, device;
	bool same; /* only where both devices are below it */
} bridges[] = {
	{ 0x8086, 0x3c00, true },  { 0x8086, 0x3c01, true },  { 0x8086, 0x2f00, true },	 { 0x8086, 0x2f01, true },
	{ 0x8086, 0x2030, false }, { 0x8086, 0x2031, false }, { 0x8086, 0x2032, false }, { 0x8086, 0x2033, false },
	{ 0x8086, 0x2020, false }, { 0x8086, 0x09a2, false }, { 0x8086, 0x0b25, false }, { 0x8086, 0x0cfe, false },
	{ 0x8086, 0x11fb, false }, { 0x8086, 0x1212, false }, { 0x8086, 0x1216, false }, { 0x8086, 0x4940, false },
	{ 0x8086, 0x4942, false }, { 0x8086, 0x4944, false }, { 0x8086, 0x4946, false }, { 0x8086, 0x4948, false },
	{ 0x1ae0, ANY, false },	   { 0x10de, 0x2f95, false }, { 0x10de, 0x2f96, false }, { 0x10de, 0x2f97, false },
	{ 0x10de, 0x2f98, false },
};

/* Return: the family of an AMD processor; 0: another maker's; -1: the kernel does not show it. */
static int amd_family(const char *sys)
{
	char path[PATH_MAX], text[128];
	unsigned vendor, family;

	snprintf(path, sizeof(path), "%s/devices/system/cpu/modalias", sys);
	if (gnv_sysfs_read(path, text, sizeof(text)) || strncmp(text, "cpu:type:", 9) != 0)
		return -1;
	if (sscanf(text, "cpu:type:x86,ven%4xfam%4x", &vendor, &family) != 2 || vendor != VENDOR_AMD)
		return 0;
	return (int)family;
}

/* The folder of the root bus above a device, ".../pci0000:00": of several, as with VMD, the nearest. */
static int root_of(const char *sys, const char *bdf, char root[PATH_MAX])
{
	char *at;

	if (gnv_sysfs_place(sys, bdf, root))
		return -ENOENT;
	while ((at = strrchr(root, '/'))) {
		*at = '\0';
		at = strrchr(root, '/');
		if (at && !strncmp(at, "/pci", 4) && isxdigit((unsigned char)at[4]))
			return 0;
	}
	return -ENOENT;
}

/* The device by which the kernel knows the host bridge: the first one of the root bus. */
static int find_bridge(const char *sys, const char *bdf, char root[PATH_MAX], struct gnv_pci *bridge)
{
	char name[32], prefix[16];

	if (root_of(sys, bdf, root))
		return -ENOENT;
	snprintf(prefix, sizeof(prefix), "%.12s:", strrchr(root, '/') + strlen("/pci"));
	if (gnv_sysfs_entry(root, prefix, 0, name, sizeof(name)))
		return -ENOENT;
	return gnv_sysfs_pci(sys, name, bridge) ? -ENOENT : 0;
}

static bool is_listed(const struct gnv_pci *pci, bool same)
{
	for (size_t i = 0; i < GNV_ARRAY_LEN(bridges); i++)
		if (bridges[i].vendor == pci->vendor && (bridges[i].device == ANY || bridges[i].device == pci->device))
			return same || !bridges[i].same;
	return false;
}

/* Both host bridges must be in the list. */
static int ask_bridges(const char *sys, const char *card[2], char *fine, size_t size)
{
	char root[2][PATH_MAX];
	struct gnv_pci bridge[2];
	bool same;

	for (unsigned i = 0; i < 2; i++)
		if (find_bridge(sys, card[i], root[i], &bridge[i]))
			return gnv_fail(-ENOENT, "sysfs does not show the host bridge of %s", card[i]);
	same = !strcmp(root[0], root[1]);
	for (unsigned i = 0; i < 2; i++)
		if (!is_listed(&bridge[i], same))
			return gnv_fail(-EXDEV,
					"p2pdma refuses, as derived: they share no bridge and the host bridge %04x:%04x is not in the list "
					"of Linux 7.3. Use slots below one switch, or a processor of AMD from Zen on",
					bridge[i].vendor, bridge[i].device);
	snprintf(fine, size, "p2pdma permits it through the host bridge, derived from %04x:%04x in the list of Linux 7.3",
		 bridge[0].vendor, bridge[0].device);
	return 0;
}

int gnv_p2pdma_ask(const char *sys, const char *a, const char *b, const struct gpunvme_pci_path *path, char *fine, size_t size)
{
	char name[2][GNV_BDF_BYTES];
	const char *card[2] = { name[0], name[1] };
	const bool one_switch = path->distance == GPUNVME_SAME_SWITCH;
	const int family = amd_family(sys);

	gnv_kfd_card(sys, a, name[0]);
	gnv_kfd_card(sys, b, name[1]);
	if (one_switch && !path->redirect) {
		snprintf(fine, size, "p2pdma permits it within the switch, derived from a common bridge without ACS redirection");
		return 0;
	}
	if (family >= ZEN) {
		snprintf(fine, size, "p2pdma permits it through the host bridge, derived from AMD's processor family %02xh", family);
		return 0;
	}
	if (family < 0)
		return gnv_fail(-ENOENT, "the kernel does not show which processor this is");
	if (one_switch && path->redirect < 0)
		return gnv_fail(-ENOENT, "only root may read whether the bridges of their switch redirect (ACS)");
	return ask_bridges(sys, card, fine, size);
}
