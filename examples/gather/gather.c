/* SPDX-License-Identifier: MIT */
/*
 * gather URI: rows of a feature matrix, by lists that a kernel makes. A wave draws the neighbours of a node, reads their rows, all
 * at once, and adds them up, as a layer of a graph neural network does.
 *
 * --row BYTES    of the matrix, which is the whole namespace (4096)
 * --nodes N      of which neighbours are drawn (4096)
 * --fan N        neighbours of each (16, at most 32)
 * --slots N      nodes at a time
 * --check FILE   has the same bytes: the CPU adds the rows of it up and compares
 */
#include <getopt.h>

#include "../front/front.h"

#define FAN 32u

#ifdef __cplusplus
const char *const program = FRONT_NAME "_gather";
#else
const char *const program = "gather";
#endif

struct gather_job {
	struct front front;
	const unsigned char *rows; /* where reads arrive: `fan` rows for each wave */
	uint32_t *sum;		   /* a row for each node */
	int *status;
	uint64_t matrix; /* rows that there are */
	uint32_t row, nodes, fan, slots;
};

/* The neighbour @i of @node. */
GPUNVME_DEVICE static inline uint64_t gather_neighbour(const struct gather_job *job, uint32_t node, uint32_t i)
{
	uint64_t v = ((uint64_t)node * FAN + i + 1) * 0x9e3779b97f4a7c15ull;

	v = (v ^ v >> 31) * 0xbf58476d1ce4e5b9ull;
	return (v ^ v >> 29) % job->matrix;
}

/* Rows of the neighbours, a thread after the other, all under way before the wave waits. */
FRONT_FN int gather_read(const struct gather_job *job, uint32_t node)
{
	const struct gpunvme_dq *dq = &job->front.dq[front_wave() % job->front.queues];
	uint32_t sent = 0, i;
	struct gpunvme_req req[(FAN + FRONT_WIDTH - 1) / FRONT_WIDTH];
	int ret = 0, err;

	for (i = front_lane(); i < job->fan && !ret; i += FRONT_WIDTH) {
		ret = gpunvme_submit_read(dq, &job->front.dbuf, ((uint64_t)front_wave() * job->fan + i) * job->row,
					  gather_neighbour(job, node, i) * job->row, job->row, &req[sent]);
		sent += !ret;
	}
	for (i = 0; i < sent; i++) {
		err = gpunvme_wait(dq, &req[i], 0);
		ret = ret ? ret : err;
	}
	return ret;
}

FRONT_FN void gather_rows(const struct gather_job *job)
{
	const uint32_t *row = (const uint32_t *)(job->rows + (uint64_t)front_wave() * job->fan * job->row);
	uint32_t words = job->row / 4, node, word, i, sum;
	int ret = 0;

	for (node = front_wave(); node < job->nodes; node += front_waves()) {
		ret = ret ? ret : gather_read(job, node);
		front_together();
		for (word = front_lane(); word < words; word += FRONT_WIDTH) {
			for (sum = i = 0; i < job->fan; i++)
				sum += row[i * words + word];
			job->sum[(uint64_t)node * words + word] = sum;
		}
		front_together();
	}
	if (ret)
		front_fail(job->status, ret);
}

FRONT_KERNEL(gather_rows, gather_job)

static const char usage[] =
	"usage: gather URI [--row BYTES] [--nodes N] [--fan N] [--slots N] [--check FILE]";

static uint32_t number(uint32_t least, uint32_t most)
{
	return (uint32_t)front_number(optarg, least, most, usage);
}

/* Return: the URI. @check: set to a file that has the same bytes, or NULL. */
static const char *settings(struct gather_job *job, const char **check, int argc, char **argv)
{
	static const struct option known[] = { { "row", 1, NULL, 'r' },	  { "nodes", 1, NULL, 'n' }, { "fan", 1, NULL, 'f' },
					       { "slots", 1, NULL, 's' }, { "check", 1, NULL, 'c' }, { NULL, 0, NULL, 0 } };
	int c;

	memset(job, 0, sizeof(*job));
	job->row = 4096;
	job->nodes = 4096;
	job->fan = 16;
	job->slots = FRONT_WAVES / 4;
	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		uint32_t *of = c == 'r' ? &job->row : c == 'n' ? &job->nodes : c == 'f' ? &job->fan : &job->slots;

		if (c == '?')
			die(usage);
		if (c == 'c')
			*check = optarg;
		else
			*of = number(1, c == 'f' ? FAN : 1u << 20);
	}
	if (optind + 1 != argc || job->row % 4096)
		die(job->row % 4096 ? "a row has whole blocks of 4096 bytes" : usage);
	return argv[optind];
}

/* The CPU reads the same rows. */
static void check_sums(const struct gather_job *job, const char *path)
{
	uint32_t words = job->row / 4, node, i, word;
	uint32_t *row = (uint32_t *)malloc(job->row), *sum = (uint32_t *)malloc(job->row);
	FILE *in = front_image(path);

	if (!row || !sum)
		die(strerror(errno));
	for (node = 0; node < job->nodes; node++) {
		memset(sum, 0, job->row);
		for (i = 0; i < job->fan; i++) {
			if (fseek(in, (long)(gather_neighbour(job, node, i) * job->row), SEEK_SET) || fread(row, job->row, 1, in) != 1)
				die("the image cannot be read");
			for (word = 0; word < words; word++)
				sum[word] += row[word];
		}
		if (memcmp(sum, job->sum + (size_t)node * words, job->row))
			die("the CPU finds another sum: the threads have seen other data");
	}
	fclose(in);
	free(row);
	free(sum);
}

int main(int argc, char **argv)
{
	struct gather_job job;
	struct timespec from, to;
	double seconds, rows;
	const char *check = NULL, *uri;

	uri = settings(&job, &check, argc, argv);
	front_open(&job.front, uri, 0, (size_t)job.slots * job.fan * job.row);
	job.matrix = job.front.nblocks * job.front.lba_size / job.row;
	if (!job.matrix)
		die("the namespace has no whole row");
	if (!front_fits(&job.front, job.slots, job.fan))
		die("the queues are too short: fewer --slots or a smaller --fan");
	job.rows = (const unsigned char *)(uintptr_t)job.front.dbuf.base;
	job.sum = (uint32_t *)front_shared((size_t)job.nodes * job.row);
	job.status = (int *)front_shared(sizeof(*job.status));
	clock_gettime(CLOCK_MONOTONIC, &from);
	front_run_gather_rows(job.slots, &job);
	clock_gettime(CLOCK_MONOTONIC, &to);
	front_close(&job.front);
	if (*job.status)
		die(gpunvme_strerror(*job.status));
	seconds = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
	rows = (double)job.nodes * job.fan;
	if (check)
		check_sums(&job, check);
	printf("%.0f rows of %u bytes: %.0f a second, %.3f GB/s%s\n", rows, job.row, rows / seconds, rows * job.row / seconds * 1e-9,
	       check ? ", and the CPU finds the same sums" : "");
	return 0;
}
