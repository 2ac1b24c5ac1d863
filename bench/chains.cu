/* SPDX-License-Identifier: MIT */
/*
 * bench/chains: reads that depend on reads, begun by the GPU or by CPU threads, on one drive and through one link.
 *
 * A chain is a walk of --hops steps. A step reads four nodes and looks at all their bytes; they say which nodes come next. So
 * nothing can be read ahead, as in a search of a graph. A wave has one chain at a time and checks every word of every node.
 *
 *   --threads 0   the threads of one kernel read with <gpunvme/device.h>; no CPU thread takes part
 *   --threads N   N threads of the CPU read through bare rings (chains/rings.h) for the waves of a kernel that stays
 *
 * Both have the same queues, and rings and data in memory of the host, so both pay the same link. The queues of the GPU have the
 * flags that gpunvme_gpu_ordering_test() finds to be safe here. The CPU's threads need none.
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o chains bench/chains.cu -Lbuild/release/lib -lgpunvme \
 *     -Xlinker -rpath=$PWD/build/release/lib
 *   chains 'soft:vram:4G?on=cuda:0&lat_us=20&queues=32' --threads 4 --fill    # overwrites what the drive has
 *
 * Prints a line of JSON; ends with 1 when a byte was wrong or a read failed.
 */
#include <algorithm>
#include <string>

#include <getopt.h>

#include <gpunvme/device.h>

#include "chains/rig.h"
#include "chains/waves.h"

const char *const program = "chains";

#define FILL (64u << 10) /* bytes of a write */

struct setup {
	const char *uri;
	uint32_t node = 512, chains = 1536, hops = 20, queues = 32, threads = 0;
	double seconds = 1;
	bool fill = false;
};

struct job : trip {
	uint64_t nodes;
	unsigned long long *wrong; /* words */
	unsigned long long *spent; /* ns of all waves: in reads, and in looking at their data; and their chains */
	uint32_t hops;
};

__host__ __device__ static uint64_t word_of(uint64_t index)
{
	index = (index ^ index >> 31) * 0x9e3779b97f4a7c15ull;
	return index ^ index >> 29;
}

__host__ __device__ static void next_nodes(uint64_t x, uint64_t nodes, uint64_t *want)
{
	for (uint32_t b = 0; b < BEAM; b++)
		want[b] = word_of(x + b) % nodes;
}

__device__ static uint64_t data_of(const struct job &j, uint64_t chain)
{
	return j.buf.base + chain * BEAM * j.node;
}

/* All bytes of the nodes of a step; the sum is the same for the wave. The loads of a round are all in flight. */
__device__ static uint64_t look(const struct job &j, uint64_t chain, const uint64_t *want)
{
	uint32_t quads = j.node / 16;
	uint64_t sum = 0;

	for (uint32_t i = threadIdx.x % WARP; i < quads; i += WARP) {
		uint4 v[BEAM];

#pragma unroll
		for (uint32_t b = 0; b < BEAM; b++)
			v[b] = __ldcv((const uint4 *)data_of(j, chain) + b * quads + i);
#pragma unroll
		for (uint32_t b = 0; b < BEAM; b++) {
			uint64_t at = (want[b] * quads + i) * 2, low = v[b].x | (uint64_t)v[b].y << 32, high = v[b].z | (uint64_t)v[b].w << 32;

			if (low != word_of(at) || high != word_of(at + 1))
				atomicAdd(j.wrong, 1ull);
			sum += low ^ high;
		}
	}
	for (uint32_t o = WARP / 2; o; o /= 2)
		sum += __shfl_xor_sync(~0u, sum, o);
	return sum;
}

