/* SPDX-License-Identifier: MIT */
/* Namespaces of an open device. nvme/identify.h and nvme/features.h ask the controller. */
#include <errno.h>

#include "dev/dev.h"
#include "nvme/features.h"
#include "nvme/identify.h"
#include "util/entry.h"

GPUNVME_API int gpunvme_ns_get_info(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_ns_info *info)
{
	if (!dev || !info)
		return gnv_null("dev and info");
	return gnv_identify_namespace(&dev->nvme, nsid, info);
}

GPUNVME_API int gpunvme_ns_may_overwrite(struct gpunvme_dev *dev, uint32_t nsid)
{
	if (!dev)
		return gnv_null("dev");
	return gnv_identify_may_overwrite(&dev->nvme, nsid);
}

GPUNVME_API int gpunvme_ns_list(struct gpunvme_dev *dev, uint32_t *nsids, uint32_t *count)
{
	if (!dev || !count || (*count && !nsids))
		return gnv_null("dev, count and nsids");
	return gnv_identify_list(&dev->nvme, nsids, count);
}

static int pick_namespace(const struct gpunvme_dev *dev, uint32_t *nsid)
{
	const struct gpunvme_dev_info *info = &dev->nvme.info;

	if (!*nsid)
		*nsid = info->default_ns;
	if (*nsid > info->nn && *nsid != GPUNVME_NSID_ALL)
		return gnv_fail(-ENOENT, "namespace %u does not exist. Use one of 1 to %u", *nsid, info->nn);
	return 0;
}

GPUNVME_API int gpunvme_ns_get_feature(struct gpunvme_dev *dev, uint32_t nsid, uint8_t fid, uint32_t *value)
{
	int ret;

	if (!dev || !value)
		return gnv_null("dev and value");
	ret = pick_namespace(dev, &nsid);
	if (ret)
		return ret;
	return gnv_features_get(&dev->nvme, nsid, fid, value);
}

GPUNVME_API int gpunvme_ns_set_feature(struct gpunvme_dev *dev, uint32_t nsid, uint8_t fid, uint32_t value)
{
	int ret;

	if (!dev)
		return gnv_null("dev");
	ret = pick_namespace(dev, &nsid);
	if (ret)
		return ret;
	return gnv_features_set(&dev->nvme, nsid, fid, value);
}
