// SPDX-License-Identifier: MIT
// cuda_gather URI STEPS: a kernel that finds out while it runs which data it needs. Every thread walks a chain: it reads a block into its
// own part of the buffer, and what it computes of that decides which block comes next.
#include "session.h"

#include <chrono>

#include <gpunvme/device.h>

const char *const program = "cuda_gather";

__device__ static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 31) * 0x9e3779b97f4a7c15ull;
	return v ^ v >> 29;
}

__global__ void gather(const gpunvme_dq *queues, uint32_t count, gpunvme_dbuf work, uint64_t blocks, uint64_t steps, int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count];
	const uint64_t offset = (uint64_t)gpunvme_lane() << dq.lba_shift;
	const uint64_t *data = (const uint64_t *)(work.base + offset);
	uint64_t sum = mix(gpunvme_lane() + 1);
	int ret = 0;

	for (uint64_t i = 0; i < steps && !ret; i++) {
		ret = gpunvme_read(&dq, &work, offset, sum % blocks, 1);
		for (uint32_t word = 0; word < (1u << dq.lba_shift) / 8 && !ret; word++)
			sum = mix(sum + data[word]);
	}
	status[gpunvme_lane()] = ret;
}

int main(int argc, char **argv)
{
	session s;

	if (argc != 3 || !strtoull(argv[2], nullptr, 10))
		die("usage: cuda_gather URI STEPS");
	uint64_t steps = strtoull(argv[2], nullptr, 10);
	s.open(argv[1], 0);
	s.buffer((size_t)LANES * s.ns.lba_size);
	auto start = std::chrono::steady_clock::now();
	gather<<<GROUPS, THREADS>>>(s.dq, s.queues(), s.dbuf, s.ns.nblocks, steps, s.status);
	s.wait("gathering");
	std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
	printf("%llu blocks in %.3f s: %.0f a second\n", (unsigned long long)(steps * LANES), took.count(), (double)(steps * LANES) / took.count());
	s.close();
	return 0;
}
