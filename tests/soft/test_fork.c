/* SPDX-License-Identifier: MIT */
/*
 * What a child of fork() may do with what its parent opened: nothing, quickly, and without its parent noticing. On the controller that
 * GPUNVME_TEST_URI names; the software controller over an image of its own when it names none.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>

#include "common/good.h"

static char image[] = "/tmp/gpunvme-fork-XXXXXX";
static char uri[256];
static bool own_image;

/* All that a parent can have. */
static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static struct gpunvme_queue *qp;
static struct gpunvme_mem *mem;
static struct gpunvme_queue *vol;
static struct gpunvme_cache *cache;
static struct gpunvme_dq dq;
static struct gpunvme_dbuf dbuf;

static int setup(void **state)
{
	const char *given = getenv("GPUNVME_TEST_URI");
	int fd;

	(void)state;
	if (given) {
		snprintf(uri, sizeof(uri), "%s", given);
		return 0;
	}
	own_image = true;
	fd = mkstemp(image);
	snprintf(uri, sizeof(uri), "soft:%s", image);
	return fd < 0 || ftruncate(fd, 16 << 20) || close(fd);
}

static int teardown(void **state)
{
	(void)state;
	return own_image ? unlink(image) : 0;
}

static void open_all(void)
{
	struct gpunvme_cache_opts pages = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;

	opts.queues = 1;
	pages.page_size = 4096;
	pages.frames = 8;
	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	opts.flags = GPUNVME_QUEUE_COMPLETION_THREAD;
	good(gpunvme_queue_create(dev, gpu, &opts, &qp));
	good(gpunvme_queue_create_striped(&dev, 1, gpu, &opts, &vol));
	good(gpunvme_queue_view(qp, NULL, &dq));
	good(gpunvme_mem_alloc(gpu, NULL, 65536, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	good(gpunvme_cache_create(qp, &pages, &cache));
}

static void close_all(void)
{
	good(gpunvme_cache_destroy(cache));
	good(gpunvme_queue_destroy(vol));
	good(gpunvme_mem_free(mem));
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_dev_close(dev));
	good(gpunvme_gpu_close(gpu));
}

/* The parent's device works. */
static void works(void)
{
	uint32_t value;

	good(gpunvme_read(&dq, &dbuf, 0, 0, 1ull << dq.lba_shift));
	good(gpunvme_dev_get_feature(dev, GPUNVME_FID_NUM_QUEUES, &value));
}

/* ---- In the child: exit status 0, or the line that is wrong ---- */

#define IS_REFUSED(call)                                                                                                           \
	do {                                                                                                                       \
		if ((call) != -ECHILD || !strstr(gpunvme_errmsg(), "fork()"))                                                      \
			return __LINE__;                                                                                           \
	} while (0)

static int call_device(void)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_sqe identify = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = 1 };
	struct gpunvme_dev_opts share = GPUNVME_DEV_OPTS_INIT;
	uint32_t value, count = 1;
	struct gpunvme_dev *other;
	char page[4096];

	share.share = dev;
	IS_REFUSED(gpunvme_dev_open(uri, &share, &other));
	IS_REFUSED(gpunvme_dev_get_feature(dev, GPUNVME_FID_NUM_QUEUES, &value));
	IS_REFUSED(gpunvme_dev_log_page(dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, page, 512));
	IS_REFUSED(gpunvme_dev_admin(dev, &identify, page, sizeof(page), 0, NULL));
	IS_REFUSED(gpunvme_ns_get_info(dev, 1, &ns));
	IS_REFUSED(gpunvme_ns_list(dev, &value, &count));
	IS_REFUSED(gpunvme_dev_reset(dev));
	return 0;
}

static int call_queue(void)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_dq view;
	struct gpunvme_queue *other;

	IS_REFUSED(gpunvme_queue_create(dev, gpu, NULL, &other));
	IS_REFUSED(gpunvme_queue_view(qp, NULL, &view));
	IS_REFUSED(gpunvme_queue_get_info(qp, &info));
	IS_REFUSED(gpunvme_queue_stop(qp, 1));
	IS_REFUSED(gpunvme_queue_recover(qp));
	IS_REFUSED(gpunvme_queue_retire(qp));
	IS_REFUSED(gpunvme_queue_destroy(qp));
	return 0;
}

