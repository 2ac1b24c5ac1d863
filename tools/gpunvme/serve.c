/* SPDX-License-Identifier: MIT */
/*
 * gpunvme serve: emulate a controller for a virtual machine, or make a namespace a block device of the kernel, until a signal
 * comes.
 */
#include "serve.h"
#include "verbs.h"

#include "common/progress.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

/* Signals are let in only while it waits, so that none is missed. */
void block_signals(sigset_t *before)
{
	sigset_t ends;

	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigaddset(&ends, SIGHUP);
	sigprocmask(SIG_BLOCK, &ends, before);
	catch_signals();
}

static void wait_for_signal(const sigset_t *before)
{
	while (!interrupted)
		sigsuspend(before);
}

static int serve(const struct session_opts *o, const char *socket)
{
	struct gpunvme_server_opts opts = GPUNVME_SERVER_OPTS_INIT;
	struct gpunvme_server *server;
	sigset_t before;
	int ret;

	block_signals(&before);
	opts.log = session_log;
	opts.log_ctx = (void *)(uintptr_t)o;
	opts.flags = o->yes ? 0 : GPUNVME_SERVER_CAREFUL;
	ret = gpunvme_server_start(o->dev, socket, &opts, &server);
	if (ret == -EPERM && !o->yes)
		return failed("%s: add --yes if that is the drive you mean, or ro=1 to the URI", why(ret));
	if (ret)
		return failed("%s", why(ret));
	printf("%s is served at %s. End it with Ctrl-C\n", o->dev, socket);
	fflush(stdout);
	wait_for_signal(&before);
	ret = gpunvme_server_stop(server);
	return ret ? failed("%s", why(ret)) : EXIT_DONE;
}

/* Choose the way, and check its options. */
static int run(struct session_opts *o, const struct serve_opts *s)
{
	if (s->remove != NOT_GIVEN)
		return serve_remove(s);
	if (!o->dev)
		return misused("which controller? Give a URI, for example soft:disk.img");
	if (!s->socket == !s->ublk)
		return misused("where? Give --vfio-user SOCKET, the path of a socket that it makes, or --ublk for a block device of the kernel");
	if (s->force)
		return misused("--force needs --remove");
	if (s->socket && (s->ro || s->id != NOT_GIVEN || s->recover != NOT_GIVEN || o->queues || o->depth))
		return misused("--id, --recover, --ro, --queues and --depth need --ublk. With --vfio-user, write ro=1 in the URI");
	return s->ublk ? serve_ublk(o, s) : serve(o, s->socket);
}

int verb_serve(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	struct serve_opts s = { .id = NOT_GIVEN, .recover = NOT_GIVEN, .remove = NOT_GIVEN };
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		{ "vfio-user", OPTION_TEXT, &s.socket, 0, "SOCKET", "path of the new socket, to which QEMU's vfio-user-pci connects" },
		{ "ublk", OPTION_FLAG, &s.ublk, 0, NULL, "a block device of the kernel, /dev/ublkbN, on queues of this process" },
		{ "id", OPTION_U32, &s.id, 0, "N", "number of the block device (default: the kernel chooses)" },
		{ "recover", OPTION_U32, &s.recover, 0, "N", "continue block device N, whose server has died" },
		{ "remove", OPTION_U32, &s.remove, 0, "N", "remove block device N, whose server has died" },
		{ "force", OPTION_FLAG, &s.force, 0, NULL, "with --remove: even if it is mounted or open" },
		{ "ro", OPTION_FLAG, &s.ro, 0, NULL, "a read-only block device" },
		{ "queues", OPTION_U32, &o.queues, 1, "N", "queue pairs of the block device (default 4, or what the controller has)" },
		{ "depth", OPTION_U32, &o.depth, 1, "N", "requests in flight on each (default 64)" },
		OPTION_YES(&o),
		OPTION_VERBOSE(&o),
		OPTIONS_END,
	};
	const char *operand[1] = { NULL };
	int ret = parse_options(argc, argv,
				"usage: gpunvme serve --vfio-user SOCKET soft:PATH[?key=value&...] [options]\n"
				"       gpunvme serve --ublk URI [options]\n"
				"Emulates a controller for a virtual machine, or makes a namespace a block device of the kernel. Every process that\n"
				"may connect, or open the block device, can read and write the data.",
				defs, operand, 1);

	if (ret != GO_ON)
		return ret;
	if (operand[0] && o.dev)
		return misused("'%s' is one argument too many: try --help", operand[0]);
	o.dev = o.dev ? o.dev : operand[0];
	return run(&o, &s);
}
