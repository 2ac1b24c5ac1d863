/* SPDX-License-Identifier: MIT */
/* Invariant: a descriptor is sent with the first byte of its message, once. */
#include "serve/stream.h"

#include <errno.h>

#include "util/clock.h"

/* Until the client can be read, or written to. Return: 0; -ETIMEDOUT; -ESHUTDOWN the server is to stop. */
static int wait_for_client(struct gpunvme_server *s, bool write, uint64_t until)
{
	const uint64_t now = gnv_clock_ns();
	int ms = until == GNV_STREAM_NO_LIMIT ? -1 : until > now ? (int)((until - now) / GNV_NS_PER_MS) + 1 : 0;

	if (!gnv_socket_wait(s->wake, s->client, write, ms) && gnv_clock_ns() >= until)
		return -ETIMEDOUT;
	return gnv_server_stopped(s) ? -ESHUTDOWN : 0;
}

int gnv_stream_receive(struct gpunvme_server *s, uint8_t *to, size_t len, bool begun)
{
	long got;
	int ret;

	while (len) {
		got = gnv_socket_receive(s->client, to, len, &s->fds);
		if (s->fds.lost)
			return gnv_fail(-EPROTO, "the client sent more descriptors than the %u that one message may have, or than this process "
						 "may open", GNV_WIRE_FDS);
		if (got > 0) {
			begun = true;
			to += got;
			len -= (size_t)got;
			continue;
		}
		if (got != -EAGAIN)
			return (int)got;
		if (begun && s->until == GNV_STREAM_NO_LIMIT)
			s->until = gnv_clock_ns() + GNV_STREAM_MS * GNV_NS_PER_MS;
		ret = wait_for_client(s, false, s->until);
		if (ret == -ETIMEDOUT)
			return gnv_fail(ret, "the client has sent %s of a message within %u s", begun ? "a part" : "nothing", GNV_STREAM_MS / 1000);
		if (ret)
			return ret;
	}
	return 1;
}

int gnv_stream_send(struct gpunvme_server *s, size_t len, int fd)
{
	const uint64_t until = gnv_clock_ns() + GNV_STREAM_MS * GNV_NS_PER_MS;
	const uint8_t *from = s->reply;
	long sent;
	int ret;

	while (len) {
		sent = gnv_socket_send(s->client, from, len, fd);
		if (sent > 0) {
			from += sent;
			len -= (size_t)sent;
			fd = -1;
			continue;
		}
		if (sent != -EAGAIN)
			return (int)sent;
		ret = wait_for_client(s, true, until);
		if (ret == -ETIMEDOUT)
			return gnv_fail(ret, "the client does not read its replies");
		if (ret)
			return ret;
	}
	return 0;
}
