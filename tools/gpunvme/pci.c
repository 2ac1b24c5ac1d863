/* SPDX-License-Identifier: MIT */
/*
 * gpunvme bind, unbind: taking controllers on the PCI bus, and giving them back.
 */
#include "verbs.h"

#include <string.h>

/* The one operand. */
static int parse_address(int argc, char **argv, const char *usage, const struct option_def *defs, const char **address)
{
	const char *operand[1] = { NULL };
	int ret = parse_options(argc, argv, usage, defs, operand, 1);

	if (ret != GO_ON)
		return ret;
	if (!operand[0])
		return misused("which controller? Give a PCI address from gpunvme list");
	*address = operand[0];
	return GO_ON;
}

int verb_bind(int argc, char **argv)
{
	const char *address = NULL, *user = NULL;
	const struct option_def defs[] = {
		{ "user", OPTION_TEXT, &user, 0, "NAME", "let this user open it" },
		OPTIONS_END,
	};
	int ret = parse_address(argc, argv, "usage: gpunvme bind ADDRESS [--user NAME]\n"
					    "Takes a controller from the kernel driver, if nothing uses it.", defs, &address);

	if (ret != GO_ON)
		return ret;
	ret = gpunvme_pci_bind(address, user);
	return ret ? failed("%s", why(ret)) : EXIT_DONE;
}

int verb_unbind(int argc, char **argv)
{
	const char *address = NULL;
	const struct option_def defs[] = { OPTIONS_END };
	int ret = parse_address(argc, argv, "usage: gpunvme unbind ADDRESS\nReturns a controller to the kernel driver.", defs, &address);

	if (ret != GO_ON)
		return ret;
	ret = gpunvme_pci_unbind(address);
	return ret ? failed("%s", why(ret)) : EXIT_DONE;
}
