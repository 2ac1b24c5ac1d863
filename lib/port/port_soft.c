/* SPDX-License-Identifier: MIT */
/*
 * The port to the software controller: its register page as BAR0, the software address space as IOMMU.
 * Invariant: the controller is destroyed before the space it makes DMA through.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem/space_soft.h"
#include "port/port.h"
#include "port/quirks.h"
#include "port/soft_model.h"
#include "soft/soft.h"
#include "util/bits.h"
#include "vdrive/vdrive.h"

#define VRAM "vram:"
#define SLICE_MAX_MS 1000u
#define LOST 0xa5 /* fills memory of the controller after a function reset */

struct port_soft {
	struct gnv_port port;
	struct gnv_soft *soft; /* NULL after halt */
	struct gpunvme_mem bar0;
	struct gpunvme_mem *cmb; /* memory in the controller, or NULL */
	void *lost_ctx;
	gnv_port_lost_fn *lost; /* atomic, NULL until it is watched */
};

static void bar_release(struct gpunvme_mem *mem)
{
	(void)mem; /* the page is the controller's */
}

static const struct gnv_mem_ops bar_ops = { "bar", bar_release, gnv_mem_attach_host, gnv_mem_detach_host };

static int soft_halt(struct gnv_port *port)
{
	struct port_soft *ps = gnv_container_of(port, struct port_soft, port);
	int ret;

	if (port->keep && ps->soft)
		gnv_soft_keep_bar(ps->soft);
	ret = gnv_soft_destroy(ps->soft);
	if (!ret)
		ps->soft = NULL;
	return ret;
}

static int soft_reset(struct gnv_port *port)
{
	struct port_soft *ps = gnv_container_of(port, struct port_soft, port);

	int ret = ps->soft ? gnv_soft_function_reset(ps->soft) : gnv_fail(-ENODEV, "the software controller has been stopped");

	if (!ret && ps->cmb)
		memset(ps->cmb->cpu, LOST, ps->cmb->len);
	return ret;
}

static void soft_close(struct gnv_port *port)
{
	struct port_soft *ps = gnv_container_of(port, struct port_soft, port);

	if (soft_halt(port)) /* not of a controller that was stopped */
		return;
	gnv_space_put(port->space);
	gnv_mem_fini(&ps->bar0);
	free(ps);
}

static int soft_export(struct gnv_port *port, uint64_t offset, size_t len, int *fd)
{
	(void)offset;
	(void)len;
	(void)fd;
	return gnv_fail(-EOPNOTSUPP, "%.100s: the software controller has no BAR that another device could reach", port->address);
}

/* The threads of this process stay, but a GPU may fail to run the kernel of a drive. */
static void soft_watch(struct gnv_port *port, gnv_port_lost_fn *lost, void *ctx)
{
	struct port_soft *ps = gnv_container_of(port, struct port_soft, port);

	ps->lost_ctx = ctx;
	__atomic_store_n(&ps->lost, lost, __ATOMIC_RELEASE);
}

/* On a thread of the engine. */
static void has_failed(void *ctx, const char *why)
{
	const struct port_soft *ps = ctx;
	gnv_port_lost_fn *lost = __atomic_load_n(&ps->lost, __ATOMIC_ACQUIRE);

	if (lost)
		lost(ps->lost_ctx, GNV_PORT_ERROR, why);
}

/* Only the space decides what it can access, and it is disabled at first. */
static int soft_allow_dma(struct gnv_port *port)
{
	(void)port;
	return 0;
}

/* Memory in the controller: mapped in the space, whose address the controller recognises as its own. */
struct soft_cmb {
	struct gpunvme_mem mem; /* first, so that it can be freed */
	struct gpunvme_mem *bytes;
	struct port_soft *ps;
	uint64_t iova;
};

static void cmb_release(struct gpunvme_mem *mem)
{
	struct soft_cmb *cmb = gnv_container_of(mem, struct soft_cmb, mem);
	struct gnv_port *port = &cmb->ps->port;

	cmb->ps->cmb = NULL;
	if (port->space->ops->unmap(port->space, cmb->iova, cmb->bytes->len))
		gnv_log(&port->log, GPUNVME_LOG_ERROR, "%zu bytes are leaked: the software controller still has them", cmb->bytes->len);
	else
		gnv_mem_release(cmb->bytes);
}

static const struct gnv_mem_ops cmb_ops = { "cmb", cmb_release, gnv_mem_attach_host, gnv_mem_detach_host };

