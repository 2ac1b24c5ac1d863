/* SPDX-License-Identifier: MIT */
/*
 * bench/head_of_line: does a slow command hold up the others? One queue, one thread with many handles. One command in a hundred
 * gets its completion 10 ms late, by the controller's fault hook; against no command delayed.
 *
 * A delayed command keeps its handle for 10 ms, so even a queue without any blocking loses throughput: of H handles that turned
 * over X commands/s, H / (H/X + 10 ms/100) remain possible. The last column compares with that.
 */
#include "load.h"

#include "dev/dev.h"
#include "soft/soft.h"

#define DELAY_US 10000u

#define SLICES 4u /* of each kind, in turn, so that what else the machine does falls on both */

struct fault {
	uint32_t per_cent; /* of commands delayed (atomic) */
	uint32_t count;
};

struct sum {
	uint64_t ios;
	double seconds;
	struct hist hist;
};

/* Runs on the controller's threads. */
static enum gnv_soft_action decide(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	struct fault *f = ctx;
	uint32_t per_cent = __atomic_load_n(&f->per_cent, __ATOMIC_RELAXED);

	(void)sqid;
	(void)cmd;
	(void)status;
	*delay_us = DELAY_US;
	return __atomic_add_fetch(&f->count, per_cent, __ATOMIC_RELAXED) % 100 < per_cent ? GNV_SOFT_DELAY : GNV_SOFT_GO;
}

static int run_slice(struct load *l, struct sum *sum)
{
	struct load_result r = { 0 };
	int ret = load_run(l, &r);

	if (ret == GO_ON && !r.ios)
		ret = failed("no command ended in %.1f s", r.seconds);
	if (ret == GO_ON) {
		sum->ios += r.ios;
		sum->seconds += r.seconds;
		hist_merge(&sum->hist, r.hist);
	}
	free(r.hist);
	return ret;
}

/* @sum: without, with. */
static int measure(struct load *l, struct sum *sum, struct json_object **json)
{
	struct fault fault = { 0, 0 };
	struct load_result none = { 0 };
	int ret = session_open(&l->s, &l->o);

	if (ret == GO_ON && !gnv_dev_soft(l->s.dev))
		ret = failed("%s has no fault hook: use soft:PATH", l->o.dev);
	if (ret == GO_ON) {
		gnv_soft_set_fault(gnv_dev_soft(l->s.dev), &(struct gnv_soft_fault){ decide, &fault });
		ret = load_open(l);
	}
	if (ret == GO_ON)
		*json = print_setup(l->o.json, &l->s);
	l->seconds /= SLICES;
	for (uint32_t i = 0; i < 2 * SLICES && ret == GO_ON; i++) {
		__atomic_store_n(&fault.per_cent, i % 2, __ATOMIC_RELAXED);
		ret = run_slice(l, &sum[i % 2]);
	}
	load_close(l, &none);
	return ret;
}

static int compare(struct load *l)
{
	static struct sum sum[2];
	struct json_object *json = NULL;
	double without, with, possible;
	uint32_t p50[2];
	int ret = measure(l, sum, &json);

	if (ret != GO_ON)
		return ret;
	without = (double)sum[0].ios / sum[0].seconds;
	with = (double)sum[1].ios / sum[1].seconds;
	possible = l->qd / (l->qd / without + DELAY_US / 1e6 / 100);
	p50[0] = hist_quantile(&sum[0].hist, 0.5);
	p50[1] = hist_quantile(&sum[1].hist, 0.5);
	if (json) {
		put_count(json, "qd", l->qd);
		put_real(json, "iops_without", without, 1);
		put_real(json, "iops_with", with, 1);
		put_real(json, "iops_possible", possible, 1);
		put_count(json, "p50_us_without", p50[0]);
		put_count(json, "p50_us_with", p50[1]);
		print_object(json);
		return EXIT_DONE;
	}
	printf("  %-24s %10s %12s %14s\n", "", "IOPS", "50 % within", "of possible");
	printf("  %-24s %10.0f %9u us\n", "none delayed", without, p50[0]);
	printf("  %-24s %10.0f %9u us %13.2f\n", "1 % delayed by 10 ms", with, p50[1], with / possible);
	return EXIT_DONE;
}

int main(int argc, char **argv)
{
	struct load l = { .o = SESSION_OPTS_INIT, .rw = "randread", .bs = 4096, .qd = 128 };
	uint64_t ms = 2000;
	const struct option_def defs[] = {
		OPTION_DEV(&l.o),
		{ "qd", OPTION_U32, &l.qd, 1, "N", "handles (default 128)" },
		{ "ms", OPTION_U64, &ms, 1, "N", "milliseconds with and as many without delays (default 2000)" },
		OPTION_JSON(&l.o),
		OPTIONS_END,
	};
	int ret;

	program = "head_of_line";
	l.o.queues = 1;
	catch_signals();
	ret = parse_options(argc, argv, "usage: head_of_line --dev soft:PATH [options]", defs, NULL, 0);
	if (ret == GO_ON)
		ret = load_prepare(&l);
	if (ret != GO_ON)
		return ret;
	if (ms > 600000)
		return misused("--ms must be at most 600000");
	l.seconds = (double)ms / 1000;
	return finish(compare(&l));
}
