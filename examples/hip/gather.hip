// SPDX-License-Identifier: MIT
// hip_gather URI COUNT: a kernel that finds out while it runs which data it needs. Every thread walks a chain: it reads a 4 KiB piece
// of the namespace into its own part of the working set, computes on it, and what it computed decides which piece comes next.
#include "session.h"

#include <chrono>

#include <gpunvme/device.h>

const char *const program = "hip_gather";

static const uint32_t PIECE = 4096;

__device__ static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 31) * 0x9e3779b97f4a7c15ull;
	return v ^ v >> 29;
}

__global__ void gather(const gpunvme_dq *queues, uint32_t count, gpunvme_dbuf work, uint64_t pieces, uint32_t steps, uint64_t *sums,
		       int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count];
	const uint64_t *mine = (const uint64_t *)(work.base + (uint64_t)gpunvme_lane() * PIECE);
	uint64_t sum = mix(gpunvme_lane() + 1);
	int ret = 0;

	for (uint32_t i = 0; i < steps && !ret; i++) {
		uint32_t blocks = PIECE >> dq.lba_shift;

		ret = gpunvme_read(&dq, &work, (uint64_t)gpunvme_lane() * PIECE, sum % pieces * blocks, blocks);
		for (uint32_t k = 0; k < PIECE / 8 && !ret; k++)
			sum = mix(sum + mine[k]);
	}
	sums[gpunvme_lane()] = sum;
	status[gpunvme_lane()] = ret;
}

int main(int argc, char **argv)
{
	const uint32_t groups = 16, threads = 64, lanes = groups * threads;
	uint64_t *sums, sum = 0;
	buffer work;
	session s;

	if (argc != 3)
		die("usage: hip_gather URI COUNT");
	uint64_t steps = (parse_size(argv[2]) + lanes - 1) / lanes;
	s.open(argv[1], 0);
	uint64_t pieces = s.ns.nblocks * s.ns.lba_size / PIECE;
	if (!pieces || s.ns.lba_size > PIECE)
		die("the namespace has no 4 KiB pieces");
	work.open(s.gpu, s.dev, (size_t)lanes * PIECE);
	check(hipHostMalloc((void **)&sums, lanes * sizeof(*sums), hipHostMallocDefault), "hipHostMalloc");
	auto start = std::chrono::steady_clock::now();
	{
		results r(lanes);

		gather<<<groups, threads>>>(s.dq, s.queues, work.dbuf, pieces, (uint32_t)steps, sums, r.status);
		r.wait("gathering");
	}
	std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
	for (uint32_t i = 0; i < lanes; i++)
		sum ^= sums[i];
	printf("%llu pieces of 4 KiB in %.3f s: %.0f a second, sum %016llx\n", (unsigned long long)(steps * lanes), took.count(),
	       (double)(steps * lanes) / took.count(), (unsigned long long)sum);
	(void)hipHostFree(sums);
	work.close();
	s.close();
	return 0;
}
