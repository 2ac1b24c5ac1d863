/* SPDX-License-Identifier: MIT */
/*
 * The kernel of a drive with a team of several lanes, each a thread. A test links it in place of the library's, whose team is one
 * lane. So what the lanes of a GPU share, and where they meet, is tested on CPU threads. A meeting that is missing is a data race
 * for ThreadSanitizer.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define VD_WIDTH 4u
#define gnv_vd_kernel_cpu run_lane

static inline uint32_t vd_lane(void);
static inline void vd_meet(void);
static inline uint32_t vd_first(uint32_t value);
static inline bool vd_any(bool yes);
static inline uint32_t vd_rank(bool yes, uint32_t *all);
static inline void vd_look(const uint32_t *const at[], uint32_t value[]);
static inline void vd_add64(uint64_t *sum, uint32_t value);

#include "vdrive/kernel/kernel.c" /* quiet bugprone-suspicious-include: a kernel is one unit */

#undef gnv_vd_kernel_cpu

struct lane {
	struct team *team;
	uint32_t number;
	pthread_t thread; /* lane 0 is the thread of the worker */
};

struct team {
	pthread_barrier_t barrier;
	const struct gnv_vd_args *args; /* NULL: the team ends */
	uint32_t index;
	uint32_t word[VD_WIDTH > VD_LOOKS ? VD_WIDTH : VD_LOOKS];
	struct lane lane[VD_WIDTH];
};

static _Thread_local struct lane *own;

/* ---- What prim.h says ---- */

static inline uint32_t vd_lane(void)
{
	return own->number;
}

static inline void vd_meet(void)
{
	pthread_barrier_wait(&own->team->barrier);
}

static inline uint32_t vd_first(uint32_t value)
{
	uint32_t first;

	if (own->number == 0)
		own->team->word[0] = value;
	vd_meet();
	first = own->team->word[0];
	vd_meet();
	return first;
}

static inline uint32_t vd_rank(bool yes, uint32_t *all)
{
	uint32_t i, before = 0;

	own->team->word[own->number] = yes;
	vd_meet();
	for (i = *all = 0; i < VD_WIDTH; i++) {
		before += i < own->number ? own->team->word[i] : 0;
		*all += own->team->word[i];
	}
	vd_meet();
	return before;
}

static inline bool vd_any(bool yes)
{
	uint32_t all;

	vd_rank(yes, &all);
	return all != 0;
}

static inline void vd_look(const uint32_t *const at[], uint32_t value[])
{
	uint32_t i;

	for (i = own->number; i < VD_LOOKS; i += VD_WIDTH)
		own->team->word[i] = vd_get32(at[i]);
	vd_meet();
	for (i = 0; i < VD_LOOKS; i++)
		value[i] = own->team->word[i];
	vd_meet();
}

static inline void vd_add64(uint64_t *sum, uint32_t value)
{
	if (value)
		__atomic_fetch_add(sum, value, __ATOMIC_RELAXED);
}

/* ---- Threads: a worker has the same team for all its launches ---- */

static void *run_lanes(void *arg)
{
	struct lane *lane = arg;
	struct team *team = lane->team;

	own = lane;
	for (;;) {
		vd_meet();
		if (!team->args)
			return NULL;
		run_lane(team->args, team->index);
		vd_meet();
	}
}

static void end_team(void *arg)
{
	struct team *team = arg;
	uint32_t i;

	team->args = NULL;
	pthread_barrier_wait(&team->barrier);
	for (i = 1; i < VD_WIDTH; i++)
		pthread_join(team->lane[i].thread, NULL);
	pthread_barrier_destroy(&team->barrier);
	free(team);
}

static pthread_key_t key;

static void make_key(void)
{
	if (pthread_key_create(&key, end_team))
		abort();
}

static void start_team(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct team *team = calloc(1, sizeof(*team));
	uint32_t i;

	if (!team || pthread_once(&once, make_key) || pthread_barrier_init(&team->barrier, NULL, VD_WIDTH) ||
	    pthread_setspecific(key, team))
		abort();
	for (i = 0; i < VD_WIDTH; i++) {
		team->lane[i] = (struct lane){ .team = team, .number = i };
		if (i && pthread_create(&team->lane[i].thread, NULL, run_lanes, &team->lane[i]))
			abort();
	}
	own = &team->lane[0];
}

bool gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index);
bool gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index)
{
	bool worked;

	if (!own)
		start_team();
	own->team->args = args;
	own->team->index = index;
	vd_meet();
	worked = run_lane(args, index);
	vd_meet();
	return worked;
}
