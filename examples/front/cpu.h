/* SPDX-License-Identifier: MIT */
/* CPU threads. Only front.h includes this. */
#ifndef GPUNVME_EXAMPLES_FRONT_CPU_H
#define GPUNVME_EXAMPLES_FRONT_CPU_H

#define FRONT_FN static inline
#define FRONT_WIDTH 1u
#define FRONT_WAVES 32u /* as many as the processor likes to switch between */
#define QUEUES 4u

#include <pthread.h>
#include <sched.h>
#include <time.h>

extern const char *const program;

struct front_cpu {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *queue[QUEUES];
	struct gpunvme_dq dq[QUEUES];
};

static struct front_cpu front_cpu;
static void *front_kept[256]; /* what lives as long as the program */
static uint32_t front_keeps;


static inline void die(const char *why)
{
	fprintf(stderr, "%s: %s\n", program, why);
	exit(1);
}

static inline void check(int ret)
{
	if (ret)
		die(*gpunvme_errmsg() ? gpunvme_errmsg() : gpunvme_strerror(ret));
}

static inline void front_open(struct front *f, const char *uri, uint32_t flags, size_t bytes)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_queue_info queue = { .size = sizeof(queue) };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct front_cpu *c = &front_cpu;

	view.flags = flags;
	check(gpunvme_gpu_open("cpu", NULL, &c->gpu));
	check(gpunvme_dev_open(uri, NULL, &c->dev));
	check(gpunvme_dev_get_info(c->dev, &info));
	check(gpunvme_ns_get_info(c->dev, 0, &ns));
	f->queues = info.queues < QUEUES ? info.queues : QUEUES;
	for (uint32_t i = 0; i < f->queues; i++) {
		check(gpunvme_queue_create(c->dev, c->gpu, NULL, &c->queue[i]));
		check(gpunvme_queue_view(c->queue[i], &view, &c->dq[i]));
	}
	check(gpunvme_queue_get_info(c->queue[0], &queue));
	check(gpunvme_mem_alloc(c->gpu, c->queue[0], bytes, NULL, &c->mem));
	check(gpunvme_mem_map(c->mem, c->dev));
	check(gpunvme_mem_dbuf(c->mem, c->dev, &f->dbuf));
	f->dq = c->dq;
	f->depth = queue.depth;
	f->ticks = c->dq[0].ticks_per_ms;
	f->lba_size = ns.lba_size;
	f->nblocks = ns.nblocks;
}

static inline void front_close(const struct front *f)
{
	for (uint32_t i = 0; i < f->queues; i++)
		gpunvme_queue_destroy(front_cpu.queue[i]);
	gpunvme_mem_free(front_cpu.mem);
	gpunvme_dev_close(front_cpu.dev);
	gpunvme_gpu_close(front_cpu.gpu);
}

static inline void *front_shared(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	uint32_t place = __atomic_fetch_add(&front_keeps, 1, __ATOMIC_RELAXED);

	if (!p || place >= sizeof(front_kept) / sizeof(*front_kept))
		die("out of memory");
	front_kept[place] = p;
	return memset(p, 0, bytes);
}

static inline void *front_local(size_t bytes)
{
	return front_shared(bytes);
}

static inline void front_put(void *local, const void *from, size_t bytes)
{
	memcpy(local, from, bytes);
}

/* A stream is a thread that does one launch after the other, with one thread. */
#define FRONT_LAUNCHES 4u /* that wait in a stream, at most */

struct front_launch {
	void (*kernel)(void *arg);
	_Alignas(16) unsigned char arg[256];
};

typedef struct front_stream {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct front_launch launch[FRONT_LAUNCHES];
	uint64_t begun, ended; /* launches. The latter is atomic */
} front_stream;

static inline void *front_stream_run(void *arg)
{
	front_stream *s = arg;

	for (uint64_t n = 0;; n++) { /* until the program ends */
		pthread_mutex_lock(&s->lock);
		while (s->begun == n)
			pthread_cond_wait(&s->more, &s->lock);
		pthread_mutex_unlock(&s->lock);
		s->launch[n % FRONT_LAUNCHES].kernel(s->launch[n % FRONT_LAUNCHES].arg);
		__atomic_store_n(&s->ended, n + 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static inline void front_stream_open(front_stream *s)
{
	memset(s, 0, sizeof(*s));
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->more, NULL);
	if (pthread_create(&s->thread, NULL, front_stream_run, s) || pthread_detach(s->thread))
		die("no more threads");
}

static inline int front_busy(front_stream *s)
{
	return __atomic_load_n(&s->ended, __ATOMIC_ACQUIRE) != s->begun;
}

static inline void front_start(front_stream *s, void (*kernel)(void *arg), const void *arg, size_t bytes)
{
	struct front_launch *l = &s->launch[s->begun % FRONT_LAUNCHES];

	while (s->begun - __atomic_load_n(&s->ended, __ATOMIC_ACQUIRE) >= FRONT_LAUNCHES)
		sched_yield();
	l->kernel = kernel;
	memcpy(l->arg, arg, bytes);
	pthread_mutex_lock(&s->lock);
	s->begun++;
	pthread_cond_signal(&s->more);
	pthread_mutex_unlock(&s->lock);
}

static inline void front_together(void)
{
}

static inline void front_meet(uint32_t *count, uint32_t n)
{
	uint32_t turn;

	__atomic_add_fetch(count, 1, __ATOMIC_ACQ_REL);
	for (turn = 0; __atomic_load_n(count, __ATOMIC_ACQUIRE) < n; turn++)
		gnvd_pause(turn < 128 ? turn : ~0u); /* soon asleep: the controller's threads have to run, too */
}

static inline void front_fail(int *status, int ret)
{
	__atomic_store_n(status, ret, __ATOMIC_RELAXED);
}

static inline void front_tell(uint64_t *word, uint64_t v)
{
	__atomic_store_n(word, v, __ATOMIC_RELEASE);
}

/* What a GPU would do, this processor need not. */
static inline void front_work(uint64_t ticks, uint64_t ticks_per_ms)
{
	uint64_t us = ticks * 1000 / ticks_per_ms;
	struct timespec nap = { (time_t)(us / 1000000), (long)(us % 1000000 * 1000) };

	nanosleep(&nap, NULL);
}

#define FRONT_KERNEL(name, type)                                                                                                   \
	static void name##_kernel(void *arg)                                                                                       \
	{                                                                                                                          \
		name((const struct type *)arg);                                                                                    \
	}                                                                                                                          \
	__attribute__((unused)) static inline void front_run_##name(uint32_t waves, struct type *arg)                              \
	{                                                                                                                          \
		int ret = gpunvme_cpu_launch(waves, FRONT_WIDTH, name##_kernel, arg);                                              \
                                                                                                                                   \
		if (ret)                                                                                                           \
			die(gpunvme_strerror(ret));                                                                                \
	}                                                                                                                          \
	__attribute__((unused)) static inline void front_start_##name(front_stream *stream, uint32_t waves, const struct type *arg) \
	{                                                                                                                          \
		_Static_assert(sizeof(*arg) <= sizeof(stream->launch[0].arg), "an argument is larger than a launch");              \
		(void)waves;                                                                                                       \
		front_start(stream, name##_kernel, arg, sizeof(*arg));                                                             \
	}

#endif
