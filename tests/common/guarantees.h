/* SPDX-License-Identifier: MIT */
/*
 * What the tests share that hold each injected fault of a drive to what docs/reliability.md guarantees: two queues with threads of
 * their own, of which the first meets with it, and the ways by which things come back.
 */
#ifndef TESTS_COMMON_GUARANTEES_H
#define TESTS_COMMON_GUARANTEES_H

#include <gpunvme/gpunvme.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define GUARANTEES_BLOCK 512u

enum comes_back { ALONE, RECOVERED, RESET, NEVER }; /* nothing was lost; by a new queue; by a reset of the controller; not at all */

struct guarantee {
	const char *what;
	int lane;	       /* its result; of a command's status without DNR and More */
	enum comes_back comes; /* no worse than this */
	bool others;	       /* another queue is hurt, too */
	int also;	       /* the thread may get this in place of it; 0: may not */
};

/* A queue and its thread, which are alone on their GPU: a kernel that waits keeps no other from starting. */
struct side {
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_dq dq;
	struct gpunvme_mem *mem[2]; /* what is written, what is read */
	struct gpunvme_dbuf dbuf[2];
};

struct outcome {
	int status, other; /* of the thread, without DNR and More, and of one that reads through the other queue meanwhile */
	uint64_t told_ns, back_ns;
	enum comes_back came;
};

struct rig {
	struct gpunvme_dev *dev;
	struct side side[2];
	bool kernels;	     /* the threads are not the CPU's: they run the library's own kernels */
	uint64_t lba;	     /* a block that is written when all is well again */
	uint32_t timeout_ms; /* by which threads get their result at the latest */
	uint32_t admin_ms;   /* the time-out of admin commands */
	uint32_t grace_ms;   /* of a machine that has other work */
	uint32_t answered;   /* atomic: the thread was told */
	int last, other;     /* what ended the last try of both sides; what the other thread was told */
};

/* @gpu: a name; @flags: of the memory; @timeout_ms: of a command. rig->dev is open. */
void rig_open(struct rig *rig, const char *gpu, uint32_t flags, uint32_t timeout_ms);
/* Closes the device, too. */
void rig_close(struct rig *rig);
/* New views; an error of gpunvme_queue_view(). */
int rig_look(struct rig *rig);
/* One block by a thread of that side. The result of the thread. */
int rig_move(struct rig *rig, unsigned side, bool write, uint64_t lba);

/*
 * @fault is called while the other side reads, and returns the result of thread 0, with its time after the fault in @told_ns. What
 * can be recovered is recovered, and all of that is compared with the guarantee.
 */
typedef int rig_fault_fn(struct rig *rig, void *arg, uint64_t *told_ns);
struct outcome rig_meet(struct rig *rig, const struct guarantee *p, rig_fault_fn *fault, void *arg);

/* Worst of several. */
struct worst {
	struct outcome o;
	unsigned times, others;
};
void worst_add(struct worst *worst, const struct outcome *o);
/* A line for scripts/reliability. @kind: what it is called there, "fault" or "host_fault". */
void worst_print(const struct worst *worst, const struct guarantee *p, const char *on, const char *kind);

#endif
