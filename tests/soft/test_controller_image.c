/* SPDX-License-Identifier: MIT */
/* Images: what is refused at creation, and what is served read-only. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/image.h"
#include "common/loop.h"
#include "common/rawhost.h"

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Creation must fail so, say why, name the file, and leave nothing open. */
static void expect_refusal(struct gnv_soft_config c, int error, const char *word)
{
	int fds = count_fds();
	struct gnv_space *space;
	struct gnv_soft *soft = NULL;

	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(gnv_soft_create(&c, space, NULL, &soft), error);
	assert_null(soft);
	if (!strstr(gpunvme_errmsg(), word))
		fail_msg("\"%s\" does not say \"%s\"", gpunvme_errmsg(), word);
	gnv_space_put(space);
	assert_int_equal(count_fds(), fds);
}

static void bad_values_are_refused(void **state)
{
	struct gnv_soft_config good = GNV_SOFT_CONFIG_INIT, c;

	(void)state;
	good.path = "/nonexistent";
	expect_refusal(good, -ENOENT, "/nonexistent");
	c = good, c.path = NULL, expect_refusal(c, -EINVAL, "path");
	c = good, c.lba_size = 1024, expect_refusal(c, -EINVAL, "1024");
	c = good, c.mdts = 17, expect_refusal(c, -EINVAL, "17");
	c = good, c.queues = 0, expect_refusal(c, -EINVAL, "queues");
	c = good, c.queues = 1025, expect_refusal(c, -EINVAL, "1025");
	c = good, c.depth = 1, expect_refusal(c, -EINVAL, "depth");
	c = good, c.depth = 65537, expect_refusal(c, -EINVAL, "65537");
	c = good, c.dstrd = 9, expect_refusal(c, -EINVAL, "stride");
	c = good, c.threads = 0, expect_refusal(c, -EINVAL, "threads");
	c = good, c.threads = 65, expect_refusal(c, -EINVAL, "65");
}

static void bad_images_are_refused(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;

	(void)state;
	c.path = image_dir;
	expect_refusal(c, -EISDIR, "directory");
	c.path = "/dev/null";
	expect_refusal(c, -EINVAL, "/dev/null");
	c.path = image_path("image");
	image_make(c.path, 0);
	expect_refusal(c, -EINVAL, "less than one block");
	image_make(c.path, 511);
	expect_refusal(c, -EINVAL, "less than one block");
	image_make(c.path, 4096 + 512);
	c.lba_size = 4096;
	expect_refusal(c, -EINVAL, "multiple");
	unlink(c.path);
	assert_int_equal(mkfifo(c.path, 0600), 0);
	expect_refusal(c, -EINVAL, "neither");
	unlink(c.path);
}

static void image_of_one_block_works(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	struct gpunvme_sqe sqe;

	(void)state;
	c.path = image_path("image");
	image_make(c.path, 512);
	rawhost_start(&host, &c);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	assert_int_equal(rawhost_io(&sqe), 0);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 1, 1, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_LBA_RANGE);
	rawhost_close(&host);
	unlink(image_path("image"));
}

static void image_without_write_permission_is_served_read_only(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	struct gpunvme_sqe sqe;

	(void)state;
	c.path = image_path("image");
	image_make(c.path, 4096);
	assert_int_equal(chmod(c.path, 0400), 0);
	rawhost_start(&host, &c);
	assert_true(gnv_soft_read_only(host.soft));
	sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 1, 0);
	assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_NS_WRITE_PROTECTED);
	rawhost_close(&host);
	unlink(image_path("image"));
}

static void unreadable_image_is_refused(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	int ret;

	(void)state;
	if (geteuid())
		SKIP("needs root, to become someone else");
	c.path = image_path("image");
	image_make(c.path, 4096);
	assert_int_equal(chmod(image_dir, 0755), 0);
	ret = seteuid(65534);
	if (!ret)
		expect_refusal(c, -EACCES, "permission");
	assert_int_equal(seteuid(0), 0);
	unlink(image_path("image"));
	if (ret)
		SKIP("cannot become another user");
}

