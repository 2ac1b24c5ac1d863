/* SPDX-License-Identifier: MIT */
/* gpunvme faults: list the faults of the software controller, from the table by which the library parses the URI. */
#include "lists.h"
#include "verbs.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const kinds[] = {
	[GPUNVME_FAULT_STATE] = "state",
	[GPUNVME_FAULT_ACTION] = "action",
	[GPUNVME_FAULT_CONDITION] = "condition",
};
static const char *const headings[] = {
	[GPUNVME_FAULT_STATE] = "States of the drive, for its whole life:",
	[GPUNVME_FAULT_ACTION] = "\nFaults of commands (unready, dies, deaf: of the controller when CC.EN changes):",
	[GPUNVME_FAULT_CONDITION] = "\nConditions of a fault:",
};

static void print_text(const struct gpunvme_fault *f, uint32_t count)
{
	uint32_t kind = UINT32_MAX;
	char name[64];

	printf("soft:PATH?fault=WORD[:NUMBER][:CONDITION=VALUE...][,WORD...]\n"
	       "If several faults match a command, only the first takes effect.\n\n");
	for (; count--; f++) {
		if (f->kind != kind)
			puts(headings[f->kind]);
		kind = f->kind;
		snprintf(name, sizeof(name), "%s%s%s", f->word,
			 kind == GPUNVME_FAULT_CONDITION ? "="
			 : *f->number			 ? ":"
							 : "",
			 f->number);
		printf("  %-18s %s\n", name, f->text);
	}
}

static void print_json(const struct gpunvme_fault *f, uint32_t count)
{
	struct json_object *json = json_object_new_object(), *list = put_list(json, "faults");

	for (; count--; f++) {
		struct json_object *fault = append_object(list);

		put_text(fault, "word", f->word);
		put_text(fault, "kind", kinds[f->kind]);
		put_text(fault, "number", f->number);
		put_count(fault, "max", f->max);
		put_text(fault, "text", f->text);
	}
	print_object(json);
}

int verb_faults(int argc, char **argv)
{
	struct gpunvme_fault *all;
	uint32_t count;
	int json = 0;
	const struct option_def defs[] = {
		{ "json", OPTION_FLAG, &json, 0, NULL, "the result as one JSON object" },
		OPTIONS_END,
	};
	int ret = parse_options(argc, argv,
				"usage: gpunvme faults [options]\nLists the faults that fault= in a soft: URI injects.",
				defs, NULL, 0);

	if (ret != GO_ON)
		return ret;
	count = list_faults(&all);
	(json ? print_json : print_text)(all, count);
	free(all);
	return EXIT_DONE;
}
