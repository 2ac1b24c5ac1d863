/* SPDX-License-Identifier: MIT */
/*
 * Invariant, the law of teardown: DMA is stopped, then IOVAs are unmapped, then memory is given back. If DMA cannot be proven
 * stopped, all memory that the controller can reach stays, and so does the device.
 */
#include "life/life.h"

#include <errno.h>
#include <stdlib.h>

#include "dev/watchdog.h"
#include "dma/mem_cache_table.h"
#include "nvme/cmb.h"
#include "nvme/features.h"
#include "nvme/hmb.h"
#include "nvme/lists.h"
#include "nvme/power.h"
#include "nvme/settings.h"
#include "dma/mem_cache.h"
#include "queue/cmb_mem.h"
#include "dma/deferred_free.h"
#include "dma/mem_map.h"
#include "dma/mapping.h"
#include "dma/placement.h"
#include "queue/internal.h"
#include "queue/qp.h"
#include "queue/qp_recover.h"
#include "queue/queue.h"
#include "queue/probe.h"
#include "queue/ringtest.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

#define QUEUES_MAX 65535u

/* A vfio-user server may refuse to give memory back. Then it is halted, so that it cannot reach the memory, and asked again. */
static int drop_mappings(struct gpunvme_dev *dev)
{
	int ret = gnv_map_drop_all(dev);

	if (!ret)
		return 0;
	gnv_log(&dev->nvme.log, GPUNVME_LOG_WARN, "%s. Halting it by %s", gpunvme_errmsg(), gnv_port_force(dev->nvme.port));
	return dev->nvme.port->ops->halt(dev->nvme.port) ? ret : gnv_map_drop_all(dev);
}

/* Tear down a device whose lock, forwarder and arena exist. Return: 0; -EBUSY, then it can be called again. */
static int teardown(struct gpunvme_dev *dev)
{
	int ret;

	gnv_forward_stop(&dev->forward);
	__atomic_store_n(&dev->unstoppable, !gnv_nvme_stop_dma(&dev->nvme), __ATOMIC_RELAXED);
	gnv_ctrl_kill(&dev->nvme.ctrl, -ESHUTDOWN, "it is being closed");
	if (dev->unstoppable)
		return gnv_fail(-EBUSY,
				"the controller at %s could not be stopped: its queues, and all memory mapped to it, stay its own. "
				"Close it again when it was reset or has lost its power, or end the process",
				dev->nvme.info.address);
	while (gnv_qp_first(dev))
		gnv_qp_release(gnv_qp_first(dev));
	ret = drop_mappings(dev);
	if (!ret)
		ret = gnv_hmb_drop(&dev->nvme);
	if (ret)
		return ret;
	gnv_deferred_free_all(dev);
	gnv_mem_cache_end(dev->dma.cache);
	gnv_forward_fini(&dev->forward);
	gnv_admin_fini(&dev->nvme.admin);
	gnv_placement_free_all(dev);
	gnv_cmb_close(&dev->nvme);
	gnv_arena_destroy(dev->nvme.arena);
	gnv_port_close(dev->nvme.port);
	pthread_mutex_destroy(&dev->lock);
	pthread_mutex_destroy(&dev->internal.lock);
	pthread_mutex_destroy(&dev->queues_lock);
	pthread_mutex_destroy(&dev->dma.place_lock);
	gnv_nvme_fini(&dev->nvme);
	gnv_events_fini(&dev->events);
	gnv_async_fini(&dev->async);
	free(dev->queues.ids);
	free(dev);
	return 0;
}

/*
 * Leave a device that could neither be opened nor closed. Memory that the controller can reach is never freed, and the threads of
 * its port never end. The log callback is not called again.
 */
static void leave(struct gpunvme_dev *dev)
{
	gnv_log(&dev->nvme.log, GPUNVME_LOG_ERROR, "%s", gpunvme_errmsg());
	gnv_log_end(&dev->nvme.log);
	gnv_log_end(&dev->nvme.port->log);
}

