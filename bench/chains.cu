/* SPDX-License-Identifier: MIT */
/*
 * bench/chains: reads that depend on reads, begun by the GPU or by CPU threads, on one drive and through one link.
 *
 * A chain is a walk of --hops steps. A step reads four nodes and looks at all their bytes; they say which nodes come next. So
 * nothing can be read ahead, as in a search of a graph. A wave has one chain at a time and checks every word of every node.
 *
 *   --threads 0   the threads of one kernel read with <gpunvme/device.h>; no CPU thread takes part
 *   --threads N   N threads of the CPU read through bare rings, the least that a driver can do, and tell the waves of a kernel that
 *                 stays by a word in memory of the host; a wave tells them the same way what it wants next. No launches.
 *
 * Both have the same queues, and rings and data in memory of the host, so both pay the same link. The queues of the GPU have the
 * flags that gpunvme_litmus_run() finds to be safe here. The CPU's threads need none.
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o chains bench/chains.cu -Lbuild/release/lib -lgpunvme
 *   chains 'soft:vram:4G?on=cuda:0&lat_us=20&queues=32' --threads 4    # overwrites what the drive has: --fill
 *
 * Prints a line of JSON; ends with 1 when a byte was wrong or a read failed.
 */
#include <atomic>
#include <cinttypes>
#include <ctime>
#include <thread>

#include <getopt.h>

#include "session.h"

#include <gpunvme/device.h>

const char *const program = "chains";

#define BEAM 4u
#define WAVE 32u
#define BLOCK 512u		/* threads of a kernel's block: one on a multiprocessor, so that others are left for the drive */
#define SLOTS (BLOCK / WAVE)	/* chains of a block */
#define FILL (64u << 10)	/* bytes of a write */

struct setup {
	const char *uri;
	uint32_t node = 512, chains = 1536, hops = 20, queues = 32, threads = 0;
	double seconds = 1;
	bool fill = false;
};

struct job {
	const struct gpunvme_dq *dq;
	struct gpunvme_dbuf buf;
	uint64_t nodes;
	unsigned long long *wrong; /* words */
	unsigned long long *spent; /* ns of all waves: in reads, and in looking at their data */
	int *failed;
	uint32_t queues, node, chains, hops, each;
};

/* What a wave wants next, in memory of the host: a line, each word of which has its step in the upper bits. So it needs no fence. */
struct mail {
	uint64_t want[BEAM];
	uint64_t pad[8 - BEAM];
};

#define STEP_SHIFT 40

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

	for (uint32_t i = threadIdx.x % WAVE; i < quads; i += WAVE) {
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
	for (uint32_t o = WAVE / 2; o; o /= 2)
		sum += __shfl_xor_sync(~0u, sum, o);
	return sum;
}

__device__ static uint64_t one_of(const uint64_t *want, uint32_t lane)
{
	return lane == 0 ? want[0] : lane == 1 ? want[1] : lane == 2 ? want[2] : want[3];
}

__device__ static uint64_t clock_ns()
{
	uint64_t t;

	__asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
	return t;
}

/* The GPU reads: one launch for all chains. */
__global__ static void __launch_bounds__(BLOCK, 1) walk(struct job j)
{
	uint32_t lane = threadIdx.x % WAVE, chain = blockIdx.x * SLOTS + threadIdx.x / WAVE;
	__shared__ struct gpunvme_dq own[SLOTS];
	struct gpunvme_dq *dq = &own[threadIdx.x / WAVE];
	uint64_t want[BEAM], reads = 0, looks = 0, begun, read;

	if (chain >= j.chains)
		return;
	if (lane == 0)
		*dq = j.dq[chain % j.queues];
	__syncwarp();
	for (uint32_t n = 0; n < j.each; n++) {
		next_nodes((uint64_t)n * j.chains + chain, j.nodes, want);
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
	}
}

