/* SPDX-License-Identifier: MIT */
/* Life cycle of a software controller. */
#include "soft/soft.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mem/space_soft.h"
#include "os/linux/shared.h"
#include "os/linux/sys.h"
#include "soft/core/controller.h"
#include "soft/store/store.h"
#include "util/bits.h"
#include "util/clock.h"

#define BAR_PAGE 4096u
#define PATIENCE_MS 10000u
#define STILL_MS 4000u /* QEMU gives up after 5 s (x-msg-timeout) */

/* A BAR that another process maps is one of a PCI function: a power of two, and 16 KiB at least (PCIe transport 2.1.10). */
static int alloc_bar(struct gnv_soft *soft, size_t used)
{
	void *bar;
	int ret;

	if (soft->config.shared) {
		soft->bar_len = (size_t)2 << gnv_log2(gnv_max(used, 4 * BAR_PAGE) - 1);
		ret = gnv_shared_create(soft->bar_len, &soft->bar_fd, &bar);
		if (!ret)
			soft->bar = bar;
		return ret;
	}
	soft->bar_len = (size_t)gnv_align_up(used, gnv_sys_page_size());
	ret = gnv_sys_map(soft->bar_len, 0, false, &bar); /* a GPU may pin it: a child of fork() must not make copies of its pages */
	if (!ret)
		soft->bar = bar;
	return ret;
}

static void free_bar(struct gnv_soft *soft)
{
	if (soft->bar_fd >= 0)
		memset(soft->bar, 0xff, soft->bar_len); /* a process that has it mapped reads all ones, as from a removed PCI function */
	if (soft->bar_stays || soft->stays || !soft->bar)
		return;
	if (soft->bar_fd >= 0)
		gnv_shared_destroy(soft->bar_fd, soft->bar, soft->bar_len);
	else
		gnv_sys_unmap(soft->bar, soft->bar_len);
}

static int alloc_memory(struct gnv_soft *soft)
{
	size_t doorbells = (size_t)2 * (soft->config.queues + 1) * (4u << soft->config.dstrd);
	int ret = -ENOMEM;

	soft->queue = calloc(soft->config.queues + 1, sizeof(*soft->queue));
	if (soft->queue)
		ret = alloc_bar(soft, GPUNVME_REG_DOORBELLS + doorbells);
	if (ret == -ENOMEM)
		return gnv_fail(ret, "no memory for a soft controller with %u queues", soft->config.queues);
	return ret ? gnv_fail(ret, "no registers for a soft controller that others see: %s", strerror(-ret)) : 0;
}

static void close_stores(struct gnv_soft *soft)
{
	while (soft->parts--)
		soft->part[soft->parts].store->ops->close(soft->part[soft->parts].store);
}

static void free_memory(struct gnv_soft *soft)
{
	close_stores(soft);
	free_bar(soft);
	free(soft->queue);
	if (!soft->stays)
		free(soft);
}

static const struct gnv_soft_more *more_of(const struct gnv_soft_config *config, unsigned part)
{
	return part && part < GNV_SOFT_NAMESPACES ? &config->more[part - 1] : NULL;
}

/* The configuration of one namespace. Return: false if there is none. */
static bool config_of(const struct gnv_soft_config *config, unsigned part, struct gnv_soft_config *own)
{
	const struct gnv_soft_more *more = more_of(config, part);

	*own = *config;
	if (!part)
		return true;
	if (!more || !more->path)
		return false;
	own->path = more->path;
	own->image = NULL;
	own->lba_size = more->lba_size;
	own->read_only |= more->read_only;
	return true;
}

static int open_stores(struct gnv_soft *soft, const struct gnv_soft_config *config)
{
	struct gnv_soft_config own;
	int ret = 0;

	while (!ret && config_of(config, soft->parts, &own)) {
		ret = gnv_soft_store_open(&own, soft->log, &soft->part[soft->parts].store);
		soft->parts += !ret;
	}
	return ret;
}

