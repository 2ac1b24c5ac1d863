/* SPDX-License-Identifier: MIT */
/*
 * Messages of vfio-user, as QEMU's documentation specifies them (docs/interop/vfio-user.rst, version 0 of the protocol): layouts,
 * and the only place that parses messages of a client (request.c, for lib/serve) and replies of a server (reply.c, for lib/port).
 * Integers are of the host's order, as both ends are on one machine.
 */
#ifndef GNV_WIRE_WIRE_H
#define GNV_WIRE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GNV_WIRE_DATA 65536u /* of one read or write: reported as max_data_xfer_size */
#define GNV_WIRE_FDS 16u     /* with one message: max_msg_fds */
#define GNV_WIRE_LONGEST (sizeof(struct gnv_wire_header) + sizeof(struct gnv_wire_access) + GNV_WIRE_DATA)

enum gnv_wire_command {
	GNV_WIRE_VERSION = 1,
	GNV_WIRE_DMA_MAP = 2,
	GNV_WIRE_DMA_UNMAP = 3,
	GNV_WIRE_GET_INFO = 4,
	GNV_WIRE_GET_REGION_INFO = 5,
	GNV_WIRE_GET_IRQ_INFO = 7,
	GNV_WIRE_SET_IRQS = 8,
	GNV_WIRE_REGION_READ = 9,
	GNV_WIRE_REGION_WRITE = 10,
	GNV_WIRE_RESET = 13
};

#define GNV_WIRE_TYPE 0x0fu /* flags: 0 a command, 1 a reply */
#define GNV_WIRE_REPLY 0x01u
#define GNV_WIRE_NO_REPLY 0x10u
#define GNV_WIRE_ERROR 0x20u

struct gnv_wire_header {
	uint16_t id;
	uint16_t command;
	uint32_t size; /* of all, with this */
	uint32_t flags;
	uint32_t error;
};

struct gnv_wire_version {
	uint16_t major, minor;
};

#define GNV_WIRE_READABLE 1u
#define GNV_WIRE_WRITABLE 2u
struct gnv_wire_map {
	uint32_t argsz, flags;
	uint64_t offset; /* in the descriptor */
	uint64_t address, size;
};

#define GNV_WIRE_UNMAP_ALL 2u
struct gnv_wire_unmap {
	uint32_t argsz, flags;
	uint64_t address, size;
};

#define GNV_WIRE_INFO_RESET 1u
#define GNV_WIRE_INFO_PCI 2u
struct gnv_wire_info {
	uint32_t argsz, flags;
	uint32_t regions, irqs;
};

#define GNV_WIRE_REGION_MMAP 4u
#define GNV_WIRE_REGION_CAPS 8u
struct gnv_wire_region {
	uint32_t argsz, flags;
	uint32_t index, cap_offset; /* of the first capability, from here */
	uint64_t size, offset;      /* in the descriptor */
};

/* Capabilities of a region, and the capability with its mappable parts, as in linux/vfio.h. */
#define GNV_WIRE_CAP_SPARSE 1u
struct gnv_wire_cap {
	uint16_t id, version;
	uint32_t next; /* from the beginning of the region's information, or 0 */
};
struct gnv_wire_sparse {
	struct gnv_wire_cap cap;
	uint32_t count, reserved; /* areas follow */
};
struct gnv_wire_area {
	uint64_t offset, size; /* in the region */
};

#define GNV_WIRE_IRQ_EVENTFD 1u
#define GNV_WIRE_IRQ_NORESIZE 8u
struct gnv_wire_irq {
	uint32_t argsz, flags;
	uint32_t index, count;
};

#define GNV_WIRE_IRQ_NONE 0x01u
#define GNV_WIRE_IRQ_BOOL 0x02u
#define GNV_WIRE_IRQ_EVENTFDS 0x04u
#define GNV_WIRE_IRQ_TRIGGER 0x20u
struct gnv_wire_irqs {
	uint32_t argsz, flags;
	uint32_t index, start, count;
};

struct gnv_wire_access {
	uint64_t offset;
	uint32_t region, count;
};

/* One request, whose lengths and counts are right. Its values are checked when it is carried out. */
struct gnv_wire_request {
	uint16_t command;
	const uint8_t *data; /* of a write, and the booleans of SET_IRQS, in the message */
	union {
		struct gnv_wire_version version;
		struct gnv_wire_map map;
		struct gnv_wire_unmap unmap;
		struct gnv_wire_region region;
		struct gnv_wire_irq irq;
		struct gnv_wire_irqs irqs;
		struct gnv_wire_access access;
	} u;
};

/* Check the header of a command. If it is invalid, the place of the next one is unknown. Return: 0; -EPROTO with a message. */
int gnv_wire_check(const struct gnv_wire_header *header);

/*
 * gnv_wire_parse() - read the rest of a message
 * @header:  checked
* @payload: the header->size - 16 bytes after it
 * @fds:     descriptors that came along
 * Return: 0; -EINVAL, -EOPNOTSUPP with a sentence.
 */
int gnv_wire_parse(const struct gnv_wire_header *header, const uint8_t *payload, unsigned fds, struct gnv_wire_request *request);

/* ---- Replies of a server ---- */

/*
 * gnv_wire_check_reply() - check that a message is the reply to a request
 * @least, @most: bytes that it has after the header
 * Return: 0; the negative errno of the server's reply, with a message: nothing but @got->size bytes must be read on; -EPROTO with a
 * message: the start of the next message is unknown, and @lost is set.
 */
int gnv_wire_check_reply(const struct gnv_wire_header *asked, const struct gnv_wire_header *got, size_t least, size_t most,
			 bool *lost);

/* How many memories it maps at one time, by the capabilities in its VERSION. Return: 0: they do not say. */
uint32_t gnv_wire_max_maps(const uint8_t *text, size_t len);

/* A region as its server offers it, checked for sense. */
#define GNV_WIRE_AREAS 8u
struct gnv_wire_offer {
	uint32_t flags;
	uint64_t size;
	uint64_t file;  /* where it begins in the descriptor */
	unsigned count; /* of areas that can be mapped: whole pages in it, and in the file's range, that do not overlap */
	struct gnv_wire_area area[GNV_WIRE_AREAS];
};

/*
 * gnv_wire_parse_offer() - parse the reply to DEVICE_GET_REGION_INFO
 * @payload, @len: at least a struct gnv_wire_region
 * @fds: descriptors that came along
 * Return: 0; -EPROTO with a sentence.
 */
int gnv_wire_parse_offer(const uint8_t *payload, size_t len, uint32_t index, unsigned fds, struct gnv_wire_offer *offer);

#endif
