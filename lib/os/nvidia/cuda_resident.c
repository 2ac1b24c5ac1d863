/* SPDX-License-Identifier: MIT */
/*
 * Work that is launched again and again, and calls of the driver that wait for kernels. With driver 580 on an H200 nothing seems
 * to be launched while such a call waits. A kernel that needs the work does not end then, and the call waits for that kernel.
 *
 * So such a call begins when no kernel of gnv_cuda_launch() runs, and none begins until it has ended. Kernels of the program, and
 * those of gnv_cuda_enqueue(), are not known here. For them the work is notified of the call, and its last launch goes on until
 * they have what they need. Where a handle is bounded, an event of the context says first whether they end.
 */
#include <errno.h>
#include <pthread.h>

#include "os/nvidia/cuda_table.h"
#include "util/clock.h"

#define ENDS_MS 1000u
#define ENDS_LATE_MS 30000u /* where nobody asks again, and what stays is lost */

static struct gnv_cuda_resident *residents;
static struct {
	uint32_t running; /* kernels of gnv_cuda_launch() */
	uint32_t calls;	  /* that wait for kernels, where there is such work */
	void *unended;	  /* an event of kernels that did not end in time, or NULL. Protected by `ending` */
} gate[GNV_CUDA_GPUS];
static pthread_mutex_t ending = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all of this */
static pthread_cond_t opens = PTHREAD_COND_INITIALIZER;

void gnv_cuda_resident_add(struct gnv_cuda *cuda, struct gnv_cuda_resident *resident)
{
	resident->gpu = cuda->gpu;
	pthread_mutex_lock(&lock);
	while (gate[cuda->gpu].calls) /* otherwise it would get the end of a call without its beginning */
		pthread_cond_wait(&opens, &lock);
	resident->next = residents;
	residents = resident;
	pthread_mutex_unlock(&lock);
}

void gnv_cuda_resident_remove(const struct gnv_cuda_resident *resident)
{
	struct gnv_cuda_resident **link;

	pthread_mutex_lock(&lock);
	for (link = &residents; *link && *link != resident; link = &(*link)->next)
		;
	if (*link)
		*link = resident->next;
	pthread_mutex_unlock(&lock);
}

void gnv_cuda_kernel_begins(unsigned gpu)
{
	pthread_mutex_lock(&lock);
	while (gate[gpu].calls)
		pthread_cond_wait(&opens, &lock);
	gate[gpu].running++;
	pthread_mutex_unlock(&lock);
}

void gnv_cuda_kernel_ends(unsigned gpu)
{
	pthread_mutex_lock(&lock);
	gate[gpu].running--;
	pthread_cond_broadcast(&opens);
	pthread_mutex_unlock(&lock);
}

static struct gnv_cuda_resident *resident_of(unsigned gpu)
{
	struct gnv_cuda_resident *r;

	for (r = residents; r && r->gpu != gpu; r = r->next)
		;
	return r;
}

/* ---- Kernels of the program, which may never end ---- */

void gnv_cuda_set_bounded(struct gnv_cuda *cuda)
{
	cuda->bounded = true;
}

bool gnv_cuda_has_resident(unsigned gpu)
{
	bool has;

	pthread_mutex_lock(&lock);
	has = resident_of(gpu);
	pthread_mutex_unlock(&lock);
	return has;
}

/* The longest time that launches of such work take: they are kernels of the context, too. */
static uint32_t launches_ms(unsigned gpu)
{
	const struct gnv_cuda_resident *r;
	uint32_t ms = 0;

	pthread_mutex_lock(&lock);
	for (r = residents; r; r = r->next)
		ms += r->gpu == gpu ? r->ms : 0;
	pthread_mutex_unlock(&lock);
	return ms;
}

/*
 * Return: an event of all kernels that run in the current context; NULL: there is none. While a stream there is captured, "the call
 * will invalidate all the conflicting captures" (cuCtxRecordEvent), also with relaxed modes (driver 580). Which ones those are is
 * not known. The default stream reports those that it waits for, and no capture ends by that (cuStreamIsCapturing).
 */
