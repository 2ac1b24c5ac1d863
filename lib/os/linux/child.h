/* SPDX-License-Identifier: MIT */
/*
 * Start another program. It gets one end of a connection as its descriptor 3, one more descriptor as 4, and no other but 0 to 2. It
 * has the environment and stderr of this process, and default signal handlers.
 */
#ifndef GNV_OS_LINUX_CHILD_H
#define GNV_OS_LINUX_CHILD_H

#include <stddef.h>

#define GNV_CHILD_TALK 3 /* of the program: messages with its parent */
#define GNV_CHILD_GIVEN 4

struct gnv_child {
	int talk; /* this end of the connection */
	/*
	 * Linux pidfd_open(2): a number may be another process's once the program waits for all of its children. -1: it has ended.
	 */
	int pidfd;
};

/* How a program ended. */
enum gnv_child_end { GNV_CHILD_EXITED, GNV_CHILD_SIGNALLED, GNV_CHILD_KILLED, GNV_CHILD_STAYS };

/*
 * gnv_child_start() - run a program
 * @argv: its arguments, which end with NULL. argv[0] is its path
 * Return: 0; -ENOENT: there is no such program; -EPERM: this process has more rights than its user (set-user-ID), and that
 * user chose the environment; another negative errno; gnv_fail() has the error message.
 */
int gnv_child_start(char *const argv[], int given, struct gnv_child *child);

/*
 * gnv_child_hear() - wait for a message of exactly `len` bytes
 * Return: 0; -EPIPE the program has ended or hung up; -ETIMEDOUT; -EPROTO: the message has another length.
 */
int gnv_child_hear(const struct gnv_child *child, void *to, size_t len, unsigned ms);
/* Send the byte for which gnv_child_await() waits. Return: 0; -EPIPE. */
int gnv_child_go(const struct gnv_child *child);

/*
 * gnv_child_finish() - hang up, wait for the end, and kill it when it does not come
 * Return: how it ended. GNV_CHILD_STAYS: not even by that within 10 s, as a driver keeps it.
 */
enum gnv_child_end gnv_child_finish(struct gnv_child *child, unsigned ms);

/* A variable of the environment, or NULL. Always NULL if this process has more rights than its user. */
const char *gnv_child_variable(const char *name);

/* For the program: */

/* Wait for gnv_child_go(). Return: 0; -EPIPE: the parent has closed the connection. */
int gnv_child_await(void);
int gnv_child_say(const void *message, size_t len);

#endif
