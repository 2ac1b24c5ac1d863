/* SPDX-License-Identifier: MIT */
/*
 * The kernel on threads of this process, one for each worker. A thread sleeps while its worker finds nothing to do, up to a
 * millisecond at a time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/thread.h"
#include "vdrive/exec.h"
#include "vdrive/shared.h"

#define HUGE_PAGE (2u << 20)
#define IDLE_NS 50000u /* a worker without work polls for this time before its thread sleeps */
#define SLEEP_MIN_US 20u
#define SLEEP_MAX_US 1000u

struct worker {
	struct exec_cpu *exec;
	uint32_t index;
	pthread_t thread;
	bool joined;
	uint32_t ended; /* atomic */
};

/* An allocation of memory of the system. */
struct block {
	struct block *next;
	void *at;
	size_t len;
};

struct exec_cpu {
	struct gnv_vd_exec exec;
	struct gnv_vd_args args;
	uint32_t workers, started;
	struct worker *worker;
	pthread_mutex_t lock; /* protects blocks */
	struct block *blocks;
};

static struct exec_cpu *cpu_of(struct gnv_vd_exec *exec)
{
	return gnv_container_of(exec, struct exec_cpu, exec);
}

static int cpu_open(const struct gnv_vd_wish *wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec)
{
	struct exec_cpu *cpu;

	(void)log;
	if (wish->rest)
		return gnv_fail(-EINVAL, "on=cpu:%.40s in the URI: nothing follows cpu. Set the number of threads by threads=",
				wish->rest);
	cpu = calloc(1, sizeof(*cpu));
	if (!cpu)
		return gnv_fail(-ENOMEM, "out of memory");
	cpu->worker = calloc(wish->threads, sizeof(*cpu->worker));
	if (!cpu->worker) {
		free(cpu);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	cpu->exec = (struct gnv_vd_exec){ &gnv_vd_exec_cpu, true };
	cpu->workers = *workers = wish->threads;
	pthread_mutex_init(&cpu->lock, NULL);
	*exec = &cpu->exec;
	return 0;
}

static void cpu_close(struct gnv_vd_exec *exec)
{
	struct exec_cpu *cpu = cpu_of(exec);

	while (cpu->blocks)
		exec->ops->free(exec, (uintptr_t)cpu->blocks->at);
	pthread_mutex_destroy(&cpu->lock);
	free(cpu->worker);
	free(cpu);
}

/* ---- Memory: the system provides each page at the first write ---- */

static int cpu_alloc(struct gnv_vd_exec *exec, size_t len, uint64_t *at)
{
	struct exec_cpu *cpu = cpu_of(exec);
	struct block *block = calloc(1, sizeof(*block));

	if (!block)
		return gnv_fail(-ENOMEM, "out of memory");
	block->len = (size_t)gnv_align_up(len, HUGE_PAGE);
	if (len > PTRDIFF_MAX - HUGE_PAGE || gnv_sys_map(block->len, HUGE_PAGE, false, &block->at)) {
		free(block);
		return gnv_fail(-ENOMEM, "the system has no %zu MiB of memory for the drive. Use a smaller size", len >> 20);
	}
	*at = (uintptr_t)block->at;
	pthread_mutex_lock(&cpu->lock);
	block->next = cpu->blocks;
	cpu->blocks = block;
	pthread_mutex_unlock(&cpu->lock);
	return 0;
}

static void cpu_free(struct gnv_vd_exec *exec, uint64_t at)
{
	struct exec_cpu *cpu = cpu_of(exec);
	struct block **link, *block;

	pthread_mutex_lock(&cpu->lock);
	for (link = &cpu->blocks; *link && (uintptr_t)(*link)->at != at; link = &(*link)->next)
		;
	block = *link;
	if (block)
		*link = block->next;
	pthread_mutex_unlock(&cpu->lock);
	if (!block)
		return;
	gnv_sys_unmap(block->at, block->len);
	free(block);
}

/* Copies begin and end at words of 4 bytes. Aligned words of 8 bytes arrive whole. */
static void copy(void *to, const void *from, size_t len)
{
	char *t = to;
	const char *f = from;

	for (; len >= 8 && ((uintptr_t)t | (uintptr_t)f) % 8 == 0; t += 8, f += 8, len -= 8)
		__atomic_store_n((uint64_t *)(void *)t, __atomic_load_n((const uint64_t *)(const void *)f, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
	for (; len >= 4; t += 4, f += 4, len -= 4)
		__atomic_store_n((uint32_t *)(void *)t, __atomic_load_n((const uint32_t *)(const void *)f, __ATOMIC_ACQUIRE),
				 __ATOMIC_RELEASE);
}

static int cpu_peek(struct gnv_vd_exec *exec, void *to, uint64_t at, size_t len)
{
	(void)exec;
	copy(to, (const void *)(uintptr_t)at, len);
	return 0;
}

static int cpu_poke(struct gnv_vd_exec *exec, uint64_t at, const void *from, size_t len)
{
	(void)exec;
	copy((void *)(uintptr_t)at, from, len);
	return 0;
}

static int cpu_show(struct gnv_vd_exec *exec, void *cpu, size_t len, uint64_t *at, void **cookie)
{
	(void)exec;
	(void)len;
	*at = (uintptr_t)cpu;
	*cookie = NULL;
	return 0;
}

static int cpu_hide(struct gnv_vd_exec *exec, void *cookie)
{
	(void)exec;
	(void)cookie;
	return 0;
}

/* Stores to memory of a device may stay in a buffer of the CPU or of the device after a fence. */
static int cpu_reach(struct gnv_vd_exec *exec, const struct gpunvme_mem *mem, uint64_t *at)
{
	(void)exec;
	(void)mem;
	(void)at;
	return gnv_fail(-EOPNOTSUPP,
			"a drive soft:vram: with on=cpu does not reach memory of a device. Use memory of the host, or on=cuda:N");
}

/* ---- Threads ---- */

static bool stopped(const struct exec_cpu *cpu)
{
	return __atomic_load_n(&((const struct gnv_vd *)(uintptr_t)cpu->args.vd)->stop, __ATOMIC_ACQUIRE);
}

static void *work(void *arg)
{
	struct worker *worker = arg;
	struct timespec pause = { 0, SLEEP_MIN_US * 1000 };

	gnv_sys_serves_io(); /* a block device of the kernel may use its controller */
	while (!stopped(worker->exec)) {
		if (gnv_vd_kernel_cpu(&worker->exec->args, worker->index)) {
			pause.tv_nsec = SLEEP_MIN_US * 1000;
			continue;
		}
		nanosleep(&pause, NULL);
		pause.tv_nsec = (long)gnv_min((uint64_t)pause.tv_nsec * 2, SLEEP_MAX_US * 1000);
	}
	__atomic_store_n(&worker->ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

static int cpu_start(struct gnv_vd_exec *exec, uint64_t vd, uint64_t slice_ns)
{
	struct exec_cpu *cpu = cpu_of(exec);
	struct worker *worker;
	int ret = 0;

	cpu->args = (struct gnv_vd_args){ .vd = vd, .slice_ns = slice_ns, .idle_ns = IDLE_NS };
	while (!ret && cpu->started < cpu->workers) {
		worker = &cpu->worker[cpu->started];
		*worker = (struct worker){ .exec = cpu, .index = cpu->started };
		ret = gnv_thread_start(&worker->thread, work, worker);
		cpu->started += !ret;
	}
	return ret ? gnv_fail(ret, "cannot start a thread of the drive: no more can be started. Raise RLIMIT_NPROC (ulimit -u)") : 0;
}

static bool cpu_stop(struct gnv_vd_exec *exec, uint32_t ms)
{
	struct exec_cpu *cpu = cpu_of(exec);
	struct gnv_deadline deadline = gnv_deadline_in(ms);
	uint32_t i;

	for (i = 0; i < cpu->started; i++) {
		if (cpu->worker[i].joined)
			continue;
		while (!__atomic_load_n(&cpu->worker[i].ended, __ATOMIC_ACQUIRE))
			if (!gnv_deadline_poll_again(&deadline))
				return false;
		pthread_join(cpu->worker[i].thread, NULL);
		cpu->worker[i].joined = true;
	}
	return true;
}

/* On a busy machine threads run late, but each of them runs. */
static bool cpu_is_queued(struct gnv_vd_exec *exec)
{
	(void)exec;
	return false;
}

const struct gnv_vd_exec_ops gnv_vd_exec_cpu = {
	.name = "cpu",
	.open = cpu_open,
	.close = cpu_close,
	.alloc = cpu_alloc,
	.free = cpu_free,
	.peek = cpu_peek,
	.poke = cpu_poke,
	.show = cpu_show,
	.hide = cpu_hide,
	.reach = cpu_reach,
	.start = cpu_start,
	.is_queued = cpu_is_queued,
	.stop = cpu_stop,
};
