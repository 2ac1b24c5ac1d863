/* SPDX-License-Identifier: MIT */
#include "doctor_machine.h"
#include "lists.h"

#include <dirent.h>
#include <errno.h>
#include <linux/capability.h>
#include <linux/io_uring.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/output.h"

#define ENOUGH (64 * MIB) /* of memory to lock: the buffer of this command */

/* @missing is the remedy, or NULL: the check holds. */
__attribute__((format(printf, 4, 5))) static void say(struct gpunvme_check *check, const char *name, const char *missing,
						      const char *format, ...)
{
	va_list args;

	*check = (struct gpunvme_check){ .result = missing ? GPUNVME_CHECK_LIMIT : GPUNVME_CHECK_OK };
	snprintf(check->name, sizeof(check->name), "%s", name);
	snprintf(check->remedy, sizeof(check->remedy), "%s", missing ? missing : "");
	va_start(args, format);
	vsnprintf(check->reason, sizeof(check->reason), format, args);
	va_end(args);
}

/* Device files of VFIO and IOMMUFD: Linux 6.6, drivers/vfio/device_cdev.c. */
static void check_kernel(struct gpunvme_check *check)
{
	unsigned major = 0, minor = 0;
	struct utsname os;

	uname(&os);
	if (sscanf(os.release, "%u.%u", &major, &minor) == 2 && (major > 6 || (major == 6 && minor >= 6)))
		say(check, "kernel", NULL, "Linux %s is new enough for IOMMUFD and device files of VFIO", os.release);
	else
		say(check, "kernel", "a kernel from 6.6 on can do more", "Linux %s: drives by VFIO type 1 containers only", os.release);
}

static unsigned entries(const char *path)
{
	DIR *dir = opendir(path);
	const struct dirent *entry;
	unsigned n = 0;

	while (dir && (entry = readdir(dir)))
		n += entry->d_name[0] != '.';
	if (dir)
		closedir(dir);
	return n;
}

static void check_iommu(struct gpunvme_check *check)
{
	const unsigned n = entries("/sys/class/iommu");

	if (n)
		say(check, "iommu", NULL, "%u IOMMUs are in use", n);
	else
		say(check, "iommu", "turn on VT-d or AMD-Vi in the firmware, and look at the kernel's intel_iommu= and amd_iommu=",
		    "no IOMMU is in use: a drive can be opened without one only where the kernel and the caller agree to it");
}

static void check_vfio(struct gpunvme_check *check)
{
	if (!access("/sys/bus/pci/drivers/vfio-pci", F_OK))
		say(check, "vfio", NULL, "vfio-pci is loaded, %s", access("/dev/iommu", F_OK) ? "without IOMMUFD" : "with IOMMUFD");
	else
		say(check, "vfio", "run modprobe vfio-pci, then `gpunvme bind`",
		    "vfio-pci is not loaded: no drive can be opened by PCI address");
}

/* Try the system call: the sysctl kernel.io_uring_disabled has exceptions, and does not show filters of system calls. */
static void check_uring(struct gpunvme_check *check)
{
	struct io_uring_params params = { .flags = 0 };
	const int fd = (int)syscall(SYS_io_uring_setup, 1, &params);

	if (fd >= 0) {
		close(fd);
		say(check, "io_uring", NULL, "this process may use it");
		return;
	}
	say(check, "io_uring",
	    errno == ENOMEM ? "raise RLIMIT_MEMLOCK (ulimit -l)" :
			      "look at the sysctl kernel.io_uring_disabled, and at filters such as a container's",
	    "refused: %s. soft: drives on files and devices may not open, soft:ram:SIZE does", strerror(errno));
}

/* CAP_IPC_LOCK of capabilities(7): no limit. */
static bool may_lock_all(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long effective = 0;
	char line[256];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	if (file)
		fclose(file);
	return effective >> CAP_IPC_LOCK & 1;
}

static void check_memlock(struct gpunvme_check *check)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY || may_lock_all())
		say(check, "memlock", NULL, "all memory may be locked");
	else if (limit.rlim_cur >= ENOUGH)
		say(check, "memlock", NULL, "%s may be locked", human((double)limit.rlim_cur));
	else
		say(check, "memlock", "raise RLIMIT_MEMLOCK (memlock in /etc/security/limits.conf)",
		    "only %s may be locked, which bounds queues and buffers", human((double)limit.rlim_cur));
}

static void check_drives(struct gpunvme_check *check)
{
	struct gpunvme_pci_info *all;
	uint32_t n = list_controllers(&all), ready = 0, i;

	for (i = 0; i < n; i++)
		ready += !strcmp(all[i].driver, "vfio-pci");
	free(all);
	if (!n)
		say(check, "drives", "emulated drives need none: soft:ram:1G", "this machine shows no NVMe controller");
	else if (!ready)
		say(check, "drives", "`gpunvme bind ADDRESS` takes one that nothing uses", "%u NVMe controllers, none of them bound to vfio-pci",
		    n);
	else
		say(check, "drives", NULL, "%u NVMe controllers, %u of them bound to vfio-pci", n, ready);
}

static void check_gpus(struct gpunvme_check *check)
{
	uint32_t n = 0;

	gpunvme_gpu_list(NULL, &n);
	if (n)
		say(check, "gpus", NULL, "%u GPU%s, checked below", n, n == 1 ? "" : "s");
	else
		say(check, "gpus", "CPU threads (--gpu cpu, the default) need none. For a GPU, load its driver: amdgpu or nvidia",
		    "this machine shows no GPU");
}

void check_machine(struct gpunvme_check checks[MACHINE_CHECKS])
{
	check_kernel(&checks[0]);
	check_iommu(&checks[1]);
	check_vfio(&checks[2]);
	check_uring(&checks[3]);
	check_memlock(&checks[4]);
	check_drives(&checks[5]);
	check_gpus(&checks[6]);
}
