/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing a controller: Base Specification 3.5.1 (initialisation), 3.6 (shutdown).
 * Invariant, the law of teardown: DMA is stopped, then IOVAs are unmapped, then memory is given back. Where DMA cannot be proven
 * stopped, what the controller can reach is leaked.
 */
#include "nvme/dev.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "nvme/doorbell.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "nvme/map.h"
#include "nvme/place.h"
#include "nvme/qp.h"
#include "nvme/recover.h"
#include "nvme/ringtest.h"
#include "util/bits.h"
#include "util/opts.h"

#define ADMIN_TIMEOUT_MS 60000u
#define QUEUES_AUTO 128u
#define QUEUES_MAX 65535u

/* Politely, then by CC.EN, then by force. True when the controller makes no DMA any more. */
static bool stop_dma(struct gpunvme_dev *dev)
{
	if (!dev->ctrl.enabled)
		return true;
	if (!gnv_ctrl_dead(&dev->ctrl) && gnv_ctrl_shutdown(&dev->ctrl))
		gnv_log(&dev->log, GPUNVME_LOG_WARN, "%s", gpunvme_errmsg());
	if (!gnv_ctrl_disable(&dev->ctrl))
		return true;
	gnv_log(&dev->log, GPUNVME_LOG_WARN, "%s; halting it", gpunvme_errmsg());
	return !dev->port->ops->halt(dev->port);
}

static void leak(struct gpunvme_dev *dev)
{
	gnv_log(&dev->log, GPUNVME_LOG_ERROR,
		"the controller at %s could not be stopped: its queues, and all memory mapped to it, are leaked on purpose",
		dev->info.address);
	gnv_map_leak_all(dev); /* and dev with its arena and port stay as they are: the controller may be writing there */
}

/* Everything from a device whose lock, forwarder and arena exist. */
static void teardown(struct gpunvme_dev *dev)
{
	gnv_forward_fini(&dev->forward);
	if (!stop_dma(dev)) {
		leak(dev);
		return;
	}
	while (dev->qps)
		gnv_qp_release(dev->qps);
	gnv_map_drop_all(dev);
	gnv_admin_fini(&dev->admin);
	gnv_place_drop_all(dev);
	gnv_arena_destroy(dev->arena);
	dev->port->ops->close(dev->port);
	pthread_mutex_destroy(&dev->lock);
	pthread_mutex_destroy(&dev->bar0_lock);
	pthread_mutex_destroy(&dev->queues_lock);
	pthread_mutex_destroy(&dev->place_lock);
	free(dev->qids);
	free(dev);
}

/* Runs on a thread of the port. */
static void device_lost(void *ctx)
{
	struct gpunvme_dev *dev = ctx;

	gnv_ctrl_kill(&dev->ctrl, -ENODEV);
	gnv_qp_end_all(dev, GPUNVME_ENODEV);
}

static void rings_lost(void *ctx)
{
	gnv_qp_end_all(ctx, GPUNVME_ENODEV);
}

int gnv_dev_lend(struct gpunvme_dev *dev, struct gpunvme_mem *mem)
{
	return gnv_arena_lend(dev->arena, mem, rings_lost, dev);
}

static void describe(struct gpunvme_dev *dev, uint32_t default_ns)
{
	struct gpunvme_dev_info *info = &dev->info;

	info->size = sizeof(*info);
	snprintf(info->transport, sizeof(info->transport), "%s", dev->port->ops->name);
	snprintf(info->address, sizeof(info->address), "%s", dev->port->address);
	info->vs = dev->ctrl.vs;
	info->default_ns = default_ns;
	info->page_size = dev->ctrl.page_size;
	info->max_depth = dev->ctrl.max_depth;
	info->dstrd = dev->ctrl.dstrd;
	info->read_only = dev->port->read_only;
}

static int settle_queues(struct gpunvme_dev *dev, uint32_t want)
{
	uint32_t room = gnv_ctrl_max_queues(&dev->ctrl);
	int ret;

	if (!want)
		want = QUEUES_AUTO;
	if (want > room)
		want = room;
	ret = gnv_features_queues(dev, want, &dev->info.queues);
	if (ret)
		return ret;
	dev->qids = calloc(dev->info.queues / 64 + 1, sizeof(*dev->qids));
	return dev->qids ? 0 : gnv_fail(-ENOMEM, "out of memory");
}

static int bring_up(struct gpunvme_dev *dev, const struct gpunvme_dev_opts *opts)
{
	int ret = gnv_admin_start(&dev->admin, &dev->ctrl, dev->arena,
				  opts->admin_timeout_ms ? opts->admin_timeout_ms : ADMIN_TIMEOUT_MS);

	if (ret)
		return ret;
	gnv_log(&dev->log, GPUNVME_LOG_DEBUG, "reset and ready");
	ret = gnv_identify_ctrl(dev);
	if (!ret)
		ret = settle_queues(dev, opts->queues);
	if (!ret)
		gnv_log(&dev->log, GPUNVME_LOG_DEBUG, "identified: %s, %u queues", dev->info.model, dev->info.queues);
	return ret;
}

