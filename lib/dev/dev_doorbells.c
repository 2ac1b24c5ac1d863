/* SPDX-License-Identifier: MIT */
/* The doorbells of a controller, for devices that map them: Base Specification 3.1.2 (where they are). */
#include <errno.h>
#include <gpunvme/unstable.h>

#include "dev/dev.h"
#include "util/bits.h"
#include "util/entry.h"

void gnv_dev_doorbells(const struct gpunvme_dev *dev, size_t *offset, size_t *len)
{
	size_t page = dev->nvme.port->bar0->page;
	size_t end = gnv_align_up(gnv_ctrl_sq_doorbell(&dev->nvme.ctrl, dev->nvme.info.queues + 1), page);

	*offset = GPUNVME_REG_DOORBELLS & ~(page - 1);
	*len = (size_t)gnv_min(end, gnv_align_up(dev->nvme.port->bar0->len, page)) - *offset;
}

GPUNVME_API int gpunvme_dev_export_doorbells(struct gpunvme_dev *dev, int *fd, uint64_t *offset, size_t *len)
{
	size_t start, size;
	int ret = gnv_enter(dev, dev && fd && offset && len, "dev, fd, offset and len");

	if (ret)
		return ret;
	ret = gnv_ctrl_check(&dev->nvme.ctrl);
	if (ret)
		return ret;
	gnv_dev_doorbells(dev, &start, &size);
	ret = dev->nvme.port->ops->export_bar0(dev->nvme.port, start, size, fd);
	if (ret)
		return ret;
	*offset = start;
	*len = size;
	return 0;
}
