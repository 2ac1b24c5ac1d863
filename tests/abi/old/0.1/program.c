/* SPDX-License-Identifier: MIT */
/*
 * A program of the past: compiled with the headers of release 0.1 that lie beside it (gpunvme/), linked with the library of today. It hands
 * every structure over at the end of a page of which the next cannot be touched, so that a library that reads or writes more than
 * this program knows ends it. Usage: program IMAGE (16 MiB or more; overwritten)
 */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LEN (1u << 20)

static void must(int line, int ret)
{
	if (!ret)
		return;
	fprintf(stderr, "line %d: %d: %s\n", line, ret, gpunvme_errmsg());
	exit(1);
}
#define MUST(call) must(__LINE__, call)
#define TRUE(what) must(__LINE__, (what) ? 0 : 1)

/* `size` bytes, zeroed, the last before a page that cannot be touched. Begins with their size where `sized`. */
static void *edge(size_t size, int sized)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
	char *at = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	TRUE(at != MAP_FAILED && !mprotect(at + room, page, PROT_NONE));
	at += room - size;
	if (sized)
		memcpy(at, &size, sizeof(size));
	return at;
}
#define EDGE(type) ((struct type *)edge(sizeof(struct type), 1))

static void about_machine(struct gpunvme_dev *dev)
{
	struct gpunvme_check *checks = edge(2 * sizeof(*checks), 0);
	struct gpunvme_pci_info *pci = EDGE(gpunvme_pci_info);
	struct gpunvme_pci_path *path = EDGE(gpunvme_pci_path);
	struct gpunvme_gpu_entry *gpu = EDGE(gpunvme_gpu_entry);
	unsigned count = 2;
	int ret = gpunvme_pci_get_info(0, pci);

	TRUE(!ret || ret == -ENOENT);
	if (!ret) {
		MUST(gpunvme_pci_get_path(pci->address, pci->address, path));
		gpunvme_doctor_gpu(0, NULL, checks, &count);
	}
	ret = gpunvme_gpu_nth(0, gpu);
	TRUE(!ret || ret == -ENOENT);
	count = 2;
	MUST(gpunvme_doctor_drive(dev, checks, &count));
	TRUE(count == 2);
	TRUE(gpunvme_doctor("nonsense", checks, &count) == -EINVAL);
}

static void about_lanes(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	struct gpunvme_litmus_opts *opts = EDGE(gpunvme_litmus_opts);
	struct gpunvme_litmus *litmus = EDGE(gpunvme_litmus);
	struct gpunvme_gpu_info *info = EDGE(gpunvme_gpu_info);
	unsigned i;

	MUST(gpunvme_gpu_get_info(gpu, info));
	TRUE(info->kind == GPUNVME_GPU_CPU && info->width == 1);
	opts->commands = 64;
	litmus->stride = sizeof(struct gpunvme_litmus_result);
	litmus->tests = GPUNVME_LITMUS_TESTS;
	MUST(gpunvme_litmus_run(dev, gpu, opts, litmus));
	TRUE(litmus->tests == GPUNVME_LITMUS_TESTS && !litmus->failed);
	for (i = 0; i < litmus->tests; i++)
		TRUE(litmus->test[i].verdict == GPUNVME_LITMUS_PASSED && litmus->test[i].commands >= 64);
}

static void about_volume(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	struct gpunvme_volume_opts *opts = EDGE(gpunvme_volume_opts);
	struct gpunvme_volume_info *info = EDGE(gpunvme_volume_info);
	struct gpunvme_dvol *dvol = edge(sizeof(*dvol), 0);
	struct gpunvme_volume *vol;

	opts->queues = 2;
	MUST(gpunvme_volume_create(&dev, 1, gpu, opts, &vol));
	MUST(gpunvme_volume_get_info(vol, info));
	TRUE(info->members == 1 && info->queues == 2);
	MUST(gpunvme_volume_view(vol, NULL, dvol));
	TRUE(dvol->queues == 2);
	gpunvme_volume_destroy(vol);
}