/* The GPU reads: one launch for all chains. */
__global__ static void __launch_bounds__(BLOCK, 1) walk(struct job j)
{
	uint32_t lane = threadIdx.x % WARP, chain = blockIdx.x * SLOTS + threadIdx.x / WARP;
	__shared__ struct gpunvme_dq own[SLOTS];
	struct gpunvme_dq *dq = &own[threadIdx.x / WARP];
	uint64_t want[BEAM], reads = 0, looks = 0, begun, read, n;
	const uint64_t start = clock_ns();

	if (chain >= j.chains)
		return;
	if (lane == 0)
		*dq = j.dq[chain % j.queues];
	__syncwarp();
	for (n = 0; __any_sync(~0u, clock_ns() - start < j.ns); n++) {
		next_nodes(n * j.chains + chain, j.nodes, want);
		for (uint32_t h = 0; h < j.hops; h++) {
			int err = 0;

			begun = clock_ns();
			if (lane < BEAM)
				err = gpunvme_read(dq, &j.buf, (chain * BEAM + lane) * (uint64_t)j.node, one_of(want, lane) * j.node, j.node);
			if (err)
				*j.failed = err;
			if (__any_sync(~0u, err))
				return;
			read = clock_ns();
			next_nodes(look(j, chain, want) + n, j.nodes, want);
			reads += read - begun;
			looks += clock_ns() - read;
		}
	}
	if (lane == 0) {
		atomicAdd(&j.spent[0], (unsigned long long)reads);
		atomicAdd(&j.spent[1], (unsigned long long)looks);
		atomicAdd(&j.spent[2], (unsigned long long)n);
	}
}

/* The CPU reads. */
__global__ static void __launch_bounds__(BLOCK + WARP, 1) work(struct job j, struct waves w)
{
	__shared__ struct seen seen;
	uint32_t slot = threadIdx.x / WARP, chain = blockIdx.x * SLOTS + slot;
	const uint64_t start = clock_ns();
	uint64_t want[BEAM], step;

	watch_begin(&seen);
	if (slot == SLOTS)
		watch(w, &seen, j.chains);
	if (slot == SLOTS || chain >= j.chains)
		return;
	next_nodes(chain, j.nodes, want);
	for (step = 1; __any_sync(~0u, clock_ns() - start < j.ns); step++) {
		post(w, chain, step, want);
		if (!wait(w, &seen, chain, step))
			break;
		next_nodes(look(j, chain, want), j.nodes, want);
	}
	post_end(w, chain, step);
}

/* Each word of a node follows from its place on the drive. */
__global__ static void fill(struct job j)
{
	uint32_t lane = threadIdx.x % WARP, wave = (blockIdx.x * blockDim.x + threadIdx.x) / WARP;
	uint64_t words = FILL / 8, all = j.nodes * j.node / FILL, waves = gridDim.x * blockDim.x / WARP;
	volatile uint64_t *own = (volatile uint64_t *)(j.buf.base + wave * (uint64_t)FILL);

	for (uint64_t i = wave; i < all; i += waves) {
		for (uint64_t w = lane; w < words; w += WARP)
			own[w] = word_of(i * words + w);
		__threadfence_system();
		__syncwarp();
		if (lane == 0) {
			int err = gpunvme_write(&j.dq[wave % j.queues], &j.buf, wave * (uint64_t)FILL, i * FILL, FILL, 0);

			if (err)
				*j.failed = err;
		}
		__syncwarp();
	}
}

struct figure {
	double chains, seconds;
};

static struct figure by_cpu(const struct setup &o, struct job &j)
{
	struct waves w = open_waves(o.chains);
	cudaStream_t stream;

	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	work<<<(o.chains + SLOTS - 1) / SLOTS, BLOCK + WARP, 0, stream>>>(j, w);
	check(cudaGetLastError(), "the kernel");
	double begun = now();
	uint64_t reads = run_rings(&j, w.mail, w.arrived, o.threads);
	double seconds = now() - begun;
	__atomic_store_n(w.end, 1, __ATOMIC_RELEASE);
	check(cudaStreamSynchronize(stream), "the kernel");
	return { (double)reads / BEAM / o.hops, seconds };
}

static struct figure by_gpu(const struct setup &o, struct job &j)
{
	double begun;

	j.spent = (unsigned long long *)host_memory(24);
	begun = now();
	walk<<<(o.chains + SLOTS - 1) / SLOTS, BLOCK>>>(j);
	check(cudaGetLastError(), "the kernel");
	check(cudaDeviceSynchronize(), "the kernel");
	return { (double)j.spent[2], now() - begun };
}

