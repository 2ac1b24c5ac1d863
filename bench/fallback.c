/* SPDX-License-Identifier: MIT */
/*
 * bench/fallback: what threads get from the software controller, as IOPS, bandwidth and latency. bench/fallback.py runs it in turn
 * with fio on the same file. Write patterns destroy what is in the image.
 */
#include "load.h"

static void print_table(const struct load *l, const struct load_result *r)
{
	printf("%s of %s, %u queues, %u in flight each, %.2f s\n", l->rw, human((double)l->bs), l->s.queues, l->qd, r->seconds);
	printf("  throughput     %.0f IOPS, %s/s, %" PRIu64 " commands\n", r->iops, human(r->iops * (double)l->bs), r->ios);
	printf("  latency        50 %% within %u us, 99 %% within %u us\n", hist_quantile(r->hist, 0.5),
	       hist_quantile(r->hist, 0.99));
	printf("  CPUs           %.2f for the lanes, %.2f for the controller\n", r->lane_cpu, r->other_cpu);
	printf("  per command    %.2f doorbells, %.2f drains, %.2f context switches\n", (double)r->doorbells / (double)r->ios,
	       (double)r->drains / (double)r->ios, (double)r->switches / (double)r->ios);
}

static void print_json(struct json_object *json, const struct load *l, const struct load_result *r)
{
	put_text(json, "rw", l->rw);
	put_count(json, "bs", l->bs);
	put_count(json, "queues", l->s.queues);
	put_count(json, "qd", l->qd);
	put_count(json, "idle_ms", l->idle_ms);
	put_real(json, "seconds", r->seconds, 3);
	put_count(json, "ios", r->ios);
	put_real(json, "iops", r->iops, 1);
	put_real(json, "bytes_per_second", r->iops * (double)l->bs, 0);
	put_count(json, "p50_us", hist_quantile(r->hist, 0.5));
	put_count(json, "p99_us", hist_quantile(r->hist, 0.99));
	put_real(json, "lane_cpus", r->lane_cpu, 3);
	put_real(json, "controller_cpus", r->other_cpu, 3);
	put_count(json, "doorbells", r->doorbells);
	put_count(json, "drains", r->drains);
	put_count(json, "context_switches", r->switches);
	print_object(json);
}

static int measure(struct load *l)
{
	struct load_result r = { 0 };
	struct json_object *json;
	int ret = session_open(&l->s, &l->o);

	if (ret == GO_ON)
		ret = load_open(l);
	if (ret == GO_ON)
		ret = load_run(l, &r);
	if (ret == GO_ON && !r.ios)
		ret = failed("no command ended in %.1f s", r.seconds);
	if (ret == GO_ON) {
		json = print_setup(l->o.json, &l->s);
		if (json)
			print_json(json, l, &r);
		else
			print_table(l, &r);
		ret = EXIT_DONE;
	}
	load_close(l, &r);
	return ret;
}

int main(int argc, char **argv)
{
	struct load l = { .o = SESSION_OPTS_INIT, .rw = "randread", .bs = 4096, .qd = 32 };
	uint64_t ms = 2000;
	const struct option_def defs[] = {
		OPTION_DEV(&l.o),
		{ "rw", OPTION_TEXT, &l.rw, 0, "PATTERN",
		  "read, write, randread (default), randwrite; writing destroys the image" },
		{ "bs", OPTION_SIZE, &l.bs, 4096, "SIZE", "bytes of a command (default 4K)" },
		{ "queues", OPTION_U32, &l.o.queues, 1, "N", "queue pairs, each with one lane (default 1)" },
		{ "qd", OPTION_U32, &l.qd, 1, "N", "handles of each lane (default 32)" },
		{ "ms", OPTION_U64, &ms, 1, "N", "milliseconds to run (default 2000)" },
		{ "idle", OPTION_U32, &l.idle_ms, 0, "MS", "rest before each command, one in flight" },
		OPTION_YES(&l.o),
		OPTION_JSON(&l.o),
		OPTIONS_END,
	};
	int ret;

	program = "fallback";
	l.o.queues = 1;
	catch_signals();
	ret = parse_options(argc, argv, "usage: fallback --dev soft:PATH [options]", defs, NULL, 0);
	if (ret == GO_ON)
		ret = load_prepare(&l);
	if (ret != GO_ON)
		return ret;
	if (ms > 600000)
		return misused("--ms must be at most 600000");
	l.seconds = (double)ms / 1000;
	return finish(measure(&l));
}
