/* SPDX-License-Identifier: MIT */
/* A controller from reset to identified, and to its end: Base Specification 3.5.1 (initialisation), 3.6 (shutdown). */
#include "nvme/nvme.h"

#include <stdio.h>

#include "nvme/cmb.h"
#include "nvme/features.h"
#include "nvme/hmb.h"
#include "nvme/identify.h"
#include "nvme/reset.h"
#include "nvme/settings.h"
#include "nvme/multipath.h"
#include "util/bits.h"

#define ADMIN_TIMEOUT_MS 60000u
#define QUEUES_AUTO 128u
#define REST_MS 2300u /* as Linux waits, found by trying */

void gnv_nvme_init(struct gnv_nvme *nvme, struct gnv_port *port, const struct gnv_log *log)
{
	nvme->log = *log;
	nvme->port = port;
	pthread_mutex_init(&nvme->bar0_lock, NULL);
	pthread_mutex_init(&nvme->settings.lock, NULL);
}

int gnv_nvme_look(struct gnv_nvme *nvme)
{
	int ret = gnv_quirks_find(nvme->port->vendor, nvme->port->device, &nvme->drive);

	if (!ret)
		ret = gnv_quirks_refuse(&nvme->drive);
	if (!ret)
		ret = gnv_ctrl_init(&nvme->ctrl, nvme->port->bar0);
	if (!ret && nvme->drive.quirks & GNV_QUIRK_SLOW_READY)
		nvme->ctrl.rest_ms = REST_MS;
	return ret;
}

void gnv_nvme_fini(struct gnv_nvme *nvme)
{
	pthread_mutex_destroy(&nvme->bar0_lock);
	pthread_mutex_destroy(&nvme->settings.lock);
	gnv_settings_drop(nvme);
}

void gnv_nvme_fence_off(struct gnv_nvme *nvme, bool reset)
{
	int ret;

	pthread_mutex_lock(&nvme->bar0_lock);
	ret = gnv_mem_fence_off(nvme->port->bar0, reset);
	if (nvme->cmb.arena) {
		int failed = gnv_arena_fence_off(nvme->cmb.arena, reset);

		if (!ret)
			ret = failed;
	}
	pthread_mutex_unlock(&nvme->bar0_lock);
	if (ret)
		gnv_log(&nvme->log, GPUNVME_LOG_WARN, "%s: threads that still ring its doorbells may fault: %s",
			nvme->port->address,
			gpunvme_errmsg());
}

/* Politely, then by CC.EN, then by force. */
bool gnv_nvme_stop_dma(struct gnv_nvme *nvme)
{
	if (!nvme->ctrl.enabled)
		return true;
	if (!gnv_ctrl_dead(&nvme->ctrl) && gnv_ctrl_shutdown(&nvme->ctrl))
		gnv_log(&nvme->log, GPUNVME_LOG_WARN, "%s", gpunvme_errmsg());
	if (!gnv_ctrl_disable(&nvme->ctrl))
		return true;
	gnv_log(&nvme->log, GPUNVME_LOG_WARN, "%s. Halting it by %s", gpunvme_errmsg(), gnv_port_force(nvme->port));
	gnv_nvme_fence_off(nvme, false);
	nvme->ctrl.enabled = nvme->port->ops->halt(nvme->port);
	gnv_nvme_fence_off(nvme, true);
	return !nvme->ctrl.enabled;
}

void gnv_nvme_describe(struct gnv_nvme *nvme, uint32_t default_ns)
{
	struct gpunvme_dev_info *info = &nvme->info;

	info->size = sizeof(*info);
	snprintf(info->transport, sizeof(info->transport), "%s", nvme->port->ops->name);
	snprintf(info->address, sizeof(info->address), "%s", nvme->port->address);
	info->vs = nvme->ctrl.vs;
	info->default_ns = default_ns;
	info->page_size = nvme->ctrl.page_size;
	info->max_depth = nvme->ctrl.max_depth;
	info->dstrd = nvme->ctrl.dstrd;
	info->read_only = nvme->port->read_only;
	info->faulty = nvme->port->faulty;
	info->emulated = nvme->port->emulated;
	info->link = nvme->port->link;
	info->no_link = nvme->port->no_link;
	info->blocks = nvme->port->blocks;
	snprintf(info->reset, sizeof(info->reset), "%s", nvme->port->reset_name);
	gnv_quirks_text(nvme->drive.quirks, info->quirks);
}

static int set_queues(struct gnv_nvme *nvme, uint32_t want)
{
	uint32_t room = gnv_ctrl_max_queues(&nvme->ctrl);

	if (!want)
		want = nvme->port->queues ? nvme->port->queues : QUEUES_AUTO;
	if (want > room)
		want = room;
	return gnv_features_queues(nvme, want, &nvme->info.queues);
}

static void tell_quirks(const struct gnv_nvme *nvme)
{
	uint32_t left;

	for (left = nvme->drive.quirks; left; left &= left - 1)
		gnv_log(&nvme->log, GPUNVME_LOG_INFO, "%s: %s", nvme->drive.name[0] ? nvme->drive.name : nvme->port->address,
			gnv_quirk_message(left));
}

int gnv_nvme_bring_up(struct gnv_nvme *nvme, const struct gpunvme_dev_opts *opts)
{
	int ret = gnv_admin_init(&nvme->admin, &nvme->ctrl, nvme->arena,
				 opts->admin_timeout_ms ? opts->admin_timeout_ms : ADMIN_TIMEOUT_MS);

	if (ret)
		return ret;
	gnv_cmb_open(nvme);
	ret = gnv_reset(nvme, NULL, NULL);
	if (ret)
		return ret;
	tell_quirks(nvme);
	gnv_log(&nvme->log, GPUNVME_LOG_DEBUG, "reset and ready");
	ret = gnv_identify_ctrl(nvme);
	if (ret)
		return ret;
	ret = gnv_identify_default(nvme);
	if (ret)
		return ret;
	ret = gnv_multipath_hold(nvme);
	if (ret)
		return ret;
	ret = set_queues(nvme, opts->queues);
	if (ret)
		return ret;
	gnv_log(&nvme->log, GPUNVME_LOG_DEBUG, "identified: %s, %u queues", nvme->info.model, nvme->info.queues);
	return 0;
}
