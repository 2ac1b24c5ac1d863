/* SPDX-License-Identifier: MIT */
/*
 * A process that may have little: descriptors, from three upward, and locked memory, from none, at opening and using each kind of
 * controller. Either it works, or the error names what it lacks, and nothing of it stays open.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/wait.h"
#include "common/good.h"
#include "os/linux/file.h"
#include "os/linux/openers.h"
#include "soft/two_disks.h"

#define BYTES (64u << 10)
#define MOST 128 /* descriptors */

static char other[96];

static int setup(void **state)
{
	if (make_disks(state, "?threads=2"))
		return -1;
	snprintf(other, sizeof(other), "%s", image_path("other"));
	return 0;
}

/* ---- A life with a controller ---- */

struct life {
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	int ret;
	char why[300]; /* the sentence of what failed */
};

static bool step(struct life *l, int ret)
{
	l->ret = ret;
	snprintf(l->why, sizeof(l->why), "%s", ret ? gpunvme_errmsg() : "");
	return !ret;
}

static int use(struct life *l)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
	char *p = gpunvme_mem_ptr(l->mem);
	int ret;

	view.flags = GPUNVME_VIEW_WRITE;
	if (!step(l, gpunvme_queue_view(l->qp, &view, &dq)) || !step(l, gpunvme_mem_dbuf(l->mem, l->dev, &dbuf)))
		return l->ret;
	memset(p, 0x5a, BYTES / 2);
	memset(p + BYTES / 2, 0, BYTES / 2);
	ret = gpunvme_write(&dq, &dbuf, 0, 8ull << dq.lba_shift, BYTES / 2, 0);
	if (!ret)
		ret = gpunvme_read(&dq, &dbuf, BYTES / 2, 8ull << dq.lba_shift, BYTES / 2);
	if (ret || memcmp(p, p + BYTES / 2, BYTES / 2))
		fail_msg("what was written is not read: %d %s", ret, gpunvme_strerror(ret));
	return 0;
}

/* Return: 0, or what failed first; all is undone. */
static int live(const char *uri, struct life *l)
{
	struct gpunvme_mem_opts shared = GPUNVME_MEM_OPTS_INIT;

	*l = (struct life){ .ret = 0 };
	shared.flags = GPUNVME_MEM_SHARED;
	if (step(l, gpunvme_gpu_open("cpu", NULL, &l->gpu)) && step(l, gpunvme_dev_open(uri, NULL, &l->dev)) &&
	    step(l, gpunvme_queue_create(l->dev, l->gpu, NULL, &l->qp)) && step(l, gpunvme_mem_alloc(l->gpu, NULL, BYTES, &shared, &l->mem)) &&
	    step(l, gpunvme_mem_map(l->mem, l->dev)))
		use(l);
	good(gpunvme_queue_destroy(l->qp));
	good(gpunvme_mem_free(l->mem));
	good(gpunvme_dev_close(l->dev));
	gpunvme_gpu_close(l->gpu);
	return l->ret;
}

/* ---- Descriptors ---- */

static uint64_t limit(unsigned resource, uint64_t soft)
{
	struct rlimit now;
	uint64_t before;

	assert_int_equal(getrlimit(resource, &now), 0);
	before = now.rlim_cur;
	now.rlim_cur = soft;
	assert_int_equal(setrlimit(resource, &now), 0);
	return before;
}

