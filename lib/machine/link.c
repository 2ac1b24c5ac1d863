/* SPDX-License-Identifier: MIT */
/* PCIe links, as the kernel read them from the link capabilities and status of the function (PCIe Base Specification 7.5.3). */
#include "machine/link.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine/doctor.h"
#include "util/log.h"

#define HEADER 64u /* bytes */
#define FIRST_CAPABILITY 0x34u
#define CAP_EXPRESS 0x10u
#define CAP_BYTES 0x14u /* of it that are looked at */
#define FEW 512u	/* bytes of a read request below which drives of today are slower */

static uint32_t word(const unsigned char *at)
{
	return at[0] | (uint32_t)at[1] << 8;
}

/* The PCI Express capability, or NULL. */
static const unsigned char *express(const unsigned char *config, size_t got)
{
	unsigned at, hops;

	if (got <= HEADER)
		return NULL;
	at = config[FIRST_CAPABILITY] & 0xfcu;
	for (hops = 0; hops < 48 && at >= HEADER && at + CAP_BYTES <= got; hops++, at = config[at + 1] & 0xfcu)
		if (config[at] == CAP_EXPRESS)
			return config + at;
	return NULL;
}

/* Three bits. The upper two values are reserved. */
static uint32_t bytes_of(uint32_t bits)
{
	return (bits & 7) > 5 ? 0 : 128u << (bits & 7);
}

static void read_one(const char *sys, const char *bdf, struct gnv_link *link)
{
	unsigned char config[256];
	const size_t got = gnv_sysfs_config(sys, bdf, config, sizeof(config));
	const unsigned char *cap = express(config, got);

	*link = (struct gnv_link){ .aspm = -1, .shown = got > HEADER };
	if (!cap)
		return;
	link->payload_most = bytes_of(word(cap + 4));
	link->payload = bytes_of(word(cap + 8) >> 5);
	link->read_request = bytes_of(word(cap + 8) >> 12);
	link->aspm = (int)(word(cap + 16) & 3);
}

/* The port above, "" where there is none. */
static void find_port(const char *sys, const char *bdf, char port[GNV_BDF_BYTES])
{
	char path[PATH_MAX], *slash;

	port[0] = 0;
	if (gnv_sysfs_place(sys, bdf, path))
		return;
	slash = strrchr(path, '/');
	if (slash)
		*slash = 0;
	slash = strrchr(path, '/');
	if (slash && gnv_pci_parse(slash + 1, port))
		port[0] = 0;
}

void gnv_link_read(const char *sys, const char *bdf, struct gnv_link *link)
{
	char port[GNV_BDF_BYTES];
	struct gnv_link above;

	read_one(sys, bdf, link);
	find_port(sys, bdf, port);
	if (!link->payload || !port[0])
		return;
	read_one(sys, port, &above);
	if (above.payload_most && above.payload_most < link->payload_most)
		link->payload_most = above.payload_most;
}

static void say_payload(struct gnv_report *report, const struct gnv_link *link)
{
	char fine[80];
	int ret = 0;

	snprintf(fine, sizeof(fine), "its link carries packets of %u bytes, all that drive and port can do", link->payload);
	if (link->payload < link->payload_most)
		ret = gnv_fail(-EIO,
			       "its link carries packets of %u bytes where drive and port can do %u. Start the kernel with "
			       "pci=pcie_bus_perf",
			       link->payload, link->payload_most);
	gnv_report_limit(report, "payload", ret, fine);
}

static void say_read_request(struct gnv_report *report, const struct gnv_link *link)
{
	char fine[80];
	int ret = 0;

	snprintf(fine, sizeof(fine), "it reads up to %u bytes of memory at a time", link->read_request);
	if (link->read_request < FEW)
		ret = gnv_fail(-EIO, "it reads at most %u bytes of memory at a time. Start the kernel with pci=pcie_bus_perf",
			       link->read_request);
	gnv_report_limit(report, "read-request", ret, fine);
}

static void say_aspm(struct gnv_report *report, const struct gnv_link *link)
{
	static const char *const states[] = { "", "L0s", "L1", "L0s and L1" };
	int ret = 0;

	if (link->aspm > 0)
		ret = gnv_fail(-EIO,
			       "its link saves power when it is idle (ASPM %s), and takes microseconds to wake up. Run echo "
			       "performance >/sys/module/pcie_aspm/parameters/policy",
			       states[link->aspm]);
	gnv_report_limit(report, "aspm", ret, "its link does not sleep (ASPM)");
}

void gnv_doctor_transfers(struct gnv_report *report, const char *sys, const struct gnv_pci *pci)
{
	struct gnv_link link;

	gnv_link_read(sys, pci->bdf, &link);
	if (!link.payload) {
		gnv_report_skip(report, "payload",
				link.shown ? "it has no PCI Express link" : "only root may read the packet sizes of its link, and "
									    "whether it sleeps");
		return;
	}
	say_payload(report, &link);
	say_read_request(report, &link);
	say_aspm(report, &link);
}

/* "2.5 GT/s PCIe" in tenths. 0: not known. Not by strtod(), since a locale may have a comma. */
static unsigned tenths(const char *speed)
{
	char *end;
	const unsigned long whole = strtoul(speed, &end, 10);

	if (end == speed || whole > 1000)
		return 0;
	return (unsigned)whole * 10 + (*end == '.' && end[1] >= '0' && end[1] <= '9' ? (unsigned)(end[1] - '0') : 0);
}

void gnv_doctor_link(struct gnv_report *report, const struct gnv_pci *pci)
{
	const unsigned is = tenths(pci->link_speed), could = tenths(pci->max_speed);
	char fine[96];
	int ret = 0;

	if (!pci->link_width || !pci->max_width || !is || !could) {
		gnv_report_skip(report, "link", "the kernel does not know its PCIe link");
		return;
	}
	snprintf(fine, sizeof(fine), "its PCIe link has x%u at %u.%u GT/s, all it can do", pci->link_width, is / 10, is % 10);
	if (pci->link_width < pci->max_width || is < could)
		ret = gnv_fail(-EIO,
			       "its PCIe link has x%u at %u.%u GT/s, but the drive supports x%u at %u.%u. Use another slot, and "
			       "insert the drive again (an idle link may also be slow)",
			       pci->link_width, is / 10, is % 10, pci->max_width, could / 10, could % 10);
	gnv_report_limit(report, "link", ret, fine);
}
