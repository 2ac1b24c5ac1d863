/* SPDX-License-Identifier: MIT */
/*
 * One client: its messages, one after the other, each with a reply. A wrong message gets an errno and a line in the log. If the
 * stream itself cannot be parsed any more, the connection is closed.
 */
#include "serve/server.h"

#include <errno.h>
#include <string.h>

#include "os/linux/passed.h"
#include "serve/stream.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/clock.h"
#include "util/mmio.h"

#define RETRY_MS 1000

/* A reply under construction. */
struct answer {
	size_t len; /* after the header */
	int fd;	    /* to send with it, or -1 */
};

static uint8_t *body(struct gpunvme_server *s)
{
	return s->reply + sizeof(struct gnv_wire_header);
}

static void answer_with(struct gpunvme_server *s, struct answer *a, const void *from, size_t len)
{
	memcpy(body(s) + a->len, from, len);
	a->len += len;
}

/* ---- Requests ---- */

static int greet(struct gpunvme_server *s, const struct gnv_wire_version *version, struct answer *a)
{
	static const char capabilities[] = "{\"capabilities\":{\"max_msg_fds\":16,\"max_data_xfer_size\":65536,"
					   "\"max_dma_maps\":1024,\"pgsizes\":4096}}";
	const struct gnv_wire_version ours = { 0, 0 };

	_Static_assert(GNV_WIRE_FDS == 16 && GNV_WIRE_DATA == 65536 && GNV_DMA_MAPS == 1024, "as the capabilities say");
	if (version->major)
		return gnv_fail(-EPROTONOSUPPORT, "the client speaks version %u of vfio-user, but this server speaks 0", version->major);
	s->greeted = true;
	answer_with(s, a, &ours, sizeof(ours));
	answer_with(s, a, capabilities, sizeof(capabilities));
	return 0;
}

static int map(struct gpunvme_server *s, const struct gnv_wire_map *map)
{
	const uint32_t both = GNV_WIRE_READABLE | GNV_WIRE_WRITABLE;
	int fd = s->fds.count ? s->fds.fd[0] : -1;

	/* The controller cannot use memory without write access, such as a ROM: commands of the host decide what it writes. */
	return gnv_dma_maps_add(&s->maps, map->address, map->size, (map->flags & both) == both ? fd : -1, map->offset);
}

static int unmap(struct gpunvme_server *s, const struct gnv_wire_unmap *unmap, struct answer *a)
{
	int ret;

	if (unmap->flags & ~GNV_WIRE_UNMAP_ALL)
		return gnv_fail(-EINVAL, "DMA_UNMAP: flags 0x%x are not known", unmap->flags);
	if (unmap->flags && (unmap->address || unmap->size))
		return gnv_fail(-EINVAL, "DMA_UNMAP of all and of a range at once");
	if (unmap->flags)
		ret = s->maps.count ? gnv_dma_maps_remove(&s->maps, 0, UINT64_MAX) : 0;
	else
		ret = gnv_dma_maps_remove(&s->maps, unmap->address, unmap->size);
	answer_with(s, a, unmap, sizeof(*unmap));
	return ret;
}

static void tell_info(struct gpunvme_server *s, struct answer *a)
{
	const struct gnv_wire_info info = { sizeof(info), GNV_WIRE_INFO_RESET | GNV_WIRE_INFO_PCI, GNV_REGION_COUNT, GNV_IRQ_COUNT };

	answer_with(s, a, &info, sizeof(info));
}

static int tell_region(struct gpunvme_server *s, uint32_t index, struct answer *a)
{
	struct gnv_wire_region region = { .argsz = sizeof(region), .index = index, .size = gnv_function_size(&s->function, index) };

	if (index >= GNV_REGION_COUNT)
		return gnv_fail(-EINVAL, "DEVICE_GET_REGION_INFO of region %u, of %u", index, GNV_REGION_COUNT);
	if (region.size)
		region.flags = GNV_WIRE_READABLE | GNV_WIRE_WRITABLE;
	if (index == GNV_REGION_BAR0) {
		region.flags |= GNV_WIRE_REGION_MMAP;
		a->fd = gnv_soft_bar_fd(s->soft);
	}
	answer_with(s, a, &region, sizeof(region));
	return 0;
}

static int tell_irq(struct gpunvme_server *s, uint32_t index, struct answer *a)
{
	struct gnv_wire_irq irq = { .argsz = sizeof(irq), .index = index };

	if (index >= GNV_IRQ_COUNT)
		return gnv_fail(-EINVAL, "DEVICE_GET_IRQ_INFO of kind %u, of %u", index, GNV_IRQ_COUNT);
	if (index == GNV_IRQ_MSIX) {
		irq.flags = GNV_WIRE_IRQ_EVENTFD | GNV_WIRE_IRQ_NORESIZE;
		irq.count = s->vectors.count;
	}
	answer_with(s, a, &irq, sizeof(irq));
	return 0;
}

/* ---- Interrupts ---- */

