/* SPDX-License-Identifier: MIT */
/* How the PCIe link of a device is set: PCIe Base Specification 7.5.3 (PCI Express capability). */
#ifndef GNV_MACHINE_LINK_H
#define GNV_MACHINE_LINK_H

#include <stdbool.h>
#include <stdint.h>

struct gnv_link {
	uint32_t payload;      /* bytes of one packet, as set (Max_Payload_Size). 0: not known */
	uint32_t payload_most; /* that the device and the port above it can do */
	uint32_t read_request; /* bytes that one read of the device asks for at most (Max_Read_Request_Size) */
	int aspm;	       /* power states the link goes to by itself: 1 L0s, 2 L1, 3 both, 0 none, -1 unknown */
	bool shown;	       /* the kernel showed more than the header, which it does to root */
};

void gnv_link_read(const char *sys, const char *bdf, struct gnv_link *link);

#endif
