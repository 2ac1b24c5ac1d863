/* SPDX-License-Identifier: MIT */
/*
 * gpunvme: look at, read, write and measure NVMe controllers. This file finds the verb.
 */
#include "verbs.h"

#include "common/nearest.h"

#include <stdio.h>
#include <string.h>

static const struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} verbs[] = {
	{ "list", verb_list, "list the NVMe controllers and GPUs of this machine" },
	{ "bind", verb_bind, "take a controller from the kernel driver" },
	{ "unbind", verb_unbind, "return a controller to the kernel driver" },
	{ "doctor", verb_doctor, "check this machine, a controller and GPUs" },
	{ "identify", verb_identify, "show a controller: limits, namespaces, health" },
	{ "read", verb_read, "read blocks to a file or standard output" },
	{ "write", verb_write, "write a file or standard input to blocks" },
	{ "discard", verb_discard, "deallocate blocks" },
	{ "ls", verb_ls, "list a directory of a file system that is not mounted" },
	{ "cat", verb_cat, "write a file of such a file system to standard output" },
	{ "extents", verb_extents, "map a file of a mounted file system to blocks" },
	{ "unlease", verb_unlease, "end the lease of a process that died" },
	{ "ordering-test", verb_ordering_test, "test PCIe and cache ordering" },
	{ "faults", verb_faults, "list the faults that the emulator injects" },
	{ "coherence", verb_coherence, "make an AMD GPU see memory that others write" },
	{ "report", verb_report, "collect facts about this machine in one file for an issue" },
	{ "bench", verb_bench, "measure IOPS, bandwidth and latency" },
	{ "serve", verb_serve, "emulate a controller for a virtual machine" },
	{ "soak", verb_soak, "stress test with data verification" },
	{ "qualify", verb_qualify, "examine an empty drive and write a report" },
};
#define VERBS (sizeof(verbs) / sizeof(verbs[0]))

static int help(void)
{
	printf("usage: gpunvme VERB [URI] [options]\n\nVerbs:\n");
	for (size_t i = 0; i < VERBS; i++)
		printf("  %-13s %s\n", verbs[i].name, verbs[i].help);
	printf("\nURI: the PCI address of a controller, or an emulated one: soft:PATH[?key=value&...], soft:ram:SIZE,\n"
	       "vfio-user:SOCKET. `gpunvme VERB --help` lists the options of a verb, `gpunvme -V` prints the version.\n");
	return EXIT_DONE;
}

static const struct verb *find(const char *name)
{
	for (size_t i = 0; i < VERBS; i++)
		if (strcmp(name, verbs[i].name) == 0)
			return &verbs[i];
	return NULL;
}

static int unknown(const char *name)
{
	const char *what = *name == '-' ? "option" : "verb";
	struct nearest near = NEAREST_INIT(name, strlen(name));

	for (size_t i = 0; i < VERBS; i++)
		nearest_look(&near, verbs[i].name);
	nearest_look(&near, "--help");
	nearest_look(&near, "--version");
	if (near.name)
		return misused("unknown %s '%s': did you mean %s? Try gpunvme --help", what, name, near.name);
	return misused("unknown %s '%s': try gpunvme --help", what, name);
}

/* help VERB is VERB --help. */
static int help_verb(char *name)
{
	static char option[] = "--help";
	char *args[] = { name, option, NULL };
	const struct verb *verb = find(name);

	return verb ? verb->run(2, args) : unknown(name);
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
	const struct verb *verb = find(name);

	if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
		return finish(argc > 2 ? help_verb(argv[2]) : help());
	if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0)
		return finish(version());
	if (verb)
		return finish(verb->run(argc - 1, argv + 1));
	return *name ? unknown(name) : misused("which verb? Try gpunvme --help");
}
