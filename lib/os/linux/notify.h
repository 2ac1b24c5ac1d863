/* SPDX-License-Identifier: MIT */
/*
 * Adding to eventfds of another process. write() may never return there: that depends on a flag of the open file (O_NONBLOCK),
 * which the other process may change at any time, and a full counter, which it can make. The kernel's own notification of an
 * asynchronous operation (io_submit(2), IOCB_FLAG_RESFD) never waits: it adds as much as has room (eventfd_signal() in
 * fs/eventfd.c).
 */
#ifndef GNV_OS_LINUX_NOTIFY_H
#define GNV_OS_LINUX_NOTIFY_H

struct gnv_notify {
	unsigned long context; /* of the kernel, or 0 */
	int file;	       /* of no bytes, which an operation reads */
};

/* Return: 0; -errno: the kernel has no asynchronous operations to give (CONFIG_AIO, fs.aio-max-nr, a seccomp filter). */
int gnv_notify_open(struct gnv_notify *notify);
void gnv_notify_close(struct gnv_notify *notify);

/* Add 1 to the eventfd, unless it is full. Any thread. It never waits. */
void gnv_notify_event(const struct gnv_notify *notify, int event);

#endif
