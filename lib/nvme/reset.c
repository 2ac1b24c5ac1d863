/* SPDX-License-Identifier: MIT */
/*
 * Base Specification 3.7.2 (controller level resets).
 * Invariant: the harsher way is taken only when the gentler one has failed.
 */
#include "nvme/reset.h"

#include <errno.h>
#include <stdio.h>

#include "nvme/hmb.h"
#include "nvme/settings.h"
#include "util/clock.h"

static int by_registers(struct gpunvme_dev *dev)
{
	return gnv_admin_restart(&dev->admin);
}

static int by_function(struct gpunvme_dev *dev)
{
	int ret;

	gnv_dev_blind(dev, false);
	ret = dev->port->ops->reset(dev->port);
	if (ret)
		return ret;
	gnv_dev_blind(dev, true); /* and so BAR0 stays to GPUs that map it past the kernel: their queues ring no more */
	dev->ctrl.enabled = false;
	return gnv_admin_restart(&dev->admin);
}

struct attempt {
	const char *name;
	int (*run)(struct gpunvme_dev *dev);
	void (*let_go)(struct gpunvme_dev *dev); /* NULL: nobody is to be told */
	bool settled;				 /* there is nothing to be set again */
};

static int try(struct gpunvme_dev *dev, struct attempt *attempt)
{
	uint64_t start = gnv_clock_ns();
	int ret = attempt->run(dev);

	if (attempt->let_go && (!ret || !dev->ctrl.enabled)) {
		attempt->let_go(dev);
		attempt->let_go = NULL;
	}
	if (!ret && !attempt->settled)
		ret = gnv_settings_apply(dev);
	if (!ret)
		ret = gnv_hmb_return(dev);
	if (!ret)
		gnv_log(&dev->log, GPUNVME_LOG_DEBUG, "%s: %llu us", attempt->name,
			(unsigned long long)((gnv_clock_ns() - start) / 1000));
	return ret;
}

int gnv_reset(struct gpunvme_dev *dev, void (*let_go)(struct gpunvme_dev *dev))
{
	struct attempt attempt = { "controller reset", by_registers, let_go, !let_go };
	char first[240], second[240];
	int ret = try(dev, &attempt);

	if (!ret || ret == -ENODEV || ret == -ENOMEM)
		return ret;
	gnv_log(&dev->log, GPUNVME_LOG_WARN, "%s; resetting the function (%s)", gpunvme_errmsg(), dev->info.reset);
	snprintf(first, sizeof(first), "%s", gpunvme_errmsg());
	attempt.name = "function reset";
	attempt.run = by_function;
	if (!try(dev, &attempt))
		return 0;
	snprintf(second, sizeof(second), "%s", gpunvme_errmsg());
	return gnv_fail(ret, "%s; and a function reset did not help: %s", first, second);
}
