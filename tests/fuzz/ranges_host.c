/* SPDX-License-Identifier: MIT */
/*
 * Calls of the library that take a range, for fuzz_ranges. A device and a queue are made by hand. A namespace, a volume,
 * a BAR and a DMA-BUF are as large as the input says. No memory can be mapped to a device: calls in range end there.
 */
#include "ranges.h"

#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>
#include <string.h>

#include "mem/mem_bar.h"
#include "os/linux/dmabuf.h"
#include "os/vfio/vfio.h"
#include "cache/cache.h"
#include "queue/queue.h"

#define SMALL (1u << 20) /* bytes; more the threads' memory has not */

int __wrap_gpunvme_ns_get_info(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_ns_info *info);
int __wrap_gpunvme_mem_map(struct gpunvme_mem *mem, struct gpunvme_dev *dev);
int __wrap_gnv_tables_place(struct gnv_tables *tables, enum gnv_table_kind kind, const void *content, size_t len, uint64_t *lane);
int __real_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
int __wrap_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
int __wrap_gnv_dmabuf_size(int fd, uint64_t *size);
int __wrap_gnv_dmabuf_dup(int fd, int *own);
int __wrap_gnv_dmabuf_map(int fd, uint64_t offset, size_t len, void **ptr);
void __wrap_gnv_dmabuf_exporter(int fd, char *name, size_t size);
void __wrap_gnv_dmabuf_close(int fd);
int __wrap_gnv_vfio_open(gnv_vfio_take *take, const struct gnv_pci *pci, const struct gnv_vfio_as *share, struct gnv_vfio *vfio);
int __wrap_gnv_vfio_enable(const struct gnv_vfio *vfio);
int __wrap_gnv_vfio_master(const struct gnv_vfio *vfio);
int __wrap_gnv_vfio_watch_start(struct gnv_vfio_watch *watch, const struct gnv_vfio *vfio, gnv_vfio_alarm *alarm, void *ctx);
bool __wrap_gnv_vfio_released(const struct gnv_vfio *vfio);
int __wrap_gnv_vfio_map(const struct gnv_vfio *vfio, unsigned index, uint64_t offset, size_t len, void **ptr);

static struct gpunvme_gpu *gpu;
static struct gnv_port port;
static struct gpunvme_dev dev;
static struct gnv_qp qp, *qps[] = { &qp };
static struct gpunvme_queue queue;
static struct gpunvme_bar *bar;
static struct gnv_vfio *bars;

/* ---- What the library asks ---- */

int __wrap_gpunvme_ns_get_info(struct gpunvme_dev *d, uint32_t nsid, struct gpunvme_ns_info *info)
{
	check(d == &dev && nsid <= 1);
	*info = (struct gpunvme_ns_info){ .size = sizeof(*info), .nsid = 1, .lba_size = BLOCK, .nblocks = ask.limit };
	return 0;
}

int __wrap_gpunvme_mem_map(struct gpunvme_mem *mem, struct gpunvme_dev *d)
{
	check(mem && d == &dev);
	return -EMFILE;
}

int __wrap_gnv_tables_place(struct gnv_tables *tables, enum gnv_table_kind kind, const void *content, size_t len, uint64_t *lane)
{
	check(tables == &queue.tables && kind == GNV_TABLE_VIEWS && len == sizeof(struct gpunvme_dq));
	check(((const struct gpunvme_dq *)content)->lba_count == ask.limit);
	*lane = 8;
	return 0;
}

int __wrap_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr)
{
	return len > SMALL ? -ENOMEM : __real_gnv_sys_map(len, align, huge, ptr);
}

int __wrap_gnv_dmabuf_size(int fd, uint64_t *size)
{
	(void)fd;
	*size = ask.limit;
	return 0;
}

int __wrap_gnv_dmabuf_dup(int fd, int *own)
{
	*own = fd;
	return 0;
}

int __wrap_gnv_dmabuf_map(int fd, uint64_t offset, size_t len, void **ptr)
{
	(void)fd, (void)ptr;
	check(offset == ask.pos && len == ask.len);
	return -EOPNOTSUPP;
}

