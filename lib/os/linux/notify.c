/* SPDX-License-Identifier: MIT */
#include "os/linux/notify.h"

#include <errno.h>
#include <linux/aio_abi.h>
#include <linux/memfd.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROOM 128u /* completions that the kernel keeps until they are taken */

int gnv_notify_open(struct gnv_notify *notify)
{
	aio_context_t context = 0;
	int err;

	notify->file = (int)syscall(SYS_memfd_create, "gpunvme", MFD_CLOEXEC);
	if (notify->file < 0)
		return -errno;
	if (!syscall(SYS_io_setup, ROOM, &context)) {
		notify->context = context;
		return 0;
	}
	err = errno;
	close(notify->file);
	return -err;
}

void gnv_notify_close(struct gnv_notify *notify)
{
	syscall(SYS_io_destroy, (aio_context_t)notify->context);
	close(notify->file);
}

/* Threads may take each other's. */
static void take_completions(const struct gnv_notify *notify)
{
	struct timespec none = { 0, 0 };
	struct io_event done[ROOM];

	syscall(SYS_io_getevents, (aio_context_t)notify->context, 0l, (long)ROOM, done, &none);
}

void gnv_notify_event(const struct gnv_notify *notify, int event)
{
	struct iocb read = { .aio_lio_opcode = IOCB_CMD_PREAD,
			     .aio_fildes = (uint32_t)notify->file,
			     .aio_flags = IOCB_FLAG_RESFD,
			     .aio_resfd = (uint32_t)event };
	struct iocb *list = &read;

	while (syscall(SYS_io_submit, (aio_context_t)notify->context, 1l, &list) < 0 && errno == EAGAIN)
		take_completions(notify);
}
