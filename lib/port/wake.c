/* SPDX-License-Identifier: MIT */
#include "port/wake.h"

#include <errno.h>

#include "os/linux/event.h"
#include "util/log.h"

int gnv_wake_open(int *fd)
{
	*fd = gnv_event_open();
	return *fd < 0 ? gnv_fail(-EMFILE, "no descriptor for events. Raise RLIMIT_NOFILE (ulimit -n)") : 0;
}

void gnv_wake_ring(int fd)
{
	gnv_event_set(fd);
}

void gnv_wake_clear(int fd)
{
	gnv_event_clear(fd);
}

void gnv_wake_close(int fd)
{
	gnv_event_close(fd);
}
