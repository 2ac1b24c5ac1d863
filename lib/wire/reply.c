/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>

#include "util/bits.h"
#include "util/checked.h"
#include "util/log.h"
#include "wire/wire.h"

#define PAGE 4096u
#define MAX_ERRNO 4095u

int gnv_wire_check_reply(const struct gnv_wire_header *asked, const struct gnv_wire_header *got, size_t least, size_t most,
			 bool *lost)
{
	size_t len = got->size - sizeof(*got);

	*lost = true;
	if (got->size < sizeof(*got) || len > most)
		return gnv_fail(-EPROTO, "the server replied to command %u with %u bytes instead of %zu to %zu", asked->command, got->size,
				sizeof(*got) + least, sizeof(*got) + most);
	if (got->id != asked->id || got->command != asked->command || (got->flags & GNV_WIRE_TYPE) != GNV_WIRE_REPLY)
		return gnv_fail(-EPROTO, "the server sent message %u, command %u, flags 0x%x instead of the reply to message %u, command %u",
				got->id, got->command, got->flags, asked->id, asked->command);
	if (got->flags & GNV_WIRE_ERROR) {
		if (!got->error || got->error > MAX_ERRNO)
			return gnv_fail(-EPROTO, "the server refused command %u with the invalid error %u", asked->command, got->error);
		*lost = false;
		return gnv_fail(-(int)got->error, "the server refused command %u: %s", asked->command, strerror((int)got->error));
	}
	*lost = len < least;
	return *lost ? gnv_fail(-EPROTO, "the server replied to command %u with %zu bytes instead of %zu or more", asked->command, len,
				least) : 0;
}

/* The text is JSON, of which only one number is needed. It need not end in NUL. */
uint32_t gnv_wire_max_maps(const uint8_t *text, size_t len)
{
	static const char key[] = "\"max_dma_maps\":";
	uint64_t number = 0;
	size_t at;

	for (at = 0; at + sizeof(key) - 1 <= len && memcmp(text + at, key, sizeof(key) - 1); at++)
		;
	at += sizeof(key) - 1;
	while (at < len && text[at] == ' ')
		at++;
	for (; at < len && text[at] >= '0' && text[at] <= '9' && number < UINT32_MAX; at++)
		number = number * 10 + text[at] - '0';
	return (uint32_t)gnv_min(number, UINT32_MAX);
}

static bool overlap(const struct gnv_wire_area *a, const struct gnv_wire_area *b)
{
	return a->offset < b->offset + b->size && b->offset < a->offset + a->size;
}

static int add_area(struct gnv_wire_offer *offer, struct gnv_wire_area new)
{
	unsigned i;

	if (!new.size || (new.offset | new.size) % PAGE || !gnv_within(new.offset, new.size, offer->size))
		return gnv_fail(-EPROTO,
				"the server offers 0x%llx bytes at 0x%llx of a region of 0x%llx. Only whole pages within the region can be "
				"mapped",
				(unsigned long long)new.size, (unsigned long long)new.offset, (unsigned long long)offer->size);
	for (i = 0; i < offer->count; i++)
		if (overlap(&offer->area[i], &new))
			return gnv_fail(-EPROTO, "the server offers 0x%llx bytes at 0x%llx of a region twice",
					(unsigned long long)new.size, (unsigned long long)new.offset);
	offer->area[offer->count++] = new;
	return 0;
}

static int parse_sparse(const uint8_t *at, size_t left, struct gnv_wire_offer *offer)
{
	struct gnv_wire_sparse sparse;
	struct gnv_wire_area area;
	unsigned i;
	int ret = 0;

	if (left < sizeof(sparse))
		return gnv_fail(-EPROTO, "the server's list of mappable areas is cut off");
	memcpy(&sparse, at, sizeof(sparse));
	if (sparse.count > GNV_WIRE_AREAS || sparse.count > (left - sizeof(sparse)) / sizeof(area))
		return gnv_fail(-EPROTO, "the server's list of mappable areas has %u areas, but room for %zu", sparse.count,
				(size_t)gnv_min(GNV_WIRE_AREAS, (left - sizeof(sparse)) / sizeof(area)));
	for (i = 0; i < sparse.count && !ret; i++) {
		memcpy(&area, at + sizeof(sparse) + i * sizeof(area), sizeof(area));
		ret = add_area(offer, area);
	}
	return ret;
}

/* The offsets of capabilities must increase, so that the chain ends. Return: 1 there is a list of areas; 0; -EPROTO. */
static int find_sparse(const uint8_t *payload, size_t len, uint32_t next, struct gnv_wire_offer *offer)
{
	struct gnv_wire_cap cap;
	size_t least = sizeof(struct gnv_wire_region);
	int ret;

	while (next) {
		if (next < least || next > len || len - next < sizeof(cap))
			return gnv_fail(-EPROTO, "the server's capability at %u of %zu bytes is invalid", next, len);
		memcpy(&cap, payload + next, sizeof(cap));
		if (cap.id == GNV_WIRE_CAP_SPARSE && cap.version == 1) {
			ret = parse_sparse(payload + next, len - next, offer);
			return ret ? ret : 1;
		}
		least = next + sizeof(cap);
		next = cap.next;
	}
	return 0;
}

static int parse_areas(const uint8_t *payload, size_t len, const struct gnv_wire_region *region, struct gnv_wire_offer *offer)
{
	int ret = 0;

	if (region->flags & GNV_WIRE_REGION_CAPS)
		ret = find_sparse(payload, len, region->cap_offset, offer);
	if (!ret)
		ret = add_area(offer, (struct gnv_wire_area){ 0, region->size });
	return ret < 0 ? ret : 0;
}

int gnv_wire_parse_offer(const uint8_t *payload, size_t len, uint32_t index, unsigned fds, struct gnv_wire_offer *offer)
{
	struct gnv_wire_region region;

	memcpy(&region, payload, sizeof(region));
	if (region.index != index)
		return gnv_fail(-EPROTO, "the server described region %u instead of region %u", region.index, index);
	if (region.size > INT64_MAX || region.offset > INT64_MAX - region.size)
		return gnv_fail(-EPROTO, "the server's region of 0x%llx bytes at 0x%llx of its memory is invalid",
				(unsigned long long)region.size, (unsigned long long)region.offset);
	*offer = (struct gnv_wire_offer){ .flags = region.flags, .size = region.size, .file = region.offset };
	if (!(region.flags & GNV_WIRE_REGION_MMAP) || !region.size)
		return 0;
	if (!fds)
		return gnv_fail(-EPROTO, "the server offers to map region %u, and sent no descriptor of it", index);
	return parse_areas(payload, len, &region, offer);
}