static int call_memory(void)
{
	struct gpunvme_dvbuf dvbuf;
	struct gpunvme_dbuf buf;
	struct gpunvme_mem *other;

	IS_REFUSED(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &other));
	IS_REFUSED(gpunvme_mem_map(mem, dev));
	IS_REFUSED(gpunvme_mem_unmap(mem, dev));
	IS_REFUSED(gpunvme_mem_dbuf(mem, dev, &buf));
	IS_REFUSED(gpunvme_mem_map_queue(mem, vol, &dvbuf));
	IS_REFUSED(gpunvme_mem_unmap_queue(mem, vol));
	IS_REFUSED(gpunvme_queue_stop(vol, 1));
	IS_REFUSED(gpunvme_queue_recover(vol));
	IS_REFUSED(gpunvme_queue_retire(vol));
	IS_REFUSED(gpunvme_mem_free(mem));
	return 0;
}

static int call_events(void)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_check checks[32];
	unsigned count = 32;
	uint32_t value;
	int fd;

	IS_REFUSED(gpunvme_dev_event_fd(dev, &fd));
	IS_REFUSED(gpunvme_dev_next_event(dev, &event));
	if (gpunvme_dev_get_info(dev, &info) || info.queues == 0 || !info.transport[0])
		return __LINE__; /* what never changes is still told (dev.h) */
	IS_REFUSED(gpunvme_dev_set_feature(dev, GPUNVME_FID_TEMP_THRESHOLD, 300));
	IS_REFUSED(gpunvme_ns_get_feature(dev, 1, GPUNVME_FID_TEMP_THRESHOLD, &value));
	IS_REFUSED(gpunvme_ns_set_feature(dev, 1, GPUNVME_FID_TEMP_THRESHOLD, 300));
	IS_REFUSED(gpunvme_dev_export_doorbells(dev, &fd, &(uint64_t){ 0 }, &(size_t){ 0 }));
	IS_REFUSED(gpunvme_doctor_drive(dev, checks, &count));
	return 0;
}

static int call_lanes(void)
{
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	struct gpunvme_queue_latency latency = { .size = sizeof(latency) };
	struct gpunvme_ordering ordering = GPUNVME_ORDERING_INIT;
	struct gpunvme_copy copy = { .size = sizeof(copy) };
	struct gpunvme_workload load = { .size = sizeof(load) };
	struct gpunvme_cache *more;
	char *bytes = gpunvme_mem_ptr(mem);
	struct gpunvme_mem *other;

	IS_REFUSED(gpunvme_gpu_get_info(gpu, &info));
	IS_REFUSED(gpunvme_queue_get_latency(qp, &latency));
	IS_REFUSED(gpunvme_run_copy(gpu, &dq, 1, &dbuf, &copy));
	IS_REFUSED(gpunvme_workload_run(gpu, &dq, 1, &dbuf, &load));
	IS_REFUSED(gpunvme_gpu_ordering_test(dev, gpu, NULL, &ordering));
	IS_REFUSED(gpunvme_cache_create(qp, NULL, &more));
	IS_REFUSED(gpunvme_mem_register(gpu, bytes, 4096, &other));
	IS_REFUSED(gpunvme_mem_import_dmabuf(gpu, 0, 0, 4096, &other));
	IS_REFUSED(gpunvme_mem_cmb(gpu, dev, 4096, NULL, &other));
	return 0;
}

