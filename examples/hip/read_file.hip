// SPDX-License-Identifier: MIT
// hip_read_file URI BYTES FILE: read the start of a namespace into GPU memory and from there into a file. Each thread owns a slice;
// the queues are shared, each by every fourth group of threads.
#include "session.h"

#include <gpunvme/device.h>

const char *const program = "hip_read_file";

__global__ void read_slices(const gpunvme_dq *queues, uint32_t count, gpunvme_dbuf buf, uint64_t blocks, int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count]; // the same for a whole group, so that it stays in scalar registers
	uint64_t slice = (blocks + gpunvme_lanes() - 1) / gpunvme_lanes(), first = gpunvme_lane() * slice;

	if (first < blocks)
		status[gpunvme_lane()] = gpunvme_read(&dq, &buf, first << dq.lba_shift, first,
						      (uint32_t)(blocks - first < slice ? blocks - first : slice));
}

int main(int argc, char **argv)
{
	const uint32_t groups = 16, threads = 64;
	session s;
	buffer data;

	if (argc != 4)
		die("usage: hip_read_file URI BYTES FILE");
	uint64_t bytes = parse_size(argv[2]);
	s.open(argv[1], 0);
	uint64_t blocks = (bytes + s.ns.lba_size - 1) / s.ns.lba_size;
	if (blocks > s.ns.nblocks)
		die("the namespace has only " + std::to_string(s.ns.nblocks) + " blocks");
	data.open(s.gpu, s.dev, blocks * s.ns.lba_size);
	{
		results r(groups * threads);

		read_slices<<<groups, threads>>>(s.dq, s.queues, data.dbuf, blocks, r.status);
		r.wait("reading");
	}
	std::vector<char> copy(bytes);
	check(hipMemcpy(copy.data(), data.ptr, bytes, hipMemcpyDeviceToHost), "hipMemcpy");
	FILE *file = fopen(argv[3], "wb");
	if (!file || fwrite(copy.data(), 1, bytes, file) != bytes || fclose(file))
		die(std::string("cannot write ") + argv[3]);
	printf("read %llu bytes with %u threads and %u queues\n", (unsigned long long)bytes, groups * threads, s.queues);
	data.close();
	s.close();
	return 0;
}
