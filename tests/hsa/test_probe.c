/* SPDX-License-Identifier: MIT */
/*
 * A helper process tries out the registers of a controller before the kernels of this one store to them. BAR0 of the controller in
 * software is a memfd here, which the mock GPU of the helper maps as it maps a DMA-BUF. This program plays helpers that go wrong,
 * as PROBE_PLAYS says.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "dev/dev.h"
#include "gpu/bar.h"
#include "gpu/gpu.h"
#include "gpu/probe.h"
#include "hsa/rig.h"
#include "queue/queue.h"
#include "util/clock.h"

#define BAR_MOST (1u << 20)
#define TRIED "a helper process has tried out the registers"
#define NOT_TRIED "not tried out by a helper process"

static char said[8192], self[300], script[300];
static struct {
	int fd; /* of its memory */
	int shown; /* what the helper gets in its place, or -1 */
	unsigned exports;
	struct gnv_port_ops port;
	struct gnv_mem_ops mem;
} bar;

/* The linker sends the library's calls here (--wrap). */
static bool stays;  /* the driver keeps each helper process */
static bool secure; /* this program is set-user-ID */

enum gnv_child_end __real_gnv_child_finish(struct gnv_child *child, unsigned ms);
enum gnv_child_end __wrap_gnv_child_finish(struct gnv_child *child, unsigned ms);
unsigned long __real_getauxval(unsigned long type);
unsigned long __wrap_getauxval(unsigned long type);

enum gnv_child_end __wrap_gnv_child_finish(struct gnv_child *child, unsigned ms)
{
	const enum gnv_child_end how = __real_gnv_child_finish(child, ms);

	return stays ? GNV_CHILD_STAYS : how;
}

unsigned long __wrap_getauxval(unsigned long type)
{
	return type == AT_SECURE ? secure : __real_getauxval(type);
}

static void keep_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	snprintf(said + strlen(said), sizeof(said) - strlen(said), "%s\n", text);
}

static unsigned times_said(const char *text)
{
	unsigned n = 0;

	for (const char *at = strstr(said, text); at; at = strstr(at + 1, text))
		n++;
	return n;
}

static void expect(const char *text)
{
	if (!strstr(said, text))
		fail_msg("not said: %s; but:\n%s", text, said);
}

static int export(struct gnv_port *port, uint64_t offset, size_t len, int *fd)
{
	(void)port;
	assert_int_equal(offset, 0); /* doorbells are not asked for: the mock maps these by their own address */
	assert_true(len <= BAR_MOST);
	bar.exports++;
	*fd = fcntl(bar.shown >= 0 ? bar.shown : bar.fd, F_DUPFD_CLOEXEC, 3);
	return *fd < 0 ? -errno : 0;
}

/* One way, until it is not trusted. */
static int attach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range)
{
	int ret = gpu->distrust >> GNV_BAR_INTEROP & 1 ? -EOPNOTSUPP : gpu->ops->host_attach(gpu, (char *)mem->cpu + offset, len, range);

	range->doubtful = true;
	range->way = GNV_BAR_INTEROP;
	return ret;
}

static int detach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)mem;
	return gpu->ops->host_detach(gpu, range);
}

/* The registers go on in memory that has a descriptor. */
static struct gpunvme_dev *open_dev(void)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_mem *regs;
	struct gpunvme_dev *dev;

	*said = '\0';
	opts.log = keep_log;
	assert_int_equal(gpunvme_dev_open(uri, &opts, &dev), 0);
	regs = dev->nvme.port->bar0;
	bar.fd = memfd_create("bar0", MFD_CLOEXEC);
	assert_int_equal(pwrite(bar.fd, regs->cpu, regs->len, 0), regs->len);
	assert_true(mmap(regs->cpu, regs->len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, bar.fd, 0) == regs->cpu);
	bar.shown = -1;
	bar.exports = 0;
	bar.port = *dev->nvme.port->ops;
	bar.port.export_bar0 = export;
	dev->nvme.port->ops = &bar.port;
	bar.mem = *regs->ops;
	bar.mem.attach = attach;
	bar.mem.detach = detach;
	regs->ops = &bar.mem;
	dev->ringtest.late_ns = dev->ringtest.lost_ns = 10000 * GNV_NS_PER_MS; /* threads play the threads */
	dev->ringtest.rings = 50;
	dev->probed.open_ms = dev->probed.step_ms = 600000;
	return dev;
}

static void close_dev(struct gpunvme_dev *dev)
{
	gpunvme_dev_close(dev);
	close(bar.fd);
	if (bar.shown >= 0)
		close(bar.shown);
}

/* Create a queue, and say whether threads of the GPU ring for it. */
static bool rings(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, 16, 0, 0, 0, 0 };
	struct gpunvme_queue *qp;
	bool direct;

	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	direct = !qp->qp[0]->bells.cpu;
	gpunvme_queue_destroy(qp);
	return direct;
}

