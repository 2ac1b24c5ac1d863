/* SPDX-License-Identifier: MIT */
#include "common/guarantees.h"

#include <gpunvme/device.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/good.h"
#include "util/clock.h"

static const char *const ways[] = { "nothing to do", "new queue", "controller reset", "dead" };

static void open_side(struct rig *rig, struct side *s, const char *gpu, uint32_t flags, uint32_t timeout_ms)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_mem_opts kind = GPUNVME_MEM_OPTS_INIT;

	opts.cmd_timeout_ms = timeout_ms;
	opts.depth = 16;
	kind.flags = flags;
	good(gpunvme_gpu_open(gpu, NULL, &s->gpu));
	good(gpunvme_queue_create(rig->dev, s->gpu, &opts, &s->qp));
	for (int i = 0; i < 2; i++) {
		good(gpunvme_mem_alloc(s->gpu, s->qp, GUARANTEES_BLOCK, &kind, &s->mem[i]));
		good(gpunvme_mem_map(s->mem[i], rig->dev));
		good(gpunvme_mem_dbuf(s->mem[i], rig->dev, &s->dbuf[i]));
	}
}

void rig_open(struct rig *rig, const char *gpu, uint32_t flags, uint32_t timeout_ms)
{
	rig->kernels = strncmp(gpu, "cpu", 3) != 0;
	for (int i = 0; i < 2; i++)
		open_side(rig, &rig->side[i], gpu, flags, timeout_ms);
	good(rig_look(rig));
}

void rig_close(struct rig *rig)
{
	for (int i = 0; i < 2; i++) {
		struct side *s = &rig->side[i];

		gpunvme_queue_destroy(s->qp);
		for (int j = 0; j < 2; j++)
			gpunvme_mem_unmap(s->mem[j], rig->dev);
	}
	good(gpunvme_dev_close(rig->dev));
	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < 2; j++)
			good(gpunvme_mem_free(rig->side[i].mem[j]));
		gpunvme_gpu_close(rig->side[i].gpu);
	}
}

int rig_look(struct rig *rig)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	int ret = 0;

	view.flags = GPUNVME_VIEW_WRITE;
	for (int i = 0; i < 2 && !ret; i++) {
		gpunvme_queue_retire(rig->side[i].qp);
		ret = gpunvme_queue_view(rig->side[i].qp, &view, &rig->side[i].dq);
	}
	return ret;
}

int rig_move(struct rig *rig, unsigned side, bool write, uint64_t lba)
{
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	struct side *s = &rig->side[side];
	const struct gpunvme_dbuf *dbuf = &s->dbuf[!write];

	if (!rig->kernels)
		return write ? gpunvme_write(&s->dq, dbuf, 0, lba << s->dq.lba_shift, 1ull << s->dq.lba_shift, 0)
			     : gpunvme_read(&s->dq, dbuf, 0, lba << s->dq.lba_shift, 1ull << s->dq.lba_shift);
	copy.flags = write ? GPUNVME_COPY_WRITE : 0;
	copy.threads = 1;
	copy.lba = lba;
	copy.nblocks = 1;
	return gpunvme_run_copy(s->gpu, &s->dq, 1, dbuf, &copy);
}

/* The thread of the other side, until the first was told, and once more. */
static void *go_on(void *arg)
{
	struct rig *rig = arg;
	bool last = false;

	while (!rig->other && !last) {
		last = __atomic_load_n(&rig->answered, __ATOMIC_ACQUIRE);
		usleep(5000);
		rig->other = rig_move(rig, 1, false, 5);
	}
	return NULL;
}

static bool works(struct rig *rig)
{
	int status = rig_look(rig);

	for (unsigned i = 0; i < 2 && !status; i++) {
		struct side *s = &rig->side[i];

		memset(gpunvme_mem_ptr(s->mem[0]), 0x30 + (int)i, GUARANTEES_BLOCK);
		status = rig_move(rig, i, true, rig->lba);
		status = status ? status : rig_move(rig, i, false, rig->lba);
		if (!status && memcmp(gpunvme_mem_ptr(s->mem[0]), gpunvme_mem_ptr(s->mem[1]), GUARANTEES_BLOCK))
			fail_msg("what was written after the fault is not there");
	}
	rig->last = status;
	return !status;
}

