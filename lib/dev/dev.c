/* SPDX-License-Identifier: MIT */
/* The info of an open device. */
#include "dev/dev.h"

#include <errno.h>

#include "nvme/hmb.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

static uint32_t state_of(const struct gpunvme_dev *dev)
{
	int dead = gnv_ctrl_dead(&dev->nvme.ctrl);

	if (dead == -ENODEV)
		return GPUNVME_STATE_REMOVED;
	if (__atomic_load_n(&dev->events.resetting, __ATOMIC_ACQUIRE))
		return GPUNVME_STATE_RESETTING;
	return dead ? GPUNVME_STATE_DEAD : GPUNVME_STATE_ALIVE;
}

GPUNVME_API int gpunvme_dev_get_info(const struct gpunvme_dev *dev, struct gpunvme_dev_info *info)
{
	struct gpunvme_dev_info now;

	if (!dev)
		return gnv_null("dev");
	now = dev->nvme.info; /* constant: a child of fork() may ask, too, and gets the memory of that time */
	now.hmb = gnv_hmb_used(&dev->nvme);
	now.late = __atomic_load_n(&dev->nvme.port->late, __ATOMIC_RELAXED);
	now.state = state_of(dev);
	now.generation = __atomic_load_n(&dev->events.generation, __ATOMIC_ACQUIRE);
	if (dev->process == gnv_process()) /* in a child the lock may belong to a thread of the parent */
		gnv_ctrl_why(&dev->nvme.ctrl, now.why);
	return gnv_info_copy(info, &now, gpunvme_dev_info);
}

struct gnv_soft *gnv_dev_soft(struct gpunvme_dev *dev)
{
	return gnv_port_soft(dev->nvme.port);
}
