/* SPDX-License-Identifier: MIT */
/* A controller from reset to identified, and to its end: Base Specification 3.5.1 (initialisation), 3.6 (shutdown). */
#include "nvme/dev.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/cmb.h"
#include "nvme/features.h"
#include "nvme/hmb.h"
#include "nvme/identify.h"
#include "nvme/reset.h"
#include "nvme/twins.h"
#include "util/bits.h"
#include "util/opts.h"
#include "util/process.h"

#define ADMIN_TIMEOUT_MS 60000u
#define QUEUES_AUTO 128u
#define REST_MS 2300u /* as Linux waits, found by trying */

void gnv_dev_blind(struct gpunvme_dev *dev, bool reset)
{
	int ret;

	pthread_mutex_lock(&dev->bar0_lock);
	ret = gnv_mem_blind(dev->port->bar0, reset);
	if (dev->cmb) {
		int failed = gnv_arena_blind(dev->cmb, reset);

		ret = ret ? ret : failed;
	}
	pthread_mutex_unlock(&dev->bar0_lock);
	if (ret)
		gnv_log(&dev->log, GPUNVME_LOG_WARN, "%s: lanes that still ring its doorbells may fault: %s", dev->port->address,
			gpunvme_errmsg());
}

/* Politely, then by CC.EN, then by force. */
bool gnv_dev_stop_dma(struct gpunvme_dev *dev)
{
	if (!dev->ctrl.enabled)
		return true;
	if (!gnv_ctrl_dead(&dev->ctrl) && gnv_ctrl_shutdown(&dev->ctrl))
		gnv_log(&dev->log, GPUNVME_LOG_WARN, "%s", gpunvme_errmsg());
	if (!gnv_ctrl_disable(&dev->ctrl))
		return true;
	gnv_log(&dev->log, GPUNVME_LOG_WARN, "%s; halting it by %s", gpunvme_errmsg(), gnv_port_force(dev->port));
	gnv_dev_blind(dev, false);
	dev->ctrl.enabled = dev->port->ops->halt(dev->port);
	gnv_dev_blind(dev, true);
	return !dev->ctrl.enabled;
}

void gnv_dev_describe(struct gpunvme_dev *dev, uint32_t default_ns)
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
	snprintf(info->reset, sizeof(info->reset), "%s", dev->port->reset_name);
	gnv_quirks_text(dev->drive.quirks, info->quirks);
}

static int settle_queues(struct gpunvme_dev *dev, uint32_t want)
{
	uint32_t room = gnv_ctrl_max_queues(&dev->ctrl);
	int ret;

	if (!want)
		want = dev->port->queues ? dev->port->queues : QUEUES_AUTO;
	if (want > room)
		want = room;
	ret = gnv_features_queues(dev, want, &dev->info.queues);
	if (ret)
		return ret;
	dev->qids = calloc(dev->info.queues / 64 + 1, sizeof(*dev->qids));
	return dev->qids ? 0 : gnv_fail(-ENOMEM, "out of memory");
}

static void tell_quirks(const struct gpunvme_dev *dev)
{
	uint32_t left;

	for (left = dev->drive.quirks; left; left &= left - 1)
		gnv_log(&dev->log, GPUNVME_LOG_INFO, "%s: %s", dev->drive.name[0] ? dev->drive.name : dev->port->address,
			gnv_quirk_sentence(left));
}

int gnv_dev_bring_up(struct gpunvme_dev *dev, const struct gpunvme_dev_opts *opts)
{
	int ret;

	dev->ctrl.rest_ms = dev->drive.quirks & GNV_QUIRK_SLOW_READY ? REST_MS : 0;
	ret = gnv_admin_init(&dev->admin, &dev->ctrl, dev->arena,
			     opts->admin_timeout_ms ? opts->admin_timeout_ms : ADMIN_TIMEOUT_MS);

	if (!ret) {
		gnv_cmb_open(dev);
		ret = gnv_reset(dev, NULL);
	}
	if (ret)
		return ret;
	tell_quirks(dev);
	gnv_log(&dev->log, GPUNVME_LOG_DEBUG, "reset and ready");
	ret = gnv_identify_ctrl(dev);
	if (!ret)
		ret = gnv_twins_hold(dev);
	if (!ret)
		ret = settle_queues(dev, opts->queues);
	if (!ret)
		gnv_log(&dev->log, GPUNVME_LOG_DEBUG, "identified: %s, %u queues", dev->info.model, dev->info.queues);
	return ret;
}

GPUNVME_API int gpunvme_dev_get_info(const struct gpunvme_dev *dev, struct gpunvme_dev_info *info)
{
	struct gpunvme_dev_info now;

	if (!dev)
		return gnv_fail(-EINVAL, "gpunvme_dev_get_info: dev must not be NULL");
	if (gnv_foreign(dev->process))
		return -ECHILD;
	now = dev->info;
	now.hmb = gnv_hmb_used(dev);
	return gnv_info_copy(info, &now, gpunvme_dev_info);
}

struct gnv_soft *gnv_dev_soft(struct gpunvme_dev *dev)
{
	return gnv_port_soft(dev->port);
}
