/* SPDX-License-Identifier: MIT */
/* Local sockets: a server with one client at a time, its client, and messages with descriptors (unix(7), SCM_RIGHTS). */
#ifndef GNV_OS_LINUX_SOCKET_H
#define GNV_OS_LINUX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GNV_SOCKET_FDS 16u /* with one message */

struct gnv_socket {
	int fd;
	uint64_t dev, ino; /* of the path, which is removed only while it is this socket's */
	char path[108];
};

/* Received descriptors. A user that takes one sets it to -1. */
struct gnv_socket_fds {
	unsigned count; /* GNV_SOCKET_FDS at most */
	bool lost; /* there were more than have room, or than this process may have */
	int fd[GNV_SOCKET_FDS];
};

/*
 * gnv_socket_listen() - make a socket that this user may connect to
 * An old socket without a server is replaced.
 * Return: 0; -EADDRINUSE a server listens there; -EEXIST it is a file of another kind; -ENAMETOOLONG; errors of the path;
 * gnv_fail() has the message.
 */
int gnv_socket_listen(const char *path, struct gnv_socket *socket);
void gnv_socket_close(struct gnv_socket *socket);

/* Return: a descriptor, which a child of fork() does not have; or a negative errno, -EAGAIN without a client. */
int gnv_socket_accept(const struct gnv_socket *socket);

/*
 * gnv_socket_connect() - connect to a socket
 * Return: a descriptor, which a child of fork() does not have; -ENOENT; -EINVAL it is no such socket; -ENODEV no server listens
 * there; -EBUSY others wait there already; -ENAMETOOLONG; errors of the system; gnv_fail() has the message.
 */
int gnv_socket_connect(const char *path);
/* End sending: the other end sees it and can still send. */
void gnv_socket_end(int fd);
/* End a connection, from either end: the other end sees it, even if other processes have the socket. */
void gnv_socket_disconnect(int fd);

/* Wait until the other end has hung up or @wake can be read (-1: not), at most @ms (-1: no limit). Return: true for the former. */
bool gnv_socket_wait_hang_up(int wake, int fd, int ms);

/*
 * Wait until one of both can be read, at most @ms (-1: no limit). Either may be -1. @write: until @b can be written, too.
 * Return: bit 0 for @a, bit 1 for @b.
 */
unsigned gnv_socket_wait(int a, int b, bool write, int ms);

/* Without waiting, of bytes up to @len. Return: how many; 0 the client has gone; -EAGAIN; another negative errno. */
long gnv_socket_receive(int fd, void *to, size_t len, struct gnv_socket_fds *fds);
/* Without waiting, and with a descriptor unless it is -1. Return: bytes; -EAGAIN; another negative errno. */
long gnv_socket_send(int fd, const void *from, size_t len, int with);

/* Close those that were not taken. Return: as gnv_passed_close(). */
bool gnv_socket_drop(struct gnv_socket_fds *fds);

#endif