/*
 * Runs on a thread of the port. A device that the kernel takes away still has its registers, and its port cannot reset it. Threads
 * get their errors first: it may take seconds to stop. Registers that a server leaves in memory stop nothing.
 */
static void device_lost(void *ctx, enum gnv_port_loss loss, const char *why)
{
	struct gpunvme_dev *dev = ctx;

	if (loss == GNV_PORT_ERROR)
		gnv_ctrl_kill(&dev->nvme.ctrl, -ESHUTDOWN, why);
	else
		gnv_ctrl_take(&dev->nvme.ctrl, why);
	gnv_queues_end(dev, GPUNVME_ENODEV);
	gnv_nvme_fence_off(&dev->nvme, loss == GNV_PORT_RESET);
	if (loss == GNV_PORT_LOST && dev->nvme.port->remote && gnv_ctrl_let_go(&dev->nvme.ctrl) == -ETIMEDOUT)
		gnv_log(&dev->nvme.log, GPUNVME_LOG_WARN, "%s", gpunvme_errmsg());
}

static void rings_lost(void *ctx)
{
	gnv_queues_end(ctx, GPUNVME_ENODEV);
}

int gnv_dev_lend(struct gpunvme_dev *dev, struct gpunvme_mem *mem)
{
	return gnv_arena_lend(dev->nvme.arena, mem, rings_lost, dev);
}

/* It may make DMA, once it is known to be disabled. */
static int enable_dma(struct gpunvme_dev *dev)
{
	struct gnv_port *port = dev->nvme.port;
	int ret = gnv_ctrl_disable(&dev->nvme.ctrl);
	struct gnv_message cause = gnv_message();

	if (ret && ret != -ETIMEDOUT)
		return ret;
	if (ret) {
		gnv_log(&dev->nvme.log, GPUNVME_LOG_WARN, "%s. Resetting the function (%s)", cause.text, port->reset_name);
		if (port->ops->reset(port))
			return gnv_fail_again(ret, &cause);
	}
	return port->ops->allow_dma(port);
}

/* Disable the controller, and make what its memory is kept in. Return: 0, or nothing is left to free. */
static int prepare(struct gpunvme_dev *dev)
{
	struct gnv_port *port = dev->nvme.port;
	int ret = gnv_nvme_look(&dev->nvme);

	if (!ret)
		ret = enable_dma(dev);
	if (!ret)
		ret = gnv_mem_cache_create(port->bar0->page, &dev->dma.cache);
	if (ret)
		return ret;
	ret = gnv_arena_create(port->space, dev->nvme.ctrl.page_size, NULL, &dev->nvme.log, &dev->nvme.arena);
	if (ret)
		gnv_mem_cache_destroy(dev->dma.cache);
	return ret;
}

static const struct gnv_dev_hooks hooks = { .refill = gnv_mapping_refill, .prove_lists = gnv_cmb_mem_test_lists };

/* The parts that cannot fail. */
static void init_parts(struct gpunvme_dev *dev)
{
	dev->hooks = &hooks;
	dev->ringtest.rings = GNV_RINGTEST_RINGS;
	dev->ringtest.late_ns = GNV_RINGTEST_LATE_NS;
	dev->ringtest.lost_ns = GNV_RINGTEST_LOST_NS;
	dev->probed.open_ms = GNV_PROBE_OPEN_MS;
	dev->probed.step_ms = GNV_PROBE_STEP_MS;
	pthread_mutex_init(&dev->queues_lock, NULL);
	pthread_mutex_init(&dev->dma.place_lock, NULL);
	pthread_mutex_init(&dev->lock, NULL);
	pthread_mutex_init(&dev->internal.lock, NULL);
	gnv_forward_init(&dev->forward);
	gnv_events_init(&dev->events);
	gnv_async_init(&dev->async);
	dev->nvme.ctrl.died = gnv_events_lost;
	dev->nvme.ctrl.died_ctx = &dev->events;
}