/* For servers, whose clients may write to it. */
static int check_careful(const struct gnv_soft *soft)
{
	const struct gnv_soft_part *part = soft->part;
	unsigned i;

	for (i = 0; i < soft->parts; i++, part++)
		if (soft->config.careful && !part->store->read_only && !gnv_medium_is_scratch(part->store->medium.kind))
			return gnv_fail(-EPERM, "a client could overwrite namespace %u of %llu MiB%s", i + 1,
					(unsigned long long)part->store->size >> 20, gnv_medium_text(part->store->medium.kind));
	return 0;
}

/* ---- Mappings are announced to the engine ---- */

struct gnv_soft_mappings {
	struct gnv_soft_watch watch;
	struct gnv_space *space;
	struct gnv_soft *soft;
};

static struct gnv_soft *watched(struct gnv_soft_watch *watch)
{
	return gnv_container_of(watch, struct gnv_soft_mappings, watch)->soft;
}

static int mapped(struct gnv_soft_watch *watch, const struct gnv_soft_map *map)
{
	return watched(watch)->engine->map(watched(watch), map);
}

static int unmapping(struct gnv_soft_watch *watch, const struct gnv_soft_map *map)
{
	return watched(watch)->engine->unmap(watched(watch), map);
}

static int watch_mappings(struct gnv_soft *soft, struct gnv_space *space)
{
	struct gnv_soft_mappings *m = calloc(1, sizeof(*m));
	int ret;

	if (!m)
		return gnv_fail(-ENOMEM, "no memory for a soft controller");
	*m = (struct gnv_soft_mappings){ { .mapped = mapped, .unmapping = unmapping }, space, soft };
	ret = gnv_soft_space_watch(space, &m->watch);
	if (ret)
		free(m);
	else
		soft->mappings = m;
	return ret;
}

static void unwatch_mappings(struct gnv_soft *soft)
{
	gnv_soft_space_unwatch(soft->mappings->space, &soft->mappings->watch);
	free(soft->mappings);
}

/* ---- Life ---- */

static struct gnv_soft *new_controller(const struct gnv_soft_config *config, const struct gnv_soft_engine_ops *engine,
				       const struct gnv_log *log)
{
	struct gnv_soft *soft = calloc(1, engine->size);

	if (!soft)
		return NULL;
	soft->engine = engine;
	soft->config = *config;
	soft->config.path = NULL; /* the caller's, as those of the others */
	memset(soft->config.more, 0, sizeof(soft->config.more));
	soft->log = log;
	soft->patience_ms = PATIENCE_MS;
	soft->born_ns = engine->now(soft);
	gnv_soft_timing_init(&soft->timing, &config->model, soft->born_ns);
	soft->link = config->model.link;
	soft->bar_fd = -1;
	return soft;
}

int gnv_soft_create(const struct gnv_soft_config *config, struct gnv_space *space, const struct gnv_log *log, struct gnv_soft **out)
{
	struct gnv_soft *soft;
	int ret = gnv_soft_check_config(config);

	if (ret)
		return ret;
	soft = new_controller(config, config->engine ? config->engine : &gnv_soft_engine_threads, log);
	if (!soft)
		return gnv_fail(-ENOMEM, "no memory for a soft controller");
	ret = open_stores(soft, config);
	if (!ret)
		ret = check_careful(soft);
	if (ret)
		goto free_soft;
	ret = alloc_memory(soft);
	if (ret)
		goto free_soft;
	gnv_soft_describe(soft);
	gnv_soft_features_reset(soft);
	gnv_soft_regs_init(soft);
	ret = soft->engine->start(soft, space);
	if (ret)
		goto free_engine;
	ret = watch_mappings(soft, space);
	if (ret)
		goto stop;
	soft->config.on = soft->config.image = NULL; /* the caller's, too, and not used after this */
	*out = soft;
	return 0;
stop:
	soft->engine->stop(soft); /* it had nothing to do yet */
free_engine:
	soft->engine->free(soft);
free_soft:
	free_memory(soft);
	return ret;
}