/* The gentlest way that helps. */
static enum comes_back bring_back(struct rig *rig)
{
	struct gpunvme_dev_info before = { .size = sizeof(before) }, after = { .size = sizeof(after) };

	if (works(rig))
		return ALONE;
	good(gpunvme_dev_get_info(rig->dev, &before));
	for (int i = 0; i < 2; i++) {
		good(gpunvme_queue_retire(rig->side[i].qp)); /* no thread runs */
		if (gpunvme_queue_recover(rig->side[i].qp)) {
			print_message("%s\n", gpunvme_errmsg());
			return NEVER;
		}
	}
	good(gpunvme_dev_get_info(rig->dev, &after));
	if (!works(rig))
		fail_msg("nothing works after a recovery: %d %s", rig->last, gpunvme_errmsg());
	return after.generation == before.generation ? RECOVERED : RESET;
}

static void hold(const struct rig *rig, const struct guarantee *p, const struct outcome *o)
{
	const unsigned long long told_ms = o->told_ns / GNV_NS_PER_MS, back_ms = o->back_ns / GNV_NS_PER_MS;

	if (o->status != p->lane && !(p->also && o->status == p->also))
		fail_msg("%s: the lane was told %d (%s), not %d", p->what, o->status, gpunvme_strerror(o->status), p->lane);
	if (o->came > p->comes)
		fail_msg("%s: %s was needed, and %s was guaranteed", p->what, ways[o->came], ways[p->comes]);
	if (o->other && !p->others)
		fail_msg("%s: another queue was told %d", p->what, o->other);
	if (told_ms > rig->timeout_ms + rig->grace_ms || back_ms > 8ull * rig->admin_ms + rig->grace_ms)
		fail_msg("%s: told after %llu ms, back after %llu", p->what, told_ms, back_ms);
}

struct outcome rig_meet(struct rig *rig, const struct guarantee *p, rig_fault_fn *fault, void *arg)
{
	struct outcome o = { 0 };
	pthread_t other;
	uint64_t start;

	rig->other = 0;
	__atomic_store_n(&rig->answered, 0, __ATOMIC_RELAXED);
	assert_int_equal(pthread_create(&other, NULL, go_on, rig), 0);
	o.status = fault(rig, arg, &o.told_ns);
	__atomic_store_n(&rig->answered, 1, __ATOMIC_RELEASE);
	pthread_join(other, NULL);
	if (o.status > 0)
		o.status &= (int)GPUNVME_ST_CODE;
	o.other = rig->other;
	start = gnv_clock_ns();
	o.came = bring_back(rig);
	o.back_ns = gnv_clock_ns() - start;
	hold(rig, p, &o);
	return o;
}

void worst_add(struct worst *worst, const struct outcome *o)
{
	struct outcome *w = &worst->o;

	w->told_ns = o->told_ns > w->told_ns ? o->told_ns : w->told_ns;
	w->back_ns = o->back_ns > w->back_ns ? o->back_ns : w->back_ns;
	w->came = o->came > w->came ? o->came : w->came;
	worst->others += o->other != 0;
	worst->times++;
}

void worst_print(const struct worst *worst, const struct guarantee *p, const char *on, const char *kind)
{
	const struct outcome *o = &worst->o;

	printf("{\"on\": \"%s\", \"%s\": \"%s\", \"times\": %u, \"lane\": \"%s%s%s\", ", on, kind, p->what, worst->times,
	       gpunvme_strerror(p->lane), p->also ? ", or " : "", p->also ? gpunvme_strerror(p->also) : "");
	printf("\"told_ms\": %.1f, \"others\": %u, \"back\": \"%s\", \"back_ms\": %.1f}\n", (double)o->told_ns / 1e6, worst->others,
	       ways[o->came], (double)o->back_ns / 1e6);
	fflush(stdout);
}
