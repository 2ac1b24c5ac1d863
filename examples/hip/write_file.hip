// SPDX-License-Identifier: MIT
// hip_write_file URI FILE [--yes]: write a file from GPU memory to the start of a namespace, 64 MiB at a time. Each thread owns a
// slice of them. The last block is filled up with zeroes. Anything but an image file may hold data and needs --yes.
#include "session.h"

#include <sys/stat.h>

#include <algorithm>

#include <gpunvme/device.h>

const char *const program = "hip_write_file";

__global__ void write_slices(const gpunvme_dq *queues, uint32_t count, gpunvme_dbuf buf, uint64_t lba, uint32_t blocks, int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count]; // the same for a whole group, so that it stays in scalar registers
	uint32_t slice = (blocks + gpunvme_thread_count() - 1) / gpunvme_thread_count(), first = gpunvme_thread_id() * slice;
	uint64_t offset = (uint64_t)first << dq.lba_shift, pos = lba << dq.lba_shift, len = blocks - first < slice ? blocks - first : slice;

	if (first < blocks)
		status[gpunvme_thread_id()] = gpunvme_write(&dq, &buf, offset, pos + offset, len << dq.lba_shift, 0);
}

__global__ void flush(gpunvme_dq dq, int *status)
{
	*status = gpunvme_flush(&dq);
}

int main(int argc, char **argv)
{
	const uint32_t groups = 16, threads = 64;
	bool yes = argc == 4 && !strcmp(argv[3], "--yes");
	struct stat st;
	session s;
	buffer data;

	if (argc != 3 && !yes)
		die("usage: hip_write_file URI FILE [--yes]");
	FILE *file = fopen(argv[2], "rb");
	if (!file || fstat(fileno(file), &st) || !S_ISREG(st.st_mode) || !st.st_size)
		die(std::string("nothing can be read from ") + argv[2]);
	uint64_t length = (uint64_t)st.st_size;
	s.open(argv[1], GPUNVME_VIEW_WRITE | GPUNVME_VIEW_FENCED); /* what the kernels write hipMemcpy() has put there, and waited for */
	if (!yes && gpunvme_ns_may_overwrite(s.dev, 0))
		die(std::string(gpunvme_errmsg()) + ": add --yes if that is the drive you mean");
	uint32_t lba_size = s.ns.lba_size;
	if (length / lba_size + (length % lba_size != 0) > s.ns.nblocks)
		die("the namespace has only " + std::to_string(s.ns.nblocks) + " blocks");
	const size_t room = (size_t)std::min<uint64_t>(PART, (length + lba_size - 1) / lba_size * lba_size);
	data.open(s.gpu, s.dev, s.queue[0], s.placement, room);
	std::vector<char> bytes(room);
	results r(groups * threads);
	for (uint64_t done = 0; done < length; done += PART) {
		size_t part = (size_t)std::min<uint64_t>(PART, length - done), whole = (part + lba_size - 1) / lba_size * lba_size;

		if (fread(bytes.data(), 1, part, file) != part)
			die(std::string(argv[2]) + " ends too early");
		std::fill(bytes.begin() + (ptrdiff_t)part, bytes.begin() + (ptrdiff_t)whole, 0);
		data.put(bytes.data(), whole);
		write_slices<<<groups, threads>>>(s.dq, s.queues, data.dbuf, done / lba_size, (uint32_t)(whole / lba_size), r.status);
		r.wait("writing");
		progress(done + part, length);
	}
	flush<<<1, 1>>>(s.view[0], r.status);
	r.wait("the flush");
	printf("wrote %llu bytes with %u threads and %u queues from %s, placement %s\n", (unsigned long long)length, groups * threads, s.queues,
	       data.where(), s.placement.c_str());
	fclose(file);
	data.close();
	s.close();
	return 0;
}
