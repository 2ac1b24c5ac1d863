/* SPDX-License-Identifier: MIT */
/*
 * gpunvme serve: the software controller for a virtual machine, until a signal ends it.
 */
#include "verbs.h"

#include "common/progress.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* Does the URI say so? Keys are its own business otherwise. */
static int is_read_only(const char *uri)
{
	const char *at = strchr(uri, '?');

	while (at && strncmp(at + 1, "ro=1", 4))
		at = strchr(at + 1, '&');
	return at && (at[5] == '\0' || at[5] == '&');
}

static int may_serve(const struct session_opts *o)
{
	struct stat st;

	if (o->yes || soft_stat(o->dev, &st) || S_ISREG(st.st_mode) || is_read_only(o->dev))
		return GO_ON;
	return failed("whoever connects could overwrite what is on %s: add --yes if that is the drive you mean, or ro=1 to the URI",
		      o->dev);
}

/* Signals are let in only while it waits, so that none is missed. */
static void wait_for_signal(const sigset_t *before)
{
	while (!interrupted)
		sigsuspend(before);
}

static int serve(const struct session_opts *o, const char *socket)
{
	struct gpunvme_server_opts opts = GPUNVME_SERVER_OPTS_INIT;
	struct gpunvme_server *server;
	sigset_t ends, before;
	int ret;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, &before);
	catch_signals();
	opts.log = session_log;
	opts.log_ctx = (void *)(uintptr_t)o;
	ret = gpunvme_server_start(o->dev, socket, &opts, &server);
	if (ret)
		return failed("%s", why(ret));
	printf("%s is served at %s; end it with Ctrl-C\n", o->dev, socket);
	fflush(stdout);
	wait_for_signal(&before);
	ret = gpunvme_server_stop(server);
	return ret ? failed("%s", why(ret)) : EXIT_DONE;
}

int verb_serve(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	const char *socket = NULL;
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		{ "vfio-user", OPTION_TEXT, &socket, 0, "SOCKET", "path of the socket that is made; QEMU's vfio-user-pci connects to it" },
		OPTION_YES(&o),
		OPTION_VERBOSE(&o),
		OPTIONS_END,
	};
	int ret = session_options(argc, argv,
				  "usage: gpunvme serve --vfio-user SOCKET soft:PATH[?key=value&...] [options]\n"
				  "An NVMe controller for a virtual machine. Whoever may connect reads and writes the image.",
				  defs, &o, NULL);

	if (ret != GO_ON)
		return ret;
	if (!socket)
		return misused("where? Give --vfio-user SOCKET, the path of a socket that it makes");
	ret = may_serve(&o);
	return ret == GO_ON ? serve(&o, socket) : ret;
}
