/* SPDX-License-Identifier: MIT */
/*
 * The kernel on an AMD GPU, through ROCm's HSA runtime, launched in a queue of its own. Host and kernel access the drive's memory
 * at the same time, so no cache of the GPU keeps it.
 */
#include <errno.h>
#include <stdlib.h>

#include "os/amd/hsa.h"
#include "os/linux/sys.h"
#include "util/bits.h"
#include "vdrive/kernel/gfx.h"
#include "vdrive/launcher.h"
#include "vdrive/shared.h"

#define CLOCK_HZ 100000000u /* vd_now() */

struct exec_hsa {
	struct gnv_vd_exec exec;
	struct gnv_hsa *hsa;
	const struct gnv_log *log;
	struct gnv_vd_args args;
	struct gnv_vd_launcher launcher;
	bool unlocked; /* memory went that was not unmapped */
};

static struct exec_hsa *hsa_of(struct gnv_vd_exec *exec)
{
	return gnv_container_of(exec, struct exec_hsa, exec);
}

/* ---- Opening ---- */

static int load(struct gnv_hsa *hsa)
{
	const struct gnv_hsa_info *info = gnv_hsa_info(hsa);
	struct gnv_vd_gfx code;
	int ret = gnv_vd_gfx_find(info->isa, &code);

	if (ret)
		return ret;
	if (info->clock_hz != CLOCK_HZ)
		return gnv_fail(-EOPNOTSUPP, "a drive soft:vram: does not run on GPU %s: its clock has %llu Hz, and the kernel counts 10 ns",
				info->bdf, (unsigned long long)info->clock_hz);
	return gnv_hsa_load(hsa, code.elf, code.len);
}

/* A unit has local memory for one team. */
static uint32_t room(const struct gnv_hsa *hsa)
{
	const uint32_t units = gnv_hsa_info(hsa)->units;

	return units ? units : GNV_VD_WORKERS;
}

static int hsa_open(const struct gnv_vd_wish *wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec)
{
	struct exec_hsa *h;
	int ret;

	if (!wish->rest)
		return gnv_fail(-EINVAL, "on=hsa in the URI: the number or PCI address of a GPU must follow, as in on=hsa:0");
	h = calloc(1, sizeof(*h));
	if (!h)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = gnv_hsa_open(wish->rest, &h->hsa);
	if (ret)
		goto free_it;
	ret = load(h->hsa);
	if (ret)
		goto close_it;
	h->exec.ops = &gnv_vd_exec_hsa;
	h->log = log;
	*workers = (uint32_t)gnv_min(gnv_min(wish->queues, GNV_VD_WORKERS), room(h->hsa));
	h->launcher = gnv_vd_launcher_of(&h->exec, wish, log, *workers);
	*exec = &h->exec;
	return 0;
close_it:
	gnv_hsa_close(h->hsa);
free_it:
	free(h);
	return ret;
}

static void hsa_close(struct gnv_vd_exec *exec)
{
	struct exec_hsa *h = hsa_of(exec);

	gnv_hsa_close(h->hsa);
	free(h);
}

/* ---- Memory ---- */

static int hsa_alloc(struct gnv_vd_exec *exec, size_t len, uint64_t *at)
{
	void *ptr = NULL;
	bool cpu;
	const int ret = gnv_hsa_alloc(hsa_of(exec)->hsa, gnv_align_up(len, gnv_sys_page_size()), true, &ptr, &cpu);

	*at = (uintptr_t)ptr;
	if (ret == -ENOMEM)
		return gnv_fail(ret, "GPU %s has no %zu MiB of memory left for the drive. Use a smaller size, or another GPU",
				gnv_hsa_info(hsa_of(exec)->hsa)->bdf, len >> 20);
	return ret;
}

static void hsa_free(struct gnv_vd_exec *exec, uint64_t at)
{
	gnv_hsa_free(hsa_of(exec)->hsa, (void *)(uintptr_t)at);
}

/* After a fault nothing of this process runs on the GPU any more. */
static int over(const struct exec_hsa *h, int ret)
{
	return ret && gnv_hsa_usable(h->hsa) ? -ENOTRECOVERABLE : ret;
}

static int hsa_peek(struct gnv_vd_exec *exec, void *to, uint64_t at, size_t len)
{
	return over(hsa_of(exec), gnv_hsa_peek(hsa_of(exec)->hsa, to, at, len));
}

