/* SPDX-License-Identifier: MIT */
/* A client of vfio-user made of bytes, for what no honest client does; and servers in processes of their own. */
#ifndef TESTS_EVIL_CLIENT_H
#define TESTS_EVIL_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { EVIL_VERSION = 1, EVIL_MAP, EVIL_UNMAP, EVIL_INFO, EVIL_REGION, EVIL_IRQ_INFO = 7, EVIL_IRQS, EVIL_READ, EVIL_WRITE, EVIL_RESET = 13 };

#define EVIL_GONE (-1) /* the server has hung up */
#define EVIL_MANY 253

struct evil_server {
	pid_t pid;
	int said; /* it writes a byte when it listens, and one when gpunvme_server_stop() has returned */
	char path[96];
};

/* A server of a drive in memory, which ends by SIGTERM with status 0. Before this process has threads. */
void evil_start(struct evil_server *server, const char *path);
/* Send the signal and wait until the server has stopped; its process ends then, or its holder lets it end. */
void evil_stop(struct evil_server *server);
void evil_wait(struct evil_server *server);

/* A connection. */
int evil_connect(const char *path);
void evil_send(int sock, const void *bytes, size_t len, const int *fds, unsigned count);
/* A message; @fds are closed here, so that the server has the last ones. */
void evil_tell(int sock, uint16_t command, uint32_t flags, const void *payload, size_t len, const int *fds, unsigned count);
/*
 * Return: the errno of the next reply, 0, or EVIL_GONE. What it has is in evil_reply, its descriptor in evil_reply_fd (-1: none).
 */
int evil_hear(int sock);
int evil_ask(int sock, uint16_t command, const void *payload, size_t len, const int *fds, unsigned count);
int evil_greet(int sock);
int evil_map(int sock, uint64_t at, uint64_t len, int fd, uint64_t offset);
int evil_irqs(int sock, uint32_t flags, uint32_t start, uint32_t count, const int *fds, unsigned n);
int evil_write(int sock, uint32_t region, uint64_t offset, uint32_t value);
/* Wait until the server hangs up, whatever it says before. */
void evil_until_gone(int sock);

extern uint8_t evil_reply[70000];
extern int evil_reply_fd;

/* Memory of so many bytes with these seals. */
int evil_memory(size_t len, unsigned seals);
/* A TCP socket whose last close() waits for an hour. What keeps it so is this process's until evil_release(). */
int evil_trap(void);
void evil_release(void);

#endif
