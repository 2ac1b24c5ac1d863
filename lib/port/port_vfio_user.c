/* SPDX-License-Identifier: MIT */
/*
 * The port to a vfio-user server in another process. It maps registers that the server offers to map, and accesses others by
 * messages. It shares memory by descriptor. It uses neither interrupts nor DMA by messages.
 * Invariant: shared memory belongs to this process alone after the server has replied to DMA_UNMAP or has closed the connection.
 */
#include <errno.h>
#include <gpunvme/spec.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem/space_user.h"
#include "os/linux/event.h"
#include "os/linux/sys.h"
#include "port/port.h"
#include "port/user_device.h"
#include "util/bits.h"
#include "util/thread.h"

#define TIMEOUT_MS 10000u /* a server that drains commands may take seconds to give memory back */

struct port_user {
	struct gnv_port port;
	struct gnv_user_device ud;
	pthread_t thread; /* waits for the end of the connection */
	uint32_t quiet;	  /* atomic: it ends because this end wants so */
	pthread_mutex_t lock; /* protects all below */
	gnv_port_lost_fn *lost;
	void *lost_ctx;
	bool is_lost;
};

static struct port_user *user_of(struct gnv_port *port)
{
	return gnv_container_of(port, struct port_user, port);
}

/* ---- Memory ---- */

static int tell_map(void *ctx, int fd, uint64_t iova, size_t len)
{
	struct gnv_user_link *link = ctx;
	const struct gnv_wire_map map = { sizeof(map), GNV_WIRE_READABLE | GNV_WIRE_WRITABLE, 0, iova, len };
	const struct gnv_user_question q = { GNV_WIRE_DMA_MAP, &map, sizeof(map), fd };
	struct gnv_wire_map echo;
	struct gnv_user_answer a = { .to = &echo, .most = sizeof(echo) };
	int ret = gnv_user_ask(link, &q, &a);

	char most[48] = "";

	if (!ret || gnv_user_is_dead(link))
		return ret ? -ENODEV : 0;
	if (link->max_maps)
		snprintf(most, sizeof(most), " (its limit is %u)", link->max_maps);
	return gnv_fail(ret == -ENOSPC || ret == -ENOMEM ? ret : -EOPNOTSUPP,
			"%s: the server refused to map %zu bytes: %s. If it has no room for one more%s, map fewer and larger ones", link->path,
			len, strerror(-ret), most);
}

static int tell_unmap(void *ctx, uint64_t iova, size_t len)
{
	struct gnv_user_link *link = ctx;
	const struct gnv_wire_unmap unmap = { sizeof(unmap), 0, iova, len };
	const struct gnv_user_question q = { GNV_WIRE_DMA_UNMAP, &unmap, sizeof(unmap), -1 };
	struct gnv_wire_unmap echo;
	struct gnv_user_answer a = { .to = &echo, .most = sizeof(echo) };
	int ret = gnv_user_ask(link, &q, &a);

	if (!ret || gnv_user_is_gone(link, 0))
		return 0;
	return gnv_fail(-EBUSY, "%s: the server did not give %zu bytes back: %s", link->path, len, strerror(-ret));
}

static const struct gnv_space_user_ops tell = { tell_map, tell_unmap };

/* ---- Operations of a port ---- */

/* Map an error to one that a port may return. The error message stays. */
static int result_of(const struct port_user *pu, int ret)
{
	return ret && gnv_user_is_dead(&pu->ud.link) ? -ENODEV : ret ? -EIO : 0;
}

/*
 * Close the connection, which the server must take as the end of this process. It hangs up when it accesses nothing any more, as
 * gpunvme serve and libvfio-user do (vfu_run_ctx(): the device is reset, then the connection closed).
 */
static int user_halt(struct gnv_port *port)
{
	struct port_user *pu = user_of(port);

	__atomic_store_n(&pu->quiet, 1, __ATOMIC_RELEASE);
	gnv_user_fail(&pu->ud.link);
	if (gnv_user_is_gone(&pu->ud.link, pu->ud.link.ms))
		return 0;
	return gnv_fail(-ETIMEDOUT, "%s: the server does not hang up. End it", pu->ud.link.path);
}