static int give_events(struct gpunvme_server *s, const struct gnv_wire_irqs *irqs)
{
	unsigned i;

	for (i = 0; i < s->fds.count; i++)
		if (!gnv_passed_is_event(s->fds.fd[i]))
			return gnv_fail(-EINVAL, "DEVICE_SET_IRQS: descriptor %u is no eventfd", i);
	for (i = 0; i < irqs->count; i++) {
		gnv_vectors_set(&s->vectors, irqs->start + i, i < s->fds.count ? s->fds.fd[i] : -1);
		if (i < s->fds.count)
			s->fds.fd[i] = -1;
	}
	return 0;
}

static int set_irqs(struct gpunvme_server *s, const struct gnv_wire_irqs *irqs, const uint8_t *wanted)
{
	unsigned i, count = irqs->index == GNV_IRQ_MSIX ? s->vectors.count : 0;

	if (irqs->index >= GNV_IRQ_COUNT || !gnv_within(irqs->start, irqs->count, count))
		return gnv_fail(-EINVAL, "DEVICE_SET_IRQS: %u interrupts from %u on, kind %u, of %u", irqs->count, irqs->start, irqs->index,
				count);
	if (!(irqs->flags & GNV_WIRE_IRQ_TRIGGER))
		return gnv_fail(-EINVAL, "DEVICE_SET_IRQS: masking is the client's, as MSI-X tables are (flags 0x%x)", irqs->flags);
	if (irqs->flags & GNV_WIRE_IRQ_EVENTFDS)
		return give_events(s, irqs);
	if (irqs->flags & GNV_WIRE_IRQ_NONE && !irqs->count && count) {
		gnv_vectors_clear(&s->vectors);
		return 0;
	}
	for (i = 0; i < irqs->count; i++)
		if (irqs->flags & GNV_WIRE_IRQ_NONE || wanted[i])
			gnv_vectors_raise(&s->vectors, irqs->start + i);
	return 0;
}

/* ---- Regions ---- */

static int reset(struct gpunvme_server *s)
{
	int ret = gnv_soft_function_reset(s->soft);
	size_t len;

	if (ret)
		return ret;
	gnv_vectors_forget(&s->vectors);
	gnv_soft_bar(s->soft, &len);
	gnv_function_init(&s->function, s->vendor, s->device, len, s->vectors.count);
	return gnv_soft_allow_dma(s->soft, gnv_function_is_master(&s->function));
}

static int write_config(struct gpunvme_server *s, const struct gnv_wire_access *at, const uint8_t *data)
{
	if (gnv_function_write(&s->function, at->offset, data, at->count))
		return reset(s);
	return gnv_soft_allow_dma(s->soft, gnv_function_is_master(&s->function));
}

/* The controller polls registers while they are written, so a register is one store. Clients that map them do the same. */
static void access_bar0(struct gpunvme_server *s, const struct gnv_wire_access *at, const uint8_t *data, uint8_t *out)
{
	uint8_t *bar = (uint8_t *)gnv_soft_bar(s->soft, NULL) + at->offset;
	uint32_t i = 0, word;

	while (i < at->count) {
		if ((at->offset + i) % sizeof(word) || at->count - i < sizeof(word)) {
			if (data)
				__atomic_store_n(&bar[i], data[i], __ATOMIC_RELEASE);
			else
				out[i] = __atomic_load_n(&bar[i], __ATOMIC_ACQUIRE);
			i++;
			continue;
		}
		if (data) {
			memcpy(&word, &data[i], sizeof(word));
			gnv_mmio_write32((uint8_t GNV_FORCE GNV_MMIO *)bar + i, word);
		} else {
			word = gnv_mmio_read32((uint8_t GNV_FORCE GNV_MMIO *)bar + i);
			memcpy(&out[i], &word, sizeof(word));
		}
		i += sizeof(word);
	}
}

/* Of a read when @data is NULL. The MSI-X table reads as zeroes: the client has its own. */
static int access_region(struct gpunvme_server *s, const struct gnv_wire_access *at, const uint8_t *data, struct answer *a)
{
	uint64_t size = gnv_function_size(&s->function, at->region);
	uint8_t *out = body(s) + sizeof(*at);

	if (!gnv_within(at->offset, at->count, size))
		return gnv_fail(-EINVAL, "access to %u bytes at 0x%llx of region %u, which has %llu", at->count,
				(unsigned long long)at->offset, at->region, (unsigned long long)size);
	answer_with(s, a, at, sizeof(*at));
	if (!data) {
		memset(out, 0, at->count);
		a->len += at->count;
	}
	if (at->region == GNV_REGION_BAR0)
		access_bar0(s, at, data, out);
	if (at->region != GNV_REGION_CONFIG)
		return 0;
	if (data)
		return write_config(s, at, data);
	memcpy(out, s->function.config + at->offset, at->count);
	return 0;
}

/* ---- Messages ---- */

