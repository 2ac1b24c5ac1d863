/* SPDX-License-Identifier: MIT */
#include "common/drive.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/image.h"

char drive_image[128];
static char logged[8192];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	size_t at;

	(void)ctx;
	if (level > GPUNVME_LOG_INFO)
		return;
	pthread_mutex_lock(&lock);
	at = strlen(logged);
	snprintf(logged + at, sizeof(logged) - at, "%s\n", text);
	pthread_mutex_unlock(&lock);
}

bool has_logged(const char *text)
{
	bool has;

	pthread_mutex_lock(&lock);
	has = strstr(logged, text);
	pthread_mutex_unlock(&lock);
	return has;
}

void drive_make(const char *name, long long size)
{
	snprintf(drive_image, sizeof(drive_image), "%s", image_path(name));
	image_make(drive_image, size);
}

void drive_remove(void)
{
	unlink(drive_image);
}

int open_drive(const char *keys, struct gpunvme_dev **dev)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	char uri[320];

	opts.log = keep_log;
	pthread_mutex_lock(&lock);
	logged[0] = 0;
	pthread_mutex_unlock(&lock);
	snprintf(uri, sizeof(uri), "soft:%s?%s", drive_image, keys);
	return gpunvme_dev_open(uri, &opts, dev);
}
