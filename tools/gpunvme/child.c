/* SPDX-License-Identifier: MIT */
#include "child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#include "common/output.h"
#include "common/progress.h"

#define GRACE 1.0	   /* seconds from SIGTERM to SIGKILL, and from there until it is left alone */
#define OUTPUT (256 * KIB) /* of each stream, at most */

extern char **environ;

static pid_t start(const char *const *argv, int out, int err)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	pid_t pid;
	int ret;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, out, 1);
	posix_spawn_file_actions_adddup2(&actions, err, 2);
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
	ret = posix_spawn(&pid, "/proc/self/exe", &actions, &attributes, (char *const *)(uintptr_t)argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	return ret ? -1 : pid;
}

static int ended(pid_t pid, double until, int *status)
{
	const struct timespec pause = { 0, 5000000 };

	while (waitpid(pid, status, WNOHANG) != pid) {
		if (now_s() >= until)
			return 0;
		nanosleep(&pause, NULL);
	}
	return 1;
}

static void wait_for(pid_t pid, double seconds, struct child *c)
{
	int status;

	if (ended(pid, now_s() + seconds, &status)) {
		if (WIFSIGNALED(status))
			snprintf(c->status, sizeof(c->status), "signal %d", WTERMSIG(status));
		else if (WEXITSTATUS(status))
			snprintf(c->status, sizeof(c->status), "exit status %d", WEXITSTATUS(status));
		else
			snprintf(c->status, sizeof(c->status), "ok");
		return;
	}
	kill(-pid, SIGTERM);
	if (!ended(pid, now_s() + GRACE, &status)) {
		kill(-pid, SIGKILL);
		if (!ended(pid, now_s() + GRACE, &status)) {
			snprintf(c->status, sizeof(c->status), "hangs"); /* in the kernel: it is left alone */
			return;
		}
	}
	snprintf(c->status, sizeof(c->status), "too slow");
}

/* All of it as text. */
static char *contents(FILE *file)
{
	char *text = calloc(1, OUTPUT + 1);

	rewind(file);
	if (text)
		text[fread(text, 1, OUTPUT, file)] = '\0';
	return text;
}

void child_run(const char *const *argv, double seconds, struct child *c)
{
	FILE *out = tmpfile(), *err = tmpfile();
	double from = now_s();
	pid_t pid;

	*c = (struct child){ .status = "no time left" };
	pid = out && err && seconds > 0 ? start(argv, fileno(out), fileno(err)) : -1;
	if (pid > 0)
		wait_for(pid, seconds, c);
	else if (seconds > 0)
		snprintf(c->status, sizeof(c->status), "not started");
	c->seconds = now_s() - from;
	if (out) {
		c->out = contents(out);
		fclose(out);
	}
	if (err) {
		c->err = contents(err);
		fclose(err);
	}
}

void child_free(struct child *c)
{
	free(c->out);
	free(c->err);
}