static void image_on_a_read_only_mount_is_served_read_only(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;

	(void)state;
	if (mount("tmpfs", image_dir, "tmpfs", 0, "size=1m"))
		SKIP("cannot mount a tmpfs");
	c.path = image_path("image");
	image_make(c.path, 4096);
	assert_int_equal(mount(NULL, image_dir, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	assert_int_equal(rawhost_open(&host, &c), 0);
	assert_true(gnv_soft_read_only(host.soft));
	rawhost_close(&host);
}

static void identity_stays_from_one_run_to_the_next(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_IDENTIFY, .cdw10 = 1 };
	char serial[2][20];
	unsigned i;

	(void)state;
	c.path = image_path("image");
	image_make(c.path, 4096);
	for (i = 0; i < 2; i++) {
		rawhost_start(&host, &c);
		sqe.prp1 = rawhost_iova(&host, 0);
		assert_int_equal(rawhost_admin(&sqe, NULL), 0);
		memcpy(serial[i], rawhost_data(&host, 4), 20);
		rawhost_close(&host);
	}
	unlink(image_path("image"));
	assert_memory_equal(serial[0], serial[1], 20);
	assert_memory_equal(serial[0], "GNV", 3);
}

/* ---- No io_uring ---- */

/* In a child: a call of io_uring's fails with `error`. Exit status: 0 refused as documented, 1 not, 2 no seccomp here. */
static int refused_in_child(const struct gnv_soft_config *c, unsigned call, unsigned error, const char *word)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { 4, code };
	struct gnv_soft *soft = NULL;
	struct gnv_space *space;
	int ret;

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return 2;
	if (gnv_soft_space_create(&space))
		return 1;
	ret = gnv_soft_create(c, space, NULL, &soft);
	gnv_space_put(space);
	return ret == -EOPNOTSUPP && !soft && strstr(gpunvme_errmsg(), word) ? 0 : 1;
}

static void expect_no_uring(unsigned call, unsigned error, const char *word)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	int status;
	pid_t pid;

	c.path = image_path("image");
	c.threads = 3;
	image_make(c.path, 4096);
	pid = fork();
	if (!pid)
		_exit(refused_in_child(&c, call, error, word));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	unlink(c.path);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2)
		SKIP("no seccomp");
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void kernel_without_io_uring_is_named(void **state)
{
	(void)state;
	expect_no_uring(SYS_io_uring_setup, ENOSYS, "5.11");
}

static void forbidden_io_uring_is_named(void **state)
{
	(void)state;
	expect_no_uring(SYS_io_uring_setup, EPERM, "io_uring_disabled");
	expect_no_uring(SYS_io_uring_enter, EPERM, "io_uring_enter");
	expect_no_uring(SYS_io_uring_enter, ENOSYS, "io_uring_enter");
}

/* ---- Block devices ---- */

static void block_device_in_use_is_refused(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	char path[32], command[128];
	int loop, held;

	(void)state;
	loop = make_loop(path, sizeof(path), NULL);
	if (loop < 0)
		SKIP("no loop devices");
	c.path = path;
	held = open(path, O_RDWR | O_EXCL);
	assert_true(held >= 0);
	expect_refusal(c, -EBUSY, path);
	close(held);
	snprintf(command, sizeof(command), "mkfs.ext4 -q %s 2>/dev/null", path);
	if (!system(command) && !mount(path, image_dir, "ext4", 0, NULL)) {
		expect_refusal(c, -EBUSY, "mounted");
		c.read_only = true;
		expect_refusal(c, -EBUSY, image_dir);
		umount(image_dir);
	}
	close(loop);
}

static void block_device_is_served_and_claimed(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	struct gpunvme_sqe sqe;
	char path[32], who[32];
	int loop, other;

	(void)state;
	loop = make_loop(path, sizeof(path), NULL);
	if (loop < 0)
		SKIP("no loop devices");
	c.path = path;
	rawhost_start(&host, &c);
	rawhost_fill(&host, 0, 4096, 3);
	sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 32760, 8, 0);
	assert_int_equal(rawhost_io(&sqe), 0);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 32760, 8, 8192);
	assert_int_equal(rawhost_io(&sqe), 0);
	assert_true(rawhost_is_filled(&host, 8192, 4096, 3));
	sqe = (struct gpunvme_sqe){ .opc = GPUNVME_IO_WRITE_ZEROES, .nsid = 1, .cdw10 = 32760, .cdw12 = 7 };
	assert_int_equal(rawhost_io(&sqe), 0);
	expect_refusal(c, -EBUSY, path);
	rawhost_close(&host);
	other = open(path, O_RDWR | O_CLOEXEC);
	assert_true(other >= 0);
	snprintf(who, sizeof(who), "process %d (", (int)getpid());
	expect_refusal(c, -EBUSY, who);
	close(other);
	rawhost_start(&host, &c);
	rawhost_close(&host);
	close(loop);
}

/* ---- Two programs open one image ---- */

