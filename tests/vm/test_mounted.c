/* SPDX-License-Identifier: MIT */
/*
 * One process that serves a namespace as a block device of the kernel and uses it by queues of its own: files that were written to
 * a mounted file system are read by name by threads, while it stays mounted. For the guest of tests/vm: GPUNVME_TEST_URI names the
 * controller, which loses what it has; with GPUNVME_TEST_RESETS it is reset under way.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/known.h"

#define AT "/tmp/ublk"
#define BYTES 300001u

static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static struct gpunvme_queue *qp;
static struct gpunvme_dq dq;
static struct gpunvme_mem *mem;
static struct gpunvme_dbuf dbuf;
static struct gpunvme_ublk *ublk;
static struct gpunvme_ublk_info info = { .size = sizeof(info) };
static unsigned char content[BYTES];
static int root = -1; /* of the mounted file system */

static int setup(void **state)
{
	const char *uri = getenv("GPUNVME_TEST_URI");
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;

	(void)state;
	assert_non_null(uri);
	good(gpunvme_dev_open(uri, NULL, &dev));
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	good(gpunvme_queue_view(qp, NULL, &dq));
	good(gpunvme_mem_alloc(gpu, NULL, 1 << 20, NULL, &mem));
	good(gpunvme_mem_map(mem, dev));
	good(gpunvme_mem_dbuf(mem, dev, &dbuf));
	opts.queues = 2;
	opts.depth = 16;
	opts.cmd_timeout_ms = 120000; /* an emulated processor may be away for long */
	good(gpunvme_ublk_start(dev, 0, &opts, &ublk));
	good(gpunvme_ublk_get_info(ublk, &info));
	assert_int_equal(info.queues, 2);
	assert_int_equal(info.depth, 16);
	for (uint32_t i = 0; i < BYTES; i++)
		content[i] = (unsigned char)(i * 2654435761u >> 24);
	mkdir(AT, 0755);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	good(gpunvme_ublk_stop(ublk));
	assert_int_equal(access(info.path, F_OK), -1);
	good(gpunvme_queue_destroy(qp));
	good(gpunvme_mem_free(mem));
	good(gpunvme_dev_close(dev));
	gpunvme_gpu_close(gpu);
	return 0;
}

/*
 * What a test leaves that fails half-way. The process would not end with it: threads of its own that wait for its block device, in a
 * write or when a file is closed, wait for a server that has ended, and no signal ends that.
 */
static int let_go(void **state)
{
	(void)state;
	if (root >= 0) {
		ioctl(root, FITHAW, 0);
		close(root);
	}
	root = -1;
	umount2(AT, MNT_DETACH);
	return 0;
}

static void run(const char *command)
{
	int status = system(command);

	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("%s: status %d", command, status);
}

static void write_file(const char *path, unsigned char salt)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644), synced;
	ssize_t written;

	assert_true(fd >= 0);
	for (uint32_t i = 0; i < BYTES; i++)
		content[i] = (unsigned char)((i * 2654435761u >> 24) ^ salt);
	written = write(fd, content, BYTES);
	synced = fsync(fd);
	close(fd);
	assert_int_equal(written, BYTES);
	assert_int_equal(synced, 0);
}

/* As a kernel of the user's does, by name. */
static void lanes_read(const char *name)
{
	struct gpunvme_dfile view;
	struct gpunvme_cursor cursor = { .dq = &dq, .file = &view, .bounce = (1 << 20) - 65536 };
	struct gpunvme_file *file;

	good(gpunvme_file_open(dev, name, NULL, &file));
	good(gpunvme_file_view(file, gpu, &view));
	memset(gpunvme_mem_ptr(mem), 0, 1 << 20);
	good(gpunvme_read(&cursor, &dbuf, 0, 0, BYTES));
	assert_int_equal(cursor.done, BYTES);
	assert_memory_equal(gpunvme_mem_ptr(mem), content, BYTES);
	gpunvme_file_close(file);
}