static int carry_out(struct gpunvme_server *s, const struct gnv_wire_request *r, struct answer *a)
{
	if (!s->greeted && r->command != GNV_WIRE_VERSION)
		return gnv_fail(-EINVAL, "the client sent command %u before VERSION", r->command);
	switch (r->command) {
	case GNV_WIRE_VERSION:
		return greet(s, &r->u.version, a);
	case GNV_WIRE_DMA_MAP:
		return map(s, &r->u.map);
	case GNV_WIRE_DMA_UNMAP:
		return unmap(s, &r->u.unmap, a);
	case GNV_WIRE_GET_INFO:
		tell_info(s, a);
		return 0;
	case GNV_WIRE_GET_REGION_INFO:
		return tell_region(s, r->u.region.index, a);
	case GNV_WIRE_GET_IRQ_INFO:
		return tell_irq(s, r->u.irq.index, a);
	case GNV_WIRE_SET_IRQS:
		return set_irqs(s, &r->u.irqs, r->data);
	case GNV_WIRE_REGION_READ:
		return access_region(s, &r->u.access, NULL, a);
	case GNV_WIRE_REGION_WRITE:
		return access_region(s, &r->u.access, r->data, a);
	default: /* GNV_WIRE_RESET: the parser lets nothing else through */
		return reset(s);
	}
}

static int answer(struct gpunvme_server *s, const struct gnv_wire_header *to, const struct answer *a, int ret)
{
	struct gnv_wire_header h = { to->id, to->command, (uint32_t)(sizeof(h) + a->len), GNV_WIRE_REPLY, 0 };

	if (to->flags & GNV_WIRE_NO_REPLY)
		return 0;
	if (ret) {
		h.size = sizeof(h);
		h.flags |= GNV_WIRE_ERROR;
		h.error = (uint32_t)-ret;
	}
	memcpy(s->reply, &h, sizeof(h));
	return gnv_stream_send(s, h.size, ret ? -1 : a->fd);
}

/* One message. Return: 1; 0 the client has gone; a negative errno when it must go, with a sentence but for -ESHUTDOWN. */
static int serve_one(struct gpunvme_server *s)
{
	struct answer a = { 0, -1 };
	struct gnv_wire_request request;
	struct gnv_wire_header header;
	bool hostile;
	int ret;

	if (s->greeted)
		s->until = GNV_STREAM_NO_LIMIT;
	ret = gnv_stream_receive(s, s->message, sizeof(header), false);
	if (ret <= 0)
		return ret;
	memcpy(&header, s->message, sizeof(header));
	ret = gnv_wire_check(&header);
	if (ret)
		return ret;
	ret = gnv_stream_receive(s, s->message + sizeof(header), header.size - sizeof(header), true);
	if (ret == 0)
		return gnv_fail(-EPROTO, "the client has gone in the middle of a message");
	if (ret < 0)
		return ret;
	ret = gnv_wire_parse(&header, s->message + sizeof(header), s->fds.count, &request);
	if (!ret)
		ret = carry_out(s, &request, &a);
	hostile = !gnv_socket_drop(&s->fds);
	if (ret)
		gnv_log(&s->log, ret == -EOPNOTSUPP ? GPUNVME_LOG_DEBUG : GPUNVME_LOG_WARN, "%s: %s", s->socket.path, gpunvme_errmsg());
	if (hostile)
		return gnv_fail(-EPROTO, "the client passes descriptors whose close() does not return");
	ret = answer(s, &header, &a, ret);
	return ret ? ret : 1;
}

/* The controller is as after power on, and reaches nothing of a client's. Return: 0; negative when I/O is stuck. */
static int clean(struct gpunvme_server *s)
{
	int ret;

	gnv_vectors_clear(&s->vectors);
	ret = reset(s);
	if (!ret && s->maps.count)
		ret = gnv_dma_maps_remove(&s->maps, 0, UINT64_MAX);
	if (ret)
		gnv_log(&s->log, GPUNVME_LOG_ERROR, "%s: %s", s->socket.path, gpunvme_errmsg());
	return ret;
}

/* The end of the connection returns the memory to the client, so wait for I/O that is stuck in the kernel. */
static void let_go(struct gpunvme_server *s)
{
	while (clean(s)) {
		gnv_socket_wait(s->wake, -1, false, RETRY_MS);
		if (gnv_server_stopped(s))
			return; /* gpunvme_server_stop() goes on */
	}
	gnv_socket_disconnect(s->client);
	s->client = -1;
}

void gnv_session_run(struct gpunvme_server *s, int client)
{
	int ret;

	s->client = client;
	s->greeted = false;
	s->until = gnv_clock_ns() + GNV_STREAM_MS * GNV_NS_PER_MS;
	gnv_log(&s->log, GPUNVME_LOG_INFO, "%s: a client has come", s->socket.path);
	do {
		ret = serve_one(s);
	} while (ret > 0 && !gnv_server_stopped(s));
	if (ret < 0 && ret != -ESHUTDOWN && ret != -ECONNRESET && ret != -EPIPE)
		gnv_log(&s->log, GPUNVME_LOG_WARN, "%s: %s. The connection is closed", s->socket.path, gpunvme_errmsg());
	gnv_log(&s->log, GPUNVME_LOG_INFO, "%s: the client has gone", s->socket.path);
	gnv_socket_drop(&s->fds);
	let_go(s);
}
