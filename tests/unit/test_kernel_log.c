/* SPDX-License-Identifier: MIT */
/*
 * What gpunvme report takes from /dev/kmsg. A socket of packets plays it: a record with each read, EAGAIN when there are no more
 * (Linux kernel/printk/printk.c, devkmsg_read()).
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "kernel_log.h"

static int kernel, reader;

/* EPIPE is what the kernel says of records that were overwritten before they were read. */
static int pipes;
ssize_t __real_read(int fd, void *to, size_t len);
ssize_t __wrap_read(int fd, void *to, size_t len);
ssize_t __wrap_read(int fd, void *to, size_t len)
{
	if (fd == reader && pipes && pipes--) {
		errno = EPIPE;
		return -1;
	}
	return __real_read(fd, to, len);
}

static int begin(void **state)
{
	int ends[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
	kernel = ends[0];
	reader = ends[1];
	assert_int_equal(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
	return 0;
}

static int end(void **state)
{
	(void)state;
	return close(kernel);
}

static void say(const char *record)
{
	assert_int_equal(send(kernel, record, strlen(record), 0), (ssize_t)strlen(record));
}

static struct json_object *hear(struct json_object **json)
{
	*json = json_object_new_object();
	put_kernel_log(*json, reader);
	return json_object_object_get(*json, "kernel_log");
}

static const char *line(struct json_object *list, size_t n)
{
	return json_object_get_string(json_object_array_get_idx(list, n));
}

static void test_filter(void **state)
{
	struct json_object *json, *list;

	(void)state;
	say("6,900,12000345,-;amdgpu 0000:03:00.0: ring gfx timeout\n SUBSYSTEM=pci\n DEVICE=+pci:0000:03:00.0\n");
	say("6,901,12000346,-;usb 1-1: new device\n SUBSYSTEM=usb\n DEVICE=amdgpu\n");
	pipes = 2;
	say("4,905,13000001,c;pcieport 0000:00:01.0: AER: Corrected error\n");
	say("3,906,14000000,-;AMD-Vi: Event logged [IO_PAGE_FAULT]\n");
	say("garbage about nvme");
	say("x;nvme");
	list = hear(&json);
	assert_int_equal(json_object_array_length(list), 3);
	assert_string_equal(line(list, 0), "12.000345 amdgpu 0000:03:00.0: ring gfx timeout");
	assert_string_equal(line(list, 1), "13.000001 pcieport 0000:00:01.0: AER: Corrected error");
	assert_string_equal(line(list, 2), "14.000000 AMD-Vi: Event logged [IO_PAGE_FAULT]");
	json_object_put(json);
}

/* A driver that says the same thousands of times: the report stays one that somebody reads. */
static void test_flood(void **state)
{
	struct json_object *json, *list;
	char record[1500];

	(void)state;
	memset(record, 'x', sizeof(record));
	memcpy(record, "6,1,1,-;vfio ", 13);
	record[sizeof(record) - 1] = '\0';
	for (int i = 0; i < 60; i++)
		say(record);
	list = hear(&json);
	assert_int_equal(json_object_array_length(list), 60);
	assert_int_equal(strlen(line(list, 0)), strlen("0.000001 ") + 1000);
	json_object_put(json);
	begin(NULL);
	for (int i = 0; i < 210; i++)
		say("6,1,1,-;iommu\n");
	list = hear(&json);
	assert_int_equal(json_object_array_length(list), 201);
	assert_string_equal(line(list, 200), "and more");
	json_object_put(json);
}

/* What was said before does not matter, and where nothing may be read the report says why. */
static void test_begin(void **state)
{
	char name[] = "/tmp/gpunvme-kmsg-XXXXXX";
	struct json_object *json, *list;
	int fd = mkstemp(name);

	(void)state;
	close(reader);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "6,1,1,-;vfio old\n", 17), 17);
	reader = kernel_log_begin(name);
	assert_true(reader >= 0);
	assert_int_equal(write(fd, "6,2,2,-;vfio new\n", 17), 17);
	list = hear(&json);
	assert_int_equal(json_object_array_length(list), 1);
	assert_string_equal(line(list, 0), "0.000002 vfio new");
	json_object_put(json);
	close(fd);
	unlink(name);
	reader = kernel_log_begin(name);
	assert_int_equal(reader, -ENOENT);
	list = hear(&json);
	assert_non_null(strstr(line(list, 0), "No such file or directory: run it as root"));
	json_object_put(json);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_filter), TEST(test_flood), TEST(test_begin) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
