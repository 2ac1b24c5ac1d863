/* SPDX-License-Identifier: MIT */
/*
 * What is left when a program has closed its controller, and when it was killed at any moment: nothing, and the image opens again.
 * GPUNVME_LEFTOVERS=OPENED,KILLED in the environment: so many times; docs/reliability.md says how many were run. On the controller that
 * GPUNVME_TEST_URI names, whose block 0 is written to; the software controller over an image of its own when it names none.
 */
#include <gpunvme/device.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/image.h"
#include "util/clock.h"

#define BLOCK 512u
#define WARM 5u	     /* then the C library has all the stacks and heaps that it keeps */

#ifdef __has_feature
#define HAS_TSAN __has_feature(thread_sanitizer)
#elif defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#else
#define HAS_TSAN 0
#endif
#define MAPS_SLACK (HAS_TSAN ? 1000 : 8) /* heaps of the C library come and go; the thread sanitizer keeps memory for each thread */

#define WRITES 500u
#define DYING_MS 60000 /* bound of a wait for the kernel, whose threads may have other work */

enum phase { OPENS, WORKS, CLOSES, PHASES };

/* Between a child and its parent. */
struct shared {
	uint32_t begun, done; /* what block 0 is being filled with, and was */
	uint32_t phase;
};

static struct shared *shared;
static char uri[160];
static bool own_image;
static long locked_before; /* KiB, when nothing had been opened */

struct held {
	long descriptors, mappings, locked_kib;
};

/* ---- What this process has ---- */

static long count_descriptors(void)
{
	DIR *dir = opendir("/proc/self/fd");
	long n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

static long count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	long n = 0;

	assert_non_null(maps);
	for (; fgets(line, sizeof(line), maps); n++) {
		assert_null(strstr(line, "io_uring"));
		assert_null(strstr(line, "leftovers.img"));
		assert_null(strstr(line, "vfio"));
	}
	fclose(maps);
	return n;
}

static long count_locked(void)
{
	FILE *status = fopen("/proc/self/status", "re");
	long kib, sum = 0;
	char line[256];

	assert_non_null(status);
	while (fgets(line, sizeof(line), status))
		if (sscanf(line, "VmLck: %ld", &kib) == 1 || sscanf(line, "VmPin: %ld", &kib) == 1)
			sum += kib;
	fclose(status);
	return sum;
}

/* The kernel ends an io_uring, and unpins what it had, some time after it was closed. */
static struct held count(void)
{
	struct gnv_deadline deadline = gnv_deadline_in(DYING_MS);

	while (count_locked() > locked_before && gnv_deadline_poll_again(&deadline))
		;
	return (struct held){ count_descriptors(), count_mappings(), count_locked() };
}

static void has_no_more_than(const struct held *before)
{
	struct held now = count();

	print_message("left: %ld descriptors, %ld mappings, %ld KiB locked\n", now.descriptors - before->descriptors,
		      now.mappings - before->mappings, now.locked_kib - locked_before);
	assert_int_equal(now.descriptors, before->descriptors);
	assert_true(now.mappings <= before->mappings + MAPS_SLACK);
	assert_int_equal(now.locked_kib, locked_before);
}

/* The kernel lists locks by the device and the inode of the file. Inodes of other file systems have the same numbers. */
static bool is_listed(const char *path)
{
	FILE *locks = fopen("/proc/locks", "re");
	char line[256], id[64];
	bool found = false;
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	snprintf(id, sizeof(id), " %02x:%02x:%lu ", major(st.st_dev), minor(st.st_dev), (unsigned long)st.st_ino);
	assert_non_null(locks);
	while (fgets(line, sizeof(line), locks))
		found |= strstr(line, id) != NULL;
	fclose(locks);
	return found;
}

static bool is_locked(void)
{
	return own_image && is_listed(image_path("leftovers.img"));
}

/* ---- What is done ---- */

struct opened {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_mem *mem;
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
};

static int open_all(struct opened *o)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	int ret;

	memset(o, 0, sizeof(*o));
	view.flags = GPUNVME_VIEW_WRITE;
	ret = gpunvme_dev_open(uri, NULL, &o->dev);
	ret = ret ? ret : gpunvme_gpu_open("cpu", NULL, &o->gpu);
	ret = ret ? ret : gpunvme_queue_create(o->dev, o->gpu, NULL, &o->qp);
	ret = ret ? ret : gpunvme_queue_view(o->qp, &view, &o->dq);
	ret = ret ? ret : gpunvme_mem_alloc(o->gpu, NULL, 65536, NULL, &o->mem);
	ret = ret ? ret : gpunvme_mem_map(o->mem, o->dev);
	return ret ? ret : gpunvme_mem_dbuf(o->mem, o->dev, &o->dbuf);
}

static int close_all(struct opened *o)
{
	int ret = gpunvme_queue_destroy(o->qp);

	ret = ret ? ret : gpunvme_mem_free(o->mem);
	gpunvme_gpu_close(o->gpu);
	return ret ? ret : gpunvme_dev_close(o->dev);
}