/* Twice, each with a GPU of its own: what was found out is kept. */
static bool rings_twice(struct gpunvme_dev *dev)
{
	struct gpunvme_gpu *gpu;
	bool direct[2];

	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
		direct[i] = rings(dev, gpu);
		gpunvme_gpu_close(gpu);
	}
	assert_int_equal(direct[0], direct[1]);
	return direct[0];
}

/* A helper whose threads have a fault. */
static void use_script(const char *line)
{
	FILE *file;

	snprintf(script, sizeof(script), "%s", image_path("probe"));
	file = fopen(script, "w");
	assert_non_null(file);
	fprintf(file, "#!/bin/sh\n%s exec %s \"$@\"\n", line, PROBE);
	fclose(file);
	assert_int_equal(chmod(script, 0700), 0);
	setenv(GNV_PROBE_VARIABLE, script, 1);
}

static void use_self(const char *plays)
{
	setenv(GNV_PROBE_VARIABLE, self, 1);
	setenv("PROBE_PLAYS", plays, 1);
}

static int begin(void **state)
{
	(void)state;
	setenv("MOCK_INTEROP", "1", 1);
	setenv(GNV_PROBE_VARIABLE, PROBE, 1);
	return 0;
}

static int end(void **state)
{
	unsetenv("PROBE_PLAYS");
	remove(image_path("probe"));
	return clear(state);
}

static void test_works(void **state)
{
	struct gpunvme_dev *dev = open_dev();

	(void)state;
	assert_true(rings_twice(dev));
	assert_int_equal(times_said(TRIED), 1);
	assert_int_equal(bar.exports, 1);
	assert_null(strstr(said, TRIED ":"));
	close_dev(dev);
}

/* What the GPU sees in the place of the registers. */
static void see(const void *bytes, size_t len)
{
	bar.shown = memfd_create("shown", MFD_CLOEXEC);
	assert_int_equal(pwrite(bar.shown, bytes, len, 0), len);
	assert_int_equal(ftruncate(bar.shown, BAR_MOST), 0);
}

static void no_route(int byte, const char *text)
{
	struct gpunvme_dev *dev = open_dev();
	char page[4096];

	memset(page, byte, sizeof(page));
	see(page, sizeof(page));
	assert_false(rings_twice(dev));
	expect(text);
	assert_int_equal(times_said(TRIED), 1);
	close_dev(dev);
}

static void test_no_route(void **state)
{
	(void)state;
	no_route(0xff, TRIED ": the GPU reads all ones");
	no_route(0, TRIED ": the GPU reads all zeros");
	no_route(0x42, TRIED ": the GPU reads 4242424242424242 and 42424242");
}

/* A page that reads like the registers, and is not. */
static void test_lost(void **state)
{
	struct gpunvme_dev *dev = open_dev();

	(void)state;
	see(dev->nvme.port->bar0->cpu, 4096);
	assert_false(rings_twice(dev));
	expect(TRIED ": a doorbell that the GPU rang (1 of queue 1) did not reach the controller");
	close_dev(dev);
}

static void fails(const char *text)
{
	struct gpunvme_dev *dev = open_dev();

	assert_false(rings_twice(dev));
	expect(text);
	assert_int_equal(times_said(TRIED), 1);
	close_dev(dev);
}

/* Its GPU is lost, and ours, which is the same one, serves the queue: creating it has run kernels. */
static void test_fault(void **state)
{
	(void)state;
	use_script("MOCK_FAIL=dispatch:1:29");
	fails(TRIED ": the helper program loads registers: ");
	use_script("MOCK_FAIL=dispatch:2:29");
	fails(TRIED ": the helper program rings: ");
	use_self("dies");
	fails(TRIED ": the helper program died while it loads registers");
}

static void test_hangs(void **state)
{
	struct gpunvme_dev *dev = open_dev();

	(void)state;
	use_self("hangs");
	dev->probed.step_ms = 50;
	assert_false(rings_twice(dev));
	expect(TRIED ": the helper program says nothing for 50 ms while it loads registers");
	close_dev(dev);
}

static void nothing_found(const char *text)
{
	struct gpunvme_dev *dev = open_dev();

	assert_true(rings_twice(dev));
	expect(text);
	assert_int_equal(times_said(NOT_TRIED), 2);
	assert_int_equal(times_said(TRIED), 0);
	close_dev(dev);
}

