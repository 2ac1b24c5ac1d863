/* SPDX-License-Identifier: MIT */
/*
 * Where rings and data lie, and which placement a queue gets: the software controller plays one across PCIe, whose address
 * space and doorbells refuse, or lie, as told.
 */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>

#include "cache/cache.h"
#include "gpu/gpu.h"
#include "hsa/rig.h"
#include "dev/dev.h"
#include "queue/qp.h"
#include "run/landing.h"

static struct {
	const struct gnv_space_ops *space; /* the real ones */
	int refuse;			   /* memory of the GPU, with this errno */
	size_t lie;			   /* map other memory in its place, if it has at most so many bytes */
	bool apart;			   /* of the self-test's buffer the CPU has another view than the threads, */
	bool lanes_right;		   /* and the controller writes to the threads' */
	bool late; /* what was put there comes when the threads have looked */
	bool no_registers;
	unsigned invalidations;
	void *data; /* the place it belongs to */
	struct gpunvme_mem *decoy;
	unsigned maps; /* of memory of the GPU */
	char log[4096], placement[16];
} play;

static int play_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova)
{
	static struct gpunvme_mem other; /* mapped as long as it likes */

	if (!mem->local)
		return play.space->map(space, mem, iova);
	play.maps++;
	if (play.refuse)
		return gnv_fail(play.refuse, "the test refuses memory of the GPU");
	if (mem->len > play.lie && !(play.lanes_right && mem->len == 4096))
		return play.space->map(space, mem, iova);
	other = *mem;
	if (mem->len <= play.lie) {
		play.data = mem->cpu;
		other.cpu = (char *)play.decoy->cpu + play.decoy->len / 2;
	}
	if (play.lanes_right && mem->len == 4096) {
		struct gnv_gpu_range range;

		mem->ops->attach((struct gpunvme_mem *)(uintptr_t)mem, mem->gpu, 0, mem->len, &range);
		other.cpu = (void *)(uintptr_t)range.lane;
	}
	return play.space->map(space, &other, iova);
}

static int play_alloc(struct gpunvme_gpu *gpu, uint32_t how, size_t len, struct gnv_gpu_bytes *bytes)
{
	int ret = gnv_gpu_hsa_ops.mem_alloc(gpu, how, len, bytes);

	if (!ret && play.apart && bytes->len == 4096)
		bytes->cpu = play.decoy->cpu;
	return ret;
}

static int play_launch(struct gpunvme_gpu *gpu, const struct gnv_launch *launch)
{
	int ret = gnv_gpu_hsa_ops.launch(gpu, launch);

	if (play.late && play.data && launch->kernel == GNV_KERNEL_SELFTEST) {
		memcpy(play.data, (char *)play.decoy->cpu + play.decoy->len / 2, 512);
		play.data = NULL;
	}
	return ret;
}

static void keep_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	snprintf(play.log + strlen(play.log), sizeof(play.log) - strlen(play.log), "%s\n", text);
}

/* A soft device that seems to be across PCIe. */
static struct gpunvme_dev *open_remote(void)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	static struct gnv_space_ops ops;
	struct gpunvme_dev *dev;

	memset(&play, 0, sizeof(play));
	opts.log = keep_log;
	assert_int_equal(gpunvme_dev_open(uri, &opts, &dev), 0);
	dev->nvme.port->remote = true;
	dev->nvme.port->placement = "vfio-host";
	play.space = dev->nvme.port->space->ops;
	ops = *play.space;
	ops.map = play_map;
	dev->nvme.port->space->ops = &ops;
	return dev;
}

static const char *placement_of(struct gpunvme_queue *qp)
{
	static struct gpunvme_queue_info info;

	info.size = sizeof(info);
	assert_int_equal(gpunvme_queue_get_info(qp, &info), 0);
	return info.placement;
}

