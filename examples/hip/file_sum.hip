// SPDX-License-Identifier: MIT
// hip_file_sum URI PATH [COPY]: a kernel reads a file by its name, on an ext4 that is not mounted, and sums it up. With COPY, which
// Linux reads, the CPU does it again and compares. sum_pieces() is that of examples/file_sum.c, word for word.
#include "session.h"

#include <gpunvme/device.h>

const char *const program = "hip_file_sum";

static const uint32_t PIECE = 4096;

/* Each byte counts by its place, so it does not matter which thread adds it. */
GPUNVME_FN uint64_t sum_pieces(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, const struct gpunvme_dbuf *buf,
			       int *status)
{
	uint64_t own = (uint64_t)gpunvme_thread_id() * 2 * PIECE, sum = 0, pos, i;
	const volatile unsigned char *bytes = (const volatile unsigned char *)(uintptr_t)(buf->base + own);
	struct gpunvme_cursor cur = { dq, file, own + PIECE, 0, 0, 0 }; /* own + PIECE: for the end of the file, which is no whole block */

	*status = 0;
	for (pos = (uint64_t)gpunvme_thread_id() * PIECE; pos < file->bytes && !*status; pos += (uint64_t)gpunvme_thread_count() * PIECE) {
		*status = gpunvme_read(&cur, buf, own, pos, PIECE);
		for (i = 0; i < cur.done; i++)
			sum += (pos + i + 1) * bytes[i];
	}
	return sum;
}

__global__ void sum_file(const gpunvme_dq *queues, uint32_t count, gpunvme_dfile file, gpunvme_dbuf buf, uint64_t *sums, int *status)
{
	const gpunvme_dq dq = queues[blockIdx.x % count];

	sums[gpunvme_thread_id()] = sum_pieces(&dq, &file, &buf, &status[gpunvme_thread_id()]);
}

// What the kernel should have found.
static uint64_t sum_of(const char *copy)
{
	FILE *in = fopen(copy, "rb");
	uint64_t sum = 0, pos = 0;
	int c;

	if (!in)
		die(std::string("cannot read ") + copy + ": " + strerror(errno));
	while ((c = getc(in)) != EOF)
		sum += ++pos * (unsigned char)c;
	fclose(in);
	return sum;
}

int main(int argc, char **argv)
{
	const uint32_t groups = 4, threads = 64;
	session s;
	gpunvme_file *file;
	gpunvme_dfile view;
	uint64_t sum = 0, *sums;

	if (argc < 3 || argc > 4)
		die("usage: hip_file_sum URI PATH [COPY]");
	s.open(argv[1], 0);
	check(gpunvme_file_open(s.dev, argv[2], nullptr, &file));
	check(gpunvme_file_view(file, s.gpu, &view));
	buffer data;
	data.open(s.gpu, s.dev, s.queue[0], s.placement, (size_t)groups * threads * 2 * PIECE);
	results r(groups * threads);
	check(hipHostMalloc((void **)&sums, groups * threads * sizeof(*sums), hipHostMallocDefault), "hipHostMalloc");
	sum_file<<<groups, threads>>>(s.dq, s.queues, view, data.dbuf, sums, r.status);
	r.wait("reading");
	for (uint32_t i = 0; i < groups * threads; i++)
		sum += sums[i];
	if (argc > 3 && sum_of(argv[3]) != sum)
		die("the copy has another sum");
	printf("%016llx  %llu bytes, %u threads, in %s, placement %s\n", (unsigned long long)sum, (unsigned long long)view.bytes,
	       groups * threads, data.where(), s.placement.c_str());
	(void)hipHostFree(sums);
	gpunvme_file_close(file);
	data.close();
	s.close();
	return 0;
}
