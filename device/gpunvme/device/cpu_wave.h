/* SPDX-License-Identifier: MIT */
/*
 * Waves of threads.
 *
 * A wave of width 1 is one thread and costs nothing. A wider wave has that many threads, which meet at each ballot and shuffle. So
 * chunks, leaders, partly active waves and early exits happen as on a GPU. A group of lanes forms when a call begins: the first
 * lane waits a moment for others. A GPU may or may not reconverge there, too.
 *
 * The kernel and gpunvme_cpu_launch() must be in the same executable or shared object.
 */
#ifndef GPUNVME_DEVICE_CPU_WAVE_H
#define GPUNVME_DEVICE_CPU_WAVE_H

#if !defined(GNVD_CPU_WIDTH)
#define GNVD_CPU_WIDTH 32u /* widest wave, at most 64 */
#endif

#if defined(__cplusplus)
#define GNVD_THREAD_LOCAL thread_local
#else
#define GNVD_THREAD_LOCAL _Thread_local
#endif

/* The lanes that run one call together. */
struct gnvd_cpu_group {
	uint64_t queue; /* the lanes of a group use the same queue */
	enum gnvd_site site; /* and called the same function */
	uint64_t mask;
	uint32_t closed;  /* mask is final */
	uint32_t arrived; /* at the current meeting */
	uint32_t meeting; /* number of meetings completed */
	uint32_t left;    /* lanes that have finished with the group */
	uint64_t value[2][GNVD_CPU_WIDTH]; /* by parity of the meeting: no lane can be two meetings ahead */
};

struct gnvd_cpu_wave {
	pthread_mutex_t lock; /* protects the next three */
	struct gnvd_cpu_group *forming;
	uint64_t free_groups;
	uint32_t inside; /* lanes that are in some group */
	uint32_t live;   /* lanes whose kernel has not returned */
	uint32_t lanes;  /* of the whole wave */
	uint32_t number;
	struct gnvd_cpu_group group[GNVD_CPU_WIDTH];
};

struct gnvd_cpu_lane {
	struct gnvd_cpu_wave *wave; /* NULL: width 1 */
	struct gnvd_cpu_group *group;
	struct gnvd_cpu_launch *launch;
	uint32_t index; /* in the wave */
	uint32_t lane;
	pthread_t thread;
};

struct gnvd_cpu_launch {
	void (*kernel)(void *arg);
	void *arg;
	uint32_t threads;
	int cancelled;
	pthread_mutex_t gate; /* held until all threads exist */
};

/* One per executable or shared object, whichever source files include this. */
__attribute__((weak, visibility("hidden"))) GNVD_THREAD_LOCAL struct gnvd_cpu_lane *gnvd_cpu_self;

GNVD_FN void gnvd_cpu_spin(uint32_t turn)
{
	if (turn < 16)
		gnvd_cpu_relax();
	else
		sched_yield();
}

/* Each lane passes a value. Return when all have, with the array of values by lane. */
GNVD_FN const uint64_t *gnvd_cpu_meet(uint64_t v)
{
	struct gnvd_cpu_lane *self = gnvd_cpu_self;
	struct gnvd_cpu_group *g = self->group;
	uint32_t meeting = __atomic_load_n(&g->meeting, __ATOMIC_RELAXED), turn = 0;

	g->value[meeting & 1][self->index] = v;
	if (__atomic_add_fetch(&g->arrived, 1, __ATOMIC_ACQ_REL) == gnvd_popc(g->mask)) {
		__atomic_store_n(&g->arrived, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&g->meeting, meeting + 1, __ATOMIC_RELEASE);
	}
	while (__atomic_load_n(&g->meeting, __ATOMIC_ACQUIRE) == meeting)
		gnvd_cpu_spin(turn++);
	return g->value[meeting & 1];
}

GNVD_FN int gnvd_cpu_alone(const struct gnvd_wave *w)
{
	return w->count == 1;
}

GNVD_FN uint64_t gnvd_ballot(const struct gnvd_wave *w, int pred)
{
	const uint64_t *value;
	uint64_t bits = 0, m;

	if (gnvd_cpu_alone(w))
		return pred ? w->mask : 0;
	value = gnvd_cpu_meet(pred != 0);
	for (m = w->mask; m; m &= m - 1)
		bits |= value[gnvd_lowest(m)] << gnvd_lowest(m);
	return bits;
}