static int call_the_rest(void)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_mem_cache_info cached = { .size = sizeof(cached) };
	struct gpunvme_cache_info pages = { .size = sizeof(pages) };
	struct gpunvme_dpages dpages;
	struct gpunvme_dvol dvol;
	struct gpunvme_mem_use use;
	struct gpunvme_dbuf buf;

	IS_REFUSED(gpunvme_mem_dbuf_for(mem, dev, gpu, &buf));
	IS_REFUSED(gpunvme_queue_get_info(vol, &info));
	IS_REFUSED(gpunvme_queue_view(vol, NULL, &dvol));
	IS_REFUSED(gpunvme_mem_get(gpu, dev, &use, sizeof(use), 0, &use));
	IS_REFUSED(gpunvme_mem_cache_forget(dev, NULL, 0));
	IS_REFUSED(gpunvme_mem_cache_set_limit(dev, 0));
	IS_REFUSED(gpunvme_mem_cache_get_info(dev, &cached));
	IS_REFUSED(gpunvme_cache_get_info(cache, &pages));
	IS_REFUSED(gpunvme_cache_view(cache, &dpages));
	IS_REFUSED(gpunvme_cache_flush(cache));
	IS_REFUSED(gpunvme_cache_discard(cache));
	IS_REFUSED(gpunvme_cache_destroy(cache));
	return 0;
}

static int close_in_child(void)
{
	IS_REFUSED(gpunvme_queue_destroy(vol));
	IS_REFUSED(gpunvme_dev_close(dev));
	IS_REFUSED(gpunvme_gpu_close(gpu));
	return 0;
}

static bool has_lock(unsigned fd)
{
	char path[64], text[512];
	int info;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%u", fd);
	info = open(path, O_RDONLY | O_CLOEXEC);
	n = read(info, text, sizeof(text) - 1);
	text[n > 0 ? n : 0] = 0;
	close(info);
	return strstr(text, "lock:");
}

/*
 * An image is opened without the lock of fork() first, because a file system may respond late, and then once more with it. A child of
 * just then has the first descriptor, which never gets a lock. The other one has one soon.
 */
static bool is_first(unsigned fd, const char *link)
{
	unsigned ms;

	if (!strstr(link, "gpunvme-fork"))
		return false;
	for (ms = 0; ms < 200 && !has_lock(fd); ms++)
		usleep(1000);
	return ms == 200;
}

static int look_for_descriptors(bool first_may_stay)
{
	static const char *const what[] = { "io_uring", "vfio", "iommu", "gpunvme-fork" };
	char path[64], link[256];
	unsigned seen = 0;
	ssize_t n;

	for (unsigned fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%u", fd);
		n = readlink(path, link, sizeof(link) - 1);
		seen += n > 0;
		link[n > 0 ? n : 0] = 0;
		for (unsigned i = 0; i < 4; i++)
			if (strncmp(link, "/sys/", 5) && strstr(link, what[i]) && /* a folder of sysfs, being read, holds no device */
			    !(first_may_stay && is_first(fd, link))) {
				fprintf(stderr, "a child has %s\n", link);
				return __LINE__;
			}
	}
	return seen ? 0 : __LINE__;
}

/* No descriptor is left that leads to an image, a ring or a device. Sanitizers' malloc() may hang here: the fork was at any moment. */
static int holds_nothing(void)
{
	return look_for_descriptors(false);
}

static int holds_no_lock(void)
{
	return look_for_descriptors(true);
}

/* And no mapping: it would keep the device open as a descriptor does. */
static int maps_nothing(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int ret = 0;

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, "vfio") || strstr(line, "io_uring"))
			ret = __LINE__;
	return maps ? ret | fclose(maps) : __LINE__;
}

static int all_refused(void)
{
	int ret = call_device();

	ret = ret ? ret : call_queue();
	ret = ret ? ret : call_memory();
	ret = ret ? ret : call_events();
	ret = ret ? ret : call_lanes();
	ret = ret ? ret : call_the_rest();
	if (ret)
		fprintf(stderr, "line %d: %s\n", ret, gpunvme_errmsg());
	return ret ? ret : close_in_child();
}

static int exits_only(void)
{
	return 0;
}

/* Its own devices are the child's as any process's. */
static int opens_its_own(void)
{
	char own[] = "/tmp/gpunvme-fork-XXXXXX", soft[64];
	int fd = mkstemp(own), ret;

	snprintf(soft, sizeof(soft), "soft:%s", own);
	ret = fd < 0 || ftruncate(fd, 16 << 20) || close(fd) ? __LINE__ : gpunvme_dev_open(soft, NULL, &dev);
	ret = ret ? ret : gpunvme_gpu_open("cpu", NULL, &gpu);
	ret = ret ? ret : gpunvme_queue_create(dev, gpu, NULL, &qp);
	ret = ret ? ret : gpunvme_queue_destroy(qp);
	ret = ret ? ret : gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	unlink(own);
	return ret ? __LINE__ : 0;
}

