// SPDX-License-Identifier: MIT
/*
 * Commands per second through the device header on an NVIDIA GPU: rings in pinned host memory, a controller of CPU threads that
 * fetches, counts and completes every command, and does no I/O. With --controller gpu the rings are in the GPU's memory and warps of
 * the same GPU play the controller, one for each queue: what remains is the cost of the algorithm without PCIe.
 *
 *   queue_rate [--controller cpu|gpu] [--threads N] [--seconds S] [--only TEXT] [--check] [--json]
 *
 * Needs no NVMe and no library: descriptors are filled by hand. --check gives every command a unique stamp as its LBA, lets the
 * controller answer with a status that depends on it, out of order, and verifies that each lane gets its own status and that each
 * stamp was fetched exactly once.
 */
#include <gpunvme/device.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#define CUDA(call)                                                                                       \
	do {                                                                                             \
		cudaError_t err_ = (call);                                                               \
		if (err_ != cudaSuccess) {                                                               \
			fprintf(stderr, "queue_rate: %s: %s\n", #call, cudaGetErrorString(err_));        \
			exit(1);                                                                         \
		}                                                                                        \
	} while (0)

enum Mode { WAVE, DIVERGENT };

struct Queue { /* the controller's side of one queue */
	volatile uint32_t *sq, *cq;
	uint32_t *sq_db, *cq_db;
	uint32_t depth, cq_depth, qid;
	uint32_t head, known_tail, cq_tail, phase;
	uint64_t done;
	uint32_t held_count;
	uint32_t held[64][2]; /* check mode: CID and stamp of commands not yet completed */
};

struct Point {
	int queues, blocks, threads_per_block, depth;
	Mode mode;
	const char *name;
};

struct Options {
	int threads = 8;
	double seconds = 0.5;
	bool check = false, json = false, on_gpu = false;
	const char *only = ""; /* points whose name contains this */
};

static std::atomic<uint8_t> *seen; /* by stamp, in check mode */
static uint64_t stamps;
static std::atomic<uint64_t> strange;

__host__ __device__ static uint32_t status_of(uint64_t stamp)
{
	uint64_t h = stamp * 0x9e3779b97f4a7c15ull;

	return h % 3 ? 0 : 0x4000u | (uint32_t)(1 + (h >> 40) % 0x7ff);
}

typedef uint32_t v4 __attribute__((vector_size(16)));

static void post(Queue &q, uint32_t cid, uint32_t status)
{
	v4 cqe = { 0, 0, q.qid << 16 | q.head, cid | q.phase << 16 | status << 17 };

	*(volatile v4 *)(q.cq + 4 * q.cq_tail) = cqe;
	if (++q.cq_tail == q.cq_depth) {
		q.cq_tail = 0;
		q.phase ^= 1;
	}
	q.done++;
}

static bool cq_full(const Queue &q)
{
	uint32_t next = q.cq_tail + 1 == q.cq_depth ? 0 : q.cq_tail + 1;

	return next == __atomic_load_n(q.cq_db, __ATOMIC_ACQUIRE);
}

static void serve_counting(Queue &q)
{
	uint32_t tail = __atomic_load_n(q.sq_db, __ATOMIC_ACQUIRE), limit = 256;

	while (q.head != tail && limit-- && !cq_full(q)) {
		uint32_t dw0 = q.sq[16 * q.head];

		q.head = q.head + 1 == q.depth ? 0 : q.head + 1;
		post(q, dw0 >> 16, 0);
	}
}

static void serve_checking(Queue &q, uint64_t &random)
{
	uint32_t tail = __atomic_load_n(q.sq_db, __ATOMIC_ACQUIRE);

	while (q.head != tail && q.held_count < 64) {
		volatile uint32_t *sqe = q.sq + 16 * q.head;
		uint64_t stamp = sqe[10] | (uint64_t)sqe[11] << 32;

		if ((sqe[0] & 0xff) != GPUNVME_IO_READ || stamp >= stamps || seen[stamp].fetch_add(1) || sqe[12] != 7)
			strange++;
		q.held[q.held_count][0] = sqe[0] >> 16;
		q.held[q.held_count++][1] = (uint32_t)stamp;
		for (int i = 0; i < 16; i++)
			sqe[i] = 0xffffffff;
		q.head = q.head + 1 == q.depth ? 0 : q.head + 1;
	}
	for (int i = 0; i < 16 && q.held_count && !cq_full(q); i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		uint32_t at = (uint32_t)(random >> 33) % q.held_count;

		post(q, q.held[at][0], status_of(q.held[at][1]));
		q.held_count--;
		q.held[at][0] = q.held[q.held_count][0];
		q.held[at][1] = q.held[q.held_count][1];
	}
}

static void controller(std::vector<Queue *> mine, bool check, std::atomic<bool> *stop)
{
	uint64_t random = 12345 + mine.size();

	while (!stop->load(std::memory_order_relaxed))
		for (Queue *q : mine)
			check ? serve_checking(*q, random) : serve_counting(*q);
}

/* The controller as a warp: the same as above for up to 32 commands at once, completed in reverse. */
__global__ void gpu_controller(Queue *queues, int count, const uint32_t *stop, bool check, uint32_t *seen_on_gpu, uint64_t limit,
			       unsigned long long *strange_on_gpu)
{
	uint32_t lane = threadIdx.x & 31, warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, idle = 0;

	if (warp >= (uint32_t)count)
		return;
	Queue &shared = queues[warp];
	Queue q = shared;
	for (;;) {
		uint32_t tail = __shfl_sync(~0u, gnvd_load_ring32((uint64_t)q.sq_db), 0);
		uint32_t cq_head = __shfl_sync(~0u, gnvd_load_ring32((uint64_t)q.cq_db), 0);
		uint32_t n = (tail - q.head) & (q.depth - 1), room = (cq_head - q.cq_tail - 1) & (q.cq_depth - 1), status = 0;

		n = n < 32 ? n : 32;
		n = n < room ? n : room;
		if (!n) {
			if ((++idle & 255) == 0 && __shfl_sync(~0u, gnvd_load_ring32((uint64_t)stop), 0))
				break;
			continue;
		}
		__threadfence_system(); /* the doorbell was seen, so is what was stored before it */
		volatile uint32_t *sqe = q.sq + 16 * ((q.head + lane) & (q.depth - 1));
		uint32_t dw0 = lane < n ? sqe[0] : 0;

		if (lane < n && check) {
			uint64_t stamp = sqe[10] | (uint64_t)sqe[11] << 32;

			if ((dw0 & 0xff) != GPUNVME_IO_READ || stamp >= limit || sqe[12] != 7 ||
			    atomicAdd(&seen_on_gpu[stamp / 4], 1u << stamp % 4 * 8) >> stamp % 4 * 8 & 0xff)
				atomicAdd(strange_on_gpu, 1ull);
			status = status_of(stamp);
			for (int i = 0; i < 16; i++)
				sqe[i] = 0xffffffff;
		}
		__threadfence(); /* all SQEs were read: a completion gives their places back */
		__syncwarp();
		if (lane < n) {
			uint32_t at = (q.cq_tail + n - 1 - lane) & (q.cq_depth - 1), phase = q.phase ^ (at < q.cq_tail);

			__asm__ volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %1, %2, %3};" : : "l"(q.cq + 4 * at), "r"(0),
					 "r"(q.qid << 16 | ((q.head + n) & (q.depth - 1))), "r"(dw0 >> 16 | phase << 16 | status << 17)
					 : "memory");
		}
		q.head = (q.head + n) & (q.depth - 1);
		q.phase ^= q.cq_tail + n >= q.cq_depth;
		q.cq_tail = (q.cq_tail + n) & (q.cq_depth - 1);
		q.done += n;
		idle = 0;
		__syncwarp();
	}
	if (lane == 0)
		shared.done = q.done;
}

