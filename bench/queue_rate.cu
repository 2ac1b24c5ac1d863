/* SPDX-License-Identifier: MIT */
/*
 * What the device header does on an NVIDIA GPU: rings in pinned host memory, a controller of CPU threads that fetches, counts and
 * completes every command, and does no I/O. With --controller gpu the rings are in the GPU's memory and warps of the same GPU play
 * the controller, one for each queue: what remains is the cost of the algorithm without PCIe. Needs no NVMe and no library:
 * descriptors are filled by hand.
 *
 *   rates         commands per second by number of queues (if nothing is named)
 *   lane_scaling  from one thread to the whole GPU
 *   single_sm     threads of one multiprocessor, 32 queues
 *   latency       one command at a time: of one thread, and of one wave
 *   ends          a controller that says nothing: how late the last thread hears of a time-out of 100 ms, and of the host's stop
 *   hostile       a controller that does what a broken or malicious drive may do (gpu/hostile.h): each thread gets a result in time
 *   head_of_line  one command in a hundred completes 10 ms late: what do the others lose? By front, and for the peers
 *   peers         two published algorithms on the same rings with the same controller (gpu/block_drain.h, gpu/ticket.h), over the
 *                 block sizes that they may like
 *
 * --check (rates, peers) gives every command a unique stamp as its LBA. The controller completes commands out of order, with a status
 * that depends on the stamp. Each thread must get its own status, and each stamp must be fetched exactly once.
 *
 * --controller gpu --apart: no other block runs on a multiprocessor of the controller. --blocks N: at most so many of the
 * threads (rates, ends, peers).
 * --only TEXT: points whose name has the text. --only =TEXT: the point with this name.
 *
 * --stats: the queue keeps its counters, so that commands a doorbell and a drain are known.
 *
 * Built as CUDA: nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Ilib bench/queue_rate.cu, for single_sm with
 * -DGPUNVME_CQ_BATCH=2, because threads that fill a multiprocessor have few registers each. Built as C its threads are threads of
 * this CPU, few of them: that shows that the programs are right and nothing about speed.
 */
#include "gpu/ends.h"

static int run_point(struct point p, const struct options *o)
{
	struct outcome out;

	if (o->only[0] == '=' ? strcmp(p.name, o->only + 1) : !strstr(p.name, o->only))
		return 0;
	if (o->check && p.mode == SERVE_COUNT)
		p.mode = SERVE_CHECK;
	p = fit(p);
	out = measure(&p, o);
	return report(&p, o, &out);
}

static int run_rates(const struct options *o)
{
	uint32_t all = (uint32_t)o->groups, i;
	struct point points[] = {
		{ "ours", "1 queue, one multiprocessor", 1, 1, 512, 1024, lanes_512, PER_LANE, SERVE_COUNT },
		{ "ours", "1 queue", 1, 4, 512, 1024, lanes_512, PER_LANE, SERVE_COUNT },
		{ "ours", "2 queues", 2, 8, 512, 1024, lanes_512, PER_LANE, SERVE_COUNT },
		{ "ours", "8 queues", 8, 32, 512, 1024, lanes_512, PER_LANE, SERVE_COUNT },
		{ "ours", "32 queues, one multiprocessor", 32, 1, 1024, 1024, lanes_1024, PER_LANE, SERVE_COUNT },
		{ "ours", "32 queues", 32, 128, 512, 1024, lanes_512, PER_LANE, SERVE_COUNT },
		{ "ours", "128 queues", 128, all, 512, 1024, lanes_512, PER_LANE, SERVE_COUNT },
		{ "ours", "128 queues, one thread at a time", 128, all, 512, 1024, alone_512, PER_LANE, SERVE_COUNT },
		{ "ours", "128 queues, one thread of a wave", 128, all, 512, 1024, one_lane_512, PER_WAVE, SERVE_COUNT },
		{ "ours", "128 queues, one command a wave", 128, all, 512, 1024, wave_one_512, PER_WAVE, SERVE_COUNT },
		{ "ours", "4 queues of depth 2", 4, 4, 256, 2, lanes_512, PER_LANE, SERVE_COUNT },
		{ "ours", "4 queues of depth 16", 4, 4, 256, 16, lanes_512, PER_LANE, SERVE_COUNT },
	};
	int bad = 0;

	for (i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
		if (points[i].blocks > most_blocks(o, points[i].queues))
			points[i].blocks = most_blocks(o, points[i].queues);
		bad += run_point(points[i], o);
	}
	return bad;
}