/* Frozen, a mounted ext4 is on the drive as it was unmounted, and goes on afterwards. */
static void test_files_of_a_mounted_file_system(void **state)
{
	char command[96];
	struct gpunvme_file *file;

	(void)state;
	snprintf(command, sizeof(command), "mkfs.ext4 -q -F -b 4096 %s", info.path);
	run(command);
	assert_int_equal(mount(info.path, AT, "ext4", 0, NULL), 0);
	write_file(AT "/train.bin", 0);
	assert_int_equal(gpunvme_file_open(dev, "/train.bin", NULL, &file), -EBUSY);
	root = open(AT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (unsigned char turn = 1; turn < 4; turn++) {
		write_file(AT "/train.bin", turn);
		assert_int_equal(ioctl(root, FIFREEZE, 0), 0);
		lanes_read("/train.bin");
		assert_int_equal(ioctl(root, FITHAW, 0), 0);
	}
	close(root);
	root = -1;
	assert_int_equal(gpunvme_ublk_stop(ublk), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "is mounted on " AT));
	assert_int_equal(mount(NULL, AT, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	lanes_read("/train.bin");
	assert_int_equal(umount(AT), 0);
	snprintf(command, sizeof(command), "e2fsck -f -n %s", info.path);
	run(command);
	lanes_read("/train.bin");
}

/* Does this process have the node of a block device mapped? */
static int has_node(void)
{
	char line[512];
	int found = 0;
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && fgets(line, sizeof(line), maps))
		found |= strstr(line, "/dev/ublkc") != NULL;
	if (maps)
		fclose(maps);
	return found;
}

/* A child that has the block device's descriptors or mappings would keep it from ending; what it has is refused there. */
static void test_fork(void **state)
{
	int status, pid = fork();

	(void)state;
	if (!pid)
		_exit(gpunvme_ublk_stop(ublk) == -ECHILD && !has_node() ? 0 : 1);
	assert_true(has_node());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* ---- Threads that know what they wrote ---- */

#define THREADS 4u
#define REGION (4u << 20)
#define STEP 4096u
#define TURNS 250u

struct writer {
	uint32_t number, seed;
	uint32_t version[REGION / STEP]; /* of each step; 0: zeroes */
	const char *wrong;
};

static int one(struct writer *w, int fd, uint32_t step, uint32_t steps, char *buf, char *want)
{
	const off_t at = (off_t)w->number * REGION + (off_t)step * STEP;
	uint64_t range[2] = { (uint64_t)at, (uint64_t)steps * STEP };
	uint32_t what = known_next(&w->seed) % 8, i;

	for (i = 0; i < steps; i++) {
		if (what < 5)
			w->version[step + i] = what ? w->version[step + i] + known_next(&w->seed) % 1000 + 1 : 0;
		known_fill((uint32_t *)(want + i * STEP), STEP / 4, w->number, step + i, w->version[step + i]);
	}
	if (!what)
		return ioctl(fd, BLKZEROOUT, range);
	if (what < 5)
		return pwrite(fd, want, range[1], at) != (ssize_t)range[1];
	return pread(fd, buf, range[1], at) != (ssize_t)range[1] || memcmp(buf, want, range[1]);
}

static void *work(void *arg)
{
	struct writer *w = arg;
	int fd = open(info.path, O_RDWR | O_DIRECT | O_CLOEXEC);
	char *buf = aligned_alloc(STEP, 64 * STEP), *want = aligned_alloc(STEP, 64 * STEP);
	uint64_t all[2] = { (uint64_t)w->number * REGION, REGION };
	uint32_t turn, step;

	if (fd < 0 || !buf || !want || ioctl(fd, BLKZEROOUT, all))
		w->wrong = "it could not begin";
	for (turn = 0; turn < TURNS && !w->wrong; turn++) {
		step = known_next(&w->seed) % (REGION / STEP);
		if (one(w, fd, step, known_next(&w->seed) % 64 % (REGION / STEP - step) + 1, buf, want))
			w->wrong = "other bytes, or an error";
	}
	for (step = 0; step < REGION / STEP && !w->wrong; step++) {
		known_fill((uint32_t *)want, STEP / 4, w->number, step, w->version[step]);
		if (pread(fd, buf, STEP, (off_t)(all[0] + step * STEP)) != STEP || memcmp(buf, want, STEP))
			w->wrong = "other bytes at the end";
	}
	free(buf);
	free(want);
	close(fd);
	return NULL;
}

/* Twice: a request is tried three times (lib/ublk/worker.c), and on a slow machine one is under way at each reset. */
static int reset_under_way(void)
{
	int ret = 0;

	for (uint32_t i = 0; i < 2 && !ret; i++) {
		usleep(300000);
		ret = gpunvme_dev_reset(dev);
	}
	return ret;
}

/* Nothing is asserted before all of them have ended (let_go()). */
static void test_stamps(void **state)
{
	static struct writer writer[THREADS];
	pthread_t thread[THREADS];
	struct gpunvme_ublk_info after = { .size = sizeof(after) };
	uint32_t started, i;
	int ret = 0;

	(void)state;
	for (started = 0; started < THREADS; started++) {
		writer[started].number = started;
		writer[started].seed = started + 1;
		if (pthread_create(&thread[started], NULL, work, &writer[started]))
			break;
	}
	if (getenv("GPUNVME_TEST_RESETS"))
		ret = reset_under_way();
	for (i = 0; i < started; i++)
		pthread_join(thread[i], NULL);
	good(ret);
	assert_int_equal(started, THREADS);
	for (i = 0; i < THREADS; i++)
		if (writer[i].wrong)
			fail_msg("thread %u: %s", i, writer[i].wrong);
	good(gpunvme_ublk_get_info(ublk, &after));
	assert_true(after.requests >= THREADS * TURNS);
	assert_int_equal(after.failed, 0);
	assert_true(after.recoveries || !strstr(getenv("GPUNVME_TEST_URI"), "fault=lose"));
	print_message("%llu requests, %u recoveries\n", (unsigned long long)after.requests, after.recoveries);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_files_of_a_mounted_file_system, let_go),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_stamps),
	};

	return cmocka_run_group_tests_name("ublk", tests, setup, teardown);
}