/* The CPU reads: the last wave of a block looks for what arrived, in one line for all, the others work. */
__global__ static void __launch_bounds__(BLOCK + WAVE, 1)
work(struct job j, struct mail *mail, const uint64_t *arrived, const uint32_t *end)
{
	__shared__ volatile uint64_t seen[SLOTS];
	__shared__ volatile uint32_t over;
	uint32_t lane = threadIdx.x % WAVE, slot = threadIdx.x / WAVE, chain = blockIdx.x * SLOTS + slot;
	uint64_t want[BEAM];

	if (threadIdx.x < SLOTS)
		seen[threadIdx.x] = 0;
	if (threadIdx.x == 0)
		over = 0;
	__syncthreads();
	if (slot == SLOTS) {
		while (!over) {
			if (lane < SLOTS && blockIdx.x * SLOTS + lane < j.chains) {
				uint64_t v = *(const volatile uint64_t *)&arrived[blockIdx.x * SLOTS + lane];

				__threadfence_system(); /* also keeps looks few: with fewer fences the link has more looks, and less data */
				seen[lane] = v;
			}
			if (lane == 0 && *(const volatile uint32_t *)end)
				over = 1;
			__syncwarp();
		}
		return;
	}
	next_nodes(chain, j.nodes, want);
	for (uint64_t step = 1; chain < j.chains; step++) {
		while (!__shfl_sync(~0u, lane == 0 && seen[slot] >= step, 0))
			if (__shfl_sync(~0u, lane == 0 ? over : 0, 0))
				return;
		next_nodes(look(j, chain, want), j.nodes, want);
		if (lane < BEAM)
			*(volatile uint64_t *)&mail[chain].want[lane] = one_of(want, lane) | step << STEP_SHIFT;
	}
}