/*
 * So many threads, one wave in a block as long as there are multiprocessors for it. Every queue has threads, and every thread a
 * wave.
 */
static struct point spread(const char *queue, const char *name, uint32_t queues, uint32_t lanes, kernel_fn kernel)
{
	struct point p = { queue, name, queues, 1, lanes, 1024, kernel, PER_LANE, SERVE_COUNT };

	if (lanes > 32) {
		p.blocks = lanes / 32 < 128 ? lanes / 32 : 128;
		p.block_lanes = lanes / p.blocks;
	}
	if (p.queues > (lanes + 31) / 32)
		p.queues = (lanes + 31) / 32;
	return p;
}

static int run_lane_scaling(const struct options *o)
{
	uint32_t lanes;
	int bad = 0;

	for (lanes = 1; lanes <= 65536; lanes *= 2) {
		bad += run_point(spread("ours", "128 queues", 128, lanes, lanes_512), o);
		if (lanes <= 4096)
			bad += run_point(spread("ours", "1 queue", 1, lanes, lanes_512), o);
		bad += run_point(spread("block-drain", "128 queues", 128, lanes, block_drain_1024), o);
		bad += run_point(spread("ticket", "128 queues", 128, lanes, ticket_512), o);
	}
	return bad;
}

static int run_single_sm(const struct options *o)
{
	static const uint32_t waves[] = { 1, 2, 4, 8, 16, 24, 32 };
	int bad = 0;
	uint32_t i;

	for (i = 0; i < sizeof(waves) / sizeof(waves[0]); i++) {
		struct point p = { "ours", "32 queues", 32, 1, 32 * waves[i], 1024, lanes_512, PER_LANE, SERVE_COUNT };

		p.queues = waves[i] < p.queues ? waves[i] : p.queues;
		if (p.block_lanes > 512)
			p.kernel = p.block_lanes > 768 ? lanes_1024 : lanes_768;
		bad += run_point(p, o);
	}
	return bad;
}

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

/* Each call of one block, one after the other. */
static int time_point(struct point p, const struct options *o)
{
	uint32_t count = ON_GPU ? 200000 : 100, *t, p50, p99, p999;
	struct outcome out;
	int bad;

	p = fit(p);
	out = launch(&p, o, count, true);
	bad = !outcome_ok(&out);
	t = out.samples;
	qsort(t, count, sizeof(*t), by_value);
	p50 = t[count / 2];
	p99 = t[(uint64_t)count * 99 / 100];
	p999 = t[(uint64_t)count * 999 / 1000];
	if (o->json)
		printf("{\"figure\": \"latency\", \"queue\": \"%s\", \"point\": \"%s\", \"controller\": \"%s\", \"lanes\": %u, \"batch\": %u, \"count\": %u, "
		       "\"min_ns\": %u, \"p50_ns\": %u, \"p99_ns\": %u, \"p999_ns\": %u, \"max_ns\": %u, \"ok\": %s}\n",
		       p.queue, p.name, o->on_gpu ? "gpu" : "cpu", p.block_lanes, ENTRIES_A_LOOK, count, t[0], p50, p99, p999, t[count - 1], bad ? "false" : "true");
	else
		printf("%-11s %-9s 50 %% within %6u ns, 99 %% %6u, 99.9 %% %6u; least %u, most %u; %u calls%s\n", p.queue, p.name, p50, p99, p999,
		       t[0], t[count - 1], count, bad ? "  WRONG" : "");
	fflush(stdout);
	free(t);
	return bad;
}

