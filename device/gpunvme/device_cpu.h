/* SPDX-License-Identifier: MIT */
/*
 * CPU threads as lanes: the primitives of device_platform.h, waves made of threads, and a launcher.
 *
 * A wave of width 1 is one thread and costs nothing. A wider wave is that many threads that meet at each ballot and shuffle, so
 * that everything a GPU wave does (chunks, leaders, partly active waves, early exits) really happens. Which lanes are together in
 * a call is decided when it begins: the first to come waits a moment for others, as a GPU would or would not reconverge them.
 *
 * The kernel and gpunvme_cpu_launch() must be in the same executable or shared object.
 */
#ifndef GPUNVME_DEVICE_CPU_H
#define GPUNVME_DEVICE_CPU_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#if !defined(CLOCK_MONOTONIC)
#error "define _POSIX_C_SOURCE=200809L or _GNU_SOURCE, or include <gpunvme/device.h> before system headers"
#endif

#if !defined(GNVD_CPU_WIDTH)
#define GNVD_CPU_WIDTH 32u /* widest wave; at most 64 */
#endif

#if defined(__cplusplus)
#define GNVD_THREAD_LOCAL thread_local
#else
#define GNVD_THREAD_LOCAL _Thread_local
#endif

/* ---- Memory ---- */

GNVD_FN uint32_t gnvd_ld32(uint64_t a)
{
	return __atomic_load_n((const uint32_t *)(uintptr_t)a, __ATOMIC_RELAXED);
}

GNVD_FN uint64_t gnvd_ld64(uint64_t a)
{
	return __atomic_load_n((const uint64_t *)(uintptr_t)a, __ATOMIC_RELAXED);
}

GNVD_FN uint64_t gnvd_ld_after64(uint64_t a)
{
	return __atomic_load_n((const uint64_t *)(uintptr_t)a, __ATOMIC_ACQUIRE);
}

/* Nothing to do: gnvd_ld_after64 has acquired. */
GNVD_FN void gnvd_order_agent(void)
{
}

/* Nothing to do: gnvd_doorbell releases. */
GNVD_FN void gnvd_order_system(void)
{
}

GNVD_FN void gnvd_st32(uint64_t a, uint32_t v)
{
	__atomic_store_n((uint32_t *)(uintptr_t)a, v, __ATOMIC_RELAXED);
}

GNVD_FN void gnvd_st64(uint64_t a, uint64_t v)
{
	/* Release, because `fetched` and freed result words hand ring slots over; free of charge on x86. */
	__atomic_store_n((uint64_t *)(uintptr_t)a, v, __ATOMIC_RELEASE);
}

GNVD_FN void gnvd_st_release64(uint64_t a, uint64_t v)
{
	__atomic_store_n((uint64_t *)(uintptr_t)a, v, __ATOMIC_RELEASE);
}

GNVD_FN uint64_t gnvd_xchg64(uint64_t a, uint64_t v)
{
	return __atomic_exchange_n((uint64_t *)(uintptr_t)a, v, __ATOMIC_ACQ_REL);
}

/* Not one step: of a word that says DONE only its owner makes something else. */
GNVD_FN uint64_t gnvd_take64(uint64_t a, uint64_t v)
{
	uint64_t old = gnvd_ld_after64(a);

	gnvd_st64(a, v);
	return old;
}

GNVD_FN uint64_t gnvd_fetch_add64(uint64_t a, uint64_t v)
{
	return __atomic_fetch_add((uint64_t *)(uintptr_t)a, v, __ATOMIC_ACQ_REL);
}

GNVD_FN uint32_t gnvd_cas32(uint64_t a, uint32_t expect, uint32_t v)
{
	__atomic_compare_exchange_n((uint32_t *)(uintptr_t)a, &expect, v, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return expect;
}

GNVD_FN uint64_t gnvd_cas64(uint64_t a, uint64_t expect, uint64_t v)
{
	__atomic_compare_exchange_n((uint64_t *)(uintptr_t)a, &expect, v, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return expect;
}

GNVD_FN uint64_t gnvd_and64(uint64_t a, uint64_t v)
{
	return __atomic_fetch_and((uint64_t *)(uintptr_t)a, v, __ATOMIC_ACQUIRE);
}

GNVD_FN uint64_t gnvd_or64(uint64_t a, uint64_t v)
{
	return __atomic_fetch_or((uint64_t *)(uintptr_t)a, v, __ATOMIC_ACQ_REL);
}

GNVD_FN uint64_t gnvd_or_after64(uint64_t a, uint64_t v)
{
	return gnvd_or64(a, v);
}

GNVD_FN void gnvd_add64(uint64_t a, uint64_t v)
{
	__atomic_fetch_add((uint64_t *)(uintptr_t)a, v, __ATOMIC_RELAXED);
}

/* Who stores it holds the drain lock, which orders him behind whoever stored before. */
GNVD_FN void gnvd_max64(uint64_t a, uint64_t v)
{
	gnvd_st64(a, v);
}

GNVD_FN uint32_t gnvd_load_ring32(uint64_t a)
{
	return __atomic_load_n((const uint32_t *)(uintptr_t)a, __ATOMIC_RELAXED);
}

GNVD_FN void gnvd_load_ring32s(const uint64_t *a, uint32_t *v, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++)
		v[i] = gnvd_load_ring32(a[i]);
}

/* No CPU promises 16 bytes whole, so the host does not set GPUNVME_DQ_CQE16 for CPU lanes; dword 3 first all the same. */
GNVD_FN void gnvd_load_ring128(uint64_t a, uint32_t *v)
{
	uint32_t i;

	for (i = 4; i--;)
		v[i] = __atomic_load_n((const uint32_t *)(uintptr_t)a + i, __ATOMIC_ACQUIRE);
}

GNVD_FN void gnvd_acquire_ring32(uint64_t a)
{
	(void)__atomic_load_n((const uint32_t *)(uintptr_t)a, __ATOMIC_ACQUIRE);
}

/* The controller's CPU has the line: ask for it before the store that has to wait for it. */
GNVD_FN void gnvd_soon(uint64_t a)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)(uintptr_t)a));
#else
	(void)a;