/* Each lane issues `rounds` reads; consecutive waves go to consecutive queues. Blocks of 1,024 leave a lane 64 registers. */
template <bool CHECK, Mode MODE, int BLOCK>
__global__ void __launch_bounds__(BLOCK) lanes(const struct gpunvme_dq *dqs, int queues, struct gpunvme_dbuf buf, uint32_t rounds,
					       unsigned long long *errors)
{
	uint32_t lane = gpunvme_lane();
	const struct gpunvme_dq *dq = &dqs[(lane / 32) % queues];
	unsigned long long bad = 0;

	for (uint32_t i = 0; i < rounds; i++) {
		uint64_t stamp = (uint64_t)i * gpunvme_lanes() + lane;
		int ret = 0;

		if (MODE == WAVE) {
			ret = gpunvme_read(dq, &buf, 0, CHECK ? stamp : lane * 8ull, 8);
		} else {
			/* Lanes of a wave take turns: each call is made by one lane alone. */
			for (uint32_t turn = 0; turn < 32; turn++) {
				if ((lane & 31) == turn)
					ret = gpunvme_read(dq, &buf, 0, CHECK ? stamp : lane * 8ull, 8);
				__syncwarp();
			}
		}
		bad += ret != (CHECK ? (int)status_of(stamp) : 0);
	}
	if (bad)
		atomicAdd(errors, bad);
}

