/* SPDX-License-Identifier: MIT */
/*
 * A test of tests/device with its lanes on the executor. SOURCE is the test, KERNELS what it launches: K(function, argument). Its
 * controllers have no threads; they get their turns while lanes run and while the test waits.
 */
#include "gfx/lanes.h"

#include <gpunvme/device.h>
#include <sched.h>
#include <time.h>

#define mini_start lanes_mini_start
#define mini_stop lanes_mini_stop
#define sched_yield() lanes_idle()
#define READS_EACH 60
#define RIG_MEMORY(name, base, bytes, flags) lanes_memory(name, base, bytes, flags)
#define RIG_FORGET(base) lanes_forget(base)
#define RIG_READONLY GFX_READONLY
#define RIG_WRITTEN GFX_DEVICE
#include SOURCE
#undef mini_start
#undef mini_stop

#define K(function, argument) { function, "run_" #function, sizeof(argument) },
const struct lanes_kernel lanes_kernels[] = { KERNELS { NULL, NULL, 0 } };

#define RIGS 4

static struct mini *served[RIGS];

static void serve(void)
{
	unsigned i;

	for (i = 0; i < RIGS; i++)
		if (served[i] && lanes_draw(2))
			mini_turn(served[i]);
}

/* From now on the kernels know the queue. */
void lanes_mini_start(struct mini *m)
{
	struct rig *r = (struct rig *)(void *)((char *)m - offsetof(struct rig, ctrl));
	unsigned i;

	for (i = 0; served[i]; i++)
		;
	served[i] = m;
	lanes_outside = serve;
	lanes_tick = 1000;
	lanes_queue(&r->dq, true);
	lanes_memory("descriptor of the queue", &r->dq, sizeof(r->dq), GFX_READONLY);
	lanes_memory("descriptor of the buffer", &r->dbuf, sizeof(r->dbuf), GFX_READONLY);
	mini_begin(m);
}

void lanes_mini_stop(struct mini *m)
{
	struct rig *r = (struct rig *)(void *)((char *)m - offsetof(struct rig, ctrl));
	unsigned i;

	for (i = 0; i < RIGS; i++)
		served[i] = served[i] == m ? NULL : served[i];
	lanes_queue(&r->dq, false);
	lanes_forget(&r->dq);
	lanes_forget(&r->dbuf);
}