/* Each word of a node follows from its place on the drive. */
__global__ static void fill(struct job j)
{
	uint32_t lane = threadIdx.x % WAVE, wave = (blockIdx.x * blockDim.x + threadIdx.x) / WAVE;
	uint64_t words = FILL / 8, all = j.nodes * j.node / FILL, waves = gridDim.x * blockDim.x / WAVE;
	volatile uint64_t *own = (volatile uint64_t *)(j.buf.base + wave * (uint64_t)FILL);

	for (uint64_t i = wave; i < all; i += waves) {
		for (uint64_t w = lane; w < words; w += WAVE)
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

static double now()
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* A queue as the CPU's threads use it: no time-outs, no recovery, no checks. */
struct ring {
	const struct gpunvme_dq *dq;
	uint32_t tail, head, phase;
	bool rung = true;

	/* Goes on where the library's own test of the queue ended. */
	explicit ring(const struct gpunvme_dq *d) : dq(d)
	{
		const struct gpunvme_dq_state *state = (const struct gpunvme_dq_state *)dq->state;

		tail = state->pub & ((1u << dq->sq_shift) - 1);
		head = state->drain >> 1 & ((1u << dq->cq_shift) - 1);
		phase = !(state->drain >> 1 >> dq->cq_shift & 1);
	}

	void put(uint32_t cid, uint64_t iova, uint64_t lba, uint32_t blocks)
	{
		uint32_t *e = (uint32_t *)dq->sq + 16 * tail;

		e[0] = GPUNVME_IO_READ | cid << 16;
		e[1] = dq->nsid;
		e[6] = (uint32_t)iova;
		e[7] = iova >> 32;
		e[10] = (uint32_t)lba;
		e[11] = lba >> 32;
		e[12] = blocks - 1;
		tail = (tail + 1) & ((1u << dq->sq_shift) - 1);
		rung = false;
	}

	void ring_doorbell()
	{
		if (!rung)
			__atomic_store_n((uint32_t *)dq->sq_db, tail, __ATOMIC_RELEASE);
		rung = true;
	}

	/* @return the identifier of the next completion, or -1; @failed is set to a status that is not success */
	int take(int *failed)
	{
		uint32_t dw3 = __atomic_load_n((uint32_t *)dq->cq + 4 * head + 3, __ATOMIC_ACQUIRE);

		if ((dw3 >> 16 & 1) != phase)
			return -1;
		if (dw3 >> 17)
			*failed = dw3 >> 17;
		head = (head + 1) & ((1u << dq->cq_shift) - 1);
		phase ^= head == 0;
		return dw3 & 0xffff;
	}
};

struct thread_job {
	const struct job *j;
	struct mail *mail;
	uint64_t *arrived;
	uint32_t first, count, queue, queues; /* its chains and its queues */
	double seconds;
	uint64_t steps;
	int failed;
};

/* One thread of the CPU: completions, then what the waves want next, then the doorbells. */
static void run_thread(struct thread_job *t)
{
	std::vector<ring> rings;
	std::vector<uint32_t> missing(t->count, BEAM);
	std::vector<uint64_t> step(t->count, 0), told(t->count, 0);
	const struct job *j = t->j;
	double end = now() + t->seconds;
	uint64_t want[BEAM];
	auto submit = [&](uint32_t s) {
		for (uint32_t b = 0; b < BEAM; b++)
			rings[s % t->queues].put(s * BEAM + b, j->buf.iova + ((t->first + s) * (uint64_t)BEAM + b) * j->node,
						 want[b] * (j->node / 512), j->node / 512);
		missing[s] = BEAM;
	};
	auto is_wanted = [&](uint32_t s) { /* does the wave want the nodes of its next step? */
		for (uint32_t b = 0; b < BEAM; b++) {
			uint64_t word = __atomic_load_n(&t->mail[t->first + s].want[b], __ATOMIC_ACQUIRE);

			if ((word ^ told[s] << STEP_SHIFT) >> STEP_SHIFT)
				return false;
			want[b] = word & ((1ull << STEP_SHIFT) - 1);
		}
		return true;
	};

	for (uint32_t q = 0; q < t->queues; q++)
		rings.emplace_back(&j->dq[t->queue + q]);
	for (uint32_t s = 0; s < t->count; s++) {
		next_nodes(t->first + s, j->nodes, want);
		submit(s);
	}
	for (uint64_t turn = 0; (turn % 16 || now() < end) && !t->failed; turn++) {
		for (ring &r : rings) {
			uint32_t before = r.head;
			int cid;

			r.ring_doorbell();
			while ((cid = r.take(&t->failed)) >= 0)
				if (!--missing[cid / BEAM])
					__atomic_store_n(&t->arrived[t->first + cid / BEAM], ++told[cid / BEAM], __ATOMIC_RELEASE);
			if (r.head != before)
				__atomic_store_n((uint32_t *)r.dq->cq_db, r.head, __ATOMIC_RELEASE);
		}
		for (uint32_t s = 0; s < t->count; s++) {
			if (step[s] == told[s] || !is_wanted(s))
				continue;
			step[s] = told[s];
			t->steps++;
			submit(s);
		}
	}
}

struct figure {
	double chains, seconds;
};

static void *host_memory(size_t bytes)
{
	void *p;

	check(cudaHostAlloc(&p, bytes, cudaHostAllocMapped), "cudaHostAlloc");
	return memset(p, 0, bytes);
}

static struct figure by_cpu(const struct setup &o, struct job &j)
{
	struct mail *mail = (struct mail *)host_memory(sizeof(*mail) * o.chains);
	uint64_t *arrived = (uint64_t *)host_memory(8 * o.chains + 128), steps = 0;
	uint32_t *end = (uint32_t *)&arrived[o.chains + 8], each = o.chains / o.threads;
	std::vector<struct thread_job> jobs;
	std::vector<std::thread> threads;
	cudaStream_t stream;

	check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
	work<<<(o.chains + SLOTS - 1) / SLOTS, BLOCK + WAVE, 0, stream>>>(j, mail, arrived, end);
	check(cudaGetLastError(), "the kernel");
	for (uint32_t i = 0; i < o.threads; i++)
		jobs.push_back({ &j, mail, arrived, i * each, each, i * (o.queues / o.threads), o.queues / o.threads, o.seconds, 0, 0 });
	double begun = now();
	for (auto &t : jobs)
		threads.emplace_back(run_thread, &t);
	for (auto &t : threads)
		t.join();
	double seconds = now() - begun;
	__atomic_store_n(end, 1, __ATOMIC_RELEASE);
	check(cudaStreamSynchronize(stream), "the kernel");
	for (auto &t : jobs) {
		steps += t.steps;
		if (t.failed)
			*j.failed = t.failed;
	}
	return { (double)steps / o.hops, seconds };
}

static struct figure by_gpu(const struct setup &o, struct job &j)
{
	double seconds = 0;

	j.spent = (unsigned long long *)host_memory(16);
	for (j.each = 4; !*j.failed; j.each = (uint32_t)(j.each * o.seconds * 1.1 / seconds) + 1) {
		double begun = now();

		j.spent[0] = j.spent[1] = 0;
		walk<<<(o.chains + SLOTS - 1) / SLOTS, BLOCK>>>(j);
		check(cudaGetLastError(), "the kernel");
		check(cudaDeviceSynchronize(), "the kernel");
		seconds = now() - begun;
		if (seconds >= o.seconds)
			break;
	}
	return { (double)j.each * o.chains, seconds };
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

/* What the order of this machine allows its queues. */
static uint32_t safe_flags(struct session &s)
{
	struct gpunvme_litmus_opts opts = GPUNVME_LITMUS_OPTS_INIT;
	struct gpunvme_litmus seen = GPUNVME_LITMUS_INIT;

	opts.commands = 2000;
	check(gpunvme_litmus_run(s.dev, s.gpu, &opts, &seen));
	if (seen.failed)
		die("this machine does not keep the order that queues need: see `gpunvme litmus`");
	return seen.qp_flags;
}

/* Queues of @gpu, which for the CPU's threads are the CPU's. */
static void open_queues(struct session &s, const struct setup &o, struct gpunvme_gpu *gpu)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_qp_opts opts = GPUNVME_QP_OPTS_INIT;

	if (gpu == s.gpu)
		opts.flags = safe_flags(s);
	view.flags = GPUNVME_VIEW_WRITE;
	s.qp.resize(o.queues);
	s.dq = (struct gpunvme_dq *)host_memory(o.queues * sizeof(*s.dq));
	for (uint32_t i = 0; i < o.queues; i++) {
		check(gpunvme_qp_create(s.dev, gpu, &opts, &s.qp[i]));
		check(gpunvme_qp_view(s.qp[i], &view, &s.dq[i]));
	}
}

static void close_queues(struct session &s)
{
	for (gpunvme_qp *q : s.qp)
		check(gpunvme_qp_destroy(q));
	check(cudaFreeHost(s.dq), "cudaFreeHost");
	s.qp.clear();
}

static void fill_drive(struct session &s, struct setup o, struct job j)
{
	o.queues = j.queues = o.queues < 8 ? o.queues : 8;
	open_queues(s, o, s.gpu);
	j.dq = s.dq;
	fill<<<32, WAVE * 4>>>(j);
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

	s.ns.size = sizeof(s.ns);
	check(cudaSetDevice(0), "there is no GPU that CUDA can use");
	check(gpunvme_gpu_open("cuda:0", NULL, &s.gpu));
	check(gpunvme_gpu_open("cpu", NULL, &cpu));
	check(gpunvme_dev_open(o.uri, NULL, &s.dev));
	check(gpunvme_ns_get_info(s.dev, 0, &s.ns));
	if (s.ns.lba_size != 512)
		die("a namespace with blocks of 512 bytes is wanted");
	s.buffer(std::max((size_t)o.chains * BEAM * o.node, (size_t)128 * FILL));
	j.wrong = (unsigned long long *)host_memory(16);
	j.failed = (int *)(j.wrong + 1);
	j.buf = s.dbuf;
	j.nodes = s.ns.nblocks * 512 / FILL * FILL / o.node;
	j.queues = o.queues, j.node = o.node, j.chains = o.chains, j.hops = o.hops;
	if (o.fill)
		fill_drive(s, o, j);
	open_queues(s, o, o.threads ? cpu : s.gpu);
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
	return *j.wrong ? 1 : 0;
}