static int stuck(int ret)
{
	return gnv_fail(ret, "I/O of the software controller is stuck in the kernel: check the storage of its image");
}

int gnv_soft_destroy(struct gnv_soft *soft)
{
	if (!soft)
		return 0;
	if (!soft->engine->stop(soft))
		return stuck(-EBUSY);
	unwatch_mappings(soft);
	gnv_soft_free_queues(soft);
	soft->engine->free(soft);
	free_memory(soft);
	return 0;
}

bool gnv_soft_has_ring(struct gnv_soft *soft, uint64_t iova, uint64_t len)
{
	return soft->engine->has_ring(soft, iova, len);
}

int gnv_soft_allow_dma(struct gnv_soft *soft, bool allow)
{
	struct gnv_deadline deadline = gnv_deadline_in(STILL_MS);

	__atomic_store_n(&soft->silent, !allow, __ATOMIC_RELEASE);
	while (!allow && !soft->engine->is_still(soft))
		if (!gnv_deadline_poll_again(&deadline))
			return gnv_fail(-EBUSY, "bus mastering was taken from the controller, and I/O to memory is stuck in the kernel: check the "
						"storage of the image");
	return 0;
}

void *gnv_soft_bar(struct gnv_soft *soft, size_t *len)
{
	if (len)
		*len = soft->bar_len;
	return soft->bar;
}

void gnv_soft_keep_bar(struct gnv_soft *soft)
{
	soft->bar_stays = true;
}

int gnv_soft_bar_fd(const struct gnv_soft *soft)
{
	return soft->bar_fd;
}

size_t gnv_soft_cmb_bytes(const struct gnv_soft *soft)
{
	return (size_t)soft->config.cmb << 20;
}

bool gnv_soft_read_only(const struct gnv_soft *soft)
{
	unsigned i;

	for (i = 0; i < soft->parts; i++)
		if (!soft->part[i].ns.read_only)
			return false;
	return true;
}

void gnv_soft_speed(const struct gnv_soft *soft, uint64_t *link, uint32_t *blocks)
{
	*link = soft->link;
	*blocks = soft->blocks;
}

void gnv_soft_media(const struct gnv_soft *soft, struct gnv_medium medium[GNV_SOFT_NAMESPACES])
{
	unsigned i;

	for (i = 0; i < soft->parts; i++)
		medium[i] = soft->part[i].store->medium;
}

void gnv_soft_set_fault(struct gnv_soft *soft, const struct gnv_soft_fault *fault)
{
	soft->engine->set_fault(soft, fault);
}

void gnv_soft_set_stubborn(struct gnv_soft *soft, enum gnv_soft_stubborn how, bool for_ever)
{
	soft->engine->hold(soft);
	soft->stubborn = how;
	soft->for_ever = for_ever;
	soft->engine->release(soft);
}

void gnv_soft_set_admin_fault(struct gnv_soft *soft, const struct gnv_soft_admin_fault *fault)
{
	soft->engine->hold(soft);
	soft->admin_fault = fault ? *fault : (struct gnv_soft_admin_fault){ 0 };
	soft->engine->release(soft);
}

/* The engine does it, which owns the registers. */
int gnv_soft_function_reset(struct gnv_soft *soft)
{
	struct gnv_deadline deadline = gnv_deadline_in(soft->patience_ms);
	uint32_t asked = GNV_SOFT_ASKED;

	__atomic_store_n(&soft->function_reset, GNV_SOFT_ASKED, __ATOMIC_RELEASE);
	while (gnv_deadline_poll_again(&deadline))
		if (__atomic_load_n(&soft->function_reset, __ATOMIC_ACQUIRE) == GNV_SOFT_UNASKED)
			return 0;
	if (__atomic_compare_exchange_n(&soft->function_reset, &asked, GNV_SOFT_UNASKED, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return stuck(-EIO);
	while (__atomic_load_n(&soft->function_reset, __ATOMIC_ACQUIRE) != GNV_SOFT_UNASKED)
		gnv_sleep_ms(1); /* for its last few instructions */
	return 0;
}
