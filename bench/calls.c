/* SPDX-License-Identifier: MIT */
/*
 * calls NAME N: N calls of the device header by one CPU thread, which is also the controller. `scripts/api-figures --instructions`
 * compiles it with the headers of several trees, and counts the instructions of measured() without those of controller().
 *
 * The headers of docs/results/api.md from before count in blocks and have another name for zero.
 */
#include <gpunvme/device/platform.h>

static uint64_t fixed_clock(void);
void controller(void);

#define gnvd_clock() fixed_clock()
#define gnvd_pause(turn) ((void)(turn), controller())

#include "common/rig.h"

#include <stdio.h>

#if defined(GPUNVME_HEAD)
#define POS(blocks) ((uint64_t)(blocks) * 512)
#define FLAGS , 0
#define ZERO gpunvme_zero
#else
#define POS(blocks) (blocks)
#define FLAGS
#define JOIN(a, b) a##b
#define ZERO JOIN(gpunvme_write, _zeroes)
#endif

static struct rig *rig;

static uint64_t fixed_clock(void)
{
	return 1000000000;
}

__attribute__((noinline)) void controller(void)
{
	mini_turn(&rig->ctrl);
}

/* ---- Calls ---- */

static int submit_and_wait(void)
{
	struct gpunvme_req req;
	int ret = gpunvme_submit_read(&rig->dq, &rig->dbuf, 0, POS(8), POS(8), &req);

	controller();
	return ret ? ret : gpunvme_wait(&rig->dq, &req, 0);
}

/* Each is what a kernel writes. */
#define CALLS(_)                                                                                                                   \
	_(read, gpunvme_read(&rig->dq, &rig->dbuf, 0, POS(8), POS(8)))                                                             \
	_(write, gpunvme_write(&rig->dq, &rig->dbuf, 0, POS(8), POS(8) FLAGS))                                                     \
	_(flush, gpunvme_flush(&rig->dq))                                                                                          \
	_(zero, ZERO(&rig->dq, POS(8), POS(8)))                                                                                    \
	_(submit_and_wait, submit_and_wait())

#define CASE(name, call)                                                                                                           \
	static int call_##name(void)                                                                                               \
	{                                                                                                                          \
		return call;                                                                                                       \
	}
CALLS(CASE)

#define ROW(name, call) { #name, call_##name },
static const struct {
	const char *name;
	int (*call)(void);
} calls[] = { CALLS(ROW) };

int measured(int (*call)(void));

__attribute__((noinline)) int measured(int (*call)(void))
{
	return call();
}

int main(int argc, char **argv)
{
	long n = argc == 3 ? atol(argv[2]) : 0;
	int ret = 0;

	rig = rig_new(8, 0);
	rig->dq.flags &= ~(uint32_t)GPUNVME_DQ_STATS;
	mini_begin(&rig->ctrl);
	for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
		if (argc < 2)
			puts(calls[i].name);
		if (argc < 2 || strcmp(argv[1], calls[i].name))
			continue;
		while (!ret && n--)
			ret = measured(calls[i].call);
		if (ret)
			fprintf(stderr, "calls: %s: %d\n", argv[1], ret);
	}
	return ret != 0;
}
