/* SPDX-License-Identifier: MIT */
/*
 * The table of ports.
 * Invariant: one line per scheme; an open function either hands over a complete port or leaves nothing behind.
 */
#include "port/port.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"

static const struct {
	const char *scheme;
	int (*open)(struct gnv_uri *uri, const struct gnv_log *log, struct gnv_port **port);
} ports[] = {
	{ "soft", gnv_port_soft_open },
	{ "pci", gnv_port_pci_open },
};

int gnv_port_open(struct gnv_uri *uri, const struct gnv_log *log, struct gnv_port **port)
{
	size_t i;

	for (i = 0; i < GNV_ARRAY_LEN(ports); i++)
		if (!strcmp(ports[i].scheme, uri->scheme))
			return ports[i].open(uri, log, port);
	return gnv_fail(-EINVAL, "scheme '%s' is not known; valid: soft, pci", uri->scheme);
}