/* Some servers report success and do nothing (vfio_user_device_reset() in spdk/lib/nvmf/vfio_user.c). */
static int check_reset(const struct gnv_user_device *ud)
{
	if (!(gnv_mem_reg_read32(&ud->bar0, GPUNVME_REG_CC) & GPUNVME_CC_EN) &&
	    !(gnv_mem_reg_read32(&ud->bar0, GPUNVME_REG_CSTS) & GPUNVME_CSTS_RDY))
		return 0;
	return gnv_fail(-EIO, "%s: the server reported a reset, but its controller still runs. End it and start it again", ud->link.path);
}

static int user_reset(struct gnv_port *port)
{
	struct port_user *pu = user_of(port);
	const struct gnv_user_question q = { GNV_WIRE_RESET, NULL, 0, -1 };
	struct gnv_user_answer a = { .to = NULL };
	int ret;

	if (!pu->ud.can_reset)
		return gnv_fail(-EOPNOTSUPP, "%s: the server offers no reset. End it and start it again", pu->ud.link.path);
	ret = gnv_user_ask(&pu->ud.link, &q, &a);
	if (!ret)
		ret = check_reset(&pu->ud);
	if (!ret)
		ret = gnv_user_command(&pu->ud, true);
	return result_of(pu, ret);
}

static int user_export(struct gnv_port *port, uint64_t offset, size_t len, int *fd)
{
	(void)offset;
	(void)len;
	(void)fd;
	return gnv_fail(-EOPNOTSUPP, "%.100s: a controller in another process has no BAR that another device could reach", port->address);
}

static const char *why_of(struct port_user *pu)
{
	return gnv_user_is_gone(&pu->ud.link, 0) ? "the server has hung up" :
						   "the server sent a wrong reply, or none, and gets no more requests";
}

static void user_watch(struct gnv_port *port, gnv_port_lost_fn *lost, void *ctx)
{
	struct port_user *pu = user_of(port);

	pthread_mutex_lock(&pu->lock);
	pu->lost = lost;
	pu->lost_ctx = ctx;
	if (pu->is_lost)
		lost(ctx, GNV_PORT_LOST, why_of(pu));
	pthread_mutex_unlock(&pu->lock);
}

static int user_allow_dma(struct gnv_port *port)
{
	struct port_user *pu = user_of(port);
	int ret = gnv_user_command(&pu->ud, true);

	return result_of(pu, ret);
}

static int user_cmb(struct gnv_port *port, const struct gnv_port_cmb *where, struct gpunvme_mem **mem, uint64_t *iova)
{
	(void)where;
	(void)mem;
	(void)iova;
	return gnv_fail(-EOPNOTSUPP, "%.100s: memory in a controller of another process is not used", port->address);
}

/* ---- Losing it ---- */

static void lose(struct port_user *pu)
{
	gnv_port_lost_fn *lost;
	void *ctx;

	pthread_mutex_lock(&pu->lock);
	pu->is_lost = true;
	lost = pu->lost;
	ctx = pu->lost_ctx;
	pthread_mutex_unlock(&pu->lock);
	if (lost)
		lost(ctx, GNV_PORT_LOST, why_of(pu));
	if (gnv_sys_replace_ones(pu->ud.bar0.cpu, pu->ud.bar0.len))
		gnv_user_fail(&pu->ud.link); /* its registers no longer change, so send no more messages */
	else if (lost)
		lost(ctx, GNV_PORT_RESET, why_of(pu));
	gnv_log(&pu->port.log, GPUNVME_LOG_ERROR, "%s: %s. The controller is gone", pu->ud.link.path, why_of(pu));
}

static void *watch_server(void *arg)
{
	struct port_user *pu = arg;

	gnv_socket_wait_hang_up(pu->ud.link.wake, pu->ud.link.fd, -1);
	if (!__atomic_load_n(&pu->quiet, __ATOMIC_ACQUIRE))
		lose(pu);
	return NULL;
}

