/* SPDX-License-Identifier: MIT */
/*
 * gpunvme list, bind, unbind, doctor: controllers on the PCI bus and what stands between them and this library.
 */
#include "verbs.h"

static void print_controller(const struct gpunvme_pci_info *i)
{
	printf("%s  %-9s  group %-3d numa %-2d  x%u %s\n", i->address, *i->driver ? i->driver : "no driver", i->group, i->numa,
	       i->link_width, i->link_speed);
	if (*i->model)
		printf("    %s, serial %s, %u namespaces, %s\n", i->model, i->serial, i->namespaces, human((double)i->bytes));
	if (*i->in_use)
		printf("    in use: %s\n", i->in_use);
	if (*i->group_other)
		printf("    shares its IOMMU group with %s\n", i->group_other);
}

static void print_text_field(const char *name, const char *text)
{
	printf(", \"%s\": ", name);
	json_string(text);
}

static void print_controller_json(const struct gpunvme_pci_info *i)
{
	printf("{\"address\": ");
	json_string(i->address);
	print_text_field("driver", i->driver);
	print_text_field("model", i->model);
	print_text_field("serial", i->serial);
	print_text_field("link_speed", i->link_speed);
	printf(", \"link_width\": %u, \"group\": %d, \"numa\": %d", i->link_width, i->group, i->numa);
	printf(", \"vendor\": %u, \"device\": %u, \"namespaces\": %u, \"bytes\": %" PRIu64, i->vendor, i->device, i->namespaces, i->bytes);
	print_text_field("group_other", i->group_other);
	print_text_field("in_use", i->in_use);
	printf("}");
}

int verb_list(int argc, char **argv)
{
	int json = 0;
	const struct option_def defs[] = {
		{ "json", OPTION_FLAG, &json, 0, "         one JSON array" },
		OPTIONS_END,
	};
	struct gpunvme_pci_info info = { .size = sizeof(info) };
	int ret = parse_options(argc, argv, "usage: gpunvme list [--json]", defs, NULL, 0);
	unsigned n;

	if (ret != GO_ON)
		return ret;
	if (json)
		printf("[");
	for (n = 0; gpunvme_pci_info(n, &info) == 0; n++) {
		if (json && n)
			printf(", ");
		if (json)
			print_controller_json(&info);
		else
			print_controller(&info);
	}
	if (json)
		printf("]\n");
	else if (!n)
		printf("this machine has no NVMe controllers on its PCI bus\n");
	return EXIT_DONE;
}

/* The one operand of the other verbs. */
static int parse_address(int argc, char **argv, const char *usage, const struct option_def *defs, const char **address)
{
	const char *operand[1] = { NULL };
	int ret = parse_options(argc, argv, usage, defs, operand, 1);

	if (ret != GO_ON)
		return ret;
	if (!operand[0])
		return misused("which controller? Give a PCI address; gpunvme list shows them");
	*address = strncmp(operand[0], "pci:", 4) == 0 ? operand[0] + 4 : operand[0];
	return GO_ON;
}

int verb_bind(int argc, char **argv)
{
	const char *address = NULL, *user = NULL;
	const struct option_def defs[] = {
		{ "user", OPTION_TEXT, &user, 0, "NAME     let this user open it" },
		OPTIONS_END,
	};
	int ret = parse_address(argc, argv, "usage: gpunvme bind ADDRESS [--user NAME]", defs, &address);

	if (ret != GO_ON)
		return ret;
	ret = gpunvme_pci_bind(address, user);
	return ret ? failed("%s", why(ret)) : EXIT_DONE;
}

int verb_unbind(int argc, char **argv)
{
	const char *address = NULL;
	const struct option_def defs[] = { OPTIONS_END };
	int ret = parse_address(argc, argv, "usage: gpunvme unbind ADDRESS", defs, &address);

	if (ret != GO_ON)
		return ret;
	ret = gpunvme_pci_unbind(address);
	return ret ? failed("%s", why(ret)) : EXIT_DONE;
}

static const char *verdict(int v)
{
	static const char *const words[] = { "ok", "limit", "FAILED", "skipped" };

	return (unsigned)v < 4 ? words[v] : "?";
}

static void print_checks(const struct gpunvme_check *checks, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		printf("%-8s %-16s %s\n", verdict(checks[i].verdict), checks[i].name, checks[i].reason);
		if (*checks[i].remedy)
			printf("%-25s -> %s\n", "", checks[i].remedy);
	}
}

static void print_checks_json(const char *address, int ret, const struct gpunvme_check *checks, unsigned count)
{
	printf("{\"address\": ");
	json_string(address);
	printf(", \"can_open\": %s, \"checks\": [", ret ? "false" : "true");
	for (unsigned i = 0; i < count; i++) {
		printf("%s{\"name\": ", i ? ", " : "");
		json_string(checks[i].name);
		print_text_field("verdict", verdict(checks[i].verdict));
		print_text_field("reason", checks[i].reason);
		print_text_field("remedy", checks[i].remedy);
		printf("}");
	}
	printf("]}\n");
}

int verb_doctor(int argc, char **argv)
{
	struct gpunvme_check checks[GPUNVME_MAX_CHECKS];
	unsigned count = GPUNVME_MAX_CHECKS;
	const char *address = NULL;
	int json = 0;
	const struct option_def defs[] = {
		{ "json", OPTION_FLAG, &json, 0, "         one JSON object" },
		OPTIONS_END,
	};
	int ret = parse_address(argc, argv, "usage: gpunvme doctor ADDRESS [--json]", defs, &address);

	if (ret != GO_ON)
		return ret;
	checks[0].name[0] = 0;
	ret = gpunvme_doctor(address, checks, &count);
	if (!checks[0].name[0])
		return failed("%s", why(ret));
	if (json)
		print_checks_json(address, ret, checks, count);
	else
		print_checks(checks, count);
	return ret ? EXIT_FAILED : EXIT_DONE;
}
