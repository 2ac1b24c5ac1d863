/* SPDX-License-Identifier: MIT */
/*
 * What a namespace lies on, and which programs may overwrite it unasked (gpunvme_ns_info.medium, gpunvme_ns_may_overwrite()):
 * however its URI is spelled, the result is about what was opened.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "common/loop.h"

static char disk[128], loop_path[32];

static int setup(void **state)
{
	int ret = image_make_disk(state, 16 << 20);

	snprintf(disk, sizeof(disk), "%s", image_path("disk.img"));
	return ret;
}

static struct gpunvme_dev *open_dev(const char *uri, const struct gpunvme_dev_opts *opts)
{
	struct gpunvme_dev *dev = NULL;

	if (gpunvme_dev_open(uri, opts, &dev))
		fail_msg("%s: %s", uri, gpunvme_errmsg());
	return dev;
}

static struct gpunvme_ns_info info_of(struct gpunvme_dev *dev, uint32_t nsid)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };

	assert_int_equal(gpunvme_ns_get_info(dev, nsid, &ns), 0);
	return ns;
}

/* The default namespace of @uri: its medium, and what is said of overwriting it. */
static void expect(const char *uri, uint32_t medium, int ret)
{
	struct gpunvme_dev *dev = open_dev(uri, NULL);

	print_message("%s\n", uri);
	assert_int_equal(info_of(dev, 0).medium, medium);
	assert_int_equal(gpunvme_ns_may_overwrite(dev, 0), ret);
	if (ret == -EPERM)
		assert_non_null(strstr(gpunvme_errmsg(), "this would overwrite data on libgpunvme"));
	assert_int_equal(gpunvme_dev_close(dev), 0);
}

/* The namespace of that number lies on this file, or on none. */
static void is_named(const char *uri, uint32_t number, const struct stat *st)
{
	struct gpunvme_dev *dev = open_dev(uri, NULL);
	struct gpunvme_ns_info ns = info_of(dev, number);

	assert_int_equal(ns.medium_dev, st->st_dev);
	assert_int_equal(ns.medium_ino, st->st_ino);
	gpunvme_dev_close(dev);
}

static void an_image_is_for_writing(void **state)
{
	char uri[512], path[300], folder[160];
	struct stat st;

	(void)state;
	assert_int_equal(stat(disk, &st), 0);
	snprintf(uri, sizeof(uri), "soft:%s", disk);
	expect(uri, GPUNVME_MEDIUM_FILE, 0);
	is_named(uri, 1, &st);
	memset(folder, 'x', 120); /* longer than gpunvme_dev_info.address */
	folder[120] = '\0';
	snprintf(path, sizeof(path), "%s/%s", image_dir, folder);
	image_make(path, 1 << 20);
	snprintf(uri, sizeof(uri), "soft:%s", path);
	expect(uri, GPUNVME_MEDIUM_FILE, 0);
	unlink(path);
}

static void memory_is_for_writing(void **state)
{
	(void)state;
	expect("soft:ram:1M", GPUNVME_MEDIUM_MEMORY, 0);
	expect("soft:vram:1M?on=cpu", GPUNVME_MEDIUM_GPU, 0);
}

/* Memory of a GPU has the data of a file, or of none. */
static void an_image_of_memory_is_named(void **state)
{
	struct stat st;
	char uri[256];

	(void)state;
	assert_int_equal(stat(disk, &st), 0);
	snprintf(uri, sizeof(uri), "soft:vram:16M?on=cpu&image=%s", disk);
	expect(uri, GPUNVME_MEDIUM_GPU, 0);
	is_named(uri, 0, &st);
	is_named("soft:vram:1M?on=cpu", 0, &(struct stat){ 0 });
}

static void what_cannot_be_written_is_said(void **state)
{
	const struct gpunvme_dev_opts only = { .size = sizeof(only), .flags = GPUNVME_DEV_READ_ONLY };
	struct gpunvme_dev *dev = NULL;
	char uri[256];

	(void)state;
	snprintf(uri, sizeof(uri), "soft:%s?ro=1", disk);
	expect(uri, GPUNVME_MEDIUM_FILE, -EROFS);
	gpunvme_dev_close(open_dev(uri, &only)); /* both say so */
	snprintf(uri, sizeof(uri), "soft:%s", disk);
	dev = open_dev(uri, &only);
	assert_int_equal(gpunvme_ns_may_overwrite(dev, 0), -EROFS);
	gpunvme_dev_close(dev);
	snprintf(uri, sizeof(uri), "soft:%s?r%%6f=%%30", disk);
	assert_int_equal(gpunvme_dev_open(uri, &only, &dev), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "ro=0"));
}