static void list_open(bool open[MOST])
{
	for (int fd = 0; fd < MOST; fd++)
		open[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Return: how many of the limits were too low. */
static unsigned few_descriptors(const char *uri)
{
	bool before[MOST], after[MOST];
	uint64_t normal = limit(RLIMIT_NOFILE, 3);
	unsigned failed = 0;
	struct life l;
	int ret = -1;

	list_open(before);
	for (uint64_t n = 3; ret && n < MOST; n++) {
		limit(RLIMIT_NOFILE, n);
		ret = live(uri, &l);
		limit(RLIMIT_NOFILE, normal);
		if (ret && ret != -EMFILE)
			fail_msg("%s with %u descriptors: %d %s: %s", uri, (unsigned)n, ret, gpunvme_strerror(ret), l.why);
		if (ret && !strstr(l.why, "open files") && !strstr(l.why, "escriptor"))
			fail_msg("%s with %u descriptors: '%s' does not say what is lacking", uri, (unsigned)n, l.why);
		wait_until((list_open(after), !memcmp(before, after, sizeof(before)))); /* a connection is closed by a thread of its own */
		failed += ret != 0;
	}
	good(ret);
	return failed;
}

static void test_descriptors(void **state)
{
	(void)state;
	assert_true(few_descriptors(file_uri) >= 3); /* the image and two rings */
	few_descriptors("soft:ram:1M");
	assert_true(few_descriptors(user_uri) >= 2); /* connection, memory */
}

/* An image that somebody else has is not taken because there was no descriptor to look with. */
static void test_taken_image(void **state)
{
	uint64_t normal = limit(RLIMIT_NOFILE, 3);
	struct life l;
	int ret = 0;

	(void)state;
	for (uint64_t n = 3; ret != -EBUSY && n < MOST; n++) {
		limit(RLIMIT_NOFILE, n);
		ret = live(served_uri, &l);
		limit(RLIMIT_NOFILE, normal);
		if (ret != -EBUSY && ret != -EMFILE)
			fail_msg("with %u descriptors: %d %s", (unsigned)n, ret, l.why);
	}
	assert_int_equal(ret, -EBUSY);
}

/* A process that could not be checked for lack of a descriptor is reported, not ignored. */
static void test_unseen_processes(void **state)
{
	const struct gnv_opened image = { .kind = GNV_OPENED_FILE, .dev = 1, .ino = 1 };
	const struct gnv_openers_query query = { .what = &image, .count = 1, .how = GNV_OPENERS_WRITING };
	const int lowest = dup(0); /* this one, and those above, are needed */
	uint64_t normal = limit(RLIMIT_NOFILE, 3);
	struct gnv_opener who;
	unsigned unseen, few = 0;

	(void)state;
	close(lowest);
	for (int n = lowest; n < lowest + 3; n++) {
		limit(RLIMIT_NOFILE, (uint64_t)n);
		unseen = 0;
		assert_false(gnv_openers_find(GNV_PROC, &query, &who, &unseen));
		few += unseen != 0;
	}
	limit(RLIMIT_NOFILE, normal);
	assert_int_equal(few, 3); /* /proc, a folder of it, the descriptors there */
}

static void test_server(void **state)
{
	uint64_t normal = limit(RLIMIT_NOFILE, 3);
	struct gpunvme_server *s;
	bool before[MOST], after[MOST];
	int ret = -1;

	(void)state;
	list_open(before);
	for (uint64_t n = 3; ret && n < MOST; n++) {
		limit(RLIMIT_NOFILE, n);
		ret = gpunvme_server_start(file_uri, other, NULL, &s);
		limit(RLIMIT_NOFILE, normal);
		if (ret && ret != -EMFILE)
			fail_msg("with %u descriptors: %d %s", (unsigned)n, ret, gpunvme_errmsg());
		if (!ret)
			good(gpunvme_server_stop(s));
		wait_until((list_open(after), !memcmp(before, after, sizeof(before)))); /* a connection is closed by a thread of its own */
		assert_int_not_equal(access(other, F_OK), 0);
	}
	good(ret);
}

/* ---- Locked memory ---- */

/* Of this thread and those that it starts. */
static int drop_ipc_lock(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &head, data))
		return -errno;
	data[0].effective &= ~(1u << CAP_IPC_LOCK);
	data[0].permitted &= ~(1u << CAP_IPC_LOCK);
	return syscall(SYS_capset, &head, data) ? -errno : 0;
}

/* In a child, which never gets it back. */
static void little_locked_memory(void)
{
	const char *const uris[] = { file_uri, "soft:ram:1M", user_uri };
	struct life l;

	for (unsigned i = 0; i < 3; i++)
		for (uint64_t bytes = 0; bytes <= 4 << 20; bytes = bytes ? 4 * bytes : 4096) {
			limit(RLIMIT_MEMLOCK, bytes);
			live(uris[i], &l);
			if (!l.ret || (l.ret == -ENOMEM && strstr(l.why, "RLIMIT_MEMLOCK")))
				continue;
			fprintf(stderr, "%s with %u KiB of locked memory: %d %s\n", uris[i], (unsigned)(bytes / 1024), l.ret, l.why);
			_exit(1);
		}
	_exit(0);
}

static void test_locked_memory(void **state)
{
	pid_t child;
	int status;

	(void)state;
	child = fork();
	if (!child) {
		if (drop_ipc_lock())
			_exit(77);
		little_locked_memory();
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		SKIP("no way to drop the capability");
	assert_int_equal(status, 0);
}

/* ---- Direct I/O ---- */

static uint32_t sector; /* of the device that is emulated below the image; 0: it is what it is */

int __real_gnv_os_file_open(const char *path, uint32_t block, bool read_only, struct gnv_os_file *file);
int __wrap_gnv_os_file_open(const char *path, uint32_t block, bool read_only, struct gnv_os_file *file);

int __wrap_gnv_os_file_open(const char *path, uint32_t block, bool read_only, struct gnv_os_file *file)
{
	int ret = __real_gnv_os_file_open(path, block, read_only, file);

	if (!ret && sector > block) {
		file->direct = false;
		file->sector = sector;
	}
	return ret;
}

static void count_warnings(void *ctx, enum gpunvme_log_level level, const char *text)
{
	if (level == GPUNVME_LOG_WARN && strstr(text, "its blocks have 4096 bytes, so blocks of 512 go through the page cache") &&
	    strstr(text, "Use lba=4096"))
		++*(unsigned *)ctx;
}

static unsigned warnings(const char *keys)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *dev;
	unsigned n = 0;
	char uri[160];

	opts.log = count_warnings;
	opts.log_ctx = &n;
	snprintf(uri, sizeof(uri), "%s%s", file_uri, keys);
	good(gpunvme_dev_open(uri, &opts, &dev));
	good(gpunvme_dev_close(dev));
	return n;
}

static void test_large_sectors(void **state)
{
	(void)state;
	sector = 4096;
	assert_int_equal(warnings("&lba=512"), 1);
	assert_int_equal(warnings("&lba=4096"), 0);
	sector = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_locked_memory), /* forks: before there are threads */
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_taken_image),
		cmocka_unit_test(test_unseen_processes),
		cmocka_unit_test(test_server),
		cmocka_unit_test(test_large_sectors),
	};

	return cmocka_run_group_tests_name("scarce", tests, setup, remove_disks);
}
