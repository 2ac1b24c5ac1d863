/* SPDX-License-Identifier: MIT */
/*
 * A connection to a vfio-user server: one request at a time, and its reply, which is not trusted. Every wait is bounded. After a
 * late or malformed reply nothing more is sent.
 */
#ifndef GNV_PORT_USER_LINK_H
#define GNV_PORT_USER_LINK_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/linux/socket.h"
#include "wire/wire.h"

#define GNV_USER_LONGEST 4096u /* after the header, either way */

struct gnv_user_link {
	pthread_mutex_t lock; /* protects id, greeted and message, and whose turn it is */
	int fd;
	int wake;      /* set when it broke */
	uint32_t ms;   /* that a reply may take */
	uint32_t dead; /* atomic: it broke */
	uint16_t id;   /* of the last question */
	bool greeted;  /* it has replied to one */
	uint32_t max_maps; /* limit of the server, or 0: not reported */
	uint8_t message[sizeof(struct gnv_wire_header) + GNV_USER_LONGEST];
	char path[108];
};

struct gnv_user_question {
	uint16_t command;
	const void *payload;
	size_t len; /* at most GNV_USER_LONGEST */
	int fd;     /* to send with it, or -1 */
};

/* Where the reply goes. */
struct gnv_user_answer {
	void *to;
	size_t least, most; /* bytes that it may have, up to GNV_USER_LONGEST */
	size_t len;	    /* that it had */
	bool refused;	    /* the result is from the server */
	struct gnv_socket_fds *fds; /* NULL: descriptors are closed */
};

/* Return: 0; as gnv_socket_connect(); -EMFILE; gnv_fail() has the message. */
int gnv_user_connect(struct gnv_user_link *link, const char *path, uint32_t ms);
void gnv_user_disconnect(struct gnv_user_link *link);

/*
 * gnv_user_ask() - send a request and wait for its reply. Any thread.
 * Return: 0; the errno in the reply; -ENODEV the server has hung up, or the connection had failed before; -ETIMEDOUT, -EPROTO: the
 * connection has failed; gnv_fail() has the message.
 */
int gnv_user_ask(struct gnv_user_link *link, const struct gnv_user_question *question, struct gnv_user_answer *answer);

/* Nothing is said any more. */
void gnv_user_fail(struct gnv_user_link *link);
bool gnv_user_is_dead(const struct gnv_user_link *link);

/* Has the server hung up, or does it within @ms? Then it reaches nothing of this process's any more. */
bool gnv_user_is_gone(const struct gnv_user_link *link, uint32_t ms);

#endif