static int map_cmb(struct soft_cmb *cmb, struct port_soft *ps)
{
	int ret = gnv_mem_host_alloc(gnv_soft_cmb_bytes(ps->soft), 0, &ps->port.log, &cmb->bytes);

	if (ret)
		return ret;
	cmb->bytes->inside = true;
	cmb->ps = ps;
	ret = gnv_mem_map(cmb->bytes, ps->port.space, &ps->port.log, &cmb->iova);
	if (ret)
		gnv_mem_release(cmb->bytes);
	else
		ps->cmb = &cmb->mem;
	return ret;
}

static int soft_cmb(struct gnv_port *port, const struct gnv_port_cmb *where, struct gpunvme_mem **mem, uint64_t *iova)
{
	struct soft_cmb *cmb = calloc(1, sizeof(*cmb));
	int ret = cmb ? map_cmb(cmb, gnv_container_of(port, struct port_soft, port)) : gnv_fail(-ENOMEM, "out of memory");

	(void)where; /* as its registers say */
	if (ret) {
		free(cmb);
		return ret;
	}
	gnv_mem_init(&cmb->mem, &cmb_ops);
	cmb->mem.cpu = cmb->bytes->cpu;
	cmb->mem.len = cmb->bytes->len;
	cmb->mem.page = cmb->bytes->page;
	*iova = cmb->iova;
	*mem = &cmb->mem;
	return 0;
}

static const struct gnv_port_ops soft_ops = {
	.name = "soft",
	.halt = soft_halt,
	.reset = soft_reset,
	.export_bar0 = soft_export,
	.watch = soft_watch,
	.allow_dma = soft_allow_dma,
	.cmb = soft_cmb,
	.close = soft_close,
};

/* The drive it is taken for: VVVV:DDDD. */
static int take_pci(struct gnv_uri *uri, uint16_t *vendor_id, uint16_t *device_id)
{
	unsigned vendor, device;
	const char *text;
	int used = 0;

	gnv_uri_take(uri, "pci", &text);
	if (!text)
		return 0;
	if (sscanf(text, "%4x:%4x%n", &vendor, &device, &used) != 2 || text[used])
		return gnv_fail(-EINVAL, "pci=%.40s in the URI: must be vendor and device in hexadecimal, as in pci=1217:8760", text);
	*vendor_id = (uint16_t)vendor;
	*device_id = (uint16_t)device;
	return 0;
}

/* Namespaces after the first: ns2=PATH with its lba2 and ro2, and so on without a gap. */
static int take_more(struct gnv_uri *uri, struct gnv_soft_config *config)
{
	static const struct {
		const char *ns, *lba, *ro;
	} keys[] = { { "ns2", "lba2", "ro2" }, { "ns3", "lba3", "ro3" }, { "ns4", "lba4", "ro4" }, { "ns5", "lba5", "ro5" },
		     { "ns6", "lba6", "ro6" }, { "ns7", "lba7", "ro7" }, { "ns8", "lba8", "ro8" } };
	struct gnv_soft_more *more = config->more;
	uint32_t ro;
	size_t i;

	_Static_assert(GNV_ARRAY_LEN(keys) == GNV_ARRAY_LEN(config->more), "keys for each of them");
	for (i = 0; i < GNV_ARRAY_LEN(keys); i++, more++) {
		gnv_uri_take(uri, keys[i].ns, &more->path);
		if (!more->path)
			return 0;
		if (!more->path[0])
			return gnv_fail(-EINVAL, "%s= in the URI: needs the path of an image file or block device", keys[i].ns);
		ro = 0;
		if (gnv_uri_take_u32(uri, keys[i].lba, 512, 4096, &more->lba_size) || gnv_uri_take_u32(uri, keys[i].ro, 0, 1, &ro))
			return -EINVAL;
		more->read_only = ro;
	}
	return 0;
}

/* A drive whose blocks and queues are in the memory of a GPU: which one, and how long a launch of its kernel lasts. */
static int take_vram(struct gnv_uri *uri, struct gnv_soft_config *config)
{
	uint32_t ms = config->slice_us / 1000;

	if (strncmp(uri->address, VRAM, strlen(VRAM)) != 0)
		return 0;
	config->engine = &gnv_vdrive_engine;
	gnv_uri_take(uri, "on", &config->on);
	gnv_uri_take(uri, "image", &config->image);
	if (gnv_uri_take_u32(uri, "slice", 0, SLICE_MAX_MS, &ms))
		return -EINVAL;
	config->slice_us = ms * 1000;
	return 0;
}

