/* SPDX-License-Identifier: MIT */
/* Bytes from and to the client that is there, with the time that it may take. */
#ifndef GNV_SERVE_STREAM_H
#define GNV_SERVE_STREAM_H

#include "serve/server.h"

#define GNV_STREAM_MS 10000u /* that a client may take for VERSION, for a message that it has begun, to read a reply */
#define GNV_STREAM_NO_LIMIT UINT64_MAX

/*
 * gnv_stream_receive() - receive the rest of a message, or of its header
 * @begun: a part of the message has come
 * A client may be silent between messages, once it has greeted, but not within one, because others wait for its place.
 * Return: 1; 0 the client has gone; negative errno: -ESHUTDOWN the server is to stop; -ETIMEDOUT, -EPROTO, errors of the socket.
 */
int gnv_stream_receive(struct gpunvme_server *s, uint8_t *to, size_t len, bool begun);

/* Send @len bytes of s->reply, with @fd unless it is -1. Return: 0; -ETIMEDOUT, -ESHUTDOWN, errors of the socket. */
int gnv_stream_send(struct gpunvme_server *s, size_t len, int fd);

#endif