static struct setup options(int argc, char **argv)
{
	static const struct option names[] = { { "node", 1, 0, 'n' },	{ "chains", 1, 0, 'c' },  { "hops", 1, 0, 'h' },
					       { "queues", 1, 0, 'q' }, { "threads", 1, 0, 't' }, { "seconds", 1, 0, 's' },
					       { "fill", 0, 0, 'f' },	{} };
	struct setup o;
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (c == 'n')
			o.node = atoi(optarg);
		else if (c == 'c')
			o.chains = atoi(optarg);
		else if (c == 'h')
			o.hops = atoi(optarg);
		else if (c == 'q')
			o.queues = atoi(optarg);
		else if (c == 't')
			o.threads = atoi(optarg);
		else if (c == 's')
			o.seconds = atof(optarg);
		else if (c == 'f')
			o.fill = true;
		else
			die("usage: chains URI [--node BYTES] [--chains N] [--hops N] [--queues N] [--threads N] [--seconds S] [--fill]");
	}
	if (argc != optind + 1)
		die("one URI is wanted");
	if ((o.node != 512 && o.node != 1024 && o.node != 2048 && o.node != 4096) || !o.chains || !o.hops || !o.queues || o.seconds <= 0)
		die("--node is 512, 1024, 2048 or 4096, the other numbers are positive");
	if (o.threads && (o.queues % o.threads || o.chains % o.threads))
		die("--queues and --chains are multiples of --threads");
	o.uri = argv[optind];
	return o;
}

static void fill_drive(struct session &s, const struct setup &o, struct job j)
{
	j.queues = o.queues < 8 ? o.queues : 8;
	open_queues(s, s.gpu, j.queues, safe_flags(s));
	j.dq = s.dq;
	fill<<<32, WARP * 4>>>(j);
	check(cudaGetLastError(), "the kernel");
	check(cudaDeviceSynchronize(), "the kernel");
	close_queues(s);
}

int main(int argc, char **argv)
{
	struct setup o = options(argc, argv);
	struct gpunvme_gpu *cpu;
	struct session s;
	struct job j = {};

	check(cudaSetDevice(0), "there is no GPU that CUDA can use");
	open_drive(s, o.uri, &cpu);
	s.buffer(std::max((size_t)o.chains * BEAM * o.node, (size_t)128 * FILL));
	j.wrong = (unsigned long long *)host_memory(16);
	j.failed = (int *)(j.wrong + 1);
	j.buf = s.dbuf;
	j.nodes = s.ns.nblocks * 512 / FILL * FILL / o.node;
	j.queues = o.queues, j.node = o.node, j.chains = o.chains, j.hops = o.hops, j.ns = (uint64_t)(o.seconds * 1e9);
	if (o.fill)
		fill_drive(s, o, j);
	open_queues(s, o.threads ? cpu : s.gpu, o.queues, o.threads ? 0 : safe_flags(s));
	j.dq = s.dq;
	if (o.threads && (o.chains / o.queues + 1) * BEAM >= 1u << s.dq->sq_shift)
		die("that many chains do not fit into the queues: give fewer --chains or more --queues");
	if (*j.failed)
		die(std::string("the drive could not be filled: ") + gpunvme_strerror(*j.failed));
	struct figure f = o.threads ? by_cpu(o, j) : by_gpu(o, j);
	if (*j.failed)
		die(std::string("a read failed: ") + gpunvme_strerror(*j.failed));
	double reads = f.chains * o.hops * BEAM;
	printf("{\"uri\": \"%s\", \"threads\": %u, \"queues\": %u, \"node\": %u, \"chains\": %u, \"hops\": %u, \"seconds\": %.3f, "
	       "\"chains_s\": %.0f, \"reads_s\": %.0f, \"gb_s\": %.2f", o.uri, o.threads, o.queues, o.node, o.chains, o.hops, f.seconds,
	       f.chains / f.seconds, reads / f.seconds, reads * o.node / f.seconds / 1e9);
	if (!o.threads)
		printf(", \"read_us\": %.1f, \"look_us\": %.1f", j.spent[0] / (f.chains * o.hops) / 1e3, j.spent[1] / (f.chains * o.hops) / 1e3);
	printf(", \"wrong\": %llu}\n", *j.wrong);
	close_queues(s);
	close_drive(s, cpu);
	return *j.wrong ? 1 : 0;
}
