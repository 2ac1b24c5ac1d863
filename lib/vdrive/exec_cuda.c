/* SPDX-License-Identifier: MIT */
/*
 * The kernel on an NVIDIA GPU, launched in a stream of the highest priority.
 */
#include <errno.h>
#include <stdlib.h>

#include "mem/mem.h"
#include "os/nvidia/cuda.h"
#include "util/bits.h"
#include "util/clock.h"
#include "vdrive/kernel/ptx.h"
#include "vdrive/launcher.h"
#include "vdrive/shared.h"

#define KERNEL 0u
#define STAY_BEGINS_MS 1000u
#define STAY_US 10000u /* while memory is unregistered, the drive stays for this time without any command */

struct exec_cuda {
	struct gnv_vd_exec exec;
	struct gnv_cuda *cuda;
	const struct gnv_log *log;
	void *stream;
	struct gnv_vd_args args;
	struct gnv_vd_launcher launcher;
	struct gnv_cuda_resident resident;
};

static struct exec_cuda *cuda_of(struct gnv_vd_exec *exec)
{
	return gnv_container_of(exec, struct exec_cuda, exec);
}

/* ---- Opening ---- */

static int parse_index(const char *rest, unsigned *index)
{
	char *end = NULL;
	const unsigned long value = rest && *rest >= '0' && *rest <= '9' ? strtoul(rest, &end, 10) : 0;

	if (!end || *end || value > 1023)
		return gnv_fail(-EINVAL, "on=cuda:%.40s in the URI: the number of a GPU must follow, as in on=cuda:0", rest ? rest : "");
	*index = (unsigned)value;
	return 0;
}

/* @room: set to the teams that run at the same time, if nothing else does */
static int load(struct exec_cuda *c, unsigned index, uint32_t *room)
{
	static const char *const names[] = { "gnv_vd_kernel" };
	const struct gnv_cuda_code code = { gnv_vd_ptx(), names, KERNEL, 1 };
	int ret = gnv_cuda_open(index, &c->cuda);

	if (ret)
		return ret;
	gnv_cuda_set_bounded(c->cuda);
	ret = gnv_cuda_load(c->cuda, &code);
	if (!ret)
		ret = gnv_cuda_room(c->cuda, KERNEL, GNV_VD_LANES, room);
	if (!ret)
		ret = gnv_cuda_stream_new(c->cuda, &c->stream);
	if (ret)
		gnv_cuda_close(c->cuda);
	return ret;
}

static int cuda_open(const struct gnv_vd_wish *wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec)
{
	struct exec_cuda *c;
	unsigned index = 0;
	uint32_t room = 0;
	int ret = parse_index(wish->rest, &index);

	if (!ret && !gnv_vd_ptx())
		ret = gnv_fail(-EOPNOTSUPP, "this build of the library has no code for NVIDIA GPUs: it was built without clang 19. Install it "
					    "and build it again");
	if (ret)
		return ret;
	c = calloc(1, sizeof(*c));
	if (!c)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = load(c, index, &room);
	if (ret) {
		free(c);
		return ret;
	}
	c->exec.ops = &gnv_vd_exec_cuda;
	c->log = log;
	*workers = (uint32_t)gnv_min(gnv_min(wish->queues, GNV_VD_WORKERS), room);
	c->launcher = gnv_vd_launcher_of(&c->exec, wish, log, *workers);
	*exec = &c->exec;
	return 0;
}

/* If a kernel did not end, of the drive or of the program, its memory stays until the process ends (gnv_cuda_close()). */
static void cuda_close(struct gnv_vd_exec *exec)
{
	struct exec_cuda *c = cuda_of(exec);

	if (c->stream)
		gnv_cuda_stream_end(c->cuda, c->stream, 0);
	if (gnv_cuda_close(c->cuda))
		gnv_log(c->log, GPUNVME_LOG_ERROR,
			"the drive soft:vram: leaves its code loaded, and memory of the host registered, until the process ends: %s",
			gpunvme_errmsg());
	free(c);
}

/* ---- Memory ---- */

static int cuda_alloc(struct gnv_vd_exec *exec, size_t len, uint64_t *at)
{
	const int ret = gnv_cuda_alloc(cuda_of(exec)->cuda, len, at);

	if (ret == -ENOMEM)
		return gnv_fail(ret, "%s has no %zu MiB of memory left for the drive. Use a smaller size, or another GPU",
				gnv_cuda_name(cuda_of(exec)->cuda), len >> 20);
	return ret;
}

static void cuda_free(struct gnv_vd_exec *exec, uint64_t at)
{
	gnv_cuda_free(cuda_of(exec)->cuda, at);
}

static int over(const struct exec_cuda *c, int ret)
{
	return ret && gnv_cuda_is_over(c->cuda) ? -ENOTRECOVERABLE : ret;
}

static int cuda_peek(struct gnv_vd_exec *exec, void *to, uint64_t at, size_t len)
{
	return over(cuda_of(exec), gnv_cuda_read(cuda_of(exec)->cuda, to, at, len));
}

