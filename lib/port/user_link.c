/* SPDX-License-Identifier: MIT */
/*
 * Invariant: while the link is not dead and the lock is free, no part of a message is on its way: the next byte belongs to the
 * reply to the next request.
 */
#include "port/user_link.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "os/linux/event.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/log.h"

int gnv_user_connect(struct gnv_user_link *link, const char *path, uint32_t ms)
{
	memset(link, 0, sizeof(*link));
	link->fd = gnv_socket_connect(path);
	if (link->fd < 0)
		return link->fd;
	link->wake = gnv_event_open();
	if (link->wake < 0) {
		gnv_socket_disconnect(link->fd);
		return gnv_fail(-EMFILE, "no descriptor for events. Raise RLIMIT_NOFILE (ulimit -n)");
	}
	pthread_mutex_init(&link->lock, NULL);
	link->ms = ms;
	snprintf(link->path, sizeof(link->path), "%s", path);
	return 0;
}

void gnv_user_disconnect(struct gnv_user_link *link)
{
	gnv_socket_disconnect(link->fd);
	gnv_event_close(link->wake);
	pthread_mutex_destroy(&link->lock);
}

void gnv_user_fail(struct gnv_user_link *link)
{
	if (__atomic_exchange_n(&link->dead, 1, __ATOMIC_ACQ_REL))
		return;
	gnv_socket_end(link->fd);
	gnv_event_set(link->wake);
}

bool gnv_user_is_dead(const struct gnv_user_link *link)
{
	return __atomic_load_n(&link->dead, __ATOMIC_ACQUIRE);
}

bool gnv_user_is_gone(const struct gnv_user_link *link, uint32_t ms)
{
	struct gnv_deadline deadline = gnv_deadline_in(ms);
	uint64_t now = gnv_clock_ns();

	while (now < deadline.at) {
		if (gnv_socket_wait_hang_up(-1, link->fd, (int)((deadline.at - now) / GNV_NS_PER_MS) + 1))
			return true;
		now = gnv_clock_ns();
	}
	return gnv_socket_wait_hang_up(-1, link->fd, 0);
}

/* ---- Bytes, until a point in time ---- */

static int gone(const struct gnv_user_link *link)
{
	return gnv_fail(-ENODEV, "%s: the server has hung up. Start it again, and open the controller again", link->path);
}

static int broken(const struct gnv_user_link *link)
{
	return gnv_fail(-ENODEV, "%s: the connection has broken. Check the server, and open the controller again", link->path);
}

static int await(const struct gnv_user_link *link, bool write, uint64_t until)
{
	uint64_t now = gnv_clock_ns();

	if (now < until) {
		gnv_socket_wait(-1, link->fd, write, (int)((until - now) / GNV_NS_PER_MS) + 1);
		return 0;
	}
	return gnv_fail(-ETIMEDOUT, "%s: the server does not reply within %u ms: %s, or raise timeout= in the URI", link->path, link->ms,
			link->greeted ? "check whether it hangs" : "it accepts one client at a time, so end any other");
}

static int send_all(const struct gnv_user_link *link, size_t len, int fd, uint64_t until)
{
	const uint8_t *from = link->message;
	int ret = 0;
	long sent;

	while (len && !ret) {
		sent = gnv_socket_send(link->fd, from, len, fd);
		if (sent > 0) {
			from += sent;
			len -= (size_t)sent;
			fd = -1;
		} else {
			ret = sent == -EAGAIN ? await(link, true, until) : gone(link);
		}
	}
	return ret;
}

static int too_many(const struct gnv_user_link *link, const struct gnv_socket_fds *fds)
{
	if (fds->count < GNV_SOCKET_FDS)
		return gnv_fail(-EMFILE, "%s: no descriptor for a reply of the server. Raise RLIMIT_NOFILE (ulimit -n)", link->path);
	return gnv_fail(-EPROTO, "%s: the server sent more descriptors than a message may have", link->path);
}

static int receive(const struct gnv_user_link *link, uint8_t *to, size_t len, struct gnv_socket_fds *fds, uint64_t until)
{
	int ret = 0;
	long got;

	while (len && !ret) {
		got = gnv_socket_receive(link->fd, to, len, fds);
		if (fds->lost) {
			ret = too_many(link, fds);
		} else if (got > 0) {
			to += got;
			len -= (size_t)got;
		} else {
			ret = got == -EAGAIN ? await(link, false, until) : gone(link);
		}
	}
	return ret;
}

/* ---- Questions ---- */

static void put_question(struct gnv_user_link *link, const struct gnv_user_question *q)
{
	const struct gnv_wire_header header = { ++link->id, q->command, (uint32_t)(sizeof(header) + q->len), 0, 0 };

	memcpy(link->message, &header, sizeof(header));
	if (q->len)
		memcpy(link->message + sizeof(header), q->payload, q->len);
}

/* Return: 0; the error of the server; otherwise @lost is set. */
static int take_answer(struct gnv_user_link *link, const struct gnv_wire_header *asked, struct gnv_user_answer *a,
		       struct gnv_socket_fds *fds, uint64_t until, bool *lost)
{
	uint8_t *body = link->message + sizeof(*asked);
	struct gnv_wire_header got;
	int ret, told;

	*lost = true;
	ret = receive(link, link->message, sizeof(got), fds, until);
	if (ret)
		return ret;
	memcpy(&got, link->message, sizeof(got));
	told = gnv_wire_check_reply(asked, &got, a->least, a->most, lost);
	if (*lost)
		return told;
	a->len = got.size - sizeof(got);
	ret = receive(link, body, a->len, fds, until);
	*lost = ret;
	a->refused = !ret && told;
	if (ret || told)
		return ret ? ret : told;
	if (a->len)
		memcpy(a->to, body, a->len);
	return 0;
}

static int ask(struct gnv_user_link *link, const struct gnv_user_question *q, struct gnv_user_answer *a, struct gnv_socket_fds *fds)
{
	const uint64_t until = gnv_clock_ns() + link->ms * GNV_NS_PER_MS;
	struct gnv_wire_header asked;
	bool lost = true;
	int ret;

	put_question(link, q);
	memcpy(&asked, link->message, sizeof(asked));
	ret = send_all(link, asked.size, q->fd, until);
	if (!ret)
		ret = take_answer(link, &asked, a, fds, until, &lost);
	if (ret && lost)
		gnv_user_fail(link);
	return ret;
}

int gnv_user_ask(struct gnv_user_link *link, const struct gnv_user_question *question, struct gnv_user_answer *answer)
{
	struct gnv_socket_fds fds = { .count = 0 };
	int ret;

	pthread_mutex_lock(&link->lock);
	ret = gnv_user_is_dead(link) ? broken(link) : ask(link, question, answer, &fds);
	link->greeted |= !ret;
	pthread_mutex_unlock(&link->lock);
	if (!ret && answer->fds)
		*answer->fds = fds;
	else if (!gnv_socket_drop(&fds))
		gnv_user_fail(link); /* a descriptor that it sent cannot be closed */
	return ret;
}
