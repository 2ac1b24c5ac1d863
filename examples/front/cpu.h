/* SPDX-License-Identifier: MIT */
/* CPU lanes. Only front.h includes this. */
#ifndef GPUNVME_EXAMPLES_FRONT_CPU_H
#define GPUNVME_EXAMPLES_FRONT_CPU_H

#define FRONT_FN static inline
#define FRONT_WIDTH 1u
#define FRONT_WAVES 32u /* as many as the processor likes to switch between */
#define QUEUES 4u

extern const char *const program;

struct front_cpu {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_qp *qp[QUEUES];
	struct gpunvme_dq dq[QUEUES];
};

static struct front_cpu front_cpu;

typedef int front_stream; /* a launch is a call */

static inline void die(const char *why)
{
	fprintf(stderr, "%s: %s\n", program, why);
	exit(1);
}

static inline void check(int ret)
{
	if (ret)
		die(*gpunvme_errmsg() ? gpunvme_errmsg() : gpunvme_strerror(ret));
}

static inline void front_open(struct front *f, const char *uri, uint32_t flags, size_t bytes)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_qp_info qp = { .size = sizeof(qp) };
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct front_cpu *c = &front_cpu;

	view.flags = flags;
	check(gpunvme_gpu_open("cpu", NULL, &c->gpu));
	check(gpunvme_dev_open(uri, NULL, &c->dev));
	check(gpunvme_dev_get_info(c->dev, &info));
	check(gpunvme_ns_get_info(c->dev, 0, &ns));
	f->queues = info.queues < QUEUES ? info.queues : QUEUES;
	for (uint32_t i = 0; i < f->queues; i++) {
		check(gpunvme_qp_create(c->dev, c->gpu, NULL, &c->qp[i]));
		check(gpunvme_qp_view(c->qp[i], &view, &c->dq[i]));
	}
	check(gpunvme_qp_get_info(c->qp[0], &qp));
	check(gpunvme_mem_alloc(c->gpu, bytes, NULL, &c->mem));
	check(gpunvme_mem_map(c->mem, c->dev));
	check(gpunvme_mem_dbuf(c->mem, c->dev, &f->dbuf));
	f->dq = c->dq;
	f->flying = f->queues * (qp.depth - 1);
	f->lba_size = ns.lba_size;
	f->nblocks = ns.nblocks;
}

static inline void front_close(const struct front *f)
{
	for (uint32_t i = 0; i < f->queues; i++)
		gpunvme_qp_destroy(front_cpu.qp[i]);
	gpunvme_mem_free(front_cpu.mem);
	gpunvme_dev_close(front_cpu.dev);
	gpunvme_gpu_close(front_cpu.gpu);
}

static inline void *front_shared(size_t bytes)
{
	void *p = aligned_alloc(4096, (bytes + 4095) & ~(size_t)4095);

	if (!p)
		die("out of memory");
	return memset(p, 0, bytes);
}

static inline void *front_local(size_t bytes)
{
	return front_shared(bytes);
}

static inline void front_put(void *local, const void *from, size_t bytes)
{
	memcpy(local, from, bytes);
}

static inline void front_stream_open(front_stream *stream)
{
	*stream = 0;
}

static inline int front_busy(const front_stream *stream)
{
	return *stream;
}

static inline void front_together(void)
{
}

#define FRONT_KERNEL(name, type)                                                                                                   \
	static void name##_kernel(void *arg)                                                                                       \
	{                                                                                                                          \
		name((const struct type *)arg);                                                                                    \
	}                                                                                                                          \
	static inline void front_run_##name(uint32_t waves, struct type *arg)                                                      \
	{                                                                                                                          \
		int ret = gpunvme_cpu_launch(waves, FRONT_WIDTH, name##_kernel, arg);                                              \
                                                                                                                                   \
		if (ret)                                                                                                           \
			die(gpunvme_strerror(ret));                                                                                \
	}                                                                                                                          \
	static inline void front_start_##name(const front_stream *stream, uint32_t waves, struct type *arg)                        \
	{                                                                                                                          \
		(void)stream;                                                                                                      \
		(void)waves;                                                                                                       \
		name(arg);                                                                                                         \
	}

#endif
