/* SPDX-License-Identifier: MIT */
/*
 * Ports: ways to a controller. A port provides a pair, BAR0 as memory and an address space. Layers above do not depend on its kind.
 */
#ifndef GNV_PORT_PORT_H
#define GNV_PORT_PORT_H

#include "mem/mem.h"
#include "mem/space.h"
#include "port/uri.h"
#include "util/identity.h"
#include "util/log.h"
#include "util/medium.h"

struct gnv_port;
struct gnv_hold;

enum gnv_port_loss {
	GNV_PORT_ERROR, /* the device reported an error, and is no longer used. A reset may help */
	GNV_PORT_LOST,	/* its server is gone, or the kernel takes it away: then its registers work until the call returns */
	GNV_PORT_RESET, /* it makes no DMA any more, and is given away next */
};

/* Called on a thread of the port, for one thing after the other. @why: the cause, a clause of plain text. */
typedef void gnv_port_lost_fn(void *ctx, enum gnv_port_loss loss, const char *why);

/* Memory in a controller by its registers, with only basic checks. */
struct gnv_port_cmb {
	unsigned bar;
	uint64_t offset, size; /* in it */
};

struct gnv_port_ops {
	const char *name; /* "soft", "vfio-iommufd", ... as gpunvme_dev_info.transport */
	/*
	 * Stop the controller by force after it ignored its registers: a function reset, or the end of its threads. After success
	 * no DMA happens any more, and BAR0 must not be accessed again. Return: 0, or negative if that is not proven.
	 */
	int (*halt)(struct gnv_port *port);
	/*
	 * Function reset. After success no DMA happens, and registers are as after power on and may be used. The address space and
	 * its mappings stay. Return: 0; -EOPNOTSUPP there is none; -ENODEV it is gone; -EIO; gnv_fail() has the message.
	 */
	int (*reset)(struct gnv_port *port);
	/*
	 * Part of BAR0 as a DMA-BUF, for another device. Return: 0; -EOPNOTSUPP; -ENODEV; another negative errno; gnv_fail() has the
	 * message.
	 */
	int (*export_bar0)(struct gnv_port *port, uint64_t offset, size_t len, int *fd);
	/*
	 * Call @lost when the device is lost and when its DMA has ended, at most once each, or at once if it is lost already. A soft:
	 * controller that was reset can report GNV_PORT_ERROR again.
	 */
	void (*watch)(struct gnv_port *port, gnv_port_lost_fn *lost, void *ctx);
	/*
	 * Let it make DMA, which it must not before it was disabled: an earlier owner may have left it enabled, with rings at
	 * addresses that mean something else now. Return: 0, -EIO, -ENODEV; gnv_fail() has the message.
	 */
	int (*allow_dma)(struct gnv_port *port);
	/*
	 * Get the memory in the controller's own BAR, as much of it as is in that BAR. *iova is an unused address of the space that
	 * can be set as its base (CMBMSC). Call it once. Release the memory before the port is closed.
	 * Return: 0; -EOPNOTSUPP not by this way, or not in that place; -ENODEV; -ENOSPC; -ENOMEM; gnv_fail() has the message.
	 */
	int (*cmb)(struct gnv_port *port, const struct gnv_port_cmb *where, struct gpunvme_mem **mem, uint64_t *iova);
	/* Last: BAR0 and space go with it. The controller has been stopped. */
	void (*close)(struct gnv_port *port);
};

#define GNV_PORT_MEDIA 8u

struct gnv_port {
	const struct gnv_port_ops *ops;
	struct gnv_log log; /* for messages of its threads */
	struct gpunvme_mem *bar0;
	struct gnv_space *space;
	const char *placement;  /* as gpunvme_queue_info.placement, for threads that access BAR0 and host memory directly */
	uint32_t queues;   /* I/O queue pairs to request by default, or 0: the library's choice */
	bool far_rings;    /* of software: its I/O queues may lie in memory of a GPU that has no CPU address */
	bool remote;       /* BAR0 is a device's, not memory of the host */
	bool read_only;    /* every write is refused */
	bool faulty;       /* it has injected faults */
	struct gnv_medium medium[GNV_PORT_MEDIA]; /* of namespaces 1 and on. The last one is for all that follow */
	bool emulated;     /* software of this process is the controller. Only then the next four fields are known */
	uint32_t blocks;   /* gpunvme_dev_info.blocks */
	uint64_t link;	   /* gpunvme_dev_info.link */
	bool no_link;	   /* gpunvme_dev_info.no_link */
	uint32_t late;	   /* gpunvme_dev_info.late (atomic) */
	bool keep;         /* a GPU did not let go of a BAR: closing leaves the device open until the process ends */
	char address[64];
	struct gnv_hold *paths; /* disks of its namespaces through other controllers (atomic) */
	char reset_name[16]; /* of the reset it has, as gpunvme_dev_info.reset */
	uint16_t vendor, device; /* of its PCI function, or 0 and 0: it has none */
};

/* How ops->halt() stops its DMA, as text. If that fails, the port reports its other way. */
const char *gnv_port_force(const struct gnv_port *port);

/*
 * Open the port that the URI names. It refuses keys that were not taken, so the caller takes its own before.
 * @share: a port whose address space is used, or NULL
 * Return: 0 or what gpunvme_dev_open() documents.
 */
int gnv_port_open(struct gnv_uri *uri, const struct gnv_port *share, const struct gnv_log *log, struct gnv_port **port);

typedef int gnv_port_open_fn(struct gnv_uri *uri, const struct gnv_port *share, const struct gnv_log *log, struct gnv_port **port);
gnv_port_open_fn gnv_port_soft_open, gnv_port_pci_open, gnv_port_vfio_user_open;

/*
 * Read the keys of a soft URI for the controller (@config is valid as long as the URI), and for the model of the drive. Without
 * such keys the model is not changed. Refuses other keys. Return: 0, -EINVAL.
 */
struct gnv_soft_config;
int gnv_port_soft_config(struct gnv_uri *uri, struct gnv_soft_config *config, uint16_t *vendor, uint16_t *device);

/*
 * A namespace of an open controller may be in use through another controller of the kernel. Hold that disk until the port is
 * closed, if this user may. Call it once. Return: 0, also where no disk is visible; -EBUSY; -ENOMEM; errors of drive->nth();
 * gnv_fail() has the message.
 */
int gnv_port_hold_paths(struct gnv_port *port, const struct gnv_identity *drive);

/* Release the disks of gnv_port_hold_paths() when the controller is no longer used. Any thread. */
void gnv_port_leave_paths(struct gnv_port *port);

/* Close a port by its ops->close, and release its disks. */
void gnv_port_close(struct gnv_port *port);

/*
 * Does IOMMUFD take memory of a driver that is not vfio-pci? Of a port whose space maps by DMA-BUF, and seldom: it tries it.
 * Return: 0; -EOPNOTSUPP; -ENOENT: unknown, for want of an export; -ENODEV; another negative errno; gnv_fail() has the message.
 */
int gnv_port_takes_foreign(struct gnv_port *port);

/* The sentence for a port that cannot share. Return: -EINVAL. */
int gnv_port_cannot_share(const struct gnv_port *share, const char *own);

/* The software controller of a soft port, for tests and benchmarks that inject faults, or NULL. */
struct gnv_soft;
struct gnv_soft *gnv_port_soft(struct gnv_port *port);

#endif
