/* SPDX-License-Identifier: MIT */
/*
 * What each injected fault of a drive through VFIO means to a program, as soft.test_guarantees has it of the controller in software:
 * what QEMU's controller, the kernel and an administrator can be made to do. For the guest of tests/vm, whose scenario "host_faults"
 * makes that drive: GPUNVME_TEST_DRIVE is its address, GPUNVME_TEST_PORT the way through VFIO; GPUNVME_GUARANTEES_MS=M: the time-out
 * of commands, where it is what ends one. GPUNVME_TEST_LATE: storage that is later than that, too. GPUNVME_TEST_LAST: the injected
 * fault after which the drive is gone, too.
 */
#include <gpunvme/device.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/good.h"
#include "common/guarantees.h"
#include "util/clock.h"

#define TIMEOUT_MS 2000u
#define LONG_MS 30000u /* of commands that a busy machine shall not end */
#define ADMIN_MS 5000u
#define GRACE_MS 20000u /* of an emulated machine with other work */
#define VICTIM 77u
#define PCI_COMMAND 4
#define PCI_COMMAND_MASTER 4

enum ns { PLAIN = 1, BROKEN, READ_ONLY, SLOW, LATE }; /* namespaces of the scenario's drive */

static const char *drive; /* its address on the bus */
static uint32_t timeout_ms = TIMEOUT_MS;
static pid_t child;

struct host_fault {
	struct guarantee p;
	void (*strike)(struct rig *rig); /* while a thread writes, again and again; or */
	enum ns ns;			 /* one command to a block of these meets with it */
	uint64_t lba;
	bool write;
};

/* ---- What strikes ---- */

static int open_file(const char *name, int flags)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/%s", drive, name);
	fd = open(path, flags);
	assert_true(fd >= 0);
	return fd;
}

static void reset_function(struct rig *rig)
{
	int fd = open_file("reset", O_WRONLY);

	(void)rig;
	assert_int_equal(write(fd, "1", 1), 1);
	close(fd);
}

static void end_bus_mastering(struct rig *rig)
{
	int fd = open_file("config", O_RDWR);
	uint16_t word;

	(void)rig;
	assert_int_equal(pread(fd, &word, 2, PCI_COMMAND), 2);
	word &= (uint16_t)~PCI_COMMAND_MASTER;
	assert_int_equal(pwrite(fd, &word, 2, PCI_COMMAND), 2);
	close(fd);
}

/* QEMU's drive is warmer than 200 K, and says so once. */
static void become_hot(struct rig *rig)
{
	good(gpunvme_dev_set_feature(rig->dev, GPUNVME_FID_TEMP_THRESHOLD, 200));
}

static void reset_controller(struct rig *rig)
{
	good(gpunvme_dev_reset(rig->dev));
}

/* The kernel waits until its user lets go of it, and gives it back to VFIO by the override that it has. */
static void unbind(struct rig *rig)
{
	char command[256];

	(void)rig;
	snprintf(command, sizeof(command),
		 "d=%s; echo $d >/sys/bus/pci/devices/$d/driver/unbind; echo $d >/sys/bus/pci/drivers_probe", drive);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
}

static void say(const char *line)
{
	FILE *console = fopen("/dev/console", "w");

	assert_non_null(console);
	fprintf(console, "\n%s\n", line);
	fclose(console);
}

/* A completion on the bus that did not come, told by the port above it. */
static void report_error(struct rig *rig)
{
	(void)rig;
	say("guest: error host_faults");
}

static void pull(struct rig *rig)
{
	(void)rig;
	say("guest: pull host_faults");
}

/* Of a drive that goes away a thread learns by the word of its queue, or, a moment later, that its buffer is its own again. */
static const struct host_fault faults[] = {
	{ { "a block that cannot be read", 0x281, ALONE, false, 0 }, NULL, BROKEN, 8, false },
	{ { "a block that cannot be written", 0x280, ALONE, false, 0 }, NULL, BROKEN, 16, true },
	{ { "a drive that takes no writes any more", 0x280, ALONE, false, 0 }, NULL, READ_ONLY, 0, true },
	{ { "storage that takes 1 s", 0, ALONE, false, 0 }, NULL, SLOW, 0, true },
	{ { "storage that takes longer than the time-out", -GPUNVME_ETIMEDOUT, RECOVERED, false, 0 }, NULL, LATE, 0, false },
	{ { "an event: too hot", 0, ALONE, false, 0 }, become_hot, PLAIN, 0, true },
	{ { "the program resets the controller", -GPUNVME_ESHUTDOWN, ALONE, true, 0 }, reset_controller, PLAIN, 0, true },
	{ { "another resets the function", -GPUNVME_ETIMEDOUT, RESET, true, 0 }, reset_function, PLAIN, 0, true },
	{ { "its bus mastering ends", -GPUNVME_ETIMEDOUT, RESET, true, 0 }, end_bus_mastering, PLAIN, 0, true },
	{ { "it is unbound", -GPUNVME_ENODEV, NEVER, true, -GPUNVME_ESHUTDOWN }, unbind, PLAIN, 0, true },
	{ { "an error of the bus is reported", -GPUNVME_ENODEV, RESET, true, -GPUNVME_ESHUTDOWN }, report_error, PLAIN, 0, true },
	{ { "it is pulled", -GPUNVME_ENODEV, NEVER, true, -GPUNVME_ESHUTDOWN }, pull, PLAIN, 0, true }, /* last */
};