/* Writes a pattern and reads it back. */
static void move(struct gpunvme_gpu *gpu, struct gpunvme_qp *qp, const struct gpunvme_dbuf *dbuf, unsigned char *bytes)
{
	struct gpunvme_copy *copy = EDGE(gpunvme_copy);
	struct gpunvme_load *load = EDGE(gpunvme_load);
	struct gpunvme_view *view = EDGE(gpunvme_view);
	struct gpunvme_dq *dq = edge(sizeof(*dq), 0);
	size_t i;

	view->flags = GPUNVME_VIEW_WRITE;
	MUST(gpunvme_qp_view(qp, view, dq));
	for (i = 0; i < LEN; i++)
		bytes[i] = (unsigned char)(i * 7 + i / 512);
	copy->flags = GPUNVME_COPY_WRITE;
	copy->nblocks = LEN >> dq->lba_shift;
	MUST(gpunvme_copy_run(gpu, dq, 1, dbuf, copy));
	memset(bytes, 0, LEN);
	copy->flags = 0;
	MUST(gpunvme_copy_run(gpu, dq, 1, dbuf, copy));
	for (i = 0; i < LEN; i++)
		TRUE(bytes[i] == (unsigned char)(i * 7 + i / 512));
	load->nblocks = 8;
	load->ms = 5;
	MUST(gpunvme_load_run(gpu, dq, 1, dbuf, load));
	TRUE(load->commands);
}

static void about_queue(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	struct gpunvme_qp_opts *opts = EDGE(gpunvme_qp_opts);
	struct gpunvme_mem_opts *mem_opts = EDGE(gpunvme_mem_opts);
	struct gpunvme_qp_info *info = EDGE(gpunvme_qp_info);
	struct gpunvme_qp_latency *latency = EDGE(gpunvme_qp_latency);
	struct gpunvme_dbuf *dbuf = edge(sizeof(*dbuf), 0);
	struct gpunvme_mem *mem;
	struct gpunvme_qp *qp;

	opts->flags = GPUNVME_QP_STATS | GPUNVME_QP_LATENCY;
	opts->depth = 64;
	MUST(gpunvme_qp_create(dev, gpu, opts, &qp));
	mem_opts->flags = GPUNVME_MEM_HOST;
	MUST(gpunvme_mem_alloc(gpu, LEN, mem_opts, &mem));
	MUST(gpunvme_mem_map(mem, dev));
	MUST(gpunvme_mem_dbuf(mem, dev, dbuf));
	move(gpu, qp, dbuf, gpunvme_mem_ptr(mem));
	MUST(gpunvme_qp_get_info(qp, info));
	TRUE(info->depth == 64 && info->completions && !info->errors && !strcmp(info->rung, "soft"));
	MUST(gpunvme_qp_get_latency(qp, latency));
	TRUE(gpunvme_latency_ns(latency, 500000));
	gpunvme_qp_destroy(qp);
	gpunvme_mem_free(mem);
}

int main(int argc, char **argv)
{
	struct gpunvme_dev_opts *dev_opts = EDGE(gpunvme_dev_opts);
	struct gpunvme_gpu_opts *gpu_opts = EDGE(gpunvme_gpu_opts);
	struct gpunvme_peer_opts *peer_opts = EDGE(gpunvme_peer_opts);
	struct gpunvme_dev_info *info = EDGE(gpunvme_dev_info);
	struct gpunvme_ns_info *ns = EDGE(gpunvme_ns_info);
	struct gpunvme_peer *peer;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	char uri[512];

	TRUE(argc == 2);
	snprintf(uri, sizeof(uri), "soft:%s", argv[1]);
	dev_opts->queues = 4;
	MUST(gpunvme_dev_open(uri, dev_opts, &dev));
	MUST(gpunvme_gpu_open("cpu", gpu_opts, &gpu));
	MUST(gpunvme_dev_get_info(dev, info));
	TRUE(!strcmp(info->transport, "soft") && info->queues == 4);
	MUST(gpunvme_ns_get_info(dev, 0, ns));
	TRUE(ns->nsid == 1 && ns->lba_size == 512 && ns->nblocks == (16u << 20) / 512);
	TRUE(gpunvme_peer_open("soft:nothing", peer_opts, &peer) == -EINVAL);
	about_machine(dev);
	about_queue(dev, gpu);
	about_volume(dev, gpu);
	about_lanes(dev, gpu);
	gpunvme_gpu_close(gpu);
	gpunvme_dev_close(dev);
	puts("a program of release 0.1 works");
	return 0;
}
