/* SPDX-License-Identifier: MIT */
/* Admin commands, log pages and features of an open device, as its program words them. nvme/features.h executes them. */
#include <errno.h>
#include <gpunvme/unstable.h>

#include "dev/dev.h"
#include "nvme/features.h"
#include "util/entry.h"

#define SELECT 0x0fu /* CDW10 of Namespace Management and Namespace Attachment. 1: delete, detach */
#define OPERATION 0x0fu /* CDW10 of Capacity Management. 1 and 3 create, the others delete namespaces, too */

/* Commands after which a view may reach blocks, or memory, that it does not have any more. */
static bool changes_blocks(const struct gpunvme_sqe *cmd)
{
	switch (cmd->opc) {
	case GPUNVME_ADMIN_FORMAT_NVM:
		return true;
	case GPUNVME_ADMIN_NS_MANAGEMENT:
	case GPUNVME_ADMIN_NS_ATTACHMENT:
		return (cmd->cdw10 & SELECT) == 1;
	case GPUNVME_ADMIN_CAPACITY_MANAGEMENT:
		return (cmd->cdw10 & OPERATION) != 1 && (cmd->cdw10 & OPERATION) != 3;
	default:
		return false;
	}
}

/* Queues of programs. The library's own has a view for each use, of blocks that are current (queue/internal.h). */
static bool has_queues(struct gpunvme_dev *dev)
{
	const struct gnv_dev_queue *q, *own = (const struct gnv_dev_queue *)dev->internal.qp;

	pthread_mutex_lock(&dev->lock);
	for (q = dev->queues.first; q && q == own; q = q->next)
		;
	pthread_mutex_unlock(&dev->lock);
	return q;
}

static void unlock_queues(struct gpunvme_dev *dev)
{
	pthread_mutex_unlock(&dev->queues_lock);
	pthread_mutex_unlock(&dev->internal.lock);
}

/* Whatever the command returned: a thread of the library that knows the blocks of before asks for them again. */
static void end_change(struct gpunvme_dev *dev, bool changes)
{
	if (!changes)
		return;
	__atomic_add_fetch(&dev->internal.changes, 1, __ATOMIC_RELEASE);
	unlock_queues(dev);
}

/* While such a command runs nobody makes a queue, and the library's own stands still. */
static int begin_change(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, bool *changes)
{
	*changes = changes_blocks(cmd);
	if (gnv_foreign(dev->process)) /* a thread of the parent may have held its locks */
		return -ECHILD;
	if (!*changes)
		return 0;
	pthread_mutex_lock(&dev->internal.lock);
	pthread_mutex_lock(&dev->queues_lock);
	if (!has_queues(dev))
		return 0;
	unlock_queues(dev);
	return gnv_fail(-EBUSY,
			"admin command 0x%02x changes the blocks of a namespace, but existing views have the old ones. Destroy "
			"all queues of the device first, and create them again afterwards",
			cmd->opc);
}

GPUNVME_API int gpunvme_dev_admin(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, void *buf, size_t len, int to_device,
				  uint32_t *result)
{
	bool changes;
	int ret;

	if (!dev || !cmd || (len && !buf))
		return gnv_null("dev, cmd, and buf where len is not 0,");
	ret = begin_change(dev, cmd, &changes);
	if (ret)
		return ret;
	ret = gnv_features_admin(&dev->nvme, cmd, buf, len, to_device, result);
	end_change(dev, changes);
	return ret;
}

GPUNVME_API int gpunvme_dev_admin_doorbell(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, const struct gpunvme_dbuf *page,
					   int (*ring)(void *ctx, uint32_t tail), void *ctx, uint32_t *result)
{
	const struct gnv_bell bell = { ring, ctx };
	bool changes;
	int ret;

	if (!dev || !cmd || !ring)
		return gnv_null("dev, cmd and ring");
	ret = begin_change(dev, cmd, &changes);
	if (ret)
		return ret;
	ret = gnv_features_admin_doorbell(&dev->nvme, cmd, page, &bell, result);
	end_change(dev, changes);
	return ret;
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
