// SPDX-License-Identifier: MIT
// hip_write_file URI FILE [--yes]: write a file from GPU memory to the start of a namespace. Each thread owns a slice; the last block
// is filled up with zeroes. Anything but an image file may hold somebody's data and wants --yes.
#include "session.h"

#include <sys/stat.h>

#include <gpunvme/device.h>

const char *const program = "hip_write_file";

__global__ void write_slices(const gpunvme_dq *queues, uint32_t count, gpunvme_dbuf buf, uint64_t blocks, int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count];
	uint64_t slice = (blocks + gpunvme_lanes() - 1) / gpunvme_lanes(), first = gpunvme_lane() * slice;

	if (first < blocks)
		status[gpunvme_lane()] = gpunvme_write(&dq, &buf, first << dq.lba_shift, first,
						       (uint32_t)(blocks - first < slice ? blocks - first : slice));
}

__global__ void flush(gpunvme_dq dq, int *status)
{
	*status = gpunvme_flush(&dq);
}

static bool is_image(const std::string &uri)
{
	struct stat st;

	return uri.rfind("soft:", 0) == 0 && stat(uri.substr(5, uri.find('?') - 5).c_str(), &st) == 0 && S_ISREG(st.st_mode);
}

static std::vector<char> load(const char *name)
{
	FILE *file = fopen(name, "rb");
	std::vector<char> bytes;
	char part[65536];
	size_t n;

	if (!file)
		die(std::string("cannot read ") + name);
	while ((n = fread(part, 1, sizeof(part), file)) > 0)
		bytes.insert(bytes.end(), part, part + n);
	if (ferror(file) || bytes.empty())
		die(std::string("nothing could be read from ") + name);
	fclose(file);
	return bytes;
}

int main(int argc, char **argv)
{
	const uint32_t groups = 16, threads = 64;
	bool yes = argc == 4 && !strcmp(argv[3], "--yes");
	session s;
	buffer data;

	if (argc != 3 && !yes)
		die("usage: hip_write_file URI FILE [--yes]");
	if (!yes && !is_image(argv[1]))
		die(std::string("this would overwrite data on ") + argv[1] + ": add --yes if that is the drive you mean");
	std::vector<char> bytes = load(argv[2]);
	size_t length = bytes.size();
	s.open(argv[1], GPUNVME_VIEW_WRITE);
	uint64_t blocks = (length + s.ns.lba_size - 1) / s.ns.lba_size;
	if (blocks > s.ns.nblocks)
		die("the namespace has only " + std::to_string(s.ns.nblocks) + " blocks");
	bytes.resize(blocks * s.ns.lba_size);
	data.open(s.gpu, s.dev, bytes.size());
	check(hipMemcpy(data.ptr, bytes.data(), bytes.size(), hipMemcpyHostToDevice), "hipMemcpy");
	{
		results r(groups * threads);

		write_slices<<<groups, threads>>>(s.dq, s.queues, data.dbuf, blocks, r.status);
		r.wait("writing");
		flush<<<1, 1>>>(s.view[0], r.status);
		r.wait("the flush");
	}
	printf("wrote %zu bytes with %u threads and %u queues\n", length, groups * threads, s.queues);
	data.close();
	s.close();
	return 0;
}