static int run_latency(const struct options *o)
{
	static const uint32_t lanes[] = { 1, 32 };
	int bad = 0;
	uint32_t i;

	for (i = 0; i < 2; i++) {
		const char *name = lanes[i] > 1 ? "one wave" : "one thread";

		bad += time_point((struct point){ "ours", name, 1, 1, lanes[i], 64, times_32, PER_LANE, SERVE_COUNT }, o);
		bad += time_point((struct point){ "block-drain", name, 1, 1, lanes[i], 64, block_drain_times, PER_LANE, SERVE_COUNT }, o);
		bad += time_point((struct point){ "ticket", name, 1, 1, lanes[i], 64, ticket_times, PER_LANE, SERVE_COUNT }, o);
	}
	bad += time_point((struct point){ "ours", "one command of a wave", 1, 1, 32, 64, wave_one_times, PER_WAVE, SERVE_COUNT }, o);
	return bad;
}

/*
 * A caller whose n commands end together waits for the slowest: one in a hundred takes 10 ms. Of I commands in flight that
 * turned over X a second, at most I / (I/X + P * 10 ms) remain. P is the chance of a late one among n. What is less is lost to others'
 * commands. handles: of each thread that issues commands.
 */
static int compare_late(struct point p, uint32_t handles, uint32_t together, const struct options *o)
{
	struct outcome without, with;
	double chance = 1, possible, in_flight;
	uint32_t i;
	int bad;

	p = fit(p);
	together = together < p.block_lanes ? together : p.block_lanes;
	in_flight = (double)commands_per_round(&p) * handles;
	without = measure(&p, o);
	p.mode = SERVE_LATE;
	with = measure(&p, o);
	bad = !outcome_ok(&without) || !outcome_ok(&with);
	for (i = 0; i < together; i++)
		chance *= 0.99;
	possible = in_flight / (in_flight / without.rate + (1 - chance) * LATE_SECONDS);
	if (o->json)
		printf("{\"figure\": \"head_of_line\", \"queue\": \"%s\", \"point\": \"%s\", \"controller\": \"cpu\", \"in_flight\": %.0f, "
		       "\"together\": %u, \"rate_without\": %.0f, \"rate_with\": %.0f, \"possible\": %.0f, \"share\": %.3f, \"ok\": %s}\n",
		       p.queue, p.name, in_flight, together, without.rate, with.rate, possible, with.rate / possible, bad ? "false" : "true");
	else
		printf("%-11s %-22s %5.0f in flight, %4u together: %9.0f/s without, %9.0f/s with 1 %% late, %4.2f of what is possible%s\n",
		       p.queue, p.name, in_flight, together, without.rate, with.rate, with.rate / possible, bad ? "  WRONG" : "");
	fflush(stdout);
	return bad;
}

static int run_head_of_line(const struct options *o)
{
	struct point lane = { "ours", "one thread of a wave", 1, 512, 32, 1024, one_lane_512, PER_WAVE, SERVE_COUNT };
	struct point handles = { "ours", "one thread, 16 handles", 1, 64, 32, 1024, handles_32, PER_WAVE, SERVE_COUNT };
	struct point wave = { "ours", "wave", 1, 32, 32, 1024, wave_512, PER_LANE, SERVE_COUNT };
	struct point block = { "ours", "block of 128", 1, 8, 128, 1024, block_256, PER_LANE, SERVE_COUNT };
	struct point drain = { "block-drain", "block of 512", 1, 1, 512, 1024, block_drain_1024, PER_LANE, SERVE_COUNT };
	struct point ticket = { "ticket", "512 threads", 1, 1, 512, 1024, ticket_512, PER_LANE, SERVE_COUNT };

	if (o->on_gpu)
		die("head_of_line needs --controller cpu: the one on the GPU keeps no clock");
	return compare_late(lane, 1, 1, o) + compare_late(handles, HANDLES, 1, o) + compare_late(wave, 1, 32, o) +
	       compare_late(block, 1, 128, o) + compare_late(drain, 1, 512, o) + compare_late(ticket, 1, 1, o);
}

