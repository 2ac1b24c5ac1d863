/* SPDX-License-Identifier: MIT */
/* Invariant: kernels run in the order in which they were enqueued, one at a time, and each of them does. */
#include "gpu/cpu_stream.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <gpunvme/run.h>
#include <stdlib.h>
#include <string.h>

#include "util/entry.h"
#include "util/thread.h"

struct job {
	struct job *next;
	enum gnv_kernel kernel;
	uint32_t threads;
	uint64_t args[GNV_CPU_ARGS_MAX / 8];
};

struct gpunvme_stream {
	uint64_t process; /* whose thread it is (util/process.h) */
	struct gpunvme_gpu *gpu;
	pthread_t thread;
	pthread_mutex_t lock; /* protects the fields below */
	pthread_cond_t changed;
	struct job *first, **last;
	uint64_t put, done; /* kernels so far */
	bool ends;
};

void gnv_cpu_run(const struct gpunvme_gpu *gpu, enum gnv_kernel kernel, uint32_t threads, void *args)
{
	if (threads == 1 || gpunvme_cpu_launch(threads, gpu->info.width, gnv_kernel_cpu[kernel], args))
		gnv_kernel_cpu[kernel](args); /* this thread is a wave of one thread */
}

/* Wait for a kernel. Return: NULL the stream ends and has none. Under the lock. */
static struct job *take(struct gpunvme_stream *s)
{
	struct job *job;

	while (!s->first && !s->ends)
		pthread_cond_wait(&s->changed, &s->lock);
	job = s->first;
	if (job)
		s->first = job->next;
	if (!s->first)
		s->last = &s->first;
	return job;
}

static void *serve(void *arg)
{
	struct gpunvme_stream *s = arg;
	struct job *job;

	pthread_mutex_lock(&s->lock);
	while ((job = take(s))) {
		pthread_mutex_unlock(&s->lock);
		gnv_cpu_run(s->gpu, job->kernel, job->threads, job->args);
		free(job);
		pthread_mutex_lock(&s->lock);
		s->done++;
		pthread_cond_broadcast(&s->changed);
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

int gnv_cpu_stream_put(struct gpunvme_gpu *gpu, struct gpunvme_stream *s, const struct gnv_launch *launch)
{
	struct job *job;

	if (gnv_foreign(s->process))
		return -ECHILD;
	if (s->gpu != gpu)
		return gnv_fail(-EXDEV, "the stream belongs to another GPU. Use a stream that gpunvme_stream_create() made for "
					"this GPU");
	job = calloc(1, sizeof(*job));
	if (!job)
		return gnv_fail(-ENOMEM, "out of memory");
	job->kernel = launch->kernel;
	job->threads = launch->threads;
	memcpy(job->args, launch->args, launch->args_len);
	pthread_mutex_lock(&s->lock);
	*s->last = job;
	s->last = &job->next;
	s->put++;
	pthread_cond_broadcast(&s->changed);
	pthread_mutex_unlock(&s->lock);
	return 0;
}

static void free_stream(struct gpunvme_stream *s)
{
	pthread_cond_destroy(&s->changed);
	pthread_mutex_destroy(&s->lock);
	gnv_gpu_put(s->gpu);
	free(s);
}

GPUNVME_API int gpunvme_stream_create(struct gpunvme_gpu *gpu, struct gpunvme_stream **out)
{
	struct gpunvme_stream *s;
	int ret = gnv_enter(gpu, gpu && out, "gpu and stream");

	if (ret)
		return ret;
	if (gpu->info.kind != GPUNVME_GPU_CPU)
		return gnv_fail(-EOPNOTSUPP, "%s has streams of its own: make one with its runtime, as by cudaStreamCreate()", gpu->info.name);
	s = calloc(1, sizeof(*s));
	if (!s)
		return gnv_fail(-ENOMEM, "out of memory");
	s->process = gnv_process();
	s->gpu = gnv_gpu_get(gpu);
	s->last = &s->first;
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->changed, NULL);
	ret = gnv_thread_start(&s->thread, serve, s);
	if (ret) {
		free_stream(s);
		return gnv_fail(ret, "no thread for the stream. Raise the limit of threads (ulimit -u)");
	}
	*out = s;
	return 0;
}

GPUNVME_API int gpunvme_stream_wait(struct gpunvme_stream *stream)
{
	int ret = gnv_enter(stream, stream, "stream");
	uint64_t mine;

	if (ret)
		return ret;
	pthread_mutex_lock(&stream->lock);
	mine = stream->put;
	while (stream->done < mine)
		pthread_cond_wait(&stream->changed, &stream->lock);
	pthread_mutex_unlock(&stream->lock);
	return 0;
}

GPUNVME_API int gpunvme_stream_destroy(struct gpunvme_stream *stream)
{
	if (!stream)
		return 0;
	if (gnv_foreign(stream->process))
		return -ECHILD;
	pthread_mutex_lock(&stream->lock);
	stream->ends = true;
	pthread_cond_broadcast(&stream->changed);
	pthread_mutex_unlock(&stream->lock);
	pthread_join(stream->thread, NULL);
	free_stream(stream);
	return 0;
}
