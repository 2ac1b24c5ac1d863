/* SPDX-License-Identifier: MIT */
/* gpunvme doctor: what stands between a controller, or a GPU, and this library. */
#include "verbs.h"

/* One examination. */
struct findings {
	struct gpunvme_check checks[GPUNVME_MAX_CHECKS];
	unsigned count;
	int ret;
};

static const char *verdict(int v)
{
	static const char *const words[] = { "ok", "limit", "FAILED", "skipped" };

	return (unsigned)v < 4 ? words[v] : "?";
}

static void print_findings(const struct findings *f)
{
	for (unsigned i = 0; i < f->count; i++) {
		const struct gpunvme_check *check = &f->checks[i];

		printf("%-8s %-16s %s\n", verdict(check->verdict), check->name, check->reason);
		if (*check->remedy)
			printf("%-25s -> %s\n", "", check->remedy);
	}
}

static void print_findings_json(const struct findings *f)
{
	printf("\"can_open\": %s, \"checks\": [", f->ret ? "false" : "true");
	for (unsigned i = 0; i < f->count; i++) {
		const struct gpunvme_check *check = &f->checks[i];

		printf("%s{\"name\": ", i ? ", " : "");
		json_string(check->name);
		json_field("verdict", verdict(check->verdict));
		json_field("reason", check->reason);
		json_field("remedy", check->remedy);
		printf("}");
	}
	printf("]");
}

static void print_controller(const char *address, const struct findings *f, int json)
{
	if (!json) {
		print_findings(f);
		return;
	}
	printf("\"address\": ");
	json_string(address);
	printf(", ");
	print_findings_json(f);
	printf(", ");
}

/* How many can be opened. */
static unsigned examine_gpus(const char *address, int json)
{
	struct gpunvme_gpu_entry gpu = { .size = sizeof(gpu) };
	unsigned n, usable = 0;

	for (n = 0; gpunvme_gpu_nth(n, &gpu) == 0; n++) {
		struct findings f = { .count = GPUNVME_MAX_CHECKS };

		f.ret = gpunvme_doctor_gpu(n, address, f.checks, &f.count);
		usable += !f.ret;
		if (json) {
			printf("%s{\"spec\": ", n ? ", " : "");
			json_string(gpu.spec);
			json_field("address", gpu.address);
			printf(", ");
			print_findings_json(&f);
			printf("}");
		} else {
			printf("\nGPU %s %s %s\n", gpu.address, gpu.gfx, gpu.spec);
			print_findings(&f);
		}
	}
	if (!n && !json)
		printf("%sno GPU on this machine; lanes can be threads of the CPU\n", address ? "\n" : "");
	return usable;
}

int verb_doctor(int argc, char **argv)
{
	struct findings controller = { .count = GPUNVME_MAX_CHECKS };
	const char *address = NULL;
	unsigned usable;
	int json = 0;
	const struct option_def defs[] = {
		{ "json", OPTION_FLAG, &json, 0, "         one JSON object" },
		OPTIONS_END,
	};
	int ret = parse_options(argc, argv, "usage: gpunvme doctor [ADDRESS] [--json]", defs, &address, 1);

	if (ret != GO_ON)
		return ret;
	if (address && strncmp(address, "pci:", 4) == 0)
		address += 4;
	if (address)
		controller.ret = gpunvme_doctor(address, controller.checks, &controller.count);
	if (address && !controller.checks[0].name[0])
		return failed("%s", why(controller.ret));
	if (json)
		printf("{");
	if (address)
		print_controller(address, &controller, json);
	if (json)
		printf("\"gpus\": [");
	usable = examine_gpus(address, json);
	if (json)
		printf("]}\n");
	return (address ? !controller.ret : usable > 0) ? EXIT_DONE : EXIT_FAILED;
}