static void *pinned(size_t bytes)
{
	void *p;

	CUDA(cudaHostAlloc(&p, bytes, cudaHostAllocMapped));
	memset(p, 0, bytes);
	return p;
}

static uint64_t on_device(size_t bytes, const void *from)
{
	void *p;

	CUDA(cudaMalloc(&p, bytes));
	CUDA(from ? cudaMemcpy(p, from, bytes, cudaMemcpyHostToDevice) : cudaMemset(p, 0, bytes));
	return (uint64_t)p;
}

struct Rig {
	std::vector<Queue> queues;
	std::vector<gpunvme_dq> dqs;
	std::vector<void *> host;
	std::vector<uint64_t> device;
};

static void make_queue(Rig &rig, uint32_t depth, uint32_t qid, bool on_gpu)
{
	uint32_t cq_depth = 2 * depth, cids = cq_depth - 1 - cq_depth / 4, shift = 0;
	Queue q = {};
	gpunvme_dq dq = {};

	cids = cids >= 128 ? cids & ~63u : cids;
	while (1u << shift < depth)
		shift++;
	auto memory = [&](size_t bytes) {
		void *p = on_gpu ? (void *)on_device(bytes, NULL) : pinned(bytes);

		if (on_gpu)
			rig.device.push_back((uint64_t)p);
		else
			rig.host.push_back(p);
		return (uint32_t *)p;
	};
	q.sq = memory(64ull * depth);
	q.cq = memory(16ull * cq_depth);
	q.sq_db = memory(512);
	q.cq_db = q.sq_db + 64;
	q.depth = depth;
	q.cq_depth = cq_depth;
	q.qid = qid;
	q.phase = 1;
	std::vector<uint64_t> map((cids + 63) / 64);
	for (uint32_t i = 0; i < cids; i++)
		map[i / 64] |= 1ull << (i & 63);
	dq.magic = GPUNVME_DQ_MAGIC;
	dq.major = GPUNVME_DQ_MAJOR;
	dq.minor = GPUNVME_DQ_MINOR;
	dq.size = sizeof(dq);
	dq.flags = GPUNVME_DQ_STATS | GPUNVME_DQ_CQE16; /* a CQE is posted with one store and read with one load */
	dq.tag = 1u << 16 | qid;
	dq.qid = qid;
	dq.nsid = 1;
	dq.lba_shift = 9;
	dq.page_shift = 12;
	dq.sq_shift = (uint8_t)shift;
	dq.cq_shift = (uint8_t)(shift + 1);
	dq.sq = (uint64_t)q.sq;
	dq.cq = (uint64_t)q.cq;
	dq.sq_db = (uint64_t)q.sq_db;
	dq.cq_db = (uint64_t)q.cq_db;
	dq.state = on_device(sizeof(gpunvme_dq_state), NULL);
	dq.ready = on_device(8ull * depth, NULL);
	dq.result = on_device(8ull * cids, NULL);
	dq.cid_map = on_device(8 * map.size(), map.data());
	dq.stop = on_device(128, NULL);
	dq.cmd_timeout = 20000000000ull;
	dq.lba_count = 1ull << 62;
	dq.cids = cids;
	dq.max_blocks = 2048;
	dq.ticks_per_ms = 1000000;
	rig.device.insert(rig.device.end(), { dq.state, dq.ready, dq.result, dq.cid_map, dq.stop });
	rig.queues.push_back(q);
	rig.dqs.push_back(dq);
}