/* ---- The queues that meet it ---- */

static int meet_once(struct rig *rig, const struct host_fault *m, uint64_t *told_ns)
{
	const struct side *s = &rig->side[0];
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dq dq;
	uint64_t start;
	int status;

	view.flags = m->write ? GPUNVME_VIEW_WRITE : 0;
	view.nsid = (uint32_t)m->ns;
	good(gpunvme_queue_view(s->qp, &view, &dq));
	start = gnv_clock_ns();
	status = m->write ? gpunvme_write(&dq, &s->dbuf[0], 0, m->lba << dq.lba_shift, 1ull << dq.lba_shift, 0)
			  : gpunvme_read(&dq, &s->dbuf[1], 0, m->lba << dq.lba_shift, 1ull << dq.lba_shift);
	*told_ns = gnv_clock_ns() - start;
	return status;
}

struct blow {
	struct rig *rig;
	const struct host_fault *m;
	uint64_t at; /* atomic: when it begins */
};

static void *strike(void *arg)
{
	struct blow *b = arg;

	usleep(50000);
	__atomic_store_n(&b->at, gnv_clock_ns(), __ATOMIC_RELEASE);
	b->m->strike(b->rig);
	return NULL;
}

static int meet(struct rig *rig, void *arg, uint64_t *told_ns)
{
	const struct host_fault *m = arg;
	const uint64_t limit = (m->p.lane ? timeout_ms + GRACE_MS : 500) * GNV_NS_PER_MS;
	struct blow b = { rig, m, 0 };
	pthread_t thread;
	uint64_t at;
	int status;

	if (!m->strike)
		return meet_once(rig, m, told_ns);
	assert_int_equal(pthread_create(&thread, NULL, strike, &b), 0);
	do {
		status = rig_move(rig, 0, true, VICTIM);
		at = __atomic_load_n(&b.at, __ATOMIC_ACQUIRE);
	} while (!status && !(at && gnv_clock_ns() - at > limit));
	*told_ns = m->p.lane ? gnv_clock_ns() - at : 0;
	pthread_join(thread, NULL);
	return status;
}

static struct outcome open_and_meet(const struct host_fault *m)
{
	const char *port = getenv("GPUNVME_TEST_PORT");
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	const uint32_t ms = m->p.lane == -GPUNVME_ETIMEDOUT ? timeout_ms : LONG_MS;
	struct rig rig = { .lba = VICTIM, .timeout_ms = timeout_ms, .admin_ms = ADMIN_MS, .grace_ms = GRACE_MS };
	struct outcome o;
	char uri[96];
	int status;

	opts.admin_timeout_ms = ADMIN_MS;
	snprintf(uri, sizeof(uri), "%s?port=%s", drive, port ? port : "iommufd");
	good(gpunvme_dev_open(uri, &opts, &rig.dev));
	rig_open(&rig, "cpu", 0, ms);
	o = rig_meet(&rig, &m->p, meet, (void *)(uintptr_t)m);
	if (m->strike == become_hot)
		good(gpunvme_dev_set_feature(rig.dev, GPUNVME_FID_TEMP_THRESHOLD, 350));
	rig_close(&rig);
	if (child) {
		assert_int_equal(waitpid(child, &status, 0), child);
		assert_int_equal(status, 0);
		child = 0;
	}
	return o;
}

static void every_fault_is_reported(void **state)
{
	const char *ms = getenv("GPUNVME_GUARANTEES_MS"), *on = getenv("GPUNVME_TEST_PORT");
	const bool to_the_end = getenv("GPUNVME_TEST_LAST");
	const size_t count = sizeof(faults) / sizeof(faults[0]) - !to_the_end;
	char name[64];

	(void)state;
	drive = getenv("GPUNVME_TEST_DRIVE");
	assert_non_null(drive);
	timeout_ms = ms ? (uint32_t)atoi(ms) : TIMEOUT_MS;
	snprintf(name, sizeof(name), "VFIO, %s", on && !strcmp(on, "type1") ? "type 1" : "IOMMUFD");
	for (size_t i = 0; i < count; i++) {
		struct worst worst = { 0 };
		struct outcome o;

		if (faults[i].ns == LATE && !getenv("GPUNVME_TEST_LATE"))
			continue;
		o = open_and_meet(&faults[i]);
		worst_add(&worst, &o);
		worst_print(&worst, &faults[i].p, name, "host_fault");
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_fault_is_reported) };

	return cmocka_run_group_tests_name("host_faults", tests, NULL, NULL);
}
