/* SPDX-License-Identifier: MIT */
/*
 * A server and its parts. One thread (server.c) accepts clients and replies to their messages (session.c). The controller has
 * its own threads, which know registers, memory and interrupts only.
 */
#ifndef GNV_SERVE_SERVER_H
#define GNV_SERVE_SERVER_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "os/linux/socket.h"
#include "serve/function.h"
#include "serve/dma_maps.h"
#include "serve/vectors.h"
#include "wire/wire.h"
#include "soft/soft.h"
#include "util/log.h"

struct gpunvme_server {
	uint64_t process; /* whose threads these are (util/process.h) */
	struct gnv_log log;
	struct gnv_space *space;
	struct gnv_soft *soft;
	struct gnv_socket socket;
	int wake;      /* set to stop the thread */
	uint32_t stop; /* atomic */
	pthread_t thread;
	bool joined;
	uint16_t vendor, device;
	struct gnv_function function;
	struct gnv_vectors vectors;
	struct gnv_dma_maps maps;
	/* Of the client that is there. */
	int client; /* -1: none */
	bool greeted; /* VERSION was agreed on */
	uint64_t until; /* when the rest of its message must have arrived, in ns */
	struct gnv_socket_fds fds;
	uint8_t message[GNV_WIRE_LONGEST], reply[GNV_WIRE_LONGEST];
};

static inline bool gnv_server_stopped(const struct gpunvme_server *s)
{
	return __atomic_load_n(&s->stop, __ATOMIC_ACQUIRE);
}

/* Reply to one client until it goes or the server stops. @client is closed when its memory is no longer accessed. */
void gnv_session_run(struct gpunvme_server *server, int client);

#endif
