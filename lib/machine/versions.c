/* SPDX-License-Identifier: MIT */
/*
 * Versions of the libraries of GPUs, for reports. None of them but HIP has a function that returns its own version
 * (drmGetLibVersion() is a constant), so that the names of their files have to do: libdrm_amdgpu.so.1.124.0.
 */
#include <stdio.h>

#include "machine/doctor.h"
#include "os/amd/drm.h"
#include "os/amd/hip.h"
#include "os/linux/dl.h"

static void say_hip(struct gnv_report *report)
{
	char text[64];
	int version;

	if (gnv_hip_version(&version)) {
		gnv_report_skip(report, "hip", gpunvme_errmsg());
		return;
	}
	snprintf(text, sizeof(text), "HIP %d.%d.%d", version / 10000000, version / 100000 % 100, version % 100000);
	gnv_report_say(report, "hip", GPUNVME_CHECK_OK, text);
}

void gnv_doctor_versions(struct gnv_report *report)
{
	static const char *const begins[] = { "libamdhip64", "libcuda.", "libdrm", "libhsa", "librocm_sysdeps_drm", NULL };
	char names[256];

	say_hip(report);
	gnv_drm_load();
	gnv_dl_loaded(begins, names, sizeof(names));
	if (*names)
		gnv_report_say(report, "libraries", GPUNVME_CHECK_OK, names);
	else
		gnv_report_skip(report, "libraries", "none of a GPU is loaded");
}
