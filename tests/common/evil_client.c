/* SPDX-License-Identifier: MIT */
#include "common/evil_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunvme/gpunvme.h>

uint8_t evil_reply[70000];
int evil_reply_fd;

static int kept[1024];
static unsigned kept_count;

/* ---- Servers ---- */

static void serve(const char *path, int say)
{
	struct gpunvme_server *server;
	sigset_t end;
	int sig;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	sigemptyset(&end);
	sigaddset(&end, SIGTERM);
	sigprocmask(SIG_BLOCK, &end, NULL);
	if (gpunvme_server_start("soft:ram:1M?queues=4&depth=64", path, NULL, &server)) {
		fprintf(stderr, "no server: %s\n", gpunvme_errmsg());
		_exit(1);
	}
	if (write(say, "+", 1) != 1 || sigwait(&end, &sig) || gpunvme_server_stop(server) || write(say, "-", 1) != 1)
		_exit(2);
	_exit(0);
}

static void hear_from(const struct evil_server *server, char what)
{
	char said = 0;

	assert_int_equal(read(server->said, &said, 1), 1);
	assert_int_equal(said, what);
}

void evil_start(struct evil_server *server, const char *path)
{
	int pipes[2];

	snprintf(server->path, sizeof(server->path), "%s", path);
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	server->pid = fork();
	assert_true(server->pid >= 0);
	if (!server->pid)
		serve(path, pipes[1]);
	close(pipes[1]);
	server->said = pipes[0];
	hear_from(server, '+');
}

void evil_stop(struct evil_server *server)
{
	assert_int_equal(kill(server->pid, SIGTERM), 0);
	hear_from(server, '-');
}

void evil_wait(struct evil_server *server)
{
	int status;

	assert_int_equal(waitpid(server->pid, &status, 0), server->pid);
	assert_int_equal(status, 0);
	close(server->said);
}

/* ---- The wire ---- */

int evil_connect(const char *path)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	assert_int_equal(connect(sock, (struct sockaddr *)&at, sizeof(at)), 0);
	return sock;
}

static void send_with(int sock, const void *bytes, size_t len, const int *fds, unsigned count)
{
	static union {
		struct cmsghdr align;
		char room[CMSG_SPACE(EVIL_MANY * sizeof(int))];
	} control;
	struct iovec iov = { (void *)(uintptr_t)bytes, len };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (count) {
		control.align = (struct cmsghdr){ .cmsg_len = CMSG_LEN(count * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS };
		memcpy(CMSG_DATA(&control.align), fds, count * sizeof(int));
		msg.msg_control = &control;
		msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
	}
	sendmsg(sock, &msg, MSG_NOSIGNAL); /* it may have been sent away already */
}

static bool is_trap(int fd)
{
	struct linger linger = { 0, 0 };
	socklen_t len = sizeof(linger);

	return !getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &len) && linger.l_onoff;
}

static void close_all(const int *fds, unsigned count)
{
	unsigned i;

	for (i = 0; i < count; i++)
		close(fds[i]);
}

/*
 * A child sends traps with the first byte, after this process has closed its own, and ends, which waits for no close(): then the
 * server has the last ones.
 */
void evil_send(int sock, const void *bytes, size_t len, const int *fds, unsigned count)
{
	int pipes[2];
	char none;
	pid_t child;

	if (!count || !is_trap(fds[0])) {
		send_with(sock, bytes, len, fds, count);
		close_all(fds, count);
		return;
	}
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		close(pipes[1]);
		if (!read(pipes[0], &none, 1))
			send_with(sock, bytes, 1, fds, count);
		_exit(0);
	}
	close_all(fds, count);
	close(pipes[0]);
	close(pipes[1]);
	assert_int_equal(waitpid(child, NULL, 0), child);
	if (len > 1)
		send_with(sock, (const char *)bytes + 1, len - 1, NULL, 0);
}

void evil_tell(int sock, uint16_t command, uint32_t flags, const void *payload, size_t len, const int *fds, unsigned count)
{
	static uint8_t message[70000];
	const uint32_t size = (uint32_t)(16 + len);

	memset(message, 0, 16);
	memcpy(message + 2, &command, 2);
	memcpy(message + 4, &size, 4);
	memcpy(message + 8, &flags, 4);
	if (len)
		memcpy(message + 16, payload, len);
	evil_send(sock, message, size, fds, count);
}

int evil_hear(int sock)
{
	union {
		struct cmsghdr align;
		char room[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov = { evil_reply, 16 };
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control) };
	uint32_t size, error;

	evil_reply_fd = -1;
	if (recvmsg(sock, &msg, MSG_WAITALL | MSG_CMSG_CLOEXEC) != 16)
		return EVIL_GONE;
	if (CMSG_FIRSTHDR(&msg))
		memcpy(&evil_reply_fd, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof(int));
	memcpy(&size, evil_reply + 4, 4);
	memcpy(&error, evil_reply + 12, 4);
	assert_in_range(size, 16, sizeof(evil_reply));
	size -= 16;
	return size && recv(sock, evil_reply, size, MSG_WAITALL) != (ssize_t)size ? EVIL_GONE : (int)error;
}

int evil_ask(int sock, uint16_t command, const void *payload, size_t len, const int *fds, unsigned count)
{
	evil_tell(sock, command, 0, payload, len, fds, count);
	return evil_hear(sock);
}

int evil_greet(int sock)
{
	return evil_ask(sock, EVIL_VERSION, "\0\0\0\0{}", 7, NULL, 0);
}

int evil_map(int sock, uint64_t at, uint64_t len, int fd, uint64_t offset)
{
	const struct {
		uint32_t argsz, flags;
		uint64_t offset, at, len;
	} map = { sizeof(map), 3, offset, at, len };

	return evil_ask(sock, EVIL_MAP, &map, sizeof(map), &fd, fd >= 0);
}

int evil_irqs(int sock, uint32_t flags, uint32_t start, uint32_t count, const int *fds, unsigned n)
{
	const uint32_t irqs[] = { 20, flags, 2, start, count };

	return evil_ask(sock, EVIL_IRQS, irqs, sizeof(irqs), fds, n);
}

int evil_write(int sock, uint32_t region, uint64_t offset, uint32_t value)
{
	const struct {
		uint64_t offset;
		uint32_t region, count, value;
	} write = { offset, region, 4, value };

	return evil_ask(sock, EVIL_WRITE, &write, 20, NULL, 0);
}

void evil_until_gone(int sock)
{
	while (recv(sock, evil_reply, sizeof(evil_reply), 0) > 0)
		;
}

/* ---- Descriptors ---- */

int evil_memory(size_t len, unsigned seals)
{
	int fd = memfd_create("evil", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_int_equal(ftruncate(fd, (off_t)len), 0);
	assert_int_equal(seals ? fcntl(fd, F_ADD_SEALS, seals) : 0, 0);
	return fd;
}

int evil_trap(void)
{
	static const char bytes[65536];
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
	const struct linger hour = { 1, 3600 };
	const int small = 4096;
	socklen_t len = sizeof(at);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	/* Small ones: many in large buffers meet the kernel's limit for all (tcp_mem), and are let go. */
	assert_int_equal(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	assert_int_equal(bind(listener, (struct sockaddr *)&at, sizeof(at)), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&at, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
	kept[kept_count++] = accept4(listener, NULL, NULL, SOCK_CLOEXEC); /* nobody reads from it */
	close(listener);
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour)), 0);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	return fd;
}

void evil_release(void)
{
	while (kept_count)
		close(kept[--kept_count]);
}
