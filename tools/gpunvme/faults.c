/* SPDX-License-Identifier: MIT */
/* gpunvme faults: what the controller in software can do wrong. The table is the library's, by which it reads the URI. */
#include "verbs.h"

#include <gpunvme/unstable.h>

#include <stdio.h>

static const char *const kinds[] = {
	[GPUNVME_FAULT_STATE] = "state",
	[GPUNVME_FAULT_MISHAP] = "mishap",
	[GPUNVME_FAULT_CONDITION] = "condition",
};
static const char *const headings[] = {
	[GPUNVME_FAULT_STATE] = "States of the drive, for its whole life:",
	[GPUNVME_FAULT_MISHAP] = "\nFaults of commands (unready, dies, deaf: of the controller when CC.EN changes):",
	[GPUNVME_FAULT_CONDITION] = "\nConditions of a fault:",
};

static void print_text(void)
{
	struct gpunvme_fault f = GPUNVME_FAULT_INIT;
	uint32_t kind = UINT32_MAX;
	char name[64];

	printf("soft:PATH?fault=WORD[:NUMBER][:CONDITION=VALUE...][,WORD...]; of several faults the first that hits a command "
	       "counts\n\n");
	for (unsigned n = 0; !gpunvme_fault_nth(n, &f); n++) {
		if (f.kind != kind)
			puts(headings[f.kind]);
		kind = f.kind;
		snprintf(name, sizeof(name), "%s%s%s", f.word,
			 kind == GPUNVME_FAULT_CONDITION ? "="
			 : *f.number			 ? ":"
							 : "",
			 f.number);
		printf("  %-18s %s\n", name, f.text);
	}
}

static void print_json(void)
{
	struct json_object *json = json_object_new_object(), *list = put_list(json, "faults");
	struct gpunvme_fault f = GPUNVME_FAULT_INIT;

	for (unsigned n = 0; !gpunvme_fault_nth(n, &f); n++) {
		struct json_object *fault = append_object(list);

		put_text(fault, "word", f.word);
		put_text(fault, "kind", kinds[f.kind]);
		put_text(fault, "number", f.number);
		put_count(fault, "max", f.max);
		put_text(fault, "text", f.text);
	}
	print_object(json);
}

int verb_faults(int argc, char **argv)
{
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
	(json ? print_json : print_text)();
	return EXIT_DONE;
}