#define CONTROLLER_LANES 256

static int controller_blocks(const Point &p)
{
	return (p.queues * 32 + CONTROLLER_LANES - 1) / CONTROLLER_LANES;
}

/* The warps that play the controller, in a stream beside that of the lanes. Without --controller gpu only the latter. */
struct GpuController {
	cudaStream_t lanes, own;
	uint32_t *stop = NULL, *seen_on_gpu = NULL;
	Queue *queues = NULL;
	unsigned long long *strange_on_gpu = NULL;

	GpuController(const Point &p, const Options &o, Rig &rig)
	{
		CUDA(cudaStreamCreateWithFlags(&lanes, cudaStreamNonBlocking));
		CUDA(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking));
		CUDA(cudaDeviceSynchronize());
		if (!o.on_gpu)
			return;
		stop = (uint32_t *)pinned(4);
		queues = (Queue *)on_device(sizeof(Queue) * p.queues, rig.queues.data());
		strange_on_gpu = (unsigned long long *)on_device(8, NULL);
		if (o.check)
			seen_on_gpu = (uint32_t *)on_device(stamps + 4, NULL);
		CUDA(cudaDeviceSynchronize());
		gpu_controller<<<controller_blocks(p), CONTROLLER_LANES, 0, own>>>(queues, p.queues, stop, o.check, seen_on_gpu, stamps, strange_on_gpu);
		CUDA(cudaGetLastError());
	}

	/* Stop, and bring what was counted back to where the host's controller counts. */
	void end(Rig &rig)
	{
		if (stop) {
			unsigned long long odd = 0;

			*(volatile uint32_t *)stop = 1;
			CUDA(cudaStreamSynchronize(own));
			CUDA(cudaMemcpy(rig.queues.data(), queues, sizeof(Queue) * rig.queues.size(), cudaMemcpyDeviceToHost));
			CUDA(cudaMemcpy(&odd, strange_on_gpu, 8, cudaMemcpyDeviceToHost));
			strange += odd;
			if (seen_on_gpu)
				CUDA(cudaMemcpy((void *)seen, seen_on_gpu, stamps, cudaMemcpyDeviceToHost));
			CUDA(cudaFree(seen_on_gpu));
			CUDA(cudaFree(queues));
			CUDA(cudaFree(strange_on_gpu));
			CUDA(cudaFreeHost(stop));
		}
		CUDA(cudaStreamDestroy(lanes));
		CUDA(cudaStreamDestroy(own));
	}
};

struct Result {
	double rate, seconds;
	uint64_t issued, served, errors, doorbells, drains, poisoned, lost;
};

