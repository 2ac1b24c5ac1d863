/* SPDX-License-Identifier: MIT */
/*
 * gpunvme: look at, read, write and measure NVMe controllers with lanes. This file finds the verb.
 */
#include "verbs.h"

#include <stdio.h>
#include <string.h>

static const struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
	{ "list", verb_list, "the NVMe controllers and GPUs of this machine" },
	{ "bind", verb_bind, "take a controller from the kernel for use here" },
	{ "unbind", verb_unbind, "give it back" },
	{ "doctor", verb_doctor, "what stands between a controller, or GPUs, and this library" },
	{ "identify", verb_identify, "what a controller is: limits, namespaces, health" },
	{ "read", verb_read, "blocks to a file or standard output" },
	{ "write", verb_write, "a file or standard input to blocks" },
	{ "discard", verb_discard, "tell a drive that nobody needs what is in blocks" },
	{ "ls", verb_ls, "a directory of a file system that nobody has mounted" },
	{ "cat", verb_cat, "a file of it to standard output" },
	{ "extents", verb_extents, "where a file of a mounted file system lies, as a map" },
	{ "unlease", verb_unlease, "end the lease that a process has left on a file when it died" },
	{ "litmus", verb_litmus, "does this machine keep the order that queues rely on" },
	{ "faults", verb_faults, "what a controller in software can be made to do wrong" },
	{ "coherence", verb_coherence, "make an AMD GPU see memory as it is" },
	{ "report", verb_report, "what works on this machine, in one file, to attach to an issue" },
	{ "bench", verb_bench, "IOPS, bandwidth and latency" },
	{ "serve", verb_serve, "a software controller for a virtual machine" },
	{ "soak", verb_soak, "is what was written still there, whatever happens in between" },
	{ "accept", verb_accept, "examine an empty drive, and write a report to send in" },
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static int help(void)
{
	printf("usage: gpunvme VERB [URI] [options]\n\nVerbs:\n");
	for (size_t i = 0; i < VERBS; i++)
		printf("  %-10s %s\n", verbs[i].name, verbs[i].help);
	printf("\nURI: soft:PATH[?key=value&...] or a PCI address. `gpunvme VERB --help` lists the options of a verb.\n");
	return EXIT_DONE;
}

/* help VERB is VERB --help. */
static int help_verb(char *name)
{
	static char option[] = "--help";
	char *args[] = { name, option, NULL };

	for (size_t i = 0; i < VERBS; i++)
		if (strcmp(name, verbs[i].name) == 0)
			return verbs[i].run(2, args);
	return misused("unknown verb '%s'; try gpunvme --help", name);
}

static int version(void)
{
	unsigned v = gpunvme_version();

	printf("gpunvme %u.%u.%u\n", v >> 16, v >> 8 & 0xff, v & 0xff);
	return EXIT_DONE;
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "";

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
		return finish(argc > 2 ? help_verb(argv[2]) : help());
	if (strcmp(name, "--version") == 0)
		return finish(version());
	for (size_t i = 0; i < VERBS; i++)
		if (strcmp(name, verbs[i].name) == 0)
			return finish(verbs[i].run(argc - 1, argv + 1));
	if (!*name)
		return misused("which verb? Try gpunvme --help");
	return misused("unknown verb '%s'; try gpunvme --help", name);
}
