/* SPDX-License-Identifier: MIT */
/* Two controllers over images: one for this process, and one that another process serves. Setup and teardown for cmocka. */
#ifndef TESTS_TWO_DISKS_H
#define TESTS_TWO_DISKS_H

#include <stdio.h>

#include "common/image.h"
#include "common/served.h"

static char file_uri[160], user_uri[128], served_uri[160], sock[96];
static pid_t server;

/* Before this process has threads. keys: after the URI of its own one. */
static inline int make_disks(void **state, const char *keys)
{
	if (image_make_dir(state))
		return -1;
	image_make(image_path("served.img"), 4 << 20);
	snprintf(served_uri, sizeof(served_uri), "soft:%s", image_path("served.img"));
	image_make(image_path("disk.img"), 4 << 20);
	snprintf(file_uri, sizeof(file_uri), "soft:%s%s", image_path("disk.img"), keys);
	snprintf(sock, sizeof(sock), "%s", image_path("sock"));
	snprintf(user_uri, sizeof(user_uri), "vfio-user:%s", sock);
	server = served_fork(served_uri, sock);
	return server > 0 ? 0 : -1;
}

static inline int remove_disks(void **state)
{
	served_end(server);
	unlink(sock);
	unlink(image_path("served.img"));
	unlink(image_path("disk.img"));
	return image_remove_dir(state);
}

#endif
