/* SPDX-License-Identifier: MIT */
/* Features and other admin commands that go through as the caller words them. */
#ifndef GNV_NVME_FEATURES_H
#define GNV_NVME_FEATURES_H

#include "nvme/nvme.h"

/*
 * gnv_features_queues() - agree on the number of I/O queue pairs, once, before the first queue
 * @want:    how many to ask for
 * @granted: how many there are, at most @want and at least 1
* Return: 0, or errors of gnv_admin_run().
 */
int gnv_features_queues(struct gnv_nvme *nvme, uint32_t want, uint32_t *granted);

/*
 * gnv_features_arbitration() - let the drive take as many commands of a queue at a time as it recommends, not fewer (5.27.1.1)
 * @recommended: the power of two of Identify (RAB)
 * A setting that the drive refuses stays as it is. Return: 0; negative: errors of gnv_admin_run().
 */
int gnv_features_arbitration(struct gnv_nvme *nvme, uint32_t recommended);

/*
 * As gpunvme_dev_admin(), gpunvme_dev_admin_doorbell(), gpunvme_dev_log_page() and gpunvme_ns_get_feature(), _set_feature(), with
 * pointers that are not NULL. @nsid is 0 for a feature of no namespace.
 */
int gnv_features_admin(struct gnv_nvme *nvme, const struct gpunvme_sqe *cmd, void *buf, size_t len, bool to_device,
		       uint32_t *result);
int gnv_features_admin_doorbell(struct gnv_nvme *nvme, const struct gpunvme_sqe *cmd, const struct gpunvme_dbuf *page,
				const struct gnv_bell *bell, uint32_t *result);
int gnv_features_log_page(struct gnv_nvme *nvme, uint8_t lid, uint32_t nsid, void *buf, size_t len);
int gnv_features_get(struct gnv_nvme *nvme, uint32_t nsid, uint8_t fid, uint32_t *value);
int gnv_features_set(struct gnv_nvme *nvme, uint32_t nsid, uint8_t fid, uint32_t value);

#endif