static int bring_up(struct gpunvme_dev *dev, const struct gpunvme_dev_opts *opts)
{
	struct gnv_message cause;
	int ret;

	dev->nvme.port->ops->watch(dev->nvme.port, device_lost, dev);
	ret = gnv_nvme_bring_up(&dev->nvme, opts);
	if (!ret) {
		dev->queues.ids = calloc(dev->nvme.info.queues / 64 + 1, sizeof(*dev->queues.ids));
		ret = dev->queues.ids ? 0 : gnv_fail(-ENOMEM, "out of memory");
	}
	if (!ret && opts->watchdog_ms)
		ret = gnv_watchdog_start(dev, opts->watchdog_ms);
	if (!ret)
		return 0;
	cause = gnv_message();
	if (teardown(dev))
		leave(dev);
	return gnv_fail_again(ret, &cause);
}

/* A number of a device of this process. 0 says that it is not known. */
static uint32_t next_number(void)
{
	static uint32_t last;
	uint32_t number = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);

	return number ? number : __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

int gnv_dev_create(struct gnv_port *port, const struct gpunvme_dev_opts *opts, uint32_t default_ns, struct gpunvme_dev **out)
{
	const struct gnv_log log = { .fn = opts->log, .ctx = opts->log_ctx };
	struct gpunvme_dev *dev = calloc(1, sizeof(*dev));
	int ret;

	if (!dev) {
		gnv_port_close(port);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	gnv_nvme_init(&dev->nvme, port, &log);
	dev->process = gnv_process();
	dev->number = next_number();
	gnv_log(&dev->nvme.log, GPUNVME_LOG_DEBUG, "%s: taken by %s", port->address, port->ops->name);
	ret = prepare(dev);
	if (ret) {
		free(dev);
		gnv_port_close(port);
		return ret;
	}
	init_parts(dev);
	gnv_nvme_describe(&dev->nvme, default_ns);
	ret = bring_up(dev, opts);
	if (!ret)
		*out = dev;
	return ret;
}

static int check_opts(const struct gpunvme_dev_opts *opts)
{
	if (opts->reserved)
		return gnv_fail(-EINVAL, "gpunvme_dev_opts.reserved must be 0");
	if (opts->flags & ~(uint32_t)GPUNVME_DEV_READ_ONLY)
		return gnv_fail(-EINVAL, "unknown device flags 0x%x. Valid is GPUNVME_DEV_READ_ONLY", opts->flags);
	if (opts->nsid == GPUNVME_NSID_ALL)
		return gnv_fail(-EINVAL, "gpunvme_dev_opts.nsid must be one namespace, or 0");
	if (opts->queues > QUEUES_MAX)
		return gnv_fail(-EINVAL, "%u queues are more than a controller can have, %u", opts->queues, QUEUES_MAX);
	if (opts->share && gnv_foreign(opts->share->process))
		return -ECHILD;
	return opts->share ? gnv_ctrl_check(&opts->share->nvme.ctrl) : 0;
}

/* Keys of every URI. */
struct wishes {
	uint32_t ns; /* 0: none is named */
	enum gnv_power power;
	uint32_t hmb_mib;
};

/* Options that the program sets in addition to the URI. */
static int add_opts(struct gnv_uri *uri, const struct gpunvme_dev_opts *opts)
{
	uint32_t ro = 1;
	int ret;

	if (!(opts->flags & GPUNVME_DEV_READ_ONLY))
		return 0;
	ret = gnv_uri_take_u32(uri, "ro", 0, 1, &ro);
	if (ret)
		return ret;
	return ro ? gnv_uri_add(uri, "ro", "1") :
		    gnv_fail(-EINVAL, "GPUNVME_DEV_READ_ONLY conflicts with ro=0 in the URI. Leave ro=0 out");
}

/* Queues and mappings come after the proof. */
static int create_proven(struct gnv_port *port, const struct gpunvme_dev_opts *opts, const struct wishes *wish,
			 struct gpunvme_dev **out)
{
	struct gnv_message cause;
	struct gpunvme_dev *dev;
	int ret = gnv_dev_create(port, opts, wish->ns, &dev);

	if (ret)
		return ret;
	ret = gnv_power_apply(&dev->nvme, wish->power); /* a drive may not wake up for reads */
	if (!ret)
		ret = gnv_lists_prove(&dev->nvme);
	if (!ret)
		ret = gnv_features_arbitration(&dev->nvme, dev->nvme.limits.burst);
	if (!ret)
		ret = gnv_hmb_give(&dev->nvme, wish->hmb_mib, !opts->share);
	if (!ret) {
		*out = dev;
		return 0;
	}
	cause = gnv_message();
	if (gpunvme_dev_close(dev))
		leave(dev);
	return gnv_fail_again(ret, &cause);
}

/* The drive leaves the memory that it works in before another device shares its address space. */
static int make_way(struct gpunvme_dev *dev)
{
	int ret;

	pthread_mutex_lock(&dev->queues_lock);
	ret = gnv_hmb_make_way(&dev->nvme);
	pthread_mutex_unlock(&dev->queues_lock);
	return ret;
}

static int open_parsed(struct gnv_uri *uri, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev)
{
	const struct gnv_log log = { .fn = opts->log, .ctx = opts->log_ctx };
	struct gnv_port *port = NULL;
	struct wishes wish = { 0, GNV_POWER_LEAVE, GNV_HMB_UNSAID };
	const char *word;
	int ret = gnv_uri_take_u32(uri, "ns", 1, GPUNVME_NSID_ALL - 1, &wish.ns);

	if (opts->nsid)
		wish.ns = opts->nsid;
	gnv_uri_take(uri, "power", &word);
	if (!ret)
		ret = gnv_power_parse(word, &wish.power);
	if (!ret)
		ret = gnv_uri_take_u32(uri, "hmb", 0, GNV_HMB_MAX_MIB, &wish.hmb_mib);
	if (!ret)
		ret = gnv_port_open(uri, opts->share ? opts->share->nvme.port : NULL, &log, &port);
	if (ret)
		return ret;
	ret = opts->share ? make_way(opts->share) : 0;
	if (!ret)
		return create_proven(port, opts, &wish, dev);
	gnv_port_close(port);
	return ret;
}

GPUNVME_API int gpunvme_dev_open(const char *text, const struct gpunvme_dev_opts *user, struct gpunvme_dev **dev)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gnv_uri uri;
	int ret;

	if (!text || !dev)
		return gnv_null("uri and dev");
	ret = gnv_opts_copy(&opts, user, gpunvme_dev_opts);
	if (!ret)
		ret = check_opts(&opts);
	if (!ret)
		ret = gnv_uri_parse(text, &uri);
	if (ret)
		return ret;
	ret = add_opts(&uri, &opts);
	if (!ret)
		ret = open_parsed(&uri, &opts, dev);
	gnv_uri_fini(&uri);
	return ret;
}