static void read_back(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, struct gpunvme_queue *qp, struct gpunvme_mem *mem)
{
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
	unsigned char seen[9 * 512];
	int answer = -1;
	unsigned i;

	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_map(mem, dev), 0);
	assert_int_equal(gpunvme_mem_dbuf(mem, dev, &dbuf), 0);
	assert_int_equal(gnv_gpu_read(gpu, &dq, &dbuf, FIRST, 9, &answer), 0);
	assert_int_equal(answer, 0);
	memcpy(seen, (const void *)(uintptr_t)dbuf.base, sizeof(seen)); /* addresses of the mock's threads are the process's */
	for (i = 0; i < sizeof(seen); i++)
		assert_int_equal(seen[i], pattern(FIRST + i / 512));
}

/* The software controller reads into memory of the GPU, where the CPU reaches it. */
static void test_soft_vram(void **state)
{
	const struct gpunvme_mem_opts vram = { sizeof(vram), GPUNVME_MEM_VRAM, 0 };
	const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_VRAM, 16, 0, 0, 0, 0 };
	struct gpunvme_mem *mem, *host;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 8192, NULL, &host), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_string_equal(placement_of(qp), "soft+vram");
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 8192, &vram, &mem), 0);
	assert_true(mem->local);
	read_back(dev, gpu, qp, mem);
	read_back(dev, gpu, qp, host); /* threads complete nothing before its data is in place */
	gpunvme_mem_free(mem);
	gpunvme_mem_free(host);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	nothing_left();
	pretend("MOCK_LACKS", "bar");
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "no CPU address"));
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

/* Across PCIe, data in memory of the host and rings in the GPU's, or the other way round, would not be ordered. */
static void test_apart(void **state)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_VRAM, 16, 0, 0, 0, 0 };
	struct gpunvme_dev *dev = open_remote();
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *host;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 8192, NULL, &host), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_int_equal(gpunvme_mem_map(host, dev), -EXDEV);
	assert_non_null(strstr(gpunvme_errmsg(), "Pass the queue to gpunvme_mem_alloc(), use GPUNVME_MEM_VRAM"));
	gpunvme_queue_destroy(qp);
	assert_int_equal(gpunvme_mem_map(host, dev), 0); /* now that nothing lies in the GPU's */
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EXDEV);
	gpunvme_mem_free(host);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

/* All works: the top placement, and buffers follow. A recovered queue lies where it lay. */
static void test_top(void **state)
{
	uint32_t *hdp = mock_symbol("mock_hdp");
	struct gpunvme_dev *dev = open_remote();
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;

	(void)state;
	assert_non_null(hdp);
	*hdp = 0;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_string_equal(placement_of(qp), "vram");
	assert_int_equal(*hdp, 1); /* what the self-test read of the GPU's memory was not of before */
	assert_int_equal(gpunvme_mem_alloc(gpu, qp, 8192, NULL, &mem), 0);
	assert_true(mem->local);
	read_back(dev, gpu, qp, mem);
	assert_int_equal(gpunvme_queue_recover(qp), 0);
	assert_string_equal(placement_of(qp), "vram");
	read_back(dev, gpu, qp, mem);
	gpunvme_mem_free(mem);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

/* Recovered only when the program says that no kernel has an old view. */
static void is_over(struct gpunvme_queue *qp)
{
	struct gpunvme_dq dq;

	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), -ESHUTDOWN);
	assert_int_equal(gpunvme_queue_recover(qp), -ENOSPC);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_queue_retire()"));
	assert_int_equal(gpunvme_queue_retire(qp), 0);
	assert_int_equal(gpunvme_queue_recover(qp), 0);
}

