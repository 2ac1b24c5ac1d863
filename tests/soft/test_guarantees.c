/* SPDX-License-Identifier: MIT */
/*
 * What each injected fault of a controller means to a program: the result of the thread with the command, what happens to another
 * queue, what brings things back. docs/reliability.md has the tables, which scripts/reliability makes of the lines that this
 * prints.
 *
 * Guaranteed are results, and times in the library's own deadlines: a thread gets its result within the time-out of its command, a
 * recovery ends within those of its admin commands. GPUNVME_GUARANTEES=N in the environment: so many of each injected fault, not one.
 * GPUNVME_GUARANTEES_MS=M: the time-out of commands, where it is what ends one. GPUNVME_GUARANTEES_ON=vfio-user: the controller is
 * served, and reached by its socket, so that registers, resets and memory go by messages. GPUNVME_GUARANTEES_ON=hsa: the threads
 * are those of an AMD GPU, here of one that is emulated.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/good.h"
#include "common/image.h"
#include "common/guarantees.h"
#include "util/clock.h"

#define LONG_MS 30000u
#define ADMIN_MS 5000u
#define GRACE_MS 20000u
#define VICTIM 77u /* the block whose write meets with it */

static const struct guarantee guarantees[] = {
	{ "delay:20000", 0, ALONE, false, 0 },
	{ "shuffle:20000", 0, ALONE, false, 0 },
	{ "lose", -GPUNVME_ETIMEDOUT, RECOVERED, false, 0 },
	{ "stuck", -GPUNVME_ETIMEDOUT, RECOVERED, false, 0 },
	{ "phase", -GPUNVME_ETIMEDOUT, RECOVERED, false, 0 },
	{ "cid:0x4000", -GPUNVME_EPROTO, RECOVERED, false, 0 },
	{ "sqid:1", -GPUNVME_EPROTO, RECOVERED, false, 0 },
	{ "sqhd:3", -GPUNVME_EPROTO, RECOVERED, false, 0 },
	{ "twice:0", 0, RECOVERED, false, 0 },
	{ "twice:20000", 0, RECOVERED, false, 0 },
	{ "status:0x281", 0x281, ALONE, false, 0 },
	{ "status:0x80:dnr=1", 0x80, ALONE, false, 0 },
	{ "status:0x370:more=1", 0x370, ALONE, false, 0 },
	{ "io-short", 0, ALONE, false, 0 },
	{ "io-error:5", 0x280, ALONE, false, 0 },
	{ "io-error:28", 0x81, ALONE, false, 0 },
	{ "event:4", 0, ALONE, false, 0 },
	{ "cfs", -GPUNVME_ETIMEDOUT, RESET, true, 0 },
	{ "ones", -GPUNVME_ETIMEDOUT, NEVER, true, 0 },
	{ "torn:2000", 0, RECOVERED, false, -GPUNVME_EPROTO }, /* a look between the halves finds an entry of before */
};

static enum { SOFT, SERVED, ON_GPU } on;
static const char *const ons[] = { "soft:", "vfio-user:", "hsa:" };
static struct gpunvme_server *server;
static uint32_t timeout_ms = 6000; /* where it is what ends the command */

static int make_image(void **state)
{
	const char *wanted = getenv("GPUNVME_GUARANTEES_ON"), *ms = getenv("GPUNVME_GUARANTEES_MS");

	if (image_make_disk(state, 1 << 20))
		return -1;
	if (wanted && strcmp(wanted, "soft")) {
		on = !strcmp(wanted, "vfio-user") ? SERVED : ON_GPU;
		if (on == ON_GPU && strcmp(wanted, "hsa"))
			fail_msg("GPUNVME_GUARANTEES_ON=%s: soft, vfio-user or hsa", wanted);
	}
	if (ms)
		timeout_ms = (uint32_t)atoi(ms);
	return 0;
}

static void open_all(struct rig *rig, const struct guarantee *p)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	char uri[512], sock[96];

	*rig = (struct rig){ .lba = VICTIM, .timeout_ms = timeout_ms, .admin_ms = ADMIN_MS, .grace_ms = GRACE_MS };
	opts.admin_timeout_ms = ADMIN_MS;
	snprintf(uri, sizeof(uri), "soft:%s?queues=4&fault=%s:op=write:lba=%u:count=1", image_path("disk.img"), p->what,
		 VICTIM);
	server = NULL;
	if (on == SERVED) {
		snprintf(sock, sizeof(sock), "%s", image_path("sock"));
		good(gpunvme_server_start(uri, sock, NULL, &server));
		snprintf(uri, sizeof(uri), "vfio-user:%s", sock);
	}
	good(gpunvme_dev_open(uri, &opts, &rig->dev));
	rig_open(rig, on == ON_GPU ? "hsa:0" : "cpu", on == SERVED ? GPUNVME_MEM_SHARED : 0,
		 p->lane == -GPUNVME_ETIMEDOUT ? timeout_ms : LONG_MS);
}

static int write_victim(struct rig *rig, void *arg, uint64_t *told_ns)
{
	const uint64_t start = gnv_clock_ns();
	const int status = rig_move(rig, 0, true, VICTIM);

	(void)arg;
	*told_ns = gnv_clock_ns() - start;
	return status;
}

/* Most of them are waits. Of the sanitizers one meets with those of even number, the other one with the rest. */
#if defined(__SANITIZE_ADDRESS__)
#define FIRST 0
#define STEP 2
#elif defined(__SANITIZE_THREAD__)
#define FIRST 1
#define STEP 2
#else
#define FIRST 0
#define STEP 1
#endif

static void every_fault_is_reported(void **state)
{
	const char *n = getenv("GPUNVME_GUARANTEES");
	unsigned times = n ? (unsigned)atoi(n) : 1;

	(void)state;
	for (size_t i = FIRST; i < sizeof(guarantees) / sizeof(guarantees[0]); i += STEP) {
		struct worst worst = { 0 };

		for (unsigned k = 0; k < times; k++) {
			struct rig rig;
			struct outcome o;

			open_all(&rig, &guarantees[i]);
			o = rig_meet(&rig, &guarantees[i], write_victim, NULL);
			worst_add(&worst, &o);
			rig_close(&rig);
			good(gpunvme_server_stop(server));
		}
		worst_print(&worst, &guarantees[i], ons[on], "fault");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_fault_is_reported) };

	return cmocka_run_group_tests_name("guarantees", tests, make_image, image_remove_disk);
}
