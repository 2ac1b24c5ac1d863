/* SPDX-License-Identifier: MIT */
/*
 * Ports: ways to a controller. A port yields a pair, BAR0 as memory and an address space, and nothing above it asks which kind
 * it is.
 */
#ifndef GNV_PORT_PORT_H
#define GNV_PORT_PORT_H

#include "mem/mem.h"
#include "mem/space.h"
#include "port/uri.h"
#include "util/log.h"

struct gnv_port;

/* The device is no longer usable: it reported an error, or somebody takes it away. Called on a thread of the port. */
typedef void gnv_port_lost_fn(void *ctx);

struct gnv_port_ops {
	const char *name; /* "soft", "vfio-iommufd", ... as gpunvme_dev_info.transport */
	/*
	 * Stop the controller by force, when it did not obey its registers (a function reset; the end of its threads). After
	 * success no DMA happens any more, and BAR0 must not be touched again. Return: 0, or negative when that is not proven.
	 */
	int (*halt)(struct gnv_port *port);
	/*
	 * Part of BAR0 as a DMA-BUF, for a peer. Return: 0; -EOPNOTSUPP; -ENODEV; another negative errno; gnv_fail() has the
	 * sentence.
	 */
	int (*export_bar0)(struct gnv_port *port, uint64_t offset, size_t len, int *fd);
	/* From now on, and at most once, call @lost when the device is lost; at once if it is already. */
	void (*watch)(struct gnv_port *port, gnv_port_lost_fn *lost, void *ctx);
	/* Last: BAR0 and space go with it. The controller has been stopped. */
	void (*close)(struct gnv_port *port);
};

struct gnv_port {
	const struct gnv_port_ops *ops;
	struct gpunvme_mem *bar0;
	struct gnv_space *space;
	const char *rung;  /* as gpunvme_qp_info.rung, for lanes that reach BAR0 and host memory directly */
	bool remote;       /* BAR0 is a device's, not memory of the host */
	bool read_only;    /* every write is refused */
	bool keep;         /* a GPU did not let go of BAR0: closing leaves the device open until the process ends */
	char address[64];
};

/*
 * Open the port that the URI names. Refuses keys that nobody took, so the caller takes its own before.
 * @share: a port whose address space is used, or NULL
 * Return: 0 or what gpunvme_dev_open() documents.
 */
int gnv_port_open(struct gnv_uri *uri, const struct gnv_port *share, const struct gnv_log *log, struct gnv_port **port);

typedef int gnv_port_open_fn(struct gnv_uri *uri, const struct gnv_port *share, const struct gnv_log *log, struct gnv_port **port);
gnv_port_open_fn gnv_port_soft_open, gnv_port_pci_open;

/* The sentence for a port that cannot share. Return: -EINVAL. */
int gnv_port_cannot_share(const struct gnv_port *share, const char *own);

/* The software controller behind a soft port, for tests and benchmarks that inject faults; NULL for other ports. */
struct gnv_soft;
struct gnv_soft *gnv_port_soft(struct gnv_port *port);

#endif