/* Of one GPU: a queue in its memory, one in memory of the host, and one that no self-test has proven. */
static void test_each_queue_has_its_place(void **state)
{
	const struct gpunvme_queue_opts untested = { sizeof(untested), GPUNVME_QUEUE_VRAM | GPUNVME_QUEUE_NO_SELFTEST, 16, 0, 0, 0, 0 };
	const struct gpunvme_mem_opts in_host = { sizeof(in_host), GPUNVME_MEM_HOST, 0 };
	struct gpunvme_queue *queue[3];
	struct gpunvme_dev *dev = open_remote(), *near;
	struct gpunvme_gpu *gpu, *cpu;
	struct gpunvme_mem *mem[5];

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open("soft:ram:4M", NULL, &near), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &queue[0]), 0);
	assert_int_equal(gpunvme_queue_create(near, gpu, NULL, &queue[1]), 0);
	assert_int_equal(gpunvme_queue_create(near, gpu, &untested, &queue[2]), 0);
	assert_string_equal(placement_of(queue[0]), "vram");
	assert_string_equal(placement_of(queue[1]), "soft");
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(gpunvme_mem_alloc(gpu, queue[i], 8192, NULL, &mem[i]), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 8192, NULL, &mem[3]), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, queue[0], 8192, &in_host, &mem[4]), 0);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(mem[i]->local, i == 0 || i == 2);
	read_back(dev, gpu, queue[0], mem[0]);
	assert_int_equal(gpunvme_mem_map(mem[1], near), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &cpu), 0);
	assert_int_equal(gpunvme_mem_alloc(cpu, queue[1], 8192, NULL, &mem[0]), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "the queue is of another GPU"));
	gpunvme_gpu_close(cpu);
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(gpunvme_mem_free(mem[i]), 0);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(gpunvme_queue_destroy(queue[i]), 0);
	assert_int_equal(gpunvme_dev_close(near), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	gpunvme_gpu_close(gpu);
}

/* In memory of the host where vram works, in any order with its buffers. */
static void test_a_queue_stays_in_the_host(void **state)
{
	struct gpunvme_queue_opts opts = { sizeof(opts), GPUNVME_QUEUE_HOST | GPUNVME_QUEUE_VRAM, 16, 0, 0, 0, 0 };
	struct gpunvme_dev *dev = open_remote();
	struct gpunvme_queue *queue, *best;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &queue), -EINVAL);
	opts.flags = GPUNVME_QUEUE_HOST;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &queue), 0);
	assert_string_equal(placement_of(queue), "direct-db");
	assert_int_equal(gpunvme_mem_alloc(gpu, queue, 8192, NULL, &mem), 0);
	assert_false(mem->local);
	read_back(dev, gpu, queue, mem);
	assert_int_equal(gpunvme_queue_destroy(queue), 0);
	assert_int_equal(gpunvme_mem_free(mem), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &best), 0);
	assert_string_equal(placement_of(best), "vram");
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &queue), -EXDEV);
	assert_non_null(strstr(gpunvme_errmsg(), "create the queues with GPUNVME_QUEUE_HOST"));
	assert_int_equal(gpunvme_queue_destroy(best), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	gpunvme_gpu_close(gpu);
}

/* The pages of a cache and landing memory lie with the queue that they are made for, too. */
static void test_caches_and_landing(void **state)
{
	const struct gpunvme_cache_opts opts = { .size = sizeof(opts), .frames = 4 };
	struct gpunvme_dev *dev = open_remote(), *near;
	struct gpunvme_landing *landing;
	struct gpunvme_queue *queue[2];
	struct gpunvme_cache *cache;
	struct gpunvme_gpu *gpu;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open("soft:ram:4M", NULL, &near), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &queue[0]), 0);
	assert_int_equal(gpunvme_queue_create(near, gpu, NULL, &queue[1]), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(gpunvme_cache_create(queue[i], &opts, &cache), 0);
		assert_int_equal(cache->mem->local, i == 0);
		assert_int_equal(cache->local.lane != 0, i == 1); /* copied to the GPU from memory of the host */
		assert_int_equal(gpunvme_cache_destroy(cache), 0);
		assert_int_equal(gpunvme_landing_create(queue[i], NULL, &landing), 0);
		assert_int_equal(landing->mem->local, i == 0);
		assert_int_equal(gpunvme_landing_destroy(landing), 0);
		assert_int_equal(gpunvme_queue_destroy(queue[i]), 0);
	}
	assert_int_equal(gpunvme_dev_close(near), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	gpunvme_gpu_close(gpu);
}

/*
 * All identifiers are in use, and the host cannot lock threads of a GPU out that ring an old doorbell late: the queue stays over,
 * by a recovery as by a reset, and others go on.
 */
