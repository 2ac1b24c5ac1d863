/* SPDX-License-Identifier: MIT */
/*
 * Base Specification 4.4 (a reset restores saved values, or defaults), 5.27 (Set Features).
 * Invariant: of commands that set the same thing only the last is kept, in the order in which they came.
 */
#include "nvme/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/features.h"
#include "nvme/identify.h"

#define FID_VECTOR 0x09
#define FID_TIMESTAMP 0x0e
#define FID_READ_RECOVERY 0x12
#define FID_LATENCY 0x13
#define FID_LATENCY_WINDOW 0x14
#define FID_GROUP_EVENTS 0x18
#define FID_PERFORMANCE 0x1c
#define FID_PLACEMENT 0x1d
#define FID_PLACEMENT_EVENTS 0x1e
#define FID_LABEL 0x1f
#define FID_DATA_QUEUE 0x21
#define FID_WRITE_PROTECT 0x84
#define THRESHOLD_OF 0x003f0000u /* of CDW11: which sensor, over or under */
#define ATTRIBUTE_OF 0x000000ffu
#define NUMBER_OF 0x0000ffffu /* of a vector, an NVM Set, an endurance group, a placement handle */

struct gnv_setting {
	struct gnv_setting *next;
	struct gpunvme_sqe cmd;
	size_t len;
	unsigned char data[];
};

static uint8_t fid_of(const struct gpunvme_sqe *cmd)
{
	return (uint8_t)cmd->cdw10;
}

/* Not those that live through a reset, or would be wrong after it: the time goes on, and data queues are deleted. */
static bool is_kept(const struct gpunvme_sqe *cmd)
{
	static const uint8_t others[] = { GPUNVME_FID_NUM_QUEUES, FID_TIMESTAMP,  FID_PLACEMENT,
					  FID_LABEL,		  FID_DATA_QUEUE, FID_WRITE_PROTECT };

	return !memchr(others, fid_of(cmd), sizeof(others));
}

/* The part of CDW11 that names the setting, not its value. */
static uint32_t subject(const struct gpunvme_sqe *cmd)
{
	switch (fid_of(cmd)) {
	case GPUNVME_FID_TEMP_THRESHOLD:
		return cmd->cdw11 & THRESHOLD_OF;
	case FID_PERFORMANCE:
		return cmd->cdw11 & ATTRIBUTE_OF;
	case FID_VECTOR:
	case FID_READ_RECOVERY:
	case FID_LATENCY:
	case FID_LATENCY_WINDOW:
	case FID_GROUP_EVENTS:
	case FID_PLACEMENT_EVENTS:
		return cmd->cdw11 & NUMBER_OF;
	default:
		return 0;
	}
}

/* A command about events of placement leaves those alone that it does not list. */
static bool replaces(const struct gpunvme_sqe *cmd, const void *data, size_t len, const struct gnv_setting *old)
{
	if (fid_of(&old->cmd) != fid_of(cmd) || old->cmd.nsid != cmd->nsid || subject(&old->cmd) != subject(cmd))
		return false;
	return fid_of(cmd) != FID_PLACEMENT_EVENTS || (data && old->len == len && !memcmp(old->data, data, len));
}

/* With the lock held. */
static void forget(struct gnv_setting **link)
{
	struct gnv_setting *old = *link;

	*link = old->next;
	free(old);
}

/* With the lock held, too. */
static void note(struct gnv_nvme *nvme, const struct gpunvme_sqe *cmd, const void *data, size_t len)
{
	struct gnv_setting *setting = len && !data ? NULL : calloc(1, sizeof(*setting) + len), **link = &nvme->settings.first;

	while (*link)
		if (replaces(cmd, data, len, *link))
			forget(link);
		else
			link = &(*link)->next;
	*link = setting;
	if (!setting) {
		gnv_log(&nvme->log, GPUNVME_LOG_ERROR, "feature 0x%02x is not kept for after a reset (%s). Set it again then",
			fid_of(cmd),
			len && !data ? "its data is not the library's" : "no memory");
		return;
	}
	setting->cmd = *cmd;
	setting->cmd.cdw10 &= ~GPUNVME_FEAT_SV; /* it is saved: again would only wear the drive */
	setting->len = len;
	if (len)
		memcpy(setting->data, data, len);
}

void gnv_settings_begin(struct gnv_nvme *nvme)
{
	pthread_mutex_lock(&nvme->settings.lock);
}

void gnv_settings_end(struct gnv_nvme *nvme, const struct gpunvme_sqe *cmd, const void *data, size_t len, int ret)
{
	if (!ret && is_kept(cmd))
		note(nvme, cmd, data, len);
	pthread_mutex_unlock(&nvme->settings.lock);
}

static int apply(struct gnv_nvme *nvme, struct gnv_setting *setting)
{
	int ret = gnv_admin_run(&nvme->admin, &setting->cmd, setting->len ? setting->data : NULL, setting->len, true, NULL);

	if (!ret)
		return 0;
	return gnv_fail(ret, "after its reset the controller does not take feature 0x%02x back: %s", fid_of(&setting->cmd),
			gpunvme_errmsg());
}

/*
 * A namespace that does not exist is refused as such, and one that is not active as an invalid field (Base Specification 3.2.1).
 * The write cache is the controller's, whatever namespace the command named. @status: of the refusal.
 */
static bool is_gone(struct gnv_nvme *nvme, const struct gpunvme_sqe *cmd, int status)
{
	const struct gnv_message cause = gnv_message();
	struct gpunvme_id_ns id;
	int ret;

	if (!cmd->nsid || cmd->nsid == GPUNVME_NSID_ALL || fid_of(cmd) == GPUNVME_FID_VWC || status < 0)
		return false;
	if ((status & GPUNVME_ST_CODE) == GPUNVME_SC_INVALID_NS)
		return true;
	if ((status & GPUNVME_ST_CODE) != GPUNVME_SC_INVALID_FIELD)
		return false;
	ret = gnv_identify_ns(nvme, cmd->nsid, &id);
	gnv_fail_again(ret, &cause);
	return !ret && !id.nsze;
}

/* With the lock held. */
static int apply_all(struct gnv_nvme *nvme)
{
	struct gnv_setting **link = &nvme->settings.first;

	while (*link) {
		const struct gpunvme_sqe *cmd = &(*link)->cmd;
		const int ret = apply(nvme, *link);

		if (!ret) {
			link = &(*link)->next;
			continue;
		}
		if (!is_gone(nvme, cmd, ret))
			return ret;
		gnv_log(&nvme->log, GPUNVME_LOG_WARN, "namespace %u is no longer active: its feature 0x%02x is not set again", cmd->nsid,
			fid_of(cmd));
		forget(link);
	}
	return 0;
}

int gnv_settings_apply(struct gnv_nvme *nvme)
{
	uint32_t granted = 0;
	int ret = gnv_features_queues(nvme, nvme->info.queues, &granted);

	if (!ret && granted < nvme->info.queues)
		return gnv_fail(-EIO, "after its reset the controller grants %u queues, before it had granted %u", granted,
				nvme->info.queues);
	pthread_mutex_lock(&nvme->settings.lock);
	if (!ret)
		ret = apply_all(nvme);
	pthread_mutex_unlock(&nvme->settings.lock);
	return ret;
}

void gnv_settings_drop(struct gnv_nvme *nvme)
{
	struct gnv_setting *setting;

	while ((setting = nvme->settings.first)) {
		nvme->settings.first = setting->next;
		free(setting);
	}
}
