/* SPDX-License-Identifier: MIT */
/* The state of threads at the stores: each has a seat at the store of each namespace. */
#include "soft/engine/threads.h"

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
		seat->soft = server->soft;
		seat->dma = &server->dma;
		seat->thread = server->index;
		seat->store = server->soft->part[i].store;
		ret = seat->store->ops->attach(seat);
		if (ret) {
			gnv_soft_threads(server->soft)->refused = seat->store->ops;
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

/* Wait in one store with outstanding steps. The others are polled afterwards. */
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