static int write_some(struct opened *o)
{
	uint32_t *bytes = gpunvme_mem_ptr(o->mem);
	int ret = 0;

	for (unsigned i = 0; i < WRITES && !ret; i++) {
		uint32_t value = shared->done + 1;

		for (unsigned j = 0; j < BLOCK / 4; j++)
			bytes[j] = value;
		__atomic_store_n(&shared->begun, value, __ATOMIC_SEQ_CST);
		ret = gpunvme_write(&o->dq, &o->dbuf, 0, 0, BLOCK, 0);
		if (!ret)
			__atomic_store_n(&shared->done, value, __ATOMIC_SEQ_CST);
	}
	return ret;
}

static int once(void)
{
	struct opened o;
	int ret;

	__atomic_store_n(&shared->phase, OPENS, __ATOMIC_RELAXED);
	ret = open_all(&o);
	__atomic_store_n(&shared->phase, WORKS, __ATOMIC_RELAXED);
	ret = ret ? ret : write_some(&o);
	__atomic_store_n(&shared->phase, CLOSES, __ATOMIC_RELAXED);
	return ret ? ret : close_all(&o);
}

/* ---- The tests ---- */

static int setup(void **state)
{
	if (image_make_dir(state))
		return -1;
	own_image = !getenv("GPUNVME_TEST_URI");
	if (own_image)
		image_make(image_path("leftovers.img"), 1 << 20);
	snprintf(uri, sizeof(uri), own_image ? "soft:%s" : "%s", own_image ? image_path("leftovers.img") : getenv("GPUNVME_TEST_URI"));
	locked_before = count_locked();
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return shared == MAP_FAILED ? -1 : 0;
}

/* Fails when there is another file than the image. */
static int teardown(void **state)
{
	munmap(shared, sizeof(*shared));
	if (own_image)
		unlink(image_path("leftovers.img"));
	return image_remove_dir(state);
}

/* As the environment says; a guest under emulation is slow. */
static void count_times(unsigned *opened, unsigned *kills)
{
	const char *given = getenv("GPUNVME_LEFTOVERS");

	*opened = own_image ? 40 : 20;
	*kills = own_image ? 12 : 6;
	if (given)
		assert_int_equal(sscanf(given, "%u,%u", opened, kills), 2);
}

/* Some file systems (btrfs) list another device than stat() has. */
static bool are_locks_listed(void)
{
	const int fd = open(image_path("locked"), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	bool listed;

	assert_true(fd >= 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	listed = is_listed(image_path("locked"));
	close(fd);
	unlink(image_path("locked"));
	return listed;
}

/* The image is locked while it is open. */
static void look_for_lock(void)
{
	struct opened o;

	good(open_all(&o));
	if (!own_image || !are_locks_listed())
		print_message("left out: locks of this drive are not listed\n");
	else
		assert_true(is_locked());
	good(close_all(&o));
}

static void opened_and_closed(void **state)
{
	struct held before;
	unsigned n, kills;

	(void)state;
	count_times(&n, &kills);
	look_for_lock();
	for (unsigned i = 0; i < WARM; i++)
		good(once());
	before = count();
	for (unsigned i = 0; i < n; i++)
		good(once());
	print_message("%u times opened and closed; ", n);
	has_no_more_than(&before);
	assert_false(is_locked());
}

/* Never returns. */
static void child(void)
{
	int ret;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	do
		ret = once();
	while (!ret);
	fprintf(stderr, "the child: %d %s\n", ret, gpunvme_errmsg());
	_exit(1);
}

static void kill_after(useconds_t us)
{
	pid_t pid = fork();
	int status;

	if (!pid)
		child();
	assert_true(pid > 0);
	usleep(us);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGKILL);
}

/* Block 0 is what was written last, or was being written. Return: nanoseconds until it was open. */
static uint64_t open_again(void)
{
	uint64_t start = gnv_clock_ns();
	struct opened o;
	uint32_t *bytes;

	good(open_all(&o));
	start = gnv_clock_ns() - start;
	bytes = gpunvme_mem_ptr(o.mem);
	good(gpunvme_read(&o.dq, &o.dbuf, 0, 0, BLOCK));
	assert_true(bytes[0] == shared->done || bytes[0] == shared->begun);
	for (unsigned i = 1; i < BLOCK / 4; i++)
		assert_int_equal(bytes[i], bytes[0]);
	shared->done = shared->begun = bytes[0];
	good(close_all(&o));
	assert_false(is_locked());
	return start;
}

static void killed(void **state)
{
	unsigned opened, n, seed = 17, in[PHASES] = { 0 };
	uint64_t cycle = gnv_clock_ns(), worst = 0, took;
	struct held before;

	(void)state;
	count_times(&opened, &n);
	for (unsigned i = 0; i < WARM; i++)
		good(once());
	cycle = (gnv_clock_ns() - cycle) / 1000 / WARM;
	before = count();
	for (unsigned i = 0; i < n; i++) {
		kill_after((useconds_t)((uint64_t)rand_r(&seed) % (2 * cycle)));
		in[shared->phase]++;
		took = open_again();
		worst = took > worst ? took : worst;
	}
	print_message("%u times killed, %u opening, %u working, %u closing; open again within %llu us (a cycle: %llu); ", n,
		      in[OPENS], in[WORKS], in[CLOSES], (unsigned long long)worst / 1000, (unsigned long long)cycle);
	has_no_more_than(&before);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(opened_and_closed),
		cmocka_unit_test(killed),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
