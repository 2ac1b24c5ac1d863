/* SPDX-License-Identifier: MIT */
/*
 * gpunvme ordering-test: test PCIe and cache ordering, on which queues rely. Prints a table, and only reads.
 */
#include "verbs.h"


#include "common/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const meaning[GPUNVME_ORDERING_TESTS] = {
	[GPUNVME_ORDERING_ORDER] = "entries are written before their doorbell",
	[GPUNVME_ORDERING_CQE] = "completions are seen although caches held the entry",
	[GPUNVME_ORDERING_DATA] = "data is there when its completion is",
	[GPUNVME_ORDERING_DOORBELL] = "of doorbells in close succession the last counts",
	[GPUNVME_ORDERING_CQE16] = "a completion loaded at once is whole",
	[GPUNVME_ORDERING_STORE] = "the controller reads the last store of a thread",
};
static const char *const words[] = { "not run", "passed", "FAILED" };

static void print_table(const struct session *s, const struct gpunvme_ordering *l)
{
	printf("%s on %s\n%-10s %10s %8s %10s %10s  result\n", s->gpu_info.name, s->info.model, "test", "commands", "faults",
	       "mean us", "worst us");
	for (unsigned i = 0; i < GPUNVME_ORDERING_TESTS; i++) {
		const struct gpunvme_ordering_result *t = &l->test[i];

		printf("%-10s %10" PRIu64 " %8u %10.1f %10.1f  %s: %s\n", t->name, t->commands, t->faults, t->mean_us, t->worst_us,
		       words[t->result], *t->why ? t->why : meaning[i]);
	}
	printf("proven for gpunvme_queue_create():%s%s%s%s\n", l->queue_flags & GPUNVME_QUEUE_VRAM ? " GPUNVME_QUEUE_VRAM" : "",
	       l->queue_flags & GPUNVME_QUEUE_CQE16 ? " GPUNVME_QUEUE_CQE16" : "",
	       l->queue_flags & GPUNVME_QUEUE_NO_READBACK ? " GPUNVME_QUEUE_NO_READBACK" : "", l->queue_flags ? "" : " nothing");
}

static void print_json(const struct session *s, const struct gpunvme_ordering *l)
{
	struct json_object *json = json_object_new_object(), *tests;

	put_text(json, "device", s->info.model);
	put_text(json, "gpu", s->gpu_info.name);
	put_count(json, "failed", l->failed);
	put_bool(json, "cqe16", (l->queue_flags & GPUNVME_QUEUE_CQE16) != 0);
	put_bool(json, "no_readback", (l->queue_flags & GPUNVME_QUEUE_NO_READBACK) != 0);
	put_bool(json, "vram", (l->queue_flags & GPUNVME_QUEUE_VRAM) != 0);
	tests = put_object(json, "tests");
	for (unsigned i = 0; i < GPUNVME_ORDERING_TESTS; i++) {
		const struct gpunvme_ordering_result *t = &l->test[i];
		struct json_object *test = put_object(tests, t->name);

		put_text(test, "result", words[t->result]);
		put_count(test, "commands", t->commands);
		put_count(test, "faults", t->faults);
		put_real(test, "mean_us", t->mean_us, 2);
		put_real(test, "worst_us", t->worst_us, 2);
		put_text(test, "why", t->why);
	}
	print_object(json);
}

static void show_progress(void *ctx, uint64_t done, uint64_t total)
{
	(void)total;
	progress_show(ctx, done);
}

/* This takes long: show the progress. */
static int run_tests(struct session *s, struct gpunvme_ordering_opts *opts, struct gpunvme_ordering *l)
{
	struct progress bar;
	int ret;

	progress_start(&bar, (uint64_t)opts->commands * GPUNVME_ORDERING_TESTS, "commands");
	opts->progress = show_progress;
	opts->progress_ctx = &bar;
	ret = gpunvme_gpu_ordering_test(s->dev, s->gpu, opts, l);
	progress_end(&bar);
	return ret ? failed("%s", why(ret)) : GO_ON;
}

/* Return: GO_ON, or EXIT_USAGE. */
static int choose_memory(const char *name, uint32_t *flags)
{
	static const struct {
		const char *name;
		uint32_t flags;
	} kinds[] = { { "host", GPUNVME_MEM_HOST }, { "huge", GPUNVME_MEM_HUGE }, { "shared", GPUNVME_MEM_SHARED },
		      { "vram", GPUNVME_MEM_VRAM }, { "hip", GPUNVME_MEM_HIP },	  { "drm", GPUNVME_MEM_DRM } };

	for (size_t i = 0; name && i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(name, kinds[i].name))
			*flags = kinds[i].flags;
	return !name || *flags ? GO_ON : misused("--memory is host, huge, shared, vram, hip or drm, not '%s'", name);
}

int verb_ordering_test(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	struct gpunvme_ordering_opts opts = { .size = sizeof(opts), .commands = 100000 };
	struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;
	const char *memory = NULL;
	struct session s;
	int vram = 0, copies = 0;
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		OPTION_GPU(&o),
		{ "commands", OPTION_U32, &opts.commands, 1, "N", "commands of each test (default 100000)" },
		{ "vram", OPTION_FLAG, &vram, 0, NULL, "put rings and data in the GPU's memory" },
		{ "memory", OPTION_TEXT, &memory, 0, "KIND", "memory of the data: host, huge, shared, vram, hip, drm (default: with the rings)" },
		{ "hip-copies", OPTION_FLAG, &copies, 0, NULL, "let HIP copy the data to the GPU and back before each launch" },
		OPTION_JSON(&o),
		OPTION_VERBOSE(&o),
		OPTIONS_END,
	};
	int ret = session_options(argc, argv,
			     "usage: gpunvme ordering-test URI [options]\nTests the PCIe and cache ordering that queues need. Only reads.",
			     defs, &o, NULL);

	if (ret == GO_ON)
		ret = choose_memory(memory, &opts.mem_flags);
	if (ret == GO_ON)
		ret = session_open(&s, &o);
	if (ret != GO_ON)
		return ret;
	opts.queue_flags = vram ? GPUNVME_QUEUE_VRAM : 0;
	opts.flags = copies ? GPUNVME_ORDERING_COPIES : 0;
	ret = session_open_gpu(&s, &o);
	if (ret == GO_ON)
		ret = run_tests(&s, &opts, &l);
	if (ret == GO_ON) {
		(o.json ? print_json : print_table)(&s, &l);
		ret = l.failed ? EXIT_FAILED : EXIT_DONE;
	}
	session_close(&s);
	return ret;
}
