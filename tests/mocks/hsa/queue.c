/* SPDX-License-Identifier: MIT */
/*
 * The mock's queues and signals. A packet is taken when its doorbell signal is stored, checked as strictly as the specification
 * allows, and run by a thread of its own. What a GPU would report ends the queue through its callback.
 */
#include "gfx/gfx.h"
#include "lanes.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct signal {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	hsa_signal_value_t value;
	struct queue *queue; /* whose doorbell it is */
};

struct queue {
	hsa_queue_t base;
	struct signal bell; /* its lock protects the rest */
	uint64_t written, taken, ended; /* packets. ended: all before it have ended */
	unsigned char *over;		/* of each place: its packet has ended, and not all before it */
	unsigned gpu, running;
	int stop;  /* kernels shall end */
	bool dead; /* it has failed and takes nothing more */
	bool faulted;
	bool users; /* HIP's, say */
	void (*failed)(hsa_status_t status, hsa_queue_t *source, void *data);
	void *data;
	hsa_kernel_dispatch_packet_t packet[];
};

struct work {
	hsa_kernel_dispatch_packet_t packet; /* as the kernel sees it */
	struct queue *queue;
	struct mock_guard guard;
	sem_t news; /* a fault, or the end */
	hsa_status_t status;
	uint64_t number; /* of the packet */
	bool ended; /* atomic */
};

static void count(int *counter, int by)
{
	__atomic_fetch_add(counter, by, __ATOMIC_RELAXED);
}

/* ---- Signals ---- */

static void signal_init(struct signal *s, hsa_signal_value_t value)
{
	pthread_condattr_t attr;

	memset(s, 0, sizeof(*s));
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, &attr);
	pthread_condattr_destroy(&attr);
	s->value = value;
}

