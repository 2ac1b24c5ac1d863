/* SPDX-License-Identifier: MIT */
#include "os/linux/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "util/clock.h"
#include "util/log.h"

#define ABOVE 10  /* descriptors that are moved to 3 and 4 lie above these */
#define DEATH_MS 10000u
#define BY_PIDFD 3 /* P_PIDFD, which older headers of the C library lack */

extern char **environ;

/* The descriptors of the program, in the order of the actions. */
static int say_files(posix_spawn_file_actions_t *files, int talk, int given)
{
	int ret = posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);

	if (!ret)
		ret = posix_spawn_file_actions_addopen(files, 1, "/dev/null", O_WRONLY, 0);
	if (!ret && fcntl(2, F_GETFD) < 0) /* else the program's first file would be it, and get its messages */
		ret = posix_spawn_file_actions_addopen(files, 2, "/dev/null", O_WRONLY, 0);
	if (!ret)
		ret = posix_spawn_file_actions_adddup2(files, talk, GNV_CHILD_TALK);
	if (!ret)
		ret = posix_spawn_file_actions_adddup2(files, given, GNV_CHILD_GIVEN);
	if (!ret)
		ret = posix_spawn_file_actions_addclosefrom_np(files, GNV_CHILD_GIVEN + 1);
	return ret;
}

/* Its own group: signals of a terminal to the user's program must not reach it. */
static int say_signals(posix_spawnattr_t *attr)
{
	sigset_t none, all;

	sigemptyset(&none);
	sigfillset(&all);
	posix_spawnattr_setsigmask(attr, &none);
	posix_spawnattr_setsigdefault(attr, &all);
	posix_spawnattr_setpgroup(attr, 0);
	return posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
}

static int spawn(char *const argv[], int talk, int given, pid_t *pid)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int ret = posix_spawn_file_actions_init(&files);

	if (ret)
		return ret;
	ret = posix_spawnattr_init(&attr);
	if (ret)
		goto free_files;
	ret = say_files(&files, talk, given);
	if (!ret)
		ret = say_signals(&attr);
	if (!ret)
		ret = posix_spawn(pid, argv[0], &files, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
free_files:
	posix_spawn_file_actions_destroy(&files);
	return ret;
}

/* With both descriptors where none of those that they become can be in the way. */
static int spawn_above(char *const argv[], int talk, int given, pid_t *pid)
{
	int talk_above = fcntl(talk, F_DUPFD_CLOEXEC, ABOVE), given_above = fcntl(given, F_DUPFD_CLOEXEC, ABOVE);
	int ret = talk_above < 0 || given_above < 0 ? errno : spawn(argv, talk_above, given_above, pid);

	if (talk_above >= 0)
		close(talk_above);
	if (given_above >= 0)
		close(given_above);
	return ret;
}

/* No fork() may run meanwhile: its child would keep the program's end open, and the death of the program would go unnoticed. */
static int start(char *const argv[], int given, int *talk, pid_t *pid)
{
	int ends[2], ret;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return gnv_fail(-errno, "no connection to a child: %s", strerror(errno));
	ret = spawn_above(argv, ends[1], given, pid);
	close(ends[1]);
	if (!ret) {
		*talk = ends[0];
		return 0;
	}
	close(ends[0]);
	return gnv_fail(-ret, "%s cannot be started: %s", argv[0], strerror(ret));
}

/* Another thread may have waited for the child. Its number may be that of another process now, which must not be killed. */
static bool is_ours(int pidfd)
{
	siginfo_t info;

	return !waitid((idtype_t)BY_PIDFD, (id_t)pidfd, &info, WEXITED | WNOHANG | WNOWAIT) || errno != ECHILD;
}

/* *pidfd is -1 if it has ended already, and the kernel or another thread has waited for it. Return: 0, -errno: it was ended. */
static int follow(pid_t pid, int *pidfd)
{
	int ret;

	*pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
	ret = *pidfd < 0 ? -errno : 0;
	if (!ret && !is_ours(*pidfd)) {
		close(*pidfd);
		*pidfd = -1;
	}
	if (!ret || ret == -ESRCH)
		return 0;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return ret;
}

