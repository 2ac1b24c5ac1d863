/* SPDX-License-Identifier: MIT */
/*
 * gpunvme litmus: does this machine keep the order that queues rely on? Prints a table; only reads.
 */
#include "verbs.h"

static const char *const meaning[GPUNVME_LITMUS_TESTS] = {
	[GPUNVME_LITMUS_ORDER] = "entries are written before their doorbell",
	[GPUNVME_LITMUS_CQE] = "completions are seen although caches held the entry",
	[GPUNVME_LITMUS_DATA] = "data is there when its completion is",
	[GPUNVME_LITMUS_DOORBELL] = "of doorbells in close succession the last counts",
	[GPUNVME_LITMUS_CQE16] = "a completion loaded at once is whole",
};
static const char *const verdict[] = { "not run", "passed", "FAILED" };

static void print_table(const struct session *s, const struct gpunvme_litmus *l)
{
	printf("%s on %s\n%-10s %10s %8s %10s %10s  verdict\n", s->gpu_info.name, s->info.model, "test", "commands", "faults",
	       "mean us", "worst us");
	for (unsigned i = 0; i < GPUNVME_LITMUS_TESTS; i++) {
		const struct gpunvme_litmus_result *t = &l->test[i];

		printf("%-10s %10" PRIu64 " %8u %10.1f %10.1f  %s: %s\n", t->name, t->commands, t->faults, t->mean_us, t->worst_us,
		       verdict[t->verdict], *t->why ? t->why : meaning[i]);
	}
	printf("proven for gpunvme_qp_create():%s%s%s\n", l->qp_flags & GPUNVME_QP_CQE16 ? " GPUNVME_QP_CQE16" : "",
	       l->qp_flags & GPUNVME_QP_NO_READBACK ? " GPUNVME_QP_NO_READBACK" : "", l->qp_flags ? "" : " nothing");
}

static void print_json(const struct session *s, const struct gpunvme_litmus *l)
{
	printf("{\"device\": ");
	json_string(s->info.model);
	printf(", \"lanes\": ");
	json_string(s->gpu_info.name);
	printf(", \"failed\": %u, \"cqe16\": %s, \"no_readback\": %s, \"tests\": {", l->failed,
	       l->qp_flags & GPUNVME_QP_CQE16 ? "true" : "false", l->qp_flags & GPUNVME_QP_NO_READBACK ? "true" : "false");
	for (unsigned i = 0; i < GPUNVME_LITMUS_TESTS; i++) {
		const struct gpunvme_litmus_result *t = &l->test[i];

		printf("%s\"%s\": {\"verdict\": \"%s\", \"commands\": %" PRIu64 ", \"faults\": %u, \"mean_us\": %.2f, \"worst_us\": %.2f, "
		       "\"why\": ", i ? ", " : "", t->name, verdict[t->verdict], t->commands, t->faults, t->mean_us, t->worst_us);
		json_string(t->why);
		putchar('}');
	}
	printf("}}\n");
}

int verb_litmus(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	struct gpunvme_litmus_opts opts = GPUNVME_LITMUS_OPTS_INIT;
	struct gpunvme_litmus l = { .size = sizeof(l) };
	struct session s;
	const struct option_def defs[] = {
		OPTION_GPU(&o),
		{ "commands", OPTION_U32, &opts.commands, 1, "N        of each test (default 100000)" },
		OPTION_JSON(&o),
		OPTION_VERBOSE(&o),
		OPTIONS_END,
	};
	int ret = parse_verb(argc, argv,
			     "usage: gpunvme litmus URI [options]\nDoes this machine keep the order that queues rely on? Only reads.",
			     defs, &o, NULL);

	if (ret == GO_ON)
		ret = session_open(&s, &o);
	if (ret != GO_ON)
		return ret;
	ret = session_open_gpu(&s, &o);
	if (ret == GO_ON) {
		ret = gpunvme_litmus(s.dev, s.gpu, &opts, &l);
		ret = ret ? failed("%s", why(ret)) : GO_ON;
	}
	if (ret == GO_ON) {
		(o.json ? print_json : print_table)(&s, &l);
		ret = l.failed ? EXIT_FAILED : EXIT_DONE;
	}
	session_close(&s);
	return ret;
}
