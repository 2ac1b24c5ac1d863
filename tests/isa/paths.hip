// SPDX-License-Identifier: MIT
// Kernels whose paths check_paths.py follows through the machine code. The doorbell is marked by an instruction that compilers never
// emit, so that the store behind it is known. ONLY selects one kernel.
#include <gpunvme/device/platform.h>

GNVD_FN void marked_doorbell(uint64_t a, uint32_t v)
{
	__asm__ volatile("s_setprio 3" ::: "memory");
	gnvd_doorbell(a, v);
}

#define gnvd_doorbell marked_doorbell
#include <gpunvme/device.h>

#define KERNEL extern "C" __attribute__((global)) void
#define SUBMIT 1
#define WAIT 2
#define TAKE 3
#define POLL 4

// One attempt, without the drain: behind an SQE that another wave announces a CQ doorbell may come first, which needs no write-back.
#if !defined(ONLY) || ONLY == SUBMIT
KERNEL path_submit(struct gpunvme_dq dq, struct gpunvme_dbuf buf, int *out)
{
	uint32_t lane = gpunvme_thread_id();
	struct gnvd_cmd c = { GPUNVME_IO_READ, 7, buf.iova + lane * 4096ull, 0, lane };
	struct gnvd_wave w;

	w.hint = gnvd_hint();
	gnvd_enter(&w, &dq, GNVD_SITE_SUBMIT);
	out[lane] = gnvd_try_submit(&dq, &w, 1, &c, gnvd_widest(&dq), NULL);
	gnvd_leave(&w);
}
#endif

#if !defined(ONLY) || ONLY == WAIT
KERNEL path_wait(struct gpunvme_dq dq, struct gpunvme_req *req, int *out)
{
	struct gpunvme_req mine = req[gpunvme_thread_id()];

	out[gpunvme_thread_id()] = gpunvme_wait(&dq, &mine, 0);
}
#endif

// What a lane does with its own result word: the load, and, when the command is over, the atomic that frees the identifier.
#if !defined(ONLY) || ONLY == TAKE
KERNEL path_take(struct gpunvme_dq dq, uint64_t gen, uint32_t cid, int *out)
{
	struct gpunvme_req req = { gen, 0, dq.tag, cid };
	int ret = 0;

	if (gnvd_take(&dq, &req, &ret))
		out[gpunvme_thread_id()] = ret;
}
#endif

// A ring word is polled until it changes.
#if !defined(ONLY) || ONLY == POLL
KERNEL path_poll(uint64_t at, uint32_t old, uint32_t *out)
{
	uint32_t seen, turn = 0;

	while ((seen = gnvd_load_ring32(at)) == old)
		gnvd_pause(turn++);
	gnvd_acquire_ring32(at);
	out[gpunvme_thread_id()] = seen + out[32];
}
#endif
