/* SPDX-License-Identifier: MIT */
#include "soft/store/store.h"

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
	struct gnv_soft_seat *seat;
	int res;

	do {
		seat = gnv_soft_seat_of(cmd);
		res = seat->store->ops->start(seat, cmd);
	} while (res != GNV_SOFT_LATER && gnv_soft_io_step(cmd, res));
	if (res != GNV_SOFT_LATER)
		return;
	seat->taken++;
	if (server->in_store++ == 0)
		server->busy_since = gnv_soft_now();
}

static void detach(struct gnv_soft_server *server, unsigned count)
{
	while (count--)
		server->seat[count].store->ops->detach(&server->seat[count]);
}

int gnv_soft_attach(struct gnv_soft_server *server)
{
	struct gnv_soft_seat *seat;
	unsigned i;
	int ret;

	for (i = 0; i < server->soft->parts; i++) {
		seat = &server->seat[i];
		seat->server = server;
		seat->store = server->soft->part[i].store;
		ret = seat->store->ops->attach(seat);
		if (ret) {
			server->soft->refused = seat->store->ops;
			detach(server, i);
			return ret;
		}
	}
	return 0;
}

void gnv_soft_detach(struct gnv_soft_server *server)
{
	detach(server, server->soft->parts);
}

/* In one of those that have something; the others are looked at when that ends. */
void gnv_soft_wait(struct gnv_soft_server *server, unsigned usec)
{
	unsigned i;

	for (i = 0; i < server->soft->parts; i++) {
		if (!server->seat[i].taken)
			continue;
		server->seat[i].store->ops->wait(&server->seat[i], usec);
		return;
	}
}

/* No more from one than leaves room for the others. */
unsigned gnv_soft_reap(struct gnv_soft_server *server, struct gnv_uring_done *done, unsigned max)
{
	const unsigned share = max / server->soft->parts;
	unsigned i, n = 0;

	for (i = 0; i < server->soft->parts; i++)
		if (server->seat[i].taken)
			n += server->seat[i].store->ops->reap(&server->seat[i], done + n, share);
	return n;
}

void gnv_soft_tidy(struct gnv_soft_server *server)
{
	unsigned i;

	for (i = 0; i < server->soft->parts; i++)
		server->seat[i].store->ops->tidy(&server->seat[i]);
}
