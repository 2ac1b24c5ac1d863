/* SPDX-License-Identifier: MIT */
/*
 * Where the time of a command goes: one command at a time of one thread and of one wave, with a device header that reads the clock
 * between its steps. bench/guarantees --cuda makes that header and builds this with it; bench/gpu_run --parts runs it. Reading the clock
 * costs 0.1 to 0.2 us a command, and what a part does not wait for itself the next one may.
 */
#include "gpu/measure.h"

static const char *const names[GNVD_PARTS] = { "reserve", "write", "publish", "look and deliver", "take" };

/* What all calls so far have spent, in ticks of the fine clock. */
static void read_parts(uint64_t *ticks)
{
#if ON_GPU
	void *at;

	CUDA(cudaGetSymbolAddress(&at, gnvd_part_ticks));
#else
	void *at = gnvd_part_ticks;
#endif
	local_read(ticks, (uintptr_t)at, GNVD_PARTS * sizeof(*ticks));
}

static int time_parts(struct point p, const struct options *o)
{
	uint64_t before[GNVD_PARTS], after[GNVD_PARTS];
	uint32_t count = ON_GPU ? 200000 : 100, i;
	double rest = 0, ns;
	struct outcome out;

	p = fit(p);
	read_parts(before);
	out = launch(&p, o, count, true);
	read_parts(after);
	printf("{\"figure\": \"parts\", \"point\": \"%s\", \"batch\": %u, \"ok\": %s", p.name, ENTRIES_A_LOOK, outcome_ok(&out) ? "true" : "false");
	for (i = 0; i < count; i++)
		rest += out.samples[i];
	rest /= count;
	for (i = 0; i < GNVD_PARTS; i++) {
		ns = (double)(after[i] - before[i]) * out.tick_ns / count;
		rest -= ns;
		printf(", \"%s\": %.0f", names[i], ns);
	}
	printf(", \"the rest\": %.0f}\n", rest);
	free(out.samples);
	return !outcome_ok(&out);
}

int main(int argc, char **argv)
{
	struct options o = { 1, 0, 0, false, true, false, false, false, "", "parts", 0, NULL };

	(void)argv;
	if (argc > 1) {
		fputs("usage: parts\n", stderr);
		return 2;
	}
	o.machine = machine_name(&o.groups);
	return time_parts((struct point){ "ours", "one thread", 1, 1, 1, 64, times_32, PER_LANE, SERVE_COUNT }, &o) +
	       time_parts((struct point){ "ours", "one wave", 1, 1, 32, 64, times_32, PER_LANE, SERVE_COUNT }, &o) +
	       time_parts((struct point){ "ours", "one command of a wave", 1, 1, 32, 64, wave_one_times, PER_WAVE, SERVE_COUNT }, &o) != 0;
}
