// SPDX-License-Identifier: MIT
// cuda_read_file URI BYTES FILE: read the start of a namespace by a kernel, 64 MiB at a time, and write that to a new file. Each thread
// owns a slice. The queues are shared, each by every fourth group of threads.
#include "../front/new_file.h"
#include "session.h"

#include <algorithm>

#include <gpunvme/device.h>

const char *const program = "cuda_read_file";

static new_file file; // it has its name when it is complete

__global__ void read_slices(const gpunvme_dq *queues, uint32_t count, gpunvme_dbuf buf, uint64_t lba, uint32_t blocks, int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count];
	uint32_t slice = (blocks + gpunvme_thread_count() - 1) / gpunvme_thread_count(), first = gpunvme_thread_id() * slice;
	uint64_t offset = (uint64_t)first << dq.lba_shift, pos = lba << dq.lba_shift, len = blocks - first < slice ? blocks - first : slice;

	if (first < blocks)
		status[gpunvme_thread_id()] = gpunvme_read(&dq, &buf, offset, pos + offset, len << dq.lba_shift);
}

static void remove_unfinished()
{
	if (file.out)
		new_file_close(&file, ECANCELED);
}

int main(int argc, char **argv)
{
	session s;

	if (argc != 4)
		die("usage: cuda_read_file URI BYTES FILE");
	uint64_t length = strtoull(argv[2], nullptr, 10);
	s.open(argv[1], 0);
	uint64_t blocks = blocks_of(s, length), step = PART / s.ns.lba_size;
	int failed = new_file_open(&file, argv[3]); // never over something, which could be the image itself
	if (failed)
		die(std::string("cannot create ") + argv[3] + ": " + strerror(failed));
	atexit(remove_unfinished);
	unsigned char *bytes = s.buffer((size_t)(std::min(blocks, step) * s.ns.lba_size));
	for (uint64_t lba = 0; lba < blocks; lba += step) {
		read_slices<<<GROUPS, THREADS>>>(s.dq, s.queues(), s.dbuf, lba, (uint32_t)std::min(blocks - lba, step), s.status);
		s.wait("reading");
		size_t part = (size_t)std::min<uint64_t>(length - lba * s.ns.lba_size, PART);
		if (fwrite(bytes, 1, part, file.out) != part)
			die(std::string("cannot write ") + argv[3] + ": " + strerror(errno));
	}
	failed = new_file_close(&file, 0);
	if (failed)
		die(std::string("cannot write ") + argv[3] + ": " + strerror(failed));
	printf("read %llu bytes with %u threads and %u queues\n", (unsigned long long)length, LANES, s.queues());
	s.close();
	return 0;
}