#endif
}

GNVD_FN void gnvd_store_sqe(uint64_t a, const uint32_t *w, uint32_t cid)
{
	uint64_t *sqe = (uint64_t *)(uintptr_t)a;

#define GNVD_STORE_TWO(i) __atomic_store_n(sqe + (i), w[2 * (i)] | (uint64_t)w[2 * (i) + 1] << 32, __ATOMIC_RELAXED)
	__atomic_store_n(sqe, w[0] | cid << 16 | (uint64_t)w[1] << 32, __ATOMIC_RELAXED);
	GNVD_STORE_TWO(1);
	GNVD_STORE_TWO(2);
	GNVD_STORE_TWO(3);
	GNVD_STORE_TWO(4);
	GNVD_STORE_TWO(5);
	GNVD_STORE_TWO(6);
	GNVD_STORE_TWO(7);
#undef GNVD_STORE_TWO
	gnvd_soon(a + 64);
}

GNVD_FN void gnvd_doorbell(uint64_t a, uint32_t v)
{
	__atomic_store_n((uint32_t *)(uintptr_t)a, v, __ATOMIC_RELEASE);
}

/* ---- Time ---- */

GNVD_FN uint64_t gnvd_clock(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

GNVD_FN void gnvd_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* Spin, then yield, then sleep: a lane that waits long must not take the core from the controller's thread. */
GNVD_FN void gnvd_pause(uint32_t turn)
{
	if (turn < 64) {
		gnvd_cpu_relax();
	} else if (turn < 4096) {
		sched_yield();
	} else {
		struct timespec nap = { 0, 50000 };

		nanosleep(&nap, NULL);
	}
}

/* ---- Waves of threads ---- */

/* The lanes that run one call together. */
struct gnvd_cpu_group {
	uint64_t queue; /* the lanes of a group use the same queue */
	enum gnvd_site site; /* and came through the same function */
	uint64_t mask;
	uint32_t closed;  /* mask is final */
	uint32_t arrived; /* at the current meeting */
	uint32_t meeting; /* number of meetings completed */
	uint32_t left;    /* lanes that have finished with the group */
	uint64_t value[2][GNVD_CPU_WIDTH]; /* by parity of the meeting: nobody can be two meetings ahead */
};

struct gnvd_cpu_wave {
	pthread_mutex_t lock; /* protects the next three */
	struct gnvd_cpu_group *forming;
	uint64_t free_groups;
	uint32_t inside; /* lanes that are in some group */
	uint32_t live;   /* lanes whose kernel has not returned */
	uint32_t lanes;  /* there were */
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
	uint32_t lanes;
	int cancelled;
	pthread_mutex_t gate; /* held until all lanes exist */
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

/* Each lane gives a value; returns when all have, with the array of values by lane. */
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

GNVD_FN void gnvd_meet(const struct gnvd_wave *w)
{
	if (!gnvd_cpu_alone(w))
		gnvd_cpu_meet(0);
}

/* Behind a gnvd_meet. */
GNVD_FN void gnvd_release_to64(const struct gnvd_wave *w, uint64_t a, uint64_t v)
{
	if (w->rank == 0)
		__atomic_store_n((uint64_t *)(uintptr_t)a, v, __ATOMIC_RELEASE);
}

/* The mask is final: let the members go on. The wave's lock is held. */
static inline void gnvd_cpu_close(struct gnvd_cpu_wave *wave)
{
	__atomic_store_n(&wave->forming->closed, 1, __ATOMIC_RELEASE);
	wave->forming = NULL;
}

/* Nobody else can come: all lanes are in groups, or, where they must come to this one, all are in this one. */
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

/* Turns for which a lane waits for others: of those that may come, and of those that have to. The latter is about a second. */
#define GNVD_CPU_MAY_COME 48u
#define GNVD_CPU_MUST_COME (1u << 20)

/*
 * Join the group that is forming, or open one. A group closes when all lanes of the wave are in groups, when somebody comes that
 * does not fit, or when its members have waited long enough.
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

/* A lane on its own is lane 0 of a wave of one, which the compiler knows in the first copy. */
#define GNVD_TOGETHER(w, ...)                                                                                                      \
	do {                                                                                                                       \
		if (gnvd_cpu_alone(&(w))) {                                                                                        \
			(w).mask = (w).count = 1;                                                                                  \
			(w).lane = (w).rank = 0;                                                                                   \
			__VA_ARGS__;                                                                                               \
		} else {                                                                                                           \
			__VA_ARGS__;                                                                                               \
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
	return gnvd_cpu_self ? gnvd_cpu_self->lane : 0; /* its leader's, of a wave */
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

GPUNVME_FN uint32_t gpunvme_lane(void)
{
	return gnvd_cpu_self ? gnvd_cpu_self->lane : 0;
}

GPUNVME_FN uint32_t gpunvme_lanes(void)
{
	return gnvd_cpu_self ? gnvd_cpu_self->launch->lanes : 1;
}

/* ---- Launcher ---- */

static inline void *gnvd_cpu_run_lane(void *arg)
{
	struct gnvd_cpu_lane *self = (struct gnvd_cpu_lane *)arg;
	int cancelled;

	pthread_mutex_lock(&self->launch->gate);
	cancelled = self->launch->cancelled;
	pthread_mutex_unlock(&self->launch->gate);
	if (cancelled)
		return NULL;
	gnvd_cpu_self = self;
	self->launch->kernel(self->launch->arg);
	gnvd_cpu_self = NULL;
	if (self->wave) {
		pthread_mutex_lock(&self->wave->lock);
		self->wave->live--;
		gnvd_cpu_close_if_all(self->wave);
		pthread_mutex_unlock(&self->wave->lock);
	}
	return NULL;
}

static inline void gnvd_cpu_waves_init(struct gnvd_cpu_wave *wave, uint32_t waves, uint32_t lanes, uint32_t width)
{
	uint32_t i;

	for (i = 0; i < waves; i++) {
		pthread_mutex_init(&wave[i].lock, NULL);
		wave[i].number = i;
		wave[i].live = wave[i].lanes = i == waves - 1 && lanes % width ? lanes % width : width;
		wave[i].free_groups = ~0ull >> (64 - GNVD_CPU_WIDTH);
	}
}

/* Start all lanes or none, and wait for them. */
static inline int gnvd_cpu_run(struct gnvd_cpu_launch *launch, struct gnvd_cpu_lane *lane, struct gnvd_cpu_wave *wave,
			       uint32_t width)
{
	uint32_t i, started;
	int ret = 0;

	pthread_mutex_init(&launch->gate, NULL);
	pthread_mutex_lock(&launch->gate);
	for (started = 0; started < launch->lanes; started++) {
		struct gnvd_cpu_lane *l = &lane[started];

		l->wave = width > 1 ? &wave[started / width] : NULL;
		l->index = started % width;
		l->lane = started;
		l->launch = launch;
		ret = -pthread_create(&l->thread, NULL, gnvd_cpu_run_lane, l);
		if (ret)
			break;
	}
	launch->cancelled = ret != 0;
	pthread_mutex_unlock(&launch->gate);
	for (i = 0; i < started; i++)
		pthread_join(lane[i].thread, NULL);
	pthread_mutex_destroy(&launch->gate);
	return ret;
}

/**
 * gpunvme_cpu_launch() - run a kernel on CPU threads as lanes
 * @lanes:  number of lanes, one thread each
 * @width:  lanes of one wave: 1 to 32; the last wave may be narrower
 * @kernel: called once on each lane with @arg; gpunvme_lane() tells them apart
 * @arg:    the kernel's argument, shared by all lanes
 *
 * Returns when all lanes have returned. Any thread may call it, several at a time.
 * Return: 0; -EINVAL lanes or width out of range; -ENOMEM; -EAGAIN no more threads (then no lane has run the kernel).
 */
static inline int gpunvme_cpu_launch(uint32_t lanes, uint32_t width, void (*kernel)(void *arg), void *arg)
{
	struct gnvd_cpu_launch launch;
	struct gnvd_cpu_lane *lane;
	struct gnvd_cpu_wave *wave;
	uint32_t waves, i;
	int ret = -ENOMEM;

	if (!lanes || !width || width > GNVD_CPU_WIDTH || !kernel)
		return -EINVAL;
	waves = lanes / width + (lanes % width != 0);
	launch.kernel = kernel;
	launch.arg = arg;
	launch.lanes = lanes;
	lane = (struct gnvd_cpu_lane *)calloc(lanes, sizeof(*lane));
	wave = (struct gnvd_cpu_wave *)calloc(waves, sizeof(*wave));
	if (lane && wave) {
		gnvd_cpu_waves_init(wave, waves, lanes, width);
		ret = gnvd_cpu_run(&launch, lane, wave, width);
		for (i = 0; i < waves; i++)
			pthread_mutex_destroy(&wave[i].lock);
	}
	free(wave);
	free(lane);
	return ret;
}

#endif