static void signal_set(struct signal *s, hsa_signal_value_t value)
{
	pthread_mutex_lock(&s->lock);
	s->value = value;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

static void signal_count_down(struct signal *s)
{
	pthread_mutex_lock(&s->lock);
	s->value--;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
}

MOCK_API hsa_status_t hsa_signal_create(hsa_signal_value_t value, uint32_t consumers, const hsa_agent_t *consumer,
					   hsa_signal_t *out)
{
	struct signal *s;

	(void)consumers;
	(void)consumer;
	MOCK_FAILS("signal_create");
	s = malloc(sizeof(*s));
	if (!s)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	signal_init(s, value);
	count(&mock_counts.signals, 1);
	out->handle = (uintptr_t)s;
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_status_t hsa_signal_destroy(hsa_signal_t signal)
{
	free((struct signal *)(uintptr_t)signal.handle);
	count(&mock_counts.signals, -1);
	return HSA_STATUS_SUCCESS;
}

MOCK_API hsa_signal_value_t hsa_signal_wait_scacquire(hsa_signal_t signal, hsa_signal_condition_t condition,
							 hsa_signal_value_t with, uint64_t timeout, hsa_wait_state_t state)
{
	struct signal *s = (struct signal *)(uintptr_t)signal.handle;
	struct timespec end;
	hsa_signal_value_t value;

	if (condition != HSA_SIGNAL_CONDITION_LT)
		abort(); /* the only one that is emulated */
	(void)state;
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_nsec += (long)(timeout % 1000000000);
	end.tv_sec += (time_t)(timeout / 1000000000) + end.tv_nsec / 1000000000;
	end.tv_nsec %= 1000000000;
	pthread_mutex_lock(&s->lock);
	while (s->value >= with && !pthread_cond_timedwait(&s->changed, &s->lock, &end))
		;
	value = s->value;
	pthread_mutex_unlock(&s->lock);
	return value;
}

/* ---- Packets ---- */

/*
 * Without fences of system scope the kernel may not see what the host has written, nor the host what the kernel has. HIP's launches have
 * those of agent scope (clr rocvirtual.cpp, dispatchPacketHeader_ with fenceScopeAgent_, AMD_OPT_FLUSH=1).
 */
static bool fenced(const struct queue *q, unsigned header)
{
	const unsigned least = q->users ? HSA_FENCE_SCOPE_AGENT : HSA_FENCE_SCOPE_SYSTEM;

	return (header >> HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE & 3) >= least &&
	       (header >> HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE & 3) >= least;
}

/* What is wrong with a packet, before anything runs. */
static hsa_status_t check(const struct queue *q, const hsa_kernel_dispatch_packet_t *p, const struct mock_kernel *k)
{
	const unsigned dimensions = p->setup >> HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS;
	const uint64_t lanes = (uint64_t)p->workgroup_size_x * p->workgroup_size_y * p->workgroup_size_z;

	if ((p->header >> HSA_PACKET_HEADER_TYPE & 0xff) != HSA_PACKET_TYPE_KERNEL_DISPATCH || p->reserved0 || p->reserved2)
		return HSA_STATUS_ERROR_INVALID_PACKET_FORMAT;
	if (!fenced(q, p->header))
		return HSA_STATUS_ERROR_INVALID_PACKET_FORMAT;
	if (dimensions < 1 || dimensions > 3 || (dimensions < 2 && (p->workgroup_size_y != 1 || p->grid_size_y != 1)) ||
	    (dimensions < 3 && (p->workgroup_size_z != 1 || p->grid_size_z != 1)))
		return HSA_STATUS_ERROR_INVALID_PACKET_FORMAT;
	if (!lanes || lanes > 1024 || !p->grid_size_x || !p->grid_size_y || !p->grid_size_z)
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	if (!k)
		return HSA_STATUS_ERROR_INVALID_CODE_OBJECT;
	if (p->group_segment_size < k->group || p->private_segment_size < k->private || (uintptr_t)p->kernarg_address & 15)
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	return HSA_STATUS_SUCCESS;
}

/*
 * A barrier that waits for nothing: its fences are all it does, as of clr's markers (rocvirtual.cpp, dispatchBarrierPacket with
 * kBarrierPacketHeader). No wave runs for it, whatever fills the GPU.
 */
static hsa_status_t run_barrier(const struct work *w)
{
	const hsa_barrier_and_packet_t *p = (const hsa_barrier_and_packet_t *)&w->packet;
	const unsigned acquire = p->header >> HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE & 3;
	const unsigned release = p->header >> HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE & 3;
	unsigned i;

	if (p->reserved0 || p->reserved1 || p->reserved2)
		return HSA_STATUS_ERROR_INVALID_PACKET_FORMAT;
	for (i = 0; i < 5; i++)
		if (p->dep_signal[i].handle)
			abort(); /* not emulated */
	if (release == HSA_FENCE_SCOPE_SYSTEM)
		gfx_near_write_back(mock_near(w->queue->gpu));
	if (acquire == HSA_FENCE_SCOPE_SYSTEM)
		gfx_near_invalidate(mock_near(w->queue->gpu));
	return HSA_STATUS_SUCCESS;
}

/* The barrier bit: the packets before it have ended. */
static void await_older(const struct work *w)
{
	struct queue *q = w->queue;

	pthread_mutex_lock(&q->bell.lock);
	while (q->ended < w->number && !q->dead && !__atomic_load_n(&q->stop, __ATOMIC_RELAXED))
		pthread_cond_wait(&q->bell.changed, &q->bell.lock);
	pthread_mutex_unlock(&q->bell.lock);
}

/* A work-group starts where a unit has room for it. Kernels of the program may take all units, and a barrier takes none. */
MOCK_API bool mock_full;

static void await_room(const struct work *w)
{
	while (__atomic_load_n(&mock_full, __ATOMIC_ACQUIRE) && !__atomic_load_n(&w->queue->stop, __ATOMIC_RELAXED))
		usleep(1000);
}

static hsa_status_t run_packet(struct work *w)
{
	const struct mock_kernel *k;
	hsa_status_t status;

	if (w->packet.header >> HSA_PACKET_HEADER_BARRIER & 1)
		await_older(w);
	if ((w->packet.header >> HSA_PACKET_HEADER_TYPE & 0xff) == HSA_PACKET_TYPE_BARRIER_AND)
		return mock_fails("barrier", &status) ? status != HSA_STATUS_SUCCESS ? status : HSA_STATUS_INFO_BREAK : run_barrier(w);
	k = mock_kernel(w->packet.kernel_object);
	if (mock_fails("dispatch", &status))
		return status != HSA_STATUS_SUCCESS ? status : HSA_STATUS_INFO_BREAK; /* 0 is a kernel that hangs */
	status = check(w->queue, &w->packet, k);
	if (status != HSA_STATUS_SUCCESS)
		return status;
	await_room(w);
	mock_lanes_run(w->queue->gpu, (int)w->packet.grid_size_x);
	status = k->lanes->run(k, &w->packet, w->queue->gpu, &w->guard);
	mock_lanes_run(w->queue->gpu, -(int)w->packet.grid_size_x);
	return status;
}

static void *lanes_main(void *arg)
{
	struct work *w = arg;

	w->status = run_packet(w);
	__atomic_store_n(&w->ended, true, __ATOMIC_RELEASE);
	sem_post(&w->news);
	return NULL;
}

/*
 * A second report of a fault, before or after it (MOCK_ALSO): a wave's own exception, which ROCr's trap handler names an
 * aperture violation (trap_handler.s), comes by the queue's callback, on the same thread in any order.
 */
static void tell_also(struct queue *q, const char *when)
{
	const char *also = getenv("MOCK_ALSO");

	if (also && !strcmp(also, when))
		q->failed((hsa_status_t)HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION, &q->base, q->data);
}

/*
 * The first failure of a queue is reported, and ends it; the packet's signal stays as it is. A fault is reported to the process
 * alone: AqlQueue::ExceptionHandler (ROCr 6.4, amd_aql_queue.cpp) keeps it from the queue's callback.
 */
static void fail(struct queue *q, hsa_status_t status, uint64_t address)
{
	bool first, fault = status == (hsa_status_t)HSA_STATUS_ERROR_MEMORY_FAULT;

	pthread_mutex_lock(&q->bell.lock);
	first = !q->dead;
	q->dead = true;
	q->faulted |= first && fault;
	pthread_mutex_unlock(&q->bell.lock);
	if (first && !fault)
		q->failed(status, &q->base, q->data);
	if (!first || !fault)
		return;
	tell_also(q, "before");
	mock_fault(q->gpu, address);
	tell_also(q, "after");
}

/* A fault is reported when it happens, whenever the lanes end. */
static void wait_for_lanes(struct work *w)
{
	uint64_t address;

	do {
		while (sem_wait(&w->news))
			;
		address = __atomic_load_n(&w->guard.address, __ATOMIC_ACQUIRE);
		if (address)
			fail(w->queue, (hsa_status_t)HSA_STATUS_ERROR_MEMORY_FAULT, address);
	} while (!__atomic_load_n(&w->ended, __ATOMIC_ACQUIRE));
}

static void *run(void *arg)
{
	struct work *w = arg;
	struct queue *q = w->queue;
	pthread_t lanes;

	sem_init(&w->news, 0, 0);
	if (pthread_create(&lanes, NULL, lanes_main, w)) {
		w->status = HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	} else {
		wait_for_lanes(w);
		pthread_join(lanes, NULL);
	}
	if (w->status == HSA_STATUS_SUCCESS && w->packet.completion_signal.handle)
		signal_count_down((struct signal *)(uintptr_t)w->packet.completion_signal.handle);
	else if (w->status != HSA_STATUS_SUCCESS && w->status != HSA_STATUS_INFO_BREAK)
		fail(q, w->status, w->guard.address);
	pthread_mutex_lock(&q->bell.lock);
	q->running--;
	q->over[w->number & (q->base.size - 1)] = 1;
	for (; q->over[q->ended & (q->base.size - 1)]; q->ended++)
		q->over[q->ended & (q->base.size - 1)] = 0;
	pthread_cond_broadcast(&q->bell.changed);
	pthread_mutex_unlock(&q->bell.lock);
	sem_destroy(&w->news);
	free(w);
	return NULL;
}

/* A packet whose header says INVALID has not been written yet, whatever the doorbell says. */
static void take_packets(struct queue *q, uint64_t upto)
{
	pthread_mutex_lock(&q->bell.lock);
	for (; q->taken <= upto && !q->dead && !mock_is_dead(q->gpu); q->taken++) {
		hsa_kernel_dispatch_packet_t *packet = &q->packet[q->taken & (q->base.size - 1)];
		struct work *w;
		pthread_t thread;

		if (__atomic_load_n(&packet->header, __ATOMIC_ACQUIRE) == HSA_PACKET_TYPE_INVALID)
			break;
		w = aligned_alloc(64, (sizeof(*w) + 63) & ~(size_t)63);
		if (!w)
			break;
		*w = (struct work){ .packet = *packet, .queue = q, .guard = { &w->news, &q->stop, 0 }, .number = q->taken };
		__atomic_store_n(&packet->header, HSA_PACKET_TYPE_INVALID, __ATOMIC_RELEASE);
		q->running++;
		if (pthread_create(&thread, NULL, run, w)) {
			q->running--;
			free(w);
		} else {
			pthread_detach(thread);
		}
	}
	pthread_mutex_unlock(&q->bell.lock);
}

MOCK_API void hsa_signal_store_screlease(hsa_signal_t signal, hsa_signal_value_t value)
{
	struct signal *s = (struct signal *)(uintptr_t)signal.handle;

	signal_set(s, value);
	if (s->queue)
		take_packets(s->queue, (uint64_t)value);
}

/* ---- Queues ---- */

MOCK_API hsa_status_t hsa_queue_create(hsa_agent_t agent, uint32_t size, hsa_queue_type32_t type,
					  void (*callback)(hsa_status_t status, hsa_queue_t *source, void *data), void *data,
					  uint32_t private_segment_size, uint32_t group_segment_size, hsa_queue_t **out)
{
	struct queue *q;
	uint32_t i;

	MOCK_FAILS("queue_create");
	if (!size || size & (size - 1) || agent.handle < AGENT_GPU || type != HSA_QUEUE_TYPE_MULTI || private_segment_size != UINT32_MAX ||
	    group_segment_size != UINT32_MAX)
		return HSA_STATUS_ERROR_INVALID_ARGUMENT;
	q = calloc(1, sizeof(*q) + size * (sizeof(q->packet[0]) + 1));
	if (!q)
		return HSA_STATUS_ERROR_OUT_OF_RESOURCES;
	signal_init(&q->bell, 0);
	q->bell.queue = q;
	q->gpu = (unsigned)(agent.handle - AGENT_GPU);
	q->base.base_address = q->packet;
	q->over = (unsigned char *)(q->packet + size);
	q->base.size = size;
	q->base.doorbell_signal.handle = (uintptr_t)&q->bell;
	q->failed = callback;
	q->data = data;
	for (i = 0; i < size; i++)
		q->packet[i].header = HSA_PACKET_TYPE_INVALID;
	count(&mock_counts.queues, 1);
	*out = &q->base;
	return HSA_STATUS_SUCCESS;
}

MOCK_API void mock_user_queue(hsa_queue_t *queue)
{
	((struct queue *)queue)->users = true;
}

MOCK_API hsa_status_t hsa_queue_destroy(hsa_queue_t *queue)
{
	struct queue *q = (struct queue *)queue;

	/*
	 * After a fault ~AqlQueue waits for a handler that said it would not come again, without limit (ROCr up to 6.4,
	 * AqlQueue::ExceptionHandler); where the GPU is dead no queue of it is taken off any more.
	 */
	while (q->faulted || mock_number("MOCK_QUEUE_STAYS", 0))
		pause();
	/*
	 * A wave that waits for what never returns cannot be saved: after 9 s (queue_preemption_timeout_ms) the driver resets the
	 * GPU (Linux kfd_device_queue_manager.c, unmap_queues_cpsch; amdgpu_amdkfd_gpu_reset), and destroying succeeds all the same
	 * (ROCr 6.4, AqlQueue::Inactivate only asserts).
	 */
	if (mock_number("MOCK_WEDGED", 0) && q->taken)
		mock_gpu_reset(q->gpu);
	__atomic_store_n(&q->stop, 1, __ATOMIC_RELAXED);
	pthread_mutex_lock(&q->bell.lock);
	pthread_cond_broadcast(&q->bell.changed);
	while (q->running)
		pthread_cond_wait(&q->bell.changed, &q->bell.lock);
	pthread_mutex_unlock(&q->bell.lock);
	free(q);
	count(&mock_counts.queues, -1);
	return HSA_STATUS_SUCCESS;
}

MOCK_API uint64_t hsa_queue_add_write_index_screlease(const hsa_queue_t *queue, uint64_t value)
{
	struct queue *q = (struct queue *)(uintptr_t)queue;

	return __atomic_fetch_add(&q->written, value, __ATOMIC_RELEASE);
}

MOCK_API uint64_t hsa_queue_load_read_index_scacquire(const hsa_queue_t *queue)
{
	return __atomic_load_n(&((const struct queue *)queue)->taken, __ATOMIC_ACQUIRE);
}