/* Numbers only: whether they make sense together is the controller's to say. */
static int take_config(struct gnv_uri *uri, struct gnv_soft_config *config)
{
	const char *fault;
	uint32_t ro = 0;

	config->path = uri->address;
	if (gnv_uri_take_u32(uri, "lba", 512, 4096, &config->lba_size) || gnv_uri_take_u32(uri, "mdts", 0, 255, &config->mdts) ||
	    gnv_uri_take_u32(uri, "queues", 1, 1024, &config->queues) || gnv_uri_take_u32(uri, "depth", 2, 65536, &config->depth) ||
	    gnv_uri_take_u32(uri, "dstrd", 0, 8, &config->dstrd) || gnv_uri_take_u32(uri, "threads", 1, 64, &config->threads) ||
	    gnv_uri_take_u32(uri, "cmb", 0, 1024, &config->cmb) || gnv_uri_take_u32(uri, "ro", 0, 1, &ro))
		return -EINVAL;
	config->read_only = ro;
	if (take_vram(uri, config) || take_more(uri, config) || gnv_port_soft_model(uri, &config->model))
		return -EINVAL;
	gnv_uri_take(uri, "fault", &fault);
	if (fault && gnv_soft_fault_parse(fault, &config->quirks, &config->rules))
		return -EINVAL;
	config->faulty = fault != NULL;
	return gnv_uri_check_taken(uri);
}

int gnv_port_soft_config(struct gnv_uri *uri, struct gnv_soft_config *config, uint16_t *vendor, uint16_t *device)
{
	int ret = take_pci(uri, vendor, device);

	if (ret)
		return ret;
	return take_config(uri, config);
}

static void wrap_bar(struct port_soft *ps)
{
	gnv_mem_init(&ps->bar0, &bar_ops);
	ps->bar0.cpu = gnv_soft_bar(ps->soft, &ps->bar0.len);
	ps->bar0.page = 4096;
}

/* Is the emulated model known to use no more than 48 bits of an address? */
static bool knows_48_bits(const struct gnv_soft_config *config, uint16_t vendor, uint16_t device)
{
	struct gnv_drive drive;

	gnv_quirks_find(vendor, device, &drive); /* opening reports malformed words in the environment */
	return gnv_soft_has(&config->quirks, GNV_SOFT_ADDR_48) || drive.quirks & GNV_QUIRK_ADDR_48;
}

/* For such a drive like an IOMMU's. */
static int take_space(const struct gnv_port *share, bool narrow, struct gnv_space **space)
{
	int ret;

	if (share && narrow && !gnv_soft_space_is_narrow(share->space))
		return gnv_fail(-EINVAL,
				"a drive with 48 address bits cannot share the address space of %.100s, which has more. Open it first, "
				"and let the other share its space",
				share->address);
	if (share) {
		*space = gnv_space_get(share->space);
		return 0;
	}
	ret = narrow ? gnv_soft_space_create_narrow(space) : gnv_soft_space_create(space);
	return ret ? gnv_fail(ret, "no memory for the address space of the software controller") : 0;
}

int gnv_port_soft_open(struct gnv_uri *uri, const struct gnv_port *share, const struct gnv_log *log, struct gnv_port **port)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;
	uint16_t vendor = 0, device = 0;
	struct port_soft *ps;
	int ret;

	ret = gnv_port_soft_config(uri, &config, &vendor, &device);
	if (!ret && share && share->ops != &soft_ops)
		ret = gnv_port_cannot_share(share, "soft");
	if (ret)
		return ret;
	ps = calloc(1, sizeof(*ps));
	if (!ps)
		return gnv_fail(-ENOMEM, "out of memory");
	config.vendor = vendor;
	config.late = &ps->port.late;
	config.failed = has_failed;
	config.failed_ctx = ps;
	ret = take_space(share, knows_48_bits(&config, vendor, device), &ps->port.space);
	if (ret)
		goto free_port;
	ps->port.log = *log;
	ret = gnv_soft_create(&config, ps->port.space, &ps->port.log, &ps->soft);
	if (ret)
		goto close_space;
	wrap_bar(ps);
	ps->port.ops = &soft_ops;
	ps->port.bar0 = &ps->bar0;
	ps->port.placement = "soft";
	snprintf(ps->port.reset_name, sizeof(ps->port.reset_name), "function");
	ps->port.vendor = vendor;
	ps->port.device = device;
	ps->port.queues = config.queues;
	ps->port.read_only = gnv_soft_read_only(ps->soft);
	ps->port.faulty = config.faulty;
	ps->port.emulated = true;
	ps->port.far_rings = config.engine && config.engine->far_rings;
	gnv_soft_speed(ps->soft, &ps->port.link, &ps->port.blocks);
	ps->port.no_link = config.model.no_link;
	gnv_soft_media(ps->soft, ps->port.medium);
	snprintf(ps->port.address, sizeof(ps->port.address), "%s", uri->address);
	*port = &ps->port;
	return 0;

close_space:
	gnv_space_put(ps->port.space);
free_port:
	free(ps);
	return ret;
}

struct gnv_soft *gnv_port_soft(struct gnv_port *port)
{
	return port->ops == &soft_ops ? gnv_container_of(port, struct port_soft, port)->soft : NULL;
}
