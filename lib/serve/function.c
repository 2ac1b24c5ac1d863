/* SPDX-License-Identifier: MIT */
#include "serve/function.h"

#include <string.h>

#include "util/bits.h"

#define COMMAND 0x04u
#define COMMAND_BITS 0x0546u /* memory, bus master, parity, SERR, interrupt disable */
#define COMMAND_MASTER 0x04u
#define STATUS_CAPABILITIES 0x10u
#define BAR(n) (0x10u + 4 * (n))
#define BAR_64 0x4u
#define CAPABILITIES 0x34u
#define INTERRUPT_LINE 0x3cu

/* The chain of capabilities: power management, MSI-X, PCI Express. */
#define PM 0x40u
#define PM_ID 0x01u
#define PM_VERSION 3u
#define PM_NO_SOFT_RESET 0x08u
#define PM_STATE 0x03u
#define MSIX 0x50u
#define MSIX_ID 0x11u
#define MSIX_ENTRY 16u
#define MSIX_CONTROL 0xc000u /* enable, mask all */
#define EXPRESS 0x60u
#define EXPRESS_ID 0x10u
#define EXPRESS_ENDPOINT 0x0002u /* of version 2 */
#define DEVICE_CAP 0x10008000u	 /* function level reset, role-based errors */
#define DEVICE_CONTROL (EXPRESS + 8)
#define DEVICE_CONTROL_BITS 0x7fffu
#define DEVICE_CONTROL_FLR 0x80u /* in its second byte */
#define LINK 0x0011u		 /* one thread of 2.5 GT/s, which is not connected */

static void put(uint8_t *to, uint32_t value, unsigned bytes)
{
	unsigned i;

	for (i = 0; i < bytes; i++)
		to[i] = (uint8_t)(value >> (8 * i));
}

static void add_bar(struct gnv_function *f, unsigned bar, uint64_t size)
{
	put(&f->config[BAR(bar)], BAR_64, 4);
	put(&f->writable[BAR(bar)], (uint32_t)~(size - 1), 4);
	put(&f->writable[BAR(bar) + 4], (uint32_t)(~(size - 1) >> 32), 4);
}

static void add_power(struct gnv_function *f)
{
	f->config[PM] = PM_ID;
	f->config[PM + 1] = MSIX;
	put(&f->config[PM + 2], PM_VERSION, 2);
	put(&f->config[PM + 4], PM_NO_SOFT_RESET, 2);
	put(&f->writable[PM + 4], PM_STATE, 2);
}

/* The table begins BAR 4, the pending bits lie in its second half. */
static void add_msix(struct gnv_function *f, unsigned vectors)
{
	f->config[MSIX] = MSIX_ID;
	f->config[MSIX + 1] = EXPRESS;
	put(&f->config[MSIX + 2], vectors - 1, 2);
	put(&f->writable[MSIX + 2], MSIX_CONTROL, 2);
	put(&f->config[MSIX + 4], GNV_REGION_MSIX, 4);
	put(&f->config[MSIX + 8], (uint32_t)(f->msix / 2) | GNV_REGION_MSIX, 4);
}

static void add_express(struct gnv_function *f)
{
	f->config[EXPRESS] = EXPRESS_ID;
	put(&f->config[EXPRESS + 2], EXPRESS_ENDPOINT, 2);
	put(&f->config[EXPRESS + 4], DEVICE_CAP, 4);
	put(&f->writable[DEVICE_CONTROL], DEVICE_CONTROL_BITS, 2);
	put(&f->config[EXPRESS + 0x0c], LINK, 4);
	put(&f->config[EXPRESS + 0x12], LINK, 2);
}

void gnv_function_init(struct gnv_function *f, uint16_t vendor, uint16_t device, uint64_t bar0, unsigned vectors)
{
	memset(f, 0, sizeof(*f));
	f->bar0 = bar0;
	f->msix = 4ull << gnv_log2(gnv_max(vectors * MSIX_ENTRY, 4096) - 1);
	put(&f->config[0], vendor, 2);
	put(&f->config[2], device, 2);
	put(&f->writable[COMMAND], COMMAND_BITS, 2);
	f->config[6] = STATUS_CAPABILITIES;
	put(&f->config[9], 0x010802, 3); /* NVM Express */
	f->writable[0x0c] = 0xff;	 /* cache line size */
	add_bar(f, GNV_REGION_BAR0, bar0);
	add_bar(f, GNV_REGION_MSIX, f->msix);
	put(&f->config[0x2c], vendor, 2);
	put(&f->config[0x2e], device, 2);
	f->config[CAPABILITIES] = PM;
	f->writable[INTERRUPT_LINE] = 0xff;
	add_power(f);
	add_msix(f, vectors);
	add_express(f);
}

uint64_t gnv_function_size(const struct gnv_function *f, uint32_t region)
{
	switch (region) {
	case GNV_REGION_BAR0:
		return f->bar0;
	case GNV_REGION_MSIX:
		return f->msix;
	case GNV_REGION_CONFIG:
		return GNV_FUNCTION_SPACE;
	default:
		return 0;
	}
}

bool gnv_function_is_master(const struct gnv_function *f)
{
	return f->config[COMMAND] & COMMAND_MASTER && !(f->config[PM + 4] & PM_STATE);
}

bool gnv_function_write(struct gnv_function *f, uint64_t offset, const uint8_t *data, size_t len)
{
	bool reset = false;
	size_t i;

	for (i = 0; i < len; i++) {
		uint8_t *at = &f->config[offset + i], may = f->writable[offset + i];

		*at = (uint8_t)((*at & ~may) | (data[i] & may));
		reset |= offset + i == DEVICE_CONTROL + 1 && data[i] & DEVICE_CONTROL_FLR;
	}
	return reset;
}