static Result launch(const Point &p, const Options &o, uint32_t rounds)
{
	Rig rig;
	Result r = {};
	gpunvme_dbuf buf = { 0, 1 << 20, 0x5a00000000100000ull, 0, 0 };
	std::atomic<bool> stop(false);
	std::vector<std::thread> pool;
	unsigned long long *errors = (unsigned long long *)on_device(8, NULL);

	for (int i = 0; i < p.queues; i++)
		make_queue(rig, p.depth, i + 1, o.on_gpu);
	uint64_t dqs = on_device(sizeof(gpunvme_dq) * p.queues, rig.dqs.data());
	r.issued = (uint64_t)p.blocks * p.threads_per_block * rounds;
	if (o.check) {
		stamps = r.issued;
		seen = new std::atomic<uint8_t>[stamps]();
	}
	auto kernel = p.threads_per_block > 512 ? (o.check ? lanes<true, WAVE, 1024> : lanes<false, WAVE, 1024>) :
		      p.mode == WAVE ? (o.check ? lanes<true, WAVE, 512> : lanes<false, WAVE, 512>) :
				       (o.check ? lanes<true, DIVERGENT, 512> : lanes<false, DIVERGENT, 512>);
	cudaFuncAttributes loaded; /* a kernel that is loaded when first launched would wait for the controller to end */
	CUDA(cudaFuncGetAttributes(&loaded, kernel));
	GpuController ctrl(p, o, rig);
	int n = o.on_gpu ? 0 : o.threads < p.queues ? o.threads : p.queues;
	for (int t = 0; t < n; t++) {
		std::vector<Queue *> mine;
		for (int i = t; i < p.queues; i += n)
			mine.push_back(&rig.queues[i]);
		pool.emplace_back(controller, mine, o.check, &stop);
	}
	auto began = std::chrono::steady_clock::now();
	kernel<<<p.blocks, p.threads_per_block, 0, ctrl.lanes>>>((gpunvme_dq *)dqs, p.queues, buf, rounds, errors);
	CUDA(cudaGetLastError());
	CUDA(cudaStreamSynchronize(ctrl.lanes));
	r.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
	stop = true;
	for (std::thread &t : pool)
		t.join();
	ctrl.end(rig);
	CUDA(cudaMemcpy(&r.errors, errors, 8, cudaMemcpyDeviceToHost));
	for (int i = 0; i < p.queues; i++) {
		gpunvme_dq_state state;

		CUDA(cudaMemcpy(&state, (void *)rig.dqs[i].state, sizeof(state), cudaMemcpyDeviceToHost));
		r.served += rig.queues[i].done;
		r.doorbells += state.doorbells;
		r.drains += state.drains;
		r.poisoned += state.poison != 0;
		if (state.poison)
			fprintf(stderr, "queue_rate: queue %d is poisoned by %u: completion %08x %08x, fetched %llx, pub %llx, resv %llx, cq %llx\n",
				i, state.poison, state.poison_cqe[2], state.poison_cqe[3], (unsigned long long)state.fetched,
				(unsigned long long)state.pub, (unsigned long long)state.resv, (unsigned long long)state.drain);
	}
	if (o.check) {
		for (uint64_t i = 0; i < stamps; i++)
			r.lost += seen[i] != 1;
		delete[] seen;
	}
	r.rate = r.issued / r.seconds;
	for (void *h : rig.host)
		CUDA(cudaFreeHost(h));
	rig.device.insert(rig.device.end(), { dqs, (uint64_t)errors });
	for (uint64_t d : rig.device)
		CUDA(cudaFree((void *)d));
	return r;
}

/* A short launch to see the pace, then one of the wanted length. */
static Result measure(const Point &p, const Options &o)
{
	Result r = launch(p, o, 20);
	uint64_t lanes_now = (uint64_t)p.blocks * p.threads_per_block;
	double rounds = r.rate * o.seconds / lanes_now;
	double most = o.check ? 4e8 / lanes_now : 1e9;

	return launch(p, o, (uint32_t)(rounds < 20 ? 20 : rounds > most ? most : rounds));
}

