/* SPDX-License-Identifier: MIT */
/* gpunvme doctor: check this machine, a controller and GPUs. */
#include "doctor_machine.h"
#include "lists.h"
#include "verbs.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One examination. */
struct findings {
	struct gpunvme_check checks[2 * GPUNVME_MAX_CHECKS]; /* of a drive before it is opened, and then */
	uint32_t count;
	int ret;
};

static const char *word(uint32_t v)
{
	static const char *const words[] = { "ok", "limit", "FAILED", "skipped" };

	return v < 4 ? words[v] : "?";
}

static void print_findings(const struct findings *f)
{
	for (unsigned i = 0; i < f->count; i++) {
		const struct gpunvme_check *check = &f->checks[i];

		printf("%-8s %-16s %s\n", word(check->result), check->name, check->reason);
		if (*check->remedy)
			printf("%-25s -> %s\n", "", check->remedy);
	}
}

static void add_checks(struct json_object *object, const struct findings *f)
{
	struct json_object *list = put_list(object, "checks");

	for (unsigned i = 0; i < f->count; i++) {
		struct json_object *check = append_object(list);

		put_text(check, "name", f->checks[i].name);
		put_text(check, "result", word(f->checks[i].result));
		put_text(check, "reason", f->checks[i].reason);
		put_text(check, "remedy", f->checks[i].remedy);
	}
}

static void add_findings(struct json_object *object, const struct findings *f)
{
	put_bool(object, "can_open", !f->ret);
	add_checks(object, f);
}

static void show_machine(struct json_object *result)
{
	struct findings f = { .count = MACHINE_CHECKS };

	check_machine(f.checks);
	if (result)
		add_checks(put_object(result, "machine"), &f);
	else
		print_findings(&f);
}

static void show_controller(const char *address, const struct findings *f, struct json_object *result)
{
	if (!result) {
		printf("\nController %s\n", address);
		print_findings(f);
		return;
	}
	put_text(result, "address", address);
	add_findings(result, f);
}

static void show_gpu(const struct gpunvme_gpu_entry *gpu, const struct findings *f, struct json_object *list)
{
	struct json_object *object;

	if (!list) {
		printf("\nGPU %s %s %s\n", gpu->address, gpu->gfx, gpu->spec);
		print_findings(f);
		return;
	}
	object = append_object(list);
	put_text(object, "spec", gpu->spec);
	put_text(object, "address", gpu->address);
	add_findings(object, f);
}

/* How many can be opened. */
static unsigned examine_gpus(const char *address, struct json_object *list)
{
	struct gpunvme_gpu_entry *all;
	uint32_t count = list_gpus(&all), n;
	unsigned usable = 0;

	for (n = 0; n < count; n++) {
		struct findings f = { .count = GPUNVME_MAX_CHECKS };

		f.ret = gpunvme_doctor_gpu(n, address, f.checks, &f.count);
		usable += !f.ret;
		show_gpu(&all[n], &f, list);
	}
	free(all);
	return usable;
}

static bool has_row(const struct findings *f, const struct gpunvme_check *check)
{
	for (unsigned i = 0; i < f->count; i++)
		if (!strcmp(f->checks[i].name, check->name) && !strcmp(f->checks[i].reason, check->reason))
			return true;
	return false;
}

static bool may_be_used(const struct findings *f)
{
	for (unsigned i = 0; i < f->count; i++)
		if (f->checks[i].result == GPUNVME_CHECK_FAILED)
			return false;
	return !f->ret;
}

/* It cannot be used after all. The second sentence of the error message is the remedy. */
static void put_refusal(struct findings *f, int ret)
{
	struct gpunvme_check *check = &f->checks[f->count++];
	const char *text = why(ret), *remedy = strstr(text, ". ");

	*check = (struct gpunvme_check){ .name = "drive", .result = GPUNVME_CHECK_FAILED };
	snprintf(check->reason, sizeof(check->reason), "%.*s", remedy ? (int)(remedy - text) : (int)strlen(text), text);
	snprintf(check->remedy, sizeof(check->remedy), "%s", remedy ? remedy + 2 : "");
	f->ret = ret;
}

/* The drive can be opened: add its own warnings, without repeating earlier findings. */
static void ask_drive(const char *address, struct findings *f)
{
	struct findings said = { .count = GPUNVME_MAX_CHECKS };
	struct gpunvme_dev *dev;
	int ret = gpunvme_dev_open(address, NULL, &dev);

	if (!ret) {
		ret = gpunvme_doctor_drive(dev, said.checks, &said.count);
		for (unsigned i = 0; i < said.count && i < GPUNVME_MAX_CHECKS && !ret; i++)
			if (!has_row(f, &said.checks[i]))
				f->checks[f->count++] = said.checks[i];
		gpunvme_dev_close(dev);
	}
	if (ret)
		put_refusal(f, ret);
}

int verb_doctor(int argc, char **argv)
{
	struct findings controller = { .count = GPUNVME_MAX_CHECKS };
	const char *address = NULL;
	struct json_object *result;
	unsigned usable;
	int json = 0;
	const struct option_def defs[] = {
		{ "json", OPTION_FLAG, &json, 0, NULL, "one JSON object" },
		OPTIONS_END,
	};
	int ret = parse_options(argc, argv, "usage: gpunvme doctor [ADDRESS] [--json]\n"
					    "Checks this machine, a controller and GPUs. Names a remedy for each problem. Never writes to media.", defs, &address, 1);

	if (ret != GO_ON)
		return ret;
	if (address)
		controller.ret = gpunvme_doctor(address, controller.checks, &controller.count);
	if (address && !controller.checks[0].name[0])
		return failed("%s", why(controller.ret));
	if (address && !controller.ret)
		ask_drive(address, &controller);
	result = json ? json_object_new_object() : NULL;
	show_machine(result);
	if (address)
		show_controller(address, &controller, result);
	usable = examine_gpus(address, result ? put_list(result, "gpus") : NULL);
	if (result)
		print_object(result);
	return (address ? may_be_used(&controller) : usable > 0) ? EXIT_DONE : EXIT_FAILED;
}
