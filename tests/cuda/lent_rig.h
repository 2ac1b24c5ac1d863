/* SPDX-License-Identifier: MIT */
/* Memory of the program's own as data of emulated drives, for programs with the mock driver or the machine's. */
#ifndef TESTS_CUDA_LENT_RIG_H
#define TESTS_CUDA_LENT_RIG_H

#include "cuda/drive_rig.h"

#include <errno.h>
#include <sched.h>

#include "os/nvidia/uapi/cuda.h"

#define LEN ((size_t)COMMANDS * 4096)
#define LENT DRIVE "&link=0"
#define ON_PEER "soft:vram:4M?on=cuda:1&queues=2&link=0"

/* ---- The program's calls of the driver ---- */

typedef int alloc_fn(gnv_cuda_ptr *at, size_t len);
typedef int free_fn(gnv_cuda_ptr at);

static inline void *in_driver(const char *name)
{
	const char *path = getenv("GPUNVME_CUDA_LIBRARY");
	void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW), *symbol = library ? dlsym(library, name) : NULL;

	assert_non_null(symbol);
	dlclose(library);
	return symbol;
}

/* Make the primary context of a GPU current. */
static inline int enter(unsigned gpu)
{
	gnv_cuda_device_fn *get;
	gnv_cuda_retain_fn *retain;
	gnv_cuda_push_fn *push;
	void *context;
	int device;

	*(void **)&get = in_driver("cuDeviceGet");
	*(void **)&retain = in_driver("cuDevicePrimaryCtxRetain");
	*(void **)&push = in_driver("cuCtxPushCurrent_v2");
	assert_int_equal(get(&device, (int)gpu), 0);
	assert_int_equal(retain(&context, device), 0);
	assert_int_equal(push(context), 0);
	return device;
}

static inline void release(int device)
{
	gnv_cuda_release_fn *end;

	*(void **)&end = in_driver("cuDevicePrimaryCtxRelease_v2");
	assert_int_equal(end(device), 0);
}

static inline void leave(int device)
{
	gnv_cuda_pop_fn *pop;
	void *context;

	*(void **)&pop = in_driver("cuCtxPopCurrent_v2");
	assert_int_equal(pop(&context), 0);
	release(device);
}

static inline gnv_cuda_ptr allocate(unsigned gpu, size_t len)
{
	gnv_cuda_pop_fn *pop;
	gnv_cuda_ptr at = 0;
	alloc_fn *alloc;
	void *context;

	(void)enter(gpu);
	*(void **)&alloc = in_driver("cuMemAlloc_v2");
	*(void **)&pop = in_driver("cuCtxPopCurrent_v2");
	assert_int_equal(alloc(&at, len), 0);
	assert_int_equal(pop(&context), 0); /* memory ends with its context, so that stays until give_back() */
	return at;
}

static inline void give_back(unsigned gpu, gnv_cuda_ptr at)
{
	const int device = enter(gpu);
	free_fn *end;

	*(void **)&end = in_driver("cuMemFree_v2");
	assert_int_equal(end(at), 0);
	leave(device);
	release(device);
}

/* ---- A drive whose data lies there ---- */

static uint32_t losses; /* lines of the log (atomic) */

static inline void count_losses(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	if (level == GPUNVME_LOG_ERROR && strstr(text, "was freed while it was mapped"))
		__atomic_fetch_add(&losses, 1, __ATOMIC_RELEASE);
}

static inline void await_losses(uint32_t n)
{
	while (__atomic_load_n(&losses, __ATOMIC_ACQUIRE) < n)
		sched_yield();
	assert_int_equal(losses, n);
}

static inline void open_lent(struct rig *r, const char *uri, gnv_cuda_ptr at)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct pair *p = &r->pair;

	memset(r, 0, sizeof(*r));
	losses = 0;
	opts.log = count_losses;
	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_dev_open(uri, &opts, &p->dev));
	good(gpunvme_gpu_open("cuda:0", NULL, &p->gpu));
	good(gpunvme_queue_create(p->dev, p->gpu, NULL, &p->qp));
	good(gpunvme_queue_view(p->qp, &view, &p->dq));
	good(gpunvme_mem_register(p->gpu, (void *)(uintptr_t)at, LEN, &p->mem));
	good(gpunvme_mem_map(p->mem, p->dev));
	good(gpunvme_mem_dbuf(p->mem, p->dev, &p->dbuf));
	assert_int_equal(p->dbuf.base, at);
	assert_null(gpunvme_mem_ptr(p->mem));
}

