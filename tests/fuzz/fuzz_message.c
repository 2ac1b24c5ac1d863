/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: what the server makes of a hostile message of vfio-user.
 *
 * Input: byte 0 how many descriptors came along, then the message. Properties: only commands that the server has come through, what
 * the request says lies in the message, and counts are within their limits.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

static void check_request(const struct gnv_wire_request *r, const uint8_t *end, unsigned fds)
{
	check(r->data <= end);
	switch (r->command) {
	case GNV_WIRE_SET_IRQS:
		check(!(r->u.irqs.flags & GNV_WIRE_IRQ_BOOL) || r->u.irqs.count <= (size_t)(end - r->data));
		check(!fds || (r->u.irqs.flags & GNV_WIRE_IRQ_EVENTFDS && fds == r->u.irqs.count));
		break;
	case GNV_WIRE_REGION_READ:
		check(r->u.access.count <= GNV_WIRE_DATA);
		break;
	case GNV_WIRE_REGION_WRITE:
		check(r->u.access.count == (size_t)(end - r->data));
		break;
	case GNV_WIRE_DMA_MAP:
	case GNV_WIRE_DMA_UNMAP: /* SPDK's host sends the one of the map again */
		check(fds <= 1);
		break;
	default:
		check(!fds);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct gnv_wire_request request;
	struct gnv_wire_header header;
	uint8_t *payload;
	size_t len;

	if (size < 1 + sizeof(header))
		return 0;
	memcpy(&header, data + 1, sizeof(header));
	len = size - 1 - sizeof(header);
	if (gnv_wire_check(&header)) {
		check(header.size < sizeof(header) || header.size > GNV_WIRE_LONGEST || header.flags & GNV_WIRE_TYPE);
		return 0;
	}
	/* The server reads as many bytes as the header says; here there are as many as there are. */
	header.size = (uint32_t)(sizeof(header) + (len < GNV_WIRE_LONGEST - sizeof(header) ? len : GNV_WIRE_LONGEST - sizeof(header)));
	len = header.size - sizeof(header);
	payload = malloc(len ? len : 1);
	check(payload != NULL);
	memcpy(payload, data + 1 + sizeof(header), len);
	if (!gnv_wire_parse(&header, payload, data[0] % (GNV_WIRE_FDS + 1), &request))
		check_request(&request, payload + len, data[0] % (GNV_WIRE_FDS + 1));
	free(payload);
	return 0;
}
