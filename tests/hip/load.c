/* SPDX-License-Identifier: MIT */
/*
 * What the library looks up in a ROCm and what it says then, for tests/hip/load, which builds it with the headers of that ROCm:
 *   hsa from FILE                what the first symbol was found in
 *   hsa missing NAME             of each symbol that was not found
 *   hsa NUMBER SENTENCE          what the first call of the library returns; the same of hip and of drm
 * Linked with --wrap=dlsym.
 */
#include <dlfcn.h>
#include <gpunvme/status.h>
#include <stdbool.h>
#include <stdio.h>

#include "hip/declared.h"
#include "os/amd/drm.h"
#include "os/amd/hip.h"
#include "os/amd/hsa.h"

void *__real_dlsym(void *handle, const char *name);
void *__wrap_dlsym(void *handle, const char *name);

static const char *subject;
static bool named;

void *__wrap_dlsym(void *handle, const char *name)
{
	void *found = __real_dlsym(handle, name);
	Dl_info info;

	if (!found)
		printf("%s missing %s\n", subject, name);
	if (found && !named && dladdr(found, &info))
		printf("%s from %s\n", subject, info.dli_fname);
	named = named || found;
	return found;
}

static void begin(const char *what)
{
	subject = what;
	named = false;
}

static void answer(int ret)
{
	printf("%s %d %s\n", subject, ret, ret ? gpunvme_errmsg() : "");
}

int main(void)
{
	struct gnv_hsa *gpu;
	struct gnv_drm *drm;
	int ret, device;

	begin("hsa");
	ret = gnv_hsa_open("0", &gpu);
	answer(ret);
	if (!ret)
		gnv_hsa_close(gpu);
	begin("hip");
	answer(gnv_hip_device("ffff:00:00.0", &device));
	begin("drm");
	ret = gnv_drm_open("/sys", "ffff:00:00.0", &drm);
	answer(ret);
	if (!ret)
		gnv_drm_close(drm);
	return 0;
}
