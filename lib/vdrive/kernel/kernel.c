/* SPDX-License-Identifier: MIT */
/*
 * The kernel of a drive that runs on a GPU. CPU threads, NVIDIA and AMD GPUs run the same source. Each team is a worker, which
 * polls the submission queues of its list, turn by turn. Its state is in the memory of the GPU, so it may end after any pass, and
 * the next launch continues there.
 */
#include "vdrive/kernel/queue.h"

/* Count events for the host, which reports them. Counters, because the host cannot clear bits that threads set at the same time. */
static void report_events(struct gnv_vd *vd)
{
	uint32_t events = __atomic_load_n(&vd->view.io.events, __ATOMIC_RELAXED), i;

	if (!events || vd_lane() != 0)
		return;
	events = __atomic_exchange_n(&vd->view.io.events, 0, __ATOMIC_RELAXED);
	for (i = 0; i < GNV_SOFT_EVENTS; i++)
		if (events >> i & 1)
			__atomic_fetch_add(&vd->raised[i], 1, __ATOMIC_RELAXED);
}

#define WORKED_NS 500000u /* resolution of gnv_vd.worked */

/* A launch of a worker. */
struct shift {
	struct gnv_vd *vd;
	uint32_t index;
	uint64_t looked; /* when the last pass began */
	uint64_t epoch, acked; /* of thread 0: the epoch of this pass, and the last one that the host has got */
	bool stays; /* of thread 0: counted in vd->staying */
};

/*
 * Thread 0, after the team has met at the end of a pass: report a new epoch to the host. The host then takes the pass for ended, so
 * a fence orders the whole pass before. Most passes see no new epoch and need no fence. At the end, load the epoch of the next
 * pass, before that pass loads anything.
 */
static inline void acknowledge(struct shift *s)
{
	if (s->acked != s->epoch) {
		vd_fence();
		vd_put64(&s->vd->ack[s->index], s->epoch);
		s->acked = s->epoch;
	}
	s->epoch = vd_acquire64(&s->vd->epoch);
}

/* Collective. Return: commands that it handled. */
static inline uint32_t pass(struct shift *s, struct gnv_vd_work *work)
{
	struct gnv_vd_worker *worker = &s->vd->worker[s->index];
	struct turn t = { .vd = s->vd, .worker = worker, .work = work, .now = vd_first64(vd_now()), .looked = s->looked };
	const uint32_t *const at[VD_LOOKS] = { &s->vd->silent, &worker->first, &worker->first, &worker->first, &worker->first };
	uint32_t word[VD_LOOKS], qid, done = 0;

	vd_look(at, word);
	t.hook = vd_hook(s->vd);
	for (qid = word[1]; !word[0] && qid;)
		done += serve_queue(&t, &s->vd->sq[qid], &qid);
	report_events(s->vd);
	s->looked = t.now;
	if (vd_lane() == 0)
		worker->looked = t.now;
	vd_meet();
	if (vd_lane() == 0)
		acknowledge(s);
	return done;
}

/* One thread. @stay, ns. Return: since the host asked the launch to stay, no team has had work for that time. */
static VD_RARE bool is_unused(struct gnv_vd *vd, uint64_t stay, uint64_t now)
{
	uint64_t since = 0;

	if (__atomic_compare_exchange_n(&vd->stay_since, &since, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		since = now;
	since = gnv_max(since, vd_get64(&vd->worked));
	return now > since && now - since >= stay;
}

/* One thread: enter or leave the count of teams that stay. */
static VD_RARE void set_staying(struct shift *s, bool stays)
{
	if (s->stays == stays)
		return;
	s->stays = stays;
	__atomic_fetch_add(&s->vd->staying, stays ? 1 : UINT32_MAX, __ATOMIC_RELAXED);
}

/*
 * One thread. Return: this launch is over. A launch stays as a whole. If one of its teams has already ended by its slice, the
 * others end too, because no worker would poll that team's queues. The next launch stays then.
 */
static inline bool is_over(const struct gnv_vd_args *args, struct shift *s, uint64_t born, uint64_t busy)
{
	struct gnv_vd *vd = s->vd;
	const uint64_t now = vd_now(), asked = vd_get64((const uint64_t *)(const void *)&vd->stop); /* with vd->stay */

	if ((uint32_t)asked)
		return true;
	if (asked || s->stays)
		set_staying(s, asked && vd_get64(&vd->ended) % vd->workers == 0);
	if (s->stays)
		return is_unused(vd, (asked >> 32) * 1000, now);
	return (args->slice_ns && now - born >= args->slice_ns) || (args->idle_ns && now > busy && now - busy >= args->idle_ns);
}

/* Run one launch of a worker. Return: it found work. */
static inline bool run(const struct gnv_vd_args *args, uint32_t index, struct gnv_vd_work *work)
{
	struct shift s = { .vd = (struct gnv_vd *)(uintptr_t)args->vd, .index = index };
	const uint64_t born = vd_now();
	uint64_t busy = born, worked_at = 0; /* the value that it stored last */
	bool worked = false;
	uint32_t idle = 0;

	if (index >= s.vd->workers)
		return false;
	s.looked = s.vd->worker[index].looked;
	if (vd_lane() == 0) {
		vd_put64(&s.vd->runs[index], s.vd->runs[index] + 1);
		acknowledge(&s);
	}
	do {
		if (pass(&s, work)) {
			worked = true;
			idle = 0;
			busy = vd_now();
			if (vd_lane() == 0 && busy - worked_at >= WORKED_NS)
				vd_put64(&s.vd->worked, worked_at = busy);
		} else {
			vd_rest(idle++);
		}
	} while (!vd_first(vd_lane() == 0 && is_over(args, &s, born, busy)));
	if (vd_lane() == 0 && s.stays)
		set_staying(&s, false);
	if (vd_lane() == 0) {
		vd_put64(&s.vd->runs[index], s.vd->runs[index] + 1);
		__atomic_fetch_add(&s.vd->ended, 1, __ATOMIC_RELAXED);
	}
	return worked;
}

#if defined(__NVPTX__) || defined(__AMDGCN__)
static struct gnv_vd_work batch __attribute__((address_space(3), loader_uninitialized));
_Static_assert(sizeof(batch) <= (48u << 10) - 256, "a block of any NVIDIA GPU may use 48 KiB of shared memory by default");
#endif

#if defined(__NVPTX__)
void gnv_vd_kernel(struct gnv_vd_args args) __attribute__((nvptx_kernel));
void gnv_vd_kernel(struct gnv_vd_args args)
{
	run(&args, vd_team(), (struct gnv_vd_work *)&batch);
}
#elif defined(__AMDGCN__)
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected")))
KERNEL void gnv_vd_kernel(struct gnv_vd_args args);
KERNEL void gnv_vd_kernel(struct gnv_vd_args args)
{
	run(&args, vd_team(), (struct gnv_vd_work *)&batch);
}
#else
bool gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index)
{
	return run(args, index, &((struct gnv_vd *)(uintptr_t)args->vd)->worker[index].work);
}
#endif
