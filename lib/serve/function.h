/* SPDX-License-Identifier: MIT */
/*
 * The PCI function around a controller: its configuration space (PCI Local Bus Specification 3.0, 6, and PCI Express Base
 * Specification 5.0, 7.5), and where its BARs are. The client emulates MSI-X tables, and takes vectors by eventfd.
 */
#ifndef GNV_SERVE_FUNCTION_H
#define GNV_SERVE_FUNCTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GNV_FUNCTION_SPACE 256u

/* Numbers as in VFIO: BARs 0 to 5, the ROM, configuration space, VGA, and its interrupts. */
enum { GNV_REGION_BAR0 = 0, GNV_REGION_MSIX = 4, GNV_REGION_CONFIG = 7, GNV_REGION_COUNT = 9 };
enum { GNV_IRQ_MSIX = 2, GNV_IRQ_COUNT = 5 };

struct gnv_function {
	uint8_t config[GNV_FUNCTION_SPACE];
	uint8_t writable[GNV_FUNCTION_SPACE]; /* bits of it that the client may change */
	uint64_t bar0, msix;		      /* bytes of the BARs */
};

/* As after power on. @vectors: 1 to 2048. @bar0: a power of two. */
void gnv_function_init(struct gnv_function *function, uint16_t vendor, uint16_t device, uint64_t bar0, unsigned vectors);

/* Bytes of a region, or 0: there is none. */
uint64_t gnv_function_size(const struct gnv_function *function, uint32_t region);

/* May it make DMA? Bus Master Enable, in power state D0. */
bool gnv_function_is_master(const struct gnv_function *function);

/* Write to configuration space, which has the whole range. Return: true if that requests a function level reset. */
bool gnv_function_write(struct gnv_function *function, uint64_t offset, const uint8_t *data, size_t len);

#endif
