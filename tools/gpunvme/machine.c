/* SPDX-License-Identifier: MIT */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <gpunvme/gpunvme.h>

/* First line of a file, or NULL. It is valid until the next call. */
static const char *line_of(const char *path)
{
	static char line[512];
	FILE *file = fopen(path, "re");
	char *got = file ? fgets(line, sizeof(line), file) : NULL;

	if (file)
		fclose(file);
	if (got)
		line[strcspn(line, "\n")] = '\0';
	return got;
}

static void put_line(struct json_object *json, const char *name, const char *path)
{
	const char *line = line_of(path);

	if (line)
		put_text(json, name, line);
}

/* Options of the kernel's command line about devices and memory. */
static void put_kernel_options(struct json_object *json)
{
	static const char *const about[] = { "iommu", "pci", "amdgpu", "vfio", "hugepage" };
	const char *line = line_of("/proc/cmdline");
	struct json_object *list = put_list(json, "kernel_options");
	char *word, *rest, *copy = line ? strdup(line) : NULL;

	for (word = copy ? strtok_r(copy, " ", &rest) : NULL; word; word = strtok_r(NULL, " ", &rest))
		for (size_t i = 0; i < sizeof(about) / sizeof(about[0]); i++)
			if (strstr(word, about[i])) {
				json_object_array_add(list, json_object_new_string(word));
				break;
			}
	free(copy);
}

void put_machine(struct json_object *json)
{
	unsigned v = gpunvme_version();
	struct rlimit limit;
	struct utsname os;
	char text[32];

	snprintf(text, sizeof(text), "%u.%u.%u", v >> 16, v >> 8 & 0xff, v & 0xff);
	put_text(json, "gpunvme", text);
	uname(&os);
	put_text(json, "kernel", os.release);
	put_text(json, "architecture", os.machine);
	put_line(json, "distribution", "/etc/os-release");
	put_line(json, "product", "/sys/class/dmi/id/product_name");
	put_line(json, "board", "/sys/class/dmi/id/board_name");
	put_line(json, "firmware", "/sys/class/dmi/id/bios_version");
	put_line(json, "rocm", "/opt/rocm/.info/version");
	put_line(json, "amdgpu", "/sys/module/amdgpu/version");
	put_line(json, "nvidia", "/sys/module/nvidia/version");
	put_count(json, "cpus", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
	put_bool(json, "root", geteuid() == 0);
	if (!getrlimit(RLIMIT_MEMLOCK, &limit))
		put_text(json, "memlock", limit.rlim_cur == RLIM_INFINITY ? "unlimited" : human((double)limit.rlim_cur));
	put_kernel_options(json);
}
