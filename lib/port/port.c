/* SPDX-License-Identifier: MIT */
/*
 * The table of ports.
 * Invariant: one line per scheme. An open function either hands over a complete port or leaves nothing.
 */
#include "port/port.h"

#include <errno.h>
#include <string.h>

#include "os/linux/exclusive.h"
#include "util/bits.h"

static const struct {
	const char *scheme;
	gnv_port_open_fn *open;
} ports[] = {
	{ "soft", gnv_port_soft_open },
	{ "pci", gnv_port_pci_open },
	{ "vfio-user", gnv_port_vfio_user_open },
};

int gnv_port_open(struct gnv_uri *uri, const struct gnv_port *share, const struct gnv_log *log, struct gnv_port **port)
{
	size_t i;

	for (i = 0; i < GNV_ARRAY_LEN(ports); i++)
		if (!strcmp(ports[i].scheme, uri->scheme))
			return ports[i].open(uri, share, log, port);
	return gnv_fail(-EINVAL, "scheme '%s' is not known. Valid: soft, pci, vfio-user", uri->scheme);
}

int gnv_port_hold_paths(struct gnv_port *port, const struct gnv_identity *drive)
{
	char text[GNV_USERS_TEXT] = "";
	struct gnv_hold *paths = NULL;
	int ret = port->remote ? gnv_users_hold_paths(GNV_SYSFS, GNV_PROC, drive, text, &paths) : 0;

	if (ret == -EBUSY)
		return gnv_fail(ret, "a namespace of %.100s is in use through another controller: %s", port->address, text);
	if (!ret && text[0])
		gnv_log(&port->log, GPUNVME_LOG_WARN,
			"a namespace of %s has another controller, whose disk could not be held, so another process may mount it: %s",
			port->address, text);
	__atomic_store_n(&port->paths, paths, __ATOMIC_RELEASE);
	return ret;
}

void gnv_port_leave_paths(struct gnv_port *port)
{
	gnv_users_release(__atomic_exchange_n(&port->paths, NULL, __ATOMIC_ACQ_REL));
}

void gnv_port_close(struct gnv_port *port)
{
	struct gnv_hold *paths = __atomic_exchange_n(&port->paths, NULL, __ATOMIC_ACQ_REL);

	port->ops->close(port);
	gnv_users_release(paths);
}

const char *gnv_port_force(const struct gnv_port *port)
{
	if (port->space->by_fd)
		return "hanging up on its server";
	if (!strcmp(port->reset_name, "none"))
		return "the end of its bus mastering, for want of a reset";
	return strcmp(port->reset_name, "slot") ? "a reset of the function" : "a reset of its slot";
}

int gnv_port_cannot_share(const struct gnv_port *share, const char *own)
{
	return gnv_fail(-EINVAL, "a device opened by %s cannot share the address space of %.100s, which was opened by %s", own,
			share->address, share->ops->name);
}
