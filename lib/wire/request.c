/* SPDX-License-Identifier: MIT */
#include "wire/wire.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"
#include "util/log.h"

/* The least length of each command, which is its length without the data after the structure, and its most descriptors. */
static const struct layout {
	const char *name;
	uint32_t least;
	unsigned fds;
} layouts[] = {
	[GNV_WIRE_VERSION] = { "VERSION", sizeof(struct gnv_wire_version), 0 },
	[GNV_WIRE_DMA_MAP] = { "DMA_MAP", sizeof(struct gnv_wire_map), 1 },
	[GNV_WIRE_DMA_UNMAP] = { "DMA_UNMAP", sizeof(struct gnv_wire_unmap), 1 }, /* SPDK's host sends the one of the map again */
	[GNV_WIRE_GET_INFO] = { "DEVICE_GET_INFO", sizeof(struct gnv_wire_info), 0 },
	[GNV_WIRE_GET_REGION_INFO] = { "DEVICE_GET_REGION_INFO", sizeof(struct gnv_wire_region), 0 },
	[GNV_WIRE_GET_IRQ_INFO] = { "DEVICE_GET_IRQ_INFO", sizeof(struct gnv_wire_irq), 0 },
	[GNV_WIRE_SET_IRQS] = { "DEVICE_SET_IRQS", sizeof(struct gnv_wire_irqs), GNV_WIRE_FDS },
	[GNV_WIRE_REGION_READ] = { "REGION_READ", sizeof(struct gnv_wire_access), 0 },
	[GNV_WIRE_REGION_WRITE] = { "REGION_WRITE", sizeof(struct gnv_wire_access), 0 },
	[GNV_WIRE_RESET] = { "DEVICE_RESET", 0, 0 },
};

int gnv_wire_check(const struct gnv_wire_header *header)
{
	if (header->size < sizeof(*header) || header->size > GNV_WIRE_LONGEST)
		return gnv_fail(-EPROTO, "the client sent a message of %u bytes instead of %zu to %zu", header->size, sizeof(*header),
				GNV_WIRE_LONGEST);
	if (header->flags & GNV_WIRE_TYPE)
		return gnv_fail(-EPROTO, "the client sent a reply (flags 0x%x) without a request", header->flags);
	return 0;
}

/* Text of capabilities. This server needs none of it, but it must end. */
static int parse_version(const uint8_t *text, size_t len)
{
	if (len && text[len - 1])
		return gnv_fail(-EINVAL, "VERSION: the text of the client's capabilities does not end in NUL");
	return 0;
}

static int parse_irqs(const struct gnv_wire_irqs *irqs, size_t len, unsigned fds)
{
	uint32_t kind = irqs->flags & (GNV_WIRE_IRQ_NONE | GNV_WIRE_IRQ_BOOL | GNV_WIRE_IRQ_EVENTFDS);

	if (!gnv_is_pow2(kind))
		return gnv_fail(-EINVAL, "DEVICE_SET_IRQS: flags 0x%x are not of one kind", irqs->flags);
	if (kind == GNV_WIRE_IRQ_BOOL && len < irqs->count)
		return gnv_fail(-EINVAL, "DEVICE_SET_IRQS: %zu bytes for %u interrupts", len, irqs->count);
	if (fds && (kind != GNV_WIRE_IRQ_EVENTFDS || fds != irqs->count))
		return gnv_fail(-EINVAL, "DEVICE_SET_IRQS: %u descriptors for %u interrupts", fds, irqs->count);
	return 0;
}

static int parse_access(const struct gnv_wire_access *access, size_t len, bool write)
{
	if (access->count > GNV_WIRE_DATA)
		return gnv_fail(-EINVAL, "access to %u bytes of a region, but one message has %u at most", access->count, GNV_WIRE_DATA);
	if (write && len != access->count)
		return gnv_fail(-EINVAL, "REGION_WRITE of %u bytes with %zu", access->count, len);
	return 0;
}

int gnv_wire_parse(const struct gnv_wire_header *header, const uint8_t *payload, unsigned fds, struct gnv_wire_request *request)
{
	size_t len = header->size - sizeof(*header);
	const struct layout *layout;

	if (header->command >= GNV_ARRAY_LEN(layouts) || !layouts[header->command].name)
		return gnv_fail(-EOPNOTSUPP, "the client sent command %u, which this server does not have", header->command);
	layout = &layouts[header->command];
	if (len < layout->least)
		return gnv_fail(-EINVAL, "%s of %zu bytes instead of %u or more", layout->name, len, layout->least);
	if (fds > layout->fds)
		return gnv_fail(-EINVAL, "%s with %u descriptors, but it has %u at most", layout->name, fds, layout->fds);
	request->command = header->command;
	request->data = payload + layout->least;
	memcpy(&request->u, payload, layout->least);
	len -= layout->least;
	switch (header->command) {
	case GNV_WIRE_VERSION:
		return parse_version(request->data, len);
	case GNV_WIRE_SET_IRQS:
		return parse_irqs(&request->u.irqs, len, fds);
	case GNV_WIRE_REGION_READ:
	case GNV_WIRE_REGION_WRITE:
		return parse_access(&request->u.access, len, header->command == GNV_WIRE_REGION_WRITE);
	default:
		return 0;
	}
}
