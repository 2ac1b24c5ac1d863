/* SPDX-License-Identifier: MIT */
/*
 * What CUDA and HIP call alike, but for the prefix: FRONT_API(Malloc) is cudaMalloc or hipMalloc. Only cuda.h and hip.h include
 * this.
 */
#ifndef GPUNVME_EXAMPLES_FRONT_GPU_H
#define GPUNVME_EXAMPLES_FRONT_GPU_H

#define FRONT_FN static __device__ __forceinline__
#define FRONT_WAVES 512u
#define FRONT_QUEUES 32u /* a controller in software has a thread for some of them */

typedef FRONT_API(Stream_t) front_stream;

static session front_session;

static inline void *front_shared(size_t bytes)
{
	void *p;

	check(FRONT_HOST_ALLOC(&p, bytes), "no pinned memory");
	return memset(p, 0, bytes);
}

static inline void *front_local(size_t bytes)
{
	void *p;

	check(FRONT_API(Malloc)(&p, bytes), "no memory on the GPU");
	check(FRONT_API(Memset)(p, 0, bytes), "memset");
	check(FRONT_API(DeviceSynchronize)(), "memset"); /* streams of others do not wait for it */
	return p;
}

static inline void front_put(void *local, const void *from, size_t bytes)
{
	check(FRONT_API(Memcpy)(local, from, bytes, FRONT_API(MemcpyHostToDevice)), "memcpy");
	check(FRONT_API(DeviceSynchronize)(), "memcpy");
}

static inline void front_stream_open(front_stream *stream)
{
	check(FRONT_API(StreamCreateWithFlags)(stream, FRONT_API(StreamNonBlocking)), "no stream");
}

static inline int front_busy(front_stream *stream)
{
	FRONT_API(Error_t) err = FRONT_API(StreamQuery)(*stream);

	if (err != FRONT_API(ErrorNotReady))
		check(err, "a kernel");
	return err == FRONT_API(ErrorNotReady);
}

/* Of the queues. What follows is the same for both. */
static inline void front_queues(struct front *f, const gpunvme_dq &first)
{
	struct gpunvme_queue_info queue = {};

	queue.size = sizeof(queue);
	check(gpunvme_queue_get_info(front_session.queue[0], &queue));
	f->dq = front_session.dq;
	f->depth = queue.depth;
	f->ticks = first.ticks_per_ms;
	f->lba_size = front_session.ns.lba_size;
	f->nblocks = front_session.ns.nblocks;
}

FRONT_FN void front_together()
{
	__syncthreads();
}

FRONT_FN void front_meet(uint32_t *count, uint32_t n)
{
	__syncthreads();
	if (!threadIdx.x) {
		__threadfence();
		atomicAdd(count, 1u);
		while (atomicAdd(count, 0u) < n)
			;
		__threadfence();
	}
	__syncthreads();
}

FRONT_FN void front_fail(int *status, int ret)
{
	*(volatile int *)status = ret;
}

FRONT_FN void front_tell(uint64_t *word, uint64_t v)
{
	__threadfence_system();
	*(volatile uint64_t *)word = v;
}

FRONT_FN void front_work(uint64_t ticks, uint64_t)
{
	uint64_t start = gnvd_clock();

	while (gnvd_clock() - start < ticks)
		;
}

#define FRONT_KERNEL(name, type)                                                                                                   \
	__global__ void name##_kernel(const struct type arg)                                                                       \
	{                                                                                                                          \
		name(&arg);                                                                                                        \
	}                                                                                                                          \
	static inline void front_start_##name(const front_stream *stream, uint32_t waves, const struct type *arg)                  \
	{                                                                                                                          \
		name##_kernel<<<waves, front_width(), 0, *stream>>>(*arg);                                                         \
		check(FRONT_API(GetLastError)(), #name);                                                                           \
	}                                                                                                                          \
	static inline void front_run_##name(uint32_t waves, const struct type *arg)                                                \
	{                                                                                                                          \
		front_stream stream = 0;                                                                                           \
                                                                                                                                   \
		front_start_##name(&stream, waves, arg);                                                                           \
		check(FRONT_API(DeviceSynchronize)(), #name);                                                                      \
	}

#endif
