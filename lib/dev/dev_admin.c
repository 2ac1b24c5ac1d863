/* SPDX-License-Identifier: MIT */
/* Admin commands, log pages and features of an open device, as its program words them; nvme/features.h carries them out. */
#include <errno.h>

#include "dev/dev.h"
#include "nvme/features.h"
#include "util/entry.h"

GPUNVME_API int gpunvme_dev_admin(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, void *buf, size_t len, int to_device,
				  uint32_t *result)
{
	if (!dev || !cmd || (len && !buf))
		return gnv_null("dev, cmd, and buf where len is not 0,");
	return gnv_features_admin(&dev->nvme, cmd, buf, len, to_device, result);
}

GPUNVME_API int gpunvme_dev_admin_rung(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, const struct gpunvme_dbuf *page,
				       int (*ring)(void *ctx, uint32_t tail), void *ctx, uint32_t *result)
{
	const struct gnv_bell bell = { ring, ctx };

	if (!dev || !cmd || !ring)
		return gnv_null("dev, cmd and ring");
	return gnv_features_admin_rung(&dev->nvme, cmd, page, &bell, result);
}

GPUNVME_API int gpunvme_dev_log_page(struct gpunvme_dev *dev, uint8_t lid, uint32_t nsid, void *buf, size_t len)
{
	if (!dev || !buf)
		return gnv_null("dev and buf");
	return gnv_features_log_page(&dev->nvme, lid, nsid, buf, len);
}

GPUNVME_API int gpunvme_dev_get_feature(struct gpunvme_dev *dev, uint8_t fid, uint32_t *value)
{
	if (!dev || !value)
		return gnv_null("dev and value");
	return gnv_features_get(&dev->nvme, 0, fid, value);
}

GPUNVME_API int gpunvme_dev_set_feature(struct gpunvme_dev *dev, uint8_t fid, uint32_t value)
{
	if (!dev)
		return gnv_null("dev");
	return gnv_features_set(&dev->nvme, 0, fid, value);
}
