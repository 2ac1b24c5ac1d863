// SPDX-License-Identifier: MIT
// hip_read_file URI BYTES FILE: read the start of a namespace into GPU memory, 64 MiB at a time, and from there into a new file. Each
// thread owns a slice. The queues are shared, each by every fourth group of threads.
#include "../front/new_file.h"
#include "session.h"

#include <algorithm>

#include <gpunvme/device.h>

const char *const program = "hip_read_file";

static new_file file; // it has its name when it is complete

__global__ void read_slices(const gpunvme_dq *queues, uint32_t count, gpunvme_dbuf buf, uint64_t lba, uint32_t blocks, int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count]; // the same for a whole group, so that it stays in scalar registers
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
	const uint32_t groups = 16, threads = 64;
	session s;
	buffer data;

	if (argc != 4)
		die("usage: hip_read_file URI BYTES FILE");
	uint64_t length = parse_size(argv[2]);
	s.open(argv[1], 0);
	uint32_t lba_size = s.ns.lba_size;
	if (length / lba_size + (length % lba_size != 0) > s.ns.nblocks)
		die("the namespace has only " + std::to_string(s.ns.nblocks) + " blocks");
	int failed = new_file_open(&file, argv[3]); // never over something, which could be the image itself
	if (failed)
		die(std::string("cannot create ") + argv[3] + ": " + strerror(failed));
	atexit(remove_unfinished);
	const size_t room = (size_t)std::min<uint64_t>(PART, (length + lba_size - 1) / lba_size * lba_size);
	data.open(s.gpu, s.dev, s.queue[0], s.placement, room);
	std::vector<char> bytes(room);
	results r(groups * threads);
	for (uint64_t done = 0; done < length; done += PART) {
		size_t part = (size_t)std::min<uint64_t>(PART, length - done);

		read_slices<<<groups, threads>>>(s.dq, s.queues, data.dbuf, done / lba_size,
						 (uint32_t)((part + lba_size - 1) / lba_size), r.status);
		r.wait("reading");
		data.get(bytes.data(), part);
		if (fwrite(bytes.data(), 1, part, file.out) != part)
			die(std::string("cannot write ") + argv[3] + ": " + strerror(errno));
		progress(done + part, length);
	}
	failed = new_file_close(&file, 0);
	if (failed)
		die(std::string("cannot write ") + argv[3] + ": " + strerror(failed));
	printf("read %llu bytes with %u threads and %u queues into %s, placement %s\n", (unsigned long long)length, groups * threads, s.queues,
	       data.where(), s.placement.c_str());
	data.close();
	s.close();
	return 0;
}
