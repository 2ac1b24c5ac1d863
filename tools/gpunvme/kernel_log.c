/* SPDX-License-Identifier: MIT */
/*
 * Records of /dev/kmsg (Documentation/ABI/testing/dev-kmsg). Each read() returns one: "PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;text",
 * and lines that begin with a space, which only repeat the device.
 */
#include "kernel_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORD 8192 /* the kernel's own limit is less (PRINTKRB_RECORD_MAX) */
#define LINES 200   /* the last ones may be thousands of the same */

int kernel_log_begin(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	lseek(fd, 0, SEEK_END);
	return fd;
}

static int matters(const char *text)
{
	static const char *const about[] = { "amdgpu", "kfd", "vfio", "iommu", "AMD-Vi", "DMAR", "AER", "pcie", "nvme", "nvidia", "NVRM" };

	for (size_t i = 0; i < sizeof(about) / sizeof(about[0]); i++)
		if (strcasestr(text, about[i]))
			return 1;
	return 0;
}

/* Seconds since the machine started, and the text. */
static void put_record(struct json_object *list, char *record)
{
	char *text = strchr(record, ';'), line[1200];
	unsigned long long us;

	if (!text)
		return;
	*text++ = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (!matters(text))
		return;
	if (json_object_array_length(list) == LINES)
		json_object_array_add(list, json_object_new_string("and more"));
	if (json_object_array_length(list) > LINES || sscanf(record, "%*u,%*u,%llu", &us) != 1)
		return;
	snprintf(line, sizeof(line), "%llu.%06llu %.1000s", us / 1000000, us % 1000000, text);
	json_object_array_add(list, json_object_new_string(line));
}

void put_kernel_log(struct json_object *json, int fd)
{
	char record[RECORD], why_not[80];
	struct json_object *list = put_list(json, "kernel_log");
	ssize_t n;

	if (fd < 0) {
		snprintf(why_not, sizeof(why_not), "not known: /dev/kmsg: %s: run it as root", strerror(-fd));
		json_object_array_add(list, json_object_new_string(why_not));
		return;
	}
	for (;;) {
		n = read(fd, record, sizeof(record) - 1);
		if (n < 0 && (errno == EPIPE || errno == EINTR)) /* EPIPE: older ones were overwritten, and the next follow */
			continue;
		if (n <= 0)
			break;
		record[n] = '\0';
		put_record(list, record);
	}
	close(fd);
}