static int hsa_poke(struct gnv_vd_exec *exec, uint64_t at, const void *from, size_t len)
{
	return over(hsa_of(exec), gnv_hsa_poke(hsa_of(exec)->hsa, at, from, len));
}

/* The runtime locks whole pages. */
static int hsa_show(struct gnv_vd_exec *exec, void *cpu, size_t len, uint64_t *at, void **cookie)
{
	const uintptr_t page = gnv_sys_page_size(), skip = (uintptr_t)cpu % page;
	struct gnv_hsa_locked *locked = NULL;
	uint64_t lane;
	const int ret = gnv_hsa_lock(hsa_of(exec)->hsa, (char *)cpu - skip, gnv_align_up(skip + len, page), &lane, &locked);

	if (ret)
		return ret;
	*at = lane + skip;
	*cookie = locked;
	return 0;
}

static int hsa_hide(struct gnv_vd_exec *exec, void *cookie)
{
	if (cookie)
		gnv_hsa_unlock(hsa_of(exec)->hsa, cookie);
	return 0;
}

static int hsa_reach(struct gnv_vd_exec *exec, const struct gpunvme_mem *mem, uint64_t *at)
{
	(void)exec;
	(void)mem;
	(void)at;
	return gnv_fail(-EOPNOTSUPP, "a drive soft:vram: with on=hsa:N does not reach memory of a device. Use memory of the host");
}

/* ---- Launches ---- */

/* What the program freed without unmapping it is no reason to stop: commands for it end the drive, those for other memory go on. */
static void renew(struct exec_hsa *h)
{
	const bool failed = gnv_hsa_renew(h->hsa, NULL);

	if (failed && !h->unlocked && !gnv_vd_launcher_is_stopped(&h->launcher))
		gnv_log(h->log, GPUNVME_LOG_ERROR, "the drive soft:vram: %s (said once)", gpunvme_errmsg());
	h->unlocked |= failed;
}

static int launch(struct gnv_vd_exec *exec)
{
	struct exec_hsa *h = hsa_of(exec);
	const uint32_t width = gnv_hsa_info(h->hsa)->width;
	const struct gnv_hsa_job job = { .name = "gnv_vd_kernel.kd",
					 .args = &h->args,
					 .args_len = sizeof(h->args),
					 .threads = h->launcher.workers * width,
					 .group = width };

	renew(h);
	return over(h, gnv_hsa_begin(h->hsa, &job));
}

static bool hsa_is_queued(struct gnv_vd_exec *exec)
{
	return gnv_vd_launcher_is_queued(&hsa_of(exec)->launcher);
}

static int hsa_start(struct gnv_vd_exec *exec, uint64_t vd, uint64_t slice_ns)
{
	struct exec_hsa *h = hsa_of(exec);

	if (!slice_ns)
		return gnv_fail(-EINVAL, "slice=0 in the URI: with on=hsa:N memory of the host is made uncached again between launches. Use "
					 "slice=1 or more");
	h->args = (struct gnv_vd_args){ .vd = vd, .slice_ns = slice_ns };
	return gnv_vd_launcher_start(&h->launcher, launch, &h->args);
}

/* After a time-out the controller tries again. After a failure of the GPU all stays, as in gnv_hsa_close(). */
static bool hsa_stop(struct gnv_vd_exec *exec, uint32_t ms)
{
	struct exec_hsa *h = hsa_of(exec);

	if (!gnv_vd_launcher_stop(&h->launcher, ms))
		return false;
	if (!h->launcher.launched || !gnv_hsa_drain(h->hsa, ms))
		return true;
	gnv_log(h->log, GPUNVME_LOG_ERROR, "the drive soft:vram: does not end, and its memory stays: %s", gpunvme_errmsg());
	return false;
}

const struct gnv_vd_exec_ops gnv_vd_exec_hsa = {
	.name = "hsa",
	.open = hsa_open,
	.close = hsa_close,
	.alloc = hsa_alloc,
	.free = hsa_free,
	.peek = hsa_peek,
	.poke = hsa_poke,
	.show = hsa_show,
	.hide = hsa_hide,
	.reach = hsa_reach,
	.start = hsa_start,
	.is_queued = hsa_is_queued,
	.stop = hsa_stop,
};
