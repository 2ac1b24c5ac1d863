/* SPDX-License-Identifier: MIT */
/*
 * The kernel of a drive with a team of several threads, each a thread. A test links it in place of the library's, whose team is one
 * thread. So what the threads of a GPU share, and where they meet, is tested on CPU threads. A meeting that is missing is a data
 * race for ThreadSanitizer. A fence that is missing ends the program: CPUs keep the order of stores without one, GPUs do not.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VD_WIDTH 4u
#define gnv_vd_kernel_cpu run_lane

static inline uint32_t vd_lane(void);
static inline void vd_meet(void);
static inline uint32_t vd_first(uint32_t value);
static inline bool vd_any(bool yes);
static inline uint32_t vd_rank(bool yes, uint32_t *all);
static inline void vd_look(const uint32_t *const at[], uint32_t value[]);
static inline void vd_add64(uint64_t *sum, uint32_t value);

#include "vdrive/kernel/reach.h" /* which stores nothing */

/* The kernel's stores and fences: see "Order" below. */
static void watch_fence(void);
static void watch_store(const char *function, void *at, struct vd_vec v);
static void watch_put64(uint64_t *at, uint64_t value);

#define vd_fence() watch_fence()
#define vd_store(...) watch_store(__func__, __VA_ARGS__)
#define vd_put64(at, value) watch_put64(at, value)
#include "vdrive/kernel/kernel.c" /* quiet bugprone-suspicious-include: a kernel is one unit */

#undef gnv_vd_kernel_cpu
#undef vd_fence
#undef vd_store
#undef vd_put64

struct lane {
	struct team *team;
	uint32_t number;
	uint64_t data, entries; /* of its team, before its last fence */
	pthread_t thread; /* thread 0 is the thread of the worker */
};

struct team {
	pthread_barrier_t barrier;
	const struct gnv_vd_args *args; /* NULL: the team ends */
	uint32_t index;
	uint32_t word[VD_WIDTH > VD_LOOKS ? VD_WIDTH : VD_LOOKS];
	uint64_t data, entries; /* stored so far (atomic) */
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

/* ---- Order: data, fence, entries; entries, fence, the word of an interrupt; all of a pass, fence, its epoch ---- */

static void need(bool ordered, const char *what)
{
	if (ordered)
		return;
	fprintf(stderr, "the kernel of the drive: no fence before %s\n", what);
	abort();
}

static bool has_fenced_data(void)
{
	return own->data == __atomic_load_n(&own->team->data, __ATOMIC_RELAXED);
}

static bool has_fenced_entries(void)
{
	return own->entries == __atomic_load_n(&own->team->entries, __ATOMIC_RELAXED);
}

static void watch_fence(void)
{
	vd_fence();
	own->data = __atomic_load_n(&own->team->data, __ATOMIC_RELAXED);
	own->entries = __atomic_load_n(&own->team->entries, __ATOMIC_RELAXED);
}

static void watch_store(const char *function, void *at, struct vd_vec v)
{
	const bool entry = !strcmp(function, "put_entry");

	if (entry)
		need(has_fenced_data(), "a completion");
	__atomic_fetch_add(entry ? &own->team->entries : &own->team->data, 1, __ATOMIC_RELAXED);
	vd_store(at, v);
}

static void watch_put64(uint64_t *at, uint64_t value)
{
	const struct gnv_vd *vd = (const struct gnv_vd *)(uintptr_t)own->team->args->vd;

	if (at >= vd->posted && at < vd->posted + GNV_VD_QUEUES)
		need(own->entries && has_fenced_entries(), "the word of an interrupt");
	if (at >= vd->ack && at < vd->ack + GNV_VD_WORKERS)
		need(has_fenced_data() && has_fenced_entries(), "an epoch");
	vd_put64(at, value);
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
