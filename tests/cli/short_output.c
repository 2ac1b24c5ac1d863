/* SPDX-License-Identifier: MIT */
/* Loaded in front of the command: when its verb is SHORT_OUTPUT no file takes more than 200 bytes of it, as of one that is ended. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

__attribute__((constructor)) static void limit(int argc, char **argv)
{
	const struct rlimit few = { 200, 200 };
	const char *verb = getenv("SHORT_OUTPUT");

	if (!verb || argc < 2 || strcmp(argv[1], verb) != 0)
		return;
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &few);
}
