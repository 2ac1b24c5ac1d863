/* SPDX-License-Identifier: MIT */
/* Threads of waves as coroutines, and one more after them, which plays the controller. Included after schedule.h and rig.h. */
#ifndef TESTS_DEVICE_SCHEDULE_LANES_H
#define TESTS_DEVICE_SCHEDULE_LANES_H

#define SCHEDULE_LANES 64u

struct schedule_lanes {
	uint32_t count, width;
	uint32_t over; /* that have returned (atomic) */
	struct gnvd_cpu_lane lane[SCHEDULE_LANES];
	struct gnvd_cpu_wave *wave;
	struct gnvd_cpu_launch launch;
};

static uint32_t schedule_waves(const struct schedule_lanes *l)
{
	return (l->count + l->width - 1) / l->width;
}

/* count and width are set. */
static void schedule_begin(struct schedule_lanes *l, void (*work)(unsigned number), void (*control)(unsigned number))
{
	uint32_t i;

	l->wave = calloc(schedule_waves(l), sizeof(*l->wave));
	gnvd_cpu_waves_init(l->wave, schedule_waves(l), l->count, l->width);
	l->launch.threads = l->count;
	schedule.tsan_main = __tsan_get_current_fiber();
	schedule.count = l->count + 1;
	schedule.co = calloc(schedule.count, sizeof(*schedule.co));
	for (i = 0; i < l->count; i++) {
		l->lane[i] = (struct gnvd_cpu_lane){ .wave = l->width > 1 ? &l->wave[i / l->width] : NULL, .index = i % l->width, .lane = i,
						     .launch = &l->launch };
		schedule_add(i, work, &l->lane[i]);
	}
	schedule_add(l->count, control, NULL);
}

/* A thread returns. */
static void schedule_leave(struct schedule_lanes *l, unsigned number)
{
	struct gnvd_cpu_wave *wave = l->lane[number].wave;

	if (wave) {
		pthread_mutex_lock(&wave->lock);
		wave->live--;
		pthread_mutex_unlock(&wave->lock);
	}
	__atomic_fetch_add(&l->over, 1, __ATOMIC_ACQ_REL);
}

static bool schedule_goes_on(struct schedule_lanes *l)
{
	return __atomic_load_n(&l->over, __ATOMIC_ACQUIRE) < l->count;
}

static void schedule_end(struct schedule_lanes *l)
{
	uint32_t i;

	for (i = 0; i < schedule_waves(l); i++)
		pthread_mutex_destroy(&l->wave[i].lock);
	free(l->wave);
	free(schedule.co);
}

/* After the threads: what nobody asked for comes in, too. */
static void schedule_drain(struct rig *rig)
{
	struct gnvd_wave w;

	mini_turn(&rig->ctrl);
	gnvd_enter(&w, &rig->dq, GNVD_SITE_POLL);
	gnvd_drain(&rig->dq, &w);
	gnvd_leave(&w);
}

/*
 * Runs the seeds from 1 to *count, or to what GPUNVME_SCHEDULES says; or the one that the command line names, and *count is 0 then.
 * Return: steps of all.
 */
static uint64_t schedule_all(int argc, char **argv, uint64_t *count, void (*run)(uint64_t seed))
{
	const char *many = getenv("GPUNVME_SCHEDULES");
	uint64_t seed, steps = 0;

	if (argc > 1) {
		run(strtoull(argv[1], NULL, 10));
		printf("seed %s: %llu steps, good\n", argv[1], (unsigned long long)schedule.steps);
		*count = 0;
		return schedule.steps;
	}
	*count = many ? strtoull(many, NULL, 10) : *count;
	for (seed = 1; seed <= *count; seed++) {
		run(seed);
		steps += schedule.steps;
	}
	return steps;
}

#endif
