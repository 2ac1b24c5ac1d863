/* SPDX-License-Identifier: MIT */
/* Shared by the ports through VFIO: the device, BAR0, the watcher and the order of closing. */
#ifndef GNV_PORT_VFIO_DEVICE_H
#define GNV_PORT_VFIO_DEVICE_H

#include <pthread.h>

#include "os/vfio/vfio.h"
#include "port/port.h"

struct gnv_port_vfio {
	struct gnv_port port;
	struct gnv_vfio vfio;
	struct gpunvme_mem bar0;
	struct gnv_vfio_watch watch;
	pthread_mutex_t lock; /* protects all below, and vfio.fd against the watcher */
	gnv_port_lost_fn *lost;
	void *lost_ctx;
	bool is_lost;
	struct gpunvme_mem *cmb; /* of vfio_cmb.c, or NULL */
	enum gnv_port_loss loss;
};

/* A way to take a device and to make its address space. */
struct gnv_vfio_way {
	const struct gnv_port_ops *ops;
	gnv_vfio_take *take;
	int (*space)(const struct gnv_vfio *vfio, struct gnv_space **space);
};

extern const struct gnv_vfio_way gnv_way_iommufd; /* port_vfio_iommufd.c */
extern const struct gnv_vfio_way gnv_way_type1;   /* port_vfio_type1.c */
extern const struct gnv_vfio_way gnv_way_noiommu; /* port_vfio_noiommu.c */

/*
 * Choose the way by the URI's `port` (NULL: auto) and the features of this machine, `noiommu` only by name. Return: 0; -EINVAL,
 * -ENODEV, -EACCES; for noiommu also -EOPNOTSUPP, -EPERM, -EBUSY.
 */
int gnv_vfio_choose(const char *port, const struct gnv_pci *pci, const struct gnv_vfio_way **way);

/*
 * Take the device: its controller is reset where it can be, and makes no DMA before gnv_port_ops.allow_dma. @share: a port of
 * the same way, or NULL. Return: 0 or a negative errno; gnv_fail() has the message.
 */
int gnv_port_vfio_open(const struct gnv_vfio_way *way, const struct gnv_pci *pci, const struct gnv_port *share,
		       const struct gnv_log *log, struct gnv_port **port);

/* For the ops of the three ports. */
int gnv_port_vfio_halt(struct gnv_port *port);
int gnv_port_vfio_reset(struct gnv_port *port);
int gnv_port_vfio_export(struct gnv_port *port, uint64_t offset, size_t len, int *fd);
void gnv_port_vfio_watch(struct gnv_port *port, gnv_port_lost_fn *lost, void *ctx);
int gnv_port_vfio_allow_dma(struct gnv_port *port);
int gnv_port_vfio_cmb(struct gnv_port *port, const struct gnv_port_cmb *where, struct gpunvme_mem **mem, uint64_t *iova);
void gnv_port_vfio_close(struct gnv_port *port);

/* A part of BAR0 in two ranges of one DMA-BUF, each all of it. Return: as export_bar0. */
int gnv_port_vfio_export_twice(struct gnv_port *port, uint64_t offset, size_t len, int *fd);

/* Test mapping a part of BAR0 as another device would offer it, and close @fd. Return: as the space's map. */
int gnv_port_map_export(struct gnv_port *port, int fd, size_t len);

/* Is the device still this process's, and will be? With the lock held. Return: 0, -ENODEV. */
int gnv_port_vfio_held(const struct gnv_port_vfio *pv);

#endif