static void test_every_identifier_in_use(void **state)
{
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp[2];
	char few[320];

	(void)state;
	snprintf(few, sizeof(few), "%s?queues=2", uri);
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open(few, NULL, &dev), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 8192, NULL, &mem), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp[i]), 0);
	for (unsigned turn = 0; turn < 3; turn++) {
		assert_int_equal(gpunvme_queue_recover(qp[0]), -ENOSPC);
		read_back(dev, gpu, qp[1], mem);
		is_over(qp[0]);
		read_back(dev, gpu, qp[0], mem);
		assert_int_equal(gpunvme_dev_reset(dev), -ENOSPC);
		is_over(qp[0]);
		is_over(qp[1]);
		read_back(dev, gpu, qp[0], mem);
		read_back(dev, gpu, qp[1], mem);
	}
	assert_int_equal(gpunvme_mem_free(mem), 0);
	assert_int_equal(gpunvme_queue_destroy(qp[0]), 0);
	assert_int_equal(gpunvme_queue_destroy(qp[1]), 0);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	gpunvme_gpu_close(gpu);
}

/* A GPU of whose memory devices may read old lines: rings lie there only on request. */
static void test_stale_reads(void **state)
{
	const struct gpunvme_queue_opts asked = { sizeof(asked), GPUNVME_QUEUE_VRAM, 16, 0, 0, 0, 0 };
	struct gpunvme_dev *dev = open_remote();
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_false(gpu->stale_reads); /* gfx1100 */
	gpu->stale_reads = true;
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_string_equal(placement_of(qp), "direct-db");
	assert_non_null(strstr(play.log, "placement vram is not tried: controllers may read old lines"));
	gpunvme_queue_destroy(qp);
	assert_int_equal(gpunvme_queue_create(dev, gpu, &asked, &qp), 0);
	assert_string_equal(placement_of(qp), "vram");
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

/* Each family, by its name: reads of devices meet a cache there, or none. */
static void test_families(void **state)
{
	static const struct {
		const char *gfx;
		bool stale;
	} of[] = { { "gfx906", true },	{ "gfx908", true },  { "gfx90c", true },   { "gfx1030", true },	 { "gfx1036", true },
		   { "gfx90a", false }, { "gfx942", false }, { "gfx1100", false }, { "gfx1151", false }, { "gfx1201", false } };
	struct gpunvme_gpu *gpu;
	unsigned opened = 0;
	int ret;

	(void)state;
	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
		pretend("MOCK_GFX", of[i].gfx);
		ret = gpunvme_gpu_open("hsa:0", NULL, &gpu);
		if (ret == -EOPNOTSUPP) /* threads that are executed machine code are those of a few families */
			continue;
		assert_int_equal(ret, 0);
		if (gpu->stale_reads != of[i].stale)
			fail_msg("%s", of[i].gfx);
		gpunvme_gpu_close(gpu);
		opened++;
	}
	if (opened == 1)
		skip(); /* a build for one family (GPUNVME_GFX) */
	assert_true(opened >= 2);
}

/* What a queue of the ordering tests is on. */
static void see_placement(void *ctx, uint64_t done, uint64_t total)
{
	const struct gpunvme_dev *dev = ctx;

	(void)done;
	(void)total;
	gnv_qp_placement(gnv_qp_first(dev), play.placement, sizeof(play.placement));
}

/* The order is asked for on the placement that nobody gets unasked, and in the host's memory. */
static void test_ordering_vram(void **state)
{
	struct gpunvme_dev *dev = open_remote();
	struct gpunvme_ordering_opts opts = GPUNVME_ORDERING_OPTS_INIT;
	struct gpunvme_ordering l = GPUNVME_ORDERING_INIT;
	struct gpunvme_gpu *gpu;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	gpu->stale_reads = true;
	opts.commands = 200;
	opts.timeout_ms = 60000;
	opts.progress = see_placement;
	opts.progress_ctx = dev;
	for (unsigned vram = 0; vram < 2; vram++) {
		opts.queue_flags = vram ? GPUNVME_QUEUE_VRAM : 0;
		assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, &l), 0);
		assert_int_equal(l.failed, 0);
		assert_string_equal(play.placement, vram ? "vram" : "direct-db");
		assert_int_equal(l.queue_flags, GPUNVME_QUEUE_CQE16 | GPUNVME_QUEUE_NO_READBACK | opts.queue_flags);
	}
	opts.queue_flags = GPUNVME_QUEUE_VRAM | GPUNVME_QUEUE_FORWARD;
	assert_int_equal(gpunvme_gpu_ordering_test(dev, gpu, &opts, &l), -EINVAL);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	gpunvme_gpu_close(gpu);
}