void __wrap_gnv_dmabuf_exporter(int fd, char *name, size_t size)
{
	(void)fd;
	memset(name, 0, size);
}

void __wrap_gnv_dmabuf_close(int fd)
{
	(void)fd;
}

int __wrap_gnv_vfio_open(gnv_vfio_take *take, const struct gnv_pci *pci, const struct gnv_vfio_as *share, struct gnv_vfio *vfio)
{
	(void)take, (void)pci, (void)share;
	memset(vfio, 0, sizeof(*vfio));
	bars = vfio;
	return 0;
}

int __wrap_gnv_vfio_enable(const struct gnv_vfio *vfio)
{
	(void)vfio;
	return 0;
}

int __wrap_gnv_vfio_master(const struct gnv_vfio *vfio)
{
	(void)vfio;
	return 0;
}

int __wrap_gnv_vfio_watch_start(struct gnv_vfio_watch *watch, const struct gnv_vfio *vfio, gnv_vfio_alarm *alarm, void *ctx)
{
	(void)watch, (void)vfio, (void)alarm, (void)ctx;
	return 0;
}

bool __wrap_gnv_vfio_released(const struct gnv_vfio *vfio)
{
	(void)vfio;
	return false;
}

int __wrap_gnv_vfio_map(const struct gnv_vfio *vfio, unsigned index, uint64_t offset, size_t len, void **ptr)
{
	(void)vfio, (void)ptr;
	check(!index && offset == ask.pos && offset + len > offset && offset + len <= ask.limit);
	return -EOPNOTSUPP;
}

/* ---- Calls ---- */

static int view_queue(void)
{
	const struct gpunvme_view view = { sizeof(view), 0, 0, ask.pos, ask.len };
	struct gpunvme_dq dq = { .lba_first = 1 };
	const int ret = gpunvme_queue_view(&queue, &view, &dq);

	check(ret ? !dq.head.version && dq.lba_first == 1 : dq.lba_first == ask.pos && dq.lba_count == (ask.len ? ask.len : ask.limit - ask.pos));
	return ret;
}

static int view_volume(void)
{
	const struct gpunvme_view view = { sizeof(view), 0, 0, ask.pos, ask.len };
	struct gpunvme_dvol dvol = { .lba_first = 1 };
	const int ret = gpunvme_queue_view(&queue, &view, &dvol);

	check(ret ? !dvol.head.version && dvol.lba_first == 1
		  : dvol.lba_first == ask.pos && dvol.lba_count == (ask.len ? ask.len : ask.limit - ask.pos));
	return ret;
}

static int make_cache(void)
{
	const struct gpunvme_cache_opts opts = { .size = sizeof(opts), .page_size = 4096, .frames = 1,
						     .lba = ask.pos, .nblocks = ask.len };
	struct gpunvme_cache *cache = NULL;
	const int ret = gpunvme_cache_create(&queue, &opts, &cache);

	check(ret == -ERANGE || ret == -ENOMEM || ret == -EMFILE);
	check(!cache);
	return ret == -ERANGE ? ret : 0;
}

static int copy(uint32_t flags)
{
	struct gpunvme_copy c = { .size = sizeof(c), .flags = flags, .threads = 1, .lba = ask.pos, .nblocks = ask.len };
	const int ret = gpunvme_run_copy(gpu, &w.dq, 1, &w.buf, &c);

	check(!c.failed_nblocks);
	return ret;
}

static int copy_from(void)
{
	return copy(0);
}

static int copy_to(void)
{
	return copy(GPUNVME_COPY_WRITE);
}

static int load(void)
{
	struct gpunvme_workload l = { .size = sizeof(l), .threads = 1, .nblocks = (uint32_t)ask.len, .ms = 1, .seed = ask.offset };

	return gpunvme_workload_run(gpu, &w.dq, 1, &w.buf, &l);
}

