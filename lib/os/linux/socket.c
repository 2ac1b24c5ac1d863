/* SPDX-License-Identifier: MIT */
#include "os/linux/socket.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "os/linux/passed.h"
#include "util/bits.h"
#include "util/log.h"

/* ---- Listening ---- */

static int open_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ? gnv_fail(-errno, "no socket can be made: %s", strerror(errno)) : fd;
}

/* Does somebody listen there? */
static bool answers(const struct sockaddr_un *at)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool yes;

	if (fd < 0)
		return true;
	yes = !connect(fd, (const struct sockaddr *)at, sizeof(*at)) || errno != ECONNREFUSED;
	close(fd);
	return yes;
}

/* Make room for a socket where an old one is left. */
static int clear_path(const struct sockaddr_un *at)
{
	struct stat st;

	if (lstat(at->sun_path, &st))
		return errno == ENOENT ? 0 : gnv_fail(-errno, "%s: %s", at->sun_path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return gnv_fail(-EEXIST, "%s exists and is no socket. Choose another path", at->sun_path);
	if (answers(at))
		return gnv_fail(-EADDRINUSE, "%s: a server listens there already. Choose another path, or end that server",
				at->sun_path);
	return unlink(at->sun_path) && errno != ENOENT ? gnv_fail(-errno, "%s: an old socket cannot be removed: %s", at->sun_path,
								   strerror(errno))
						       : 0;
}

static int bind_here(struct gnv_socket *s, const struct sockaddr_un *at)
{
	struct stat st;

	/* Before it has a name: in a folder of another user that name may lead elsewhere at once. */
	if (fchmod(s->fd, 0600) || bind(s->fd, (const struct sockaddr *)at, sizeof(*at)))
		return gnv_fail(-errno, "%s: no socket can be made there: %s", at->sun_path, strerror(errno));
	if (lstat(at->sun_path, &st) || listen(s->fd, 1)) {
		int err = errno;

		unlink(at->sun_path);
		return gnv_fail(-err, "%s: cannot listen: %s", at->sun_path, strerror(err));
	}
	s->dev = st.st_dev;
	s->ino = st.st_ino;
	return 0;
}

static int set_path(struct sockaddr_un *at, const char *path)
{
	*at = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (!path[0] || strlen(path) >= sizeof(at->sun_path))
		return gnv_fail(-ENAMETOOLONG, "the path of a socket has 1 to %zu bytes, and this one %zu", sizeof(at->sun_path) - 1,
				strlen(path));
	snprintf(at->sun_path, sizeof(at->sun_path), "%s", path);
	return 0;
}

int gnv_socket_listen(const char *path, struct gnv_socket *s)
{
	struct sockaddr_un at;
	int ret = set_path(&at, path);

	if (ret)
		return ret;
	snprintf(s->path, sizeof(s->path), "%s", path);
	ret = clear_path(&at);
	if (ret)
		return ret;
	gnv_fork_begin();
	s->fd = gnv_fork_keep(open_socket());
	if (s->fd < 0)
		return s->fd;
	ret = bind_here(s, &at);
	if (ret)
		gnv_fork_close(s->fd);
	return ret;
}

void gnv_socket_close(struct gnv_socket *s)
{
	struct stat st;
	int fd;

	if (!lstat(s->path, &st) && st.st_dev == s->dev && st.st_ino == s->ino)
		unlink(s->path);
	shutdown(s->fd, SHUT_RDWR); /* no more clients come, and those that wait are hung up on one by one */
	while ((fd = gnv_socket_accept(s)) >= 0)
		gnv_socket_disconnect(fd);
	gnv_fork_close(s->fd);
}

/*
 * Bytes out of band come as others do. Else recvmsg() drops them, and the kernel closes here, in a thread that others wait for, the
 * descriptors that they carry (Linux af_unix.c, manage_oob()).
 */
static void take_all_inline(int fd)
{
	const int on = 1;

	setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof(on));
}