int gnv_dev_create(struct gnv_port *port, const struct gpunvme_dev_opts *opts, uint32_t default_ns, struct gpunvme_dev **out)
{
	struct gpunvme_dev *dev = calloc(1, sizeof(*dev));
	char cause[512];
	int ret;

	if (!dev) {
		ret = gnv_fail(-ENOMEM, "out of memory");
		goto close_port;
	}
	dev->log = (struct gnv_log){ opts->log, opts->log_ctx };
	dev->port = port;
	gnv_log(&dev->log, GPUNVME_LOG_DEBUG, "%s: taken by %s", port->address, port->ops->name);
	ret = gnv_ctrl_init(&dev->ctrl, port->bar0);
	if (!ret)
		ret = gnv_arena_create(port->space, dev->ctrl.page_size, NULL, &dev->log, &dev->arena);
	if (ret)
		goto free_dev;
	dev->rings = GNV_RINGTEST_RINGS;
	dev->ring_late_ns = GNV_RINGTEST_LATE_NS;
	dev->ring_lost_ns = GNV_RINGTEST_LOST_NS;
	pthread_mutex_init(&dev->queues_lock, NULL);
	pthread_mutex_init(&dev->bar0_lock, NULL);
	pthread_mutex_init(&dev->place_lock, NULL);
	pthread_mutex_init(&dev->lock, NULL);
	gnv_forward_init(&dev->forward);
	describe(dev, default_ns);
	port->ops->watch(port, device_lost, dev);
	ret = bring_up(dev, opts);
	if (!ret && opts->watchdog_ms)
		ret = gnv_watchdog_start(dev, opts->watchdog_ms);
	if (!ret) {
		*out = dev;
		return 0;
	}
	snprintf(cause, sizeof(cause), "%s", gpunvme_errmsg());
	teardown(dev);
	return gnv_fail(ret, "%s", cause);

free_dev:
	free(dev);
close_port:
	port->ops->close(port);
	return ret;
}

static int check_opts(const struct gpunvme_dev_opts *opts)
{
	if (opts->reserved)
		return gnv_fail(-EINVAL, "gpunvme_dev_opts.reserved must be 0");
	if (opts->queues > QUEUES_MAX)
		return gnv_fail(-EINVAL, "%u queues are more than a controller can have, %u", opts->queues, QUEUES_MAX);
	if (opts->share && gnv_ctrl_dead(&opts->share->ctrl))
		return gnv_fail(-ENODEV, "the device to share with is dead since an earlier failure; close it and open it again");
	return 0;
}

static int open_parsed(struct gnv_uri *uri, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev)
{
	const struct gnv_log log = { opts->log, opts->log_ctx };
	struct gnv_port *port = NULL;
	uint32_t ns = 1;
	int ret = gnv_uri_take_u32(uri, "ns", 1, GPUNVME_NSID_ALL - 1, &ns);

	if (!ret)
		ret = gnv_port_open(uri, opts->share ? opts->share->port : NULL, &log, &port);
	if (ret)
		return ret;
	return gnv_dev_create(port, opts, ns, dev);
}

GPUNVME_API int gpunvme_dev_open(const char *text, const struct gpunvme_dev_opts *user, struct gpunvme_dev **dev)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gnv_uri uri;
	int ret;

	if (!text || !dev)
		return gnv_fail(-EINVAL, "gpunvme_dev_open: uri and dev must not be NULL");
	ret = gnv_opts_copy(&opts, sizeof(opts), user, "gpunvme_dev_opts");
	if (!ret)
		ret = check_opts(&opts);
	if (!ret)
		ret = gnv_uri_parse(text, &uri);
	if (ret)
		return ret;
	ret = open_parsed(&uri, &opts, dev);
	gnv_uri_fini(&uri);
	return ret;
}

GPUNVME_API void gpunvme_dev_close(struct gpunvme_dev *dev)
{
	struct gpunvme_qp *qp, *next;

	if (!dev)
		return;
	gnv_watchdog_stop(&dev->watchdog);
	gnv_qp_drop_old(dev, NULL);
	for (qp = dev->qps; qp; qp = next) {
		next = qp->next;
		if (!qp->zombie)
			gpunvme_qp_destroy(qp); /* what it cannot delete is released after the controller has stopped */
	}
	teardown(dev);
}

GPUNVME_API int gpunvme_dev_info(const struct gpunvme_dev *dev, struct gpunvme_dev_info *info)
{
	if (!dev)
		return gnv_fail(-EINVAL, "gpunvme_dev_info: dev must not be NULL");
	return gnv_info_copy(info, &dev->info, sizeof(dev->info), "gpunvme_dev_info");
}

GPUNVME_API int gpunvme_dev_export_doorbells(struct gpunvme_dev *dev, int *fd, uint64_t *offset, size_t *len)
{
	size_t start, size;
	int ret;

	if (!dev || !fd || !offset || !len)
		return gnv_fail(-EINVAL, "gpunvme_dev_export_doorbells: dev, fd, offset and len must not be NULL");
	if (gnv_ctrl_dead(&dev->ctrl))
		return gnv_fail(-ENODEV, "the controller is dead since an earlier failure; close it and open it again");
	gnv_doorbells_part(dev, &start, &size);
	ret = dev->port->ops->export_bar0(dev->port, start, size, fd);
	if (ret)
		return ret;
	*offset = start;
	*len = size;
	return 0;
}

struct gnv_soft *gnv_dev_soft(struct gpunvme_dev *dev)
{
	return gnv_port_soft(dev->port);
}