static int batch(uint32_t op)
{
	struct gpunvme_command cmd = { ask.pos, ask.offset, (uint32_t)ask.len, op, 0, 1 };
	struct gpunvme_commands b = { sizeof(b), 1, 1, &cmd };

	check(!gpunvme_run_commands(gpu, &w.dq, 1, &w.buf, &b));
	return cmd.status;
}

static int batch_read(void)
{
	return batch(GPUNVME_IO_READ);
}

static int batch_write(void)
{
	return batch(GPUNVME_IO_WRITE);
}

static int batch_zero(void)
{
	return batch(GPUNVME_IO_WRITE_ZEROES);
}

static int batch_discard(void)
{
	return batch(GPUNVME_IO_DSM);
}

static int get_memory(void)
{
	struct gpunvme_mem_use use = { 0 };
	const int ret = gpunvme_mem_get(gpu, &dev, (void *)ask.pos, ask.len, 0, &use);

	check(ret == -EINVAL && !use.mem);
	return ret;
}

static int forget_memory(void)
{
	const int ret = gpunvme_mem_cache_forget(&dev, (void *)ask.pos, ask.len);

	check(ret == -EINVAL);
	return ret;
}

static int register_memory(void)
{
	struct gpunvme_mem *mem = NULL;
	const int ret = gpunvme_mem_register(gpu, (void *)ask.pos, ask.len, &mem);

	check((ret == -EINVAL || ret == -EFAULT) && !mem);
	return ret;
}

static int import_dmabuf(void)
{
	struct gpunvme_mem *mem = NULL;
	const int ret = gpunvme_mem_import_dmabuf(gpu, 0, ask.pos, ask.len, &mem);

	check(!ret == (mem != NULL));
	if (mem) {
		check(gpunvme_mem_len(mem) == ask.len);
		check(!gpunvme_mem_free(mem));
	}
	return ret;
}

static int map_bar(void)
{
	struct gpunvme_mem *mem = NULL;
	int ret;

	bars->bar[0].size = ask.limit;
	ret = gpunvme_mem_bar(gpu, bar, 0, ask.pos, ask.len, &mem);
	check(ret && !mem);
	return ret == -EOPNOTSUPP ? 0 : ret;
}

const struct range_call host_calls[] = {
	{ view_queue, WINDOW, 0, 0, 0 },  { view_volume, WINDOW, 0, 0, 0 },	{ make_cache, PAGES, 0, 0, 0 },
	{ copy_from, COPY, 0, 0, 0 },	  { copy_to, COPY, 1, 0, 0 },		{ load, LOAD, 0, 0, 0 },
	{ batch_read, BATCH, 0, 0, 0 },	  { batch_write, BATCH, 1, 0, 0 },	{ batch_zero, BATCH_ONLY, 1, 0, 0 },
	{ batch_discard, BATCH_RANGE, 1, 0, 0 }, { get_memory, ADDRESS, 0, 0, 0 },	{ forget_memory, ADDRESS, 0, 0, 0 },
	{ register_memory, ADDRESS, 0, 0, 0 },	 { import_dmabuf, DMABUF, 0, 0, 0 }, { map_bar, DMABUF, 0, 0, 0 },
};
const unsigned host_calls_count = sizeof(host_calls) / sizeof(host_calls[0]);

void host_init(void)
{
	const struct gnv_log silent = { 0 };

	check(!gpunvme_gpu_open("cpu", NULL, &gpu));
	dev.process = gpu->process;
	dev.nvme.port = &port;
	dev.nvme.ctrl.page_size = 4096;
	dev.nvme.limits.deallocate = 256;
	pthread_mutex_init(&dev.lock, NULL);
	qp.dev = &dev;
	qp.gpu = gpu;
	qp.depth = qp.cq_depth = 64;
	queue.gpu = gpu;
	queue.devices = queue.queues = queue.stripe = 1;
	queue.dev[0] = &dev;
	queue.qp = qps;
	check(!gnv_bar_dev_open(NULL, NULL, &silent, &bar));
}
