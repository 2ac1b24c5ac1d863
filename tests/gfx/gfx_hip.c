/* SPDX-License-Identifier: MIT */
/*
 * The kernels of examples/hip on the executor, with the library and the controller in software. What their host programs do with a
 * GPU's memory this one does with its own: gfx_hip URI.
 */
#include "gfx/lanes.h"

#include <gpunvme/gpunvme.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUEUES 2
#define LANES 96u
#define WIDTH 48u
#define PIECE 4096u

const struct lanes_kernel lanes_kernels[] = { { NULL, NULL, 0 } };

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp[QUEUES];
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq[QUEUES];
	struct gpunvme_dbuf dbuf;
	struct gpunvme_ns_info ns;
	uint8_t *data;
	uint64_t sums[LANES];
	int status[LANES];
} it;

static void give_way(void)
{
	sched_yield();
}

static int open_all(const char *uri)
{
	struct gpunvme_view view = { .size = sizeof(view), .flags = GPUNVME_VIEW_WRITE };
	int ret = gpunvme_dev_open(uri, NULL, &it.dev), i;

	it.ns.size = sizeof(it.ns);
	ret = ret ? ret : gpunvme_ns_get_info(it.dev, 0, &it.ns);
	ret = ret ? ret : gpunvme_gpu_open("cpu", NULL, &it.gpu);
	for (i = 0; i < QUEUES && !ret; i++) {
		ret = gpunvme_queue_create(it.dev, it.gpu, NULL, &it.qp[i]);
		ret = ret ? ret : gpunvme_queue_view(it.qp[i], &view, &it.dq[i]);
	}
	ret = ret ? ret : gpunvme_mem_alloc(it.gpu, it.qp[0], LANES * PIECE, NULL, &it.mem);
	ret = ret ? ret : gpunvme_mem_map(it.mem, it.dev);
	ret = ret ? ret : gpunvme_mem_dbuf(it.mem, it.dev, &it.dbuf);
	if (ret) {
		printf("%s\n", gpunvme_errmsg());
		return ret;
	}
	it.data = gpunvme_mem_ptr(it.mem);
	lanes_outside = give_way;
	for (i = 0; i < QUEUES; i++)
		lanes_queue(&it.dq[i], true);
	lanes_memory("descriptors", it.dq, sizeof(it.dq), GFX_READONLY);
	lanes_memory("buffer", it.data, gpunvme_mem_len(it.mem), GFX_DEVICE);
	lanes_memory("sums", it.sums, sizeof(it.sums), 0);
	lanes_memory("status", it.status, sizeof(it.status), 0);
	return 0;
}

static void close_all(void)
{
	int i;

	for (i = 0; i < QUEUES; i++)
		gpunvme_queue_destroy(it.qp[i]);
	gpunvme_mem_free(it.mem);
	gpunvme_dev_close(it.dev);
	gpunvme_gpu_close(it.gpu);
}

static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 31) * 0x9e3779b97f4a7c15ull;
	return v ^ v >> 29;
}

static uint64_t word(uint64_t lba, uint64_t i)
{
	return mix(lba * 1000 + i);
}

/* All lanes say 0. */
static bool fine(const char *kernel)
{
	unsigned i;

	for (i = 0; i < LANES; i++)
		if (it.status[i]) {
			printf("%s: lane %u: %s\n", kernel, i, gpunvme_strerror(it.status[i]));
			return false;
		}
	return true;
}

/* The slices of write_file, its flush, and those of read_file: every byte comes back. */
static bool copy(uint32_t blocks)
{
	struct {
		const struct gpunvme_dq *queues;
		uint32_t count;
		struct gpunvme_dbuf buf;
		uint64_t lba;
		uint32_t blocks;
		int *status;
	} slices = { it.dq, QUEUES, it.dbuf, 0, blocks, it.status };
	struct {
		struct gpunvme_dq dq;
		int *status;
	} flush = { it.dq[0], it.status };
	uint64_t i, words = (uint64_t)blocks * it.ns.lba_size / 8, *data = (uint64_t *)(void *)it.data;

	for (i = 0; i < words; i++)
		data[i] = word(0, i);
	lanes_launch("write_slices", LANES, WIDTH, &slices, sizeof(slices));
	lanes_launch("flush", 1, 1, &flush, sizeof(flush));
	if (!fine("write_slices"))
		return false;
	memset(it.data, 0, LANES * PIECE);
	lanes_launch("read_slices", LANES, WIDTH, &slices, sizeof(slices));
	for (i = 0; i < words && data[i] == word(0, i); i++)
		;
	if (i < words)
		printf("read_slices: word %llu is wrong\n", (unsigned long long)i);
	return fine("read_slices") && i == words;
}

/* The chains of gather, against the same on the CPU: the pieces are what copy() wrote. */
static bool gather(uint64_t pieces)
{
	struct {
		const struct gpunvme_dq *queues;
		uint32_t count;
		struct gpunvme_dbuf work;
		uint64_t pieces, steps;
		uint64_t *sums;
		int *status;
	} args = { it.dq, QUEUES, it.dbuf, pieces, 2, it.sums, it.status };
	uint64_t sum, piece, k;
	unsigned lane, step;

	lanes_launch("gather", LANES, WIDTH, &args, sizeof(args));
	for (lane = 0; lane < LANES; lane++) {
		for (step = 0, sum = mix(lane + 1); step < args.steps; step++)
			for (k = 0, piece = sum % pieces; k < PIECE / 8; k++)
				sum = mix(sum + word(0, piece * (PIECE / 8) + k));
		if (sum != it.sums[lane]) {
			printf("gather: lane %u has another sum\n", lane);
			return false;
		}
	}
	return fine("gather");
}

/* Four threads of hello read the first eight blocks of what copy() wrote. */
static bool hello(void)
{
	struct {
		struct gpunvme_dq dq;
		struct gpunvme_dbuf dbuf;
		int status[4];
		unsigned char first[4];
	} job = { .dq = it.dq[0], .dbuf = it.dbuf, .status = { 1, 1, 1, 1 } }, *args = &job;
	bool same = true;
	unsigned i;

	memset(it.data, 0, 8 * it.ns.lba_size);
	lanes_memory("job", &job, sizeof(job), 0);
	lanes_launch("read_two_blocks", 4, 4, &args, sizeof(args));
	for (i = 0; i < 4; i++) {
		uint64_t at = (uint64_t)i * 2 * it.ns.lba_size;

		same = same && !job.status[i] && job.first[i] == it.data[at];
	}
	for (i = 0; i < it.ns.lba_size && same; i++) /* eight blocks of words of eight bytes */
		same = ((uint64_t *)(void *)it.data)[i] == word(0, i);
	if (!same)
		printf("read_two_blocks: a thread has other bytes, or an error\n");
	return same;
}

static bool store(void)
{
	static uint32_t doorbell[2];
	struct {
		uint32_t *doorbell, value;
	} args = { &doorbell[0], 77 };

	lanes_memory("a doorbell", doorbell, 4, GFX_GLC | GFX_SLC | GFX_DLC | GFX_DEVICE);
	lanes_launch("store", 1, 1, &args, sizeof(args.doorbell) + 4);
	return doorbell[0] == 77;
}

int main(int argc, char **argv)
{
	bool good;

	if (argc != 2) {
		fprintf(stderr, "usage: gfx_hip URI\n");
		return 2;
	}
	good = !open_all(argv[1]);
	good = good && copy(LANES * PIECE / it.ns.lba_size - 3) && gather(LANES * PIECE / PIECE - 1) && hello() && store();
	printf("%s\n", good ? "all good" : "wrong");
	close_all();
	return !good;
}