/* The device's default namespace, by its option in place of the URI's. */
static void an_option_names_the_namespace(void **state)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *dev;
	char uri[256];

	(void)state;
	snprintf(uri, sizeof(uri), "soft:%s?ns2=ram:2M&n%%73=1", disk);
	opts.nsid = 2;
	dev = open_dev(uri, &opts);
	assert_int_equal(info_of(dev, 0).nsid, 2);
	assert_int_equal(info_of(dev, 0).medium, GPUNVME_MEDIUM_MEMORY);
	assert_int_equal(info_of(dev, 1).medium, GPUNVME_MEDIUM_FILE);
	gpunvme_dev_close(dev);
	opts.nsid = GPUNVME_NSID_ALL;
	assert_int_equal(gpunvme_dev_open(uri, &opts, &dev), -EINVAL);
	opts = (struct gpunvme_dev_opts)GPUNVME_DEV_OPTS_INIT;
	opts.flags = 2;
	assert_int_equal(gpunvme_dev_open(uri, &opts, &dev), -EINVAL);
}

static void a_block_device_is_asked_for(void **state)
{
	static const char *const spelled[] = { "ns=2&ns2=", "ns=%32&ns2=", "n%73=2&ns2=", "ns=0x2&ns%32=", "ns=02&n%732=" };
	struct gpunvme_dev *dev;
	char uri[400];
	struct stat st;
	size_t i;
	int loop = make_loop(loop_path, sizeof(loop_path), NULL);

	(void)state;
	if (loop < 0)
		SKIP("no loop devices");
	snprintf(uri, sizeof(uri), "soft:%s", loop_path);
	expect(uri, GPUNVME_MEDIUM_BLOCK, -EPERM);
	dev = open_dev(uri, NULL);
	assert_int_equal(fstat(loop, &st), 0);
	assert_int_equal(info_of(dev, 1).medium_dev, st.st_rdev);
	assert_int_equal(info_of(dev, 1).medium_ino, 0);
	gpunvme_dev_close(dev);
	for (i = 0; i < sizeof(spelled) / sizeof(spelled[0]); i++) {
		snprintf(uri, sizeof(uri), "soft:%s?%s%s", disk, spelled[i], loop_path);
		expect(uri, GPUNVME_MEDIUM_BLOCK, -EPERM);
	}
	close(loop);
}

static int serve(const char *uri, uint32_t flags, struct gpunvme_server **server)
{
	struct gpunvme_server_opts opts = GPUNVME_SERVER_OPTS_INIT;

	opts.flags = flags;
	return gpunvme_server_start(uri, image_path("socket"), &opts, server);
}

static void a_careful_server_serves_what_was_made_for_it(void **state)
{
	struct gpunvme_server *server;
	struct gpunvme_dev *dev;
	char uri[400];
	int loop;

	(void)state;
	snprintf(uri, sizeof(uri), "soft:%s?ns2=ram:1M", disk);
	assert_int_equal(serve(uri, 2, &server), -EINVAL);
	assert_int_equal(serve(uri, GPUNVME_SERVER_CAREFUL, &server), 0);
	snprintf(uri, sizeof(uri), "vfio-user:%s", image_path("socket"));
	dev = open_dev(uri, NULL);
	assert_int_equal(info_of(dev, 1).medium, GPUNVME_MEDIUM_PROCESS);
	assert_int_equal(gpunvme_ns_may_overwrite(dev, 2), -EPERM);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	assert_int_equal(gpunvme_server_stop(server), 0);
	loop = make_loop(loop_path, sizeof(loop_path), NULL);
	if (loop < 0)
		SKIP("no loop devices");
	snprintf(uri, sizeof(uri), "soft:%s?ns%%32=%s", disk, loop_path);
	assert_int_equal(serve(uri, GPUNVME_SERVER_CAREFUL, &server), -EPERM);
	assert_non_null(strstr(gpunvme_errmsg(), "namespace 2"));
	assert_int_equal(access(image_path("socket"), F_OK), -1);
	snprintf(uri, sizeof(uri), "soft:%s?ns%%32=%s&ro2=%%31", disk, loop_path);
	assert_int_equal(serve(uri, GPUNVME_SERVER_CAREFUL, &server), 0); /* nobody can write it */
	assert_int_equal(gpunvme_server_stop(server), 0);
	snprintf(uri, sizeof(uri), "soft:%s?ns2=%s", disk, loop_path);
	assert_int_equal(serve(uri, 0, &server), 0);
	assert_int_equal(gpunvme_server_stop(server), 0);
	close(loop);
}

static void faults_are_told(void **state)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_dev *dev = open_dev("soft:ram:1M?f%61ult=delay:1:op=read", NULL);

	(void)state;
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
	assert_int_equal(info.faulty, 1);
	gpunvme_dev_close(dev);
	dev = open_dev("soft:ram:1M", NULL);
	assert_int_equal(gpunvme_dev_get_info(dev, &info), 0);
	assert_int_equal(info.faulty, 0);
	gpunvme_dev_close(dev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_image_is_for_writing),
		cmocka_unit_test(memory_is_for_writing),
		cmocka_unit_test(an_image_of_memory_is_named),
		cmocka_unit_test(what_cannot_be_written_is_said),
		cmocka_unit_test(an_option_names_the_namespace),
		cmocka_unit_test(a_block_device_is_asked_for),
		cmocka_unit_test(a_careful_server_serves_what_was_made_for_it),
		cmocka_unit_test(faults_are_told),
	};

	return cmocka_run_group_tests(tests, setup, image_remove_disk);
}
