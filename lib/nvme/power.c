/* SPDX-License-Identifier: MIT */
/* Base Specification 5.27.1.2 (Power Management), 5.27.1.9 (Autonomous Power State Transition), 8.1.17. */
#include "nvme/power.h"

#include <errno.h>
#include <string.h>

#include "nvme/features.h"

#define APST_TABLE 256u

int gnv_power_parse(const char *word, enum gnv_power *power)
{
	*power = word && !strcmp(word, "performance") ? GNV_POWER_PERFORMANCE : GNV_POWER_LEAVE;
	if (!word || *power || !strcmp(word, "leave"))
		return 0;
	return gnv_fail(-EINVAL, "power=%.40s in the URI: must be leave or performance", word);
}

/* Set one feature. Return: 0, also if the drive refuses it, which is logged. Negative: no completion. */
static int set_feature(struct gnv_nvme *nvme, uint8_t fid, void *table, const char *what)
{
	struct gpunvme_sqe get = { .opc = GPUNVME_ADMIN_GET_FEATURES, .cdw10 = fid };
	struct gpunvme_sqe set = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = fid };
	const size_t len = table ? APST_TABLE : 0;
	uint64_t zeroes[APST_TABLE / 8] = { 0 };
	uint32_t was = 0;
	int ret = gnv_features_admin(nvme, &get, table, len, 0, &was);

	if (!ret)
		ret = gnv_features_admin(nvme, &set, table ? zeroes : NULL, len, 1, NULL);
	if (ret < 0)
		return ret;
	if (ret)
		gnv_log(&nvme->log, GPUNVME_LOG_WARN, "the drive keeps its %s: %s", what, gpunvme_errmsg());
	else if (table)
		nvme->power.apst = was;
	else
		nvme->power.state = was;
	return 0;
}

int gnv_power_apply(struct gnv_nvme *nvme, enum gnv_power power)
{
	int ret = 0;

	if (nvme->power.has_apst && (power == GNV_POWER_PERFORMANCE || nvme->drive.quirks & GNV_QUIRK_NO_DEEPEST_PS))
		ret = set_feature(nvme, GPUNVME_FID_APST, nvme->power.table, "own changes of its power state");
	if (!ret && power == GNV_POWER_PERFORMANCE)
		ret = set_feature(nvme, GPUNVME_FID_POWER, NULL, "power state");
	return ret;
}

void gnv_power_restore(struct gnv_nvme *nvme)
{
	struct gpunvme_sqe power = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = GPUNVME_FID_POWER, .cdw11 = nvme->power.state };
	struct gpunvme_sqe apst = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = GPUNVME_FID_APST, .cdw11 = nvme->power.apst };

	if (nvme->power.state && !gnv_ctrl_dead(&nvme->ctrl))
		gnv_admin_run(&nvme->admin, &power, NULL, 0, true, NULL);
	if (nvme->power.apst && !gnv_ctrl_dead(&nvme->ctrl))
		gnv_admin_run(&nvme->admin, &apst, nvme->power.table, APST_TABLE, true, NULL);
}
