/* SPDX-License-Identifier: MIT */
/*
 * Work that is launched again and again, and calls of the driver that wait for kernels. With driver 580 on an H200 nothing seems
 * to be launched while such a call waits. A kernel that needs the work does not end then, and the call waits for that kernel.
 *
 * So such a call begins when no kernel of gnv_cuda_launch() runs, and none begins until it has ended. Kernels of the program, and
 * those of gnv_cuda_enqueue(), are not known here. For them the work is notified of the call, and its last launch goes on until
 * they have what they need.
 */
#include <pthread.h>

#include "os/nvidia/cuda_table.h"

static struct gnv_cuda_resident *residents;
static struct {
	uint32_t running; /* kernels of gnv_cuda_launch() */
	uint32_t calls;	  /* that wait for kernels, where there is such work */
} gate[GNV_CUDA_GPUS];
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

/* A call that begins without such work does not wait, and work that is added meanwhile is not notified. */
bool gnv_cuda_wait_begins(unsigned gpu)
{
	struct gnv_cuda_resident *r;
	bool any;

	pthread_mutex_lock(&lock);
	any = resident_of(gpu);
	gate[gpu].calls += any;
	while (any && gate[gpu].running)
		pthread_cond_wait(&opens, &lock);
	for (r = residents; r && any; r = r->next)
		if (r->gpu == gpu && !r->calls++)
			r->stay(r->ctx, true);
	pthread_mutex_unlock(&lock);
	return any;
}

void gnv_cuda_wait_ends(unsigned gpu, bool began)
{
	struct gnv_cuda_resident *r;

	pthread_mutex_lock(&lock);
	gate[gpu].calls -= began;
	for (r = residents; r && began; r = r->next)
		if (r->gpu == gpu && r->calls && !--r->calls)
			r->stay(r->ctx, false);
	pthread_cond_broadcast(&opens);
	pthread_mutex_unlock(&lock);
}