int gnv_child_start(char *const argv[], int given, struct gnv_child *child)
{
	int ret;
	pid_t pid;

	if (getauxval(AT_SECURE))
		return gnv_fail(-EPERM, "%s is not started by a program that has more rights than its user", argv[0]);
	gnv_fork_begin();
	ret = start(argv, given, &child->talk, &pid);
	gnv_fork_keep(ret ? -1 : child->talk);
	if (ret)
		return ret;
	gnv_fork_begin();
	ret = follow(pid, &child->pidfd);
	gnv_fork_keep(child->pidfd);
	if (!ret)
		return 0;
	gnv_fork_close(child->talk);
	return gnv_fail(ret, "no descriptor of the process of %s: %s", argv[0], strerror(-ret));
}

/* Return: can it be read within that time? A signal to this thread does not end the wait. */
static bool wait_for(int fd, unsigned ms)
{
	const uint64_t end = gnv_clock_ns() + ms * GNV_NS_PER_MS;
	struct pollfd on = { .fd = fd, .events = POLLIN };
	uint64_t now;
	int ret;

	do {
		now = gnv_clock_ns();
		ret = poll(&on, 1, now < end ? (int)((end - now) / GNV_NS_PER_MS) + 1 : 0);
	} while ((ret < 0 && errno == EINTR) || (!ret && now < end));
	return ret > 0;
}

int gnv_child_hear(const struct gnv_child *child, void *to, size_t len, unsigned ms)
{
	ssize_t got;

	if (!wait_for(child->talk, ms))
		return -ETIMEDOUT;
	got = recv(child->talk, to, len, MSG_DONTWAIT | MSG_TRUNC);
	if (got <= 0)
		return -EPIPE;
	return (size_t)got == len ? 0 : -EPROTO;
}

static int say(int fd, const void *message, size_t len)
{
	ssize_t sent;

	do {
		sent = send(fd, message, len, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	return sent == (ssize_t)len ? 0 : -EPIPE;
}

int gnv_child_go(const struct gnv_child *child)
{
	return say(child->talk, "", 1);
}

/* How it ended. If another thread has waited for it already, that is not known, and GNV_CHILD_EXITED is returned. */
static enum gnv_child_end collect(int pidfd)
{
	siginfo_t info = { .si_code = 0 };

	while (waitid((idtype_t)BY_PIDFD, (id_t)pidfd, &info, WEXITED) < 0 && errno == EINTR)
		;
	return info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED ? GNV_CHILD_SIGNALLED : GNV_CHILD_EXITED;
}

enum gnv_child_end gnv_child_finish(struct gnv_child *child, unsigned ms)
{
	enum gnv_child_end how = GNV_CHILD_STAYS;

	shutdown(child->talk, SHUT_RDWR); /* a child of clone() may have the descriptor as well */
	gnv_fork_close(child->talk);
	if (child->pidfd < 0)
		return GNV_CHILD_EXITED;
	if (wait_for(child->pidfd, ms)) {
		how = collect(child->pidfd);
	} else {
		syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
		if (wait_for(child->pidfd, DEATH_MS)) {
			collect(child->pidfd);
			how = GNV_CHILD_KILLED;
		}
	}
	gnv_fork_close(child->pidfd);
	return how;
}

const char *gnv_child_variable(const char *name)
{
	return secure_getenv(name);
}

int gnv_child_await(void)
{
	char go;
	ssize_t got;

	do {
		got = recv(GNV_CHILD_TALK, &go, 1, 0);
	} while (got < 0 && errno == EINTR);
	return got == 1 ? 0 : -EPIPE;
}

int gnv_child_say(const void *message, size_t len)
{
	return say(GNV_CHILD_TALK, message, len);
}