static void *record(struct gnv_cuda *cuda, void *context)
{
	void *event = NULL;
	int state;

	if (!cuda->api.context_event || cuda->api.stream_capturing((void *)GNV_CUDA_STREAM_LEGACY, &state) ||
	    cuda->api.event_create(&event, GNV_CUDA_EVENT_NO_TIMING))
		return NULL;
	if (!cuda->api.context_event(context, event))
		return event;
	cuda->api.event_destroy(event);
	return NULL;
}

static uint32_t patience_ms(const struct gnv_cuda *cuda)
{
	return cuda->bounded ? ENDS_MS : ENDS_LATE_MS;
}

/* Those that did not end in time once are not waited for again, where the wait is short. With `ending`. Return: do they end? */
static bool await_end(struct gnv_cuda *cuda, unsigned gpu, void *context)
{
	const bool known = gate[gpu].unended && cuda->bounded;
	struct gnv_deadline deadline = gnv_deadline_in(known ? 0 : patience_ms(cuda) + launches_ms(gpu));
	void *event = gate[gpu].unended ? gate[gpu].unended : record(cuda, context);
	int error = 0;

	do
		error = event ? cuda->api.event_query(event) : 0;
	while (error == GNV_CUDA_NOT_READY && gnv_deadline_poll_again(&deadline));
	gate[gpu].unended = error == GNV_CUDA_NOT_READY ? event : NULL;
	if (event && !gate[gpu].unended)
		cuda->api.event_destroy(event);
	return !gate[gpu].unended;
}

int gnv_cuda_kernels_end(struct gnv_cuda *cuda, unsigned gpu, void *context)
{
	bool again, ends = true;

	pthread_mutex_lock(&ending);
	again = gate[gpu].unended;
	if ((again || cuda->bounded) && !gnv_cuda_push(cuda, context)) {
		ends = await_end(cuda, gpu, context);
		if (ends && again && cuda->bounded) /* others may run by now */
			ends = await_end(cuda, gpu, context);
		gnv_cuda_leave(cuda);
	}
	pthread_mutex_unlock(&ending);
	if (ends)
		return 0;
	return gnv_fail(-EBUSY, "a kernel of the program on cuda:%u did not end within %u ms, and CUDA would wait for it. End it first",
			gpu, patience_ms(cuda));
}

/* ---- Calls that wait for kernels ---- */

/* Return: there is such work, so no kernel of the library runs, and none begins. */
static bool close_gate(const struct gnv_cuda *cuda, unsigned gpu)
{
	bool any;

	pthread_mutex_lock(&lock);
	any = resident_of(gpu) || cuda->bounded;
	gate[gpu].calls += any;
	while (any && gate[gpu].running)
		pthread_cond_wait(&opens, &lock);
	pthread_mutex_unlock(&lock);
	return any;
}

static void open_gate(unsigned gpu, bool closed)
{
	pthread_mutex_lock(&lock);
	gate[gpu].calls -= closed;
	pthread_cond_broadcast(&opens);
	pthread_mutex_unlock(&lock);
}

/* A call that begins without such work does not wait, and work that is added meanwhile is not notified. */
int gnv_cuda_wait_begins(struct gnv_cuda *cuda, unsigned gpu, void *context, bool *began)
{
	const bool any = close_gate(cuda, gpu);
	struct gnv_cuda_resident *r;
	int ret = gnv_cuda_kernels_end(cuda, gpu, context);

	if (ret) {
		open_gate(gpu, any);
		return ret;
	}
	pthread_mutex_lock(&lock);
	for (r = residents; r && any; r = r->next)
		if (r->gpu == gpu && !r->calls++)
			r->stay(r->ctx, true);
	pthread_mutex_unlock(&lock);
	*began = any;
	return 0;
}

void gnv_cuda_wait_ends(unsigned gpu, bool began)
{
	struct gnv_cuda_resident *r;

	pthread_mutex_lock(&lock);
	for (r = residents; r && began; r = r->next)
		if (r->gpu == gpu && r->calls && !--r->calls)
			r->stay(r->ctx, false);
	pthread_mutex_unlock(&lock);
	open_gate(gpu, began);
}