/* As without a helper: the kernel of this process rings. */
static void test_nothing_found(void **state)
{
	(void)state;
	setenv(GNV_PROBE_VARIABLE, "/nonexistent/gpunvme-probe", 1);
	nothing_found("/nonexistent/gpunvme-probe cannot be started");
	use_script("MOCK_GPUS=0");
	nothing_found("the helper program opens the GPU and maps BAR0: ");
	use_script("MOCK_INTEROP=0");
	nothing_found("the helper program opens the GPU and maps BAR0: ");
	use_self("other");
	nothing_found("the helper program is not of this version of the library");
	use_self("ends");
	nothing_found("the helper program died while it opens the GPU");
}

static void test_more_rights_than_the_user(void **state)
{
	(void)state;
	secure = true;
	nothing_found("is not started by a program that has more rights than its user");
	secure = false;
}

static unsigned next_qid(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, 16, 0, 0, 0, 0 };
	struct gpunvme_queue *qp;
	unsigned qid;

	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), 0);
	assert_non_null(qp->qp[0]->bells.cpu);
	qid = qp->qp[0]->qid;
	gpunvme_queue_destroy(qp);
	return qid;
}

/* It may ring yet: no other queue gets the identifier of its queue, and no GPU maps the registers in that way again. */
static void test_stays(void **state)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, 16, 0, 0, 0, 0 };
	struct gpunvme_dev *dev = open_dev();
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	stays = true;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &qp), -EIO);
	stays = false;
	assert_string_equal(gpunvme_errmsg(), "the helper program cannot be ended: the driver of the GPU keeps it");
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(next_qid(dev, gpu), 2);
	assert_int_equal(bar.exports, 1);
	gpunvme_gpu_close(gpu);
	close_dev(dev);
}

/* It has its own five descriptors, and signals as at the beginning of a program. */
static void test_clean(void **state)
{
	struct gpunvme_dev *dev;
	sigset_t all, set;
	int more = dup(0);

	(void)state;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &set);
	signal(SIGPIPE, SIG_IGN);
	use_self("looks");
	dev = open_dev();
	assert_true(rings_twice(dev));
	expect("the helper program opens the GPU and maps BAR0: clean");
	close_dev(dev);
	signal(SIGPIPE, SIG_DFL);
	pthread_sigmask(SIG_SETMASK, &set, NULL);
	close(more);
}

/* A program that has its children waited for by the kernel. */
static void test_no_children(void **state)
{
	(void)state;
	signal(SIGCHLD, SIG_IGN);
	test_works(state);
	use_self("dies");
	fails(TRIED ": the helper program died while it loads registers");
	signal(SIGCHLD, SIG_DFL);
}

/* ---- The helpers that this program plays ---- */

static void tell(uint32_t version, int result, const char *why)
{
	struct gnv_probe_report report = { .version = version, .step = GNV_PROBE_MAPPED, .result = result };

	snprintf(report.why, sizeof(report.why), "%s", why);
	gnv_child_say(&report, sizeof(report));
}

static const char *look(void)
{
	DIR *dir = opendir("/proc/self/fd");
	struct dirent *entry;
	struct sigaction action;
	sigset_t set;
	bool clean = dir;

	while (clean && (entry = readdir(dir)))
		if (atoi(entry->d_name) > GNV_CHILD_GIVEN && atoi(entry->d_name) != dirfd(dir))
			clean = false;
	if (!clean)
		return "descriptors";
	closedir(dir);
	sigaction(SIGPIPE, NULL, &action);
	sigprocmask(SIG_BLOCK, NULL, &set);
	return action.sa_handler != SIG_DFL || sigismember(&set, SIGTERM) || getpgrp() != getpid() ? "signals" : "clean";
}

static int play(const char *what)
{
	if (!strcmp(what, "ends"))
		return 0;
	if (!strcmp(what, "looks"))
		tell(GNV_PROBE_VERSION, -EIO, look());
	else
		tell(strcmp(what, "other") ? GNV_PROBE_VERSION : 1, 0, "");
	if (!strcmp(what, "dies"))
		raise(SIGKILL);
	while (!strcmp(what, "hangs"))
		pause();
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_works, begin, end),	 cmocka_unit_test_setup_teardown(test_no_route, begin, end),
		cmocka_unit_test_setup_teardown(test_lost, begin, end),		 cmocka_unit_test_setup_teardown(test_fault, begin, end),
		cmocka_unit_test_setup_teardown(test_hangs, begin, end),	 cmocka_unit_test_setup_teardown(test_nothing_found, begin, end),
		cmocka_unit_test_setup_teardown(test_clean, begin, end),	 cmocka_unit_test_setup_teardown(test_no_children, begin, end),
		cmocka_unit_test_setup_teardown(test_stays, begin, end),
		cmocka_unit_test_setup_teardown(test_more_rights_than_the_user, begin, end),
	};

	(void)argv;
	if (argc > 1 && getenv("PROBE_PLAYS"))
		return play(getenv("PROBE_PLAYS"));
	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	return cmocka_run_group_tests(tests, setup, teardown);
}