static int cuda_poke(struct gnv_vd_exec *exec, uint64_t at, const void *from, size_t len)
{
	return over(cuda_of(exec), gnv_cuda_write(cuda_of(exec)->cuda, at, from, len));
}

static int cuda_show(struct gnv_vd_exec *exec, void *cpu, size_t len, uint64_t *at, void **cookie)
{
	bool ours = false;
	const int ret = gnv_cuda_register(cuda_of(exec)->cuda, cpu, len, false, at, &ours);

	*cookie = !ret && ours ? cpu : NULL;
	return ret;
}

static int cuda_hide(struct gnv_vd_exec *exec, void *cookie)
{
	return cookie ? gnv_cuda_unregister(cuda_of(exec)->cuda, cookie) : 0; /* also -EAGAIN */
}

static void cuda_detach(void *cookie)
{
	gnv_cuda_detach(cookie);
}

static int cuda_reach(struct gnv_vd_exec *exec, const struct gpunvme_mem *mem, uint64_t *at)
{
	int ret;

	if (!mem->gpu || mem->gpu->info.kind != GPUNVME_GPU_CUDA)
		return gnv_fail(-EOPNOTSUPP, "a drive on an NVIDIA GPU reaches memory of the host and of NVIDIA GPUs, and no other");
	ret = gnv_cuda_reach(cuda_of(exec)->cuda, mem->lane, mem->len);
	if (!ret)
		*at = mem->lane;
	return ret;
}

/* ---- Launches ---- */

static int launch(struct gnv_vd_exec *exec)
{
	struct exec_cuda *c = cuda_of(exec);
	const struct gnv_cuda_job job = { .kernel = KERNEL,
					  .args = &c->args,
					  .groups = c->launcher.workers,
					  .group_lanes = GNV_VD_LANES };

	return over(c, gnv_cuda_begin(c->cuda, c->stream, &job));
}

static bool cuda_is_queued(struct gnv_vd_exec *exec)
{
	return gnv_vd_launcher_is_queued(&cuda_of(exec)->launcher);
}

static int set_stay(struct exec_cuda *c, uint32_t us)
{
	return gnv_cuda_write(c->cuda, c->args.vd + offsetof(struct gnv_vd, stay), &us, sizeof(us));
}

/*
 * Make launches stay, or end by their slices again. With @on, return when all teams of one launch stay. If a write fails, launches
 * end by their slices as before. If no launch begins, because other work fills the GPU, return after STAY_BEGINS_MS.
 */
static void stay(void *ctx, bool on)
{
	struct gnv_deadline deadline = gnv_deadline_in(STAY_BEGINS_MS);
	struct exec_cuda *c = ctx;
	const uint64_t at = c->args.vd + offsetof(struct gnv_vd, stay_since);
	const uint64_t since = 0;
	uint32_t staying = 0;

	if (gnv_cuda_write(c->cuda, at, &since, sizeof(since)) || set_stay(c, on ? STAY_US : 0))
		return;
	while (on && !gnv_cuda_read(c->cuda, &staying, c->args.vd + offsetof(struct gnv_vd, staying), sizeof(staying)) &&
	       staying != c->launcher.workers)
		if (!gnv_deadline_poll_again(&deadline))
			return;
}

static int cuda_start(struct gnv_vd_exec *exec, uint64_t vd, uint64_t slice_ns)
{
	struct exec_cuda *c = cuda_of(exec);
	int ret;

	if (!slice_ns)
		return gnv_fail(-EINVAL, "slice=0 in the URI: with on=cuda:N all work that waits for the GPU, such as loading code, would never "
					 "end. Use slice=1 or more");
	c->args = (struct gnv_vd_args){ .vd = vd, .slice_ns = slice_ns };
	ret = gnv_vd_launcher_start(&c->launcher, launch, &c->args);
	if (ret)
		return ret;
	c->resident = (struct gnv_cuda_resident){ .ms = (uint32_t)(GNV_VD_AHEAD * slice_ns / 1000000), .stay = stay, .ctx = c };
	gnv_cuda_resident_add(c->cuda, &c->resident);
	return 0;
}

static bool cuda_stop(struct gnv_vd_exec *exec, uint32_t ms)
{
	struct exec_cuda *c = cuda_of(exec);

	if (c->launcher.started)
		gnv_cuda_resident_remove(&c->resident);
	if (!gnv_vd_launcher_stop(&c->launcher, ms))
		return false;
	if (c->stream && !gnv_cuda_stream_end(c->cuda, c->stream, ms))
		return false;
	c->stream = NULL;
	return true;
}

const struct gnv_vd_exec_ops gnv_vd_exec_cuda = {
	.name = "cuda",
	.open = cuda_open,
	.close = cuda_close,
	.alloc = cuda_alloc,
	.free = cuda_free,
	.peek = cuda_peek,
	.poke = cuda_poke,
	.show = cuda_show,
	.hide = cuda_hide,
	.detach = cuda_detach,
	.reach = cuda_reach,
	.start = cuda_start,
	.is_queued = cuda_is_queued,
	.stop = cuda_stop,
};