static void user_close(struct gnv_port *port)
{
	struct port_user *pu = user_of(port);

	__atomic_store_n(&pu->quiet, 1, __ATOMIC_RELEASE);
	gnv_event_set(pu->ud.link.wake);
	pthread_join(pu->thread, NULL);
	gnv_space_put(port->space);
	gnv_user_disconnect(&pu->ud.link);
	if (!port->keep)
		gnv_user_close(&pu->ud);
	pthread_mutex_destroy(&pu->lock);
	free(pu);
}

static const struct gnv_port_ops user_ops = {
	.name = "vfio-user",
	.halt = user_halt,
	.reset = user_reset,
	.export_bar0 = user_export,
	.watch = user_watch,
	.allow_dma = user_allow_dma,
	.cmb = user_cmb,
	.close = user_close,
};

/* ---- Opening ---- */

/* With the connection made. On failure the caller undoes the rest by ending the connection. */
static int bring_up(struct port_user *pu, bool unsealed)
{
	int ret = gnv_user_open(&pu->ud, unsealed);

	if (ret)
		return ret;
	ret = gnv_space_user_create(&tell, &pu->ud.link, &pu->port.space);
	if (ret)
		goto close_device;
	ret = gnv_thread_start(&pu->thread, watch_server, pu);
	if (!ret)
		return 0;
	gnv_fail(ret, "no thread for the connection. Raise the limit of threads (ulimit -u)");
	gnv_space_put(pu->port.space);
close_device:
	gnv_user_close(&pu->ud);
	return ret;
}

static void describe(struct port_user *pu, const struct gnv_log *log, const char *path)
{
	struct gnv_port *port = &pu->port;
	unsigned i;

	port->log = *log;
	port->ops = &user_ops;
	port->bar0 = &pu->ud.bar0;
	port->placement = "vfio-user";
	for (i = 0; i < GNV_ARRAY_LEN(port->medium); i++)
		port->medium[i].kind = GPUNVME_MEDIUM_PROCESS;
	port->vendor = pu->ud.vendor;
	port->device = pu->ud.device;
	snprintf(port->address, sizeof(port->address), "%s", path);
	snprintf(port->reset_name, sizeof(port->reset_name), "%s", pu->ud.can_reset ? "function" : "none");
}

static int open_user(const char *path, uint32_t ms, bool unsealed, const struct gnv_log *log, struct gnv_port **port)
{
	struct port_user *pu = calloc(1, sizeof(*pu));
	int ret;

	if (!pu)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gnv_user_connect(&pu->ud.link, path, ms);
	if (ret)
		goto free_port;
	pthread_mutex_init(&pu->lock, NULL);
	pu->port.log = *log;
	ret = bring_up(pu, unsealed);
	if (ret)
		goto disconnect;
	describe(pu, log, path);
	*port = &pu->port;
	return 0;

disconnect:
	pthread_mutex_destroy(&pu->lock);
	gnv_user_disconnect(&pu->ud.link);
free_port:
	free(pu);
	return ret;
}

int gnv_port_vfio_user_open(struct gnv_uri *uri, const struct gnv_port *share, const struct gnv_log *log, struct gnv_port **port)
{
	uint32_t ms = TIMEOUT_MS, unsealed = 0, ro = 0;
	int ret;

	if (gnv_uri_take_u32(uri, "ro", 0, 1, &ro) || gnv_uri_take_u32(uri, "timeout", 100, 600000, &ms) ||
	    gnv_uri_take_u32(uri, "unsealed", 0, 1, &unsealed))
		return -EINVAL;
	if (gnv_uri_check_taken(uri))
		return -EINVAL;
	if (share)
		return gnv_fail(-EINVAL, "a controller in another process shares no address space, as that process maps memory for itself alone");
	ret = open_user(uri->address, ms, unsealed, log, port);
	if (!ret)
		(*port)->read_only = ro;
	return ret;
}