int gnv_socket_accept(const struct gnv_socket *s)
{
	int fd;

	gnv_fork_begin();
	fd = gnv_fork_keep(accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
	if (fd < 0)
		return -errno;
	take_all_inline(fd);
	return fd;
}

/* A child that was made by clone() alone has the socket, too, and would keep the connection. */
void gnv_socket_disconnect(int fd)
{
	shutdown(fd, SHUT_RDWR);
	gnv_passed_close_socket(fd);
}

/* ---- Connecting ---- */

static int refused(const char *path, int err)
{
	struct stat st;

	if (err == ENOENT)
		return gnv_fail(-ENOENT, "%s: no such socket. Start the server, as in gpunvme serve --vfio-user SOCKET soft:IMAGE", path);
	if (err == EAGAIN)
		return gnv_fail(-EBUSY, "%s: the server has a client, and another one waits. End them, or start another server", path);
	if (err == EPROTOTYPE || (!lstat(path, &st) && S_ISREG(st.st_mode)))
		return gnv_fail(-EINVAL, "%s is no stream socket. Give the path that the server prints", path);
	if (err == ECONNREFUSED)
		return gnv_fail(-ENODEV, "%s: no server listens there any more. Start the server again", path);
	return gnv_fail(-err, "%s: %s", path, strerror(err));
}

int gnv_socket_connect(const char *path)
{
	struct sockaddr_un at;
	int fd, err, ret = set_path(&at, path);

	if (ret)
		return ret;
	gnv_fork_begin();
	fd = gnv_fork_keep(open_socket());
	if (fd < 0)
		return fd;
	take_all_inline(fd);
	if (!connect(fd, (const struct sockaddr *)&at, sizeof(at)))
		return fd;
	err = errno;
	gnv_fork_close(fd);
	return refused(path, err);
}

void gnv_socket_end(int fd)
{
	shutdown(fd, SHUT_WR);
}

bool gnv_socket_wait_hang_up(int wake, int fd, int ms)
{
	struct pollfd on[2] = { { .fd = wake, .events = POLLIN }, { .fd = fd, .events = POLLRDHUP } };

	return poll(on, 2, ms) > 0 && on[1].revents;
}

unsigned gnv_socket_wait(int a, int b, bool write, int ms)
{
	struct pollfd on[2] = { { .fd = a, .events = POLLIN },
				{ .fd = b, .events = (short)(write ? POLLOUT : POLLIN) } };
	unsigned ready = 0;

	if (poll(on, 2, ms) > 0)
		ready = (on[0].revents ? 1u : 0) | (on[1].revents ? 2u : 0);
	return ready;
}

/* ---- Messages ---- */

static void collect(struct msghdr *msg, struct gnv_socket_fds *fds)
{
	int got[GNV_PASSED_AT_ONCE];
	struct cmsghdr *c;
	unsigned n, taken;

	for (c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		n = (unsigned)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(got, CMSG_DATA(c), n * sizeof(int));
		taken = (unsigned)gnv_min(n, GNV_SOCKET_FDS - fds->count);
		memcpy(fds->fd + fds->count, got, taken * sizeof(int));
		fds->count += taken;
		fds->lost |= n > taken;
		gnv_passed_close(got + taken, n - taken);
	}
	fds->lost |= (msg->msg_flags & MSG_CTRUNC) != 0;
}

/* With room for as many descriptors as can come: the kernel closes those without room, and this thread would wait for that. */
long gnv_socket_receive(int fd, void *to, size_t len, struct gnv_socket_fds *fds)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(GNV_PASSED_AT_ONCE * sizeof(int))];
	struct iovec iov = { to, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control) };
	ssize_t got;

	do {
		got = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	} while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	collect(&msg, fds);
	return got;
}

long gnv_socket_send(int fd, const void *from, size_t len, int with)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = { (void *)(uintptr_t)from, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t sent;

	if (with >= 0) {
		memset(control, 0, sizeof(control));
		msg.msg_control = control;
		msg.msg_controllen = sizeof(control);
		*CMSG_FIRSTHDR(&msg) =
			(struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(CMSG_FIRSTHDR(&msg)), &with, sizeof(with));
	}
	do {
		sent = sendmsg(fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : sent;
}

bool gnv_socket_drop(struct gnv_socket_fds *fds)
{
	bool ok = gnv_passed_close(fds->fd, fds->count);

	fds->count = 0;
	fds->lost = false;
	return ok;
}
