/* SPDX-License-Identifier: MIT */
/* Life cycle of a software controller. */
#include "soft/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/shared.h"
#include "util/bits.h"
#include "util/clock.h"

#define BAR_PAGE 4096u
#define PATIENCE_MS 10000u

static bool is_block_size(uint32_t size)
{
	return !size || size == 512 || size == 4096;
}

static int check_config(const struct gnv_soft_config *c)
{
	size_t i;

	if (!c->path || !c->path[0])
		return gnv_fail(-EINVAL, "the soft controller needs the path of an image file or block device");
	if (!is_block_size(c->lba_size))
		return gnv_fail(-EINVAL, "block size %u is not supported; use 512 or 4096", c->lba_size);
	for (i = 0; i < GNV_ARRAY_LEN(c->more); i++)
		if (!is_block_size(c->more[i].lba_size))
			return gnv_fail(-EINVAL, "block size %u is not supported; use 512 or 4096", c->more[i].lba_size);
	if (c->mdts > 16)
		return gnv_fail(-EINVAL, "mdts %u is too large; use 0 (no limit) to 16", c->mdts);
	if (c->queues < 1 || c->queues > 1024)
		return gnv_fail(-EINVAL, "%u queues cannot be offered; use 1 to 1024", c->queues);
	if (c->depth < 2 || c->depth > 65536)
		return gnv_fail(-EINVAL, "queue depth %u is not possible; use 2 to 65536", c->depth);
	if (c->dstrd > 8)
		return gnv_fail(-EINVAL, "doorbell stride %u is too large; use 0 to 8", c->dstrd);
	if (c->cmb > 1024)
		return gnv_fail(-EINVAL, "%u MiB of memory in the controller are too many; use 0 to 1024", c->cmb);
	if (c->threads < 1 || c->threads > 64)
		return gnv_fail(-EINVAL, "%u threads cannot be used; use 1 to 64", c->threads);
	return gnv_soft_timing_check(&c->model);
}

/* A BAR that another process maps is one of a PCI function: a power of two, and 16 KiB at least (PCIe transport 2.1.10). */
static int alloc_bar(struct gnv_soft *soft, size_t used)
{
	void *bar;
	int ret;

	soft->bar_len = (size_t)gnv_align_up(used, BAR_PAGE);
	if (soft->config.shared) {
		soft->bar_len = (size_t)2 << gnv_log2(gnv_max(used, 4 * BAR_PAGE) - 1);
		ret = gnv_shared_create(soft->bar_len, &soft->bar_fd, &bar);
		if (!ret)
			soft->bar = bar;
		return ret;
	}
	soft->bar = aligned_alloc(BAR_PAGE, soft->bar_len);
	if (soft->bar)
		memset(soft->bar, 0, soft->bar_len);
	return soft->bar ? 0 : -ENOMEM;
}

static void free_bar(struct gnv_soft *soft)
{
	if (soft->bar_fd < 0) {
		free(soft->bar);
		return;
	}
	memset(soft->bar, 0xff, soft->bar_len); /* whoever has it mapped reads what a function that is not there answers */
	gnv_shared_destroy(soft->bar_fd, soft->bar, soft->bar_len);
}

static int alloc_memory(struct gnv_soft *soft)
{
	size_t doorbells = (size_t)2 * (soft->config.queues + 1) * (4u << soft->config.dstrd);
	int ret = -ENOMEM;

	soft->sqs = calloc(soft->config.queues + 1, sizeof(*soft->sqs));
	soft->cqs = calloc(soft->config.queues + 1, sizeof(*soft->cqs));
	if (soft->sqs && soft->cqs)
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
	pthread_mutex_destroy(&soft->errors.lock);
	free_bar(soft);
	free(soft->sqs);
	free(soft->cqs);
	free(soft);
}

static const struct gnv_soft_more *more_of(const struct gnv_soft_config *config, unsigned part)
{
	return part && part < GNV_SOFT_NAMESPACES ? &config->more[part - 1] : NULL;
}

