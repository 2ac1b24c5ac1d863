/* SPDX-License-Identifier: MIT */
/* Life cycle of a software controller. */
#include "soft/state.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"

#define BAR_PAGE 4096u

static int check_config(const struct gnv_soft_config *c)
{
	if (!c->path || !c->path[0])
		return gnv_fail(-EINVAL, "the soft controller needs the path of an image file or block device");
	if (c->lba_size != 512 && c->lba_size != 4096)
		return gnv_fail(-EINVAL, "block size %u is not supported; use 512 or 4096", c->lba_size);
	if (c->mdts > 16)
		return gnv_fail(-EINVAL, "mdts %u is too large; use 0 (no limit) to 16", c->mdts);
	if (c->queues < 1 || c->queues > 1024)
		return gnv_fail(-EINVAL, "%u queues cannot be offered; use 1 to 1024", c->queues);
	if (c->depth < 2 || c->depth > 65536)
		return gnv_fail(-EINVAL, "queue depth %u is not possible; use 2 to 65536", c->depth);
	if (c->dstrd > 8)
		return gnv_fail(-EINVAL, "doorbell stride %u is too large; use 0 to 8", c->dstrd);
	if (c->threads < 1 || c->threads > 64)
		return gnv_fail(-EINVAL, "%u threads cannot be used; use 1 to 64", c->threads);
	return 0;
}

static int alloc_parts(struct gnv_soft *soft)
{
	size_t doorbells = (size_t)2 * (soft->config.queues + 1) * (4u << soft->config.dstrd);

	soft->bar_len = (size_t)gnv_align_up(GPUNVME_REG_DOORBELLS + doorbells, BAR_PAGE);
	soft->bar = aligned_alloc(BAR_PAGE, soft->bar_len);
	soft->sqs = calloc(soft->config.queues + 1, sizeof(*soft->sqs));
	soft->cqs = calloc(soft->config.queues + 1, sizeof(*soft->cqs));
	if (!soft->bar || !soft->sqs || !soft->cqs)
		return gnv_fail(-ENOMEM, "no memory for a soft controller with %u queues", soft->config.queues);
	memset(soft->bar, 0, soft->bar_len);
	return 0;
}

static void free_parts(struct gnv_soft *soft)
{
	gnv_os_file_close(&soft->file);
	pthread_mutex_destroy(&soft->errors.lock);
	free(soft->bar);
	free(soft->sqs);
	free(soft->cqs);
	free(soft);
}

static void describe_ns(struct gnv_soft *soft)
{
	const struct gnv_soft_config *c = &soft->config;

	soft->ns.lba_shift = gnv_log2(c->lba_size);
	soft->ns.blocks = soft->file.size >> soft->ns.lba_shift;
	soft->ns.max_transfer = c->mdts ? 4096u << c->mdts : 0;
	soft->ns.read_only = soft->file.read_only;
}

static int explain_start(int ret)
{
	if (ret == -EPERM)
		return gnv_fail(-EOPNOTSUPP,
				"io_uring is switched off for this process; look at the sysctl kernel.io_uring_disabled and at "
				"the seccomp profile of the container");
	if (ret == -EOPNOTSUPP)
		return gnv_fail(ret, "this kernel has no io_uring that the soft controller can use; it needs Linux 5.11 or later");
	return gnv_fail(ret, "cannot start a thread of the soft controller: %s", strerror(-ret));
}

/* Return: false when I/O is stuck, so that nothing may be freed. */
static bool stop_servers(struct gnv_soft *soft)
{
	bool clean = true;
	unsigned i;

	for (i = 0; i < soft->servers; i++)
		gnv_soft_server_ask_stop(soft->server[i]);
	for (i = 0; i < soft->servers; i++)
		clean = gnv_soft_server_join(soft->server[i]) && clean;
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
		soft->servers = soft->config.threads;
		return 0;
	}
	for (; i < soft->config.threads; i++) {
		gnv_soft_server_ask_stop(soft->server[i]);
		gnv_soft_server_join(soft->server[i]);
		gnv_soft_server_free(soft->server[i]);
	}
	return explain_start(ret);
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
	soft->config.path = NULL; /* the caller's; not used after this function */
	soft->space = space;
	if (log)
		soft->log = *log;
	soft->born_ns = gnv_soft_now();
	soft->page = 4096;
	soft->file.fd = -1;
	pthread_mutex_init(&soft->errors.lock, NULL);
	ret = gnv_os_file_open(config->path, config->lba_size, config->read_only, &soft->file);
	if (!ret)
		ret = alloc_parts(soft);
	if (!ret) {
		describe_ns(soft);
		gnv_soft_features_reset(soft);
		gnv_soft_regs_init(soft);
		ret = start_servers(soft);
	}
	if (ret) {
		free_parts(soft);
		return ret;
	}
	*out = soft;
	return 0;
}

void gnv_soft_destroy(struct gnv_soft *soft)
{
	if (!soft)
		return;
	if (!stop_servers(soft)) {
		gnv_log(&soft->log, GPUNVME_LOG_ERROR,
			"soft controller: I/O is stuck in the kernel; its memory is kept for ever, as the kernel may still write "
			"to it");
		return;
	}
	free_servers(soft);
	free_parts(soft);
}

void *gnv_soft_bar(struct gnv_soft *soft, size_t *len)
{
	if (len)
		*len = soft->bar_len;
	return soft->bar;
}

bool gnv_soft_read_only(const struct gnv_soft *soft)
{
	return soft->ns.read_only;
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

void gnv_soft_set_admin_fault(struct gnv_soft *soft, const struct gnv_soft_admin_fault *fault)
{
	gnv_soft_server_lock(soft->server[0]);
	soft->admin_fault = fault ? *fault : (struct gnv_soft_admin_fault){ 0 };
	gnv_soft_server_unlock(soft->server[0]);
}
