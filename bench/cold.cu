/* SPDX-License-Identifier: MIT */
/*
 * bench/cold: what makes a look for completions slow. In kvcache the first look of a layer takes 50 us, the next ones 2 to 11. Here
 * a thread of each wave looks three times in vain and once when the completion is there. Before the first and the last look the
 * wave does one other thing:
 *
 *   nothing      rests
 *   code         runs so many KiB of other code, which uses no memory
 *   host_pages   loads from 256 pages of memory of the host
 *   gpu_pages    loads from 256 pages of 2 MiB of memory of the GPU
 *   move         moves 16 KiB from memory of the host to that of the GPU, as kvcache does
 *   stores       stores 16 KiB to memory of the host, with a fence
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o cold bench/cold.cu -Lbuild/release/lib -lgpunvme
 *   cold 'soft:vram:64M?on=cuda:1&lat_us=300&queues=40'
 *
 * Prints a line of JSON for each: microseconds, means of all waves and turns. If code alone makes the first look slow, the cause is
 * the instruction cache. Then the KiB from which it is slow say how much the cache has. -DGPUNVME_CQ_BATCH=1 has shorter looks.
 */
#include <cinttypes>

#include "session.h"

#ifndef GPUNVME_CQ_BATCH
#define GPUNVME_CQ_BATCH 8 /* CUDA's default, also where the host prints it */
#endif
#include <gpunvme/device.h>

const char *const program = "cold";

#define WAVE 32u
#define WAVES 32u
#define TURNS 50u
#define LENGTH 16384u	 /* of a read */
#define LARGE (2u << 20) /* a page of the GPU */
#define PAGES 256u
#define LOOKS 4u

enum before { NOTHING, CODE, HOST_PAGES, GPU_PAGES, MOVE, STORES };

struct job {
	const struct gpunvme_dq *dq;
	uint32_t queues;
	struct gpunvme_dbuf buf;
	unsigned char *host, *gpu;
	unsigned long long *ticks; /* of each look */
	unsigned long long *per;   /* ticks and nanoseconds of the first wave */
	uint32_t *sink;
	int *failed;
	enum before before;
	uint32_t parts; /* of code, 32 KiB each */
};

#define TWICE(x) x x
#define FOUR(x) TWICE(TWICE(x))
#define CODE_2048(x) TWICE(FOUR(FOUR(FOUR(FOUR(FOUR(x))))))

/* 2,048 instructions of 16 bytes. */
template <uint32_t N> __device__ __noinline__ static uint32_t other_code(uint32_t v)
{
	CODE_2048(__asm__ volatile("mad.lo.u32 %0, %0, %0, %1;" : "+r"(v) : "n"(N + 1));)
	return v;
}

__device__ static uint32_t run_code(uint32_t parts, uint32_t v)
{
	v = parts > 0 ? other_code<0>(v) : v;
	v = parts > 1 ? other_code<1>(v) : v;
	v = parts > 2 ? other_code<2>(v) : v;
	v = parts > 3 ? other_code<3>(v) : v;
	v = parts > 4 ? other_code<4>(v) : v;
	v = parts > 5 ? other_code<5>(v) : v;
	v = parts > 6 ? other_code<6>(v) : v;
	return parts > 7 ? other_code<7>(v) : v;
}

/* The wave moves its part of the host's memory. */
__device__ __noinline__ static void move(const struct job &j)
{
	const uint4 *from = (const uint4 *)(j.host + (size_t)blockIdx.x * LENGTH);
	uint4 *to = (uint4 *)(j.gpu + (size_t)blockIdx.x * LENGTH);

	for (uint32_t i = threadIdx.x; i < LENGTH / 16; i += WAVE)
		to[i] = __ldcv(&from[i]);
}

__device__ __noinline__ static void store(const struct job &j, uint32_t turn)
{
	volatile uint64_t *to = (volatile uint64_t *)(j.host + (size_t)blockIdx.x * LENGTH);

	for (uint32_t i = threadIdx.x; i < LENGTH / 8; i += WAVE)
		to[i] = turn;
	__threadfence_system();
}

__device__ static void do_before(const struct job &j, uint32_t turn)
{
	uint32_t v = turn, i;

	if (j.before == CODE)
		v = run_code(j.parts, v);
	for (i = threadIdx.x; j.before == HOST_PAGES && i < PAGES; i += WAVE)
		v += __ldcv((const uint32_t *)(j.host + i * 4096 + blockIdx.x * 64));
	for (i = threadIdx.x; j.before == GPU_PAGES && i < PAGES; i += WAVE)
		v += __ldcv((const uint32_t *)(j.gpu + (size_t)i * LARGE + blockIdx.x * 64));
	if (j.before == MOVE)
		move(j);
	if (j.before == STORES)
		store(j, turn);
	j.sink[blockIdx.x * WAVE + threadIdx.x] = v;
	__syncwarp();
}

/* One text for all looks. */
__device__ __noinline__ static int look(const struct gpunvme_dq *dq, struct gpunvme_req *req, unsigned long long *ticks)
{
	const long long begun = clock64();
	int ret = gpunvme_poll(dq, req);

	*ticks += (unsigned long long)(clock64() - begun);
	return ret;
}

