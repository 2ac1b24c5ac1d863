/* SPDX-License-Identifier: MIT */
/*
 * A PCI device held through VFIO: its config space, its BARs, its reset, its two alarms. How it was opened, by its character
 * device and an IOMMUFD (iommufd.h) or by its group and a type 1 container (type1.h), does not matter here.
 */
#ifndef GNV_OS_VFIO_VFIO_H
#define GNV_OS_VFIO_VFIO_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/linux/sysfs.h"

#define GNV_VFIO_BARS 6u

struct gnv_vfio_region {
	uint64_t offset; /* in the device's file */
	uint64_t size;   /* 0: absent */
	bool mappable;
};

/* An address space: its number in an IOMMUFD, or a type 1 container. Several devices may be attached to one. */
struct gnv_vfio_as {
	int fd; /* -1: none */
	uint32_t ioas;
};

enum gnv_vfio_reset_way {
	GNV_VFIO_RESET_NONE,
	GNV_VFIO_RESET_FUNCTION, /* of the function, in whichever way the kernel has */
	GNV_VFIO_RESET_SLOT,	 /* hot reset of its slot, in which nothing else is */
};

struct gnv_vfio {
	char bdf[GNV_BDF_BYTES];
	int fd; /* -1 once released */
	struct gnv_vfio_as as;
	int group; /* -1 where it was opened by its character device */
	enum gnv_vfio_reset_way reset_way;
	struct gnv_vfio_region bar[GNV_VFIO_BARS];
	struct gnv_vfio_region config;
};

/*
 * gnv_vfio_open() - take a device in one of the two ways and get its regions
 * @take:  opens the address space, or a second descriptor of @share, and the device. After a failure, open descriptors are closed
 * @share: the address space to attach to, or NULL: make one
 * Return: 0 or a negative errno; gnv_fail() has the message.
 */
typedef int gnv_vfio_take(const struct gnv_pci *pci, const struct gnv_vfio_as *share, struct gnv_vfio *vfio);
int gnv_vfio_open(gnv_vfio_take *take, const struct gnv_pci *pci, const struct gnv_vfio_as *share, struct gnv_vfio *vfio);

/* A device node. @remedy: for where it does not exist. Return: a descriptor or a negative errno; gnv_fail() has the message. */
int gnv_vfio_node(const char *path, const char *remedy);

/* A descriptor of one's own of the same address space. Return: 0, -EMFILE; gnv_fail() has the message. */
int gnv_vfio_as_dup(const struct gnv_vfio_as *as, struct gnv_vfio_as *own);
void gnv_vfio_as_close(struct gnv_vfio_as *as);

/* Let it decode its BARs, without INTx, as VFIO does not leave it at open. Return: 0, -EIO. */
int gnv_vfio_enable(const struct gnv_vfio *vfio);

/* Let it make DMA, which VFIO takes away at open. Return: 0, -EIO. */
int gnv_vfio_master(const struct gnv_vfio *vfio);

/* Reset of the function or of its slot. Exports of its BARs are dead. Return: 0; -EOPNOTSUPP it has none; -ENODEV it was
 * released; -EIO; gnv_fail() has the message. */
int gnv_vfio_reset(const struct gnv_vfio *vfio);

enum gnv_vfio_end { GNV_VFIO_END_RESET, GNV_VFIO_END_MASTER, GNV_VFIO_END_GONE };

/*
 * Reset the device, or, if that is not possible or fails, switch off bus mastering: after success it makes no DMA. @end: the way,
 * or that the device is gone. Return: 0, -EIO.
 */
int gnv_vfio_quiesce(const struct gnv_vfio *vfio, enum gnv_vfio_end *end);

/* Map part of a BAR, with offset and length in pages. Return: 0 or a negative errno; gnv_fail() has the message. */
int gnv_vfio_map(const struct gnv_vfio *vfio, unsigned bar, uint64_t offset, size_t len, void **ptr);

/* The address of a BAR on the bus. Return: 0; -ENOENT it has none, or is no memory; -EIO. */
int gnv_vfio_bar_address(const struct gnv_vfio *vfio, unsigned bar, uint64_t *address);

/* Where the MSI-X table and pending bits lie. Return: 0; -ENOENT the device has none; -EIO. */
int gnv_vfio_msix(const struct gnv_vfio *vfio, unsigned bar[2], struct gnv_range range[2]);

/*
 * gnv_vfio_export() - export part of a BAR as a DMA-BUF
 * @times: 1, or 2: it is in it twice, as two ranges
 * @fd: set to a new descriptor. NULL: only test whether the kernel can
 * Return: 0; -EOPNOTSUPP the kernel cannot; another negative errno. gnv_fail() has the message.
 */
int gnv_vfio_export(const struct gnv_vfio *vfio, unsigned bar, uint64_t offset, uint64_t len, unsigned times, int *fd);

/* Close the device only: somebody waits for it. Its address space stays until gnv_vfio_close(). */
void gnv_vfio_release(struct gnv_vfio *vfio);

/* Whether it was released. Any thread may call it. */
bool gnv_vfio_released(const struct gnv_vfio *vfio);

/* Close the device, then its container or IOMMUFD. The caller removes mappings of BARs before. */
void gnv_vfio_close(struct gnv_vfio *vfio);

/*
 * The watcher: a thread that waits for VFIO's two alarms, "give the device back" (REQ) and "it reported an error" (ERR).
 * @alarm runs on that thread, at most once for each.
 */
typedef void gnv_vfio_alarm(void *ctx, bool must_release);

struct gnv_vfio_watch {
	pthread_t thread;
	gnv_vfio_alarm *alarm;
	void *ctx;
	int req, err, quit; /* eventfds. err is -1 if the device cannot report errors */
};

/* Return: 0 or a negative errno; gnv_fail() has the message. */
int gnv_vfio_watch_start(struct gnv_vfio_watch *watch, const struct gnv_vfio *vfio, gnv_vfio_alarm *alarm, void *ctx);

/* After it no alarm runs any more. */
void gnv_vfio_watch_stop(struct gnv_vfio_watch *watch);

#endif
