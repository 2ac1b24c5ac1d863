// SPDX-License-Identifier: MIT
// cuda_write_file URI FILE [--yes]: write a file to the start of a namespace by a kernel, 64 MiB at a time, and flush. Each thread owns a
// slice of them. The last block is filled up with zeroes. Anything but an image file may hold data and needs --yes.
#include "session.h"

#include <sys/stat.h>

#include <algorithm>

#include <gpunvme/device.h>

const char *const program = "cuda_write_file";

__global__ void write_slices(const gpunvme_dq *queues, uint32_t count, gpunvme_dbuf buf, uint64_t lba, uint32_t blocks, int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count];
	uint32_t slice = (blocks + gpunvme_thread_count() - 1) / gpunvme_thread_count(), first = gpunvme_thread_id() * slice;
	uint64_t offset = (uint64_t)first << dq.lba_shift, pos = lba << dq.lba_shift, len = blocks - first < slice ? blocks - first : slice;

	if (first < blocks)
		status[gpunvme_thread_id()] = gpunvme_write(&dq, &buf, offset, pos + offset, len << dq.lba_shift, 0);
}

__global__ void flush(const gpunvme_dq *queue, int *status)
{
	*status = gpunvme_flush(queue);
}

int main(int argc, char **argv)
{
	bool yes = argc == 4 && !strcmp(argv[3], "--yes");
	struct stat st;
	session s;

	if (argc != 3 && !yes)
		die("usage: cuda_write_file URI FILE [--yes]");
	FILE *file = fopen(argv[2], "rb");
	if (!file || fstat(fileno(file), &st) || !S_ISREG(st.st_mode) || !st.st_size)
		die(std::string("nothing can be read from ") + argv[2]);
	s.open(argv[1], GPUNVME_VIEW_WRITE);
	if (!yes && gpunvme_ns_may_overwrite(s.dev, 0))
		die(std::string(gpunvme_errmsg()) + ": add --yes if that is the drive you mean");
	uint64_t length = (uint64_t)st.st_size, blocks = blocks_of(s, length), step = PART / s.ns.lba_size;
	size_t room = (size_t)(std::min(blocks, step) * s.ns.lba_size);
	unsigned char *bytes = s.buffer(room);
	for (uint64_t lba = 0; lba < blocks; lba += step) {
		size_t part = (size_t)std::min<uint64_t>(length - lba * s.ns.lba_size, PART);
		if (fread(bytes, 1, part, file) != part)
			die(std::string(argv[2]) + " ends too early");
		std::fill(bytes + part, bytes + room, 0);
		write_slices<<<GROUPS, THREADS>>>(s.dq, s.queues(), s.dbuf, lba, (uint32_t)std::min(blocks - lba, step), s.status);
		s.wait("writing");
	}
	flush<<<1, 1>>>(s.dq, s.status);
	s.wait("the flush");
	printf("wrote %llu bytes with %u threads and %u queues\n", (unsigned long long)length, LANES, s.queues());
	fclose(file);
	s.close();
	return 0;
}