static inline void cannot_be_mapped(const char *uri, gnv_cuda_ptr at, int ret, const char *says)
{
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;

	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cuda:0", NULL, &gpu));
	good(gpunvme_mem_register(gpu, (void *)(uintptr_t)at, LEN, &mem));
	assert_int_equal(gpunvme_mem_map(mem, dev), ret);
	if (!strstr(gpunvme_errmsg(), says))
		fail_msg("%s: %s", uri, gpunvme_errmsg());
	good(gpunvme_mem_free(mem));
	gpunvme_gpu_close(gpu);
	good(gpunvme_dev_close(dev));
}

static inline void cannot_be_registered(const char *lanes, gnv_cuda_ptr at, size_t len, int ret, const char *says)
{
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;

	good(gpunvme_gpu_open(lanes, NULL, &gpu));
	assert_int_equal(gpunvme_mem_register(gpu, (void *)(uintptr_t)at, len, &mem), ret);
	if (!strstr(gpunvme_errmsg(), says))
		fail_msg("%s", gpunvme_errmsg());
	gpunvme_gpu_close(gpu);
}

/* Each command gets this status. */
static inline void move_all_in_vain(struct rig *r, uint32_t op, uint16_t status)
{
	struct gpunvme_commands list = { sizeof(list), LANES, EACH, r->cmd };
	uint32_t i;

	for (i = 0; i < COMMANDS; i++)
		r->cmd[i] = (struct gpunvme_command){ .offset = i * 4096ull, .lba = i * 8, .nblocks = 8, .op = op };
	(void)gpunvme_run_commands(r->pair.gpu, &r->pair.dq, 1, &r->pair.dbuf, &list);
	for (i = 0; i < COMMANDS; i++)
		if ((r->cmd[i].status & 0x7ff) != status)
			fail_msg("command %u: 0x%x", i, r->cmd[i].status);
}

static unsigned char marks[LEN];

static inline void mark(unsigned gpu, gnv_cuda_ptr at)
{
	const int device = enter(gpu);
	int (*put)(gnv_cuda_ptr at, const void *from, size_t len);

	memset(marks, 0x5e, sizeof(marks));
	*(void **)&put = in_driver("cuMemcpyHtoD_v2");
	assert_int_equal(put(at, marks, LEN), 0);
	leave(device);
}

static inline void check_mark(unsigned gpu, gnv_cuda_ptr at)
{
	const int device = enter(gpu);
	int (*get)(void *to, gnv_cuda_ptr at, size_t len);
	size_t i;

	memset(marks, 0, sizeof(marks));
	*(void **)&get = in_driver("cuMemcpyDtoH_v2");
	assert_int_equal(get(marks, at, LEN), 0);
	for (i = 0; i < LEN; i++)
		if (marks[i] != 0x5e)
			fail_msg("byte %zu of another allocation: 0x%x", i, marks[i]);
	leave(device);
}

/* ---- By pointer ---- */

/* Return: 1: the data lands. */
static inline uint32_t lands(const char *uri, gnv_cuda_ptr at, size_t len)
{
	struct gpunvme_landing_info info = { .size = sizeof(info) };
	struct gpunvme_landing *landing;
	struct gpunvme_target target;
	struct gpunvme_queue *queue;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;

	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cuda:0", NULL, &gpu));
	good(gpunvme_queue_create(dev, gpu, NULL, &queue));
	good(gpunvme_landing_create(queue, NULL, &landing));
	good(gpunvme_landing_get(landing, (void *)(uintptr_t)at, len, 0, &target));
	good(gpunvme_landing_get_info(landing, &info));
	assert_int_equal(info.direct + info.landing, 1);
	good(gpunvme_landing_put(&target));
	good(gpunvme_landing_destroy(landing));
	good(gpunvme_queue_destroy(queue));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	return info.landing;
}

#endif