GNVD_FN uint64_t gnvd_cpu_shfl(const struct gnvd_wave *w, uint64_t v, uint32_t lane)
{
	return gnvd_cpu_alone(w) ? v : gnvd_cpu_meet(v)[lane];
}

GNVD_FN uint32_t gnvd_shfl32(const struct gnvd_wave *w, uint32_t v, uint32_t lane)
{
	return (uint32_t)gnvd_cpu_shfl(w, v, lane);
}

GNVD_FN uint64_t gnvd_shfl64(const struct gnvd_wave *w, uint64_t v, uint32_t lane)
{
	return gnvd_cpu_shfl(w, v, lane);
}

/* A thread runs alone. */
GNVD_FN int gnvd_first(void)
{
	return 1;
}

GNVD_FN uint32_t gnvd_below(const struct gnvd_wave *w, uint64_t lanes)
{
	return gnvd_popc(lanes & ((1ull << w->lane) - 1));
}

GNVD_FN void gnvd_meet(const struct gnvd_wave *w)
{
	if (!gnvd_cpu_alone(w))
		gnvd_cpu_meet(0);
}

GNVD_FN void gnvd_meet_acquire(const struct gnvd_wave *w)
{
	gnvd_meet(w);
}

GNVD_FN void gnvd_meet_release(const struct gnvd_wave *w)
{
	gnvd_meet(w);
}

/* Called after gnvd_meet(). */
GNVD_FN void gnvd_release_to64(const struct gnvd_wave *w, uint64_t a, uint64_t v)
{
	if (w->rank == 0)
		__atomic_store_n((uint64_t *)(uintptr_t)a, v, __ATOMIC_RELEASE);
}

/* The mask is final: let the members continue. The caller holds the wave's lock. */
static inline void gnvd_cpu_close(struct gnvd_cpu_wave *wave)
{
	__atomic_store_n(&wave->forming->closed, 1, __ATOMIC_RELEASE);
	wave->forming = NULL;
}

/* No other lane can join: all lanes are in groups, or, if they must join this one, all are in it. */
static inline void gnvd_cpu_close_if_all(struct gnvd_cpu_wave *wave)
{
	struct gnvd_cpu_group *g = wave->forming;

	if (g && (g->site < GNVD_SITE_WAVE ? wave->inside : gnvd_popc(g->mask)) == wave->live)
		gnvd_cpu_close(wave);
}

static inline void gnvd_cpu_open(struct gnvd_cpu_wave *wave, uint64_t queue, enum gnvd_site site)
{
	struct gnvd_cpu_group *g = &wave->group[gnvd_lowest(wave->free_groups)];

	wave->free_groups &= wave->free_groups - 1;
	wave->forming = g;
	g->queue = queue;
	g->site = site;
	g->mask = 0;
	g->left = 0;
	__atomic_store_n(&g->closed, 0, __ATOMIC_RELAXED);
}

/* Turns that a lane waits for others: for those that may join, and for those that must. The latter is about a second. */
#define GNVD_CPU_MAY_COME 48u
#define GNVD_CPU_MUST_COME (1u << 20)

/*
 * Join the group that is forming, or open one. A group closes when all lanes of the wave are in groups, when a lane comes that does
 * not fit, or when its members have waited long enough.
 */
static inline void gnvd_cpu_join(struct gnvd_cpu_lane *self, uint64_t queue, enum gnvd_site site)
{
	struct gnvd_cpu_wave *wave = self->wave;
	struct gnvd_cpu_group *g;
	uint32_t turn = 0;

	pthread_mutex_lock(&wave->lock);
	if (wave->forming && (wave->forming->queue != queue || wave->forming->site != site))
		gnvd_cpu_close(wave);
	if (!wave->forming)
		gnvd_cpu_open(wave, queue, site);
	g = wave->forming;
	g->mask |= 1ull << self->index;
	wave->inside++;
	gnvd_cpu_close_if_all(wave);
	pthread_mutex_unlock(&wave->lock);
	self->group = g;
	while (!__atomic_load_n(&g->closed, __ATOMIC_ACQUIRE)) {
		gnvd_cpu_spin(turn++);
		if (turn < (site < GNVD_SITE_WAVE ? GNVD_CPU_MAY_COME : GNVD_CPU_MUST_COME))
			continue;
		pthread_mutex_lock(&wave->lock);
		if (wave->forming == g)
			gnvd_cpu_close(wave);
		pthread_mutex_unlock(&wave->lock);
	}
}