__device__ static void rest(uint64_t us)
{
	uint64_t begun = gnvd_clock();

	while (gnvd_clock() - begun < us * 1000)
		;
}

/* A turn of a wave. The looks are those of its first thread. */
__device__ static int turn_of(const struct job &j, const struct gpunvme_dq *dq, uint32_t turn, unsigned long long *ticks)
{
	struct gpunvme_req req;
	int ret = 0;

	if (threadIdx.x == 0)
		ret = gpunvme_submit_read(dq, &j.buf, blockIdx.x * (uint64_t)LENGTH, (turn * WAVES + blockIdx.x) * (uint64_t)LENGTH, LENGTH,
					  &req);
	if (__shfl_sync(~0u, ret, 0))
		return ret;
	rest(20);
	do_before(j, turn);
	for (uint32_t i = 0; i < LOOKS - 1 && threadIdx.x == 0 && (!i || ret == -GPUNVME_EAGAIN); i++)
		ret = look(dq, &req, &ticks[i]);
	__syncwarp();
	rest(400);
	do_before(j, turn);
	if (threadIdx.x == 0 && ret == -GPUNVME_EAGAIN)
		ret = look(dq, &req, &ticks[LOOKS - 1]);
	if (threadIdx.x == 0 && ret == -GPUNVME_EAGAIN)
		ret = gpunvme_wait(dq, &req, 0);
	return ret;
}

__global__ static void walk(const struct job j)
{
	const uint64_t ns = gnvd_clock();
	const long long begun = clock64();
	unsigned long long ticks[LOOKS] = {};
	__shared__ struct gpunvme_dq dq;

	if (threadIdx.x == 0)
		dq = j.dq[blockIdx.x % j.queues];
	__syncwarp();
	for (uint32_t turn = 0; turn < TURNS; turn++) {
		int ret = turn_of(j, &dq, turn, ticks);

		if (ret)
			*j.failed = ret;
		if (__any_sync(~0u, ret))
			break;
	}
	if (threadIdx.x)
		return;
	for (uint32_t i = 0; i < LOOKS; i++)
		atomicAdd(&j.ticks[i], ticks[i]);
	if (blockIdx.x == 0) {
		j.per[0] = (unsigned long long)(clock64() - begun);
		j.per[1] = gnvd_clock() - ns;
	}
}

static void run(struct job j, const char *name, enum before before, uint32_t parts)
{
	unsigned long long found[LOOKS + 2];
	int failed;

	j.before = before;
	j.parts = parts;
	check(cudaMemset(j.ticks, 0, sizeof(found)), "cudaMemset");
	walk<<<WAVES, WAVE>>>(j);
	check(cudaGetLastError(), "the kernel");
	check(cudaDeviceSynchronize(), "the kernel");
	check(cudaMemcpy(found, j.ticks, sizeof(found), cudaMemcpyDeviceToHost), "cudaMemcpy");
	check(cudaMemcpy(&failed, j.failed, sizeof(failed), cudaMemcpyDeviceToHost), "cudaMemcpy");
	if (failed)
		die(std::string("a read failed: ") + gpunvme_strerror(failed));
	printf("{\"figure\": \"cold\", \"batch\": %u, \"before\": \"%s\", \"kib\": %u", GNVD_BATCH, name, 32 * parts);
	for (uint32_t i = 0; i < LOOKS; i++)
		printf(", \"look%u_us\": %.2f", i + 1,
		       (double)found[i] / WAVES / TURNS * (double)found[LOOKS + 1] / (double)found[LOOKS] / 1000);
	printf("}\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct job j = {};
	session s;

	if (argc != 2)
		die("usage: cold URI");
	s.open(argv[1], 0, WAVES);
	if (s.ns.nblocks * s.ns.lba_size < (uint64_t)TURNS * WAVES * LENGTH)
		die("the drive is smaller than 25 MiB");
	s.buffer((size_t)WAVES * LENGTH);
	j.dq = s.dq;
	j.queues = s.queues();
	j.buf = s.dbuf;
	check(cudaHostAlloc(&j.host, PAGES * 4096, cudaHostAllocMapped), "cudaHostAlloc");
	check(cudaMalloc(&j.gpu, (size_t)PAGES * LARGE), "cudaMalloc");
	check(cudaMalloc(&j.ticks, (LOOKS + 2) * 8), "cudaMalloc");
	check(cudaMalloc(&j.sink, WAVES * WAVE * 4), "cudaMalloc");
	check(cudaMalloc(&j.failed, sizeof(*j.failed)), "cudaMalloc");
	check(cudaMemset(j.failed, 0, sizeof(*j.failed)), "cudaMemset");
	j.per = j.ticks + LOOKS;
	run(j, "nothing", NOTHING, 0);
	for (uint32_t parts = 1; parts <= 8; parts *= 2)
		run(j, "code", CODE, parts);
	run(j, "host_pages", HOST_PAGES, 0);
	run(j, "gpu_pages", GPU_PAGES, 0);
	run(j, "move", MOVE, 0);
	run(j, "stores", STORES, 0);
	s.close();
	return 0;
}
