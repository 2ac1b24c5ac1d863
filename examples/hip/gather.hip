// SPDX-License-Identifier: MIT
// hip_gather URI COUNT: a kernel that finds out while it runs which data it needs. Every thread walks a chain: it reads a 4 KiB piece
// of the namespace into its own part of the working set, computes on it, and what it computed decides which piece comes next. At the
// end the CPU walks one of the chains again.
#include "session.h"

#include <algorithm>
#include <chrono>

#include <gpunvme/device.h>

const char *const program = "hip_gather";

static const uint32_t PIECE = 4096;

__host__ __device__ static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 31) * 0x9e3779b97f4a7c15ull;
	return v ^ v >> 29;
}

__host__ __device__ static uint64_t digest(uint64_t sum, const uint64_t *piece)
{
	for (uint32_t i = 0; i < PIECE / 8; i++)
		sum = mix(sum + piece[i]);
	return sum;
}

__global__ void gather(const gpunvme_dq *queues, uint32_t count, gpunvme_dbuf work, uint64_t pieces, uint64_t steps, uint64_t *sums,
		       int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count];
	const uint64_t offset = (uint64_t)gpunvme_thread_id() * PIECE;
	uint64_t sum = mix(gpunvme_thread_id() + 1);
	int ret = 0;

	for (uint64_t i = 0; i < steps && !ret; i++) {
		ret = gpunvme_read(&dq, &work, offset, sum % pieces * PIECE, PIECE);
		if (!ret)
			sum = digest(sum, (const uint64_t *)(work.base + offset));
	}
	sums[gpunvme_thread_id()] = sum;
	status[gpunvme_thread_id()] = ret;
}

// What that thread should have computed: CPU threads of the library read, on a queue of theirs.
static uint64_t walk_again(const session &s, uint32_t lane, uint64_t pieces, uint64_t steps)
{
	gpunvme_gpu *cpu;
	gpunvme_queue *queue;
	gpunvme_mem *mem;
	gpunvme_dq dq;
	gpunvme_dbuf dbuf;
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	uint64_t sum = mix(lane + 1);

	check(gpunvme_gpu_open("cpu", nullptr, &cpu));
	check(gpunvme_queue_create(s.dev, cpu, nullptr, &queue));
	check(gpunvme_queue_view(queue, nullptr, &dq));
	check(gpunvme_mem_alloc(cpu, queue, PIECE, nullptr, &mem));
	check(gpunvme_mem_map(mem, s.dev));
	check(gpunvme_mem_dbuf(mem, s.dev, &dbuf));
	copy.threads = 1;
	copy.nblocks = PIECE / s.ns.lba_size;
	for (uint64_t i = 0; i < steps; i++) {
		copy.lba = sum % pieces * copy.nblocks;
		check(gpunvme_run_copy(cpu, &dq, 1, &dbuf, &copy));
		sum = digest(sum, (const uint64_t *)gpunvme_mem_ptr(mem));
	}
	gpunvme_queue_destroy(queue);
	gpunvme_mem_free(mem);
	gpunvme_gpu_close(cpu);
	return sum;
}

int main(int argc, char **argv)
{
	uint64_t *sums;
	buffer work;
	session s;

	if (argc != 3)
		die("usage: hip_gather URI COUNT");
	const uint64_t count = parse_size(argv[2]);
	const uint32_t threads = 64, groups = (uint32_t)std::min<uint64_t>(16, (count - 1) / threads + 1), lanes = groups * threads;
	uint64_t steps = (count - 1) / lanes + 1;
	s.open(argv[1], 0);
	if (s.ns.lba_size > PIECE || s.ns.nblocks < PIECE / s.ns.lba_size)
		die("the namespace has no 4 KiB pieces");
	uint64_t pieces = s.ns.nblocks / (PIECE / s.ns.lba_size);
	work.open(s.gpu, s.dev, s.queue[0], s.placement, (size_t)lanes * PIECE);
	check(hipHostMalloc((void **)&sums, lanes * sizeof(*sums), hipHostMallocDefault), "hipHostMalloc");
	results r(lanes);
	auto start = std::chrono::steady_clock::now();
	gather<<<groups, threads>>>(s.dq, s.queues, work.dbuf, pieces, steps, sums, r.status);
	r.wait("gathering");
	std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
	printf("%llu pieces of 4 KiB in %.3f s: %.0f a second, in %s, placement %s\n", (unsigned long long)(steps * lanes), took.count(),
	       (double)(steps * lanes) / took.count(), work.where(), s.placement.c_str());
	s.release_queue();
	if (walk_again(s, lanes - 1, pieces, steps) != sums[lanes - 1])
		die("a chain read again by the CPU has another sum: the GPU has seen other data");
	printf("a chain read again by the CPU has the same sum\n");
	(void)hipHostFree(sums);
	work.close();
	s.close();
	return 0;
}