static void fall(const char *to, const char *why, bool direct)
{
	static const struct gnv_mem_ops far = { "bar", NULL, gnv_mem_attach_foreign, gnv_mem_detach_foreign };
	const bool lies = !atoi(why); /* of which only the time-out tells */
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, 16, lies ? 2000 : 0, 0, 0, 0 };
	struct gpunvme_dev *dev = open_remote();
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;

	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gnv_mem_host_alloc(8 << 20, 0, gnv_gpu_log(gpu), &play.decoy), 0);
	if (!direct)
		dev->nvme.port->bar0->ops = &far; /* without a DMA-BUF */
	play.refuse = -atoi(why);
	play.lie = lies ? SIZE_MAX : 0;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_string_equal(placement_of(qp), to);
	assert_non_null(strstr(play.log, "placement vram does not work, trying direct-db: "));
	assert_non_null(strstr(play.log, play.refuse ? "the test refuses" : "self-test"));
	assert_true(play.maps > 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	assert_int_equal(dq.flags & GPUNVME_DQ_READBACK_SQE, direct ? GPUNVME_DQ_READBACK_SQE : 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, qp, 8192, NULL, &mem), 0);
	assert_false(mem->local);
	read_back(dev, gpu, qp, mem);
	gpunvme_mem_free(mem);
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	gnv_mem_release(play.decoy);
	nothing_left();
}

/* Every refusal of the kernel, and a mapping that is not what it says, costs one placement and is reported. */
static void test_falls(void **state)
{
	static const int refusals[] = { EOPNOTSUPP, EINVAL, EFAULT, ENODEV, EIO, EPERM, ENOSPC };
	char number[16];
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		snprintf(number, sizeof(number), "%d", refusals[i]);
		fall("direct-db", number, true);
		fall("vfio-host+fwd", number, false);
	}
	fall("direct-db", "lie", true);
	fall("vfio-host+fwd", "lie", false);
}

static void end_play(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, struct gpunvme_queue *qp)
{
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	gnv_mem_release(play.decoy);
	memset(&play, 0, sizeof(play));
	nothing_left();
}

/* What the self-test says of the data alone, with rings that work. */
static void data_fails(const char *why)
{
	struct gnv_gpu_ops ops = gnv_gpu_hsa_ops;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	bool apart = play.apart, right = play.lanes_right, late = play.late;
	size_t lie = play.lie;
	struct gpunvme_dev *dev = open_remote();

	play.apart = apart;
	play.lanes_right = right;
	play.late = late;
	play.lie = lie;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	ops.mem_alloc = play_alloc;
	ops.launch = play_launch;
	gpu->ops = &ops;
	assert_int_equal(gnv_mem_host_alloc(8 << 20, 0, gnv_gpu_log(gpu), &play.decoy), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	if (strcmp(placement_of(qp), "direct-db"))
		fail_msg("the self-test did not say '%s': %s", why, play.log);
	assert_non_null(strstr(play.log, "placement vram does not work, trying direct-db: the self-test"));
	if (!strstr(play.log, why))
		fail_msg("'%s' does not say '%s'", play.log, why);
	end_play(dev, gpu, qp);
}

/* Old translations (or whatever an invalidation cures): the threads see what was there before, until they are invalidated. */
static int play_coherence(struct gpunvme_gpu *gpu, enum gpunvme_coherence what)
{
	if (what != GPUNVME_COHERENCE_INVALIDATE)
		return gnv_gpu_hsa_ops.coherence(gpu, what);
	play.invalidations++;
	if (play.no_registers)
		return gnv_fail(-ENOENT, "there are no such registers");
	play.lie = 0;
	return 0;
}

static void with_invalidation(uint32_t flags, bool no_registers, const char *placement, const char *says)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), flags, 16, 0, 0, 0, 0 };
	struct gpunvme_dev *dev = open_remote();
	struct gnv_gpu_ops ops = gnv_gpu_hsa_ops;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	ops.launch = play_launch;
	ops.coherence = play_coherence;
	gpu->ops = &ops;
	assert_int_equal(gnv_mem_host_alloc(8 << 20, 0, gnv_gpu_log(gpu), &play.decoy), 0);
	play.lie = 4096;
	play.late = true;
	play.no_registers = no_registers;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_string_equal(placement_of(qp), placement);
	assert_int_equal(play.invalidations, flags ? 1 : 0);
	if (!strstr(play.log, says))
		fail_msg("'%s' does not say '%s'", play.log, says);
	end_play(dev, gpu, qp);
}

