/* SPDX-License-Identifier: MIT */
/*
 * Base Specification 3.7.2 (controller level resets).
 * Invariant: the harsher way is taken only when the gentler one has failed.
 */
#include "nvme/reset.h"

#include <errno.h>
#include <string.h>

#include "nvme/hmb.h"
#include "nvme/settings.h"
#include "util/clock.h"

static int by_registers(struct gnv_nvme *nvme)
{
	return gnv_admin_restart(&nvme->admin);
}

static int by_function(struct gnv_nvme *nvme)
{
	int ret;

	gnv_nvme_fence_off(nvme, false);
	ret = nvme->port->ops->reset(nvme->port);
	if (ret)
		return ret;
	gnv_nvme_fence_off(nvme, true); /* and so BAR0 stays to GPUs that map it past the kernel: their queues ring no more */
	nvme->ctrl.enabled = false;
	return gnv_admin_restart(&nvme->admin);
}

struct attempt {
	const char *name;
	int (*run)(struct gnv_nvme *nvme);
	void (*let_go)(void *ctx); /* NULL: nothing depends on it */
	void *ctx;
	bool as_before; /* no settings to restore */
};

static int try(struct gnv_nvme *nvme, struct attempt *attempt)
{
	uint64_t start = gnv_clock_ns();
	int ret = attempt->run(nvme);

	if (attempt->let_go && (!ret || !nvme->ctrl.enabled)) {
		attempt->let_go(attempt->ctx);
		attempt->let_go = NULL;
	}
	if (ret)
		return ret;
	ret = attempt->as_before ? 0 : gnv_settings_apply(nvme);
	if (ret)
		return ret;
	ret = gnv_hmb_return(nvme);
	if (ret)
		return ret;
	gnv_log(&nvme->log, GPUNVME_LOG_DEBUG, "%s: %llu us", attempt->name, (unsigned long long)((gnv_clock_ns() - start) / 1000));
	return 0;
}

int gnv_reset(struct gnv_nvme *nvme, void (*let_go)(void *ctx), void *ctx)
{
	struct attempt attempt = { "controller reset", by_registers, let_go, ctx, !let_go };
	struct gnv_message first;
	int ret = try(nvme, &attempt);

	if (!ret || ret == -ENODEV || ret == -ENOMEM)
		return ret;
	gnv_log(&nvme->log, GPUNVME_LOG_WARN, "%s. Resetting the function (%s)", gpunvme_errmsg(), nvme->info.reset);
	first = gnv_message();
	attempt.name = "function reset";
	attempt.run = by_function;
	if (!try(nvme, &attempt))
		return 0;
	if (!strcmp(first.text, gpunvme_errmsg()))
		return gnv_fail(ret, "%.*s, also after a function reset. Switch its power off and on", (int)first.cause,
				first.text);
	return gnv_fail(ret, "%.*s. A function reset did not help: %s", (int)first.cause, first.text, gpunvme_errmsg());
}