#define GNVD_EACH_QUEUE(dq)

#define GNVD_ALONE(w) ((w)->count == 1)
#define GNVD_OWNS(w) (!((w)->mask & ((w)->mask + 1)))

/* A lane on its own is lane 0 of a wave of one. In the first copy the compiler knows that. */
#define GNVD_APART(w, alone, together)                                                                                             \
	do {                                                                                                                       \
		if (gnvd_cpu_alone(&(w))) {                                                                                        \
			(w).mask = (w).count = 1;                                                                                  \
			(w).lane = (w).rank = 0;                                                                                   \
			alone;                                                                                                     \
		} else {                                                                                                           \
			together;                                                                                                  \
		}                                                                                                                  \
	} while (0)

GNVD_FN void gnvd_enter(struct gnvd_wave *w, const struct gpunvme_dq *dq, enum gnvd_site site)
{
	struct gnvd_cpu_lane *self = gnvd_cpu_self;

	if (!self || !self->wave) {
		w->mask = 1;
		w->count = 1;
		w->lane = w->rank = 0;
		return;
	}
	gnvd_cpu_join(self, dq->state, site);
	w->mask = self->group->mask;
	w->count = gnvd_popc(w->mask);
	w->lane = self->index;
	w->rank = gnvd_popc(w->mask & ((1ull << self->index) - 1));
}

GNVD_FN uint32_t gnvd_hint(void)
{
	return gnvd_cpu_self ? gnvd_cpu_self->lane : 0; /* in a wave: the lane of its leader */
}

GNVD_FN void gnvd_leave(const struct gnvd_wave *w)
{
	struct gnvd_cpu_lane *self = gnvd_cpu_self;
	struct gnvd_cpu_wave *wave = self ? self->wave : NULL;

	if (!wave)
		return;
	pthread_mutex_lock(&wave->lock);
	wave->inside--;
	if (++self->group->left == w->count)
		wave->free_groups |= 1ull << (self->group - wave->group);
	pthread_mutex_unlock(&wave->lock);
}

GPUNVME_FN uint32_t gpunvme_thread_id(void)
{
	return gnvd_cpu_self ? gnvd_cpu_self->lane : 0;
}

GPUNVME_FN uint32_t gpunvme_thread_count(void)
{
	return gnvd_cpu_self ? gnvd_cpu_self->launch->threads : 1;
}

/* ---- The workgroup: a wave ---- */

/* CPU threads: a wave is a workgroup. */
GNVD_FN uint32_t gnvd_block_lane(void)
{
	return gnvd_cpu_self && gnvd_cpu_self->wave ? gnvd_cpu_self->index : 0;
}

GNVD_FN uint32_t gnvd_block_lanes(void)
{
	return gnvd_cpu_self && gnvd_cpu_self->wave ? gnvd_cpu_self->wave->lanes : 1;
}

GNVD_FN uint32_t gnvd_block_number(void)
{
	return !gnvd_cpu_self ? 0 : gnvd_cpu_self->wave ? gnvd_cpu_self->wave->number : gnvd_cpu_self->lane;
}

GNVD_FN uint32_t gnvd_wave_lanes(void)
{
	return gnvd_block_lanes();
}

GNVD_FN uint64_t gnvd_block_min(const struct gpunvme_dq *dq, uint64_t v, uint32_t *came)
{
	struct gnvd_wave w;
	uint64_t m, least = v, other;

	gnvd_enter(&w, dq, GNVD_SITE_BLOCK);
	for (m = w.mask; m; m &= m - 1) {
		other = gnvd_shfl64(&w, v, gnvd_lowest(m));
		least = other < least ? other : least;
	}
	*came = w.count;
	gnvd_leave(&w);
	return least;
}

GNVD_FN void gnvd_block_sync(const struct gpunvme_dq *dq)
{
	uint32_t came;

	gnvd_block_min(dq, 0, &came);
}

#endif