int main(int argc, char **argv)
{
	Options o;
	cudaDeviceProp prop;
	int bad = 0;

	for (int i = 1; i < argc; i++) {
		std::string a = argv[i];
		if (a == "--threads" && i + 1 < argc)
			o.threads = atoi(argv[++i]);
		else if (a == "--seconds" && i + 1 < argc)
			o.seconds = atof(argv[++i]);
		else if (a == "--only" && i + 1 < argc)
			o.only = argv[++i];
		else if (a == "--controller" && i + 1 < argc && (!strcmp(argv[i + 1], "cpu") || !strcmp(argv[i + 1], "gpu")))
			o.on_gpu = !strcmp(argv[++i], "gpu");
		else if (a == "--check")
			o.check = true;
		else if (a == "--json")
			o.json = true;
		else {
			fprintf(stderr, "usage: queue_rate [--controller cpu|gpu] [--threads N] [--seconds S] [--only TEXT] [--check] [--json]\n");
			return 2;
		}
	}
	CUDA(cudaGetDeviceProperties(&prop, 0));
	int sms = prop.multiProcessorCount;
	if (!o.json)
		printf("%s, %d multiprocessors; rings in %s, %s; %s\n", prop.name, sms,
		       o.on_gpu ? "the GPU's memory" : "pinned host memory",
		       o.on_gpu ? "a warp of it for each queue as controller" :
				  (std::to_string(o.threads) + " controller threads").c_str(),
		       o.check ? "checking every command" : "counting");
	const Point points[] = {
		{ 1, 1, 512, 1024, WAVE, "1 queue, one multiprocessor" },
		{ 1, 4, 512, 1024, WAVE, "1 queue" },
		{ 2, 8, 512, 1024, WAVE, "2 queues" },
		{ 8, 32, 512, 1024, WAVE, "8 queues" },
		{ 32, 1, 1024, 1024, WAVE, "32 queues, one multiprocessor" },
		{ 32, 128, 512, 1024, WAVE, "32 queues" },
		{ 128, sms, 512, 1024, WAVE, "128 queues" },
		{ 128, sms, 512, 1024, DIVERGENT, "128 queues, one lane at a time" },
		{ 4, 4, 256, 2, WAVE, "4 queues of depth 2" },
		{ 4, 4, 256, 16, WAVE, "4 queues of depth 16" },
	};
	for (Point p : points) {
		if (!strstr(p.name, o.only))
			continue;
		if (o.on_gpu && p.blocks > sms - controller_blocks(p)) /* those that play the controller have theirs */
			p.blocks = sms - controller_blocks(p);
		Result r = measure(p, o);
		bool ok = !r.errors && r.served >= r.issued && !r.poisoned && !r.lost && !strange;

		bad += !ok;
		if (o.json)
			printf("{\"point\": \"%s\", \"controller\": \"%s\", \"queues\": %d, \"lanes\": %d, \"rate\": %.0f, \"issued\": %llu, "
			       "\"errors\": %llu}\n", p.name, o.on_gpu ? "gpu" : "cpu", p.queues, p.blocks * p.threads_per_block, r.rate, (unsigned long long)r.issued, (unsigned long long)r.errors);
		else
			printf("%-32s %8d lanes %9.1f M/s  %6.1f commands a doorbell, %5.1f a drain; %llu issued, %llu served, %llu errors, "
			       "%llu lost, %llu poisoned%s\n",
			       p.name, p.blocks * p.threads_per_block, r.rate / 1e6, (double)r.issued / (r.doorbells ? r.doorbells : 1),
			       (double)r.issued / (r.drains ? r.drains : 1), (unsigned long long)r.issued, (unsigned long long)r.served,
			       (unsigned long long)r.errors, (unsigned long long)r.lost, (unsigned long long)r.poisoned, ok ? "" : "  WRONG");
		fflush(stdout);
	}
	return bad != 0;
}
