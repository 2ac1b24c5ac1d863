/* SPDX-License-Identifier: MIT */
/*
 * The kernel of a drive that runs on a GPU: the same text for CPU threads, NVIDIA and AMD GPUs. Each wave is a worker, which serves
 * the submission queues of its list, turn by turn. What it knows is in the memory of the GPU, so it may end after any pass, and the
 * next launch goes on where it was.
 */
#include "vdrive/kernel/queue.h"

/* Events are the host's to report: it counts, as it cannot take bits out of this memory while they are set. */
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

/* Collective. Return: commands that it has seen to. */
static uint32_t pass(struct gnv_vd *vd, uint32_t index)
{
	struct gnv_vd_worker *worker = &vd->worker[index];
	const uint64_t epoch = vd_get64(&vd->epoch), now = vd_now();
	const uint32_t silent = vd_first(vd_get32(&vd->silent));
	uint32_t qid = vd_first(vd_get32(&worker->first)), done = 0;

	vd_fence(); /* what the host changed before it wrote these words, a new queue for example, is loaded after them */
	for (; !silent && qid; qid = vd_first(vd_get32(&vd->sq[qid].next)))
		done += serve_queue(vd, worker, &vd->sq[qid], now);
	report_events(vd);
	if (vd_lane() == 0) {
		worker->looked = now;
		vd_fence(); /* all of this pass goes before what the host takes for its end */
		vd_put64(&vd->ack[index], epoch);
	}
	vd_meet();
	return done;
}

/* Return: it found work. */
static bool run(const struct gnv_vd_args *args, uint32_t index)
{
	struct gnv_vd *vd = (struct gnv_vd *)(uintptr_t)args->vd;
	const uint64_t born = vd_now();
	uint64_t busy = born, now = born;
	bool worked = false;
	uint32_t idle = 0;

	if (index >= vd->workers)
		return false;
	do {
		if (pass(vd, index)) {
			worked = true;
			idle = 0;
			busy = vd_now();
		} else {
			vd_rest(idle++);
		}
		now = vd_now();
	} while (!vd_first(vd_get32(&vd->stop)) && !vd_first(args->slice_ns && now - born >= args->slice_ns) &&
		 !vd_first(args->idle_ns && now - busy >= args->idle_ns && now > busy));
	if (vd_lane() == 0)
		__atomic_fetch_add(&vd->ended, 1, __ATOMIC_RELAXED);
	return worked;
}

#if defined(__NVPTX__)
void gnv_vd_kernel(struct gnv_vd_args args) __attribute__((nvptx_kernel));
void gnv_vd_kernel(struct gnv_vd_args args)
{
	run(&args, vd_wave());
}
#elif defined(__AMDGCN__)
void gnv_vd_kernel(struct gnv_vd_args args) __attribute__((amdgpu_kernel));
__attribute__((amdgpu_kernel)) void gnv_vd_kernel(struct gnv_vd_args args)
{
	run(&args, vd_wave());
}
#else
bool gnv_vd_kernel_cpu(const struct gnv_vd_args *args, uint32_t index)
{
	return run(args, index);
}
#endif