GPUNVME_API int gpunvme_dev_close(struct gpunvme_dev *dev)
{
	struct gnv_qp *qp, *next;

	if (!dev)
		return 0;
	if (gnv_foreign(dev->process))
		return -ECHILD;
	if (__atomic_load_n(&dev->dma.cmb_given, __ATOMIC_ACQUIRE))
		return gnv_fail(-EBUSY, "%u memories lie in the drive at %s. Free them by gpunvme_mem_free(), then close it",
				dev->dma.cmb_given, dev->nvme.info.address);
	gnv_async_stop(dev);
	gnv_watchdog_stop(dev);
	dev->closing = true;
	gnv_mem_cache_close(dev->dma.cache);
	gnv_internal_close(dev);
	for (qp = gnv_qp_first(dev); qp; qp = gnv_qp_next(qp))
		if (qp->owner)
			gnv_queue_quiet(qp->owner);
	gnv_qp_drop_old(dev, NULL);
	for (qp = gnv_qp_first(dev); qp; qp = next) {
		next = gnv_qp_next(qp);
		if (!qp->zombie)
			gnv_qp_destroy(qp); /* a queue that cannot be deleted is released after the controller has stopped */
	}
	gnv_power_restore(&dev->nvme);
	gnv_hmb_take_back(&dev->nvme);
	return teardown(dev);
}
