/* SPDX-License-Identifier: MIT */
/* A controller in software that a process of its own serves by vfio-user. */
#ifndef TESTS_SERVED_H
#define TESTS_SERVED_H

#include <signal.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gpunvme/gpunvme.h>

/* Before this process has threads. Return: the other one, which serves; -1. */
static inline pid_t served_fork(const char *uri, const char *sock)
{
	struct gpunvme_server *server;
	char said = 0;
	int pipes[2];
	pid_t pid;

	if (pipe(pipes))
		return -1;
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (gpunvme_server_start(uri, sock, NULL, &server) || write(pipes[1], "+", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	close(pipes[1]);
	if (read(pipes[0], &said, 1) != 1)
		pid = -1;
	close(pipes[0]);
	return pid;
}

static inline void served_end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

#endif