/* Another process opens it and says how that ended. */
static int opened_by_a_child(const struct gnv_soft_config *c, bool stay, pid_t *pid)
{
	int pipes[2], ret = 1;
	struct gnv_space *space;
	struct gnv_soft *soft;

	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	*pid = fork();
	if (!*pid) {
		ret = gnv_soft_space_create(&space);
		if (!ret)
			ret = gnv_soft_create(c, space, NULL, &soft);
		if (write(pipes[1], &ret, sizeof(ret)) != sizeof(ret))
			_exit(1);
		while (stay)
			pause();
		_exit(0);
	}
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &ret, sizeof(ret)), sizeof(ret));
	close(pipes[0]);
	return ret;
}

static void end_child(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void second_writer_is_refused(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT, reader;
	char who[64];
	pid_t pid;

	(void)state;
	c.path = image_path("image");
	image_make(c.path, 1 << 20);
	reader = c;
	reader.read_only = true;
	rawhost_start(&host, &c);
	expect_refusal(c, -EBUSY, "this process has it open already");
	expect_refusal(reader, -EBUSY, "this process");
	assert_int_equal(opened_by_a_child(&c, false, &pid), -EBUSY);
	end_child(pid);
	rawhost_close(&host);

	assert_int_equal(opened_by_a_child(&c, true, &pid), 0);
	snprintf(who, sizeof(who), "process %d (", (int)pid);
	expect_refusal(c, -EBUSY, who);
	end_child(pid);
	rawhost_start(&host, &c); /* a lock goes with its process */
	rawhost_close(&host);
	unlink(image_path("image"));
}

static void readers_share_an_image(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT, writer;
	pid_t pid;

	(void)state;
	c.path = image_path("image");
	image_make(c.path, 1 << 20);
	writer = c;
	c.read_only = true;
	rawhost_start(&host, &c);
	assert_int_equal(opened_by_a_child(&c, true, &pid), 0);
	expect_refusal(writer, -EBUSY, "process");
	end_child(pid);
	rawhost_close(&host);
	rawhost_start(&host, &writer);
	rawhost_close(&host);
	unlink(image_path("image"));
}

/* A child that sleeps with the descriptors of its parent does not keep the image. */
static void lock_ends_with_the_device(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	pid_t pid;

	(void)state;
	c.path = image_path("image");
	image_make(c.path, 1 << 20);
	rawhost_start(&host, &c);
	pid = fork();
	while (!pid)
		pause();
	rawhost_close(&host);
	rawhost_start(&host, &c);
	rawhost_close(&host);
	end_child(pid);
	unlink(image_path("image"));
}

/* A loop device writes to its image through the kernel, without a lock. */
static void image_of_a_loop_device_is_refused(void **state)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	char path[32], file[128], other[128];
	int loop;

	(void)state;
	snprintf(file, sizeof(file), "%s", image_path("image"));
	image_make(file, 1 << 20);
	loop = make_loop(path, sizeof(path), file);
	if (loop < 0) {
		unlink(file);
		SKIP("no loop devices");
	}
	c.path = file;
	expect_refusal(c, -EBUSY, path);
	c.read_only = true;
	rawhost_start(&host, &c);
	rawhost_close(&host);
	c.read_only = false;
	snprintf(other, sizeof(other), "%s", image_path("renamed"));
	assert_int_equal(rename(file, other), 0);
	c.path = other;
	expect_refusal(c, -EBUSY, path);
	image_make(file, 1 << 20); /* another has its name */
	expect_refusal(c, -EBUSY, path);
	c.path = file;
	rawhost_start(&host, &c);
	rawhost_close(&host);
	unlink(file);
	assert_int_equal(link(other, file), 0); /* and it a second one, when its own goes */
	unlink(other);
	expect_refusal(c, -EBUSY, path);
	close(loop);
	unlink(file);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bad_values_are_refused),
		cmocka_unit_test_setup_teardown(bad_images_are_refused, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(image_of_one_block_works, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(image_without_write_permission_is_served_read_only, image_make_dir,
						image_remove_dir),
		cmocka_unit_test_setup_teardown(unreadable_image_is_refused, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(image_on_a_read_only_mount_is_served_read_only, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(identity_stays_from_one_run_to_the_next, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(kernel_without_io_uring_is_named, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(forbidden_io_uring_is_named, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(block_device_in_use_is_refused, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(block_device_is_served_and_claimed, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(second_writer_is_refused, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(readers_share_an_image, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(lock_ends_with_the_device, image_make_dir, image_remove_dir),
		cmocka_unit_test_setup_teardown(image_of_a_loop_device_is_refused, image_make_dir, image_remove_dir),
	};

	return cmocka_run_group_tests_name("controller_image", tests, NULL, NULL);
}