/* The configuration of one namespace. Return: false there is none. */
static bool config_of(const struct gnv_soft_config *config, unsigned part, struct gnv_soft_config *own)
{
	const struct gnv_soft_more *more = more_of(config, part);

	*own = *config;
	if (!part)
		return true;
	if (!more || !more->path)
		return false;
	own->path = more->path;
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

/* A drive's limit, told as a power of two. */
static void adopt_mdts(struct gnv_soft *soft, uint64_t max_bytes)
{
	const uint32_t most = max_bytes ? gnv_log2(gnv_max(max_bytes, 8192) / 4096) : 0;

	if (most && (!soft->config.mdts || soft->config.mdts > most))
		soft->config.mdts = most;
}

/* Of a drive that tells no limits the version is an older one, as if it could tell none. */
static bool tells_limits(const struct gnv_soft_store *store)
{
	const struct gpunvme_id_ctrl_nvm *limits = store->drive ? &store->drive->limits : NULL;

	return limits && (limits->dmrsl || limits->wzsl || limits->dmrl || limits->dmsl);
}

static void describe(struct gnv_soft *soft)
{
	const bool hints = gnv_soft_has(&soft->config.traits, GNV_SOFT_HINTS);
	unsigned i;

	soft->version = hints ? GNV_SOFT_2_0 : GNV_SOFT_1_4;
	for (i = 0; i < soft->parts; i++) {
		adopt_mdts(soft, soft->part[i].store->max_bytes);
		if (tells_limits(soft->part[i].store))
			soft->version = GNV_SOFT_2_0;
	}
	soft->max_transfer = soft->config.mdts ? 4096u << soft->config.mdts : 0;
	for (i = 0; i < soft->parts; i++) {
		const struct gnv_soft_store *store = soft->part[i].store;
		const uint32_t shift = gnv_log2(store->block);

		soft->part[i].ns = (struct gnv_soft_ns){ .lba_shift = shift,
							 .blocks = store->size >> shift,
							 .max_transfer = soft->max_transfer,
							 .max_range = hints ? GNV_SOFT_RANGE : 0,
							 .max_zeroes = hints ? 4096u << GNV_SOFT_WZSL : 0,
							 .read_only = store->read_only };
	}
}

static int explain_start(const struct gnv_soft *soft, int ret)
{
	const int explained = soft->refused ? soft->refused->explain(ret) : 0;

	if (explained)
		return explained;
	if (ret == -EAGAIN)
		return gnv_fail(ret, "cannot start a thread of the soft controller: no more can be started; raise RLIMIT_NPROC (ulimit -u)");
	return gnv_fail(ret, "cannot start a thread of the soft controller: %s", strerror(-ret));
}

/* Return: false when I/O is stuck, so that nothing may be freed. */
static bool stop_servers(struct gnv_soft *soft)
{
	struct gnv_deadline deadline = gnv_deadline_in(soft->patience_ms);
	bool clean = true;
	unsigned i;

	for (i = 0; i < soft->servers; i++)
		gnv_soft_server_ask_stop(soft->server[i]);
	for (i = 0; i < soft->servers; i++)
		clean = gnv_soft_server_join(soft->server[i], &deadline) && clean;
	return clean;
}

static void free_servers(struct gnv_soft *soft)
{
	unsigned i;

	for (i = 0; i <= soft->config.queues; i++)
		if (soft->sqs[i])
			gnv_soft_sq_free(soft, (uint16_t)i);
	for (i = 0; i <= soft->config.queues; i++)
		if (soft->cqs[i])
			gnv_soft_cq_free(soft, (uint16_t)i);
	for (i = 0; i < soft->servers; i++)
		gnv_soft_server_free(soft->server[i]);
}

/* Thread 0 goes last: it hands out work to the others, which must be there. */
static int start_servers(struct gnv_soft *soft)
{
	unsigned i = soft->config.threads;
	int ret = 0;

	while (i > 0 && !ret) {
		ret = gnv_soft_server_start(soft, i - 1);
		if (!ret)
			i--;
	}
	if (!ret) {
		gnv_soft_server_lock(soft->server[0]); /* which reads it; the registers order that only for hosts of this process */
		soft->servers = soft->config.threads;
		gnv_soft_server_unlock(soft->server[0]);
		return 0;
	}
	for (; i < soft->config.threads; i++) {
		struct gnv_deadline deadline = gnv_deadline_in(soft->patience_ms);

		gnv_soft_server_ask_stop(soft->server[i]);
		gnv_soft_server_join(soft->server[i], &deadline); /* it had nothing to do yet */
		gnv_soft_server_free(soft->server[i]);
	}
	return explain_start(soft, ret);
}

int gnv_soft_create(const struct gnv_soft_config *config, struct gnv_space *space, const struct gnv_log *log, struct gnv_soft **out)
{
	struct gnv_soft *soft;
	int ret = check_config(config);

	if (ret)
		return ret;
	soft = calloc(1, sizeof(*soft));
	if (!soft)
		return gnv_fail(-ENOMEM, "no memory for a soft controller");
	soft->config = *config;
	soft->config.path = NULL; /* the caller's, as those of the others; not used after this function */
	memset(soft->config.more, 0, sizeof(soft->config.more));
	soft->space = space;
	soft->log = log;
	soft->faulty = config->rules.count != 0;
	soft->patience_ms = PATIENCE_MS;
	soft->born_ns = gnv_soft_now();
	gnv_soft_timing_init(&soft->timing, &config->model, soft->born_ns);
	soft->page = 4096;
	soft->bar_fd = -1;
	pthread_mutex_init(&soft->errors.lock, NULL);
	ret = open_stores(soft, config);
	if (!ret)
		ret = alloc_memory(soft);
	if (!ret) {
		describe(soft);
		gnv_soft_features_reset(soft);
		gnv_soft_regs_init(soft);
		ret = start_servers(soft);
	}
	if (ret) {
		free_memory(soft);
		return ret;
	}
	*out = soft;
	return 0;
}

static int stuck(int ret)
{
	return gnv_fail(ret, "I/O of the software controller is stuck in the kernel; look at the storage below its image");
}

int gnv_soft_destroy(struct gnv_soft *soft)
{
	if (!soft)
		return 0;
	if (!stop_servers(soft))
		return stuck(-EBUSY);
	free_servers(soft);
	free_memory(soft);
	return 0;
}

void *gnv_soft_bar(struct gnv_soft *soft, size_t *len)
{
	if (len)
		*len = soft->bar_len;
	return soft->bar;
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

void gnv_soft_set_fault(struct gnv_soft *soft, const struct gnv_soft_fault *fault)
{
	unsigned i;

	for (i = 0; i < soft->servers; i++) {
		gnv_soft_server_lock(soft->server[i]);
		soft->server[i]->fault = fault ? *fault : (struct gnv_soft_fault){ 0 };
		gnv_soft_server_unlock(soft->server[i]);
	}
}

void gnv_soft_set_stubborn(struct gnv_soft *soft, enum gnv_soft_stubborn how, bool for_ever)
{
	gnv_soft_server_lock(soft->server[0]);
	soft->stubborn = how;
	soft->for_ever = for_ever;
	gnv_soft_server_unlock(soft->server[0]);
}

/* Thread 0 does it, which owns the registers. */
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

void gnv_soft_set_admin_fault(struct gnv_soft *soft, const struct gnv_soft_admin_fault *fault)
{
	gnv_soft_server_lock(soft->server[0]);
	soft->admin_fault = fault ? *fault : (struct gnv_soft_admin_fault){ 0 };
	gnv_soft_server_unlock(soft->server[0]);
}