static void test_invalidates(void **state)
{
	(void)state;
	with_invalidation(0, false, "direct-db", "the threads see the bytes that were there before");
	with_invalidation(GPUNVME_QUEUE_INVALIDATE, false, "vram", "were invalidated, and placement vram is tried again: the self-test");
	with_invalidation(GPUNVME_QUEUE_INVALIDATE, true, "direct-db", "are not invalidated: there are no such registers");
}

/* A first block of whatever words: the word that memory is filled with first, too. */
static void first_block(unsigned char byte)
{
	FILE *file = fopen(image_path("i"), "r+");
	unsigned char block[512];

	assert_non_null(file);
	memset(block, byte, sizeof(block));
	assert_int_equal(fwrite(block, sizeof(block), 1, file), 1);
	fclose(file);
}

/* Data that goes elsewhere, data that threads do not see, and data that threads see in memory which is not the GPU's any more. */
static void test_data(void **state)
{
	static const unsigned char first[] = { 0, 0x3c, 0xa5, 0xff };

	(void)state;
	for (size_t i = 0; i < sizeof(first); i++) {
		first_block(first[i]);
		play.lie = 4096;
		data_fails("data does not land where it should");
		play.lie = 4096;
		play.late = true;
		data_fails("the data is in memory, but the threads see the bytes that were there before");
		for (unsigned right = 0; right < 2; right++) {
			play.apart = true;
			play.lanes_right = right;
			data_fails("GPU and CPU access different memory");
		}
	}
	first_block((unsigned char)pattern(0));
}

/* Memory of the GPU that is used up is no reason to fail, nor is it lost for good. */
static void test_used_up(void **state)
{
	struct gpunvme_dev *dev = open_remote();
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	play.refuse = -ENOMEM;
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_string_equal(placement_of(qp), "direct-db");
	gpunvme_queue_destroy(qp);
	play.refuse = 0;
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_string_equal(placement_of(qp), "vram");
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

/* The runtime cannot export, or has no such memory: the placement is not possible, even on request. */
static void test_no_memory(void **state)
{
	const struct gpunvme_mem_opts vram = { sizeof(vram), GPUNVME_MEM_VRAM, 0 };
	struct gpunvme_dev *dev = open_remote();
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue *qp;

	(void)state;
	pretend("MOCK_LACKS", "fine");
	pretend("MOCK_MINOR", "7");
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 8192, &vram, &mem), -EOPNOTSUPP);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_string_equal(placement_of(qp), "direct-db");
	gpunvme_queue_destroy(qp);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
}

#define TEST(name) cmocka_unit_test_teardown(name, clear)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_soft_vram), TEST(test_apart),	  TEST(test_top),	TEST(test_falls),
		TEST(test_data),      TEST(test_used_up), TEST(test_no_memory), TEST(test_stale_reads), TEST(test_families), TEST(test_ordering_vram),
		TEST(test_invalidates),
		TEST(test_every_identifier_in_use), TEST(test_each_queue_has_its_place), TEST(test_caches_and_landing),
		TEST(test_a_queue_stays_in_the_host),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
