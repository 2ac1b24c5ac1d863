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
#include "soft/soft.h"
#include "util/bits.h"

struct port_soft {
	struct gnv_port port;
	struct gnv_soft *soft; /* NULL after halt */
	struct gpunvme_mem bar0;
};

static void bar_release(struct gpunvme_mem *mem)
{
	(void)mem; /* the page is the controller's */
}

static const struct gnv_mem_ops bar_ops = { "bar", bar_release, gnv_mem_attach_host, gnv_mem_detach_host };

static int soft_halt(struct gnv_port *port)
{
	struct port_soft *ps = gnv_container_of(port, struct port_soft, port);

	if (ps->soft)
		gnv_soft_destroy(ps->soft);
	ps->soft = NULL;
	return 0;
}

static void soft_close(struct gnv_port *port)
{
	struct port_soft *ps = gnv_container_of(port, struct port_soft, port);

	soft_halt(port);
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

/* Nobody takes the threads of this process away. */
static void soft_watch(struct gnv_port *port, gnv_port_lost_fn *lost, void *ctx)
{
	(void)port;
	(void)lost;
	(void)ctx;
}

static const struct gnv_port_ops soft_ops = { "soft", soft_halt, soft_export, soft_watch, soft_close };

/* Numbers only: whether they make sense together is the controller's to say. */
static int take_config(struct gnv_uri *uri, struct gnv_soft_config *config)
{
	uint32_t ro = 0;

	config->path = uri->address;
	if (gnv_uri_take_u32(uri, "lba", 512, 4096, &config->lba_size) || gnv_uri_take_u32(uri, "mdts", 0, 255, &config->mdts) ||
	    gnv_uri_take_u32(uri, "queues", 1, 1024, &config->queues) || gnv_uri_take_u32(uri, "depth", 2, 65536, &config->depth) ||
	    gnv_uri_take_u32(uri, "dstrd", 0, 8, &config->dstrd) || gnv_uri_take_u32(uri, "threads", 1, 64, &config->threads) ||
	    gnv_uri_take_u32(uri, "ro", 0, 1, &ro))
		return -EINVAL;
	config->read_only = ro;
	return gnv_uri_check_taken(uri);
}

static void wrap_bar(struct port_soft *ps)
{
	gnv_mem_init(&ps->bar0, &bar_ops);
	ps->bar0.cpu = gnv_soft_bar(ps->soft, &ps->bar0.len);
	ps->bar0.page = 4096;
}

int gnv_port_soft_open(struct gnv_uri *uri, const struct gnv_port *share, const struct gnv_log *log, struct gnv_port **port)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;
	struct port_soft *ps;
	int ret;

	ret = take_config(uri, &config);
	if (!ret && share && share->ops != &soft_ops)
		ret = gnv_port_cannot_share(share, "soft");
	if (ret)
		return ret;
	ps = calloc(1, sizeof(*ps));
	if (!ps)
		return gnv_fail(-ENOMEM, "out of memory");
	if (share)
		ps->port.space = gnv_space_get(share->space);
	else
		ret = gnv_soft_space_create(&ps->port.space);
	if (ret) {
		gnv_fail(ret, "no memory for the address space of the software controller");
		goto free_port;
	}
	ret = gnv_soft_create(&config, ps->port.space, log, &ps->soft);
	if (ret)
		goto close_space;
	wrap_bar(ps);
	ps->port.ops = &soft_ops;
	ps->port.bar0 = &ps->bar0;
	ps->port.rung = "soft";
	ps->port.read_only = gnv_soft_read_only(ps->soft);
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
