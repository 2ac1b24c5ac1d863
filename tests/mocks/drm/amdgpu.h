/* SPDX-License-Identifier: MIT */
/* An AMD GPU whose kernel nodes, sysfs and libdrm are emulated: what the tests of its drivers share. */
#ifndef TESTS_MOCKS_AMDGPU_H
#define TESTS_MOCKS_AMDGPU_H

#include "mocks/kernel/calls.h"
#include "common/mock.h"
#include "common/tree.h"
#include "fake_drm.h"
#include "os/amd/kfd.h"
#include "os/amd/uapi/kfd.h"

#define BDF "0000:03:00.0"
#define KFD_ID 77u

static const char *const nodes[] = { GNV_KFD_NODE, "/dev/dri/renderD129", NULL };
static struct fake_drm *fake;

/* Setup of a group; tree_remove() is the teardown. */
static int make_world(void **state)
{
	fake = mock_state("GPUNVME_DRM_LIBRARY", FAKE_DRM_LIBRARY, "fake_drm");
	if (!fake || tree_make(state))
		return -1;
	put("", "bus/pci/devices/%s/drm/card1/dev", BDF);
	put("", "bus/pci/devices/%s/drm/renderD129/dev", BDF);
	return 0;
}

/* Setup of a test. @answer: result of an ioctl of the kernel's nodes, NULL: success. */
static void begin_world(int (*answer)(int fd, unsigned long request, void *arg))
{
	calls_reset();
	calls.nodes = nodes;
	calls.ioctl = answer;
	memset(fake, 0, sizeof(*fake));
}

static void nothing_left(void)
{
	assert_int_equal(fake->bos + fake->maps + fake->lists + fake->contexts, 0);
	assert_int_equal(calls.fds, 0);
	assert_int_equal(calls.ranges, 0);
}

/* Teardown of a test. */
static int end_world(void **state)
{
	(void)state;
	nothing_left();
	assert_int_equal(fake->devices, 0);
	if (fake->broke)
		fail_msg("%s", fake->broke);
	return 0;
}

#endif
