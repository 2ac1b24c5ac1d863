/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: what a client makes of a hostile reply of a server of vfio-user.
 *
 * Input: byte 0 how many descriptors came along, then the reply. Properties: what is taken for a reply is one to what was asked and
 * as long as it can be, a refusal is an errno, and what is offered to be mapped are whole pages of the region, none of them twice.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

#define MOST 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

static void check_header(const struct gnv_wire_header *asked, const struct gnv_wire_header *got)
{
	bool lost = false;
	int ret = gnv_wire_check_reply(asked, got, sizeof(struct gnv_wire_region), MOST, &lost);

	if (ret) {
		check(lost || (ret < 0 && ret >= -4095 && got->flags & GNV_WIRE_ERROR));
		return;
	}
	check(!lost && got->id == asked->id && got->command == asked->command && got->flags & GNV_WIRE_REPLY);
	check(got->size >= sizeof(*got) + sizeof(struct gnv_wire_region) && got->size <= sizeof(*got) + MOST);
}

static void check_offer(const struct gnv_wire_offer *o, unsigned fds)
{
	unsigned i, k;

	check(o->count <= GNV_WIRE_AREAS && (!o->count || fds));
	check(o->size <= INT64_MAX && o->file <= INT64_MAX - o->size);
	for (i = 0; i < o->count; i++) {
		check(o->area[i].size && o->area[i].size <= o->size && o->area[i].offset <= o->size - o->area[i].size);
		check(!((o->area[i].size | o->area[i].offset) % 4096));
		for (k = 0; k < i; k++)
			check(o->area[i].offset >= o->area[k].offset + o->area[k].size ||
			      o->area[k].offset >= o->area[i].offset + o->area[i].size);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const struct gnv_wire_header asked = { 1, GNV_WIRE_GET_REGION_INFO, 48, 0, 0 };
	struct gnv_wire_header header;
	struct gnv_wire_offer offer;
	uint8_t *payload;
	size_t len;

	if (size < 1 + sizeof(header) + sizeof(struct gnv_wire_region))
		return 0;
	memcpy(&header, data + 1, sizeof(header));
	check_header(&asked, &header);
	len = size - 1 - sizeof(header);
	payload = malloc(len); /* of its size, so that what lies after it is noticed */
	check(payload != NULL);
	memcpy(payload, data + 1 + sizeof(header), len);
	if (!gnv_wire_parse_offer(payload, len, 0, data[0] % 17, &offer))
		check_offer(&offer, data[0] % 17);
	free(payload);
	return 0;
}
