/* SPDX-License-Identifier: MIT */
#include "soft/store.h"

#include "soft/state.h"
#include "util/bits.h"

#define DEFAULT_BLOCK 512u

static const struct gnv_soft_store_ops *const kinds[] = { &gnv_soft_store_ram, &gnv_soft_store_nvme, &gnv_soft_store_file };

int gnv_soft_store_open(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **store)
{
	struct gnv_soft_config own = *config;
	unsigned i = 0;
	int ret;

	while (i + 1 < GNV_ARRAY_LEN(kinds) && !kinds[i]->owns(config->path))
		i++;
	if (!own.lba_size && !kinds[i]->formatted)
		own.lba_size = DEFAULT_BLOCK;
	ret = kinds[i]->open(&own, log, store);
	if (!ret && !(*store)->block)
		(*store)->block = own.lba_size;
	return ret;
}

bool gnv_soft_is_durable(const struct gnv_soft_cmd *cmd)
{
	return cmd->op.fua || !__atomic_load_n(&cmd->sq->server->soft->write_back, __ATOMIC_RELAXED);
}

void gnv_soft_issue(struct gnv_soft_cmd *cmd)
{
	struct gnv_soft_server *server = cmd->sq->server;
	int res;

	do
		res = server->soft->store->ops->start(server, cmd);
	while (res != GNV_SOFT_LATER && gnv_soft_io_step(cmd, res));
	if (res == GNV_SOFT_LATER && server->in_store++ == 0)
		server->busy_since = gnv_soft_now();
}