/* A queue has a device and a GPU, of which each may be the parent's. */
static int mixes_them(void)
{
	struct gpunvme_dev *const parents = dev;
	struct gpunvme_gpu *own;
	struct gpunvme_queue *other;

	IS_REFUSED(gpunvme_queue_create_striped(&parents, 1, gpu, NULL, &other));
	if (gpunvme_gpu_open("cpu", NULL, &own))
		return __LINE__;
	IS_REFUSED(gpunvme_queue_create(parents, own, NULL, &other));
	IS_REFUSED(gpunvme_queue_create_striped(&parents, 1, own, NULL, &other));
	return gpunvme_gpu_close(own) ? __LINE__ : 0;
}

/* exec() as a shell would see it. */
static int executes(void)
{
	execl("/bin/sh", "sh", "-c", "ls -l /proc/self/fd | grep -E 'io_uring|vfio|iommu|gpunvme-fork' && exit 1; exit 0",
	      (char *)NULL);
	return __LINE__;
}

/* ---- In the parent ---- */

static void run(pid_t pid, int (*child)(void))
{
	int status;

	if (!pid) {
		alarm(60); /* a child that hangs is ended */
		_exit(child() ? 1 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

static void test_child(void **state)
{
	int (*const child[])(void) = { all_refused, exits_only, holds_nothing, maps_nothing, opens_its_own, mixes_them, executes };

	(void)state;
	open_all();
	for (unsigned i = 0; i < sizeof(child) / sizeof(child[0]); i++) {
		run(fork(), child[i]);
		works();
	}
	close_all();
}

/* No handler of fork() runs here. */
static void test_bare_clone(void **state)
{
	(void)state;
	open_all();
	run((pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0), all_refused);
	works();
	close_all();
}

static int in_shared_memory(void *child)
{
	alarm(60);
	return (*(int (**)(void))child)() ? 1 : 0;
}

/* As vfork() and posix_spawn() make it: no handler, the parent's very memory, and a file table of its own. */
static void test_shared_memory(void **state)
{
	int (*child)(void) = all_refused;
	char *stack = malloc(1 << 20);
	int status;
	pid_t pid;

	(void)state;
	assert_non_null(stack);
	open_all();
	pid = clone(in_shared_memory, stack + (1 << 20), CLONE_VM | CLONE_VFORK | SIGCHLD, &child);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	works();
	close_all();
	free(stack);
}

/* A child that sleeps keeps nothing: its parent closes, and opens again at once. */
static void test_sleeping_child(void **state)
{
	pid_t pid;

	(void)state;
	open_all();
	pid = fork();
	while (!pid)
		pause();
	close_all();
	for (unsigned i = 0; i < 3; i++) {
		open_all();
		works();
		close_all();
	}
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static bool stop;

static void *open_and_close(void *arg)
{
	struct gpunvme_dev *one;

	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		if (!gpunvme_dev_open(arg, NULL, &one))
			gpunvme_dev_close(one);
	return NULL;
}

/* fork() at any moment of another thread's opening and closing: nothing hangs, and no ring, device or lock is inherited. */
static void test_any_moment(void **state)
{
	pthread_t thread;

	(void)state;
	stop = false;
	assert_int_equal(pthread_create(&thread, NULL, open_and_close, uri), 0);
	for (unsigned i = 0; i < (own_image ? 100 : 10); i++)
		run(fork(), holds_no_lock);
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_child),
		cmocka_unit_test(test_bare_clone),
		cmocka_unit_test(test_shared_memory),
		cmocka_unit_test(test_sleeping_child),
		cmocka_unit_test(test_any_moment),
	};

#ifdef __SANITIZE_THREAD__
	(void)tests, (void)setup, (void)teardown;
	puts("skipped: the thread sanitizer does not follow the child of a process with threads");
	return 77;
#else
	return cmocka_run_group_tests(tests, setup, teardown);
#endif
}