static int run_peers(const struct options *o)
{
	static const uint32_t queues[] = { 1, 32, 128 }, blocks[] = { 8, 32, 64, 128, 256, 512, 992 };
	char name[64];
	uint32_t i, k;
	int bad = 0;

	for (i = 0; i < sizeof(queues) / sizeof(queues[0]); i++) {
		uint32_t q = queues[i], ours = q == 1 ? 4 : q == 32 ? 128 : (uint32_t)o->groups, most = most_blocks(o, q);
		uint32_t each = q < most ? q : most;
		struct point own = { "ours", name, q, ours < most ? ours : most, 512, 1024, lanes_512, PER_LANE, SERVE_COUNT };

		snprintf(name, sizeof(name), "%u queue%s", q, q > 1 ? "s" : "");
		bad += run_point(own, o);
		for (k = 0; k < sizeof(blocks) / sizeof(blocks[0]); k++) {
			struct point drain = { "block-drain", name, each, each, blocks[k], 1024, block_drain_1024, PER_LANE, SERVE_COUNT };
			struct point ticket = { "ticket", name, q, each, blocks[k], 1024, ticket_512, PER_LANE, SERVE_COUNT };

			drain.mode = o->check ? SERVE_ORDERED : SERVE_COUNT;
			bad += run_point(drain, o);
			if (o->check && k == 2) { /* what becomes of statuses: reported, and no failure of this program */
				drain.mode = SERVE_CHECK;
				drain.name = "out of order";
				run_point(drain, o);
			}
			if (blocks[k] <= 512)
				bad += run_point(ticket, o);
		}
	}
	return bad;
}

static const struct {
	const char *name;
	int (*run)(const struct options *o);
} figures[] = {
	{ "rates", run_rates }, { "lane_scaling", run_lane_scaling }, { "single_sm", run_single_sm }, { "latency", run_latency },
	{ "ends", run_ends }, { "hostile", run_hostile }, { "head_of_line", run_head_of_line }, { "peers", run_peers },
};
#define FIGURES (sizeof(figures) / sizeof(figures[0]))

static int usage(void)
{
	fputs("usage: queue_rate [rates|lane_scaling|single_sm|latency|ends|hostile|head_of_line|peers] [--controller cpu|gpu] "
	      "[--apart] [--blocks N] [--threads N] [--seconds S] [--only TEXT] [--check] [--stats] [--json]\n", stderr);
	return 2;
}

static int parse(int argc, char **argv, struct options *o)
{
	int i;

	for (i = 1; i < argc; i++) {
		const char *a = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;

		if (!strcmp(a, "--check"))
			o->check = true;
		else if (!strcmp(a, "--json"))
			o->json = true;
		else if (!strcmp(a, "--apart"))
			o->apart = true;
		else if (!strcmp(a, "--stats"))
			o->stats = true;
		else if (a[0] != '-')
			o->figure = a;
		else if (!value)
			return usage();
		else if (!strcmp(a, "--threads"))
			o->threads = (uint32_t)atoi(argv[++i]);
		else if (!strcmp(a, "--blocks"))
			o->blocks = (uint32_t)atoi(argv[++i]);
		else if (!strcmp(a, "--seconds"))
			o->seconds = atof(argv[++i]);
		else if (!strcmp(a, "--only"))
			o->only = argv[++i];
		else if (!strcmp(a, "--controller") && (!strcmp(value, "cpu") || (ON_GPU && !strcmp(value, "gpu"))))
			o->on_gpu = !strcmp(argv[++i], "gpu");
		else
			return usage();
	}
	return o->threads && (!o->apart || o->on_gpu) ? 0 : usage();
}

int main(int argc, char **argv)
{
	struct options o = { ON_GPU ? 8u : 1u, 0, ON_GPU ? 0.5 : 0.02, false, false, false, false, false, "", "rates", 0, NULL };
	int ret = parse(argc, argv, &o);
	size_t i;

	if (ret)
		return ret;
	o.machine = machine_name(&o.groups);
	if (!o.json)
		printf("%s, %d multiprocessors; rings in %s, %s; %s\n", o.machine, o.groups, o.on_gpu ? "the GPU's memory" : "host memory",
		       o.on_gpu ? "a warp of it for each queue as controller" : "controller of CPU threads",
		       o.check ? "checking every command" : "counting");
	for (i = 0; i < FIGURES; i++)
		if (!strcmp(figures[i].name, o.figure))
			return figures[i].run(&o) != 0;
	return usage();
}
