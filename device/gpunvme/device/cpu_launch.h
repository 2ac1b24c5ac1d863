/* SPDX-License-Identifier: MIT */
/* Run a kernel on CPU threads. */
#ifndef GPUNVME_DEVICE_CPU_LAUNCH_H
#define GPUNVME_DEVICE_CPU_LAUNCH_H

/* syscall(2). The header that declares it would bring programs names such as read() and link(). */
extern long gnvd_syscall(long number, ...) __asm__("syscall");

/*
 * sched_yield() gives away the rest of the thread's time slice, a millisecond or more, and threads of a wave yield at each meeting.
 * So ask for the shortest slice, 0.1 ms, which Linux 6.12 and newer grant to everybody. Others ignore it.
 */
static inline void gnvd_cpu_short_slices(void)
{
#if defined(__linux__) && defined(SYS_sched_setattr)
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t slice, deadline, period; /* ns */
	} attr;

	attr.policy = SCHED_FIFO; /* until the kernel has filled it */
	if (!gnvd_syscall(SYS_sched_getattr, 0, &attr, (unsigned)sizeof(attr), 0u) && attr.policy == SCHED_OTHER) {
		attr.slice = 100000;
		(void)gnvd_syscall(SYS_sched_setattr, 0, &attr, 0u);
	}
#endif
}

static inline void *gnvd_cpu_run_lane(void *arg)
{
	struct gnvd_cpu_lane *self = (struct gnvd_cpu_lane *)arg;
	int cancelled;

	pthread_mutex_lock(&self->launch->gate);
	cancelled = self->launch->cancelled;
	pthread_mutex_unlock(&self->launch->gate);
	if (cancelled)
		return NULL;
	gnvd_cpu_short_slices();
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

static inline void gnvd_cpu_waves_init(struct gnvd_cpu_wave *wave, uint32_t waves, uint32_t threads, uint32_t width)
{
	uint32_t i;

	for (i = 0; i < waves; i++) {
		pthread_mutex_init(&wave[i].lock, NULL);
		wave[i].number = i;
		wave[i].live = wave[i].lanes = i == waves - 1 && threads % width ? threads % width : width;
		wave[i].free_groups = ~0ull >> (64 - GNVD_CPU_WIDTH);
	}
}

/* Start all threads or none, and wait for them. */
static inline int gnvd_cpu_run(struct gnvd_cpu_launch *launch, struct gnvd_cpu_lane *lane, struct gnvd_cpu_wave *wave,
			       uint32_t width)
{
	uint32_t i, started;
	int ret = 0;

	pthread_mutex_init(&launch->gate, NULL);
	pthread_mutex_lock(&launch->gate);
	for (started = 0; started < launch->threads; started++) {
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
 * gpunvme_cpu_launch() - run a kernel on CPU threads
 * @threads: number of threads, 1 or more
 * @width:   threads of one wave: 1 to 32. The last wave may be narrower
 * @kernel:  called once on each thread with @arg. gpunvme_thread_id() is its number
 * @arg:     the kernel's argument, shared by all threads
 *
 * Creates the threads, and returns when all have returned. Any thread may call it, several at a time. The threads get time slices
 * of 0.1 ms where the kernel grants that (sched_setattr(2)), and so do threads that @kernel starts.
 * Return: 0; -EINVAL: bad @threads or @width, or no kernel; -ENOMEM; -EAGAIN: no more threads, and none has run the kernel.
 */
static inline int gpunvme_cpu_launch(uint32_t threads, uint32_t width, void (*kernel)(void *arg), void *arg)
{
	struct gnvd_cpu_launch launch;
	struct gnvd_cpu_lane *lane;
	struct gnvd_cpu_wave *wave;
	uint32_t waves, i;
	int ret = -ENOMEM;

	if (!threads || !width || width > GNVD_CPU_WIDTH || !kernel)
		return -EINVAL;
	waves = threads / width + (threads % width != 0);
	launch.kernel = kernel;
	launch.arg = arg;
	launch.threads = threads;
	lane = (struct gnvd_cpu_lane *)calloc(threads, sizeof(*lane));
	wave = (struct gnvd_cpu_wave *)calloc(waves, sizeof(*wave));
	if (lane && wave) {
		gnvd_cpu_waves_init(wave, waves, threads, width);
		ret = gnvd_cpu_run(&launch, lane, wave, width);
		for (i = 0; i < waves; i++)
			pthread_mutex_destroy(&wave[i].lock);
	}
	free(wave);
	free(lane);
	return ret;
}

#endif
